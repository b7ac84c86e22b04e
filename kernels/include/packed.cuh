// Several small integers in a word.
#pragma once
#include "base.cuh"

// A value that differs between lanes, but of which the compiler forgets how it came about: so it stays in a register and is
// not made anew for each use. A constant + kept(lane) / WARP stays in one, too.
DEV u32 kept(u32 value) { return __shfl_sync(ALL, value, threadIdx.x % WARP); }

// The compiler forgets how `x` came about. Where all lanes agree, it may move it to a register of the warp.
DEV void keep_as_is(u32& x) { asm("" : "+r"(x)); }

// c + the four products of unsigned bytes of `a` with signed bytes of `b`.
DEV i32 dp4a_unsigned(u32 a, u32 b, i32 c) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}

// The same of unsigned bytes, all of it without a sign.
DEV u32 dp4a_of_bytes(u32 a, u32 b, u32 c) {
    asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}

// c + the products of the four signed halves (a0, a1) with the four bytes of `b`.
DEV i32 dp2a_unsigned(u32 a0, u32 a1, u32 b, i32 c) {
    asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a0), "r"(b));
    asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a1), "r"(b));
    return c;
}
DEV i32 dp2a_signed(u32 a0, u32 a1, u32 b, i32 c) {
    asm("dp2a.lo.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a0), "r"(b));
    asm("dp2a.hi.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a1), "r"(b));
    return c;
}

// All ones in each byte whose highest bit is set.
DEV u32 byte_masks(u32 word) { return choose(word, word, 0xba98); }

// `N` words from a multiple of `ALIGN` bytes: 8 and 4 without shifts, else as `words`.
template <u32 ALIGN, int N>
DEV void words_aligned(u32 from, u32 (&out)[N]) {
    if constexpr (ALIGN >= 8 && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const uint2 two = shared_at<uint2>(from + 4 * i);
            out[i] = two.x, out[i + 1] = two.y;
        }
    } else if constexpr (ALIGN >= 4) {
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = shared_at<u32>(from + 4 * i);
    } else {
        words(from, out);
    }
}

// The sums of a unit's bytes over runs of `RUN` (16 or 32), two signed halves a word. RUN 0: nobody asks for them.
template <u32 RUN>
DEV void sums_of(const u32 (&x)[32], u32 (&sums)[4]) {
    if constexpr (RUN > 0) {
#pragma unroll
        for (u32 i = 0; i < 64 / RUN; i++) {
            i32 pair[2] = {0, 0};
#pragma unroll
            for (u32 j = 0; j < RUN / 2; j++) {
                pair[j / (RUN / 4)] = dp4a(0x01010101u, x[i * RUN / 2 + j], pair[j / (RUN / 4)]);
            }
            sums[i] = (u32(pair[0]) & 0xffffu) | u32(pair[1]) << 16;
        }
    }
}

// Sixteen values of a byte each, in four words; which one is a nibble. `q` holds eight nibbles; their values come out
// in the order in which they lie in it: byte 0's low, byte 0's high, byte 1's low, ...
struct Sixteen {
    u32 t0, t1, t2, t3;

    __device__ __forceinline__ void eight(u32 q, u32& first, u32& second) const {
        const u32 which = q & 0x77777777u;                        // among eight
        const u32 half = ((q >> 1) & 0x44444444u) | 0x32103210u;  // of which eight
        first = choose(choose(t0, t1, which), choose(t2, t3, which), half);
        second = choose(choose(t0, t1, which >> 16), choose(t2, t3, which >> 16), half >> 16);
    }
};

// Where bytes hold weights i (low nibble) and i + 16 (high nibble) of 32: puts a unit's activations in the order in
// which `Sixteen` gives the weights.
DEV void interleave(u32 (&x)[32]) {
#pragma unroll
    for (int b = 0; b < 4; b++) {
        u32 out[8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = choose(x[8 * b + i], x[8 * b + 4 + i], 0x5140);
            out[2 * i + 1] = choose(x[8 * b + i], x[8 * b + 4 + i], 0x7362);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) x[8 * b + i] = out[i];
    }
}

// 32 such weights, four words of nibbles, times activations that are interleaved.
DEV i32 dot_sixteen(const Sixteen& table, const u32* q, const u32* x) {
    i32 sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 first, second;
        table.eight(q[i], first, second);
        sum = dp4a(first, x[2 * i], sum);
        sum = dp4a(second, x[2 * i + 1], sum);
    }
    return sum;
}

constexpr u32 four_bytes(i32 a, i32 b, i32 c, i32 d) {
    return (u32(a) & 255) | (u32(b) & 255) << 8 | (u32(c) & 255) << 16 | (u32(d) & 255) << 24;
}

// The weights of IQ4_NL and IQ4_XS, and twice the E2M1 values of MXFP4.
DEV Sixteen iq4_values() {
    return {four_bytes(-127, -104, -83, -65), four_bytes(-49, -35, -22, -10), four_bytes(1, 13, 25, 38),
            four_bytes(53, 69, 89, 113)};
}
DEV Sixteen fp4_values() {
    return {four_bytes(0, 1, 2, 3), four_bytes(4, 6, 8, 12), four_bytes(0, -1, -2, -3), four_bytes(-4, -6, -8, -12)};
}
