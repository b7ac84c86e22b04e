// Attention of a new row of each sequence over its latents (model-spec 4.1, absorbed form), in three kernels. `stride` is the length
// of a head's row of scores: a multiple of four, not below (top + 1) * kpool - 1 and, where contexts are shorter, the context.
#include "attend.cuh"
#include "turn.cuh"

// Bytes of a row's `gathered`, in sixteens.
DEV size_t gathered_bytes(u32 latent, u32 stride, u32 half) { return size_t(stride) * latent * (half ? 2 : 4); }

// scores[h][j] = dot(queries[h], row j) * scale over the attended positions; `gathered` gets the rows on the fast path.
extern "C" __global__ void __launch_bounds__(SCORE_THREADS, 1)
    attend_scores(const float* queries, const u8* rows, const u32* pools, const Turn* turns, float* scores, u8* gathered,
                  u32 heads, u32 latent, u32 kpool, u32 top, u32 stride, u32 half, float scale) {
    let_successor_begin();
    wait_for_predecessor();
    const Turn turn = turn_of(turns);
    auto positions = [&] { return attended(turn.position, kpool, top); };
    queries = of_row(queries, size_t(heads) * latent), scores = of_row(scores, size_t(heads) * stride);
    rows = in_slot(rows, turn), pools = of_row(pools, top), gathered = of_row(gathered, gathered_bytes(latent, stride, half));
    if (fast_attention(heads, latent)) {
        if (half) {
            scores_512<HalfRow>(queries, rows, pools, positions, scores, gathered, heads, kpool, stride, scale);
        } else {
            scores_512<FloatRow>(queries, rows, pools, positions, scores, gathered, heads, kpool, stride, scale);
        }
    } else if (half) {
        scores_any<HalfRow>(queries, rows, pools, positions(), scores, heads, latent, kpool, stride, scale);
    } else {
        scores_any<FloatRow>(queries, rows, pools, positions(), scores, heads, latent, kpool, stride, scale);
    }
}

// Scores become weights: a block a head.
extern "C" __global__ void __launch_bounds__(512, 1)
    attend_softmax(float* scores, const Turn* turns, u32 kpool, u32 top, u32 stride) {
    let_successor_begin();
    wait_for_predecessor();
    scores = of_row(scores, size_t(gridDim.x) * stride);
    softmax_in_place(scores + size_t(blockIdx.x) * stride, attended(turn_of(turns).position, kpool, top).n);
}

// out[h] = the sum of weights[h][j] * row j in the order of j.
extern "C" __global__ void __launch_bounds__(MIX_THREADS, 1)
    attend_mix(const float* weights, const u8* rows, const u32* pools, const Turn* turns, const u8* gathered, float* out,
               u32 heads, u32 latent, u32 kpool, u32 top, u32 stride, u32 half) {
    let_successor_begin();
    wait_for_predecessor();
    weights = of_row(weights, size_t(heads) * stride), out = of_row(out, size_t(heads) * latent);
    gathered = of_row(gathered, gathered_bytes(latent, stride, half));
    const Turn turn = turn_of(turns);
    if (fast_attention(heads, latent)) {
        auto n = [&] { return attended(turn.position, kpool, top).n; };
        if (half) {
            mix_512<HalfRow>(weights, gathered, n, out, heads, stride);
        } else {
            mix_512<FloatRow>(weights, gathered, n, out, heads, stride);
        }
        return;
    }
    const Attended a = attended(turn.position, kpool, top);
    rows = in_slot(rows, turn), pools = of_row(pools, top);
    if (half) {
        mix_any<HalfRow>(weights, rows, pools, a, out, heads, latent, kpool, stride);
    } else {
        mix_any<FloatRow>(weights, rows, pools, a, out, heads, latent, kpool, stride);
    }
}
