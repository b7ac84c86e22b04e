//! What can be wrong with an arena, in sentences.

use std::fmt;
use std::io;

use crate::host_arena::{ArenaOptions, MAX_PARTS};
use crate::host_layout::{MAX_CHUNK_BYTES, MAX_SLOTS};
use crate::id::HostSlot;

/// Why an arena cannot be made, or a call cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ArenaError {
    #[error("an alignment of {align} bytes is not a power of two from {min} to {max}",
        min = ArenaOptions::MIN_ALIGN, max = ArenaOptions::MAX_ALIGN)]
    Align { align: usize },
    #[error("a chunk of {bytes} bytes is not whole pages of {page} bytes up to {MAX_CHUNK_BYTES} bytes")]
    ChunkBytes { bytes: usize, page: usize },
    #[error("size class {class} has slots of {bytes} bytes; 1 to {limit} are allowed")]
    SlotBytes { class: usize, bytes: usize, limit: usize },
    #[error("{slots} slots are more than the limit of {MAX_SLOTS}")]
    TooManySlots { slots: u64 },
    #[error("the slots up to size class {class} exceed the address space")]
    TooLarge { class: usize },
    #[error("there is no memory for the index of {slots} slots")]
    Index { slots: u64 },
    #[error("the system refused {bytes} bytes of memory for expert slots: {source}")]
    Map { bytes: usize, source: io::Error },
    #[error("the system could not make {bytes} bytes of expert slots present: {source}")]
    Prefault { bytes: usize, source: io::Error },
    #[error("slot {slot} does not exist; there are {slots}")]
    NoSlot { slot: u32, slots: u32 },
    #[error("slot {slot} is handed out, so its memory cannot be given back")]
    Away { slot: u32 },
    #[error("slot {slot} can remember {MAX_PARTS} parts, not {parts}")]
    TooManyParts { slot: u32, parts: usize },
    #[error("part {part} of slot {slot} is bytes {start} to {end}, and the slot has {len} bytes")]
    Part { slot: u32, part: usize, start: usize, end: usize, len: usize },
    #[error("the system did not take back the memory of slot {slot}: {source}")]
    Discard { slot: u32, source: io::Error },
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
