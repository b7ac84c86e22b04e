//! Where the slots of a host arena lie: pure arithmetic, nothing is mapped here.

use std::ops::Range;

use crate::arena_error::ArenaError;
use crate::host_arena::{ArenaOptions, ClassSpec};

/// The most bytes a chunk may have. The kernel registers one buffer of exactly this size with a ring and refuses one
/// page more, so a slot that straddled two registrations could not be read into by one request.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;

/// The most slots an arena may have. Forty layers of three hundred experts need a thousandth of it; without a limit a
/// wrong number would make the index of slots, not the slots, exhaust memory.
pub const MAX_SLOTS: u32 = 1 << 24;

/// A slot's place in the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) class: u32,
}

/// The plan of an arena. Offsets are from the beginning of the mapping.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In ascending order and disjoint; classes follow each other.
    pub(crate) places: Vec<Place>,
    /// The slots of each class.
    pub(crate) classes: Vec<Range<u32>>,
    /// Whole pages; every place is within exactly one.
    pub(crate) chunks: Vec<Range<usize>>,
    /// Length of the mapping, whole pages; 0 without slots.
    pub(crate) bytes: usize,
}

impl Layout {
    /// Lays the classes out one after the other. `page` is the system's page size, a power of two.
    pub(crate) fn new(specs: &[ClassSpec], options: &ArenaOptions, page: usize) -> Result<Self, ArenaError> {
        let (align, chunk_limit) = (options.align, options.chunk_bytes);
        if !align.is_power_of_two() || !(ArenaOptions::MIN_ALIGN..=ArenaOptions::MAX_ALIGN).contains(&align) {
            return Err(ArenaError::Align { align });
        }
        if chunk_limit > MAX_CHUNK_BYTES || chunk_limit < page || !chunk_limit.is_multiple_of(page) {
            return Err(ArenaError::ChunkBytes { bytes: chunk_limit, page });
        }
        let slots: u64 = specs.iter().map(|spec| u64::from(spec.slots)).sum();
        if slots > u64::from(MAX_SLOTS) {
            return Err(ArenaError::TooManySlots { slots });
        }
        let mut layout = Self::default();
        layout.places.try_reserve_exact(slots as usize).map_err(|_| ArenaError::Index { slots })?;

        let mut at = 0_usize;
        let mut first = 0_u32;
        for (class, spec) in specs.iter().enumerate() {
            let len = slot_len(spec.slot_bytes, align)
                .filter(|len| *len <= chunk_limit)
                .ok_or(ArenaError::SlotBytes { class, bytes: spec.slot_bytes, limit: chunk_limit })?;
            for _ in 0..spec.slots {
                let fits = layout.chunks.last().is_some_and(|chunk| chunk_limit - (at - chunk.start) >= len);
                if !fits {
                    // Chunks are registered apart, so no page may belong to two.
                    let start = at.checked_next_multiple_of(align.max(page));
                    at = start.ok_or(ArenaError::TooLarge { class })?;
                    layout.chunks.push(at..at);
                }
                layout.places.push(Place { offset: at, len, class: class as u32 });
                at = at.checked_add(len).ok_or(ArenaError::TooLarge { class })?;
                if let Some(chunk) = layout.chunks.last_mut() {
                    chunk.end = at.checked_next_multiple_of(page).ok_or(ArenaError::TooLarge { class })?;
                }
            }
            let end = first + spec.slots;
            layout.classes.push(first..end);
            first = end;
        }
        layout.bytes = layout.chunks.last().map_or(0, |chunk| chunk.end);
        Ok(layout)
    }
}

/// The length of a slot for `bytes` bytes: rounded up, so that a read in whole blocks fits. None for 0 or overflow.
fn slot_len(bytes: usize, align: usize) -> Option<usize> {
    if bytes == 0 { None } else { bytes.checked_next_multiple_of(align) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = 4096;

    fn options(align: usize, chunk_bytes: usize) -> ArenaOptions {
        ArenaOptions { align, chunk_bytes, ..ArenaOptions::default() }
    }

    #[test]
    fn a_slot_that_would_straddle_begins_a_chunk() {
        let specs = [ClassSpec { slot_bytes: 3 * PAGE, slots: 3 }, ClassSpec { slot_bytes: 100, slots: 2 }];
        let layout = Layout::new(&specs, &options(512, 7 * PAGE), PAGE).expect("fits");
        let offsets: Vec<usize> = layout.places.iter().map(|p| p.offset).collect();
        assert_eq!(offsets, [0, 3 * PAGE, 6 * PAGE, 9 * PAGE, 9 * PAGE + 512]);
        assert_eq!(layout.chunks, [0..6 * PAGE, 6 * PAGE..10 * PAGE]);
        assert_eq!(layout.classes, [0..3, 3..5]);
        assert_eq!(layout.bytes, 10 * PAGE);
    }

    #[test]
    fn no_slots_need_no_bytes() {
        let layout = Layout::new(&[ClassSpec { slot_bytes: 5, slots: 0 }], &options(512, PAGE), PAGE);
        assert_eq!(layout.expect("legal").bytes, 0);
    }

    /// Numbers as they come from a wrong budget: each is a sentence, none an overflow or an attempt to allocate.
    #[test]
    fn wrong_numbers_are_errors() {
        let one = |slot_bytes, slots| vec![ClassSpec { slot_bytes, slots }];
        let gib = MAX_CHUNK_BYTES;
        let cases = [
            (one(1, 1), options(0, gib), "alignment"),
            (one(1, 1), options(768, gib), "alignment"),
            (one(1, 1), options(256, gib), "alignment"),
            (one(1, 1), options(4096, gib + PAGE), "chunk"),
            (one(1, 1), options(4096, 100), "chunk"),
            (one(1, 1), options(4096, 0), "chunk"),
            (one(0, 1), options(4096, gib), "0 bytes"),
            (one(gib + 1, 1), options(4096, gib), "1073741825 bytes"),
            (one(usize::MAX, 1), options(4096, gib), "18446744073709551615 bytes"),
            (one(1, u32::MAX), options(4096, gib), "4294967295 slots"),
        ];
        for (specs, options, part) in cases {
            let error = Layout::new(&specs, &options, PAGE).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn slots_are_disjoint_aligned_and_within_one_chunk(
            specs in prop::collection::vec((1_usize..40_000, 0_u32..60), 0..5),
            align in prop::sample::select(vec![512_usize, 1024, 4096, 16384]),
            chunk_pages in 10_usize..40,
        ) {
            let specs: Vec<ClassSpec> =
                specs.iter().map(|&(slot_bytes, slots)| ClassSpec { slot_bytes, slots }).collect();
            let options = options(align, chunk_pages * PAGE);
            let Ok(layout) = Layout::new(&specs, &options, PAGE) else {
                prop_assert!(specs.iter().any(|s| s.slot_bytes.next_multiple_of(align) > options.chunk_bytes));
                return Ok(());
            };
            let mut end = 0;
            for place in &layout.places {
                prop_assert!(place.offset >= end && place.offset % align == 0 && place.len % align == 0);
                prop_assert!(place.len >= specs[place.class as usize].slot_bytes);
                end = place.offset + place.len;
                let holding = layout.chunks.iter().filter(|c| c.start <= place.offset && end <= c.end);
                prop_assert_eq!(holding.count(), 1);
            }
            let mut end = 0;
            for chunk in &layout.chunks {
                prop_assert!(chunk.start >= end && chunk.len() <= options.chunk_bytes);
                prop_assert!(chunk.start % PAGE == 0 && chunk.end % PAGE == 0);
                end = chunk.end;
            }
            prop_assert!(layout.bytes >= end);
        }
    }
}
