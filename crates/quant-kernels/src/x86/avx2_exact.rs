//! Products of dequantised weights and f32 activations with AVX2 and FMA.
//!
//! Per block of 256 columns some weight rows are dequantised into a buffer that stays in L1. Lane j of 32 is lane j % 8
//! of accumulator j / 8; the accumulators are independent, so they are done two at a time for two weight rows and two
//! activation rows: 8 chains of FMA hide its latency.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2::{Trees, eight_times, load};
use super::avx2_narrow::{self, NarrowAvx2};
use super::avx2_wide::{self, Weights, WideAvx2};
use super::scratch;
use crate::dequantize::{self, with_narrow, with_wide};
use crate::{Matrix, Quant, Rows, narrow, wide};

/// Columns of a block, and lanes that share its sums.
const BLOCK: usize = 256;
const LANES: usize = 32;
/// Weight rows that are dequantised together: 16 KiB, half of L1.
const TILE_ROWS: usize = 16;
/// The same for fewer than [`FEW`] activation rows, which stay in L1 or L2 themselves: two rows are read as two streams,
/// at three times the rate of sixteen.
const FEW_ROWS: usize = 2;
const FEW: usize = 8;
/// Activation rows of a tile.
const TILE_COLS: usize = 32;

/// Every format, any number of rows.
///
/// # Safety
///
/// AVX2, FMA and F16C; `w` and `x` have the same width, `out` room for the product.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn matmul(w: Matrix<'_>, x: &Rows, out: &mut [f32]) {
    let n = x.n();
    if n == 0 {
        return;
    }
    let blocks = w.cols().div_ceil(BLOCK);
    let groups = n.min(TILE_COLS).div_ceil(8);
    let tile_rows = if n < FEW { FEW_ROWS } else { TILE_ROWS };
    // Weights, then a padded block of two activation rows, then the partials of a tile.
    let mut floats = scratch::take(TILE_ROWS * BLOCK / 8 + 2 * BLOCK / 8 + TILE_ROWS * groups);
    let mut levels = scratch::take(TILE_ROWS * groups * Trees::depth(blocks));
    let (weights, rest) = floats.all().as_flattened_mut().split_at_mut(TILE_ROWS * BLOCK);
    let (padded, partials) = rest.split_at_mut(2 * BLOCK);
    partials.fill(0.0);
    for t0 in (0..n).step_by(TILE_COLS) {
        let cols = TILE_COLS.min(n - t0);
        for r0 in (0..w.rows()).step_by(tile_rows) {
            let rows = tile_rows.min(w.rows() - r0);
            let mut trees = Trees::new(levels.all(), blocks);
            for start in (0..w.cols()).step_by(BLOCK) {
                let len = BLOCK.min(w.cols() - start);
                for (r, weights) in weights.chunks_exact_mut(BLOCK).take(rows).enumerate() {
                    // SAFETY: the caller's.
                    unsafe { dequantize(w.quant(), w.row(r0 + r), start, &mut weights[..len]) };
                    // A product of -0.0 and 0.0 changes no sum, not even one that is -0.0.
                    weights[len..].fill(-0.0);
                }
                let tile = Tile { weights, rows, len: len.next_multiple_of(LANES), stride: groups * 8 };
                for t in (0..cols).step_by(2) {
                    let second = (t + 1).min(cols - 1);
                    let mut pair = [&x.row(t0 + t)[start..], &x.row(t0 + second)[start..]];
                    let copies = &mut *padded;
                    if len < tile.len {
                        copies.fill(0.0);
                        let (a, b) = copies.split_at_mut(BLOCK);
                        a[..len].copy_from_slice(&pair[0][..len]);
                        b[..len].copy_from_slice(&pair[1][..len]);
                        pair = [a, b];
                    }
                    // SAFETY: the caller's; the rows hold `tile.len` values from `start` on, or are copies.
                    unsafe { tile.times(pair, [t, second], partials) };
                }
                for i in 0..rows * groups {
                    // SAFETY: the caller's; the partials hold eight floats for each.
                    unsafe { trees.push(i, _mm256_loadu_ps(partials[8 * i..][..8].as_ptr())) };
                }
                trees.advance();
            }
            for r in 0..rows {
                for g in 0..cols.div_ceil(8) {
                    // SAFETY: the caller's.
                    let sums = unsafe { trees.finish(r * groups + g) };
                    let some = 8.min(cols - 8 * g);
                    out[(r0 + r) * n + t0 + 8 * g..][..some].copy_from_slice(&sums[..some]);
                }
            }
        }
    }
}

/// Dequantised blocks of some weight rows.
struct Tile<'a> {
    /// `[TILE_ROWS][BLOCK]`.
    weights: &'a [f32],
    rows: usize,
    /// Values of the block, a multiple of `LANES`.
    len: usize,
    /// From a row of partials to the next.
    stride: usize,
}

impl Tile<'_> {
    /// All rows times two activation rows, which may be the same one.
    ///
    /// # Safety
    ///
    /// AVX2 and FMA; `x` has `len` values each, `partials` room at `t` in every row.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn times(&self, x: [&[f32]; 2], t: [usize; 2], partials: &mut [f32]) {
        for r in (0..self.rows).step_by(2) {
            let second = (r + 1).min(self.rows - 1);
            let w = [&self.weights[r * BLOCK..], &self.weights[second * BLOCK..]];
            // SAFETY: the caller's.
            let sums = unsafe {
                if t[0] == t[1] {
                    block_dots::<1, 4>(w, [x[0]], self.len)
                } else {
                    block_dots::<2, 2>(w, x, self.len)
                }
            };
            partials[r * self.stride + t[0]] = sums[0];
            partials[r * self.stride + t[1]] = sums[1];
            partials[second * self.stride + t[0]] = sums[2];
            partials[second * self.stride + t[1]] = sums[3];
        }
    }
}

/// The sums of 32 lanes of two weight rows times one or two activation rows; with one, it counts as both. `K` of the
/// four accumulators are done at once, so that 2 * T * K = 8 chains are under way.
///
/// # Safety
///
/// AVX2 and FMA; every slice holds `len` values, `len` is a multiple of 32.
#[inline(always)]
unsafe fn block_dots<const T: usize, const K: usize>(w: [&[f32]; 2], x: [&[f32]; T], len: usize) -> [f32; 4] {
    // SAFETY: the caller's.
    unsafe {
        // `[pair][accumulator]`, a pair being a weight row and an activation row.
        let mut acc = [[_mm256_setzero_ps(); 4]; 4];
        for first in (0..4).step_by(K) {
            let mut sums = [[[_mm256_setzero_ps(); K]; T]; 2];
            for at in (8 * first..len).step_by(LANES) {
                for (r, w) in w.iter().enumerate() {
                    for k in 0..K {
                        let w = _mm256_loadu_ps(w.as_ptr().add(at + 8 * k));
                        for (t, x) in x.iter().enumerate() {
                            let x = _mm256_loadu_ps(x.as_ptr().add(at + 8 * k));
                            sums[r][t][k] = _mm256_fmadd_ps(w, x, sums[r][t][k]);
                        }
                    }
                }
            }
            for r in 0..2 {
                for t in 0..2 {
                    for k in 0..K {
                        acc[2 * r + t][first + k] = sums[r][t.min(T - 1)][k];
                    }
                }
            }
        }
        // Adjacent pairs: within eights, then across the four accumulators.
        let mut four = [_mm_setzero_ps(); 4];
        for (four, a) in four.iter_mut().zip(acc) {
            let fours = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
            *four = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours));
        }
        let sums = _mm_hadd_ps(_mm_hadd_ps(four[0], four[1]), _mm_hadd_ps(four[2], four[3]));
        let mut out = [0.0; 4];
        _mm_storeu_ps(out.as_mut_ptr(), sums);
        out
    }
}

/// Dequantises the weights of a row from column `start` on; both ends lie on block borders.
///
/// # Safety
///
/// AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn dequantize(quant: Quant, row: &[u8], start: usize, out: &mut [f32]) {
    let block_bytes = quant.block_bytes();
    let bytes =
        &row[start / quant.block_len() * block_bytes..][..out.len() / quant.block_len() * block_bytes];
    // SAFETY: the caller's.
    unsafe {
        with_wide!(quant, Block => {
            for (block, out) in cast_slice::<u8, Block>(bytes).iter().zip(out.chunks_exact_mut(wide::LEN)) {
                wide_block(block, out);
            }
        }, _ => {
            with_narrow!(quant, Block => {
                for (block, out) in cast_slice::<u8, Block>(bytes).iter().zip(out.chunks_exact_mut(narrow::LEN)) {
                    narrow_block(block, out);
                }
            }, _ => match quant {
                Quant::F16 => f16(bytes, out),
                Quant::Bf16 => bf16(bytes, out),
                _ => dequantize::blocks(quant, bytes, out),
            })
        });
    }
}

/// `d * scale * w`, less `dmin * min`: see `crate::wide::Parts`.
///
/// # Safety
///
/// AVX2 and F16C; `out` has 256 values.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn wide_block<B: WideAvx2>(block: &B, out: &mut [f32]) {
    assert_eq!(out.len(), wide::LEN);
    // SAFETY: the caller's; `out` has room for 32 vectors.
    unsafe {
        let shared = block.shared();
        let unpacked = block.scales(&shared);
        let one = |half: [u8; 2]| _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(half)));
        let d = _mm256_mul_ps(one(block.d()), _mm256_set1_ps(B::UNIT));
        // Sub-block 2 i is number i of the low lane, 2 i + 1 of the high lane.
        let scaled = |lane: __m128i| _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(lane)));
        let (mut scales, mut mins) = ([[0.0f32; 8]; 2], [[0.0f32; 8]; 2]);
        _mm256_storeu_ps(scales[0].as_mut_ptr(), scaled(_mm256_castsi256_si128(unpacked.scale)));
        _mm256_storeu_ps(scales[1].as_mut_ptr(), scaled(_mm256_extracti128_si256::<1>(unpacked.scale)));
        if B::KIND == avx2_wide::Kind::Minima {
            let dmin = one(block.dmin());
            let scaled = |lane: __m128i| _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(lane)));
            _mm256_storeu_ps(mins[0].as_mut_ptr(), scaled(_mm256_castsi256_si128(unpacked.by_sums)));
            _mm256_storeu_ps(mins[1].as_mut_ptr(), scaled(_mm256_extracti128_si256::<1>(unpacked.by_sums)));
        }
        eight_times!(i => {
            let Weights { w, sign } = block.weights(&shared, i);
            let w = match B::KIND {
                avx2_wide::Kind::Signed => _mm256_sign_epi8(w, sign),
                avx2_wide::Kind::Masked => _mm256_sub_epi8(_mm256_xor_si256(w, sign), sign),
                avx2_wide::Kind::Offset { shift } => _mm256_sub_epi8(w, _mm256_set1_epi8(1 << shift)),
                avx2_wide::Kind::Minima => w,
            };
            for (odd, half) in
                [_mm256_castsi256_si128(w), _mm256_extracti128_si256::<1>(w)].into_iter().enumerate()
            {
                let scale = _mm256_set1_ps(scales[odd][i]);
                let sub_block = 2 * i + odd;
                let min = _mm256_set1_ps(mins[sub_block / 8][sub_block % 8]);
                for (k, eight) in [half, _mm_unpackhi_epi64(half, half)].into_iter().enumerate() {
                    let mut value = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
                    if B::KIND == avx2_wide::Kind::Minima {
                        value = _mm256_sub_ps(value, min);
                    }
                    _mm256_storeu_ps(out.as_mut_ptr().add(16 * sub_block + 8 * k), value);
                }
            }
        });
    }
}

/// `d * w`, plus `m`: see `crate::narrow::Parts`.
///
/// # Safety
///
/// AVX2 and F16C; `out` has 32 values.
#[inline(always)]
unsafe fn narrow_block<B: NarrowAvx2>(block: &B, out: &mut [f32]) {
    assert_eq!(out.len(), narrow::LEN);
    // SAFETY: the caller's; `out` has room for 4 vectors.
    unsafe {
        let w = match B::KIND {
            avx2_narrow::Kind::Offset(offset) => {
                _mm256_sub_epi8(block.vector(), _mm256_set1_epi8(offset as i8))
            }
            avx2_narrow::Kind::Signed | avx2_narrow::Kind::Minimum => block.vector(),
        };
        let d = B::scales(_mm_set1_epi16(block.d() as i16));
        let m = _mm256_cvtph_ps(_mm_set1_epi16(block.m() as i16));
        for (i, half) in [_mm256_castsi256_si128(w), _mm256_extracti128_si256::<1>(w)].into_iter().enumerate()
        {
            for (k, eight) in [half, _mm_unpackhi_epi64(half, half)].into_iter().enumerate() {
                let mut value = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
                if B::MINIMUM {
                    value = _mm256_add_ps(value, m);
                }
                _mm256_storeu_ps(out.as_mut_ptr().add(16 * i + 8 * k), value);
            }
        }
    }
}

/// # Safety
///
/// AVX2 and F16C.
#[inline(always)]
unsafe fn f16(bytes: &[u8], out: &mut [f32]) {
    let (out, last) = out.as_chunks_mut::<8>();
    let (bytes, rest) = bytes.as_chunks::<16>();
    for (out, bytes) in out.iter_mut().zip(bytes) {
        // SAFETY: the caller's; 16 bytes are readable, 8 floats writable.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(bytes.as_ptr().cast())))
        };
    }
    dequantize::blocks(Quant::F16, rest, last);
}

/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn bf16(bytes: &[u8], out: &mut [f32]) {
    let (out, last) = out.as_chunks_mut::<16>();
    let (bytes, rest) = bytes.as_chunks::<32>();
    for (out, bytes) in out.iter_mut().zip(bytes) {
        // SAFETY: the caller's; 32 bytes are readable, 16 floats writable.
        unsafe {
            let halves = load(bytes);
            for (k, half) in [_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves)]
                .into_iter()
                .enumerate()
            {
                let value = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half));
                _mm256_storeu_ps(out.as_mut_ptr().add(8 * k), _mm256_castsi256_ps(value));
            }
        }
    }
    dequantize::blocks(Quant::Bf16, rest, last);
}
