//! Attention of many heads over one set of rows, and the indexer's scores.

use super::norm::{softmax, softmax_vector};
use super::order::dot;
use super::rows::{RUN, axpy, dot_rows, dot_rows_vector, weighted_rows};
use super::vector::{Vector, dots, fits, weigh};

/// The definition: head by head.
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

/// Heads whose sums share the registers of a row.
const HEADS: usize = 4;

/// The same with the rows taken once for all heads, eight at a time, by four heads together.
#[inline(always)]
pub(super) fn attend_vector<V: Vector>(
    v: V,
    q: &[f32],
    rows: &[f32],
    width: usize,
    scale: f32,
    scores: &mut [f32],
    out: &mut [f32],
) {
    let n = rows.len() / width;
    if fits(width) {
        dots_of_heads(v, q, rows, width, scores);
    } else {
        for (q, scores) in q.chunks_exact(width).zip(scores.chunks_exact_mut(n)) {
            dot_rows_vector(v, q, rows, scores);
        }
    }
    for scores in scores.chunks_exact_mut(n) {
        for s in scores.iter_mut() {
            *s *= scale;
        }
        softmax_vector(v, scores);
    }
    out.fill(0.0);
    let span = 2 * V::WIDTH;
    let whole = width - width % span;
    for (run, rows) in rows.chunks(RUN * width).enumerate() {
        let first = run * RUN;
        for (out, scores) in out.chunks_mut(HEADS * width).zip(scores.chunks(HEADS * n)) {
            if out.len() == HEADS * width {
                for column in (0..whole).step_by(span) {
                    weigh::<V, HEADS, 2>(v, &scores[first..], n, rows, width, column, out);
                }
            } else {
                for (out, scores) in out.chunks_exact_mut(width).zip(scores.chunks_exact(n)) {
                    for column in (0..whole).step_by(span) {
                        weigh::<V, 1, 2>(v, &scores[first..], n, rows, width, column, out);
                    }
                }
            }
            for (out, scores) in out.chunks_exact_mut(width).zip(scores.chunks_exact(n)) {
                for (&p, row) in scores[first..].iter().zip(rows.chunks_exact(width)) {
                    axpy(p, &row[whole..], &mut out[whole..]);
                }
            }
        }
    }
}

/// scores\[h\]\[j\] = dot(q\[h\], rows\[j\]).
#[inline(always)]
fn dots_of_heads<V: Vector>(v: V, q: &[f32], rows: &[f32], width: usize, scores: &mut [f32]) {
    let n = rows.len() / width;
    for (run, rows) in rows.chunks(RUN * width).enumerate() {
        let first = run * RUN;
        let count = rows.len() / width;
        for (q, scores) in q.chunks(HEADS * width).zip(scores.chunks_mut(HEADS * n)) {
            if q.len() == HEADS * width && count == RUN {
                for pair in 0..RUN / 2 {
                    let sums = dots::<V, HEADS, 2>(v, q, &rows[2 * pair * width..], width);
                    for h in 0..HEADS {
                        scores[h * n + first + 2 * pair..][..2].copy_from_slice(&sums[2 * h..2 * h + 2]);
                    }
                }
            } else {
                for (q, scores) in q.chunks_exact(width).zip(scores.chunks_exact_mut(n)) {
                    dot_rows_vector(v, q, rows, &mut scores[first..first + count]);
                }
            }
        }
    }
}

/// The definition: key by key, head by head.
#[inline(always)]
pub(super) fn index_scores(iq: &[f32], iw: &[f32], pooled: &[f32], dim: usize, scale: f32, out: &mut [f32]) {
    for (out, key) in out.iter_mut().zip(pooled.chunks_exact(dim)) {
        let mut sum = 0.0;
        for (q, &w) in iq.chunks_exact(dim).zip(iw) {
            sum = w.mul_add(not_negative(dot(q, key)), sum);
        }
        *out = scale * sum;
    }
}

/// max(x, 0), except that a NaN stays: it is not below zero.
#[inline(always)]
fn not_negative(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// Heads whose products with two keys are held before they are weighted.
const MAX_HEADS: usize = 128;

/// The same with four heads and two keys at a time.
#[inline(always)]
pub(super) fn index_scores_vector<V: Vector>(
    v: V,
    iq: &[f32],
    iw: &[f32],
    pooled: &[f32],
    dim: usize,
    scale: f32,
    out: &mut [f32],
) {
    let heads = iw.len();
    let mut done = 0;
    if fits(dim) && heads.is_multiple_of(HEADS) && heads <= MAX_HEADS {
        let mut products = [[0.0; 2]; MAX_HEADS];
        for (out, keys) in out.chunks_exact_mut(2).zip(pooled.chunks_exact(2 * dim)) {
            for (q, products) in iq.chunks_exact(HEADS * dim).zip(products.chunks_exact_mut(HEADS)) {
                let sums = dots::<V, HEADS, 2>(v, q, keys, dim);
                products.as_flattened_mut().copy_from_slice(&sums);
            }
            let mut sums = [0.0; 2];
            for (products, &w) in products.iter().zip(iw) {
                for (sum, &product) in sums.iter_mut().zip(products) {
                    *sum = w.mul_add(not_negative(product), *sum);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = scale * sum;
            }
            done += 2;
        }
    }
    index_scores(iq, iw, &pooled[done * dim..], dim, scale, &mut out[done..]);
}
