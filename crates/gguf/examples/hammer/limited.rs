//! The system's allocator, remembering the largest single request. It is how the fuzz drivers see that a header of a
//! few bytes makes the parser ask for no more than a few bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Forwards to [`System`].
pub struct Limited;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The largest request since the last call, in bytes.
pub fn take_largest() -> usize {
    LARGEST.swap(0, Ordering::Relaxed)
}

fn note(size: usize) {
    LARGEST.fetch_max(size, Ordering::Relaxed);
}

// SAFETY: every method hands its arguments, unchanged, to the same method of `System`, which keeps the contract; the
// atomic beside it allocates nothing.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; `ptr` is from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: as the caller promises; `ptr` is from `System`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}
