// Activations as 8-bit numbers (docs/ARITHMETIC.md, "Activations").
#pragma once
#include "base.cuh"

// A unit is 128 values, what one lane multiplies. Units are 144 bytes apart, so that 16-byte reads of eight lanes meet all
// banks once.
constexpr u32 UNIT = 128;
constexpr u32 UNIT_BYTES = 144;

// 2^-100: below it a block is zero.
constexpr u32 TINY_BITS = (127 - 100) << 23;

// 1 / x to a few units of the last place.
DEV float near_reciprocal(float x) {
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// Whether |x| is from 2^-60 to 2^60.
DEV bool is_usual(float x) { return (__float_as_uint(x) & 0x7fffffffu) - (67u << 23) <= 120u << 23; }

// a / b, rounded as by IEEE if both are usual: a quotient is corrected twice. The first time it may be off by more than a unit of the
// last place, which one correction does not always mend: a quotient can lie within 2^-25 of such a unit from where rounding turns.
// It is what `/` does, which asks before each whether it may, so that no two of them run at once.
DEV float usual_quotient(float a, float b) {
    const float near = near_reciprocal(b), reciprocal = fmaf(near, fmaf(-b, near, 1.0f), near);
    const float first = a * reciprocal, second = fmaf(fmaf(-b, first, a), reciprocal, first);
    return fmaf(fmaf(-b, second, a), reciprocal, second);
}

// q = a / b, for all at once.
template <int N>
DEV void quotients(const float (&a)[N], const float (&b)[N], float (&q)[N]) {
    bool usual = true;
#pragma unroll
    for (int i = 0; i < N; i++) {
        q[i] = usual_quotient(a[i], b[i]);
        usual = usual && is_usual(a[i]) && is_usual(b[i]);
    }
    if (!usual) {
#pragma unroll 1
        for (int i = 0; i < N; i++) {
            float above = a[0], below = b[0];
#pragma unroll
            for (int j = 1; j < N; j++) above = i == j ? a[j] : above, below = i == j ? b[j] : below;
            const float exact = above / below;
#pragma unroll
            for (int j = 0; j < N; j++) q[j] = i == j ? exact : q[j];
        }
    }
}

// A value as a byte.
DEV i32 rounded_byte(float x, float inverse) { return min(max(__float2int_rn(x * inverse), -127), 127); }

// Eight values as bytes, and what their block's scale is.
DEV uint2 quantize8(const float (&x)[8], float inverse) {
    u32 word[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        word[i / 4] |= (rounded_byte(x[i], inverse) & 255) << (8 * (i % 4));
    }
    return make_uint2(word[0], word[1]);
}

// Four values as bytes of a word.
DEV u32 quantize4(float4 x, float inverse) {
    const float value[4] = {x.x, x.y, x.z, x.w};
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) word |= (rounded_byte(value[i], inverse) & 255) << (8 * i);
    return word;
}

// Where word `word` of a chunk of 64 values lies, in the order of tile.cuh.
DEV u32 place_in_chunk(u32 word) { return word % 4 * 16 + word / 4 * 4; }

// The scale of a block and its inverse, from the bits of its largest magnitude; false if it is zero.
DEV bool scale_of(u32 largest, float& scale, float& inverse) {
    const float amax = __uint_as_float(largest);
    scale = 0.0f, inverse = 0.0f;
    if (largest < TINY_BITS) return false;
    scale = amax / 127.0f, inverse = 127.0f / amax;
    return true;
}

// A block of `lanes` neighbouring lanes' values, eight each, as bytes and with its scale; all zero if it is. False if one is not finite.
DEV bool round_eight(const float (&x)[8], u32 lanes, uint2& bytes, float& scale) {
    u32 largest = 0;
#pragma unroll
    for (u32 c = 0; c < 8; c++) largest = max(largest, __float_as_uint(x[c]) & 0x7fffffffu);
    for (u32 mask = 1; mask < lanes; mask *= 2) largest = max(largest, lane_xor(largest, mask));
    float inverse;
    bytes = make_uint2(0, 0), scale = 0.0f;
    if (largest >= 0x7f800000u) return false;
    if (scale_of(largest, scale, inverse)) bytes = quantize8(x, inverse);
    return true;
}

// Quantises `k` values by the block's threads, in blocks of `LANES` * 8: 256 (32 lanes) or 32 (4 lanes). `fetch(i, raw)` reads
// what values i..i+8 are made of, while those before are under way, and `make(i, raw, x)` makes them; `q` and `scales` are
// places in shared memory. Sets `*fault` to 1 if one is not finite and it was 0.
template <u32 LANES, typename Raw, typename Fetch, typename Make>
DEV void quantize(u32 k, Fetch fetch, Make make, u32 q, u32 scales, u32* fault) {
    const u32 lane = threadIdx.x % WARP, step = blockDim.x / WARP * 256;
    u32 i = threadIdx.x / WARP * 256 + 8 * lane;
    Raw raw = {};
    if (i < k) fetch(i, raw);
    // All lanes of a warp, as long as one has values.
#pragma unroll 1
    for (; i - 8 * lane < k; i += step) {
        Raw next = {};
        if (i + step < k) fetch(i + step, next);
        float x[8] = {};
        if (i < k) make(i, raw, x);
        raw = next;
        u32 largest = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) largest = max(largest, __float_as_uint(x[j]) & 0x7fffffffu);
#pragma unroll
        for (u32 mask = 1; mask < LANES; mask *= 2) largest = max(largest, lane_xor(largest, mask));
        float scale = 0.0f;
        uint2 bytes = make_uint2(0, 0);
        if (largest >= 0x7f800000u) {
            atomicCAS(fault, 0u, 1u);
        } else if (largest >= TINY_BITS) {
            const float amax = __uint_as_float(largest), above[2] = {amax, 127.0f}, below[2] = {127.0f, amax};
            float both[2];  // scale, inverse
            quotients(above, below, both);
            scale = both[0];
            bytes = quantize8(x, both[1]);
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
