//! Vector pieces that the AVX-512 kernels share.
//!
//! As in `avx2.rs`, what is not an entry point is `#[inline(always)]` and compiled inside one that carries the target
//! features. No closures: a closure is a function of its own, without them.

use std::arch::x86_64::*;

use bytemuck::{Pod, Zeroable};

/// Loads 64 bytes.
///
/// # Safety
///
/// AVX-512F, and `from` has at least 64 bytes.
#[inline(always)]
pub(super) unsafe fn load512<T: ?Sized>(from: &T) -> __m512i {
    debug_assert!(size_of_val(from) >= 64);
    // SAFETY: the caller's.
    unsafe { _mm512_loadu_si512((&raw const *from).cast()) }
}

/// 32 bytes in both halves.
///
/// # Safety
///
/// AVX-512F, and `from` has at least 32 bytes.
#[inline(always)]
pub(super) unsafe fn both_halves<T: ?Sized>(from: &T) -> __m512i {
    debug_assert!(size_of_val(from) >= 32);
    // SAFETY: the caller's.
    unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256((&raw const *from).cast())) }
}

/// `low` in the low half, `high` in the high one.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
pub(super) unsafe fn halves(low: __m256i, high: __m256i) -> __m512i {
    // SAFETY: the caller has AVX-512F.
    unsafe { _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high) }
}

/// 16 bytes in all four lanes.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
pub(super) unsafe fn table512(bytes: &[u8; 16]) -> __m512i {
    // SAFETY: the caller has AVX-512F; a reference to 16 bytes is readable.
    unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast())) }
}

/// The sums of the halves of four vectors, in their order: low half of the first, high half of the first, and so on.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
pub(super) unsafe fn sum_halves(v: &[__m512i; 4]) -> __m256i {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        // In a lane of 128 bits: two partial sums of a and b, then one of each of four vectors.
        let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
        let lanes = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        // The other lane of the same half.
        let sums = _mm512_add_epi32(lanes, _mm512_shuffle_i64x2::<0b10_11_00_01>(lanes, lanes));
        let order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
        _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums))
    }
}

/// The sums of the 16 lanes of 8 vectors, in their order.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
pub(super) unsafe fn sum_each512(v: &[__m512i; 8]) -> __m256i {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        let mut pairs = [_mm512_setzero_si512(); 4];
        for i in 0..4 {
            let (a, b) = (v[2 * i], v[2 * i + 1]);
            // The low halves of both, the high halves of both.
            let low = _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b);
            let high = _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b);
            pairs[i] = _mm512_add_epi32(low, high);
        }
        sum_halves(&pairs)
    }
}

/// Column i of 16 rows of 16 words becomes vector i.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
pub(super) unsafe fn transpose(rows: &[__m512i; 16]) -> [__m512i; 16] {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        let zero = _mm512_setzero_si512();
        // Vector 4 g + c: in lane l, word 4 l + c of rows 4 g to 4 g + 3.
        let mut fours = [zero; 16];
        for g in 0..4 {
            let [a, b, c, d] = [rows[4 * g], rows[4 * g + 1], rows[4 * g + 2], rows[4 * g + 3]];
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            fours[4 * g] = _mm512_unpacklo_epi64(ab, cd);
            fours[4 * g + 1] = _mm512_unpackhi_epi64(ab, cd);
            let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            fours[4 * g + 2] = _mm512_unpacklo_epi64(ab, cd);
            fours[4 * g + 3] = _mm512_unpackhi_epi64(ab, cd);
        }
        // Four by four lanes.
        let mut out = [zero; 16];
        for c in 0..4 {
            let [g0, g1, g2, g3] = [fours[c], fours[4 + c], fours[8 + c], fours[12 + c]];
            let (a, b) = (_mm512_shuffle_i32x4::<0x88>(g0, g1), _mm512_shuffle_i32x4::<0x88>(g2, g3));
            out[c] = _mm512_shuffle_i32x4::<0x88>(a, b);
            out[8 + c] = _mm512_shuffle_i32x4::<0xdd>(a, b);
            let (a, b) = (_mm512_shuffle_i32x4::<0xdd>(g0, g1), _mm512_shuffle_i32x4::<0xdd>(g2, g3));
            out[4 + c] = _mm512_shuffle_i32x4::<0x88>(a, b);
            out[12 + c] = _mm512_shuffle_i32x4::<0xdd>(a, b);
        }
        out
    }
}

/// Sums of partials for 16 rows at once, in the order of `crate::tree::Tree`, for several accumulators that all have seen
/// the same number of partials.
pub(super) struct Trees16<'a> {
    /// `[accumulator][level]`.
    levels: &'a mut [Line],
    depth: usize,
    n: usize,
}

/// A cache line, which is a vector.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

impl Line {
    pub(super) const ZERO: Self = Self([0; 64]);

    /// # Safety
    ///
    /// AVX-512F.
    #[inline(always)]
    pub(super) unsafe fn get(&self) -> __m512i {
        // SAFETY: the caller has AVX-512F; the line is 64 bytes and aligned.
        unsafe { _mm512_load_si512((&raw const self.0).cast()) }
    }

    /// # Safety
    ///
    /// AVX-512F.
    #[inline(always)]
    pub(super) unsafe fn set(&mut self, v: __m512i) {
        // SAFETY: the caller has AVX-512F; the line is 64 bytes and aligned.
        unsafe { _mm512_store_si512((&raw mut self.0).cast(), v) }
    }
}

impl<'a> Trees16<'a> {
    /// Levels that `n` partials need.
    pub(super) fn depth(n: usize) -> usize {
        n.next_power_of_two().trailing_zeros() as usize + 1
    }

    /// Empty trees for `n` partials each in memory for `accumulators * Trees16::depth(n)` levels.
    pub(super) fn new(levels: &'a mut [Line], n: usize) -> Self {
        Self { levels, depth: Self::depth(n), n: 0 }
    }

    /// Adds the next partials of an accumulator. After one to each, call [`Trees16::advance`].
    ///
    /// # Safety
    ///
    /// AVX-512F.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, accumulator: usize, partials: __m512) {
        let waiting = self.n.trailing_ones() as usize;
        let levels = &mut self.levels[accumulator * self.depth..][..self.depth];
        // SAFETY: the caller has AVX-512F.
        unsafe {
            let mut sum = partials;
            for level in &levels[..waiting] {
                sum = _mm512_add_ps(_mm512_castsi512_ps(level.get()), sum);
            }
            levels[waiting].set(_mm512_castps_si512(sum));
        }
    }

    /// Every accumulator has its partial.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.n += 1;
    }

    /// The sums of an accumulator.
    ///
    /// # Safety
    ///
    /// AVX-512F.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, accumulator: usize) -> [f32; 16] {
        let levels = &self.levels[accumulator * self.depth..][..self.depth];
        let top = self.n.next_power_of_two().trailing_zeros() as usize;
        // SAFETY: the caller has AVX-512F; the array has room for 16 floats.
        unsafe {
            let mut sum = _mm512_setzero_ps();
            if self.n.is_power_of_two() {
                sum = _mm512_castsi512_ps(levels[top].get());
            } else {
                // As in `Tree::finish`: padding is met from the first level that has a sum without a right neighbour.
                let first = self.n.trailing_zeros() as usize;
                for (l, level) in levels[..top].iter().enumerate().skip(first) {
                    sum = if self.n >> l & 1 == 1 {
                        _mm512_add_ps(_mm512_castsi512_ps(level.get()), sum)
                    } else {
                        _mm512_add_ps(sum, _mm512_setzero_ps())
                    };
                }
            }
            let mut out = [0.0; 16];
            _mm512_storeu_ps(out.as_mut_ptr(), sum);
            out
        }
    }
}
