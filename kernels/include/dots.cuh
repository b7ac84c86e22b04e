// Sums in dot order (docs/ARITHMETIC.md) by single warps, and many lane trees at once.
#pragma once
#include "base.cuh"

// Elements of a partial sum.
constexpr u32 DOT_BLOCK = 256;

// The two halves of a word as f32.
DEV float2 halves_of(u32 word) {
    float2 value;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(value.x), "=f"(value.y)
        : "r"(word));
    return value;
}

DEV u32 next_power_of_two(u32 n) { return n <= 1 ? 1 : 1u << (32 - __clz(n - 1)); }

// Adds pairs of neighbouring lanes, level by level, in groups of `lanes`.
DEV float lane_tree(float sum, u32 lanes) {
#pragma unroll 1
    for (u32 mask = 1; mask < lanes; mask *= 2) sum = sum + lane_xor(sum, mask);
    return sum;
}

// The tree over `n` partials, n <= 1024, by one warp: every lane gets the sum. `partial(i)` is asked for
// i < n only.
template <typename Partial>
DEV float partial_tree(u32 n, Partial partial) {
    const u32 lane = threadIdx.x % WARP;
    if (n <= WARP) {
        const float own = lane < n ? partial(lane) : 0.0f;
        return __shfl_sync(ALL, lane_tree(own, next_power_of_two(n)), 0);
    }
    // A tree of trees: padding to a power of two fills the last group of 32.
    float groups = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < n; first += WARP) {
        const float own = first + lane < n ? partial(first + lane) : 0.0f;
        const float sum = lane_tree(own, WARP);
        groups = lane == first / WARP ? sum : groups;
    }
    return __shfl_sync(ALL, lane_tree(groups, next_power_of_two((n + WARP - 1) / WARP)), 0);
}

// One block of at most 256 elements by a warp, every lane gets the sum: `step(i, sum)` is the lane's sum with element i.
template <typename Step>
DEV float warp_block(u32 n, Step step) {
    const u32 lane = threadIdx.x % WARP;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 i = lane; i < n; i += WARP) sum = step(i, sum);
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) sum = sum + lane_xor(sum, mask);
    return sum;
}

// The whole sum by one warp, n <= 2^18; every lane gets it.
template <typename Step>
DEV float warp_sum(u32 n, Step step) {
    const u32 lane = threadIdx.x % WARP;
    const u32 blocks = (n + DOT_BLOCK - 1) / DOT_BLOCK;
    float groups = 0.0f, own = 0.0f;
#pragma unroll 1
    for (u32 b = 0; b < blocks; b++) {
        const u32 first = b * DOT_BLOCK;
        const float sum = warp_block(min(n - first, DOT_BLOCK), [&](u32 i, float s) { return step(first + i, s); });
        own = lane == b % WARP ? sum : own;
        if (blocks > WARP && (b % WARP == WARP - 1 || b == blocks - 1)) {
            const float group = lane_tree(own, WARP);
            groups = lane == b / WARP ? group : groups;
            own = 0.0f;
        }
    }
    const float last = blocks > WARP ? lane_tree(groups, next_power_of_two((blocks + WARP - 1) / WARP))
                                     : lane_tree(own, next_power_of_two(blocks));
    return __shfl_sync(ALL, last, 0);
}

// Trees of N sums at once. Before, every lane holds a part of each sum; a step adds the parts of neighbouring lanes and leaves
// each of the two with half of the sums, so N trees over LANES lanes cost about N shuffles and not N times log2(LANES). Which
// lane is the left one does not matter: an addition has no order. The lane is left with the sum of index
// `joined_index<N>(lane)`; if LANES > N, several lanes hold the same.
template <u32 N, u32 LANES>
DEV float join_lanes(float (&v)[N]) {
    const u32 lane = threadIdx.x % WARP;
#pragma unroll
    for (u32 mask = 1, n = N; mask < LANES; mask *= 2) {
        if (n > 1) {
            n /= 2;
            const bool upper = lane & mask;
#pragma unroll
            for (u32 i = 0; i < N / 2; i++) {
                if (i < n) {
                    const float kept = upper ? v[i + n] : v[i], given = upper ? v[i] : v[i + n];
                    v[i] = kept + lane_xor(given, mask);
                }
            }
        } else {
            v[0] = v[0] + lane_xor(v[0], mask);
        }
    }
    return v[0];
}

template <u32 N>
DEV u32 joined_index(u32 lane) {
    u32 index = 0;
#pragma unroll
    for (u32 half = N / 2, bit = 0; half > 0; half /= 2, bit++) index += ((lane >> bit) & 1) * half;
    return index;
}
