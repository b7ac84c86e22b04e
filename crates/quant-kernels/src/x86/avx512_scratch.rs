//! Aligned memory that a thread keeps between products.

use std::cell::RefCell;

use super::avx512::Line;

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// At least `len` lines; what they hold is unspecified. [`put`] gives them back.
pub(super) fn take(len: usize) -> Vec<Line> {
    let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if lines.len() < len {
        lines.resize(len, Line::ZERO);
    }
    lines
}

/// Keeps memory for the next [`take`] of this thread.
pub(super) fn put(lines: Vec<Line>) {
    FREE.with_borrow_mut(|free| free.push(lines));
}
