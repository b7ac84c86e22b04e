// Attention of a chunk of new rows (dsa_rows_scores.cu): its softmax and its weighted sum. blockIdx.y is the row.
#include "mix_rows.cuh"

// Scores become weights: a block a head (blockIdx.x) and row.
extern "C" __global__ void __launch_bounds__(512, 1)
    attend_rows_softmax(float* scores, u32 first, u32 heads, u32 kpool, u32 top, u32 stride) {
    softmax_in_place(scores + (size_t(blockIdx.y) * heads + blockIdx.x) * stride, attended(first + blockIdx.y, kpool, top).n);
}

// out[h] = the sum of weights[h][j] * row j in the order of j. Blocks: four for 64 heads where latents are of 512, else any number;
// rows.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 3)
    attend_rows_mix(const float* weights, const u8* latents, const u32* pools, float* out, u32 first, u32 heads, u32 latent,
                    u32 kpool, u32 top, u32 stride, u32 half) {
    const u32 row = blockIdx.y;
    const Attended a = attended(first + row, kpool, top);
    weights += size_t(row) * heads * stride;
    pools += size_t(row) * top;
    out += size_t(row) * heads * latent;
    if (fast_rows(latent, kpool)) {
        const u32 shift = __ffs(kpool) - 1;
        if (half) {
            mix_rows_512<HalfRow>(weights, latents, pools, a, out, heads, shift, stride);
        } else {
            mix_rows_512<FloatRow>(weights, latents, pools, a, out, heads, shift, stride);
        }
    } else if (half) {
        mix_any<HalfRow>(weights, latents, pools, a, out, heads, latent, kpool, stride);
    } else {
        mix_any<FloatRow>(weights, latents, pools, a, out, heads, latent, kpool, stride);
    }
}
