// Sums in dot order (docs/ARITHMETIC.md) by the threads of a block, over values in shared memory.
#pragma once
#include "base.cuh"

constexpr u32 BLOCK = 256;  // elements of a partial sum

// One block's partial of a . b by a warp: lane j takes j, j + 32, ... by fmaf, then neighbours are added. `n` values, at most
// BLOCK.
template <typename A, typename B>
DEV float dot_block(u32 n, A a, B b) {
    const u32 lane = threadIdx.x % WARP;
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < BLOCK; i += WARP) {
        if (i + lane < n) sum = fmaf(a(i + lane), b(i + lane), sum);
    }
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) sum = sum + lane_xor(sum, mask);
    return sum;
}

// The tree over a warp's lanes; every lane gets the sum.
DEV float lanes_tree(float sum) {
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) sum = sum + lane_xor(sum, mask);
    return sum;
}

DEV u32 blocks_of(u32 n) { return (n + BLOCK - 1) / BLOCK; }

DEV u32 padded(u32 n) { return n <= 1 ? 1 : 1u << (32 - __clz(n - 1)); }

// Adds the `n` partials of each of `rows` rows in shared memory at byte offset `at`, `padded(n)` floats apart; places from n on
// are set to +0 here. The sums are left at the rows' beginnings. All threads of the block call it; it begins and ends with
// a barrier.
DEV void tree_rows(u32 at, u32 rows, u32 n) {
    const u32 stride = padded(n);
    for (u32 i = threadIdx.x; i < rows * (stride - n); i += blockDim.x) {
        shared_at<float>(at + (i / (stride - n) * stride + n + i % (stride - n)) * 4) = 0.0f;
    }
    __syncthreads();
    for (u32 step = 1; step < stride; step *= 2) {
        const u32 pairs = stride / (2 * step);
        for (u32 i = threadIdx.x; i < rows * pairs; i += blockDim.x) {
            const u32 left = at + (i / pairs * stride + i % pairs * 2 * step) * 4;
            shared_at<float>(left) = shared_at<float>(left) + shared_at<float>(left + step * 4);
        }
        __syncthreads();
    }
}

// x . x over `n` values in shared memory at byte offset `x`, by the whole block; `scratch` has padded(blocks_of(n)) floats. The
// result is known to every thread.
DEV float squares(u32 x, u32 n, u32 scratch) {
    for (u32 b = threadIdx.x / WARP; b < blocks_of(n); b += blockDim.x / WARP) {
        const u32 from = x + b * BLOCK * 4;
        auto value = [&](u32 i) { return shared_at<float>(from + i * 4); };
        const float sum = dot_block(min(n - b * BLOCK, BLOCK), value, value);
        if (threadIdx.x % WARP == 0) shared_at<float>(scratch + b * 4) = sum;
    }
    tree_rows(scratch, 1, blocks_of(n));
    return shared_at<float>(scratch);
}
