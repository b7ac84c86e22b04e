//! The arithmetic of alignment: what is read for a range, and where it lands. Nothing here touches a file.
//!
//! A drive that is read around the page cache wants offset, length and address to be multiples of its block. A range is
//! widened to whole blocks and lands so that its first block begins at a multiple too: the asked-for bytes are then at
//! the block's place plus the offset modulo the block, and nothing needs to be copied.

use std::ops::Range;

use crate::read::{MAX_PARTS, Part};

/// One part, widened and placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The asked-for bytes in the file.
    pub asked: Part,
    /// First byte that is read, a multiple of the alignment.
    pub begin: u64,
    /// Byte after the last that is read, a multiple of the alignment.
    pub end: u64,
    /// Where byte `begin` lands in the memory, a multiple of the alignment.
    pub base: usize,
}

impl Placed {
    /// Byte after the last that was asked for. It exists: [`layout`] checked it.
    pub fn asked_end(&self) -> u64 {
        self.asked.offset + u64::from(self.asked.len)
    }

    /// Where the asked-for bytes are in the memory.
    pub fn place(&self) -> Range<usize> {
        let start = self.at(self.asked.offset);
        start..start + self.asked.len as usize
    }

    /// Where byte `offset` of the file lands, which must be within `begin..=end`.
    pub fn at(&self, offset: u64) -> usize {
        debug_assert!((self.begin..=self.end).contains(&offset));
        // At most the length of the part and two blocks: `layout` checked that it is a size.
        self.base + (offset - self.begin) as usize
    }
}

/// Parts of one request in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many of `parts` are meant.
    pub n: usize,
    /// One after the other in the memory.
    pub parts: [Placed; MAX_PARTS],
    /// Bytes of memory they need.
    pub room: usize,
}

/// Places `parts`, at most [`MAX_PARTS`], for a power of two `alignment`. `None` if an end is beyond what a file or the
/// memory can have.
pub fn layout(parts: &[Part], alignment: usize) -> Option<Layout> {
    debug_assert!(alignment.is_power_of_two());
    let block = u64::try_from(alignment).ok()?;
    let mut layout = Layout { n: parts.len(), parts: [Placed::default(); MAX_PARTS], room: 0 };
    for (part, placed) in parts.iter().zip(&mut layout.parts) {
        let asked_end = part.offset.checked_add(part.len.into())?;
        let (begin, end) = if part.len == 0 {
            // An empty range touches no block. Its place is its base.
            (part.offset, part.offset)
        } else {
            (part.offset / block * block, asked_end.checked_next_multiple_of(block)?)
        };
        // The system's offsets are signed.
        i64::try_from(end).ok()?;
        *placed = Placed { asked: *part, begin, end, base: layout.room };
        let room = layout.room.checked_add(usize::try_from(end - begin).ok()?)?;
        layout.room = room;
    }
    // An allocation is never larger, and so no memory has the room.
    (parts.len() <= MAX_PARTS && isize::try_from(layout.room).is_ok()).then_some(layout)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part() -> impl Strategy<Value = Part> {
        let offset = prop_oneof![0..10_000_u64, any::<u64>(), (u64::MAX >> 1) - 10_000..=u64::MAX >> 1];
        let len = prop_oneof![Just(0), 0..10_000_u32, any::<u32>()];
        (offset, len).prop_map(|(offset, len)| Part { offset, len })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 32 } else { 1024 }))]

        #[test]
        fn widened_ranges_cover_are_aligned_and_minimal(
            parts in prop::collection::vec(part(), 0..=MAX_PARTS),
            shift in 0..17_u32,
        ) {
            let alignment = 1_usize << shift;
            let block = alignment as u64;
            let Some(layout) = layout(&parts, alignment) else {
                let max = i64::MAX as u64;
                let far = |p: &Part| p.offset.saturating_add(p.len.into()) > max - (block - 1);
                prop_assert!(parts.iter().any(far), "refused without need");
                return Ok(());
            };
            let mut used = 0;
            for (part, placed) in parts.iter().zip(&layout.parts) {
                let end = part.offset + u64::from(part.len);
                prop_assert_eq!(placed.base, used);
                prop_assert_eq!(placed.place().len(), part.len as usize);
                if part.len == 0 {
                    prop_assert_eq!(placed.begin, placed.end);
                } else {
                    // It covers, is aligned, and a block less on either side would not cover.
                    prop_assert!(placed.begin <= part.offset && end <= placed.end);
                    prop_assert!(placed.begin % block == 0 && placed.end % block == 0);
                    prop_assert!(part.offset < placed.begin + block && placed.end < end + block);
                    prop_assert_eq!(placed.base % alignment, 0);
                    prop_assert_eq!(placed.place().start % alignment, (part.offset % block) as usize);
                    prop_assert_eq!(placed.at(part.offset), placed.place().start);
                }
                used += (placed.end - placed.begin) as usize;
                prop_assert!(placed.place().end <= used, "parts overlap");
            }
            prop_assert_eq!(layout.room, used);
        }
    }

    #[test]
    fn ends_beyond_any_file_are_refused() {
        let part = |offset, len| [Part { offset, len }];
        assert!(layout(&part(u64::MAX, 1), 1).is_none());
        assert!(layout(&part(i64::MAX as u64, 1), 1).is_none());
        assert!(layout(&part(i64::MAX as u64 - 1, 1), 1).is_some());
        assert!(layout(&part(i64::MAX as u64 - 1, 1), 512).is_none());
        assert!(layout(&[Part::default(); MAX_PARTS + 1], 1).is_none());
    }
}
