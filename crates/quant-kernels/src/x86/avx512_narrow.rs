//! Products of 32-weight blocks with AVX-512: two blocks a vector, `vpdpbusd` of unsigned bytes.
//!
//! A signed weight is its byte plus 128; what that adds to a sum, 128 times the sum of the block's activations, is
//! subtracted once a block. Formats are unpacked as for AVX2: a block is one vector of 32 bytes there.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2::{load128, tree, tree_lane};
use super::avx2_narrow::{Kind, NarrowAvx2};
use super::avx512::{halves, sum_halves};
use super::avx512_panel;
use crate::Matrix;
use crate::narrow::LEN;
use crate::rows::Quantized;
use crate::tree::Tree;

/// The 32 weights plus [`offset`].
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn bytes<B: NarrowAvx2>(block: &B) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        match B::KIND {
            Kind::Signed => _mm256_xor_si256(block.vector(), _mm256_set1_epi8(-128)),
            Kind::Offset(_) | Kind::Minimum => block.vector(),
        }
    }
}

/// What [`bytes`] adds to a weight.
#[inline(always)]
pub(super) fn offset<B: NarrowAvx2>() -> i32 {
    match B::KIND {
        Kind::Signed => 128,
        Kind::Offset(offset) => offset,
        Kind::Minimum => 0,
    }
}

/// Any number of activation rows.
///
/// # Safety
///
/// AVX2, FMA, F16C and AVX-512 F, BW, VL, DQ, VBMI and VNNI. `x` is the narrow form of `n` rows of the matrix's width.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub(super) unsafe fn matmul<B: NarrowAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    if n >= avx512_panel::MIN_COLS {
        // SAFETY: the caller's.
        return unsafe { avx512_panel::narrow::<B>(w, x, n, out) };
    }
    for t in (0..n).step_by(4) {
        // SAFETY: the caller's; t + T <= n.
        unsafe {
            match n - t {
                1 => few::<B, 1>(w, x, t, n, out),
                2 => few::<B, 2>(w, x, t, n, out),
                3 => few::<B, 3>(w, x, t, n, out),
                _ => few::<B, 4>(w, x, t, n, out),
            }
        }
    }
}

/// Products with activation rows `t0 .. t0 + T`, in groups of eight blocks as in `avx2_wide::few`.
///
/// # Safety
///
/// As [`matmul`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn few<B: NarrowAvx2, const T: usize>(
    w: Matrix<'_>,
    x: &Quantized,
    t0: usize,
    n: usize,
    out: &mut [f32],
) {
    let blocks = x.blocks;
    let weights = cast_slice::<u8, B>(w.bytes());
    let lanes = blocks.next_power_of_two().min(8);
    let rows = 8 / lanes;
    let mut trees = [const { Tree::new() }; T];
    // SAFETY: the features are the caller's. `weights` holds `rows * blocks` blocks, `x` holds `blocks` blocks of `n`
    // rows, and only slots with `row < w.rows()`, `b < blocks` and `t0 + t < n` are read.
    unsafe {
        let zero = _mm512_setzero_si512();
        let slots = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let slots = _mm256_and_si256(slots, _mm256_set1_epi32(lanes as i32 - 1));
        for r0 in (0..w.rows()).step_by(rows) {
            let mut sums = [[0.0; 8]; T];
            for b0 in (0..blocks).step_by(8) {
                let mut acc = [[zero; 4]; T];
                let (mut d, mut m) = ([0u16; 8], [0u16; 8]);
                if b0 + 8 <= blocks {
                    let q = x.q.as_ptr().add((b0 * n + t0) * LEN);
                    for i in 0..4 {
                        let first = weights.get_unchecked(r0 * blocks + b0 + 2 * i);
                        let second = weights.get_unchecked(r0 * blocks + b0 + 2 * i + 1);
                        (d[2 * i], m[2 * i]) = (first.d(), first.m());
                        (d[2 * i + 1], m[2 * i + 1]) = (second.d(), second.m());
                        let w = halves(bytes(first), bytes(second));
                        for t in 0..T {
                            let q = q.add((2 * i * n + t) * LEN);
                            acc[t][i] = _mm512_dpbusd_epi32(zero, w, pair(q, q.add(n * LEN)));
                        }
                    }
                } else {
                    for slot in 0..8 {
                        let (r, b) = (r0 + slot / lanes, b0 + slot % lanes);
                        if r >= w.rows() || b >= blocks {
                            continue;
                        }
                        let block = weights.get_unchecked(r * blocks + b);
                        (d[slot], m[slot]) = (block.d(), block.m());
                        // The other slot of the vector adds nothing: its weights are zero here.
                        let none = _mm256_setzero_si256();
                        let w = bytes(block);
                        let w = if slot % 2 == 0 { halves(w, none) } else { halves(none, w) };
                        for t in 0..T {
                            let q = x.q.as_ptr().add((b * n + t0 + t) * LEN);
                            acc[t][slot / 2] = _mm512_dpbusd_epi32(acc[t][slot / 2], w, pair(q, q));
                        }
                    }
                }
                let d = B::scales(load128(&d));
                let m = _mm256_cvtph_ps(load128(&m));
                for t in 0..T {
                    let at = (t0 + t) * x.stride + b0;
                    let dx = _mm256_permutevar8x32_ps(_mm256_loadu_ps(x.scale.as_ptr().add(at)), slots);
                    let xsum = _mm256_cvtepi16_epi32(_mm_loadu_si128(x.sums.as_ptr().add(at).cast()));
                    let xsum = _mm256_permutevar8x32_epi32(xsum, slots);
                    let excess = _mm256_mullo_epi32(xsum, _mm256_set1_epi32(offset::<B>()));
                    let sum = _mm256_sub_epi32(sum_halves(&acc[t]), excess);
                    let mut p = _mm256_mul_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(sum));
                    if B::MINIMUM {
                        let xsum = _mm256_cvtepi32_ps(xsum);
                        p = _mm256_add_ps(p, _mm256_mul_ps(_mm256_mul_ps(m, dx), xsum));
                    }
                    sums[t] = tree(p, lanes);
                    if blocks > 8 {
                        trees[t].push(sums[t][0]);
                    }
                }
            }
            for t in 0..T {
                if blocks > 8 {
                    sums[t][0] = trees[t].finish();
                }
                for i in 0..rows.min(w.rows() - r0) {
                    out[(r0 + i) * n + t0 + t] = sums[t][tree_lane(lanes, i)];
                }
            }
        }
    }
}

/// Two blocks of 32 activations.
///
/// # Safety
///
/// AVX-512F, and 32 readable bytes at both.
#[inline(always)]
unsafe fn pair(first: *const i8, second: *const i8) -> __m512i {
    // SAFETY: the caller's.
    unsafe { halves(_mm256_loadu_si256(first.cast()), _mm256_loadu_si256(second.cast())) }
}
