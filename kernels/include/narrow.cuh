// Formats of 32-weight blocks with a float scale: the integer sum of one block. `q` of a format with a minimum is never
// negative; block `b` of a unit meets words 8b to 8b + 7 of the unit's activations.
#pragma once
#include "wide.cuh"

struct NarrowFormat {
    typedef NoBook Book;
    static constexpr Family FAMILY = NARROW;
    static constexpr u32 TOGETHER = 0;
    static constexpr u32 LEN = 32;
    static constexpr u32 GRID = 0, SIGNS = 0, COPIES = 1;
    static constexpr bool MINIMUM = false;

    DEV void arrange(u32 (&)[32]) {}
    DEV float d(u32 block) { return half_at(block); }
    DEV float m(u32) { return 0.0f; }
};

struct Q8_0 : NarrowFormat {
    static constexpr u32 BYTES = 34, TILES = 1, ABREAST = 1;

    DEV i32 dot(u32 block, const u32* x) {
        u32 q[8];
        words(block + 2, q);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum = dp4a(q[i], x[i], sum);
        return sum;
    }
};

struct Q4_0 : NarrowFormat {
    static constexpr u32 BYTES = 18, TILES = 2, ABREAST = 2;

    // A nibble at the top of a byte, its highest bit inverted: sixteen times the weight, signed.
    DEV i32 dot(u32 block, const u32* x) {
        u32 q[4];
        words(block + 2, q);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum = dp4a(((q[i] << 4) & 0xf0f0f0f0u) ^ 0x80808080u, x[i], sum);
            sum = dp4a((q[i] & 0xf0f0f0f0u) ^ 0x80808080u, x[4 + i], sum);
        }
        return sum >> 4;
    }
};

struct Q4_1 : NarrowFormat {
    static constexpr u32 BYTES = 20, TILES = 2, ABREAST = 2;
    static constexpr bool MINIMUM = true;

    DEV float m(u32 block) { return half_at(block + 2); }

    DEV i32 dot(u32 block, const u32* x) {
        u32 q[4];
        words_aligned<4>(block + 4, q);
        i32 low = 0, high = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low = dp4a(q[i] & 0x0f0f0f0fu, x[i], low);
            high = dp4a_unsigned(q[i] & 0xf0f0f0f0u, x[4 + i], high);
        }
        return low + (high >> 4);
    }
};

// Bits 4i to 4i + 3 of `bits`, one in each byte, where `FIRST` has the first byte's place.
template <u32 FIRST>
DEV u32 fifth_bits(u32 bits, u32 i) {
    return ((bits >> (4 * i)) & 15) * ((1u + (1u << 7) + (1u << 14) + (1u << 21)) << FIRST);
}

struct Q5_0 : NarrowFormat {
    static constexpr u32 BYTES = 22, TILES = 2, ABREAST = 2;

    // Five bits at the top of a byte, the highest inverted: eight times the weight, signed.
    DEV i32 dot(u32 block, const u32* x) {
        u32 high[1], q[4];
        words(block + 2, high);
        words(block + 6, q);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 top0 = ~fifth_bits<7>(high[0], i) & 0x80808080u;
            const u32 top1 = ~fifth_bits<7>(high[0], 4 + i) & 0x80808080u;
            sum = dp4a(((q[i] << 3) & 0x78787878u) | top0, x[i], sum);
            sum = dp4a(((q[i] >> 1) & 0x78787878u) | top1, x[4 + i], sum);
        }
        return sum >> 3;
    }
};

struct Q5_1 : NarrowFormat {
    static constexpr u32 BYTES = 24, TILES = 2, ABREAST = 2;
    static constexpr bool MINIMUM = true;

    DEV float m(u32 block) { return half_at(block + 2); }

    DEV i32 dot(u32 block, const u32* x) {
        u32 head[2], q[4];
        words_aligned<8>(block, head);
        words_aligned<8>(block + 8, q);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 top0 = fifth_bits<4>(head[1], i) & 0x10101010u;
            const u32 top1 = fifth_bits<4>(head[1], 4 + i) & 0x10101010u;
            sum = dp4a((q[i] & 0x0f0f0f0fu) | top0, x[i], sum);
            sum = dp4a(((q[i] >> 4) & 0x0f0f0f0fu) | top1, x[4 + i], sum);
        }
        return sum;
    }
};

struct Iq4Nl : NarrowFormat {
    static constexpr u32 BYTES = 18, TILES = 2, ABREAST = 2;

    DEV void arrange(u32 (&x)[32]) { interleave(x); }

    DEV i32 dot(u32 block, const u32* x) {
        u32 q[4];
        words(block + 2, q);
        return dot_sixteen(iq4_values(), q, x);
    }
};

struct Mxfp4 : NarrowFormat {
    static constexpr u32 BYTES = 17, TILES = 2, ABREAST = 2;

    DEV void arrange(u32 (&x)[32]) { interleave(x); }

    // 2^(e - 128), half of what the exponent byte says, because the table holds twice the values. The two smallest are
    // subnormal.
    DEV float d(u32 block) {
        const u32 e = shared_at<u8>(block);
        return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }

    DEV i32 dot(u32 block, const u32* x) {
        u32 q[4];
        words(block + 1, q);
        return dot_sixteen(fp4_values(), q, x);
    }
};
