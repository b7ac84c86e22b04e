//! Products with rows of f32 values, and sums of rows.

use super::order::dot;

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

#[inline(always)]
pub(super) fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = alpha.mul_add(x, *y);
    }
}

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
