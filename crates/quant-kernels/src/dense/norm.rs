//! Softmax, RMS norm and the clamped SwiGLU.

use super::canon::exp;
use super::order::{LANES, dot, dot_vector, sum, sum_vector};
use super::vector::Vector;

#[inline(always)]
pub(super) fn softmax(x: &mut [f32]) {
    exponentials(x);
    divide(x, sum(x));
}

#[inline(always)]
pub(super) fn softmax_vector<V: Vector>(v: V, x: &mut [f32]) {
    exponentials(x);
    divide(x, sum_vector(v, x));
}

/// x = E(x - max x), and 0 for -inf.
#[inline(always)]
fn exponentials(x: &mut [f32]) {
    let max = largest(x);
    for v in x.iter_mut() {
        let e = exp(*v - max);
        *v = if *v == f32::NEG_INFINITY { 0.0 } else { e };
    }
}

#[inline(always)]
fn divide(x: &mut [f32], by: f32) {
    for v in x {
        *v /= by;
    }
}

/// The largest value; -inf for none. In 32 lanes, since the order does not change it: +0 and -0 differ by nothing that
/// E(x - max) sees. A NaN is never larger, so it does not become the maximum; it comes back through E and the sum.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    let mut max = f32::NEG_INFINITY;
    for &x in lanes.iter().chain(rest) {
        max = if x > max { x } else { max };
    }
    max
}

#[inline(always)]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    norm_by(dot(x, x), x, weight, eps, out);
}

#[inline(always)]
pub(super) fn rms_norm_vector<V: Vector>(v: V, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    norm_by(dot_vector(v, x, x), x, weight, eps, out);
}

#[inline(always)]
fn norm_by(squares: f32, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mean = squares / x.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = (x * factor) * weight;
    }
}

#[inline(always)]
pub(super) fn swiglu(gate: &mut [f32], up: &[f32], limit: f32) {
    for (gate, &up) in gate.iter_mut().zip(up) {
        // Comparisons, not min and max: a NaN must come out as NaN, or a broken sequence would go unnoticed.
        let g = if *gate > limit { limit } else { *gate };
        let u = if up > limit { limit } else { up };
        let u = if u < -limit { -limit } else { u };
        *gate = (g / (1.0 + exp(-g))) * u;
    }
}
