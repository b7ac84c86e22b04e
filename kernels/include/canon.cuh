// Functions of one value whose bits every lane agrees on (docs/ARITHMETIC.md).
#pragma once
#include "base.cuh"

DEV float bits(u32 word) { return __uint_as_float(word); }

// E(t): the exponential, to 1 ulp.
DEV float canon_exp(float t) {
    // Comparisons, not min and max: a NaN fails both and passes through.
    t = t > 87.0f ? 87.0f : t;
    t = t < -87.0f ? -87.0f : t;
    const float shifted = fmaf(t, bits(0x3fb8aa3bu), bits(0x4b400000u));
    const float n = shifted - bits(0x4b400000u);
    float r = fmaf(n, -bits(0x3f317218u), t);
    r = fmaf(n, -bits(0xb102e308u), r);
    float p = bits(0x3ab5121au);
    p = fmaf(p, r, bits(0x3c091cf1u));
    p = fmaf(p, r, bits(0x3d2aac79u));
    p = fmaf(p, r, bits(0x3e2aaa49u));
    p = fmaf(p, r, bits(0x3efffffeu));
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * bits((__float_as_uint(shifted) + 127u) << 23);
}

DEV float sigmoid(float t) { return 1.0f / (1.0f + canon_exp(-t)); }

DEV float silu(float t) { return t / (1.0f + canon_exp(-t)); }

DEV float swiglu(float gate, float up, float limit) {
    const float g = gate > limit ? limit : gate;
    float u = up > limit ? limit : up;
    u = u < -limit ? -limit : u;
    return (g / (1.0f + canon_exp(-g))) * u;
}

// A key that orders scores: larger first, -0 as +0, NaN last (crates/glm-graph/src/choice.rs).
DEV i32 rank_of(float score) {
    if (score != score) return i32(0x80000000u);
    const i32 word = i32(__float_as_uint(score + 0.0f));
    return word ^ i32(u32(word >> 31) >> 1);
}

// The key of an expert or a token in a choice: larger is better, the rank of a score above, the lower index first. No two are equal.
DEV u64 key_of(float score, u32 index) { return u64(u32(rank_of(score)) ^ 0x80000000u) << 32 | (ALL - index); }
