// Scores of the pools and the choice of the best (model-spec 4.4), for a row of each sequence. A row that sees everything needs
// neither. Rows have `capacity` scores.
#include "indexer.cuh"

// scores[p] of every complete pool, and how many have the same upper bits: `memory` is the choice's, `words` for each row. Queries are `query_width` values apart from row to row, weights `width`.
extern "C" __global__ void __launch_bounds__(INDEX_THREADS, 3)
    index_scores(const float* queries, const float* weights, const float* pooled, const Turn* turns, float* scores, u32* memory,
                 u32 words, u32 query_width, u32 width, u32 capacity, u32 heads, u32 dim, u32 kpool, u32 top, float scale) {
    let_successor_begin();
    wait_for_predecessor();
    const Turn turn = turn_of(turns);
    if (sees_everything(turn.position, kpool, top)) return;
    const u32 pools = (turn.position + 1) / kpool;
    queries = of_row(queries, query_width), weights = of_row(weights, width), scores = of_row(scores, capacity);
    pooled = in_slot(pooled, turn), memory = of_row(memory, words);
    if (fast_index(heads, dim)) {
        index_scores_128(queries, weights, pooled, pools, scores, memory, heads, scale);
    } else {
        index_scores_any(queries, weights, pooled, pools, scores, memory, heads, dim, scale);
    }
}

// The `top` pools with the largest scores, ties to the lower index, ascending. `memory` is that of `index_scores`, which had ended
// before the predecessor, a product that has nothing to do with this, let this kernel begin: so it runs beside that.
extern "C" __global__ void __launch_bounds__(CHOICE_THREADS, CHOICE_ROOM)
    top_choose(const float* scores, const Turn* turns, u32* selected, u32* memory, u32 kpool, u32 top, u32 capacity, u32 words) {
    let_successor_begin();
    scores = of_row(scores, capacity), selected = of_row(selected, top), memory = of_row(memory, words);
    clear_shared(AT_DIGITS, 3 * DIGIT / 4);
    choose_best(reinterpret_cast<const u32*>(scores), turns, kpool, top, selected, memory, capacity);
    // Whoever waits for this kernel's end relies on the end of all before it.
    wait_for_predecessor();
}
