// Sinkhorn's passes over a comb matrix in shared memory (model-spec 2.3), by a warp that has a lane for every line.
#pragma once
#include "activation.cuh"
#include "canon.cuh"

// `n` x `n` floats at byte offset `comb`: one pass over columns, then iterations - 1 times rows and columns.
DEV void sinkhorn_passes(u32 comb, u32 n, u32 iterations, float eps) {
    const u32 lane = threadIdx.x % WARP;
    for (u32 pass = 0; pass < 2 * iterations - 1; pass++) {
        const u32 step = pass % 2 == 0 ? n : 1, from = pass % 2 == 0 ? lane : lane * n;
        if (lane < n) {
            float sum = 0.0f;
            for (u32 m = 0; m < n; m++) sum = sum + shared_at<float>(comb + (from + m * step) * 4);
            sum = sum + eps;
            for (u32 m = 0; m < n; m++) {
                float& c = shared_at<float>(comb + (from + m * step) * 4);
                c = c / sum;
            }
        }
        __syncwarp();
    }
}

// A lane's element of a 4 x 4 matrix of positive numbers through all passes; element `lane % 16` is [i][j], all lanes of a warp call
// it. The passes are a chain of 39 quotients: `/` would ask before each whether it may, and begin the first quotient when the
// reciprocal is exact and not beside that. Whether all were usual is asked once, behind them.
DEV float sinkhorn4(float first, u32 iterations, float eps) {
    const u32 row = threadIdx.x % 16 / 4 * 4, column = threadIdx.x % 4;
    float c = first;
    bool usual = true;
    auto sum_of = [&](u32 n) {
        const u32 from = n % 2 == 0 ? column : row, step = n % 2 == 0 ? 4 : 1;
        float v[4];
#pragma unroll
        for (u32 m = 0; m < 4; m++) v[m] = __shfl_sync(ALL, c, from + m * step);
        return (((0.0f + v[0]) + v[1]) + v[2]) + v[3] + eps;
    };
#pragma unroll 1
    for (u32 n = 0; n < 2 * iterations - 1; n++) {
        const float sum = sum_of(n), near = near_reciprocal(sum);
        usual = usual && is_usual(c) && is_usual(sum);
        const float reciprocal = fmaf(near, fmaf(-sum, near, 1.0f), near), about = c * near;
        const float nearly = fmaf(fmaf(-sum, about, c), reciprocal, about);
        c = fmaf(fmaf(-sum, nearly, c), reciprocal, nearly);
    }
    if (__all_sync(ALL, usual)) return c;
    c = first;
#pragma unroll 1
    for (u32 n = 0; n < 2 * iterations - 1; n++) c = c / sum_of(n);
    return c;
}

// A lane's element of comb, of its logit: softmax over the row, then all passes. As `sinkhorn4`.
DEV float comb4(float logit, u32 iterations, float eps) {
    const u32 row = threadIdx.x % 16 / 4 * 4;
    float largest = logit;
#pragma unroll
    for (u32 m = 0; m < 4; m++) largest = fmaxf(largest, __shfl_sync(ALL, logit, row + m));
    const float c = canon_exp(logit - largest);
    float sum = 0.0f;
#pragma unroll
    for (u32 m = 0; m < 4; m++) sum = sum + __shfl_sync(ALL, c, row + m);
    return sinkhorn4(c / sum + eps, iterations, eps);
}

// What a site left to do of a row's gates (`Site::later`), by a block of its own of a kernel that comes before the next site: a chain of
// 39 quotients, 2 us, that the end of the site would wait for.
DEV void finish_gates(float* gates, u32 iterations, float eps) {
    wait_for_predecessor();
    if (threadIdx.x >= WARP) return;
    float* comb = gates + 4;
    const float c = comb4(comb[threadIdx.x % 16], iterations, eps);
    if (threadIdx.x < 16) comb[threadIdx.x] = c;
}
