// The indexer over many new rows (indexer.cuh): scores of pools for rows that share the keys, and the choice by a block a row.
#pragma once
#include "indexer.cuh"
#include "tile_rows.cuh"

DEV bool fast_index_rows(u32 heads, u32 dim) { return dim == INDEX_DIM && heads % TILE_LEFT == 0; }

// Complete pools of the row at `position`, if it chooses among them.
DEV u32 pools_to_score(u32 position, u32 kpool, u32 top) {
    return sees_everything(position, kpool, top) ? 0 : (position + 1) / kpool;
}

// ---- scores

constexpr u32 INDEX_ROWS = TILE_SIDE / TILE_LEFT;               // rows of a block: eight rows of eight heads are a tile's left side
constexpr u32 INDEX_STEPS = INDEX_DIM / WARP;
constexpr u32 OCTET_BYTES = INDEX_STEPS * OCTET * TILE_ROW;     // an octet of 64 vectors
constexpr u32 AT_KEYS = 0;                                      // four octets
constexpr u32 AT_HEADS = OCTETS * OCTET_BYTES;                  // one octet, twice
constexpr u32 INDEX_ROWS_SHARED = AT_HEADS + 2 * OCTET_BYTES;

// Eight rows (of blockIdx.y) by 64 pools (of blockIdx.x). The pools' keys stay in shared memory, the rows' queries come in eight
// heads at a time, an octet ahead. A thread has all heads of its row and four pools, so the sum over heads stays in it and in
// their order.
DEV void index_rows_128(const float* queries, u32 query_row, const float* weights, u32 weight_row, const float* pooled,
                        float* scores, u32 score_row, u32 first, u32 n, u32 heads, u32 kpool, u32 top, float scale) {
    const u32 tid = threadIdx.x, first_row = blockIdx.y * INDEX_ROWS, first_pool = blockIdx.x * TILE_SIDE;
    const u32 most = pools_to_score(first + min(first_row + INDEX_ROWS, n) - 1, kpool, top);
    if (first_pool >= most) return;

    // Eight threads a vector, one for each lane of an octet.
    const u32 own = tid % OCTET, vector = tid / OCTET;
    {
        u8* to = smem + AT_KEYS + own * TILE_ROW + vector * 4;
#pragma unroll
        for (u32 v = 0; v < TILE_SIDE; v += TILE_THREADS / OCTET) {
            const float* from = pooled + size_t(min(first_pool + vector + v, most - 1)) * INDEX_DIM + own;
#pragma unroll
            for (u32 i = 0; i < INDEX_DIM / OCTET; i++) {
                const u32 octet = i % OCTETS, step = i / OCTETS;
                copy4(to + (octet * INDEX_STEPS + step) * OCTET * TILE_ROW + v * 4, from + i * OCTET);
            }
        }
    }
    auto fetch = [&](u32 turn) {
        if (turn < heads / TILE_LEFT * OCTETS) {
            u8* to = smem + AT_HEADS + turn % 2 * OCTET_BYTES + own * TILE_ROW + vector * 4;
            const u32 head = turn / OCTETS * TILE_LEFT + vector % TILE_LEFT;
#pragma unroll
            for (u32 v = 0; v < TILE_SIDE; v += TILE_THREADS / OCTET) {
                const u32 row = min(first_row + (vector + v) / TILE_LEFT, n - 1);
                const float* from = queries + size_t(row) * query_row + head * INDEX_DIM + turn % OCTETS * OCTET + own;
#pragma unroll
                for (u32 s = 0; s < INDEX_STEPS; s++) {
                    copy4(to + s * OCTET * TILE_ROW + v * 4, from + s * WARP);
                }
            }
        }
        copies_end();
    };

    const u32 row = first_row + tile_left(tid), pool = first_pool + tile_right(tid) * TILE_RIGHT;
    const u32 left_at = AT_HEADS + tile_left(tid) * TILE_LEFT * 4, right_at = AT_KEYS + tile_right(tid) * 16;
    const float* weight = weights + size_t(min(row, n - 1)) * weight_row;
    float total[TILE_RIGHT] = {};
    TileSums waiting[TILE_LEVELS];
    fetch(0);
#pragma unroll 1
    for (u32 turn = 0; turn < heads / TILE_LEFT * OCTETS; turn++) {
        copies_wait<0>();
        __syncthreads();
        fetch(turn + 1);
        const u8* left = smem + left_at + turn % 2 * OCTET_BYTES;
        const u8* right = smem + right_at + turn % OCTETS * OCTET_BYTES;
#pragma unroll 1
        for (u32 part = 0; part < OCTET_PARTS; part++) {
            const u32 at = part * PART_LANES * TILE_ROW;
            auto finish = [&](const TileSums& sum) {
#pragma unroll
                for (u32 i = 0; i < TILE_LEFT; i++) {
                    const float w = weight[turn / OCTETS * TILE_LEFT + i];
#pragma unroll
                    for (u32 j = 0; j < TILE_RIGHT; j++) total[j] = fmaf(w, not_negative(sum[i][j]), total[j]);
                }
            };
            tile_part<INDEX_STEPS, 16>(turn * OCTET_PARTS + part, left + at, right + at, waiting, finish);
        }
    }
    const u32 own_pools = row < n ? pools_to_score(first + row, kpool, top) : 0;
#pragma unroll
    for (u32 j = 0; j < TILE_RIGHT; j++) {
        if (pool + j < own_pools) scores[size_t(row) * score_row + pool + j] = scale * total[j];
    }
}

// Any sizes: a warp a pool and row.
DEV void index_rows_any(const float* queries, u32 query_row, const float* weights, u32 weight_row, const float* pooled,
                        float* scores, u32 score_row, u32 first, u32 n, u32 heads, u32 dim, u32 kpool, u32 top, float scale) {
    const u32 warps = blockDim.x / WARP;
    for (u32 row = blockIdx.y * INDEX_ROWS; row < min(n, (blockIdx.y + 1) * INDEX_ROWS); row++) {
        const u32 end = min(pools_to_score(first + row, kpool, top), (blockIdx.x + 1) * TILE_SIDE);
        for (u32 p = blockIdx.x * TILE_SIDE + threadIdx.x / WARP; p < end; p += warps) {
            const float* key = pooled + size_t(p) * dim;
            float sum = 0.0f;
#pragma unroll 1
            for (u32 h = 0; h < heads; h++) {
                const float* query = queries + size_t(row) * query_row + size_t(h) * dim;
                const float product = warp_sum(dim, [&](u32 i, float s) { return fmaf(query[i], key[i], s); });
                sum = fmaf(weights[size_t(row) * weight_row + h], not_negative(product), sum);
            }
            if (threadIdx.x % WARP == 0) scores[size_t(row) * score_row + p] = scale * sum;
        }
    }
}

// ---- the choice

// choose_alone for any number of pools: the maps of those that are chosen are made and written HELD pools at a time.
DEV void choose_for_row(const float* scores, u32 pools, u32 top, u32* selected) {
    auto load = [&](u32 i) { return choice_key(scores[i]); };
    Candidates<decltype(load)> candidates = {{}, pools, load};
    candidates.begin(candidates);
    u32 ties = top;
    const u32 key = select_key(candidates, 21, 0, ties), lane = threadIdx.x % WARP;
    constexpr u32 EQUAL = AT_MAPS + HELD / WARP * 4;
    u32 above_before = 0, equal_before = 0;
#pragma unroll 1
    for (u32 from = 0; from < pools; from += HELD) {
#pragma unroll
        for (u32 k = 0; k < HELD_EACH; k++) {
            const u32 i = k * CHOICE_THREADS + threadIdx.x;
            if (from + i - lane >= pools) break;
            const bool exists = from + i < pools;
            const u32 own = from == 0 ? candidates.held[k] : exists ? load(from + i) : 0;
            const u32 above = __ballot_sync(ALL, exists && own > key), equal = __ballot_sync(ALL, exists && own == key);
            if (lane == 0) {
                shared_at<u32>(AT_MAPS + i / WARP * 4) = above;
                shared_at<u32>(EQUAL + i / WARP * 4) = equal;
            }
        }
        __syncthreads();
        // A word a thread: HELD / WARP is no more than the threads.
        const u32 word = threadIdx.x;
        u32 above = 0, equal = 0;
        if (word < HELD / WARP && from + word * WARP < pools) {
            above = shared_at<u32>(AT_MAPS + word * 4);
            equal = shared_at<u32>(EQUAL + word * 4);
        }
        // At most 2^14 bits, so both counts fit in one word.
        u32 all;
        const u32 before = sum_before(u32(__popc(above)) << 16 | u32(__popc(equal)), all);
        u32 rank = above_before + (before >> 16), tie = equal_before + (before & 0xffffu);
        for (u32 both = above | equal; both != 0; both &= both - 1) {
            const u32 bit = __ffs(both) - 1;
            const bool is_above = above >> bit & 1;
            if (is_above || tie < ties) selected[rank + min(tie, ties)] = from + word * WARP + bit;
            if (is_above) {
                rank++;
            } else {
                tie++;
            }
        }
        above_before += all >> 16;
        equal_before += all & 0xffffu;
    }
}
