//! Host memory for expert blobs: one mapping, cut into slots that are handed out and taken back.

use std::fmt;
use std::ops::Range;

use crate::arena_error::{ArenaError, Expected, WrongLease};
use crate::host_layout::{Layout, MAX_CHUNK_BYTES};
use crate::host_map::{self, Map};
use crate::huge_pages::{self, HugePages};
use crate::id::HostSlot;

/// The most parts that a slot can remember.
pub(crate) const MAX_PARTS: usize = 4;

/// A size class: slots of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// Bytes a slot must hold, not 0; rounded up to the arena's alignment.
    pub slot_bytes: usize,
    /// Number of slots; may be 0.
    pub slots: u32,
}

/// How an arena is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaOptions {
    /// Alignment of every slot, in bytes: a power of two from 512 to 2 MiB. What direct reads need.
    pub align: usize,
    /// The most bytes of a chunk: whole pages, at most [`MAX_CHUNK_BYTES`].
    pub chunk_bytes: usize,
    /// Whether to ask the system for huge pages.
    pub huge_pages: bool,
    /// Whether to make every page present at once, so that no later use can fail for want of memory.
    pub prefault: bool,
}

impl ArenaOptions {
    pub(crate) const MIN_ALIGN: usize = 512;
    pub(crate) const MAX_ALIGN: usize = 2 << 20;
}

impl Default for ArenaOptions {
    fn default() -> Self {
        Self { align: 4096, chunk_bytes: MAX_CHUNK_BYTES, huge_pages: true, prefault: false }
    }
}

struct Slot {
    /// The memory, while it is not handed out.
    home: Option<&'static mut [u8]>,
    address: usize,
    len: usize,
    class: u32,
    /// Fits `u32`: a slot is within a chunk, and a chunk has at most 1 GiB.
    parts: [(u32, u32); MAX_PARTS],
    n_parts: usize,
}

/// Host memory cut into slots.
///
/// A slot's memory is a `&'static mut [u8]`. [`take`](Self::take) gives it to whoever fills it (a disk reader, a
/// copy from a device), which then owns it, whatever becomes of the arena; [`put`](Self::put) takes it back. While
/// a slot is home its bytes are lent by [`bytes`](Self::bytes) and [`part`](Self::part). So a buffer that the
/// kernel or a device still writes to cannot be read or freed, and no caller needs `unsafe`.
///
/// Pages are touched only when they are used, unless [`prefault`](ArenaOptions::prefault) is set: an arena costs
/// address space, and memory as it fills.
pub struct HostArena {
    slots: Vec<Slot>,
    classes: Vec<Range<u32>>,
    chunks: Vec<(usize, usize)>,
    /// What lies between slots and around them; part of the mapping like everything else.
    gaps: Vec<&'static mut [u8]>,
    map: Option<Map>,
    bytes: usize,
    page: usize,
    huge_pages: HugePages,
}

impl HostArena {
    /// Maps memory for these classes. Slots are numbered through the classes in order.
    ///
    /// # Errors
    /// Numbers that cannot be (each a sentence), and a system that refuses the memory.
    pub fn new(specs: &[ClassSpec], options: &ArenaOptions) -> Result<Self, ArenaError> {
        let page = rustix::param::page_size();
        let layout = Layout::new(specs, options, page)?;
        let mut arena = Self {
            slots: Vec::new(),
            classes: layout.classes,
            chunks: Vec::new(),
            gaps: Vec::new(),
            map: None,
            bytes: layout.bytes,
            page,
            huge_pages: HugePages::NotAsked,
        };
        if layout.bytes == 0 {
            return Ok(arena);
        }
        let slots = layout.places.len();
        arena.slots.try_reserve_exact(slots).map_err(|_| ArenaError::Index { slots: slots as u64 })?;

        let bytes = layout.bytes;
        let (map, all) =
            Map::new(bytes, options.align.max(page)).map_err(|source| ArenaError::Map { bytes, source })?;
        let (before, used) = all.split_at_mut(map.skip());
        arena.map = Some(map);
        arena.gaps.push(before);
        if options.huge_pages {
            arena.huge_pages = huge_pages::ask(used);
        }
        let populated = if options.prefault { host_map::populate(&mut used[..bytes], page) } else { Ok(()) };

        let start = used.as_ptr().addr();
        arena.chunks.extend(layout.chunks.iter().map(|chunk| (start + chunk.start, chunk.len())));
        let (mut rest, mut at) = (used, 0);
        for place in &layout.places {
            let (gap, from) = rest.split_at_mut(place.offset - at);
            let (memory, after) = from.split_at_mut(place.len);
            (rest, at) = (after, place.offset + place.len);
            if !gap.is_empty() {
                arena.gaps.push(gap);
            }
            arena.slots.push(Slot {
                address: memory.as_ptr().addr(),
                len: place.len,
                class: place.class,
                home: Some(memory),
                parts: [(0, 0); MAX_PARTS],
                n_parts: 0,
            });
        }
        arena.gaps.push(rest);
        // Only now: an arena that is complete gives its memory back when it is dropped.
        populated.map_err(|source| ArenaError::Prefault { bytes, source })?;
        Ok(arena)
    }

    /// The number of slots of all classes.
    pub fn n_slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The slots of a class, in the order of the specs; empty if there is no such class.
    pub fn class_slots(&self, class: usize) -> Range<u32> {
        self.classes.get(class).cloned().unwrap_or(0..0)
    }

    /// The class of a slot.
    pub fn class_of(&self, slot: HostSlot) -> Option<usize> {
        Some(self.slot(slot)?.class as usize)
    }

    /// The bytes of a slot: the class's, rounded up to the alignment.
    pub fn slot_bytes(&self, slot: HostSlot) -> Option<usize> {
        Some(self.slot(slot)?.len)
    }

    /// The address of a slot, whether it is home or not.
    pub fn address(&self, slot: HostSlot) -> Option<usize> {
        Some(self.slot(slot)?.address)
    }

    /// Bytes of all slots and of what lies between them.
    pub fn bytes_mapped(&self) -> usize {
        self.bytes
    }

    /// Address and length in bytes of each chunk, for registration with a kernel ring or a device. Whole pages; no slot
    /// is in two. Slots that are handed out are in them too: registering changes no byte.
    pub fn chunks(&self) -> &[(usize, usize)] {
        &self.chunks
    }

    /// What became of the wish for huge pages.
    pub fn huge_pages(&self) -> HugePages {
        self.huge_pages
    }

    /// Bytes of the slots that are behind huge pages now; memory that was not used yet is behind none. None if the
    /// system does not tell. It is asked each time, which takes milliseconds, and it counts whole mappings: memory that
    /// happens to lie directly beside the arena's can be in the number too.
    pub fn huge_page_bytes(&self) -> Option<u64> {
        let (first, last) = (self.chunks.first()?, self.chunks.last()?);
        huge_pages::bytes_in(first.0..last.0 + last.1)
    }

    /// Hands a slot's memory out, with whatever bytes it has. None if it is already out, or does not exist.
    ///
    /// The slot forgets its parts: whoever takes it is about to change it. Memory that is never put back (a reader that
    /// died with it) is lost to the arena, and keeps the whole mapping alive; nothing worse.
    pub fn take(&mut self, slot: HostSlot) -> Option<&'static mut [u8]> {
        let slot = self.slots.get_mut(slot.0 as usize)?;
        slot.n_parts = 0;
        slot.home.take()
    }

    /// Takes a slot's memory back.
    ///
    /// # Errors
    /// Memory of another address or length (a part of the lease is not the lease), a slot that is not out, or none at
    /// all. The error gives the memory back.
    pub fn put(&mut self, slot: HostSlot, lease: &'static mut [u8]) -> Result<(), WrongLease> {
        let slots = self.n_slots();
        let expected = match self.slots.get_mut(slot.0 as usize) {
            None => Expected::NoSlot { slots },
            Some(Slot { home: Some(_), .. }) => Expected::Home,
            Some(entry) if entry.address == lease.as_ptr().addr() && entry.len == lease.len() => {
                entry.home = Some(lease);
                return Ok(());
            }
            Some(entry) => Expected::Memory { address: entry.address, len: entry.len },
        };
        Err(WrongLease { slot, lease, expected })
    }

    /// All bytes of a slot. None while it is handed out, or if it does not exist.
    pub fn bytes(&self, slot: HostSlot) -> Option<&[u8]> {
        self.slot(slot)?.home.as_deref()
    }

    /// Whether the slot's memory is here.
    pub fn is_home(&self, slot: HostSlot) -> bool {
        self.slot(slot).is_some_and(|slot| slot.home.is_some())
    }

    /// Remembers where the parts of the blob in this slot are, in bytes from the slot's beginning: a direct read is
    /// wider than what was asked for, by a different amount each time. The slot may be home or not.
    ///
    /// # Errors
    /// More than four parts, and ranges that end before they begin or outside of the slot; the old parts stay then.
    pub fn set_parts(&mut self, slot: HostSlot, parts: &[Range<usize>]) -> Result<(), ArenaError> {
        let slots = self.n_slots();
        let entry = self.slots.get_mut(slot.0 as usize).ok_or(ArenaError::NoSlot { slot: slot.0, slots })?;
        if parts.len() > MAX_PARTS {
            return Err(ArenaError::TooManyParts { slot: slot.0, parts: parts.len() });
        }
        let mut checked = [(0, 0); MAX_PARTS];
        for (i, part) in parts.iter().enumerate() {
            let (start, end, len) = (part.start, part.end, entry.len);
            if start > end || end > len {
                return Err(ArenaError::Part { slot: slot.0, part: i, start, end, len });
            }
            checked[i] = (start as u32, end as u32);
        }
        (entry.parts, entry.n_parts) = (checked, parts.len());
        Ok(())
    }

    /// The bytes of a part. None while the slot is handed out, and for parts that were not set.
    pub fn part(&self, slot: HostSlot, part: usize) -> Option<&[u8]> {
        let slot = self.slot(slot)?;
        let (start, end) = *slot.parts.get(..slot.n_parts)?.get(part)?;
        slot.home.as_deref()?.get(start as usize..end as usize)
    }

    /// Gives a slot's memory back to the system; the slot stays, reads as zero, and costs memory again when it is
    /// used. Only whole pages within the slot go: with slots that are not whole pages, the edges stay. Gives the bytes
    /// that went.
    ///
    /// Memory that is registered with a kernel ring or a device must be unregistered first: the registration holds the
    /// old pages, so nothing would be freed, and later reads would arrive in pages that the slot no longer shows.
    ///
    /// # Errors
    /// A slot that is handed out or does not exist, and a system that does not take it.
    pub fn release(&mut self, slot: HostSlot) -> Result<usize, ArenaError> {
        let (slots, page) = (self.n_slots(), self.page);
        let entry = self.slots.get_mut(slot.0 as usize).ok_or(ArenaError::NoSlot { slot: slot.0, slots })?;
        let memory = entry.home.as_deref_mut().ok_or(ArenaError::Away { slot: slot.0 })?;
        entry.n_parts = 0;
        host_map::discard(memory, page).map_err(|source| ArenaError::Discard { slot: slot.0, source })
    }

    /// Gives the memory of a range of slots back, as [`release`](Self::release) does for one. Gives the bytes that went.
    ///
    /// # Errors
    /// As [`release`](Self::release). If a slot of the range is handed out or does not exist, nothing is released.
    pub fn give_back(&mut self, slots: Range<u32>) -> Result<usize, ArenaError> {
        let n_slots = self.n_slots();
        for slot in slots.clone() {
            let entry = self.slot(HostSlot(slot)).ok_or(ArenaError::NoSlot { slot, slots: n_slots })?;
            if entry.home.is_none() {
                return Err(ArenaError::Away { slot });
            }
        }
        slots.map(|slot| self.release(HostSlot(slot))).sum()
    }

    fn slot(&self, slot: HostSlot) -> Option<&Slot> {
        self.slots.get(slot.0 as usize)
    }
}

impl fmt::Debug for HostArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostArena")
            .field("classes", &self.classes)
            .field("chunks", &self.chunks.len())
            .field("bytes", &self.bytes)
            .field("huge_pages", &self.huge_pages)
            .finish_non_exhaustive()
    }
}

impl Drop for HostArena {
    /// Unmaps if every slot is home. If one is out, its holder may use it for ever (that is what `'static` says), so
    /// the whole mapping stays: leaked, and sound.
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            let slots = self.slots.iter_mut().filter_map(|slot| slot.home.take());
            map.unmap(slots.chain(self.gaps.drain(..)));
        }
    }
}
