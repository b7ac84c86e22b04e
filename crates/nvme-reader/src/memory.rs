//! The memory that reads land in: who owns it, and where it is.

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Memory that a [`Reader`](crate::Reader) can own while the drive writes into it.
///
/// Implemented for `&'static mut [u8]` (a lease of an arena), `Vec<u8>` (its length, not its capacity), `Box<[u8]>` and
/// [`Aligned`].
///
/// # Safety
///
/// `bytes` answers with the same address and length every time, also after the value was moved, and until the value is
/// dropped or given away. Those bytes are initialised, and whoever owns the value is the only one who reads or writes
/// them.
pub unsafe trait Memory: Send + 'static {
    /// The bytes.
    fn bytes(&mut self) -> &mut [u8];
}

// SAFETY: an exclusive borrow that never ends is neither moved nor shared by anybody else.
unsafe impl Memory for &'static mut [u8] {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

// SAFETY: a vector owns its allocation, and moving the vector leaves it where it is. Nothing grows it: the reader only
// calls `bytes`.
unsafe impl Memory for Vec<u8> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

// SAFETY: a box owns its allocation, and moving the box leaves it where it is.
unsafe impl Memory for Box<[u8]> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

/// Zeroed memory at a multiple of an alignment, as reads around the page cache need it.
pub struct Aligned {
    at: NonNull<u8>,
    layout: Layout,
}

impl Aligned {
    /// Largest alignment, in bytes.
    pub const MAX_ALIGNMENT: usize = 1 << 30;

    /// `len` zeroed bytes at a multiple of `alignment`, which is rounded up to a power of two and at most
    /// [`MAX_ALIGNMENT`](Self::MAX_ALIGNMENT). `None` if there is not so much memory.
    pub fn new(len: usize, alignment: usize) -> Option<Self> {
        let alignment = alignment.clamp(1, Self::MAX_ALIGNMENT).next_power_of_two();
        let layout = Layout::from_size_align(len, alignment).ok()?;
        if len == 0 {
            return Some(Self { at: NonNull::without_provenance(layout.align().try_into().ok()?), layout });
        }
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { at, layout })
    }

    /// Gives the memory away for the rest of the program, to be cut into leases.
    pub fn leak(self) -> &'static mut [u8] {
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: the allocation is initialised and of this length; it is never freed, and `self` is gone, so nobody
        // else has it.
        unsafe { NonNull::slice_from_raw_parts(kept.at, kept.layout.size()).as_mut() }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation is initialised and of this length, and lives as long as `self`.
        unsafe { NonNull::slice_from_raw_parts(self.at, self.layout.size()).as_ref() }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { NonNull::slice_from_raw_parts(self.at, self.layout.size()).as_mut() }
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned {{ {} bytes at a multiple of {} }}", self.layout.size(), self.layout.align())
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `at` came from the allocator with this layout, and is freed here only.
            unsafe { alloc::dealloc(self.at.as_ptr(), self.layout) }
        }
    }
}

// SAFETY: it owns plain bytes, as a box does.
unsafe impl Send for Aligned {}
// SAFETY: a shared `Aligned` only lets its bytes be read.
unsafe impl Sync for Aligned {}

// SAFETY: it owns its allocation, and moving the value leaves it where it is.
unsafe impl Memory for Aligned {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

/// A place in memory that the reader owns: an address without a borrow, for the drive and the threads.
///
/// Whoever holds one may write to it only while the request it was made for is in flight. The engine keeps that: it makes
/// one when a request is accepted, and gives the memory back when the last I/O on it has returned.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    at: *mut u8,
    len: usize,
}

// SAFETY: an address of bytes that `Memory` (which is `Send`) owns exclusively; the type's rule says when it is used.
unsafe impl Send for Target {}

impl Target {
    /// The place of `memory`, which must stay where it is stored until the request completes.
    pub fn new<M: Memory>(memory: &mut M) -> Self {
        let bytes = memory.bytes();
        Self { at: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// The address of its first byte.
    #[cfg(target_os = "linux")]
    pub fn address(&self) -> usize {
        self.at.addr()
    }

    /// Its first byte, to write to.
    pub fn pointer(&self) -> *mut u8 {
        self.at
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// `len` bytes of it from byte `from`; none if there are not so many.
    pub fn part(&self, from: usize, len: usize) -> Self {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len), "an I/O outside of its memory");
        Self { at: self.at.wrapping_add(from), len }
    }

    /// Overwrites it from byte `from`, for tests that lose data. No I/O may be on it.
    pub fn spoil(&self, from: usize) {
        let part = self.part(from.min(self.len), self.len - from.min(self.len));
        // SAFETY: `part` checked the bounds, the request's memory is owned by the reader, and the only I/O on this part
        // of it has returned (the engine calls this with a result in hand).
        unsafe { part.at.write_bytes(0xDB, part.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_is_zeroed_aligned_and_writable() {
        for (len, alignment) in [(0, 1), (0, 4096), (1, 1), (1000, 512), (5000, 4096), (10, 3)] {
            let mut memory = Aligned::new(len, alignment).unwrap();
            assert_eq!(memory.len(), len);
            assert!(memory.iter().all(|b| *b == 0));
            assert_eq!(memory.as_ptr() as usize % alignment.next_power_of_two(), 0);
            memory.fill(3);
            assert!(memory.iter().all(|b| *b == 3));
        }
        assert!(Aligned::new(usize::MAX, 512).is_none());
    }

    #[test]
    fn every_memory_is_written_to_where_it_is_stored() {
        fn spoiled<M: Memory>(memory: M) -> M {
            let mut stored = [Some(memory)];
            let target = Target::new(stored[0].as_mut().unwrap());
            assert_eq!(target.len(), 100);
            target.part(10, 50).spoil(20);
            target.spoil(99);
            let mut memory = stored[0].take().unwrap();
            let changed: Vec<usize> = (0..100).filter(|i| memory.bytes()[*i] == 0xDB).collect();
            assert_eq!(changed, (30..60).chain([99]).collect::<Vec<_>>());
            memory
        }
        spoiled(vec![0; 100]);
        spoiled(vec![0; 100].into_boxed_slice());
        let memory = spoiled(Aligned::new(100, 64).unwrap());
        let lease = spoiled(memory.leak());
        // SAFETY: the lease is all of the memory that was leaked above with this layout, and nothing else has it.
        drop(Aligned { at: NonNull::from(lease).cast(), layout: Layout::from_size_align(100, 64).unwrap() });
    }

    #[test]
    #[should_panic(expected = "outside of its memory")]
    fn a_part_outside_is_a_panic() {
        let _ = Target::new(&mut vec![0; 10]).part(5, 6);
    }
}
