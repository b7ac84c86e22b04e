//! Products of 256-weight blocks of signed integers (the IQ formats) with many activation rows, with AVX2; `avx2_quads` has
//! the others.
//!
//! Weight rows lie in the lanes of a vector: a panel holds one block of eight rows as i16, every weight already multiplied
//! by its sub-block's scale (at most 4,064 in magnitude: 32 * 127 in IQ4_XS), two neighbouring weights of a row together.
//! `pmaddwd` with two neighbouring activations, broadcast, then needs no sum across lanes, no sign and no scale: two
//! instructions for 16 products, and the float side of a block is done for eight rows at once. Sums are exact, so their
//! order is free; floats start at the block's sum.
//!
//! Making a panel costs about what 9 activation rows do, so that it pays from [`MIN_COLS`] on.

use std::arch::x86_64::*;

use bytemuck::{cast_slice, cast_slice_mut};

use super::avx2::{Trees, eight_times, load};
use super::avx2_wide::{Kind, Weights, WideAvx2, product};
use super::scratch;
use crate::Matrix;
use crate::block::Half;
use crate::rows::Quantized;
use crate::wide::LEN;

/// Activation rows from which a panel pays.
pub(super) const MIN_COLS: usize = 16;
/// Weight rows in a vector.
pub(super) const LANES: usize = 8;
/// Panels that share the broadcast activations: 2 * 4 accumulators leave room for both panels and an activation.
pub(super) const GROUPS: usize = 2;
/// Activation rows that share a load of the panels.
pub(super) const STEP: usize = 4;
/// Bytes of widened activations that a tile may have: half of a second-level cache of 1 MB.
const TILE_BYTES: usize = 512 << 10;

/// One block of eight weight rows.
#[repr(C, align(32))]
struct Panel {
    /// `[pair of weights][row][2]`, multiplied by the sub-block scales.
    w: [[i16; 2 * LANES]; LEN / 2],
    d: [Half; LANES],
}

impl Panel {
    const fn new() -> Self {
        Self { w: [[0; 2 * LANES]; LEN / 2], d: [[0; 2]; LANES] }
    }
}

/// Any number of activation rows.
///
/// # Safety
///
/// AVX2, FMA and F16C. `x` is the wide form of `n` rows of the matrix's width.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn matmul<B: WideAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let blocks = x.blocks;
    let row_bytes = (blocks * LEN * size_of::<i16>()).max(1);
    let tile = (TILE_BYTES / row_bytes).clamp(32, 256).min(n);
    let mut wide = scratch::take((tile * row_bytes).div_ceil(32));
    let mut levels = scratch::take(tile * GROUPS * Trees::depth(blocks));
    let mut panels = [const { Panel::new() }; GROUPS];
    for t0 in (0..n).step_by(tile) {
        let cols = tile.min(n - t0);
        let q: &mut [i16] = cast_slice_mut(wide.all());
        // SAFETY: AVX2 is the caller's.
        unsafe { widen(x, t0, cols, n, q) };
        for r0 in (0..w.rows()).step_by(GROUPS * LANES) {
            let rows = (GROUPS * LANES).min(w.rows() - r0);
            let out = &mut out[r0 * n..(r0 + rows) * n];
            let part = Part { w: w.rows_range(r0..r0 + rows), x, q, t0, cols, n };
            let trees = Trees::new(levels.all(), blocks);
            // SAFETY: AVX2 is the caller's; `q` holds `cols` widened rows from `t0` on.
            unsafe {
                if rows > LANES {
                    part.run::<B, 2>(&mut panels, trees, out);
                } else {
                    part.run::<B, 1>(&mut panels, trees, out);
                }
            }
        }
    }
}

/// Activation rows `t0 .. t0 + cols` as i16, `[blocks][cols][256]`.
///
/// # Safety
///
/// AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn widen(x: &Quantized, t0: usize, cols: usize, n: usize, out: &mut [i16]) {
    for (b, out) in out.chunks_exact_mut(cols * LEN).take(x.blocks).enumerate() {
        let q = &x.q[(b * n + t0) * LEN..][..cols * LEN];
        for (out, q) in out.chunks_exact_mut(16).zip(q.chunks_exact(16)) {
            // SAFETY: AVX2 is the caller's; 16 values are read and written.
            unsafe {
                let values = _mm256_cvtepi8_epi16(_mm_loadu_si128(q.as_ptr().cast()));
                _mm256_storeu_si256(out.as_mut_ptr().cast(), values);
            }
        }
    }
}

/// At most 16 weight rows and a tile of activation rows.
#[derive(Clone, Copy)]
struct Part<'a> {
    w: Matrix<'a>,
    x: &'a Quantized,
    /// `[blocks][cols][256]`.
    q: &'a [i16],
    t0: usize,
    cols: usize,
    n: usize,
}

impl Part<'_> {
    /// Products of `8 G` weight rows or fewer.
    ///
    /// # Safety
    ///
    /// AVX2, FMA and F16C; `q` is what [`widen`] made; `trees` has `G * cols` accumulators.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run<B: WideAvx2, const G: usize>(
        &self,
        panels: &mut [Panel; GROUPS],
        mut trees: Trees<'_>,
        out: &mut [f32],
    ) {
        let blocks = self.x.blocks;
        let weights = cast_slice::<u8, B>(self.w.bytes());
        for b in 0..blocks {
            // SAFETY: the caller's; every block index is below `rows * blocks`, and `t + T <= cols`.
            unsafe {
                for (g, panel) in panels[..G].iter_mut().enumerate() {
                    fill::<B>(panel, &weights[g * LANES * blocks + b..], blocks);
                }
                let mut t = 0;
                while t + STEP <= self.cols {
                    self.step::<B, G, STEP>(panels, b, t, &mut trees);
                    t += STEP;
                }
                while t < self.cols {
                    self.step::<B, G, 1>(panels, b, t, &mut trees);
                    t += 1;
                }
            }
            trees.advance();
        }
        for t in 0..self.cols {
            for g in 0..G {
                // SAFETY: AVX2 is the caller's.
                let sums = unsafe { trees.finish(t * G + g) };
                let rows = LANES.min(self.w.rows() - g * LANES);
                for (r, sum) in sums[..rows].iter().enumerate() {
                    out[(g * LANES + r) * self.n + self.t0 + t] = *sum;
                }
            }
        }
    }

    /// Block `b` of the panels with activation rows `t .. t + T` of the tile.
    ///
    /// # Safety
    ///
    /// As [`Part::run`]; `t + T <= cols`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn step<B: WideAvx2, const G: usize, const T: usize>(
        &self,
        panels: &[Panel; GROUPS],
        b: usize,
        t: usize,
        trees: &mut Trees<'_>,
    ) {
        // SAFETY: the caller's. A pair of i16 is read as one unaligned i32; row t of block b has 256 of them.
        unsafe {
            let q = self.q.as_ptr().add((b * self.cols + t) * LEN);
            let mut acc = [[_mm256_setzero_si256(); T]; G];
            for pair in 0..LEN / 2 {
                let mut w = [_mm256_setzero_si256(); G];
                for g in 0..G {
                    w[g] = load(&panels[g].w[pair]);
                }
                for i in 0..T {
                    let q = _mm256_set1_epi32(q.add(i * LEN + 2 * pair).cast::<i32>().read_unaligned());
                    for g in 0..G {
                        acc[g][i] = _mm256_add_epi32(acc[g][i], _mm256_madd_epi16(w[g], q));
                    }
                }
            }
            for g in 0..G {
                let d = _mm256_cvtph_ps(_mm_loadu_si128(panels[g].d.as_ptr().cast()));
                for i in 0..T {
                    let dx = _mm256_set1_ps(self.x.scale[(self.t0 + t + i) * self.x.stride + b]);
                    let (no_dmin, no_min) = (_mm256_setzero_ps(), _mm256_setzero_si256());
                    trees.push((t + i) * G + g, product::<B>(d, no_dmin, dx, acc[g][i], no_min));
                }
            }
        }
    }
}

/// Makes the panel of the blocks `weights[0]`, `weights[blocks]`, .. of eight rows; rows beyond the end are zero.
///
/// # Safety
///
/// AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn fill<B: WideAvx2>(panel: &mut Panel, weights: &[B], blocks: usize) {
    // SAFETY: AVX2 is the caller's; arrays are as long as what is stored to them.
    unsafe {
        let zero = _mm256_setzero_si256();
        let mut bytes = [[zero; LANES]; LEN / 32];
        let mut scales = [zero; LANES];
        panel.d = [[0; 2]; LANES];
        for (r, block) in weights.iter().step_by(blocks).take(LANES).enumerate() {
            let shared = block.shared();
            eight_times!(i => { bytes[i][r] = signed::<B>(block.weights(&shared, i)); });
            scales[r] = block.scales(&shared).scale;
            panel.d[r] = block.d();
        }
        let scales = transpose16(scales);
        for (i, bytes) in bytes.into_iter().enumerate() {
            // Lane vectors hold a sub-block's scale of rows 0 to 7; each is wanted twice, once for either of a pair.
            let (low, high) =
                (_mm256_unpacklo_epi16(scales[i], scales[i]), _mm256_unpackhi_epi16(scales[i], scales[i]));
            let even = _mm256_permute2x128_si256::<0x20>(low, high);
            let odd = _mm256_permute2x128_si256::<0x31>(low, high);
            for (j, pairs) in transpose16(bytes).into_iter().enumerate() {
                let first = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(pairs));
                let second = _mm256_cvtepi8_epi16(_mm256_extracti128_si256::<1>(pairs));
                store(&mut panel.w[16 * i + j], _mm256_mullo_epi16(first, even));
                store(&mut panel.w[16 * i + 8 + j], _mm256_mullo_epi16(second, odd));
            }
        }
    }
}

/// 32 weights as signed bytes.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn signed<B: WideAvx2>(weights: Weights) -> __m256i {
    let Weights { w, sign } = weights;
    // SAFETY: the caller has AVX2.
    unsafe {
        match B::KIND {
            Kind::Signed => _mm256_sign_epi8(w, sign),
            Kind::Masked => _mm256_sub_epi8(_mm256_xor_si256(w, sign), sign),
            Kind::Offset { .. } | Kind::Minima => unreachable!("avx2_quads serves these"),
        }
    }
}

/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn store(to: &mut [i16; 16], v: __m256i) {
    // SAFETY: the caller has AVX2; 32 bytes are written to 32.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) }
}

/// In both lanes: vector j of the result holds word j of the eight vectors.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn transpose16(v: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2. Closures would leave its target features behind.
    unsafe {
        let mut words = v;
        for i in 0..4 {
            words[2 * i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
            words[2 * i + 1] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
        }
        let mut doubles = v;
        for i in [0, 1, 4, 5] {
            let at = if i < 4 { 2 * i } else { 2 * i - 4 };
            doubles[at] = _mm256_unpacklo_epi32(words[i], words[i + 2]);
            doubles[at + 1] = _mm256_unpackhi_epi32(words[i], words[i + 2]);
        }
        halves(doubles)
    }
}

/// Vector j of the result holds double word j of the eight vectors.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn transpose32(v: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let mut doubles = v;
        for i in 0..2 {
            let [a, b, c, d] = [v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]];
            let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
            doubles[4 * i] = _mm256_unpacklo_epi64(ab, cd);
            doubles[4 * i + 1] = _mm256_unpackhi_epi64(ab, cd);
            let (ab, cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
            doubles[4 * i + 2] = _mm256_unpacklo_epi64(ab, cd);
            doubles[4 * i + 3] = _mm256_unpackhi_epi64(ab, cd);
        }
        let mut out = v;
        for i in 0..4 {
            out[i] = _mm256_permute2x128_si256::<0x20>(doubles[i], doubles[4 + i]);
            out[4 + i] = _mm256_permute2x128_si256::<0x31>(doubles[i], doubles[4 + i]);
        }
        out
    }
}

/// Joins the 64-bit halves of vectors i (rows 0 to 3) and 4 + i (rows 4 to 7).
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn halves(v: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let mut out = v;
        for i in 0..4 {
            out[2 * i] = _mm256_unpacklo_epi64(v[i], v[4 + i]);
            out[2 * i + 1] = _mm256_unpackhi_epi64(v[i], v[4 + i]);
        }
        out
    }
}
