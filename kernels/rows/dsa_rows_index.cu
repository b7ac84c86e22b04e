// Scores of the pools for a chunk of new rows, and each row's choice of the best (model-spec 4.4). Row r is at position first + r;
// rows that see everything need neither, and nothing is written for them.
#include "index_rows.cuh"

// scores[r][p] of every complete pool of each of n rows; rows of queries, weights and scores are so many values apart. Blocks: 64
// pools, eight rows; of 256 threads with 177 KB of shared memory, for no more than 32 heads: any number that share the pools,
// eight rows.
extern "C" __global__ void __launch_bounds__(EIGHT_THREADS, 1)
    index_rows_scores(const float* queries, const float* weights, const float* pooled, float* scores, u32 query_row, u32 weight_row,
                      u32 score_row, u32 first, u32 n, u32 heads, u32 dim, u32 kpool, u32 top, float scale) {
    if (MAY_EIGHT && fast_index_rows(heads, dim) && blockDim.x == EIGHT_THREADS) {
        index_eight_128(queries, query_row, weights, weight_row, pooled, scores, score_row, first, n, heads, kpool, top, scale);
    } else if (fast_index_rows(heads, dim)) {
        index_rows_128(queries, query_row, weights, weight_row, pooled, scores, score_row, first, n, heads, kpool, top, scale);
    } else {
        index_rows_any(queries, query_row, weights, weight_row, pooled, scores, score_row, first, n, heads, dim, kpool, top, scale);
    }
}

// selected[r]: the `top` pools with the largest scores, ties to the lower index, ascending. A block a row.
extern "C" __global__ void __launch_bounds__(CHOICE_THREADS, 1)
    top_rows_choose(const float* scores, u32* selected, u32 score_row, u32 first, u32 kpool, u32 top) {
    const u32 row = blockIdx.x, pools = pools_to_score(first + row, kpool, top);
    if (pools > 0) choose_for_row(scores + size_t(row) * score_row, pools, top, selected + size_t(row) * top);
}
