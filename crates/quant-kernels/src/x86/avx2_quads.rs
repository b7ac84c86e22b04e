//! Products of 256-weight blocks whose integers are not negative (Q2_K to Q6_K) with many activation rows, with AVX2.
//!
//! As in `avx2_panel` weight rows lie in the lanes of a vector, but as bytes: four neighbouring weights of eight rows.
//! `maddubs` with four activations, broadcast, gives two sums of two products a row; those of a sub-block are added in 16
//! bits as far as they fit (two quads of Q6_K: 4 * 63 * 127 = 32,004; four of the others: 8 * 31 * 127 = 31,496) and then
//! multiplied by its scale. For 64 products of Q6_K that is three multiplications and five instructions instead of four
//! and eight; multiplications are what the other panel is bound by. Offsets and minima are taken off with the sums of the
//! activations, once a block.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2::{Trees, eight_times, load};
use super::avx2_panel::{GROUPS, LANES, STEP, store, transpose16, transpose32};
use super::avx2_wide::{Kind, WideAvx2, product};
use super::scratch;
use crate::Matrix;
use crate::block::Half;
use crate::rows::Quantized;
use crate::wide::LEN;

/// Bytes of activations that a tile may have: half of a second-level cache of 1 MB.
const TILE_BYTES: usize = 512 << 10;

/// Whether a format's integers are bytes without a sign.
pub(super) const fn serves(kind: Kind) -> bool {
    matches!(kind, Kind::Offset { .. } | Kind::Minima)
}

/// Quads whose products fit 16 bits together.
const fn quads_at_once(kind: Kind) -> usize {
    match kind {
        // Bytes below 64; the other offsets and all minima belong to bytes below 32.
        Kind::Offset { shift: 5.. } => 2,
        _ => 4,
    }
}

/// One block of eight weight rows.
#[repr(C, align(32))]
struct Panel {
    /// `[quad of weights][row][4]`.
    w: [[i16; 2 * LANES]; LEN / 4],
    /// `[sub-block][row][2]`, the scale twice.
    scale: [[i16; 2 * LANES]; LEN / 16],
    /// `[pair of sub-blocks][row][2]`: what the activations' sums are multiplied by.
    by_sums: [[i16; 2 * LANES]; 8],
    d: [Half; LANES],
    dmin: [Half; LANES],
}

impl Panel {
    const fn new() -> Self {
        Self {
            w: [[0; 2 * LANES]; LEN / 4],
            scale: [[0; 2 * LANES]; LEN / 16],
            by_sums: [[0; 2 * LANES]; 8],
            d: [[0; 2]; LANES],
            dmin: [[0; 2]; LANES],
        }
    }
}

/// Any number of activation rows.
///
/// # Safety
///
/// AVX2, FMA and F16C. `x` is the wide form of `n` rows of the matrix's width, and the format is one that [`serves`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn matmul<B: WideAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let blocks = x.blocks;
    let tile = (TILE_BYTES / (blocks * LEN).max(1)).clamp(32, 256).min(n);
    let mut levels = scratch::take(tile * GROUPS * Trees::depth(blocks));
    let mut panels = [const { Panel::new() }; GROUPS];
    for t0 in (0..n).step_by(tile) {
        for r0 in (0..w.rows()).step_by(GROUPS * LANES) {
            let rows = (GROUPS * LANES).min(w.rows() - r0);
            let part = Part { w: w.rows_range(r0..r0 + rows), x, t0, cols: tile.min(n - t0), n };
            let (trees, out) = (Trees::new(levels.all(), blocks), &mut out[r0 * n..(r0 + rows) * n]);
            // SAFETY: the caller's; `levels` holds the trees of a tile.
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

/// At most 16 weight rows and a tile of activation rows.
#[derive(Clone, Copy)]
struct Part<'a> {
    w: Matrix<'a>,
    x: &'a Quantized,
    t0: usize,
    cols: usize,
    n: usize,
}

impl Part<'_> {
    /// Products of `8 G` weight rows or fewer.
    ///
    /// # Safety
    ///
    /// As [`matmul`]; `trees` has `G * cols` accumulators.
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
        // SAFETY: the caller's. Four activations are read as one unaligned i32; row t of block b has 256 of them.
        unsafe {
            let first = b * self.n + self.t0 + t;
            let q = self.x.q.as_ptr().add(first * LEN);
            let mut acc = [[_mm256_setzero_si256(); T]; G];
            for sub in 0..LEN / 16 {
                if const { quads_at_once(B::KIND) == 4 } {
                    quads::<G, T, 4>(panels, sub, 4 * sub, q, &mut acc);
                } else {
                    quads::<G, T, 2>(panels, sub, 4 * sub, q, &mut acc);
                    quads::<G, T, 2>(panels, sub, 4 * sub + 2, q, &mut acc);
                }
            }
            let sums = self.x.sums.as_ptr().add(first * (LEN / 16));
            let by_sums = by_sums::<G, T>(panels, sums);
            for g in 0..G {
                let d = _mm256_cvtph_ps(_mm_loadu_si128(panels[g].d.as_ptr().cast()));
                let dmin = _mm256_cvtph_ps(_mm_loadu_si128(panels[g].dmin.as_ptr().cast()));
                for i in 0..T {
                    let (mut sum, mut min) = (acc[g][i], by_sums[g][i]);
                    if let Kind::Offset { shift } = B::KIND {
                        let excess = _mm256_sll_epi32(min, _mm_cvtsi32_si128(shift));
                        sum = _mm256_sub_epi32(sum, excess);
                        min = _mm256_setzero_si256();
                    }
                    let dx = _mm256_set1_ps(self.x.scale[(self.t0 + t + i) * self.x.stride + b]);
                    trees.push((t + i) * G + g, product::<B>(d, dmin, dx, sum, min));
                }
            }
        }
    }
}

/// Adds `Q` quads from `quad` on, which are of sub-block `sub`, times its scale.
///
/// # Safety
///
/// AVX2; `q` points to 256 activations of each of `T` rows, and the products of `Q` quads fit 16 bits.
#[inline(always)]
unsafe fn quads<const G: usize, const T: usize, const Q: usize>(
    panels: &[Panel; GROUPS],
    sub: usize,
    quad: usize,
    q: *const i8,
    acc: &mut [[__m256i; T]; G],
) {
    // SAFETY: the caller's.
    unsafe {
        let mut w = [[_mm256_setzero_si256(); Q]; G];
        for g in 0..G {
            for k in 0..Q {
                w[g][k] = load(&panels[g].w[quad + k]);
            }
        }
        for i in 0..T {
            let four = |k: usize| q.add(i * LEN + 4 * (quad + k)).cast::<i32>().read_unaligned();
            let mut pairs = [_mm256_setzero_si256(); G];
            for k in 0..Q {
                let q = _mm256_set1_epi32(four(k));
                for g in 0..G {
                    let products = _mm256_maddubs_epi16(w[g][k], q);
                    pairs[g] = if k == 0 { products } else { _mm256_add_epi16(pairs[g], products) };
                }
            }
            for g in 0..G {
                let scaled = _mm256_madd_epi16(pairs[g], load(&panels[g].scale[sub]));
                acc[g][i] = _mm256_add_epi32(acc[g][i], scaled);
            }
        }
    }
}

/// The activations' sums times the panels' minima, or scales where there is an offset.
///
/// # Safety
///
/// AVX2; `sums` points to 16 sums of each of `T` rows.
#[inline(always)]
unsafe fn by_sums<const G: usize, const T: usize>(
    panels: &[Panel; GROUPS],
    sums: *const i16,
) -> [[__m256i; T]; G] {
    // SAFETY: the caller's. A pair of i16 is read as one unaligned i32.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); T]; G];
        for pair in 0..8 {
            for i in 0..T {
                let sums = sums.add(i * (LEN / 16) + 2 * pair).cast::<i32>().read_unaligned();
                for g in 0..G {
                    let product = _mm256_madd_epi16(load(&panels[g].by_sums[pair]), _mm256_set1_epi32(sums));
                    acc[g][i] = _mm256_add_epi32(acc[g][i], product);
                }
            }
        }
        acc
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
        let mut sums = [zero; LANES];
        (panel.d, panel.dmin) = ([[0; 2]; LANES], [[0; 2]; LANES]);
        for (r, block) in weights.iter().step_by(blocks).take(LANES).enumerate() {
            let shared = block.shared();
            eight_times!(i => { bytes[i][r] = block.weights(&shared, i).w; });
            let by = block.scales(&shared);
            (scales[r], sums[r]) = (by.scale, by.by_sums);
            panel.d[r] = block.d();
            panel.dmin[r] = block.dmin();
        }
        for (i, bytes) in bytes.into_iter().enumerate() {
            for (j, quad) in transpose32(bytes).into_iter().enumerate() {
                store(&mut panel.w[8 * i + j], quad);
            }
        }
        // Lane vectors hold a sub-block's scale of rows 0 to 7; each is wanted twice, once for either of a pair.
        for (i, scale) in transpose16(scales).into_iter().enumerate() {
            let (low, high) = (_mm256_unpacklo_epi16(scale, scale), _mm256_unpackhi_epi16(scale, scale));
            store(&mut panel.scale[2 * i], _mm256_permute2x128_si256::<0x20>(low, high));
            store(&mut panel.scale[2 * i + 1], _mm256_permute2x128_si256::<0x31>(low, high));
        }
        for (pair, sums) in transpose32(sums).into_iter().enumerate() {
            store(&mut panel.by_sums[pair], sums);
        }
    }
}
