// Weights times their scales, as two bytes each.
#pragma once
#include "packed.cuh"

// Words of low and of high bytes.
struct Digits {
    u32 low, high;
};

// Four weights, bytes of `u` less BIAS, times a scale. Pairs are multiplied in halves of a word; where a product may be negative the
// upper half has lost 1 to it.
template <u32 BIAS, bool SIGNED>
DEV Digits scaled(u32 u, i32 scale) {
    u32 even = (u & 0x00ff00ffu) * u32(scale), odd = choose(u, 0, 0x4341) * u32(scale);
    if constexpr (SIGNED) {
        const u32 less = u32(scale) * (BIAS * 0x10001u);
        even -= less, odd -= less;
        even += (even & 0x8000u) << 1, odd += (odd & 0x8000u) << 1;
    }
    return {choose(even, odd, 0x6240), choose(even, odd, 0x7351)};
}
