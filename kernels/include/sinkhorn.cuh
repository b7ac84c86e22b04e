// Sinkhorn's passes over a comb matrix in shared memory (model-spec 2.3), by a warp that has a lane for every line.
#pragma once
#include "base.cuh"

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
