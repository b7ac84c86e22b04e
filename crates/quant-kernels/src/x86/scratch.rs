//! Memory that a thread keeps between products.

use std::cell::RefCell;

thread_local! {
    static LEVELS: RefCell<Vec<[f32; 8]>> = const { RefCell::new(Vec::new()) };
    static FLOATS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` levels of tree sums; their values are unspecified.
#[inline(always)]
pub(super) fn levels<R>(len: usize, run: impl FnOnce(&mut [[f32; 8]]) -> R) -> R {
    LEVELS.with_borrow_mut(|levels| {
        if levels.len() < len {
            levels.resize(len, [0.0; 8]);
        }
        run(&mut levels[..len])
    })
}

/// Lends `len` floats; their values are unspecified.
#[inline(always)]
pub(super) fn floats<R>(len: usize, run: impl FnOnce(&mut [f32]) -> R) -> R {
    FLOATS.with_borrow_mut(|floats| {
        if floats.len() < len {
            floats.resize(len, 0.0);
        }
        run(&mut floats[..len])
    })
}
