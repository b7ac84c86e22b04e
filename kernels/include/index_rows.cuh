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

constexpr u32 EIGHT_INDEX_HEADS = 32;                           // at most
constexpr u32 AT_TURNED = 0;                                    // queries: an octet of heads of eight rows, 64 vectors, each
constexpr u32 TURNED_BYTES = INDEX_DIM * LEFT_ROW;
constexpr u32 AT_POOLS = EIGHT_INDEX_HEADS / TILE_LEFT * TURNED_BYTES;  // keys of 32 pools, twice
constexpr u32 POOLS_BYTES = INDEX_DIM * RIGHT_ROW;
constexpr u32 AT_COMING = AT_POOLS + 2 * POOLS_BYTES;           // as they lie: 16 bytes of a thread behind each other's
constexpr u32 AT_WEIGHTS = AT_COMING + POOLS_BYTES;
constexpr u32 EIGHT_INDEX_SHARED = AT_WEIGHTS + INDEX_ROWS * EIGHT_INDEX_HEADS * 4;

// Turns `from` to `end` of eight rows.
DEV void index_eight_group(const float* queries, u32 query_row, const float* weights, u32 weight_row, const float* pooled,
                           float* scores, u32 score_row, u32 first, u32 n, u32 heads, u32 kpool, u32 top, float scale,
                           u32 first_row, u32 from, u32 end) {
    const u32 tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const u32 most = pools_to_score(first + min(first_row + INDEX_ROWS, n) - 1, kpool, top);
    end = min(end, (most + EIGHT_RIGHT - 1) / EIGHT_RIGHT);
    if (from >= end) return;

    // Four elements of four pools.
    const u32 four = lane % 8, quad = warp * 4 + lane / 8, own_group = quad % OCTET, coming = AT_COMING + tid * 16;
    auto fetch = [&](u32 turn) {
        if (turn < end) {
#pragma unroll
            for (u32 m = 0; m < 4; m++) {
                const u32 pool = min(turn * EIGHT_RIGHT + four * 4 + (m ^ eight_order(own_group)), most - 1);
                const float* own = pooled + size_t(pool) * INDEX_DIM + quad * 4;
                copy16(smem + coming + m * EIGHT_THREADS * 16, reinterpret_cast<const u8*>(own));
            }
        }
        copies_end();
    };
    fetch(from);
    for (u32 i = tid; i < INDEX_ROWS * heads; i += EIGHT_THREADS) {
        shared_at<float>(AT_WEIGHTS + i * 4) = weights[size_t(min(first_row + i / heads, n - 1)) * weight_row + i % heads];
    }
    {
        const u32 g = (lane & 3) | (lane >> 1 & 4), tile = (lane >> 2 & 1) | (lane >> 3 & 2) | (warp & 1) << 2;
        const u32 upper = warp >> 1 & 1;
        const float* own = queries + size_t(min(first_row + tile, n - 1)) * query_row + upper * 4 * INDEX_DIM + g * 4;
        const bool whole = query_row % 4 == 0 && reinterpret_cast<size_t>(queries) % 16 == 0;
#pragma unroll 4
        for (u32 i = warp >> 2; i < heads / TILE_LEFT * INDEX_STEPS; i += 2) {
            const u32 octet = i / INDEX_STEPS, s = i % INDEX_STEPS;
            float4 v[4];
#pragma unroll
            for (u32 m = 0; m < 4; m++) {
                const float* at = own + (octet * TILE_LEFT + m) * INDEX_DIM + s * WARP;
                v[m] = whole ? *reinterpret_cast<const float4*>(at) : make_float4(at[0], at[1], at[2], at[3]);
            }
            eight_put_left(AT_TURNED + octet * TURNED_BYTES, s, g, tile, upper, v);
        }
    }

    const u32 left = AT_TURNED + eight_left_at(tid), right = AT_POOLS + eight_right_at(tid), tile = eight_left(tid);
    const u32 row = first_row + tile, own_pools = row < n ? pools_to_score(first + row, kpool, top) : 0;
    const u32 own = eight_right(tid) * 8 + eight_kept(eight_group(tid)), weight = AT_WEIGHTS + tile * heads * 4;
#pragma unroll 1
    for (u32 turn = from; turn < end; turn++) {
        copies_wait<0>();
        const u32 keys = turn % 2 * POOLS_BYTES;
        float4 v[4];
#pragma unroll
        for (u32 m = 0; m < 4; m++) v[m] = shared_at<float4>(coming + m * EIGHT_THREADS * 16);
        eight_put_right(AT_POOLS + keys, quad / OCTET, own_group, four / 2, four % 2, v);
        fetch(turn + 1);
        __syncthreads();
        float total = 0.0f;
#pragma unroll 1
        for (u32 octet = 0; octet < heads / TILE_LEFT; octet++) {
            float sum[8];
            eight_sums<INDEX_STEPS>(left + octet * TURNED_BYTES, right + keys, sum);
#pragma unroll
            for (u32 i = 0; i < TILE_LEFT; i++) {
                total = fmaf(shared_at<float>(weight + (octet * TILE_LEFT + i) * 4), not_negative(sum[i]), total);
            }
        }
        const u32 pool = turn * EIGHT_RIGHT + own;
        if (pool < own_pools) scores[size_t(row) * score_row + pool] = scale * total;
    }
}

// 32 pools are a turn; the turns of all groups of eight rows are one row that the blocks share evenly, so that a block may end
// with another group than it began with. A group's queries stay in shared memory, keys come a turn ahead; a thread turns those
// that it copied. After a tile's sums a thread is left with a row's eight heads and one pool, so the sum over heads stays in it
// and in their order.
DEV void index_eight_128(const float* queries, u32 query_row, const float* weights, u32 weight_row, const float* pooled,
                         float* scores, u32 score_row, u32 first, u32 n, u32 heads, u32 kpool, u32 top, float scale) {
    const u32 all = (pools_to_score(first + n - 1, kpool, top) + EIGHT_RIGHT - 1) / EIGHT_RIGHT;
    const u32 turns = (n + INDEX_ROWS - 1) / INDEX_ROWS * all, last = u32(u64(turns) * (blockIdx.x + 1) / gridDim.x);
    for (u32 at = u32(u64(turns) * blockIdx.x / gridDim.x); at < last;) {
        const u32 group = at / all, from = at % all, end = min(all, from + last - at);
        at += end - from;
        index_eight_group(queries, query_row, weights, weight_row, pooled, scores, score_row, first, n, heads, kpool, top, scale,
                          group * INDEX_ROWS, from, end);
        // Nobody reads what the next group writes.
        __syncthreads();
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
//
// A radix select on choice_key by one block, with the first HELD keys in registers.

constexpr u32 HELD_EACH = 16;
constexpr u32 HELD = HELD_EACH * CHOICE_THREADS;
constexpr u32 AT_MAPS = AT_GROUPS;
static_assert(CHOICE_SHARED == AT_MAPS + 2 * (HELD / WARP) * 4, "two maps");

DEV void clear_bins() {
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) shared_at<u32>(AT_BINS + i * 4) = 0;
    __syncthreads();
}

// Counts a digit of each lane. Many scores are often the same (an exact 0), so what equals the first lane's is added at once.
DEV void count_digit(u32 digit, bool counts) {
    const u32 lane = threadIdx.x % WARP, who = __ballot_sync(ALL, counts);
    if (who == 0) return;
    const u32 leader = __ffs(who) - 1, its = __shfl_sync(ALL, digit, leader);
    const u32 same = __ballot_sync(ALL, counts && digit == its);
    if (lane == leader) atomicAdd(&shared_at<u32>(AT_BINS + its * 4), u32(__popc(same)));
    if (counts && digit != its) atomicAdd(&shared_at<u32>(AT_BINS + digit * 4), 1u);
}

// The bin that holds the `want`-th largest of what was counted; `want` becomes its place within that bin. Begins and ends with a
// barrier. `want` is at least 1 and at most the number counted.
DEV u32 find_bin(u32& want) {
    __syncthreads();
    const u32 each = BINS / blockDim.x, top = BINS - 1 - threadIdx.x * each;
    u32 own = 0;
    for (u32 k = 0; k < each; k++) own += shared_at<u32>(AT_BINS + (top - k) * 4);
    u32 before = sum_before(own).x;
    if (before < want && want <= before + own) {
        for (u32 bin = top;; bin--) {
            const u32 here = shared_at<u32>(AT_BINS + bin * 4);
            if (want <= before + here) {
                shared_at<u32>(AT_FOUND) = bin;
                shared_at<u32>(AT_FOUND + 4) = want - before;
                break;
            }
            before += here;
        }
    }
    __syncthreads();
    want = shared_at<u32>(AT_FOUND + 4);
    return shared_at<u32>(AT_FOUND);
}

// The keys among which one block selects: the first HELD of them stay in registers.
template <typename Load>
struct Candidates {
    u32 held[HELD_EACH];
    u32 n;
    Load load;

    DEV void begin(Candidates& c) {
#pragma unroll
        for (u32 k = 0; k < HELD_EACH; k++) {
            const u32 i = k * CHOICE_THREADS + threadIdx.x;
            c.held[k] = i < c.n ? c.load(i) : 0;
        }
    }

    // `take(i, key, exists)` for whole warps at a time.
    template <typename Take>
    DEV void each(const Candidates& c, Take take) {
        const u32 lane = threadIdx.x % WARP;
#pragma unroll
        for (u32 k = 0; k < HELD_EACH; k++) {
            const u32 i = k * CHOICE_THREADS + threadIdx.x;
            if (i - lane < c.n) take(i, c.held[k], i < c.n);
        }
        for (u32 i = HELD + threadIdx.x; i - lane < c.n; i += CHOICE_THREADS) take(i, i < c.n ? c.load(i) : 0, i < c.n);
    }
};

// The key of the `want`-th largest candidate, and in `want` how many of those equal to it belong to the largest. Keys agree in
// the bits from `shift` + width of the first digit on.
template <typename Load>
DEV u32 select_key(const Candidates<Load>& candidates, u32 shift, u32 prefix, u32& want) {
    for (;;) {
        // Digits of 11, 11 and 10 bits.
        const u32 width = shift == 0 ? 10 : 11;
        clear_bins();
        Candidates<Load>::each(candidates, [&](u32, u32 key, bool exists) {
            const u32 above = shift + width == 32 ? 0 : key >> (shift + width);
            count_digit((key >> shift) & ((1u << width) - 1), exists && above == prefix);
        });
        prefix = prefix << width | find_bin(want);
        if (shift == 0) return prefix;
        shift = shift == 21 ? 10 : 0;
    }
}

// The best of a row, of any number of pools: maps of those that are chosen are made and written HELD pools at a time.
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
        const uint2 sums = sum_before(u32(__popc(above)) << 16 | u32(__popc(equal)));
        const u32 before = sums.x, all = sums.y;
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
