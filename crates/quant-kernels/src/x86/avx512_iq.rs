//! The formats with large codebooks, IQ1_S to IQ3_S, in AVX-512 form.
//!
//! The codebooks of 256 entries stay in eight registers as 2- or 3-bit codes: four `vpermi2w` look 32 entries up, then
//! bytes are picked apart by `vpmultishiftqb` and mapped to values by `vpermb`. Larger codebooks are gathered. Signs are
//! masks: the sign bytes of 64 weights are one mask.

use std::arch::x86_64::*;

use super::avx2::{load, load128};
use super::avx512::load512;
use super::avx512_k::twice_each;
use super::avx512_wide::{Kind512, Unpacked512, Wide512};
use crate::block::{Half, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use crate::grid;

/// Sign bytes of the 7-bit sign indices.
static SIGNS: [u8; 128] = {
    let mut table = [0; 128];
    let mut i = 0;
    while i < 128 {
        table[i] = grid::signs(i as u8);
        i += 1;
    }
    table
};

/// Values of IQ2 formats, repeated so that only the low two bits of an index count.
static IQ2_VALUES: [u8; 64] = repeated([8, 25, 43, 0]);
/// Values of IQ3_XXS, repeated so that only the low three bits of an index count.
static IQ3_XXS_VALUES: [u8; 64] = repeated([4, 12, 20, 28, 36, 44, 52, 62]);

/// The 256 entries of IQ2_XXS, two bits for each of 8 weights.
static IQ2_XXS_CODES: [u16; 256] = {
    let mut codes = [0; 256];
    let mut i = 0;
    while i < 256 {
        codes[i] = packed(&grid::IQ2_XXS[i].to_le_bytes(), 2, &IQ2_VALUES);
        i += 1;
    }
    codes
};

/// The 256 entries of IQ3_XXS, three bits for each of 4 weights.
static IQ3_XXS_CODES: [u16; 256] = {
    let mut codes = [0; 256];
    let mut i = 0;
    while i < 256 {
        codes[i] = packed(&grid::IQ3_XXS[i].to_le_bytes(), 3, &IQ3_XXS_VALUES);
        i += 1;
    }
    codes
};

const fn repeated<const N: usize>(values: [u8; N]) -> [u8; 64] {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = values[i % N];
        i += 1;
    }
    table
}

/// The codes of some values, `bits` bits each.
const fn packed<const N: usize>(values: &[u8; N], bits: usize, table: &[u8; 64]) -> u16 {
    let mut codes = 0;
    let mut j = 0;
    while j < N {
        let mut code = 0;
        while table[code] != values[j] {
            code += 1;
        }
        assert!(code < 1 << bits);
        codes |= (code as u16) << (bits * j);
        j += 1;
    }
    codes
}

/// The entries of 32 indices, given as words below 256.
///
/// # Safety
///
/// AVX-512 F and BW.
#[inline(always)]
unsafe fn look_up(codes: &'static [u16; 256], index: __m512i) -> __m512i {
    // SAFETY: the caller's; every part of `codes` has 64 bytes and more.
    unsafe {
        // An instruction looks at six bits of an index; the other two choose among four results.
        let a = _mm512_permutex2var_epi16(load512(codes), index, load512(&codes[32..]));
        let b = _mm512_permutex2var_epi16(load512(&codes[64..]), index, load512(&codes[96..]));
        let c = _mm512_permutex2var_epi16(load512(&codes[128..]), index, load512(&codes[160..]));
        let d = _mm512_permutex2var_epi16(load512(&codes[192..]), index, load512(&codes[224..]));
        let odd = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
        let upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
        let (ab, cd) = (_mm512_mask_blend_epi16(odd, a, b), _mm512_mask_blend_epi16(odd, c, d));
        _mm512_mask_blend_epi16(upper, ab, cd)
    }
}

/// Words 8 i to 8 i + 8, each four times.
///
/// # Safety
///
/// AVX-512 F and BW.
#[inline(always)]
unsafe fn four_times(words: __m512i, i: usize) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let each = 0x0001_0001_0001_0001;
        let index = _mm512_setr_epi64(0, each, 2 * each, 3 * each, 4 * each, 5 * each, 6 * each, 7 * each);
        _mm512_permutexvar_epi16(_mm512_add_epi16(index, _mm512_set1_epi16(8 * i as i16)), words)
    }
}

/// Words 16 i to 16 i + 16, each twice.
///
/// # Safety
///
/// AVX-512 F and BW.
#[inline(always)]
unsafe fn two_times(words: __m512i, i: usize) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let first = _mm512_setr_epi64(
            0x0001_0001_0000_0000,
            0x0003_0003_0002_0002,
            0x0005_0005_0004_0004,
            0x0007_0007_0006_0006,
            0x0009_0009_0008_0008,
            0x000b_000b_000a_000a,
            0x000d_000d_000c_000c,
            0x000f_000f_000e_000e,
        );
        _mm512_permutexvar_epi16(_mm512_add_epi16(first, _mm512_set1_epi16(16 * i as i16)), words)
    }
}

/// 32 bytes of sign bits as masks of 64 weights.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn masks(bytes: __m256i) -> [__mmask64; 4] {
    // SAFETY: the caller has AVX2; both are 32 bytes, and x86 keeps the first byte of a word lowest.
    unsafe { std::mem::transmute(bytes) }
}

/// The sign bytes of 32 indices, whose upper bit does not count.
///
/// # Safety
///
/// AVX-512 F and VBMI.
#[inline(always)]
unsafe fn sign_bytes(index: __m256i) -> __m256i {
    // SAFETY: the caller's; both halves of the table are 64 bytes.
    unsafe {
        let (low, high) = (load512(&SIGNS[..64]), load512(&SIGNS[64..]));
        _mm512_castsi512_si256(_mm512_permutex2var_epi8(low, _mm512_castsi256_si512(index), high))
    }
}

/// Sign masks from eight words that hold four 7-bit indices each.
///
/// # Safety
///
/// AVX-512 F, VL and VBMI.
#[inline(always)]
unsafe fn packed_signs(words: __m256i) -> [__mmask64; 4] {
    // SAFETY: the caller's.
    unsafe {
        let from = _mm256_set1_epi64x(i64::from_le_bytes([0, 7, 14, 21, 32, 39, 46, 53]));
        masks(sign_bytes(_mm256_multishift_epi64_epi8(from, words)))
    }
}

/// `2 * (word >> 28) + 1` of eight words that belong to two sub-blocks each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn top_scales(words: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let doubled = _mm256_and_si256(_mm256_srli_epi32::<27>(words), _mm256_set1_epi32(30));
        twice_each(_mm256_or_si256(doubled, _mm256_set1_epi32(1)))
    }
}

/// `2 * nibble + 1` of 8 bytes, low nibbles first.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn nibble_scales(bytes: &[u8; 8]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let v = _mm_cvtsi64_si128(i64::from_le_bytes(*bytes));
        let nibbles = _mm_and_si128(_mm_unpacklo_epi8(v, _mm_srli_epi16::<4>(v)), _mm_set1_epi8(15));
        odd(_mm256_cvtepu8_epi16(nibbles))
    }
}

/// `2 * x + 1`.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn odd(x: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_or_si256(_mm256_add_epi16(x, x), _mm256_set1_epi16(1)) }
}

impl Wide512 for Iq2Xxs {
    const KIND: Kind512 = Kind512::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            // Pairs of words: four indices, then signs and scale.
            let pairs = load512(&self.qs);
            let index = _mm512_cvtepi64_epi32(pairs);
            let words = _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(pairs));
            let codes = look_up(&IQ2_XXS_CODES, _mm512_cvtepu8_epi16(index));
            let values = load512(&IQ2_VALUES);
            let from = _mm512_set1_epi64(i64::from_le_bytes([0, 2, 4, 6, 8, 10, 12, 14]));
            let mut w = [values; 4];
            for (i, w) in w.iter_mut().enumerate() {
                let code = _mm512_multishift_epi64_epi8(from, four_times(codes, i));
                *w = _mm512_permutexvar_epi8(code, values);
            }
            Unpacked512 {
                w,
                negative: packed_signs(words),
                scale: top_scales(words),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

/// Weights from 32 indices of a codebook of entries of 8 weights.
///
/// # Safety
///
/// AVX-512 F and BW. Every index is below `N`.
#[inline(always)]
unsafe fn entries8<const N: usize>(codebook: &'static [u64; N], index: __m512i) -> [__m512i; 4] {
    // SAFETY: the caller's: every index is inside the codebook.
    unsafe {
        let from = codebook.as_ptr().cast();
        [
            _mm512_i64gather_epi64::<8>(_mm512_cvtepu16_epi64(_mm512_castsi512_si128(index)), from),
            _mm512_i64gather_epi64::<8>(_mm512_cvtepu16_epi64(_mm512_extracti32x4_epi32::<1>(index)), from),
            _mm512_i64gather_epi64::<8>(_mm512_cvtepu16_epi64(_mm512_extracti32x4_epi32::<2>(index)), from),
            _mm512_i64gather_epi64::<8>(_mm512_cvtepu16_epi64(_mm512_extracti32x4_epi32::<3>(index)), from),
        ]
    }
}

impl Wide512 for Iq2Xs {
    const KIND: Kind512 = Kind512::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block; indices have 9 bits.
        unsafe {
            let words = load512(&self.qs);
            let w = entries8(&grid::IQ2_XS, _mm512_and_si512(words, _mm512_set1_epi16(511)));
            let signs = sign_bytes(_mm512_cvtepi16_epi8(_mm512_srli_epi16::<9>(words)));
            Unpacked512 {
                w,
                negative: masks(signs),
                scale: nibble_scales(&self.scales),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

/// 32 bytes of low index bits with the bits that `from` moves into the upper bytes of the words of `high`'s lanes.
///
/// # Safety
///
/// AVX-512 F, BW and VBMI.
#[inline(always)]
unsafe fn index(low: &[u8; 32], high: __m512i, from: [u8; 8], mask: i16) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let from = _mm512_set1_epi64(i64::from_le_bytes(from));
        let high = _mm512_and_si512(_mm512_multishift_epi64_epi8(from, high), _mm512_set1_epi16(mask));
        _mm512_or_si512(_mm512_cvtepu8_epi16(load(low)), high)
    }
}

impl Wide512 for Iq2S {
    const KIND: Kind512 = Kind512::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block; indices have 8 + 2 bits.
        unsafe {
            // A byte of `qh` has two bits for each of four indices.
            let high = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(self.qh)));
            let index = index(&self.qs, high, [0, 0, 0, 2, 0, 4, 0, 6], 0x300);
            Unpacked512 {
                w: entries8(&grid::IQ2_S, index),
                negative: masks(load(&self.signs)),
                scale: nibble_scales(&self.scales),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

impl Wide512 for Iq3Xxs {
    const KIND: Kind512 = Kind512::Signed;
    const UNIT: f32 = 0.25;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block.
        unsafe {
            let words = load(&self.signs);
            let values = load512(&IQ3_XXS_VALUES);
            let from = _mm512_set1_epi64(i64::from_le_bytes([0, 3, 6, 9, 32, 35, 38, 41]));
            let mut w = [values; 4];
            for half in 0..2 {
                let index = _mm512_cvtepu8_epi16(load(&self.qs[32 * half..]));
                let codes = look_up(&IQ3_XXS_CODES, index);
                for i in 0..2 {
                    let code = _mm512_multishift_epi64_epi8(from, two_times(codes, i));
                    w[2 * half + i] = _mm512_permutexvar_epi8(code, values);
                }
            }
            Unpacked512 {
                w,
                negative: packed_signs(words),
                scale: top_scales(words),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

impl Wide512 for Iq3S {
    const KIND: Kind512 = Kind512::Signed;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block; indices have 8 + 1 bits.
        unsafe {
            let mut w = [_mm512_setzero_si512(); 4];
            for (i, w) in w.iter_mut().enumerate() {
                let low = _mm512_cvtepu8_epi32(load128(&self.qs[16 * i..]));
                let high = u16::from_le_bytes([self.qh[2 * i], self.qh[2 * i + 1]]);
                let index = _mm512_mask_or_epi32(low, high, low, _mm512_set1_epi32(256));
                *w = _mm512_i32gather_epi32::<4>(index, grid::IQ3_S.as_ptr().cast());
            }
            let nibbles = _mm256_srlv_epi32(
                _mm256_set1_epi32(i32::from_le_bytes(self.scales)),
                _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
            );
            let scale = odd(twice_each(_mm256_and_si256(nibbles, _mm256_set1_epi32(15))));
            Unpacked512 { w, negative: masks(load(&self.signs)), scale, min: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

/// Entries plus one or, where `down` is set, less one, and all plus 9: from 0 to 18.
///
/// # Safety
///
/// AVX-512 F.
#[inline(always)]
unsafe fn shifted(entries: [__m512i; 4], down: u32) -> [__m512i; 4] {
    // SAFETY: the caller has AVX-512F.
    unsafe {
        let mut w = entries;
        for (w, down) in w.iter_mut().zip(down.to_le_bytes()) {
            let by = _mm512_mask_blend_epi64(down, _mm512_set1_epi8(10), _mm512_set1_epi8(8));
            *w = _mm512_add_epi8(*w, by);
        }
        w
    }
}

impl Wide512 for Iq1S {
    const KIND: Kind512 = Kind512::Offset(9);
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block; indices have 8 + 3 bits.
        unsafe {
            let qh = load128(&self.qh);
            // A word has three bits for each of four indices, then a scale and a shift for all of them.
            let high = _mm512_cvtepu16_epi64(qh);
            let index = index(&self.qs, high, [0, 0, 0, 3, 0, 6, 0, 9], 0x700);
            let down = _mm512_movepi16_mask(_mm512_multishift_epi64_epi8(
                _mm512_set1_epi64(i64::from_le_bytes([0, 8, 0, 8, 0, 8, 0, 8])),
                high,
            ));
            let scale = _mm_and_si128(_mm_srli_epi16::<12>(qh), _mm_set1_epi16(7));
            Unpacked512 {
                w: shifted(entries8(&grid::IQ1, index), down),
                negative: [0; 4],
                scale: odd(twice_each(_mm256_cvtepu16_epi32(scale))),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        self.d
    }
}

impl Wide512 for Iq1M {
    const KIND: Kind512 = Kind512::Offset(9);
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors512(&self) -> Unpacked512 {
        // SAFETY: the features are the caller's; every read lies inside the block; indices have 8 + 3 bits.
        unsafe {
            // Two bytes have a nibble for each of four indices: three bits, then the shift.
            let high = _mm512_cvtepu16_epi64(load128(&self.qh));
            let from = [0, 0, 0, 4, 0, 8, 0, 12];
            let index = index(&self.qs, high, from, 0x700);
            let moved = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(i64::from_le_bytes(from)), high);
            let down = _mm512_test_epi16_mask(moved, _mm512_set1_epi16(0x800));
            // A word of scales has three bits for each of four sub-blocks.
            let s = &self.scales;
            let words =
                i64::from_le_bytes([s[0][0], s[0][1], s[1][0], s[1][1], s[2][0], s[2][1], s[3][0], s[3][1]]);
            let scale = _mm256_multishift_epi64_epi8(
                _mm256_set1_epi64x(i64::from_le_bytes([0, 0, 3, 0, 6, 0, 9, 0])),
                _mm256_cvtepu16_epi64(_mm_cvtsi64_si128(words)),
            );
            Unpacked512 {
                w: shifted(entries8(&grid::IQ1, index), down),
                negative: [0; 4],
                scale: odd(_mm256_and_si256(scale, _mm256_set1_epi16(7))),
                min: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d512(&self) -> Half {
        Iq1M::d(self)
    }
}
