//! Products of dequantised weights and f32 activations with AVX-512.
//!
//! As in `avx2_exact`, per block of 256 columns some weight rows are dequantised (by the AVX2 code) into a buffer that
//! stays in L1. The 32 lanes of a sum are two vectors; eight products at a time make 16 chains of FMA, and their lanes
//! are added together: four shuffles a product.

use std::arch::x86_64::*;

use bytemuck::cast_slice_mut;

use super::avx2_exact::dequantize;
use super::avx512::Trees16;
use super::avx512_scratch as scratch;
use crate::{Matrix, Rows};

/// Columns of a block, and lanes that share its sums.
const BLOCK: usize = 256;
const LANES: usize = 32;
/// Weight rows that are dequantised together: 16 KiB, a third of L1, and a vector of sums.
const TILE_ROWS: usize = 16;
/// Activation rows of a tile.
const TILE_COLS: usize = 32;

/// Every format, any number of rows.
///
/// # Safety
///
/// AVX2, FMA, F16C and AVX-512 F, BW, VL, DQ, VBMI and VNNI; `w` and `x` have the same width, `out` room for the product.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub(super) unsafe fn matmul(w: Matrix<'_>, x: &Rows, out: &mut [f32]) {
    let n = x.n();
    let blocks = w.cols().div_ceil(BLOCK);
    let most = n.min(TILE_COLS);
    let mut levels = scratch::take(most * Trees16::depth(blocks));
    // The dequantised block, then a padded one of two activation rows.
    let mut floats = scratch::take((TILE_ROWS + 2) * BLOCK / 16);
    let (floats, _) = cast_slice_mut::<_, f32>(&mut floats).as_chunks_mut::<BLOCK>();
    let (weights, copies) = floats.split_at_mut(TILE_ROWS);
    for t0 in (0..n).step_by(TILE_COLS) {
        let cols = TILE_COLS.min(n - t0);
        for r0 in (0..w.rows()).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(w.rows() - r0);
            let mut trees = Trees16::new(&mut levels, blocks);
            for start in (0..w.cols()).step_by(BLOCK) {
                let len = BLOCK.min(w.cols() - start);
                let padded = len.next_multiple_of(LANES);
                for (r, weights) in weights.iter_mut().enumerate().take(rows) {
                    // SAFETY: the caller's.
                    unsafe { dequantize(w.quant(), w.row(r0 + r), start, &mut weights[..len]) };
                    // A product of -0.0 and 0.0 changes no sum, not even one that is -0.0.
                    weights[len..].fill(-0.0);
                }
                let mut t = 0;
                while t < cols {
                    let pair = 2.min(cols - t);
                    let mut x = [&x.row(t0 + t)[start..], &x.row(t0 + t + pair - 1)[start..]];
                    if len < padded {
                        for (copy, x) in copies.iter_mut().zip(x) {
                            copy.fill(0.0);
                            copy[..len].copy_from_slice(&x[..len]);
                        }
                        x = [&copies[0], &copies[1]];
                    }
                    let mut partials = [[0.0; TILE_ROWS]; 2];
                    // SAFETY: the caller's; the rows hold `padded` values from `start` on, or are copies.
                    unsafe {
                        if pair == 2 {
                            for r in (0..rows).step_by(4) {
                                let w = [&weights[r], &weights[r + 1], &weights[r + 2], &weights[r + 3]];
                                let sums = block_dots(w, x, padded);
                                partials[0][r..r + 4].copy_from_slice(&sums[..4]);
                                partials[1][r..r + 4].copy_from_slice(&sums[4..]);
                            }
                        } else {
                            for r in (0..rows).step_by(8) {
                                let mut eight = [&weights[0]; 8];
                                for (i, row) in eight.iter_mut().enumerate() {
                                    *row = &weights[r + i];
                                }
                                let sums = block_dots(eight, [x[0]], padded);
                                partials[0][r..r + 8].copy_from_slice(&sums);
                            }
                        }
                        for (i, partials) in partials.iter().enumerate().take(pair) {
                            trees.push(t + i, _mm512_loadu_ps(partials.as_ptr()));
                        }
                    }
                    t += pair;
                }
                trees.advance();
            }
            for t in 0..cols {
                // SAFETY: the caller's.
                let sums = unsafe { trees.finish(t) };
                for (r, sum) in sums.iter().enumerate().take(rows) {
                    out[(r0 + r) * n + t0 + t] = *sum;
                }
            }
        }
    }
    scratch::put(levels);
}

/// The sums of 32 lanes of `R` weight rows times `T` activation rows, `R * T` = 8: first those of the first activation row.
///
/// # Safety
///
/// AVX-512F; every slice of `x` holds `len` values, `len` is a multiple of 32 and at most 256.
#[inline(always)]
unsafe fn block_dots<const R: usize, const T: usize>(
    w: [&[f32; BLOCK]; R],
    x: [&[f32]; T],
    len: usize,
) -> [f32; 8] {
    const { assert!(R * T == 8) };
    // SAFETY: the caller's.
    unsafe {
        let zero = _mm512_setzero_ps();
        let mut acc = [[[zero; 2]; R]; T];
        for at in (0..len).step_by(LANES) {
            for k in 0..2 {
                let mut values = [zero; T];
                for t in 0..T {
                    values[t] = _mm512_loadu_ps(x[t].as_ptr().add(at + 16 * k));
                }
                for r in 0..R {
                    let w = _mm512_loadu_ps(w[r].as_ptr().add(at + 16 * k));
                    for t in 0..T {
                        acc[t][r][k] = _mm512_fmadd_ps(w, values[t], acc[t][r][k]);
                    }
                }
            }
        }
        let mut sums = [zero; 8];
        for t in 0..T {
            for r in 0..R {
                sums[R * t + r] = pairs(acc[t][r][0], acc[t][r][1]);
            }
        }
        lanes(&sums)
    }
}

/// Sums of adjacent pairs: in every lane of 128 bits two of `a`, then two of `b`.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn pairs(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        _mm512_add_ps(_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
    }
}

/// Sums of adjacent lanes of 128 bits: two of `a`, then two of `b`.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn lane_pairs(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        _mm512_add_ps(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
        )
    }
}

/// Eight sums of 32 lanes by adjacent pairs, the first level done by [`pairs`] of a sum's two vectors.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn lanes(v: &[__m512; 8]) -> [f32; 8] {
    // SAFETY: the caller has AVX-512F; the array has room for eight floats.
    unsafe {
        // Lane l of 128 bits: fours l of the low and the high 16 lanes of a sum, then of another sum.
        let fours = [pairs(v[0], v[1]), pairs(v[2], v[3]), pairs(v[4], v[5]), pairs(v[6], v[7])];
        let eights = [lane_pairs(fours[0], fours[1]), lane_pairs(fours[2], fours[3])];
        // Lane l: the low and the high 16 lanes of sum 2 l, of sum 2 l + 1.
        let halves = lane_pairs(eights[0], eights[1]);
        let sums = _mm512_add_ps(halves, _mm512_permute_ps::<0b10_11_00_01>(halves));
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
        let mut out = [0.0; 8];
        _mm256_storeu_ps(out.as_mut_ptr(), _mm512_castps512_ps256(_mm512_permutexvar_ps(even, sums)));
        out
    }
}
