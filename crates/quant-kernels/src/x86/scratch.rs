//! Memory that a thread keeps between products.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};

/// A cache line: vectors that do not straddle two are read and written in one go.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([[f32; 8]; 2]);

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Groups of eight floats, aligned to cache lines; given back to the thread when dropped.
pub(super) struct Eights(Vec<Line>);

/// At least `len` groups of eight floats; their values are unspecified.
pub(super) fn take(len: usize) -> Eights {
    let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if 2 * lines.len() < len {
        lines.resize(len.div_ceil(2), Line::zeroed());
    }
    Eights(lines)
}

impl Eights {
    /// All of them.
    pub(super) fn all(&mut self) -> &mut [[f32; 8]] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

impl Drop for Eights {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.0);
        FREE.with_borrow_mut(|free| free.push(lines));
    }
}
