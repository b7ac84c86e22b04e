// Scores of the pools and the choice of the best (model-spec 4.4). A row that sees everything needs neither.
#include "indexer.cuh"

// scores[p] of every complete pool.
extern "C" __global__ void __launch_bounds__(INDEX_THREADS, 3)
    index_scores(const float* queries, const float* weights, const float* pooled, const u32* position, float* scores, u32 heads,
                 u32 dim, u32 kpool, u32 top, float scale) {
    let_successor_begin();
    wait_for_predecessor();
    if (sees_everything(*position, kpool, top)) return;
    const u32 pools = (*position + 1) / kpool;
    if (fast_index(heads, dim)) {
        index_scores_128(queries, weights, pooled, pools, scores, heads, scale);
    } else {
        index_scores_any(queries, weights, pooled, pools, scores, heads, dim, scale);
    }
}

// Where there are many pools: finds the upper bits of the top-th largest score.
extern "C" __global__ void __launch_bounds__(512, 1)
    top_count(const float* scores, const u32* position, u32* memory, u32 kpool, u32 top) {
    let_successor_begin();
    wait_for_predecessor();
    const u32 pools = (*position + 1) / kpool;
    if (sees_everything(*position, kpool, top) || pools <= HELD) return;
    count_all(scores, pools, top, memory);
}

// The `top` pools with the largest scores, ties to the lower index, ascending. `memory` is that of `top_count`, for up to
// `capacity` pools.
extern "C" __global__ void __launch_bounds__(CHOICE_THREADS, 1)
    top_choose(const float* scores, const u32* position, u32* selected, u32* memory, u32 kpool, u32 top, u32 capacity) {
    let_successor_begin();
    wait_for_predecessor();
    const u32 pools = (*position + 1) / kpool;
    if (sees_everything(*position, kpool, top)) return;
    if (pools > HELD) {
        choose_together(scores, pools, selected, memory, capacity);
    } else if (blockIdx.x == 0) {
        choose_alone(scores, pools, top, selected);
    }
}
