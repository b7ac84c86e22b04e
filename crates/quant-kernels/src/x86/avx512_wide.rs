//! Products of 256-weight blocks with AVX-512.
//!
//! A block is unpacked to four vectors of 64 bytes. Few activation rows: `vpmaddubsw` of unsigned weights with (signed)
//! activations, at most 2 * 127 * 127 = 32,258 in 16 bits, then `vpdpwssd` with the sub-block scales. That is two
//! multiplications for 64 weights; `vpdpbusd` with a 32-bit multiplication by the scales would be three. Many activation
//! rows go through `avx512_panel`.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2::{sum_each, tree, tree_lane};
use super::avx512::sum_each512;
use super::avx512_panel;
use crate::Matrix;
use crate::block::Half;
use crate::rows::Quantized;
use crate::tree::Tree;
use crate::wide::{LEN, Minima, Wide};

/// A block's 256 weights, ready to be multiplied.
pub(super) struct Unpacked512 {
    /// Bytes 64 i to 64 i + 64 are weights 64 i and on: their magnitudes for a signed format, else the weights plus the
    /// format's offset.
    pub(super) w: [__m512i; 4],
    /// For a signed format, which weights are negative.
    pub(super) negative: [__mmask64; 4],
    /// Scales of the 16 sub-blocks as i16, in order.
    pub(super) scale: __m256i,
    /// Minima of the 16 sub-blocks as i16, in order.
    pub(super) min: __m256i,
}

/// How a format's bytes become weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind512 {
    /// Magnitudes and signs.
    Signed,
    /// Weight plus this; the offset times a scale fits 16 bits.
    Offset(i16),
    /// Weights are not negative, minima are subtracted.
    Minima,
}

/// A wide format in AVX-512 form.
pub(super) trait Wide512: Wide {
    const KIND: Kind512;
    /// The power of two between the half `d` and the integer weights.
    const UNIT: f32;

    /// # Safety
    ///
    /// The features of [`matmul`].
    unsafe fn vectors512(&self) -> Unpacked512;

    fn d512(&self) -> Half;

    fn dmin512(&self) -> Half {
        [0; 2]
    }
}

/// The words that repeat the scales of sub-blocks 4 i to 4 i + 4, or 2 i and 2 i + 1 for `N` = 8, over a vector.
///
/// # Safety
///
/// AVX-512F and BW.
#[inline(always)]
pub(super) unsafe fn spread<const N: usize>(scale: __m256i) -> [__m512i; N] {
    const { assert!(N == 4 || N == 8) };
    // SAFETY: the caller's.
    unsafe {
        let per = (16 / N) as i16;
        let first = if N == 4 {
            _mm512_set_epi64(
                0x0003_0003_0003_0003,
                0x0003_0003_0003_0003,
                0x0002_0002_0002_0002,
                0x0002_0002_0002_0002,
                0x0001_0001_0001_0001,
                0x0001_0001_0001_0001,
                0,
                0,
            )
        } else {
            let one = 0x0001_0001_0001_0001;
            _mm512_set_epi64(one, one, one, one, 0, 0, 0, 0)
        };
        let scale = _mm512_castsi256_si512(scale);
        let mut spread = [scale; N];
        for (i, spread) in spread.iter_mut().enumerate() {
            let index = _mm512_add_epi16(first, _mm512_set1_epi16(per * i as i16));
            *spread = _mm512_permutexvar_epi16(index, scale);
        }
        spread
    }
}

/// A block's exact sums with some activation blocks: 16 partial sums in the lanes of a vector, and for a format with
/// minima eight of the minima.
///
/// # Safety
///
/// The features of [`matmul`]; `q[t]` points to 256 activations and `sums[t]` to their 16 sums.
#[inline(always)]
unsafe fn dot<B: Wide512, const T: usize>(
    block: &Unpacked512,
    q: [*const i8; T],
    sums: [*const i16; T],
) -> ([__m512i; T], [__m256i; T]) {
    // SAFETY: the caller's.
    unsafe {
        let zero = _mm512_setzero_si512();
        let mut acc = [zero; T];
        let mut mins = [_mm256_setzero_si256(); T];
        let scale = spread::<4>(block.scale);
        for i in 0..4 {
            for t in 0..T {
                let mut x = _mm512_loadu_si512(q[t].add(64 * i).cast());
                if B::KIND == Kind512::Signed {
                    x = _mm512_mask_sub_epi8(x, block.negative[i], zero, x);
                }
                acc[t] = _mm512_dpwssd_epi32(acc[t], _mm512_maddubs_epi16(block.w[i], x), scale[i]);
            }
        }
        match B::KIND {
            Kind512::Signed => {}
            Kind512::Offset(offset) => {
                let excess = _mm256_mullo_epi16(block.scale, _mm256_set1_epi16(-offset));
                for t in 0..T {
                    let x = _mm512_zextsi256_si512(_mm256_loadu_si256(sums[t].cast()));
                    acc[t] = _mm512_dpwssd_epi32(acc[t], _mm512_zextsi256_si512(excess), x);
                }
            }
            Kind512::Minima => {
                for t in 0..T {
                    mins[t] = _mm256_madd_epi16(block.min, _mm256_loadu_si256(sums[t].cast()));
                }
            }
        }
        (acc, mins)
    }
}

/// `((d * unit) * dx) * f32(sum)`, less `(dmin * dx) * f32(min)` where there are minima; every operation rounded.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn product<B: Wide512>(d: __m256, dmin: __m256, dx: __m256, sum: __m256i, min: __m256i) -> __m256 {
    // SAFETY: the caller has AVX2.
    unsafe {
        let d = if B::UNIT == 1.0 { d } else { _mm256_mul_ps(d, _mm256_set1_ps(B::UNIT)) };
        let p = _mm256_mul_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(sum));
        if B::MINIMA == Minima::Yes {
            _mm256_sub_ps(p, _mm256_mul_ps(_mm256_mul_ps(dmin, dx), _mm256_cvtepi32_ps(min)))
        } else {
            p
        }
    }
}

/// Any number of activation rows.
///
/// # Safety
///
/// AVX2, FMA, F16C and AVX-512 F, BW, VL, DQ, VBMI and VNNI. `x` is the wide form of `n` rows of the matrix's width.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub(super) unsafe fn matmul<B: Wide512>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    if n >= avx512_panel::MIN_COLS {
        // SAFETY: the caller's.
        return unsafe { avx512_panel::wide::<B>(w, x, n, out) };
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
unsafe fn few<B: Wide512, const T: usize>(
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
        let slots = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let slots = _mm256_and_si256(slots, _mm256_set1_epi32(lanes as i32 - 1));
        for r0 in (0..w.rows()).step_by(rows) {
            let mut sums = [[0.0; 8]; T];
            for b0 in (0..blocks).step_by(8) {
                let mut acc = [[_mm512_setzero_si512(); 8]; T];
                let mut mins = [[_mm256_setzero_si256(); 8]; T];
                let (mut d, mut dmin) = ([[0u8; 2]; 8], [[0u8; 2]; 8]);
                for slot in 0..8 {
                    let (r, b) = (r0 + slot / lanes, b0 + slot % lanes);
                    if r >= w.rows() || b >= blocks {
                        continue;
                    }
                    let block = weights.get_unchecked(r * blocks + b);
                    d[slot] = block.d512();
                    dmin[slot] = block.dmin512();
                    let (mut q, mut xsums) = ([x.q.as_ptr(); T], [x.sums.as_ptr(); T]);
                    for t in 0..T {
                        let at = b * n + t0 + t;
                        q[t] = q[t].add(at * LEN);
                        xsums[t] = xsums[t].add(at * (LEN / 16));
                    }
                    let (sum, min) = dot::<B, T>(&block.vectors512(), q, xsums);
                    for t in 0..T {
                        acc[t][slot] = sum[t];
                        if B::MINIMA == Minima::Yes {
                            mins[t][slot] = min[t];
                        }
                    }
                }
                let d = _mm256_cvtph_ps(_mm_loadu_si128(d.as_ptr().cast()));
                let dmin = _mm256_cvtph_ps(_mm_loadu_si128(dmin.as_ptr().cast()));
                for t in 0..T {
                    let dx = _mm256_loadu_ps(x.scale.as_ptr().add((t0 + t) * x.stride + b0));
                    let dx = _mm256_permutevar8x32_ps(dx, slots);
                    let min =
                        if B::MINIMA == Minima::Yes { sum_each(&mins[t]) } else { _mm256_setzero_si256() };
                    let p = product::<B>(d, dmin, dx, sum_each512(&acc[t]), min);
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
