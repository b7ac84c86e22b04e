// The formats with a codebook: IQ1, IQ2 and IQ3.
//
// The host gives one array of words, `tables`: GRID codebook entries, then SIGNS sign entries. `codes` are those of
// crates/quant-kernels/src/grid/codes.rs, signs(i) is grid.rs's, and i itself in IQ2_S and IQ3_S:
//
//   format   GRID  entry                                       SIGNS  entry
//   IQ1_S    2048  nibble j (0..8): codes[i] >> 2j & 3             0
//   IQ1_M    2048  the same                                        0
//   IQ2_XXS   256  nibble j (0..8): codes[i] >> 2j & 3           128  bit 4j + 2: bit j of signs(i)
//   IQ2_XS    512  the same                                      128  the same
//   IQ2_S    1024  the same                                      256  bit 4j + 2: bit j of i
//   IQ3_XXS   256  grid.rs's entry: byte j (0..4) is weight j    128  for j in 0..4, bit 8j + 7: bit j of signs(i),
//                                                                     bit 8j + 6: bit 4 + j of signs(i)
//   IQ3_S     512  the same                                      256  the same of i
#pragma once
#include "wide.cuh"

// Tables at the start of shared memory, `COPIES` of each entry side by side: lanes that share no copy do not wait for
// each other. `copy` is the lane's copy in bytes.
template <u32 GRID, u32 COPIES>
struct Codebook {
    u32 copy;

    // The entry whose index is bits `low` and up of `word`; `MASK` is one less than a power of two.
    template <u32 MASK>
    __device__ __forceinline__ u32 entry(u32 word, u32 low) const {
        return shared_at<u32>(offset<MASK>(word, low));
    }
    template <u32 MASK>
    __device__ __forceinline__ u32 sign(u32 word, u32 low) const {
        return shared_at<u32>(offset<MASK>(word, low) + GRID * COPIES * 4);
    }
    // One shift and one three-way operation.
    template <u32 MASK>
    __device__ __forceinline__ u32 offset(u32 word, u32 low) const {
        constexpr u32 SHIFT = COPIES >= 32 ? 7 : COPIES >= 16 ? 6 : COPIES >= 8 ? 5 : COPIES >= 4 ? 4 : 3;
        static_assert(GRID == 0 || COPIES == 1u << (SHIFT - 2), "2, 4, 8, 16 or 32");
        const u32 moved = low >= SHIFT ? word >> (low - SHIFT) : word << (SHIFT - low);
        return (moved & (MASK << SHIFT)) | copy;
    }
};

// Eight weights of an entry of two-bit values: its nibbles choose among the eight bytes of (a, b).
DEV i32 eight_of(u32 a, u32 b, u32 selector, u32 x0, u32 x1, i32 sum) {
    sum = dp4a(choose(a, b, selector), x0, sum);
    return dp4a(choose(a, b, selector >> 16), x1, sum);
}

// Twice a nibble, plus one.
DEV i32 odd(u32 word, u32 low) { return i32(((word >> low) & 15) * 2 + 1); }

// IQ1: -8, 0, 8 shifted up by 1; with a nibble's third bit, down by 1.
constexpr u32 UP1 = four_bytes(-7, 1, 9, 1), DOWN1 = four_bytes(-9, -1, 7, -1);
constexpr u32 THIRD_BITS = 0x44444444u;

struct Iq1S : WideFormat {
    static constexpr u32 BYTES = 50, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 2048, COPIES = 4;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[4], high[2];
        words(block + 2 + 16 * half, index);
        words(block + 34 + 8 * half, high);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 head = high[i / 2] >> (16 * (i % 2));
            const u32 down = head & 0x8000u ? THIRD_BITS : 0;
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 at = byte_of(index[i], j) | ((head >> (3 * j)) & 7) << 8;
                const u32 selector = book.template entry<2047>(at, 0) | down;
                part = eight_of(UP1, DOWN1, selector, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], part);
            }
            sum += i32(((head >> 12) & 7) * 2 + 1) * part;
        }
        return sum;
    }
};

struct Iq1M : WideFormat {
    static constexpr u32 BYTES = 56, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 2048, COPIES = 4;

    // The half lies in the top nibbles of the four words of scales.
    DEV float d(u32 block) {
        u32 s[2];
        words_aligned<8>(block + 48, s);
        const u32 low = ((s[0] >> 12) & 0xfu) | ((s[0] >> 24) & 0xf0u);
        const u32 high = ((s[1] >> 12) & 0xfu) | ((s[1] >> 24) & 0xf0u);
        return half_value(u16(low | high << 8)) * 0.125f;
    }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[4], high[2];
        words_aligned<8>(block + 16 * half, index);
        words_aligned<8>(block + 32 + 8 * half, high);
        const u32 scales = shared_at<u32>(block + 48 + 4 * half);
        i32 sum = 0;
#pragma unroll
        for (int s = 0; s < 8; s++) {
            i32 part = 0;
#pragma unroll
            for (int c = 2 * s; c < 2 * s + 2; c++) {
                const u32 head = high[c / 8] >> (4 * (c % 8));
                const u32 at = byte_of(index[c / 4], c % 4) | (head & 7) << 8;
                const u32 selector = book.template entry<2047>(at, 0) | (head & 8 ? THIRD_BITS : 0);
                part = eight_of(UP1, DOWN1, selector, x[2 * c], x[2 * c + 1], part);
            }
            sum += i32(((scales >> (16 * (s / 4) + 3 * (s % 4))) & 7) * 2 + 1) * part;
        }
        return sum;
    }
};

// IQ2: magnitudes 8, 25, 43 and their negatives: an entry's nibble chooses the magnitude, its third bit the sign.
constexpr u32 MAGNITUDES2 = four_bytes(8, 25, 43, 0), NEGATIVES2 = four_bytes(-8, -25, -43, 0);

struct Iq2Xxs : WideFormat {
    static constexpr u32 BYTES = 66, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 256, SIGNS = 128, COPIES = 32;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 code[8];
        words(block + 2 + 32 * half, code);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 index = code[2 * i], signs = code[2 * i + 1];
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 selector = book.template entry<255>(index, 8 * j) | book.template sign<127>(signs, 7 * j);
                part = eight_of(MAGNITUDES2, NEGATIVES2, selector, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], part);
            }
            sum += odd(signs, 28) * part;
        }
        return sum;
    }
};

struct Iq2Xs : WideFormat {
    static constexpr u32 BYTES = 74, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 512, SIGNS = 128, COPIES = 16;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 code[8], scales[1];
        words(block + 2 + 32 * half, code);
        words(block + 66 + 4 * half, scales);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 selector =
                    book.template entry<511>(code[i], 16 * j) | book.template sign<127>(code[i], 16 * j + 9);
                part = eight_of(MAGNITUDES2, NEGATIVES2, selector, x[4 * i + 2 * j], x[4 * i + 2 * j + 1], part);
            }
            sum += odd(scales[0], 4 * i) * part;
        }
        return sum;
    }
};

struct Iq2S : WideFormat {
    static constexpr u32 BYTES = 82, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 1024, SIGNS = 256, COPIES = 8;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[4], signs[4], high[1], scales[1];
        words(block + 2 + 16 * half, index);
        words(block + 34 + 16 * half, signs);
        words(block + 66 + 4 * half, high);
        words(block + 74 + 4 * half, scales);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i32 part[2] = {0, 0};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 at = byte_of(index[i], j) | ((high[0] >> (8 * i + 2 * j)) & 3) << 8;
                const u32 selector = book.template entry<1023>(at, 0) | book.template sign<255>(signs[i], 8 * j);
                i32& sum8 = part[j / 2];
                sum8 = eight_of(MAGNITUDES2, NEGATIVES2, selector, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], sum8);
            }
            sum += odd(scales[0], 8 * i) * part[0] + odd(scales[0], 8 * i + 4) * part[1];
        }
        return sum;
    }
};

// IQ3: an entry is four magnitudes. A complement is the negative minus 1, so that activations under a minus are missing
// once: `short_of` gathers them, negated, since a mask's bytes are -1.
DEV void eight_signed(u32 m0, u32 m1, u32 signs, u32 x0, u32 x1, i32& sum, i32& short_of) {
    const u32 minus0 = byte_masks(signs), minus1 = byte_masks(signs + signs);
    sum = dp4a(m0 ^ minus0, x0, sum);
    short_of = dp4a(minus0, x0, short_of);
    sum = dp4a(m1 ^ minus1, x1, sum);
    short_of = dp4a(minus1, x1, short_of);
}

struct Iq3Xxs : WideFormat {
    static constexpr u32 BYTES = 98, TILES = 2, ABREAST = 2;
    static constexpr u32 GRID = 256, SIGNS = 128, COPIES = 32;

    DEV float d(u32 block) { return half_at(block) * 0.25f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[8], signs[4];
        words(block + 2 + 32 * half, index);
        words(block + 66 + 16 * half, signs);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i32 part = 0, short_of = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 word = index[2 * i + j / 2], at = 16 * (j % 2);
                const u32 m0 = book.template entry<255>(word, at), m1 = book.template entry<255>(word, at + 8);
                const u32 sign = book.template sign<127>(signs[i], 7 * j);
                eight_signed(m0, m1, sign, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], part, short_of);
            }
            sum += odd(signs[i], 28) * (part - short_of);
        }
        return sum;
    }
};

struct Iq3S : WideFormat {
    static constexpr u32 BYTES = 110, TILES = 2, ABREAST = 2;
    static constexpr u32 GRID = 512, SIGNS = 256, COPIES = 16;

    DEV float d(u32 block) { return half_at(block); }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[8], high[1], signs[4];
        words(block + 2 + 32 * half, index);
        words(block + 66 + 4 * half, high);
        words(block + 74 + 16 * half, signs);
        const u32 scales = shared_at<u16>(block + 106 + 2 * half);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i32 part = 0, short_of = 0;
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const int w = 2 * i + t;
                // Four ninth bits to four bytes, then behind their indices: two indices a word.
                const u32 ninth = (((high[0] >> (4 * w)) & 15) * 0x00204081u) & 0x01010101u;
                const u32 pair[2] = {choose(index[w], ninth, 0x5140), choose(index[w], ninth, 0x7362)};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const u32 m0 = book.template entry<511>(pair[j], 0), m1 = book.template entry<511>(pair[j], 16);
                    const u32 sign = book.template sign<255>(signs[i], 8 * (2 * t + j));
                    eight_signed(m0, m1, sign, x[4 * w + 2 * j], x[4 * w + 2 * j + 1], part, short_of);
                }
            }
            sum += odd(scales, 4 * i) * (part - short_of);
        }
        return sum;
    }
};
