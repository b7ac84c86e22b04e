//! Q2_K to Q6_K and IQ4_XS in AVX-512 form.

use std::arch::x86_64::*;

use super::avx2::load128;
use super::avx512::{both_halves, load512, table512};
use super::avx512_wide::{Kind512, Unpacked512, Wide512};
use crate::block::{Half, Iq4Xs, Q2K, Q3K, Q4K, Q5K, Q6K};
use crate::grid;

/// What formats without signs say of them.
const NONE: [__mmask64; 4] = [0; 4];

/// Every byte of the low half rotated right by `low` bits and of the high half by `high`, as far as `mask` shows: what
/// crosses a byte's border must lie outside it. Negative counts rotate left.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn bits(v: __m512i, low: i64, high: i64, mask: i8) -> __m512i {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        let counts = _mm512_setr_epi64(low, low, low, low, high, high, high, high);
        _mm512_and_si512(_mm512_rorv_epi64(v, counts), _mm512_set1_epi8(mask))
    }
}

/// 256 two-bit weights.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn two_bits(qs: &[u8; 64]) -> [__m512i; 4] {
    // SAFETY: the caller has AVX-512F; both halves of `qs` are 32 bytes.
    unsafe {
        let (first, second) = (both_halves(&qs[..32]), both_halves(&qs[32..]));
        [bits(first, 0, 2, 3), bits(first, 4, 6, 3), bits(second, 0, 2, 3), bits(second, 4, 6, 3)]
    }
}

impl Wide512 for Q2K {
    const KIND: Kind512 = Kind512::Minima;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let scales = load128(&self.scales);
            let low = _mm_set1_epi8(15);
            Unpacked512 {
                w: two_bits(&self.qs),
                negative: NONE,
                scale: _mm256_cvtepi8_epi16(_mm_and_si128(scales, low)),
                min: _mm256_cvtepi8_epi16(_mm_and_si128(_mm_srli_epi16::<4>(scales), low)),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }

    #[inline(always)]
    fn dmin512(&self) -> Half {
        self.dmin
    }
}

impl Wide512 for Q3K {
    const KIND: Kind512 = Kind512::Offset(4);
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let [a, b, c, d] = two_bits(&self.qs);
            let high = both_halves(&self.hmask);
            let s = &self.scales;
            let low = u64::from_le_bytes([s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]]);
            let top = u64::from(u32::from_le_bytes([s[8], s[9], s[10], s[11]]));
            let nibble = 0x0f0f_0f0f_0f0f_0f0f;
            let pair = 0x0303_0303;
            let first = low & nibble | (top & pair) << 4 | (top >> 2 & pair) << 36;
            let second = low >> 4 & nibble | (top >> 4 & pair) << 4 | (top >> 6 & pair) << 36;
            let scales = _mm_sub_epi8(_mm_set_epi64x(second as i64, first as i64), _mm_set1_epi8(32));
            Unpacked512 {
                w: [
                    _mm512_or_si512(a, bits(high, -2, -1, 4)),
                    _mm512_or_si512(b, bits(high, 0, 1, 4)),
                    _mm512_or_si512(c, bits(high, 2, 3, 4)),
                    _mm512_or_si512(d, bits(high, 4, 5, 4)),
                ],
                negative: NONE,
                scale: _mm256_cvtepi8_epi16(scales),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

/// Eight bytes as i16, each twice.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn doubled(bytes: u64) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let bytes = _mm_cvtsi64_si128(bytes as i64);
        _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes))
    }
}

/// Scales and minima of Q4_K and Q5_K, 6 bits each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn six_bits(s: &[u8; 12]) -> (__m256i, __m256i) {
    let a = u32::from_le_bytes([s[0], s[1], s[2], s[3]]);
    let b = u32::from_le_bytes([s[4], s[5], s[6], s[7]]);
    let c = u32::from_le_bytes([s[8], s[9], s[10], s[11]]);
    let scale = u64::from(a & 0x3f3f_3f3f) | u64::from(c & 0x0f0f_0f0f | (a >> 6 & 0x0303_0303) << 4) << 32;
    let min =
        u64::from(b & 0x3f3f_3f3f) | u64::from(c >> 4 & 0x0f0f_0f0f | (b >> 6 & 0x0303_0303) << 4) << 32;
    // SAFETY: the caller has AVX2.
    unsafe { (doubled(scale), doubled(min)) }
}

/// 256 four-bit weights.
///
/// # Safety
///
/// AVX-512F.
#[inline(always)]
unsafe fn four_bits(qs: &[u8; 128]) -> [__m512i; 4] {
    // SAFETY: the caller has AVX-512F; each part of `qs` is 32 bytes.
    unsafe {
        [
            bits(both_halves(&qs[..32]), 0, 4, 15),
            bits(both_halves(&qs[32..64]), 0, 4, 15),
            bits(both_halves(&qs[64..96]), 0, 4, 15),
            bits(both_halves(&qs[96..]), 0, 4, 15),
        ]
    }
}

impl Wide512 for Q4K {
    const KIND: Kind512 = Kind512::Minima;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let (scale, min) = six_bits(&self.scales);
            Unpacked512 { w: four_bits(&self.qs), negative: NONE, scale, min }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }

    #[inline(always)]
    fn dmin512(&self) -> Half {
        self.dmin
    }
}

impl Wide512 for Q5K {
    const KIND: Kind512 = Kind512::Minima;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let (scale, min) = six_bits(&self.scales);
            let [a, b, c, d] = four_bits(&self.qs);
            let high = both_halves(&self.qh);
            Unpacked512 {
                w: [
                    _mm512_or_si512(a, bits(high, -4, -3, 16)),
                    _mm512_or_si512(b, bits(high, -2, -1, 16)),
                    _mm512_or_si512(c, bits(high, 0, 1, 16)),
                    _mm512_or_si512(d, bits(high, 2, 3, 16)),
                ],
                negative: NONE,
                scale,
                min,
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }

    #[inline(always)]
    fn dmin512(&self) -> Half {
        self.dmin
    }
}

impl Wide512 for Q6K {
    const KIND: Kind512 = Kind512::Offset(32);
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let (a, b) = (load512(&self.ql), load512(&self.ql[64..]));
            let (g, h) = (both_halves(&self.qh), both_halves(&self.qh[32..]));
            Unpacked512 {
                w: [
                    _mm512_or_si512(bits(a, 0, 0, 15), bits(g, -4, -2, 48)),
                    _mm512_or_si512(bits(a, 4, 4, 15), bits(g, 0, 2, 48)),
                    _mm512_or_si512(bits(b, 0, 0, 15), bits(h, -4, -2, 48)),
                    _mm512_or_si512(bits(b, 4, 4, 15), bits(h, 0, 2, 48)),
                ],
                negative: NONE,
                scale: _mm256_cvtepi8_epi16(load128(&self.scales)),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

/// Magnitudes of the weights of IQ4_XS: the first eight are negative.
static IQ4_MAGNITUDES: [u8; 16] = {
    let mut magnitudes = [0; 16];
    let mut i = 0;
    while i < 16 {
        assert!((grid::IQ4[i] < 0) == (i < 8));
        magnitudes[i] = grid::IQ4[i].unsigned_abs();
        i += 1;
    }
    magnitudes
};

impl Wide512 for Iq4Xs {
    const KIND: Kind512 = Kind512::Signed;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let magnitudes = table512(&IQ4_MAGNITUDES);
            let twice = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
            let counts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
            let mut w = [_mm512_setzero_si512(); 4];
            let mut negative = NONE;
            for (i, qs) in self.qs.as_chunks::<32>().0.iter().enumerate() {
                // 16 bytes are the low and the high nibbles of 32 weights.
                let both = _mm512_permutexvar_epi64(twice, both_halves(qs));
                let q = _mm512_and_si512(_mm512_srlv_epi64(both, counts), _mm512_set1_epi8(15));
                w[i] = _mm512_shuffle_epi8(magnitudes, q);
                negative[i] = _mm512_testn_epi8_mask(q, _mm512_set1_epi8(8));
            }
            let low = _mm256_set1_epi32(i32::from_le_bytes(self.scales_l));
            let high = _mm256_set1_epi32(i32::from(u16::from_le_bytes(self.scales_h)));
            let low = _mm256_srlv_epi32(low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
            let high = _mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
            let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
            let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
            let scale = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
            Unpacked512 { w, negative, scale: twice_each(scale), min: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

/// Eight i32 that fit 16 bits as i16, each twice.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
pub(super) unsafe fn twice_each(scales: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_blend_epi16::<0xaa>(scales, _mm256_slli_epi32::<16>(scales)) }
}
