//! Q2_K to Q6_K and IQ4_XS in AVX2 form.

use std::arch::x86_64::*;

use super::avx2::{load, load128, nibbles, table};
use super::avx2_wide::{Kind, Scales, Weights, WideAvx2};
use crate::block::{Half, Iq4Xs, Q2K, Q3K, Q4K, Q5K, Q6K};
use crate::grid;

/// Bits `from ..` of every byte moved to `to ..`, others cleared by `mask`.
///
/// # Safety
///
/// AVX2. What crosses a byte's border must lie outside `mask`.
#[inline(always)]
unsafe fn bits(v: __m256i, from: usize, to: usize, mask: i8) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let moved = if from > to {
            _mm256_srl_epi16(v, _mm_cvtsi32_si128((from - to) as i32))
        } else {
            _mm256_sll_epi16(v, _mm_cvtsi32_si128((to - from) as i32))
        };
        _mm256_and_si256(moved, _mm256_set1_epi8(mask))
    }
}

/// Weights that are not negative.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn unsigned(w: __m256i) -> Weights {
    // SAFETY: the caller has AVX2.
    unsafe { Weights { w, sign: _mm256_setzero_si256() } }
}

/// 16 bytes as i16, those of even sub-blocks in the low lane and of odd ones in the high lane.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn even_odd(scales: __m128i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, order))
    }
}

impl WideAvx2 for Q2K {
    const KIND: Kind = Kind::Minima;
    const UNIT: f32 = 1.0;

    type Shared = ();

    #[inline(always)]
    unsafe fn shared(&self) {}

    #[inline(always)]
    unsafe fn scales(&self, (): &()) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let scales = load128(&self.scales);
            let low = _mm_set1_epi8(15);
            Scales {
                scale: even_odd(_mm_and_si128(scales, low)),
                by_sums: _mm256_cvtepi8_epi16(_mm_and_si128(_mm_srli_epi16::<4>(scales), low)),
            }
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, (): &(), i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's.
        unsafe { unsigned(bits(load(&self.qs[i / 4 * 32..]), i % 4 * 2, 0, 3)) }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }

    #[inline(always)]
    fn dmin(&self) -> Half {
        self.dmin
    }
}

impl WideAvx2 for Q3K {
    const KIND: Kind = Kind::Offset { shift: 2 };
    const UNIT: f32 = 1.0;

    type Shared = ();

    #[inline(always)]
    unsafe fn shared(&self) {}

    #[inline(always)]
    unsafe fn scales(&self, (): &()) -> Scales {
        let s = &self.scales;
        let low = u64::from_le_bytes([s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]]);
        let top = u64::from(u32::from_le_bytes([s[8], s[9], s[10], s[11]]));
        let nibble = 0x0f0f_0f0f_0f0f_0f0f;
        let pair = 0x0303_0303;
        let first = low & nibble | (top & pair) << 4 | (top >> 2 & pair) << 36;
        let second = low >> 4 & nibble | (top >> 4 & pair) << 4 | (top >> 6 & pair) << 36;
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let scales = _mm_sub_epi8(_mm_set_epi64x(second as i64, first as i64), _mm_set1_epi8(32));
            Scales { scale: even_odd(scales), by_sums: _mm256_cvtepi8_epi16(scales) }
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, (): &(), i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let low = bits(load(&self.qs[i / 4 * 32..]), i % 4 * 2, 0, 3);
            unsigned(_mm256_or_si256(low, bits(load(&self.hmask), i, 2, 4)))
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

/// Scales and minima of Q4_K and Q5_K, 6 bits each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn six_bits(s: &[u8; 12]) -> Scales {
    let word = |i: usize| u32::from_le_bytes([s[i], s[i + 1], s[i + 2], s[i + 3]]);
    let (a, b, c) = (word(0), word(4), word(8));
    let scale = u64::from(a & 0x3f3f_3f3f) | u64::from(c & 0x0f0f_0f0f | (a >> 6 & 0x0303_0303) << 4) << 32;
    let min =
        u64::from(b & 0x3f3f_3f3f) | u64::from(c >> 4 & 0x0f0f_0f0f | (b >> 6 & 0x0303_0303) << 4) << 32;
    // SAFETY: the caller has AVX2.
    unsafe {
        let scale = _mm_cvtepi8_epi16(_mm_cvtsi64_si128(scale as i64));
        let min = _mm_cvtsi64_si128(min as i64);
        Scales {
            scale: _mm256_broadcastsi128_si256(scale),
            by_sums: _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(min, min)),
        }
    }
}

impl WideAvx2 for Q4K {
    const KIND: Kind = Kind::Minima;
    const UNIT: f32 = 1.0;

    type Shared = ();

    #[inline(always)]
    unsafe fn shared(&self) {}

    #[inline(always)]
    unsafe fn scales(&self, (): &()) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe { six_bits(&self.scales) }
    }

    #[inline(always)]
    unsafe fn weights(&self, (): &(), i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's.
        unsafe { unsigned(bits(load(&self.qs[i / 2 * 32..]), i % 2 * 4, 0, 15)) }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }

    #[inline(always)]
    fn dmin(&self) -> Half {
        self.dmin
    }
}

impl WideAvx2 for Q5K {
    const KIND: Kind = Kind::Minima;
    const UNIT: f32 = 1.0;

    type Shared = ();

    #[inline(always)]
    unsafe fn shared(&self) {}

    #[inline(always)]
    unsafe fn scales(&self, (): &()) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe { six_bits(&self.scales) }
    }

    #[inline(always)]
    unsafe fn weights(&self, (): &(), i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let low = bits(load(&self.qs[i / 2 * 32..]), i % 2 * 4, 0, 15);
            unsigned(_mm256_or_si256(low, bits(load(&self.qh), i, 4, 16)))
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }

    #[inline(always)]
    fn dmin(&self) -> Half {
        self.dmin
    }
}

impl WideAvx2 for Q6K {
    const KIND: Kind = Kind::Offset { shift: 5 };
    const UNIT: f32 = 1.0;

    type Shared = ();

    #[inline(always)]
    unsafe fn shared(&self) {}

    #[inline(always)]
    unsafe fn scales(&self, (): &()) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let scales = load128(&self.scales);
            Scales { scale: even_odd(scales), by_sums: _mm256_cvtepi8_epi16(scales) }
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, (): &(), i: usize) -> Weights {
        let (half, j) = (i / 4, i % 4);
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let low = bits(load(&self.ql[64 * half + j % 2 * 32..]), j / 2 * 4, 0, 15);
            unsigned(_mm256_or_si256(low, bits(load(&self.qh[32 * half..]), 2 * j, 4, 48)))
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq4Xs {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 1.0;

    type Shared = ();

    #[inline(always)]
    unsafe fn shared(&self) {}

    #[inline(always)]
    unsafe fn scales(&self, (): &()) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let low = _mm256_set1_epi32(i32::from_le_bytes(self.scales_l));
            let high = _mm256_set1_epi32(i32::from(u16::from_le_bytes(self.scales_h)));
            let low = _mm256_srlv_epi32(low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
            let high = _mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
            let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
            let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
            let scale = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
            Scales { scale: both_lanes(scale), by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, (): &(), i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let sign = _mm256_shuffle_epi8(table(&grid::IQ4), nibbles(load128(&self.qs[16 * i..])));
            Weights { w: _mm256_abs_epi8(sign), sign }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

/// Eight i32 scales of 32 weights each as i16, in both lanes.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn both_lanes(scales: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_permute4x64_epi64::<0x88>(_mm256_packs_epi32(scales, scales)) }
}
