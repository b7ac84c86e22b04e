//! Which bytes of the file are read into one buffer, and where they go from there. Nothing here reads or copies.

use nvme_reader::{MAX_PARTS, Part};

use super::wanted::Transfer;

/// Bytes between two transfers that are read along and thrown away: at a drive's rate they cost less than a read of their
/// own (64 KB take 30 us at 2 GB/s).
const GAP: u64 = 64 << 10;
/// A tensor is not begun at the end of a buffer that has room for less of it.
const LEAST: u64 = 1 << 20;

/// Bytes of a buffer that go to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    /// The part of the chunk that holds them.
    pub(super) part: usize,
    /// Where they begin in the part.
    pub(super) at: usize,
    pub(super) len: usize,
    /// Where they go, from the allocation's beginning.
    pub(super) to: u64,
}

/// What one buffer takes: ranges of the files, and what goes up from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// With the number of their file, at most [`MAX_PARTS`].
    pub(super) parts: Vec<(u32, Part)>,
    pub(super) copies: Vec<Copy>,
}

impl Chunk {
    /// Bytes that go up.
    pub(super) fn bytes(&self) -> u64 {
        self.copies.iter().map(|copy| copy.len as u64).sum()
    }
}

/// Packs the transfers, block after block and in each in the files' order, into buffers of `room` bytes.
///
/// The reader widens each part to the alignment; `room` counts what comes so and is a multiple of the alignment. Transfers
/// that are near each other in a file share a part, others a buffer; those that are neighbours on the device, too, are one
/// copy.
pub(super) fn chunks(blocks: &[Vec<Transfer<'_>>], room: usize, alignment: usize) -> Vec<Chunk> {
    let (room, alignment) = (room as u64, alignment as u64);
    assert!(room >= alignment && room.is_multiple_of(alignment), "{room} bytes by {alignment}");
    let mut packer = Packer { room, alignment, full: Vec::new(), open: Chunk::default(), used: 0 };
    for block in blocks {
        let mut block = block.clone();
        block.sort_by_key(|it| (it.from.shard, it.from.offset));
        block.iter().for_each(|transfer| packer.add(transfer));
    }
    packer.close();
    packer.full
}

struct Packer {
    room: u64,
    alignment: u64,
    full: Vec<Chunk>,
    open: Chunk,
    /// Room that the open chunk's parts take, without the last.
    used: u64,
}

impl Packer {
    fn add(&mut self, transfer: &Transfer<'_>) {
        let set = u32::from(transfer.from.shard);
        let (mut from, mut to) = (transfer.from.offset, transfer.to.0);
        let end = from + transfer.from.len;
        while from < end {
            let Some(reach) = self.reach(set, from, end - from) else {
                self.close();
                continue;
            };
            let len = end.min(reach) - from;
            self.put(from, len, to);
            (from, to) = (from + len, to + len);
        }
    }

    /// The byte of the file to which the open chunk can take it from `from` on, now in its last part; `None` if it takes
    /// nothing more. `left` are the bytes that are wanted.
    fn reach(&mut self, set: u32, from: u64, left: u64) -> Option<u64> {
        if let Some((last_set, last)) = self.open.parts.last() {
            let last_end = last.offset + u64::from(last.len);
            let begin = self.down(last.offset);
            if *last_set == set && (last.offset..=last_end + GAP).contains(&from) {
                let reach = begin + self.room - self.used;
                return (from < reach).then_some(reach);
            }
            let used = self.used + last_end.next_multiple_of(self.alignment) - begin;
            let reach = self.down(from) + self.room.saturating_sub(used);
            if self.open.parts.len() == MAX_PARTS || reach < from + left.min(LEAST) {
                return None;
            }
            self.used = used;
        }
        self.open.parts.push((set, Part { offset: from, len: 0 }));
        Some(self.down(from) + self.room - self.used)
    }

    /// Adds a range to the open chunk's last part.
    fn put(&mut self, from: u64, len: u64, to: u64) {
        let number = self.open.parts.len() - 1;
        let (_, part) = &mut self.open.parts[number];
        let at = (from - part.offset) as usize;
        part.len = part.len.max((from + len - part.offset) as u32);
        let len = len as usize;
        match self.open.copies.last_mut() {
            Some(last)
                if last.part == number && last.at + last.len == at && last.to + last.len as u64 == to =>
            {
                last.len += len;
            }
            _ => self.open.copies.push(Copy { part: number, at, len, to }),
        }
    }

    fn close(&mut self) {
        if !self.open.copies.is_empty() {
            self.full.push(std::mem::take(&mut self.open));
        }
        self.used = 0;
    }

    fn down(&self, offset: u64) -> u64 {
        offset / self.alignment * self.alignment
    }
}

#[cfg(test)]
mod tests {
    use gguf::Extent;
    use proptest::prelude::*;

    use super::*;
    use crate::cuda::memory::Place;

    fn transfer(shard: u16, offset: u64, len: u64, to: u64) -> Transfer<'static> {
        Transfer { tensor: "x", from: Extent { shard, offset, len }, to: Place(to) }
    }

    /// Bytes that the reader needs for a chunk.
    fn room(chunk: &Chunk, alignment: u64) -> u64 {
        let widened = |(_, part): &(u32, Part)| {
            let end = (part.offset + u64::from(part.len)).next_multiple_of(alignment);
            end - part.offset / alignment * alignment
        };
        chunk.parts.iter().map(widened).sum()
    }

    /// What the device has after all copies: for each byte its file and offset. Panics where two copies meet.
    fn device(chunks: &[Chunk], bytes: usize) -> Vec<Option<(u32, u64)>> {
        let mut device = vec![None; bytes];
        for chunk in chunks {
            for copy in &chunk.copies {
                let (set, part) = chunk.parts[copy.part];
                assert!(copy.at + copy.len <= part.len as usize, "{copy:?} of {part:?}");
                for i in 0..copy.len {
                    let byte = &mut device[copy.to as usize + i];
                    assert_eq!(*byte, None, "written twice");
                    *byte = Some((set, part.offset + (copy.at + i) as u64));
                }
            }
        }
        device
    }

    /// Transfers of some files in pieces, near each other and far, and their places on the device, near and far.
    fn blocks() -> impl Strategy<Value = Vec<Vec<(u16, u64, u64, u64)>>> {
        let gap = prop_oneof![3 => Just(0), 2 => 1..100_u64, 1 => Just(GAP), 1 => Just(GAP + 1)];
        let space = prop_oneof![2 => Just(0), 1 => 1..300_u64];
        let len = prop_oneof![1 => Just(0), 4 => 1..3000_u64, 1 => 3000..40_000_u64];
        prop::collection::vec(prop::collection::vec((0..2_u16, gap, len, space), 0..12), 1..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn every_byte_comes_once_and_fits(
            plan in blocks(),
            shift in 0..13_u32,
            rooms in 1..20_usize,
            backwards in any::<bool>(),
        ) {
            let alignment = 1_usize << shift;
            let room_of = (rooms * alignment).max(64).next_multiple_of(alignment);
            let (mut ends, mut to) = ([7_u64, 4096], 0);
            let mut wanted = Vec::new();
            let mut blocks: Vec<Vec<Transfer<'static>>> = Vec::new();
            for block in &plan {
                let mut list = Vec::new();
                for (shard, gap, len, space) in block {
                    let from = ends[usize::from(*shard)] + gap;
                    to += space;
                    wanted.resize(to as usize, None);
                    wanted.extend((from..from + len).map(|offset| Some((u32::from(*shard), offset))));
                    list.push(transfer(*shard, from, *len, to));
                    ends[usize::from(*shard)] = from + len;
                    to += len;
                }
                if backwards {
                    list.reverse();
                }
                blocks.push(list);
            }
            let all = chunks(&blocks, room_of, alignment);
            prop_assert_eq!(device(&all, to as usize), wanted);
            for chunk in &all {
                prop_assert!(chunk.parts.len() <= MAX_PARTS && !chunk.copies.is_empty());
                prop_assert!(room(chunk, alignment as u64) <= room_of as u64);
                prop_assert!(chunk.parts.iter().all(|(_, part)| part.len > 0));
            }
            let bytes: u64 = all.iter().map(Chunk::bytes).sum();
            prop_assert_eq!(bytes, blocks.iter().flatten().map(|it| it.from.len).sum::<u64>());
        }
    }

    #[test]
    fn neighbours_on_both_sides_are_one_copy() {
        let list = vec![transfer(0, 100, 50, 0), transfer(0, 150, 50, 50), transfer(0, 200, 50, 300)];
        let all = chunks(&[list], 4096, 1);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].parts, [(0, Part { offset: 100, len: 150 })]);
        let copy = |at, len, to| Copy { part: 0, at, len, to };
        assert_eq!(all[0].copies, [copy(0, 100, 0), copy(100, 50, 300)]);
    }

    /// A matrix that is larger than a buffer is cut where direct reads can be, so that no block is read twice.
    #[test]
    fn large_ones_are_cut_at_the_alignment() {
        let all = chunks(&[vec![transfer(0, 5000, 20_000, 256)]], 8192, 4096);
        let parts: Vec<_> = all.iter().map(|chunk| chunk.parts[0].1).collect();
        let cut = [(5000, 7288), (12_288, 8192), (20_480, 4520)];
        assert_eq!(parts, cut.map(|(offset, len)| Part { offset, len }));
        assert_eq!(all[1].copies, [Copy { part: 0, at: 0, len: 8192, to: 256 + 7288 }]);
    }

    #[test]
    fn small_ones_share_a_buffer_also_from_far() {
        let far = |i: u64| transfer(0, i << 20, 100, i * 256);
        let all = chunks(&[(0..6).map(far).collect(), vec![transfer(1, 0, 100, 6 * 256)]], 1 << 20, 512);
        let parts: Vec<usize> = all.iter().map(|chunk| chunk.parts.len()).collect();
        assert_eq!(parts, [4, 3]);
        // What lies between near ones comes along and goes nowhere.
        let near = chunks(&[vec![transfer(0, 0, 100, 0), transfer(0, 4096, 100, 256)]], 1 << 20, 1);
        assert_eq!((near.len(), near[0].parts.len(), near[0].bytes()), (1, 1, 200));
    }
}
