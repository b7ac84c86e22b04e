//! Memory that a thread keeps between products.

use std::cell::RefCell;

thread_local! {
    static FREE: RefCell<Vec<Vec<[f32; 8]>>> = const { RefCell::new(Vec::new()) };
}

/// At least `len` groups of eight floats; their values are unspecified. [`put`] gives them back.
pub(super) fn take(len: usize) -> Vec<[f32; 8]> {
    let mut eights = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if eights.len() < len {
        eights.resize(len, [0.0; 8]);
    }
    eights
}

/// Keeps memory for the next [`take`] of this thread.
pub(super) fn put(eights: Vec<[f32; 8]>) {
    FREE.with_borrow_mut(|free| free.push(eights));
}
