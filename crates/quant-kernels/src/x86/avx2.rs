//! Vector pieces that the AVX2 kernels share.
//!
//! Every function here and in the other `avx2_*` files that is not an entry point is `#[inline(always)]` and compiled
//! inside an entry point that carries the target features, so its intrinsics become single instructions.

use std::arch::x86_64::*;

/// Runs `$body` with `$i` from 0 to 7, written out: a loop is unrolled only where the compiler thinks it short, and
/// where it does not, shuffles by constants are put together at run time (half the speed for IQ3_XXS).
macro_rules! eight_times {
    ($i:ident => $body:block) => {
        eight_times!(@ $i $body 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident $body:block $($value:literal)*) => {
        $({
            let $i: usize = $value;
            $body
        })*
    };
}

pub(super) use eight_times;

/// Loads 32 bytes.
///
/// # Safety
///
/// AVX2, and `from` has at least 32 bytes.
#[inline(always)]
pub(super) unsafe fn load<T: ?Sized>(from: &T) -> __m256i {
    debug_assert!(size_of_val(from) >= 32);
    // SAFETY: the caller's.
    unsafe { _mm256_loadu_si256((&raw const *from).cast()) }
}

/// Loads 16 bytes.
///
/// # Safety
///
/// AVX2, and `from` has at least 16 bytes.
#[inline(always)]
pub(super) unsafe fn load128<T: ?Sized>(from: &T) -> __m128i {
    debug_assert!(size_of_val(from) >= 16);
    // SAFETY: the caller's.
    unsafe { _mm_loadu_si128((&raw const *from).cast()) }
}

/// The sums of the 8 lanes of 8 vectors, in their order.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn sum_each(v: &[__m256i; 8]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
        let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
        _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        )
    }
}

/// Spreads 32 bits over 32 bytes: byte i is 0xff where bit i is set, else 0.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn spread_bits(bits: u32) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), spread_index(0));
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
    }
}

/// Shuffle that repeats each of the four bytes of word `i` (0 to 3) of a lane eight times; both lanes hold the same.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn spread_index(i: i64) -> __m256i {
    let byte = |b: i64| (4 * i + b) * 0x0101_0101_0101_0101;
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_setr_epi64x(byte(0), byte(1), byte(2), byte(3)) }
}

/// The same reference, of whose target the compiler knows nothing. It replaces a shuffle by a known vector with two or
/// three others if it finds them cheaper; here they are not. No instruction.
#[expect(
    clippy::pointers_in_nomem_asm_block,
    reason = "the pointer is handed back, its target is not touched"
)]
#[inline(always)]
pub(super) fn opaque<T>(target: &T) -> &T {
    let mut at = &raw const *target;
    // SAFETY: the text is a comment, and the pointer stays what it is.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags));
        &*at
    }
}

/// The same vector, of which the compiler knows nothing; as [`opaque`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn opaque_vector(mut v: __m256i) -> __m256i {
    // SAFETY: the text is a comment.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags));
    }
    v
}

/// The 16 bytes of a table in both lanes.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn table(bytes: &[i8; 16]) -> __m256i {
    // SAFETY: the caller has AVX2; a reference to 16 bytes is readable.
    unsafe { _mm256_broadcastsi128_si256(load128(bytes)) }
}

/// Low nibbles of 16 bytes in the low lane, high nibbles in the high one.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn nibbles(bytes: __m128i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let both = _mm256_broadcastsi128_si256(bytes);
        let shifted = _mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4));
        _mm256_and_si256(shifted, _mm256_set1_epi8(15))
    }
}

/// Eight adjacent partials of one row, or fewer of several rows: adds adjacent pairs until `lanes` (1, 2, 4 or 8)
/// partials have become one sum. The sums of the 8 / lanes rows are at 0, then 1 or 4 and so on as [`tree_lane`] says.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn tree(p: __m256, lanes: usize) -> [f32; 8] {
    // SAFETY: the caller has AVX2; the array has room for 8 floats.
    unsafe {
        let mut sums = p;
        if lanes >= 2 {
            sums = _mm256_hadd_ps(sums, sums);
        }
        if lanes >= 4 {
            sums = _mm256_hadd_ps(sums, sums);
        }
        if lanes >= 8 {
            sums = _mm256_add_ps(sums, _mm256_permute2f128_ps::<1>(sums, sums));
        }
        let mut out = [0.0; 8];
        _mm256_storeu_ps(out.as_mut_ptr(), sums);
        out
    }
}

/// Where [`tree`] leaves the sum of the i-th row of a group.
#[inline(always)]
pub(super) fn tree_lane(lanes: usize, i: usize) -> usize {
    match lanes {
        1 => i,
        2 => i / 2 * 4 + i % 2,
        4 => i * 4,
        _ => 0,
    }
}

/// Sums of partials for 8 activation rows at once, in the order of `crate::tree::Tree`, for several accumulators that
/// all have seen the same number of partials.
pub(super) struct Trees<'a> {
    /// `[accumulator][level][8]`.
    levels: &'a mut [[f32; 8]],
    depth: usize,
    n: usize,
}

impl<'a> Trees<'a> {
    /// Levels that `n` partials need.
    pub(super) fn depth(n: usize) -> usize {
        n.next_power_of_two().trailing_zeros() as usize + 1
    }

    /// Empty trees for `n` partials each in memory for `accumulators * Trees::depth(n)` levels.
    pub(super) fn new(levels: &'a mut [[f32; 8]], n: usize) -> Self {
        Self { levels, depth: Self::depth(n), n: 0 }
    }

    /// Adds the next partials of an accumulator. After one to each, call [`Trees::advance`].
    ///
    /// # Safety
    ///
    /// AVX2.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, accumulator: usize, partials: __m256) {
        let waiting = self.n.trailing_ones() as usize;
        let levels = &mut self.levels[accumulator * self.depth..][..self.depth];
        // SAFETY: the caller has AVX2; every level is 8 floats.
        unsafe {
            let mut sum = partials;
            for level in &levels[..waiting] {
                sum = _mm256_add_ps(_mm256_loadu_ps(level.as_ptr()), sum);
            }
            _mm256_storeu_ps(levels[waiting].as_mut_ptr(), sum);
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
    /// AVX2.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, accumulator: usize) -> [f32; 8] {
        let levels = &self.levels[accumulator * self.depth..][..self.depth];
        let top = self.n.next_power_of_two().trailing_zeros() as usize;
        if self.n.is_power_of_two() {
            return levels[top];
        }
        // As in `Tree::finish`: padding is met from the first level that has a sum without a right neighbour.
        // SAFETY: the caller has AVX2; every level is 8 floats.
        unsafe {
            let mut sum = _mm256_setzero_ps();
            let first = self.n.trailing_zeros() as usize;
            for (l, level) in levels[..top].iter().enumerate().skip(first) {
                sum = if self.n >> l & 1 == 1 {
                    _mm256_add_ps(_mm256_loadu_ps(level.as_ptr()), sum)
                } else {
                    _mm256_add_ps(sum, _mm256_setzero_ps())
                };
            }
            let mut out = [0.0; 8];
            _mm256_storeu_ps(out.as_mut_ptr(), sum);
            out
        }
    }
}
