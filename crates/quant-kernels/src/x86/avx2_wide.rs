//! Products of 256-weight blocks with AVX2.
//!
//! A block is unpacked to eight vectors of 32 bytes. Per vector: `maddubs` of unsigned weights with (signed) activations,
//! at most 2 * 127 * 127 = 32,258 in 16 bits, then `pmaddwd` with the sub-block scales into 32 bits. Sums are exact, so
//! their order is free; floats start at the block's sum.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2::{Trees, eight_times, load, opaque, sum_each, tree, tree_lane};
use super::{avx2_panel, avx2_quads, scratch};
use crate::Matrix;
use crate::block::Half;
use crate::rows::Quantized;
use crate::tree::Tree;
use crate::wide::{LEN, Minima, Wide};

/// What a block's weights are multiplied by, apart from activations.
pub(super) struct Scales {
    /// Scales as i16: of sub-blocks 0, 2, .. 14 in the low lane, of 1, 3, .. 15 in the high one.
    pub(super) scale: __m256i,
    /// What the sums of 16 activations are multiplied by, as i16 in order: the minima, or for an offset the scales.
    pub(super) by_sums: __m256i,
}

/// 32 weights.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// Magnitudes for a signed or masked format, else the weights plus the format's offset.
    pub(super) w: __m256i,
    /// For a signed format, bytes whose signs are those of the weights; for a masked one, 0xff where a weight is
    /// negative, else 0.
    pub(super) sign: __m256i,
}

/// A block's 256 weights in memory.
struct Unpacked {
    scales: Scales,
    /// Eight times 32 weights.
    weights: [Weights; 8],
}

/// How a format's bytes become weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Magnitudes and signs.
    Signed,
    /// Magnitudes and masks.
    Masked,
    /// Weight plus `1 << shift`.
    Offset { shift: i32 },
    /// Weights are not negative, minima are subtracted.
    Minima,
}

/// A wide format in AVX2 form.
pub(super) trait WideAvx2: Wide {
    const KIND: Kind;
    /// The power of two between the half `d` and the integer weights.
    const UNIT: f32;

    /// What several vectors of a block need.
    type Shared;

    /// # Safety
    ///
    /// AVX2.
    unsafe fn shared(&self) -> Self::Shared;

    /// # Safety
    ///
    /// AVX2.
    unsafe fn scales(&self, shared: &Self::Shared) -> Scales;

    /// Weights 32 i and on. One vector at a time, because an instruction that waits holds one of 192 registers: with
    /// all codebook entries of a block loaded first, two blocks do not fit, and loads wait for products.
    ///
    /// # Safety
    ///
    /// AVX2, and `i` is below 8.
    unsafe fn weights(&self, shared: &Self::Shared, i: usize) -> Weights;

    fn d(&self) -> Half;

    fn dmin(&self) -> Half {
        [0; 2]
    }
}

/// Shuffles that repeat scale i of both lanes eight times.
static PAIRS: [[u8; 32]; 8] = {
    let mut pairs = [[0; 32]; 8];
    let mut i = 0;
    while i < 8 {
        let mut byte = 0;
        while byte < 32 {
            pairs[i][byte] = (2 * i + byte % 2) as u8;
            byte += 1;
        }
        i += 1;
    }
    pairs
};

/// Exact sums of a block's products with `T` activation blocks: eight partial sums each in the lanes of a vector, and
/// for a format with minima those of the minima.
#[derive(Clone, Copy)]
struct Sums<const T: usize> {
    products: [__m256i; T],
    minima: [__m256i; T],
}

impl<const T: usize> Sums<T> {
    /// # Safety
    ///
    /// AVX2.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { Self { products: [_mm256_setzero_si256(); T], minima: [_mm256_setzero_si256(); T] } }
    }

    /// Adds weights 32 i and on, times their scales.
    ///
    /// # Safety
    ///
    /// AVX2; `q[t]` points to 256 activations.
    #[inline(always)]
    unsafe fn add<B: WideAvx2>(&mut self, weights: Weights, scale: __m256i, i: usize, q: [*const i8; T]) {
        // SAFETY: the caller's.
        unsafe {
            for (sum, q) in self.products.iter_mut().zip(q) {
                let q = _mm256_loadu_si256(q.add(32 * i).cast());
                let q = match B::KIND {
                    Kind::Signed => _mm256_sign_epi8(q, weights.sign),
                    Kind::Masked => _mm256_sub_epi8(_mm256_xor_si256(weights.sign, q), weights.sign),
                    Kind::Offset { .. } | Kind::Minima => q,
                };
                let products = _mm256_maddubs_epi16(weights.w, q);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(products, scale));
            }
        }
    }

    /// Takes off the offset, or makes the sums of the minima.
    ///
    /// # Safety
    ///
    /// AVX2; `sums[t]` points to the 16 sums of the activations.
    #[inline(always)]
    unsafe fn finish<B: WideAvx2>(&mut self, by_sums: __m256i, sums: [*const i16; T]) {
        // SAFETY: the caller's.
        unsafe {
            for (t, sums) in sums.into_iter().enumerate() {
                match B::KIND {
                    Kind::Signed | Kind::Masked => {}
                    Kind::Offset { shift } => {
                        let excess = _mm256_madd_epi16(by_sums, _mm256_loadu_si256(sums.cast()));
                        let excess = _mm256_sll_epi32(excess, _mm_cvtsi32_si128(shift));
                        self.products[t] = _mm256_sub_epi32(self.products[t], excess);
                    }
                    Kind::Minima => {
                        self.minima[t] = _mm256_madd_epi16(by_sums, _mm256_loadu_si256(sums.cast()));
                    }
                }
            }
        }
    }
}

/// Products of a packed block.
///
/// # Safety
///
/// AVX2; `q[t]` points to 256 activations and `sums[t]` to their 16 sums.
#[inline(always)]
unsafe fn dot_packed<B: WideAvx2, const T: usize>(
    block: &B,
    shared: &B::Shared,
    q: [*const i8; T],
    sums: [*const i16; T],
) -> Sums<T> {
    // SAFETY: the caller's.
    unsafe {
        let scales = block.scales(shared);
        let mut acc = Sums::zero();
        let pairs = opaque(&PAIRS);
        eight_times!(i => {
            let scale = _mm256_shuffle_epi8(scales.scale, load(&pairs[i]));
            acc.add::<B>(block.weights(shared, i), scale, i, q);
        });
        acc.finish::<B>(scales.by_sums, sums);
        acc
    }
}

/// Products of an unpacked block.
///
/// # Safety
///
/// AVX2; `q[t]` points to 256 activations and `sums[t]` to their 16 sums.
#[inline(always)]
unsafe fn dot<B: WideAvx2, const T: usize>(
    block: &Unpacked,
    q: [*const i8; T],
    sums: [*const i16; T],
) -> Sums<T> {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = Sums::zero();
        let pairs = opaque(&PAIRS);
        for i in 0..8 {
            let scale = _mm256_shuffle_epi8(block.scales.scale, load(&pairs[i]));
            acc.add::<B>(block.weights[i], scale, i, q);
        }
        acc.finish::<B>(block.scales.by_sums, sums);
        acc
    }
}

/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn unpack<B: WideAvx2>(block: &B) -> Unpacked {
    // SAFETY: the caller has AVX2.
    unsafe {
        let shared = block.shared();
        let none = _mm256_setzero_si256();
        let mut weights = [Weights { w: none, sign: none }; 8];
        eight_times!(i => { weights[i] = block.weights(&shared, i); });
        Unpacked { scales: block.scales(&shared), weights }
    }
}

/// `((d * unit) * dx) * f32(sum)`, less `(dmin * dx) * f32(min)` where there are minima; every operation rounded.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn product<B: WideAvx2>(
    d: __m256,
    dmin: __m256,
    dx: __m256,
    sum: __m256i,
    min: __m256i,
) -> __m256 {
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
/// AVX2, FMA and F16C. `x` is the wide form of `n` rows of the matrix's width.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn matmul<B: WideAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    // SAFETY: the caller's.
    unsafe {
        match n {
            0 => {}
            1 => few::<B, 1>(w, x, 0, n, out),
            2..8 => {
                let mut t = 0;
                while t < n {
                    match n - t {
                        1 => few::<B, 1>(w, x, t, n, out),
                        2 => few::<B, 2>(w, x, t, n, out),
                        3 => few::<B, 3>(w, x, t, n, out),
                        _ => few::<B, 4>(w, x, t, n, out),
                    }
                    t += 4;
                }
            }
            avx2_panel::MIN_COLS.. if const { avx2_quads::serves(B::KIND) } => {
                avx2_quads::matmul::<B>(w, x, n, out);
            }
            avx2_panel::MIN_COLS.. => avx2_panel::matmul::<B>(w, x, n, out),
            _ => many::<B>(w, x, n, out),
        }
    }
}

/// Products with activation rows `t0 .. t0 + T`: eight blocks of weights make one group, whose eight sums are added
/// across lanes, scaled and put through the first three levels of the tree together. A row of fewer than 8 blocks
/// shares its group with the next rows.
///
/// # Safety
///
/// As [`matmul`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn few<B: WideAvx2, const T: usize>(
    w: Matrix<'_>,
    x: &Quantized,
    t0: usize,
    n: usize,
    out: &mut [f32],
) {
    let blocks = x.blocks;
    let weights = cast_slice::<u8, B>(w.bytes());
    let lanes = blocks.next_power_of_two().min(8);
    let shift = lanes.trailing_zeros();
    let rows = 8 >> shift;
    let mut trees: [Tree; T] = std::array::from_fn(|_| Tree::new());
    let Some(last) = weights.len().checked_sub(1) else {
        out.fill(0.0);
        return;
    };
    // SAFETY: AVX2 is the caller's. `weights` holds `rows * blocks` blocks, `x` holds `blocks` blocks of `n` rows, and
    // only slots with `row < w.rows()`, `b < blocks` and `t0 + t < n` are read.
    unsafe {
        // Blocks are visited in their order.
        let mut k = 0;
        let mut next = weights[k].shared();
        for r0 in (0..w.rows()).step_by(rows) {
            let mut sums = [[0.0; 8]; T];
            for b0 in (0..blocks).step_by(8) {
                let mut acc = [[_mm256_setzero_si256(); 8]; T];
                let mut mins = [[_mm256_setzero_si256(); 8]; T];
                let (mut d, mut dmin) = ([[0u8; 2]; 8], [[0u8; 2]; 8]);
                let whole = b0 + 8 <= blocks;
                for slot in 0..8 {
                    let (r, b) = if whole {
                        (r0, b0 + slot)
                    } else {
                        (r0 + (slot >> shift), b0 + (slot & (lanes - 1)))
                    };
                    if !whole && (r >= w.rows() || b >= blocks) {
                        continue;
                    }
                    let block = weights.get_unchecked(k);
                    let shared =
                        std::mem::replace(&mut next, weights.get_unchecked((k + 1).min(last)).shared());
                    k += 1;
                    d[slot] = block.d();
                    dmin[slot] = block.dmin();
                    let at = b * n + t0;
                    let q: [_; T] = std::array::from_fn(|t| x.q.as_ptr().add((at + t) * LEN));
                    let xsums: [_; T] = std::array::from_fn(|t| x.sums.as_ptr().add((at + t) * (LEN / 16)));
                    let parts = dot_packed(block, &shared, q, xsums);
                    for t in 0..T {
                        acc[t][slot] = parts.products[t];
                        if B::MINIMA == Minima::Yes {
                            mins[t][slot] = parts.minima[t];
                        }
                    }
                }
                let d = _mm256_cvtph_ps(_mm_loadu_si128(d.as_ptr().cast()));
                let dmin = _mm256_cvtph_ps(_mm_loadu_si128(dmin.as_ptr().cast()));
                let slots = _mm256_and_si256(
                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                    _mm256_set1_epi32(lanes as i32 - 1),
                );
                for t in 0..T {
                    let dx = _mm256_loadu_ps(x.scale.as_ptr().add((t0 + t) * x.stride + b0));
                    let dx = _mm256_permutevar8x32_ps(dx, slots);
                    let min =
                        if B::MINIMA == Minima::Yes { sum_each(&mins[t]) } else { _mm256_setzero_si256() };
                    let p = product::<B>(d, dmin, dx, sum_each(&acc[t]), min);
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

/// Weight rows that are unpacked together, so that an activation block is read from L1 for all but the first.
const TILE_ROWS: usize = 4;
/// Activation rows that share an unpacked block.
const TILE_COLS: usize = 64;

/// Products with 8 activation rows and more: eight of them make one group, for one block of one weight row.
///
/// # Safety
///
/// As [`matmul`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn many<B: WideAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let blocks = x.blocks;
    let weights = cast_slice::<u8, B>(w.bytes());
    let groups = n.min(TILE_COLS).div_ceil(8);
    let mut levels = scratch::take(TILE_ROWS * groups * Trees::depth(blocks));
    for t0 in (0..n).step_by(TILE_COLS) {
        let cols = TILE_COLS.min(n - t0);
        for r0 in (0..w.rows()).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(w.rows() - r0);
            let mut trees = Trees::new(levels.all(), blocks);
            for b in 0..blocks {
                for r in 0..rows {
                    // SAFETY: AVX2 is the caller's; r0 + r < w.rows() and t0 + cols <= n.
                    unsafe {
                        let block = &weights[(r0 + r) * blocks + b];
                        one_block(block, x, b, (t0, cols, n), &mut trees, r * groups);
                    }
                }
                trees.advance();
            }
            for r in 0..rows {
                for g in 0..cols.div_ceil(8) {
                    // SAFETY: AVX2 is the caller's.
                    let sums = unsafe { trees.finish(r * groups + g) };
                    let some = 8.min(cols - 8 * g);
                    out[(r0 + r) * n + t0 + 8 * g..][..some].copy_from_slice(&sums[..some]);
                }
            }
        }
    }
}

/// One block with `cols` activation rows from `t0`, eight by eight.
///
/// # Safety
///
/// As [`matmul`]; `t0 + cols <= n`, and `trees` has accumulators from `first` on for the groups of eight.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn one_block<B: WideAvx2>(
    block: &B,
    x: &Quantized,
    b: usize,
    (t0, cols, n): (usize, usize, usize),
    trees: &mut Trees<'_>,
    first: usize,
) {
    // SAFETY: the caller's. Scales by block are padded to 8 rows; only rows below n are read of q and sums.
    unsafe {
        let unpacked = unpack(block);
        let d = _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(block.d())));
        let dmin = _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(block.dmin())));
        for g in 0..cols.div_ceil(8) {
            let t = t0 + 8 * g;
            let q = x.q.as_ptr().add((b * n + t) * LEN);
            let sums = x.sums.as_ptr().add((b * n + t) * (LEN / 16));
            let mut acc = [_mm256_setzero_si256(); 8];
            let mut mins = [_mm256_setzero_si256(); 8];
            let some = 8.min(cols - 8 * g);
            let mut at = 0;
            while at < some {
                if some - at >= 4 {
                    put(
                        dot::<B, 4>(&unpacked, rows(q, at, LEN), rows(sums, at, 16)),
                        at,
                        &mut acc,
                        &mut mins,
                    );
                    at += 4;
                } else {
                    put(
                        dot::<B, 1>(&unpacked, rows(q, at, LEN), rows(sums, at, 16)),
                        at,
                        &mut acc,
                        &mut mins,
                    );
                    at += 1;
                }
            }
            let dx = _mm256_loadu_ps(x.scale_by_block.as_ptr().add(b * n.next_multiple_of(8) + t));
            let min = if B::MINIMA == Minima::Yes { sum_each(&mins) } else { _mm256_setzero_si256() };
            trees.push(first + g, product::<B>(d, dmin, dx, sum_each(&acc), min));
        }
    }
}

/// Pointers to `T` rows from row `at` on, `stride` elements apart.
///
/// # Safety
///
/// The rows lie in one allocation with `first`.
#[inline(always)]
unsafe fn rows<E, const T: usize>(first: *const E, at: usize, stride: usize) -> [*const E; T] {
    // SAFETY: the caller's.
    std::array::from_fn(|t| unsafe { first.add((at + t) * stride) })
}

#[inline(always)]
fn put<const T: usize>(parts: Sums<T>, at: usize, acc: &mut [__m256i; 8], mins: &mut [__m256i; 8]) {
    acc[at..at + T].copy_from_slice(&parts.products);
    mins[at..at + T].copy_from_slice(&parts.minima);
}
