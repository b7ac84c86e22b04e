//! One anonymous mapping: memory from the system and back to it. The only file of this crate with `unsafe`.
//!
//! A mapping is handed out once, as one `&'static mut [u8]`, and can be unmapped only by handing all of it back. Slices
//! of that kind are exclusive, so pieces whose lengths add up to the mapping's length are the whole of it, and nobody
//! else has any. That makes both directions safe to call.

use std::ffi::c_void;
use std::io;

use rustix::mm::{MapFlags, ProtFlags};

/// Transparent huge pages have this size on x86-64 and, with 4 KiB pages, on aarch64.
const HUGE_PAGE: usize = 2 << 20;

/// A live mapping. Dropping it unmaps nothing: its memory was given away.
#[derive(Debug)]
pub(crate) struct Map {
    address: usize,
    len: usize,
    skip: usize,
}

impl Map {
    /// Maps at least `bytes` zero bytes, untouched, beginning at a multiple of `align` (a power of two), and gives all
    /// of it. `bytes` is not 0.
    pub(crate) fn new(bytes: usize, align: usize) -> io::Result<(Self, &'static mut [u8])> {
        // The system aligns to pages only; the rest of a larger alignment is skipped address space. A huge page can
        // only be where its whole range is, so from that size on the mapping begins with one.
        let align = if bytes >= HUGE_PAGE { align.max(HUGE_PAGE) } else { align };
        let len = bytes.checked_add(align).filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: without a wanted address and without MAP_FIXED the system picks a free range, so no memory that
        // anybody owns is replaced.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags)? };
        // SAFETY: the range is ours, readable, writable, zero (so initialised) and no longer than isize::MAX (checked
        // above). It stays mapped until `unmap`, which wants all of this slice back; no other reference to it exists.
        let all = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), len) };
        let address = start.expose_provenance();
        Ok((Self { address, len, skip: address.next_multiple_of(align) - address }, all))
    }

    /// The number of bytes from the mapping's beginning to the alignment that was asked for.
    pub(crate) fn skip(&self) -> usize {
        self.skip
    }

    /// Unmaps, if `pieces` are the whole mapping; otherwise leaves it mapped for ever and says so with `false`.
    pub(crate) fn unmap(self, pieces: impl Iterator<Item = &'static mut [u8]>) -> bool {
        let range = self.address..self.address + self.len;
        let mut total = 0_usize;
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            let start = piece.as_ptr().addr();
            if !range.contains(&start) || piece.len() > range.end - start {
                return false;
            }
            total += piece.len();
        }
        if total != self.len {
            return false;
        }
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(self.address);
        // SAFETY: the pieces were exclusive references to disjoint parts of this mapping (that is what their type
        // means), they add up to all of it, and they ended in the loop above. So nothing refers to it any more.
        unsafe { rustix::mm::munmap(start, self.len) }.is_ok()
    }
}

/// Asks for huge pages behind `memory`. An error says why the system does not want to.
#[cfg(target_os = "linux")]
pub(crate) fn advise_huge(memory: &mut [u8]) -> io::Result<()> {
    // SAFETY: advice about page sizes changes no byte.
    Ok(unsafe { advise(memory, rustix::mm::Advice::LinuxHugepage) }?)
}

/// Asks for huge pages behind `memory`. An error says why the system does not want to.
#[cfg(not(target_os = "linux"))]
pub(crate) fn advise_huge(_memory: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes every page of `memory` present now. Bytes stay what they are.
pub(crate) fn populate(memory: &mut [u8], page: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: populating makes pages present without changing a byte.
        match unsafe { advise(memory, rustix::mm::Advice::LinuxPopulateWrite) } {
            // Kernels before 5.14 do not know it.
            Err(rustix::io::Errno::INVAL) => {}
            done => return Ok(done?),
        }
    }
    for byte in memory.iter_mut().step_by(page) {
        // A plain write of the same value could be optimised away.
        *byte = std::hint::black_box(*byte);
    }
    Ok(())
}

/// Gives the whole pages within `memory` back to the system; they read as zero until written. The number of bytes.
pub(crate) fn discard(memory: &mut [u8], page: usize) -> io::Result<usize> {
    let start = memory.as_ptr().addr().next_multiple_of(page) - memory.as_ptr().addr();
    let Some(whole) = memory.get_mut(start..) else { return Ok(0) };
    let len = whole.len() / page * page;
    if len == 0 {
        return Ok(0);
    }
    #[cfg(target_os = "linux")]
    {
        // SAFETY: only whole pages within an exclusive slice change, and they become zero, which is a valid value of
        // every byte. The callers pass private anonymous memory.
        unsafe { advise(&mut whole[..len], rustix::mm::Advice::LinuxDontNeed) }?;
        Ok(len)
    }
    #[cfg(not(target_os = "linux"))]
    Ok(0)
}

/// # Safety
/// As `madvise`: what the advice does to the pages of `memory` must be sound for its owner.
#[cfg(target_os = "linux")]
unsafe fn advise(memory: &mut [u8], advice: rustix::mm::Advice) -> rustix::io::Result<()> {
    // SAFETY: the range is a live slice; the caller answers for the advice.
    unsafe { rustix::mm::madvise(memory.as_mut_ptr().cast::<c_void>(), memory.len(), advice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> usize {
        rustix::param::page_size()
    }

    #[test]
    fn all_of_it_is_there_and_can_go_back() {
        let (map, all) = Map::new(3 * page(), 4 * page()).expect("small");
        let skip = map.skip();
        assert!(all.len() >= skip + 3 * page());
        assert_eq!(all[skip..].as_ptr().addr() % (4 * page()), 0);
        assert!(all.iter().all(|byte| *byte == 0));
        all.fill(7);
        let (a, b) = all.split_at_mut(100);
        assert!(map.unmap([b, a].into_iter()));
    }

    #[test]
    fn a_part_or_foreign_memory_does_not_unmap() {
        let (map, all) = Map::new(page(), page()).expect("small");
        let (a, b) = all.split_at_mut(100);
        a[0] = 1;
        assert!(!map.unmap([b].into_iter()));
        assert_eq!(a[0], 1, "still mapped");

        let (map, all) = Map::new(page(), page()).expect("small");
        let foreign: &'static mut [u8] = Box::leak(vec![0; all.len()].into_boxed_slice());
        assert!(!map.unmap([foreign].into_iter()));
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Map::new(usize::MAX, 4096).is_err());
        assert!(Map::new(isize::MAX as usize, 4096).is_err());
        assert!(Map::new(1 << 60, 4096).is_err());
    }

    #[test]
    fn only_whole_pages_are_discarded() {
        let (map, all) = Map::new(3 * page(), page()).expect("small");
        populate(all, page()).expect("populates");
        all.fill(9);
        let got = discard(&mut all[1..3 * page() - 1], page()).expect("discards");
        if cfg!(target_os = "linux") {
            assert_eq!(got, page());
            assert_eq!((all[page() - 1], all[page()], all[2 * page() - 1], all[2 * page()]), (9, 0, 0, 9));
        }
        assert_eq!(discard(&mut all[1..page()], page()).expect("nothing to do"), 0);
        assert!(map.unmap([all].into_iter()));
    }
}
