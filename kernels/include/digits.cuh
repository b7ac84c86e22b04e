// Weights times their scales, as two bytes each.
#pragma once
#include "packed.cuh"

// `signed_byte_of` by one instruction: the byte, and its sign three times.
DEV i32 signed_of(u32 word, u32 at) { return i32(choose(word, 0, 0x8880 + 0x1111 * at)); }

// Words of low and of high bytes.
struct Digits {
    u32 low, high;
};

// Four weights, bytes of `u` less BIAS, times a scale. Pairs are multiplied in halves of a word. Products that may be negative get 2^15
// more, so that none takes from its neighbour; in the high byte that is one bit.
template <u32 BIAS, bool SIGNED>
DEV Digits scaled(u32 u, i32 scale) {
    const u32 add = SIGNED ? 0x80008000u - u32(scale) * (BIAS * 0x10001u) : 0;
    const u32 even = (u & 0x00ff00ffu) * u32(scale) + add, odd = choose(u, 0, 0x4341) * u32(scale) + add;
    const u32 high = choose(even, odd, 0x7351);
    return {choose(even, odd, 0x6240), SIGNED ? high ^ 0x80808080u : high};
}
