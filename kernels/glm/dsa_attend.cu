// Attention of one new row over the latents (model-spec 4.1, absorbed form), in three kernels. `stride` is the length of a
// head's row of scores: a multiple of four, not below (top + 1) * kpool - 1 and, where contexts are shorter, the context.
#include "attend.cuh"

// scores[h][j] = dot(queries[h], row j) * scale over the attended positions; `gathered` gets the rows on the fast path.
extern "C" __global__ void __launch_bounds__(SCORE_THREADS, 1)
    attend_scores(const float* queries, const u8* rows, const u32* pools, const u32* position, float* scores, u8* gathered,
                  u32 heads, u32 latent, u32 kpool, u32 top, u32 stride, u32 half, float scale) {
    let_successor_begin();
    wait_for_predecessor();
    const Attended a = attended(*position, kpool, top);
    if (fast_attention(heads, latent)) {
        if (half) {
            scores_512<HalfRow>(queries, rows, pools, a, scores, gathered, heads, kpool, stride, scale);
        } else {
            scores_512<FloatRow>(queries, rows, pools, a, scores, gathered, heads, kpool, stride, scale);
        }
    } else if (half) {
        scores_any<HalfRow>(queries, rows, pools, a, scores, heads, latent, kpool, stride, scale);
    } else {
        scores_any<FloatRow>(queries, rows, pools, a, scores, heads, latent, kpool, stride, scale);
    }
}

// Scores become weights: a block a head.
extern "C" __global__ void __launch_bounds__(512, 1)
    attend_softmax(float* scores, const u32* position, u32 kpool, u32 top, u32 stride) {
    let_successor_begin();
    wait_for_predecessor();
    softmax_in_place(scores + size_t(blockIdx.x) * stride, attended(*position, kpool, top).n);
}

// out[h] = the sum of weights[h][j] * row j in the order of j.
extern "C" __global__ void __launch_bounds__(MIX_THREADS, 1)
    attend_mix(const float* weights, const u8* rows, const u32* pools, const u32* position, const u8* gathered, float* out,
               u32 heads, u32 latent, u32 kpool, u32 top, u32 stride, u32 half) {
    let_successor_begin();
    wait_for_predecessor();
    const Attended a = attended(*position, kpool, top);
    if (fast_attention(heads, latent)) {
        if (half) {
            mix_512<HalfRow>(weights, gathered, a.n, out, stride);
        } else {
            mix_512<FloatRow>(weights, gathered, a.n, out, stride);
        }
    } else if (half) {
        mix_any<HalfRow>(weights, rows, pools, a, out, heads, latent, kpool, stride);
    } else {
        mix_any<FloatRow>(weights, rows, pools, a, out, heads, latent, kpool, stride);
    }
}
