//! Products of 32-weight blocks with AVX2: one vector a block, `maddubs` then `pmaddwd` by one.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2::{Trees, load, load128, nibbles, spread_bits, sum_each, table, tree, tree_lane};
use super::scratch;
use crate::Matrix;
use crate::block::{Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::grid;
use crate::narrow::{LEN, Narrow};
use crate::rows::Quantized;
use crate::tree::Tree;

/// How a format's bytes become weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Signed bytes.
    Signed,
    /// Bytes that are the weight plus this.
    Offset(i32),
    /// Weights are not negative, a minimum is added.
    Minimum,
}

/// A narrow format in AVX2 form.
pub(super) trait NarrowAvx2: Narrow {
    const KIND: Kind;

    /// The 32 bytes of [`Kind`].
    ///
    /// # Safety
    ///
    /// AVX2.
    unsafe fn vector(&self) -> __m256i;

    /// What [`NarrowAvx2::scales`] makes the scale of.
    fn d(&self) -> u16;

    /// The half of the minimum.
    fn m(&self) -> u16 {
        0
    }

    /// # Safety
    ///
    /// AVX2 and F16C.
    #[inline(always)]
    unsafe fn scales(d: __m128i) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { _mm256_cvtph_ps(d) }
    }
}

/// A block's 32 bytes in the form of [`dot`].
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn operands<B: NarrowAvx2>(block: &B) -> (__m256i, __m256i) {
    // SAFETY: the caller has AVX2.
    unsafe {
        let w = block.vector();
        (if B::KIND == Kind::Signed { _mm256_abs_epi8(w) } else { w }, w)
    }
}

/// Eight partial sums of a block's product with 32 activations.
///
/// # Safety
///
/// AVX2, and 32 readable bytes at `q`.
#[inline(always)]
unsafe fn dot<B: NarrowAvx2>((magnitude, w): (__m256i, __m256i), q: *const i8) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let q = _mm256_loadu_si256(q.cast());
        let q = if B::KIND == Kind::Signed { _mm256_sign_epi8(q, w) } else { q };
        _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, q), _mm256_set1_epi16(1))
    }
}

/// `(d * dx) * f32(sum)`, plus `(m * dx) * f32(xsum)` where there is a minimum; every operation rounded.
///
/// # Safety
///
/// AVX2 and F16C.
#[inline(always)]
unsafe fn product<B: NarrowAvx2>(d: __m256, m: __m128i, dx: __m256, sum: __m256i, xsum: __m128i) -> __m256 {
    // SAFETY: the caller's.
    unsafe {
        let sum = match B::KIND {
            Kind::Offset(offset) => {
                let xsum = _mm256_cvtepi16_epi32(xsum);
                _mm256_sub_epi32(sum, _mm256_mullo_epi32(xsum, _mm256_set1_epi32(offset)))
            }
            Kind::Signed | Kind::Minimum => sum,
        };
        let p = _mm256_mul_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(sum));
        if B::MINIMUM {
            let xsum = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(xsum));
            _mm256_add_ps(p, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtph_ps(m), dx), xsum))
        } else {
            p
        }
    }
}

/// Any number of activation rows.
///
/// # Safety
///
/// AVX2, FMA and F16C. `x` is the narrow form of `n` rows of the matrix's width.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn matmul<B: NarrowAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
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
            _ => many::<B>(w, x, n, out),
        }
    }
}

/// Products with activation rows `t0 .. t0 + T`, in groups of eight blocks as in `avx2_wide::few`.
///
/// # Safety
///
/// As [`matmul`].
#[target_feature(enable = "avx2,fma,f16c")]
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
    let shift = lanes.trailing_zeros();
    let rows = 8 >> shift;
    let mut trees: [Tree; T] = std::array::from_fn(|_| Tree::new());
    // SAFETY: AVX2 and F16C are the caller's. `weights` holds `rows * blocks` blocks, `x` holds `blocks` blocks of `n`
    // rows, and only slots with `row < w.rows()`, `b < blocks` and `t0 + t < n` are read.
    unsafe {
        let slots = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let slots = _mm256_and_si256(slots, _mm256_set1_epi32(lanes as i32 - 1));
        // The same for words: bytes 2 i and 2 i + 1 of word i.
        let slot_words = _mm_packs_epi32(_mm256_castsi256_si128(slots), _mm256_extracti128_si256::<1>(slots));
        let slot_words =
            _mm_add_epi16(_mm_mullo_epi16(slot_words, _mm_set1_epi16(0x202)), _mm_set1_epi16(0x100));
        for r0 in (0..w.rows()).step_by(rows) {
            let mut sums = [[0.0; 8]; T];
            for b0 in (0..blocks).step_by(8) {
                let mut acc = [[_mm256_setzero_si256(); 8]; T];
                let (mut d, mut m) = ([0u16; 8], [0u16; 8]);
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
                    let block = weights.get_unchecked(r * blocks + b);
                    d[slot] = block.d();
                    m[slot] = block.m();
                    let operands = operands(block);
                    for t in 0..T {
                        acc[t][slot] = dot::<B>(operands, x.q.as_ptr().add((b * n + t0 + t) * LEN));
                    }
                }
                let d = B::scales(load128(&d));
                for t in 0..T {
                    let dx = _mm256_loadu_ps(x.scale.as_ptr().add((t0 + t) * x.stride + b0));
                    let dx = _mm256_permutevar8x32_ps(dx, slots);
                    let xsum = _mm_loadu_si128(x.sums.as_ptr().add((t0 + t) * x.stride + b0).cast());
                    let xsum = _mm_shuffle_epi8(xsum, slot_words);
                    let p = product::<B>(d, load128(&m), dx, sum_each(&acc[t]), xsum);
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

/// Weight rows and activation rows of a tile, as in `avx2_wide::many`.
const TILE_ROWS: usize = 4;
const TILE_COLS: usize = 64;

/// Products with 8 activation rows and more: eight of them make one group, for one block of one weight row.
///
/// # Safety
///
/// As [`matmul`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn many<B: NarrowAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
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
                    // SAFETY: AVX2 and F16C are the caller's; r0 + r < w.rows() and t0 + cols <= n.
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
unsafe fn one_block<B: NarrowAvx2>(
    block: &B,
    x: &Quantized,
    b: usize,
    (t0, cols, n): (usize, usize, usize),
    trees: &mut Trees<'_>,
    first: usize,
) {
    // SAFETY: the caller's. Scales and sums by block are padded to 8 rows; only rows below n are read of q.
    unsafe {
        let operands = operands(block);
        let d = B::scales(_mm_set1_epi16(block.d() as i16));
        let m = _mm_set1_epi16(block.m() as i16);
        let padded = n.next_multiple_of(8);
        for g in 0..cols.div_ceil(8) {
            let t = t0 + 8 * g;
            let q = x.q.as_ptr().add((b * n + t) * LEN);
            let mut acc = [_mm256_setzero_si256(); 8];
            let some = 8.min(cols - 8 * g);
            if some == 8 {
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = dot::<B>(operands, q.add(i * LEN));
                }
            } else {
                for (i, acc) in acc.iter_mut().enumerate().take(some) {
                    *acc = dot::<B>(operands, q.add(i * LEN));
                }
            }
            let at = b * padded + t;
            let dx = _mm256_loadu_ps(x.scale_by_block.as_ptr().add(at));
            let xsum = _mm_loadu_si128(x.sums_by_block.as_ptr().add(at).cast());
            trees.push(first + g, product::<B>(d, m, dx, sum_each(&acc), xsum));
        }
    }
}

impl NarrowAvx2 for Q4_0 {
    const KIND: Kind = Kind::Offset(8);

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2; the block is readable.
        unsafe { nibbles(load128(&self.qs)) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from_le_bytes(self.d)
    }
}

impl NarrowAvx2 for Q4_1 {
    const KIND: Kind = Kind::Minimum;

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2; the block is readable.
        unsafe { nibbles(load128(&self.qs)) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from_le_bytes(self.d)
    }

    #[inline(always)]
    fn m(&self) -> u16 {
        u16::from_le_bytes(self.m)
    }
}

/// Nibbles with a fifth bit.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn five_bits(qs: &[u8; 16], qh: [u8; 4]) -> __m256i {
    // SAFETY: the caller has AVX2; the array is readable.
    unsafe {
        let high = _mm256_and_si256(spread_bits(u32::from_le_bytes(qh)), _mm256_set1_epi8(16));
        _mm256_or_si256(nibbles(load128(qs)), high)
    }
}

impl NarrowAvx2 for Q5_0 {
    const KIND: Kind = Kind::Offset(16);

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { five_bits(&self.qs, self.qh) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from_le_bytes(self.d)
    }
}

impl NarrowAvx2 for Q5_1 {
    const KIND: Kind = Kind::Minimum;

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { five_bits(&self.qs, self.qh) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from_le_bytes(self.d)
    }

    #[inline(always)]
    fn m(&self) -> u16 {
        u16::from_le_bytes(self.m)
    }
}

impl NarrowAvx2 for Q8_0 {
    const KIND: Kind = Kind::Signed;

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2; the block is readable.
        unsafe { load(&self.qs) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from_le_bytes(self.d)
    }
}

impl NarrowAvx2 for Iq4Nl {
    const KIND: Kind = Kind::Signed;

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2; the block is readable.
        unsafe { _mm256_shuffle_epi8(table(&grid::IQ4), nibbles(load128(&self.qs))) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from_le_bytes(self.d)
    }
}

impl NarrowAvx2 for Mxfp4 {
    const KIND: Kind = Kind::Signed;

    #[inline(always)]
    unsafe fn vector(&self) -> __m256i {
        // SAFETY: the caller has AVX2; the block is readable.
        unsafe { _mm256_shuffle_epi8(table(&grid::FP4), nibbles(load128(&self.qs))) }
    }

    #[inline(always)]
    fn d(&self) -> u16 {
        u16::from(self.e)
    }

    /// `crate::narrow::half_exponent` of eight exponents.
    #[inline(always)]
    unsafe fn scales(e: __m128i) -> __m256 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let e = _mm256_cvtepu16_epi32(e);
            let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
            let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
            let tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
            _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, tiny))
        }
    }
}
