//! The formats with large codebooks, IQ1_S to IQ3_S, in AVX2 form.
//!
//! Indices of more than 8 bits are put together for a whole block by vector instructions and taken apart in general
//! registers; a codebook entry is then one scalar load into a vector. Signs are spread from bits to masks.

use std::arch::x86_64::*;

use super::avx2::{load, load128, opaque_vector, spread_index};
use super::avx2_k::both_lanes;
use super::avx2_wide::{Kind, Scales, Weights, WideAvx2};
use crate::block::{Half, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use crate::grid;

/// Four entries of 8 weights.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn four(a: &u64, b: &u64, c: &u64, d: &u64) -> __m256i {
    // SAFETY: the caller has AVX2; references are readable.
    unsafe {
        let pair = |low: &u64, high: &u64| {
            let low = _mm_castsi128_pd(_mm_loadl_epi64((&raw const *low).cast()));
            _mm_castpd_si128(_mm_loadh_pd(low, (&raw const *high).cast()))
        };
        _mm256_set_m128i(pair(c, d), pair(a, b))
    }
}

/// Entries of 8 weights by four 16-bit indices.
///
/// # Safety
///
/// AVX2, and the indices are below `N`.
#[inline(always)]
unsafe fn four_of<const N: usize>(codebook: &'static [u64; N], indices: u64) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let e = |j: u32| codebook.get_unchecked((indices >> (16 * j) & 0xffff) as usize);
        four(e(0), e(1), e(2), e(3))
    }
}

/// Entries of 4 weights, with room behind the last one: a read of 16 bytes at any of them stays inside.
#[repr(C)]
struct Entries<const N: usize> {
    entries: [u32; N],
    room: [u32; 3],
}

impl<const N: usize> Entries<N> {
    const fn new(entries: [u32; N]) -> Self {
        Self { entries, room: [0; 3] }
    }

    /// Where entry `i` is.
    ///
    /// # Safety
    ///
    /// `i` is below `N`.
    #[inline(always)]
    unsafe fn at(&'static self, i: usize) -> *const u32 {
        // SAFETY: the caller's; the pointer is made from the whole struct, so that it may read the room too.
        unsafe { (&raw const *self).cast::<u32>().add(i) }
    }
}

static IQ3_XXS: Entries<256> = Entries::new(grid::IQ3_XXS);
static IQ3_S: Entries<512> = Entries::new(grid::IQ3_S);

/// Eight entries of 4 weights. Interleaves with a 16-byte operand in memory, of which four bytes count, because inserts
/// from memory take two operations each: 11 instructions a vector instead of 15 with broadcasts and blends.
///
/// # Safety
///
/// AVX2; 16 bytes are readable at each place.
#[inline(always)]
unsafe fn eight(e: [*const u32; 8]) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let two = |a: *const u32, b: *const u32| {
            _mm_unpacklo_epi32(_mm_loadu_si32(a.cast()), _mm_loadu_si128(b.cast()))
        };
        let low = _mm_unpacklo_epi64(two(e[0], e[1]), two(e[2], e[3]));
        let high = _mm_unpacklo_epi64(two(e[4], e[5]), two(e[6], e[7]));
        _mm256_set_m128i(high, low)
    }
}

/// 16 indices a vector, four to a word.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn words<const N: usize, const W: usize>(indices: [__m256i; N]) -> [u64; W] {
    const { assert!(4 * N == W) };
    // SAFETY: both are 32 N bytes of plain integers.
    unsafe { std::mem::transmute_copy(&indices) }
}

/// Eight bytes in a general register. Left alone the compiler reads vectors and extracts their elements, or reads bytes
/// and puts indices together by shifts, at two or three more instructions an element. No instruction but the load.
#[inline(always)]
fn word(bytes: [u8; 8]) -> u64 {
    let mut word = u64::from_le_bytes(bytes);
    // SAFETY: the text is a comment.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags));
    }
    word
}

/// 32 bytes, both halves in both lanes.
pub(super) struct Halves {
    low: __m256i,
    high: __m256i,
}

impl Halves {
    /// # Safety
    ///
    /// AVX2.
    #[inline(always)]
    unsafe fn of(bytes: __m256i) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            Self {
                low: opaque_vector(_mm256_permute2x128_si256::<0x00>(bytes, bytes)),
                high: opaque_vector(_mm256_permute2x128_si256::<0x11>(bytes, bytes)),
            }
        }
    }

    /// Bytes 4 i to 4 i + 4, eight times each.
    ///
    /// # Safety
    ///
    /// AVX2.
    #[inline(always)]
    unsafe fn spread(&self, i: usize) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_shuffle_epi8(if i < 4 { self.low } else { self.high }, spread_index(i as i64 % 4)) }
    }

    /// A mask for each bit of bytes 4 i to 4 i + 4.
    ///
    /// # Safety
    ///
    /// AVX2.
    #[inline(always)]
    unsafe fn masks(&self, i: usize) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            _mm256_cmpeq_epi8(_mm256_and_si256(self.spread(i), bit), bit)
        }
    }
}

/// A mask for each bit of bytes 4 i to 4 i + 4 of a block's sign bytes.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn masks(signs: &[u8; 32], i: usize) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let half = opaque_vector(_mm256_broadcastsi128_si256(load128(&signs[i / 4 * 16..])));
        Halves { low: half, high: half }.masks(i % 4)
    }
}

/// Sign bytes with their eighth bit, from 7-bit indices.
///
/// # Safety
///
/// AVX2. The top bits of the bytes are 0.
#[inline(always)]
unsafe fn even_signs(indices: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        // The parity of a byte is that of the xor of its nibbles.
        let odd = _mm256_setr_epi8(
            0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0, //
            0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
        );
        let folded = _mm256_xor_si256(indices, _mm256_srli_epi16::<4>(indices));
        let parity = _mm256_shuffle_epi8(odd, _mm256_and_si256(folded, _mm256_set1_epi8(15)));
        _mm256_or_si256(indices, parity)
    }
}

/// Sign bytes from words that hold four 7-bit indices each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn packed_signs(words: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let masked = |words, mask: i32| _mm256_and_si256(words, _mm256_set1_epi32(mask));
        let low = _mm256_or_si256(masked(words, 0x7f), masked(_mm256_slli_epi32::<1>(words), 0x7f00));
        let high = _mm256_or_si256(
            masked(_mm256_slli_epi32::<2>(words), 0x7f_0000),
            masked(_mm256_slli_epi32::<3>(words), 0x7f00_0000),
        );
        even_signs(_mm256_or_si256(low, high))
    }
}

/// Scales without sums.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn only(scale: __m256i) -> Scales {
    // SAFETY: the caller has AVX2.
    unsafe { Scales { scale, by_sums: _mm256_setzero_si256() } }
}

/// `2 * (word >> 28) + 1` of eight words that belong to 32 weights each.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn top_scales(words: __m256i) -> Scales {
    // SAFETY: the caller has AVX2.
    unsafe {
        let doubled = _mm256_and_si256(_mm256_srli_epi32::<27>(words), _mm256_set1_epi32(30));
        only(both_lanes(_mm256_or_si256(doubled, _mm256_set1_epi32(1))))
    }
}

/// `2 * nibble + 1` of 8 bytes: low nibbles belong to even sub-blocks, high ones to odd sub-blocks.
///
/// # Safety
///
/// AVX2.
#[inline(always)]
unsafe fn nibble_scales(bytes: &[u8; 8]) -> Scales {
    // SAFETY: the caller has AVX2.
    unsafe {
        let v = _mm_cvtsi64_si128(i64::from_le_bytes(*bytes));
        let nibbles = _mm_and_si128(_mm_unpacklo_epi64(v, _mm_srli_epi16::<4>(v)), _mm_set1_epi8(15));
        only(_mm256_cvtepu8_epi16(_mm_or_si128(_mm_add_epi8(nibbles, nibbles), _mm_set1_epi8(1))))
    }
}

/// A block's sign words and their sign bytes.
pub(super) struct SignWords {
    words: __m256i,
    signs: Halves,
}

impl SignWords {
    /// # Safety
    ///
    /// AVX2.
    #[inline(always)]
    unsafe fn of(words: __m256i) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { Self { words, signs: Halves::of(packed_signs(words)) } }
    }
}

/// Shifts of eight weights each, and indices of 16 bits, four to a word.
pub(super) struct Indexed {
    shifts: Halves,
    index: [u64; 8],
}

impl WideAvx2 for Iq2Xxs {
    const KIND: Kind = Kind::Masked;
    const UNIT: f32 = 0.125;

    type Shared = SignWords;

    #[inline(always)]
    unsafe fn shared(&self) -> SignWords {
        // SAFETY: AVX2 is the caller's; the reads lie inside the block.
        unsafe {
            // Pairs of words: indices, then signs and scale.
            let low = _mm256_castsi256_ps(load(&self.qs));
            let high = _mm256_castsi256_ps(load(&self.qs[4..]));
            let words = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high));
            SignWords::of(_mm256_permute4x64_epi64::<0b11_01_10_00>(words))
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, shared: &SignWords) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe { top_scales(shared.words) }
    }

    #[inline(always)]
    unsafe fn weights(&self, shared: &SignWords, i: usize) -> Weights {
        let word = word(self.qs[i]);
        let e = |j: u32| &grid::IQ2_XXS[(word >> (8 * j) & 0xff) as usize];
        // SAFETY: AVX2 is the caller's.
        unsafe { Weights { w: four(e(0), e(1), e(2), e(3)), sign: shared.signs.masks(i) } }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq2Xs {
    const KIND: Kind = Kind::Masked;
    const UNIT: f32 = 0.125;

    type Shared = Halves;

    #[inline(always)]
    unsafe fn shared(&self) -> Halves {
        // SAFETY: AVX2 is the caller's; the reads lie inside the block.
        unsafe {
            let (low, high) = (load(&self.qs), load(&self.qs[16..]));
            let signs = _mm256_packus_epi16(_mm256_srli_epi16::<9>(low), _mm256_srli_epi16::<9>(high));
            Halves::of(even_signs(_mm256_permute4x64_epi64::<0b11_01_10_00>(signs)))
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: &Halves) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe { nibble_scales(&self.scales) }
    }

    #[inline(always)]
    unsafe fn weights(&self, signs: &Halves, i: usize) -> Weights {
        let word = word(self.qs.as_flattened().as_chunks().0[i]);
        let e = |j: u32| &grid::IQ2_XS[(word >> (16 * j) & 511) as usize];
        // SAFETY: AVX2 is the caller's.
        unsafe { Weights { w: four(e(0), e(1), e(2), e(3)), sign: signs.masks(i) } }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq2S {
    const KIND: Kind = Kind::Masked;
    const UNIT: f32 = 0.125;

    /// Indices.
    type Shared = [u64; 8];

    #[inline(always)]
    unsafe fn shared(&self) -> [u64; 8] {
        // SAFETY: AVX2 is the caller's; the reads lie inside the block.
        unsafe {
            // Byte g / 4 of `qh` goes to the word of index g; its pair g % 4 is multiplied up to bits 8 and 9.
            let qh = _mm256_set1_epi64x(i64::from_le_bytes(self.qh));
            let up = _mm256_set1_epi64x(0x0004_0010_0040_0100);
            let top = _mm256_set1_epi16(0x300);
            let mut index = [_mm256_setzero_si256(); 2];
            for (i, index) in index.iter_mut().enumerate() {
                let byte =
                    |b: i64| ((4 * i as i64 + b) * 0x0001_0001_0001_0001) | 0x8000_8000_8000_8000_u64 as i64;
                let select = _mm256_setr_epi64x(byte(0), byte(1), byte(2), byte(3));
                let high = _mm256_mullo_epi16(_mm256_shuffle_epi8(qh, select), up);
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_and_si256(high, top));
            }
            words(index)
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: &[u64; 8]) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe { nibble_scales(&self.scales) }
    }

    #[inline(always)]
    unsafe fn weights(&self, index: &[u64; 8], i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's; indices have 8 + 2 bits.
        unsafe { Weights { w: four_of(&grid::IQ2_S, index[i]), sign: masks(&self.signs, i) } }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq3Xxs {
    const KIND: Kind = Kind::Masked;
    const UNIT: f32 = 0.25;

    type Shared = SignWords;

    #[inline(always)]
    unsafe fn shared(&self) -> SignWords {
        // SAFETY: AVX2 is the caller's; the read lies inside the block.
        unsafe { SignWords::of(load(&self.signs)) }
    }

    #[inline(always)]
    unsafe fn scales(&self, shared: &SignWords) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe { top_scales(shared.words) }
    }

    #[inline(always)]
    unsafe fn weights(&self, shared: &SignWords, i: usize) -> Weights {
        let word = word(self.qs.as_chunks().0[i]);
        // SAFETY: AVX2 is the caller's; a byte is below 256.
        unsafe {
            let e = |j: u32| IQ3_XXS.at((word >> (8 * j) & 0xff) as usize);
            let w = eight([e(0), e(1), e(2), e(3), e(4), e(5), e(6), e(7)]);
            Weights { w, sign: shared.signs.masks(i) }
        }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq3S {
    const KIND: Kind = Kind::Masked;
    const UNIT: f32 = 1.0;

    /// Indices.
    type Shared = [u64; 16];

    #[inline(always)]
    unsafe fn shared(&self) -> [u64; 16] {
        // SAFETY: AVX2 is the caller's; the reads lie inside the block.
        unsafe {
            let bit = _mm256_setr_epi16(
                1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768,
            );
            let mut index = [_mm256_setzero_si256(); 4];
            for (i, index) in index.iter_mut().enumerate() {
                let high = i16::from_le_bytes([self.qh[2 * i], self.qh[2 * i + 1]]);
                let set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(high), bit), bit);
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi16(256)));
            }
            words(index)
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: &[u64; 16]) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            let nibbles = _mm256_srlv_epi32(
                _mm256_set1_epi32(i32::from_le_bytes(self.scales)),
                _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
            );
            let doubled = _mm256_slli_epi32::<1>(_mm256_and_si256(nibbles, _mm256_set1_epi32(15)));
            only(both_lanes(_mm256_or_si256(doubled, _mm256_set1_epi32(1))))
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, index: &[u64; 16], i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's; indices have 8 + 1 bits.
        unsafe {
            let (low, high) = (index[2 * i], index[2 * i + 1]);
            let e = |word: u64, j: u32| IQ3_S.at((word >> (16 * j) & 0xffff) as usize);
            let w = eight([
                e(low, 0),
                e(low, 1),
                e(low, 2),
                e(low, 3),
                e(high, 0),
                e(high, 1),
                e(high, 2),
                e(high, 3),
            ]);
            Weights { w, sign: masks(&self.signs, i) }
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
unsafe fn shifted(entries: __m256i, shift: __m256i) -> Weights {
    // SAFETY: the caller has AVX2.
    unsafe {
        let sign = _mm256_add_epi8(entries, shift);
        Weights { w: _mm256_abs_epi8(sign), sign }
    }
}

impl WideAvx2 for Iq1S {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    /// Indices.
    type Shared = [u64; 8];

    #[inline(always)]
    unsafe fn shared(&self) -> [u64; 8] {
        // SAFETY: AVX2 is the caller's; the reads lie inside the block.
        unsafe {
            // The word of 32 weights goes to its four indices; their three bits each move to bits 8 to 10.
            let qh = _mm256_broadcastsi128_si256(load128(&self.qh));
            let mut index = [_mm256_setzero_si256(); 2];
            for (i, index) in index.iter_mut().enumerate() {
                let word = |b: i64| 0x0100_0100_0100_0100 + (8 * i as i64 + 2 * b) * 0x0101_0101_0101_0101;
                let select = _mm256_setr_epi64x(word(0), word(1), word(2), word(3));
                let spread = _mm256_shuffle_epi8(qh, select);
                let up = _mm256_mullo_epi16(spread, _mm256_set1_epi64x(0x0000_0004_0020_0100));
                let high = _mm256_blend_epi16::<0x88>(up, _mm256_srli_epi16::<1>(spread));
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi16(0x700)));
            }
            words(index)
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: &[u64; 8]) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            // Three bits from 12 on, doubled, plus one.
            let doubled = _mm_and_si128(_mm_srli_epi16::<11>(load128(&self.qh)), _mm_set1_epi16(14));
            only(_mm256_broadcastsi128_si256(_mm_or_si128(doubled, _mm_set1_epi16(1))))
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, index: &[u64; 8], i: usize) -> Weights {
        let down = (i16::from_le_bytes(self.qh[i]) >> 15 | 1) as i8;
        // SAFETY: AVX2 is the caller's; indices have 8 + 3 bits.
        unsafe { shifted(four_of(&grid::IQ1, index[i]), _mm256_set1_epi8(down)) }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        self.d
    }
}

impl WideAvx2 for Iq1M {
    const KIND: Kind = Kind::Signed;
    const UNIT: f32 = 0.125;

    type Shared = Indexed;

    #[inline(always)]
    unsafe fn shared(&self) -> Indexed {
        // SAFETY: AVX2 is the caller's; the reads lie inside the block.
        unsafe {
            // Index g has nibble g: they become bytes, low nibble first.
            let nibbles = load128(&self.qh);
            let low = _mm_and_si128(nibbles, _mm_set1_epi8(15));
            let high = _mm_and_si128(_mm_srli_epi16::<4>(nibbles), _mm_set1_epi8(15));
            let halves = [_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)];
            let mut index = [_mm256_setzero_si256(); 2];
            for (i, index) in index.iter_mut().enumerate() {
                let three = _mm256_and_si256(_mm256_cvtepu8_epi16(halves[i]), _mm256_set1_epi16(7));
                let low = _mm256_cvtepu8_epi16(load128(&self.qs[16 * i..]));
                *index = _mm256_or_si256(low, _mm256_slli_epi16::<8>(three));
            }
            let eight = _mm256_set1_epi8(8);
            let bytes = _mm256_set_m128i(halves[1], halves[0]);
            let down = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, eight), eight);
            Indexed { shifts: Halves::of(_mm256_or_si256(down, _mm256_set1_epi8(1))), index: words(index) }
        }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: &Indexed) -> Scales {
        // SAFETY: AVX2 is the caller's.
        unsafe {
            // Sub-block s has bits 3 (s % 4) and on of word s / 4: multiplied up to bit 12, then down.
            let words = i64::from_le_bytes(std::array::from_fn(|i| self.scales[i / 2][i % 2]));
            let twice = |word: i64| (word * 0x0101_0101_0101_0101 * 2) + 0x0100_0100_0100_0100;
            let pairs = |a: i64, b: i64| twice(a) & 0xffff_ffff | twice(b) & !0xffff_ffff;
            let select = _mm256_setr_epi64x(pairs(0, 1), pairs(2, 3), pairs(0, 1), pairs(2, 3));
            let up =
                _mm256_setr_epi16(4096, 64, 4096, 64, 4096, 64, 4096, 64, 512, 8, 512, 8, 512, 8, 512, 8);
            let spread = _mm256_shuffle_epi8(_mm256_set1_epi64x(words), select);
            let three = _mm256_mullo_epi16(spread, up);
            let doubled = _mm256_and_si256(_mm256_srli_epi16::<11>(three), _mm256_set1_epi16(14));
            only(_mm256_or_si256(doubled, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn weights(&self, shared: &Indexed, i: usize) -> Weights {
        // SAFETY: AVX2 is the caller's; indices have 8 + 3 bits.
        unsafe { shifted(four_of(&grid::IQ1, shared.index[i]), shared.shifts.spread(i)) }
    }

    #[inline(always)]
    fn d(&self) -> Half {
        Iq1M::d(self)
    }
}
