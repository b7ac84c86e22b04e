//! What can be wrong with an arena, in sentences.

use std::fmt;
use std::io;

use crate::host_arena::{ArenaOptions, MAX_PARTS};
use crate::host_layout::{MAX_CHUNK_BYTES, MAX_SLOTS};
use crate::id::HostSlot;

/// Why an arena cannot be made, or a call cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// Slots cannot be aligned so.
    #[error("an alignment of {align} bytes is not a power of two from {min} to {max}",
        min = ArenaOptions::MIN_ALIGN, max = ArenaOptions::MAX_ALIGN)]
    Align {
        /// The alignment that was asked for, in bytes.
        align: usize,
    },
    /// Chunks cannot have this size.
    #[error("a chunk of {bytes} bytes is not whole pages of {page} bytes up to {MAX_CHUNK_BYTES} bytes")]
    ChunkBytes {
        /// Bytes of a chunk that were asked for.
        bytes: usize,
        /// Bytes of the system's pages.
        page: usize,
    },
    /// A slot would be empty, or larger than a chunk.
    #[error("size class {class} has slots of {bytes} bytes; 1 to {limit} are allowed")]
    SlotBytes {
        /// Index of the size class.
        class: usize,
        /// Bytes of its slots.
        bytes: usize,
        /// The most bytes that a slot may have.
        limit: usize,
    },
    /// The classes have more slots than have numbers.
    #[error("{slots} slots are more than the limit of {MAX_SLOTS}")]
    TooManySlots {
        /// Slots of all classes.
        slots: u64,
    },
    /// The slots have more bytes than there are addresses.
    #[error("the slots up to size class {class} exceed the address space")]
    TooLarge {
        /// Index of the size class at which that was found.
        class: usize,
    },
    /// Memory for what is known of each slot was refused.
    #[error("there is no memory for the index of {slots} slots")]
    Index {
        /// Slots of all classes.
        slots: u64,
    },
    /// The system maps no memory.
    #[error("the system refused {bytes} bytes of memory for expert slots: {source}")]
    Map {
        /// Bytes that were asked for.
        bytes: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// Pages could not be made present before their first use.
    #[error("the system could not make {bytes} bytes of expert slots present: {source}")]
    Prefault {
        /// Bytes of the mapping.
        bytes: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// A slot is named that is not there.
    #[error("slot {slot} does not exist; there are {slots}")]
    NoSlot {
        /// Its number.
        slot: u32,
        /// How many there are.
        slots: u32,
    },
    /// A slot is named whose lease is out.
    #[error("slot {slot} is handed out, so its memory cannot be given back")]
    Away {
        /// Its number.
        slot: u32,
    },
    /// More parts are to be remembered than a slot can.
    #[error("slot {slot} can remember {MAX_PARTS} parts, not {parts}")]
    TooManyParts {
        /// The slot's number.
        slot: u32,
        /// How many parts.
        parts: usize,
    },
    /// A part does not lie within its slot.
    #[error("part {part} of slot {slot} is bytes {start} to {end}, and the slot has {len} bytes")]
    Part {
        /// The slot's number.
        slot: u32,
        /// Index of the part.
        part: usize,
        /// Byte of the slot at which it begins.
        start: usize,
        /// Byte of the slot before which it ends.
        end: usize,
        /// Bytes of the slot.
        len: usize,
    },
    /// Pages could not be given back.
    #[error("the system did not take back the memory of slot {slot}: {source}")]
    Discard {
        /// The slot's number.
        slot: u32,
        /// The system's reason.
        source: io::Error,
    },
}

/// What was wrong with memory that [`HostArena::put`](crate::HostArena::put) did not take; the memory is in it.
#[derive(thiserror::Error)]
#[error("{len} bytes at {address:#x} are not slot {slot}, which {expected}", slot = slot.0, len = lease.len(),
    address = lease.as_ptr().addr())]
pub struct WrongLease {
    /// The slot it was offered as.
    pub slot: HostSlot,
    /// The memory, given back.
    pub lease: &'static mut [u8],
    pub(crate) expected: Expected,
}

impl fmt::Debug for WrongLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: that would print megabytes of weights.
        write!(f, "WrongLease({self})")
    }
}

/// What the slot would have taken.
pub(crate) enum Expected {
    Memory { address: usize, len: usize },
    Home,
    NoSlot { slots: u32 },
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { address, len } => write!(f, "has {len} bytes at {address:#x}"),
            Self::Home => f.write_str("is not handed out"),
            Self::NoSlot { slots } => write!(f, "does not exist; there are {slots}"),
        }
    }
}
