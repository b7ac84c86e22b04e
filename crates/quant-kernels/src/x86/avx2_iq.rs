//! The formats with large codebooks, IQ1_S to IQ3_S, in AVX2 form.
//!
//! Indices are put together for a whole block by vector instructions, written to the stack, and read back one by one:
//! a codebook entry is then one scalar load into a vector. Signs are spread from bits.

use std::arch::x86_64::*;

use super::avx2::{load, load128, spread_index};
use super::avx2_k::both_lanes;
use super::avx2_wide::{Kind, Unpacked, WideAvx2};
use crate::block::{Half, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use crate::grid;

/// Four entries of 8 weights.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn four(a: u64, b: u64, c: u64, d: u64) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_setr_epi64x(a as i64, b as i64, c as i64, d as i64) }
}

/// Eight entries of 4 weights.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn eight(e: [u32; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = e.map(|e| e as i32);
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_setr_epi32(a, b, c, d, e, f, g, h) }
}

/// For each of 32 sign bytes' bits a byte that is -1 (bit set) or 1: vector i is for weights 32 i and on.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn spread_signs(bytes: &[u8; 32]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let one = _mm256_set1_epi8(1);
        let words = bytes.as_chunks::<4>().0;
        let mut signs = [one; 8];
        for (sign, word) in signs.iter_mut().zip(words) {
            let word = _mm256_set1_epi32(i32::from_le_bytes(*word));
            let spread = _mm256_shuffle_epi8(word, spread_index());
            let negative = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
            *sign = _mm256_or_si256(negative, one);
        }
        signs
    }
}

/// Sign bytes with their eighth bit, from 7-bit indices.
///
/// # Safety
///
/// AVX2. The top bits of the bytes are 0.
#[inline(always)]
unsafe fn even_signs(indices: __m256i) -> [u8; 32] {
    // SAFETY: the caller has AVX2; the array has room for 32 bytes.
    unsafe {
        // The parity of a byte is that of the xor of its nibbles.
        let odd = _mm256_setr_epi8(
            0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0, //
            0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
        );
        let folded = _mm256_xor_si256(indices, _mm256_srli_epi16::<4>(indices));
        let parity = _mm256_shuffle_epi8(odd, _mm256_and_si256(folded, _mm256_set1_epi8(15)));
        stored(_mm256_or_si256(indices, parity))
    }
}

/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn stored<T: Copy, const N: usize>(v: __m256i) -> [T; N] {
    const { assert!(size_of::<T>() * N == 32) };
    // SAFETY: the caller has AVX2; both are 32 bytes, and T is an unsigned integer.
    unsafe { std::mem::transmute_copy(&v) }
}

/// Sign bytes from words that hold four 7-bit indices each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn packed_signs(words: __m256i) -> [u8; 32] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = _mm256_or_si256(masked(words, 0x7f), masked(_mm256_slli_epi32::<1>(words), 0x7f00));
        let high = _mm256_or_si256(
            masked(_mm256_slli_epi32::<2>(words), 0x7f_0000),
            masked(_mm256_slli_epi32::<3>(words), 0x7f00_0000),
        );
        even_signs(_mm256_or_si256(low, high))
    }
}

/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn masked(words: __m256i, mask: i32) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_and_si256(words, _mm256_set1_epi32(mask)) }
}

/// `2 * (word >> 28) + 1` of eight words that belong to 32 weights each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn top_scales(words: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let doubled = _mm256_and_si256(_mm256_srli_epi32::<27>(words), _mm256_set1_epi32(30));
        both_lanes(_mm256_or_si256(doubled, _mm256_set1_epi32(1)))
    }
}

/// `2 * nibble + 1` of 8 bytes: low nibbles belong to even sub-blocks, high ones to odd sub-blocks.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn nibble_scales(bytes: &[u8; 8]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let v = _mm_cvtsi64_si128(i64::from_le_bytes(*bytes));
        let both = _mm_unpacklo_epi64(v, _mm_srli_epi16::<4>(v));
        let odd =
            _mm_add_epi8(_mm_and_si128(both, _mm_set1_epi8(15)), _mm_and_si128(both, _mm_set1_epi8(15)));
        _mm256_cvtepu8_epi16(_mm_or_si128(odd, _mm_set1_epi8(1)))
    }
}

impl WideAvx2 for Iq2Xxs {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block.
        unsafe {
            // Pairs of words: indices, then signs and scale.
            let low = _mm256_castsi256_ps(load(&self.qs));
            let high = _mm256_castsi256_ps(load(&self.qs[4..]));
            let words = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let mut w = [_mm256_setzero_si256(); 8];
            for (w, qs) in w.iter_mut().zip(&self.qs) {
                let e = |j: usize| grid::IQ2_XXS[usize::from(qs[j])];
                *w = four(e(0), e(1), e(2), e(3));
            }
            let sign = spread_signs(&packed_signs(words));
            Unpacked { w, sign, scale: top_scales(words), by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

/// Weights from 32 indices of a codebook of `N` entries of 8 weights; `N` is a power of two.
///
/// # Safety
///
/// AVX2. Every index is below `N`.
#[inline(always)]
unsafe fn entries8<const N: usize>(codebook: &'static [u64; N], index: [__m256i; 2]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2 and keeps the indices below N.
    unsafe {
        let index: [[u16; 16]; 2] = [stored(index[0]), stored(index[1])];
        let mut w = [_mm256_setzero_si256(); 8];
        for (w, index) in w.iter_mut().zip(index.as_flattened().as_chunks::<4>().0) {
            let e = |j: usize| *codebook.get_unchecked(usize::from(index[j]));
            *w = four(e(0), e(1), e(2), e(3));
        }
        w
    }
}

impl WideAvx2 for Iq2Xs {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block; indices have 9 bits.
        unsafe {
            let (low, high) = (load(&self.qs), load(&self.qs[16..]));
            let nine = _mm256_set1_epi16(511);
            let w = entries8(&grid::IQ2_XS, [_mm256_and_si256(low, nine), _mm256_and_si256(high, nine)]);
            let signs = _mm256_packus_epi16(_mm256_srli_epi16::<9>(low), _mm256_srli_epi16::<9>(high));
            let sign = spread_signs(&even_signs(_mm256_permute4x64_epi64::<0b11_01_10_00>(signs)));
            Unpacked { w, sign, scale: nibble_scales(&self.scales), by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq2S {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block; indices have 8 + 2 bits.
        unsafe {
            // Byte g / 4 of `qh` goes to the word of index g; its pair g % 4 is multiplied up to bits 8 and 9.
            let qh = _mm256_set1_epi64x(i64::from_le_bytes(self.qh));
            let up = _mm256_set1_epi64x(0x0004_0010_0040_0100);
            let top = _mm256_set1_epi16(0x300);
            let mut index = [_mm256_setzero_si256(); 2];
            for (i, index) in index.iter_mut().enumerate() {
                let byte = |b: i64| (4 * i as i64 + b) * 0x0001_0001_0001_0001 | i64::MIN | 0x8000_8000_8000;
                let select = _mm256_setr_epi64x(byte(0), byte(1), byte(2), byte(3));
                let high = _mm256_mullo_epi16(_mm256_shuffle_epi8(qh, select), up);
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_and_si256(high, top));
            }
            Unpacked {
                w: entries8(&grid::IQ2_S, index),
                sign: spread_signs(&self.signs),
                scale: nibble_scales(&self.scales),
                by_sums: _mm256_setzero_si256(),
            }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq3Xxs {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.25;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block.
        unsafe {
            let words = load(&self.signs);
            let mut w = [_mm256_setzero_si256(); 8];
            for (w, qs) in w.iter_mut().zip(self.qs.as_chunks::<8>().0) {
                *w = eight(qs.map(|q| grid::IQ3_XXS[usize::from(q)]));
            }
            let sign = spread_signs(&packed_signs(words));
            Unpacked { w, sign, scale: top_scales(words), by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq3S {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 1.0;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block; indices have 8 + 1 bits.
        unsafe {
            let bit = _mm256_setr_epi16(
                1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768,
            );
            let mut index = [[0u16; 16]; 4];
            for (i, index) in index.iter_mut().enumerate() {
                let high = i16::from_le_bytes([self.qh[2 * i], self.qh[2 * i + 1]]);
                let set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(high), bit), bit);
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = stored(_mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi16(256))));
            }
            let mut w = [_mm256_setzero_si256(); 8];
            for (w, index) in w.iter_mut().zip(index.as_flattened().as_chunks::<8>().0) {
                *w = eight(index.map(|i| *grid::IQ3_S.get_unchecked(usize::from(i))));
            }
            let nibbles = _mm256_srlv_epi32(
                _mm256_set1_epi32(i32::from_le_bytes(self.scales)),
                _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
            );
            let doubled = _mm256_slli_epi32::<1>(_mm256_and_si256(nibbles, _mm256_set1_epi32(15)));
            let scale = both_lanes(_mm256_or_si256(doubled, _mm256_set1_epi32(1)));
            Unpacked { w, sign: spread_signs(&self.signs), scale, by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

/// Adds 1 or -1 to codebook entries and takes magnitudes and signs apart.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn shifted(entries: [__m256i; 8], shift: [__m256i; 8]) -> ([__m256i; 8], [__m256i; 8]) {
    // SAFETY: the caller has AVX2.
    unsafe {
        let (mut w, mut sign) = (entries, shift);
        for (w, sign) in w.iter_mut().zip(&mut sign) {
            *sign = _mm256_add_epi8(*w, *sign);
            *w = _mm256_abs_epi8(*sign);
        }
        (w, sign)
    }
}

impl WideAvx2 for Iq1S {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block; indices have 8 + 3 bits.
        unsafe {
            let qh = load128(&self.qh);
            // The word of 32 weights goes to its four indices; their three bits each move to bits 8 to 10.
            let words = _mm256_broadcastsi128_si256(qh);
            let mut index = [_mm256_setzero_si256(); 2];
            for (i, index) in index.iter_mut().enumerate() {
                let word = |b: i64| 0x0100_0100_0100_0100 + (8 * i as i64 + 2 * b) * 0x0101_0101_0101_0101;
                let select = _mm256_setr_epi64x(word(0), word(1), word(2), word(3));
                let spread = _mm256_shuffle_epi8(words, select);
                let up = _mm256_mullo_epi16(spread, _mm256_set1_epi64x(0x0000_0004_0020_0100));
                let high = _mm256_blend_epi16::<0x88>(up, _mm256_srli_epi16::<1>(spread));
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x700)));
            }
            let mut shift = [_mm256_setzero_si256(); 8];
            for (shift, qh) in shift.iter_mut().zip(self.qh) {
                *shift = _mm256_set1_epi8((i16::from_le_bytes(qh) >> 15 | 1) as i8);
            }
            let (w, sign) = shifted(entries8(&grid::IQ1, index), shift);
            // Three bits from 12 on, doubled, plus one.
            let doubled = _mm_and_si128(_mm_srli_epi16::<11>(qh), _mm_set1_epi16(14));
            let scale = _mm256_broadcastsi128_si256(_mm_or_si128(doubled, _mm_set1_epi16(1)));
            Unpacked { w, sign, scale, by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq1M {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    #[inline(always)]
    unsafe fn vectors(&self) -> Unpacked {
        // SAFETY: AVX2 is the caller's; every read lies inside the block; indices have 8 + 3 bits.
        unsafe {
            // Index g has nibble g: bytes widened to words, odd nibbles moved down into the upper byte of each.
            let nibbles = load128(&self.qh);
            let low = _mm_and_si128(nibbles, _mm_set1_epi8(15));
            let high = _mm_and_si128(_mm_srli_epi16::<4>(nibbles), _mm_set1_epi8(15));
            let bytes = _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
            let halves = [_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes)];
            let mut index = [_mm256_setzero_si256(); 2];
            for (i, index) in index.iter_mut().enumerate() {
                let three = _mm256_and_si256(_mm256_cvtepu8_epi16(halves[i]), _mm256_set1_epi16(7));
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_slli_epi16::<8>(three));
            }
            let eight = _mm256_set1_epi8(8);
            let down = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, eight), eight);
            let words: [u32; 8] = stored(_mm256_or_si256(down, _mm256_set1_epi8(1)));
            let mut shift = [_mm256_setzero_si256(); 8];
            for (shift, word) in shift.iter_mut().zip(words) {
                *shift = _mm256_shuffle_epi8(_mm256_set1_epi32(word as i32), spread_index());
            }
            let (w, sign) = shifted(entries8(&grid::IQ1, index), shift);
            // Sub-block s has bits 3 (s % 4) and on of word s / 4: multiplied up to bit 12, then down.
            let words =
                _mm256_set1_epi64x(i64::from_le_bytes(std::array::from_fn(|i| self.scales[i / 2][i % 2])));
            let twice = |word: i64| (word * 0x0101_0101_0101_0101 * 2) + 0x0100_0100_0100_0100;
            let pairs = |a: i64, b: i64| twice(a) & 0xffff_ffff | twice(b) & !0xffff_ffff;
            let select = _mm256_setr_epi64x(pairs(0, 1), pairs(2, 3), pairs(0, 1), pairs(2, 3));
            let up =
                _mm256_setr_epi16(4096, 64, 4096, 64, 4096, 64, 4096, 64, 512, 8, 512, 8, 512, 8, 512, 8);
            let three = _mm256_mullo_epi16(_mm256_shuffle_epi8(words, select), up);
            let doubled = _mm256_and_si256(_mm256_srli_epi16::<11>(three), _mm256_set1_epi16(14));
            let scale = _mm256_or_si256(doubled, _mm256_set1_epi16(1));
            Unpacked { w, sign, scale, by_sums: _mm256_setzero_si256() }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        Iq1M::d(self)
    }
}
