//! Products with rows of f32 values, and sums of rows.

use super::order::{dot, dot_vector};
use super::vector::{Vector, dots, fits, weigh};

/// The definition: one dot product a row.
#[inline(always)]
pub(super) fn dot_rows(a: &[f32], rows: &[f32], out: &mut [f32]) {
    if a.is_empty() {
        out.fill(0.0);
        return;
    }
    for (out, row) in out.iter_mut().zip(rows.chunks_exact(a.len())) {
        *out = dot(a, row);
    }
}

/// Longest rows of which eight go together: eight rows of 1,024 values are a first-level cache of 32 KB. Longer ones
/// stream faster one by one.
const TOGETHER: usize = 1024;

/// The same with eight rows at a time.
#[inline(always)]
pub(super) fn dot_rows_vector<V: Vector>(v: V, a: &[f32], rows: &[f32], out: &mut [f32]) {
    if a.is_empty() {
        out.fill(0.0);
        return;
    }
    let mut done = 0;
    if fits(a.len()) && a.len() <= TOGETHER {
        for (out, rows) in out.chunks_exact_mut(8).zip(rows.chunks_exact(8 * a.len())) {
            out.copy_from_slice(&dots::<V, 1, 8>(v, a, rows, a.len()));
            done += 8;
        }
    }
    for (out, row) in out[done..].iter_mut().zip(rows[done * a.len()..].chunks_exact(a.len())) {
        *out = dot_vector(v, a, row);
    }
}

#[inline(always)]
pub(super) fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = alpha.mul_add(x, *y);
    }
}

/// The definition: one axpy a row.
#[inline(always)]
pub(super) fn weighted_rows(p: &[f32], rows: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    if out.is_empty() {
        return;
    }
    for (&p, row) in p.iter().zip(rows.chunks_exact(out.len())) {
        axpy(p, row, out);
    }
}

/// Rows that are added before the next columns are taken: eight rows of 512 values are 16 KB, and 2 KB apart they still
/// fall into different ways of an eight-way first-level cache.
pub(super) const RUN: usize = 8;

/// The same with the sums of four registers kept over a run of rows.
#[inline(always)]
pub(super) fn weighted_rows_vector<V: Vector>(v: V, p: &[f32], rows: &[f32], out: &mut [f32]) {
    let width = out.len();
    out.fill(0.0);
    if width == 0 {
        return;
    }
    let span = 4 * V::WIDTH;
    let whole = width - width % span;
    for (p, rows) in p.chunks(RUN).zip(rows.chunks(RUN * width)) {
        for column in (0..whole).step_by(span) {
            weigh::<V, 1, 4>(v, p, 0, rows, width, column, out);
        }
        for (&p, row) in p.iter().zip(rows.chunks_exact(width)) {
            axpy(p, &row[whole..], &mut out[whole..]);
        }
    }
}

#[inline(always)]
pub(super) fn add(x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// y = y + (w * x), both rounded: Rust never contracts a product and a sum.
#[inline(always)]
pub(super) fn scale_add(w: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += w * x;
    }
}
