// Formats of 256-weight blocks without a codebook: the integer sum of half a block, 128 weights, by one lane.
//
// A format has
//   BYTES, LEN       of a block, and its weights
//   GRID, SIGNS      entries of its tables (codebook.cuh), COPIES of them in shared memory where there is little
//   Book             where a lane finds them
//   MINIMA           whether a block's value is (d * dx) * S - (dmin * dx) * M
//   RUN              over how many activations it wants sums: 16, 32 or 0
//   TILES, ABREAST   tiles of a stage, and how many of them are multiplied at once
//   TOGETHER         tiles whose sums are made at once (row_sums.cuh); 0: sums of each stage
//   arrange(x)       puts the activations in the order in which weights come out
//   d, dmin, mins, dot
// A block begins at a multiple of the largest power of two that divides BYTES, up to 8 (GGUF's least alignment).
#pragma once
#include "packed.cuh"

enum Family { WIDE, NARROW, FLOAT };

// What a format without a codebook has for one.
struct NoBook {
    static constexpr u32 TABLES = 0;
    DEV void fill(const u32*) {}
    __device__ __forceinline__ NoBook(u32, const u32 (&)[32]) {}
};

struct WideFormat {
    typedef NoBook Book;
    static constexpr Family FAMILY = WIDE;
    static constexpr u32 LEN = 256;
    static constexpr u32 GRID = 0, SIGNS = 0, COPIES = 1;
    static constexpr bool MINIMA = false;
    static constexpr u32 RUN = 0;
    static constexpr u32 TOGETHER = 0;

    DEV void arrange(u32 (&)[32]) {}
    DEV float dmin(u32) { return 0.0f; }
    DEV i32 mins(u32, u32, const u32 (&)[4]) { return 0; }
};

struct Q2K : WideFormat {
    static constexpr u32 BYTES = 84, TILES = 4, ABREAST = 2;
    static constexpr bool MINIMA = true;
    static constexpr u32 RUN = 16;

    DEV float d(u32 block) { return half_at(block + 80); }
    DEV float dmin(u32 block) { return half_at(block + 82); }

    DEV i32 mins(u32 block, u32 half, const u32 (&sums)[4]) {
        u32 scale[2];
        words_aligned<4>(block + 8 * half, scale);
        const i32 first = dp2a_unsigned(sums[0], sums[1], (scale[0] >> 4) & 0x0f0f0f0fu, 0);
        return dp2a_unsigned(sums[2], sums[3], (scale[1] >> 4) & 0x0f0f0f0fu, first);
    }

    // Two bits are multiplied where they stand, and the sum is moved down.
    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book&) {
        u32 q[8], scale[2];
        words_aligned<4>(block + 16 + 32 * half, q);
        words_aligned<4>(block + 8 * half, scale);
        i32 sum = 0;
#pragma unroll
        for (int r = 0; r < 8; r++) {
            const int j = r / 2, g = r % 2;
            i32 part = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                part = dp4a_unsigned(q[4 * g + i] & (0x03030303u << (2 * j)), x[4 * r + i], part);
            }
            sum += i32((scale[r / 4] >> (8 * (r % 4))) & 15) * (part >> (2 * j));
        }
        return sum;
    }
};

struct Q3K : WideFormat {
    static constexpr u32 BYTES = 110, TILES = 2, ABREAST = 2;
    static constexpr u32 RUN = 16;

    DEV float d(u32 block) { return half_at(block + 108); }

    // A weight is two bits, plus 4 for its bit of the mask, minus 4. Bits are multiplied where they stand; the 4 that
    // every weight loses comes from the sums of activations. Scales are bytes four times too large, so that the
    // highest of their six bits is a sign.
    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&sums)[4], const Book&) {
        u32 q[8], mask[8], packed[3], scale[2];
        words(block + 32 + 32 * half, q);
        words(block, mask);
        words(block + 96, packed);
        const u32 high = packed[2] >> (4 * half);
        scale[0] = ((packed[0] >> (4 * half)) & 0x0f0f0f0fu) | ((high << 4) & 0x30303030u);
        scale[1] = ((packed[1] >> (4 * half)) & 0x0f0f0f0fu) | ((high << 2) & 0x30303030u);
        scale[0] = (scale[0] ^ 0x20202020u) << 2;
        scale[1] = (scale[1] ^ 0x20202020u) << 2;
#pragma unroll
        for (int i = 0; i < 8; i++) mask[i] >>= 4 * half;
        i32 sum = 0;
#pragma unroll
        for (int r = 0; r < 8; r++) {
            const int j = r / 2, g = r % 2;
            i32 two = 0, top = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                two = dp4a_unsigned(q[4 * g + i] & (0x03030303u << (2 * j)), x[4 * r + i], two);
                top = dp4a_unsigned(mask[4 * g + i] & (0x01010101u << j), x[4 * r + i], top);
            }
            sum += signed_byte_of(scale[r / 4], r % 4) * ((two >> (2 * j)) + (top >> j) * 4);
        }
        i32 all = dp2a_signed(sums[0], sums[1], scale[0], 0);
        all = dp2a_signed(sums[2], sums[3], scale[1], all);
        return (sum - 4 * all) >> 2;
    }
};

// Q4_K's and Q5_K's six-bit scales and minima of half a block: four bytes each, one for 32 weights.
DEV u32 scales_of_four(u32 block, u32 half) {
    u32 s[3];
    words_aligned<4>(block + 4, s);
    return half == 0 ? s[0] & 0x3f3f3f3fu : (s[2] & 0x0f0f0f0fu) | ((s[0] >> 2) & 0x30303030u);
}
DEV i32 mins_of_four(u32 block, u32 half, const u32 (&sums)[4]) {
    u32 s[3];
    words_aligned<4>(block + 4, s);
    const u32 min = half == 0 ? s[1] & 0x3f3f3f3fu : ((s[2] >> 4) & 0x0f0f0f0fu) | ((s[1] >> 2) & 0x30303030u);
    return dp2a_unsigned(sums[0], sums[1], min, 0);
}

struct Q4K : WideFormat {
    static constexpr u32 BYTES = 144, TILES = 2, ABREAST = 2;
    static constexpr bool MINIMA = true;
    static constexpr u32 RUN = 32;

    DEV float d(u32 block) { return half_at(block); }
    DEV float dmin(u32 block) { return half_at(block + 2); }
    DEV i32 mins(u32 block, u32 half, const u32 (&sums)[4]) { return mins_of_four(block, half, sums); }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book&) {
        u32 q[16];
        words_aligned<8>(block + 16 + 64 * half, q);
        const u32 scale = scales_of_four(block, half);
        i32 sum = 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            i32 low = 0, high = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                low = dp4a(q[8 * j + i] & 0x0f0f0f0fu, x[16 * j + i], low);
                high = dp4a_unsigned(q[8 * j + i] & 0xf0f0f0f0u, x[16 * j + 8 + i], high);
            }
            sum += i32(byte_of(scale, 2 * j)) * low + i32(byte_of(scale, 2 * j + 1)) * (high >> 4);
        }
        return sum;
    }
};

struct Q5K : WideFormat {
    static constexpr u32 BYTES = 176, TILES = 2, ABREAST = 2;
    static constexpr bool MINIMA = true;
    static constexpr u32 RUN = 32;

    DEV float d(u32 block) { return half_at(block); }
    DEV float dmin(u32 block) { return half_at(block + 2); }
    DEV i32 mins(u32 block, u32 half, const u32 (&sums)[4]) { return mins_of_four(block, half, sums); }

    // As Q4_K; the fifth bits are multiplied by themselves.
    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book&) {
        u32 q[16], fifth[8];
        words_aligned<8>(block + 48 + 64 * half, q);
        words_aligned<8>(block + 16, fifth);
#pragma unroll
        for (int i = 0; i < 8; i++) fifth[i] >>= 4 * half;
        const u32 scale = scales_of_four(block, half);
        i32 sum = 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            i32 low = 0, high = 0, low5 = 0, high5 = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const u32 x0 = x[16 * j + i], x1 = x[16 * j + 8 + i];
                low = dp4a(q[8 * j + i] & 0x0f0f0f0fu, x0, low);
                high = dp4a_unsigned(q[8 * j + i] & 0xf0f0f0f0u, x1, high);
                low5 = dp4a(fifth[i] & (0x01010101u << (2 * j)), x0, low5);
                high5 = dp4a(fifth[i] & (0x02020202u << (2 * j)), x1, high5);
            }
            low += (low5 >> (2 * j)) * 16;
            high = (high >> 4) + (high5 >> (2 * j + 1)) * 16;
            sum += i32(byte_of(scale, 2 * j)) * low + i32(byte_of(scale, 2 * j + 1)) * high;
        }
        return sum;
    }
};

struct Q6K : WideFormat {
    static constexpr u32 BYTES = 210, TILES = 2, ABREAST = 2;
    static constexpr u32 RUN = 16;

    DEV float d(u32 block) { return half_at(block + 208); }

    // Four and two bits of a weight are multiplied where they stand, which costs a mask each and no shift; the 32 that every
    // weight loses comes from the sums of activations. Weights 64 to 127 come out 16 times too large: at most 2^30.
    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&sums)[4], const Book&) {
        u32 low[16], high[8], scale[2];
        words(block + 64 * half, low);
        words(block + 128 + 32 * half, high);
        words(block + 192 + 8 * half, scale);
        i32 sum[2] = {0, 0};
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
            for (int g = 0; g < 2; g++) {
                i32 four = 0, two = 0;
#pragma unroll
                for (int j = 4 * g; j < 4 * g + 4; j++) {
                    four = dp4a_unsigned(low[r % 2 * 8 + j] & (r < 2 ? 0x0f0f0f0fu : 0xf0f0f0f0u), x[8 * r + j], four);
                    two = dp4a_unsigned(high[j] & (0x03030303u << (2 * r)), x[8 * r + j], two);
                }
                sum[r / 2] += signed_byte_of(scale[r / 2], 2 * (r % 2) + g) * (four + two * (r % 2 == 0 ? 16 : 4));
            }
        }
        i32 all = dp2a_signed(sums[0], sums[1], scale[0], 0);
        all = dp2a_signed(sums[2], sums[3], scale[1], all);
        return sum[0] + (sum[1] >> 4) - 32 * all;
    }
};

struct Iq4Xs : WideFormat {
    static constexpr u32 BYTES = 136, TILES = 2, ABREAST = 2;

    DEV float d(u32 block) { return half_at(block); }
    DEV void arrange(u32 (&x)[32]) { interleave(x); }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book&) {
        u32 q[16], head[2];
        words_aligned<8>(block + 8 + 64 * half, q);
        words_aligned<8>(block, head);
        const u32 low = head[1] >> (16 * half), high = head[0] >> (16 + 8 * half);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const i32 scale = i32(((low >> (4 * i)) & 15) | ((high >> (2 * i)) & 3) << 4) - 32;
            sum += scale * dot_sixteen(iq4_values(), q + 4 * i, x + 8 * i);
        }
        return sum;
    }
};
