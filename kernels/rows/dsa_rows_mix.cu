// Attention of a chunk of new rows (dsa_rows_scores.cu): its softmax and its weighted sum. blockIdx.y is the row.
#include "mix_rows.cuh"

// Scores become weights: a block a head (blockIdx.x) and row.
extern "C" __global__ void __launch_bounds__(512, 1)
    attend_rows_softmax(float* scores, u32 first, u32 heads, u32 kpool, u32 top, u32 stride) {
    softmax_in_place(scores + (size_t(blockIdx.y) * heads + blockIdx.x) * stride, attended(first + blockIdx.y, kpool, top).n);
}

// out[h] = the sum of weights[h][j] * row j in the order of j, of the row that is blockIdx.y.
template <typename Row, typename M>
DEV void mix_row(const float* weights, const u8* latents, const u32* pools, float* out, u32 first, u32 heads, u32 latent, u32 kpool,
                 u32 top, u32 stride) {
    const u32 row = blockIdx.y;
    const Attended a = attended(first + row, kpool, top);
    weights += size_t(row) * heads * stride;
    pools += size_t(row) * top;
    out += size_t(row) * heads * latent;
    if (fast_rows(latent, kpool)) {
        mix_rows_512<Row, M>(weights, latents, pools, a, out, heads, __ffs(kpool) - 1, stride);
    } else {
        mix_any<Row>(weights, latents, pools, a, out, heads, latent, kpool, stride);
    }
}

// Blocks: four for 64 heads where latents are of 512, else any number; rows.
extern "C" __global__ void __launch_bounds__(Narrow::THREADS, 3)
    attend_rows_mix(const float* weights, const u8* latents, const u32* pools, float* out, u32 first, u32 heads, u32 latent,
                    u32 kpool, u32 top, u32 stride, u32 half) {
    if (half) {
        mix_row<HalfRow, Narrow>(weights, latents, pools, out, first, heads, latent, kpool, top, stride);
    } else {
        mix_row<FloatRow, Narrow>(weights, latents, pools, out, first, heads, latent, kpool, top, stride);
    }
}

// Blocks: one for 64 heads; rows. For latents of 512, and 73 KB of shared memory.
extern "C" __global__ void __launch_bounds__(Wide::THREADS, 1)
    attend_rows_mix_wide(const float* weights, const u8* latents, const u32* pools, float* out, u32 first, u32 heads, u32 latent,
                         u32 kpool, u32 top, u32 stride, u32 half) {
    if (half) {
        mix_row<HalfRow, Wide>(weights, latents, pools, out, first, heads, latent, kpool, top, stride);
    } else {
        mix_row<FloatRow, Wide>(weights, latents, pools, out, first, heads, latent, kpool, top, stride);
    }
}
