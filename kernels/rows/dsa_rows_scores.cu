// Attention of a chunk of new rows over the latents (model-spec 4.1, absorbed form), in three kernels: these are the scores.
// Row r of n is at position first + r. Scores are [row][head][stride]; `stride` is a multiple of four that no
// row's positions exceed. `pools` are [row][top], read for rows that do not see everything.
#include "attend_rows.cuh"

// scores[h][j] = dot(queries[h], row j) * scale over the attended positions. Blocks: 64 positions, n rows, 64 heads; of 256
// threads with 227 KB of shared memory: any number, one, 64 heads.
extern "C" __global__ void __launch_bounds__(EIGHT_THREADS, 1)
    attend_rows_scores(const float* queries, const u8* latents, const u32* pools, float* scores, u32 first, u32 n, u32 heads,
                       u32 latent, u32 kpool, u32 top, u32 stride, u32 half, float scale) {
    if (MAY_EIGHT && fast_rows(latent, kpool) && blockDim.x == EIGHT_THREADS) {
        if (half) {
            scores_eight_512<HalfRow>(queries, latents, pools, scores, first, n, heads, kpool, top, stride, scale);
        } else {
            scores_eight_512<FloatRow>(queries, latents, pools, scores, first, n, heads, kpool, top, stride, scale);
        }
        return;
    }
    const u32 row = blockIdx.y;
    const Attended a = attended(first + row, kpool, top);
    queries += size_t(row) * heads * latent;
    pools += size_t(row) * top;
    scores += size_t(row) * heads * stride;
    if (fast_rows(latent, kpool)) {
        scores_rows_512(queries, latents, pools, a, scores, heads, __ffs(kpool) - 1, stride, half != 0, scale);
    } else if (half) {
        scores_rows_any<HalfRow>(queries, latents, pools, a, scores, heads, latent, kpool, stride, scale);
    } else {
        scores_rows_any<FloatRow>(queries, latents, pools, a, scores, heads, latent, kpool, stride, scale);
    }
}
