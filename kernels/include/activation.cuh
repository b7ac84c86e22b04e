// Activations as 8-bit numbers (docs/ARITHMETIC.md, "Activations").
#pragma once
#include "base.cuh"

// A unit is 128 values, what one lane multiplies. Units are 144 bytes apart, so that 16-byte reads of eight lanes meet all
// banks once.
constexpr u32 UNIT = 128;
constexpr u32 UNIT_BYTES = 144;

// 2^-100: below it a block is zero.
constexpr u32 TINY_BITS = (127 - 100) << 23;

// Eight values as bytes, and what their block's scale is.
DEV uint2 quantize8(const float (&x)[8], float inverse) {
    u32 word[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const i32 q = min(max(__float2int_rn(x[i] * inverse), -127), 127);
        word[i / 4] |= (q & 255) << (8 * (i % 4));
    }
    return make_uint2(word[0], word[1]);
}

// Quantises `k` values by the block's threads, in blocks of `LANES` * 8: 256 (32 lanes) or 32 (4 lanes). `load(i, x)` gives
// values i..i+8; `q` and `scales` are places in shared memory. Sets `*fault` if one is not finite.
template <u32 LANES, typename Load>
DEV void quantize(u32 k, Load load, u32 q, u32 scales, u32* fault) {
    const u32 lane = threadIdx.x % WARP;
    for (u32 at = (threadIdx.x / WARP) * 256; at < k; at += (blockDim.x / WARP) * 256) {
        const u32 i = at + 8 * lane;
        float x[8] = {};
        if (i < k) load(i, x);
        u32 largest = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) largest = max(largest, __float_as_uint(x[j]) & 0x7fffffffu);
#pragma unroll
        for (u32 mask = 1; mask < LANES; mask *= 2) largest = max(largest, lane_xor(largest, mask));
        const float amax = __uint_as_float(largest);
        float scale = 0.0f;
        uint2 bytes = make_uint2(0, 0);
        if (largest >= 0x7f800000u) {
            *fault = 1;
        } else if (largest >= TINY_BITS) {
            scale = amax / 127.0f;
            bytes = quantize8(x, 127.0f / amax);
        }
        if (i < k) {
            shared_at<uint2>(q + (i / UNIT) * UNIT_BYTES + i % UNIT) = bytes;
            if (lane % LANES == 0) shared_at<float>(scales + i / (LANES * 8) * 4) = scale;
        }
    }
}

// A unit's 128 bytes into registers.
DEV void unit_of(u32 q, u32 unit, u32 (&x)[32]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint4 four = shared_at<uint4>(q + unit * UNIT_BYTES + 16 * i);
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
}
