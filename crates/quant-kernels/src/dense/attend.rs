//! Attention of many heads over one set of rows, and the indexer's scores.

use super::norm::softmax;
use super::order::dot;
use super::rows::{dot_rows, weighted_rows};

#[inline(always)]
pub(super) fn attend(q: &[f32], rows: &[f32], width: usize, scale: f32, scores: &mut [f32], out: &mut [f32]) {
    let n = rows.len() / width;
    let heads = q.chunks_exact(width).zip(scores.chunks_exact_mut(n)).zip(out.chunks_exact_mut(width));
    for ((q, scores), out) in heads {
        dot_rows(q, rows, scores);
        for s in scores.iter_mut() {
            *s *= scale;
        }
        softmax(scores);
        weighted_rows(scores, rows, out);
    }
}

#[inline(always)]
pub(super) fn index_scores(iq: &[f32], iw: &[f32], pooled: &[f32], dim: usize, scale: f32, out: &mut [f32]) {
    for (out, key) in out.iter_mut().zip(pooled.chunks_exact(dim)) {
        let mut sum = 0.0;
        for (q, &w) in iq.chunks_exact(dim).zip(iw) {
            let d = dot(q, key);
            // A NaN is not below zero and stays.
            let d = if d < 0.0 { 0.0 } else { d };
            sum = w.mul_add(d, sum);
        }
        *out = scale * sum;
    }
}
