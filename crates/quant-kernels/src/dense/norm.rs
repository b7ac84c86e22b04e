//! Softmax, RMS norm and the clamped SwiGLU.

use super::canon::exp;
use super::order::{dot, sum};

#[inline(always)]
pub(super) fn softmax(x: &mut [f32]) {
    // A NaN is never larger, so it does not become the maximum; it comes back through E(x - max) and the sum.
    let max = x.iter().fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max });
    for v in x.iter_mut() {
        let e = exp(*v - max);
        *v = if *v == f32::NEG_INFINITY { 0.0 } else { e };
    }
    let total = sum(x);
    for v in x {
        *v /= total;
    }
}

#[inline(always)]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mean = dot(x, x) / x.len() as f32;
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
