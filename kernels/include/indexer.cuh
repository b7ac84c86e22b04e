// What the indexer does with one new row (crates/glm-graph/src/indexer.rs, cpu/pools.rs; docs/ARITHMETIC.md): norms, pooled
// keys, scores of pools and the choice of the best.
#pragma once
#include "attend.cuh"

// A value that another block of this kernel wrote: past the first-level cache.
DEV u32 fresh(const u32* from) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// ---- norms

// The factor 1 / sqrt(x . x / n + eps) of an RMS norm, known to every thread of the block. `scratch`: a float a block of 256.
DEV float rms_factor(const float* x, u32 n, float eps, u32 scratch) {
    const u32 lane = threadIdx.x % WARP, blocks = (n + DOT_BLOCK - 1) / DOT_BLOCK;
    for (u32 b = threadIdx.x / WARP; b < blocks; b += blockDim.x / WARP) {
        const u32 first = b * DOT_BLOCK;
        const float sum = warp_block(min(n - first, DOT_BLOCK), [&](u32 i, float s) { return fmaf(x[first + i], x[first + i], s); });
        if (lane == 0) shared_at<float>(scratch + b * 4) = sum;
    }
    __syncthreads();
    const float squares = partial_tree(blocks, [&](u32 b) { return shared_at<float>(scratch + b * 4); });
    return 1.0f / sqrtf(squares / float(n) + eps);
}

// The sum of values in shared memory one after the other. It starts at -0, as Rust's does.
DEV float sum_in_order(u32 at, u32 n) {
    float sum = -0.0f;
    u32 i = 0;
    for (; i + 8 <= n; i += 8) {
        float x[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) x[k] = shared_at<float>(at + (i + k) * 4);
#pragma unroll
        for (u32 k = 0; k < 8; k++) sum = sum + x[k];
    }
    for (; i < n; i++) sum = sum + shared_at<float>(at + i * 4);
    return sum;
}

// ---- scores of pools

constexpr u32 INDEX_THREADS = 128;
constexpr u32 INDEX_DIM = 128;
constexpr u32 INDEX_HEADS = 8;    // of a warp
constexpr u32 INDEX_POOLS = 32;   // of a tile
constexpr u32 KEYS = INDEX_POOLS * INDEX_DIM * 4;
constexpr u32 PRODUCT_ROW = (INDEX_THREADS / WARP * INDEX_HEADS + 1) * 4;
constexpr u32 PRODUCTS = INDEX_POOLS * PRODUCT_ROW;
constexpr u32 INDEX_SHARED = 2 * KEYS + 2 * PRODUCTS;

DEV bool fast_index(u32 heads, u32 dim) {
    return dim == INDEX_DIM && heads % INDEX_HEADS == 0 && heads <= INDEX_THREADS / WARP * INDEX_HEADS;
}

// max(x, 0), except that a NaN stays.
DEV float not_negative(float x) { return x < 0.0f ? 0.0f : x; }

// Each of four warps keeps the queries of eight heads in registers. Eight lanes share a key and do four neighbouring lanes of
// the dot order each (elements 4i to 4i + 3 of every 32), so that two levels of the tree stay inside a lane and the other three
// go over eight heads at once. The sum over the heads has to be in their order: a lane does it for one pool, a tile later, so
// that one barrier a tile is enough.
DEV void index_scores_128(const float* queries, const float* weights, const float* pooled, u32 pools, float* scores, u32 heads,
                          float scale) {
    const u32 tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, own_key = lane / 8, place = lane % 8;
    const u32 first_head = warp * INDEX_HEADS;
    const bool works = first_head < heads;
    float4 q[INDEX_HEADS][4];
#pragma unroll
    for (u32 h = 0; h < INDEX_HEADS; h++) {
#pragma unroll
        for (u32 s = 0; s < 4; s++) {
            q[h][s] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (works) q[h][s] = *reinterpret_cast<const float4*>(queries + (first_head + h) * INDEX_DIM + s * WARP + place * 4);
        }
    }
    const u32 tiles = (pools + INDEX_POOLS - 1) / INDEX_POOLS;
    auto fetch = [&](u32 tile, u32 buffer) {
        if (tile < tiles) {
            const u32 count = min(INDEX_POOLS, pools - tile * INDEX_POOLS);
            const u8* from = reinterpret_cast<const u8*>(pooled) + size_t(tile) * KEYS;
            for (u32 i = tid; i < count * (INDEX_DIM / 4); i += INDEX_THREADS) copy16(smem + buffer * KEYS + i * 16, from + i * 16);
        }
        copies_end();
    };
    auto weigh = [&](u32 tile, u32 buffer) {
        const u32 pool = tile * INDEX_POOLS + lane, row = 2 * KEYS + buffer * PRODUCTS + lane * PRODUCT_ROW;
        float sum = 0.0f;
#pragma unroll 8
        for (u32 h = 0; h < heads; h++) sum = fmaf(weights[h], shared_at<float>(row + h * 4), sum);
        if (pool < pools) scores[pool] = scale * sum;
    };
    u32 turn = 0;
    fetch(blockIdx.x, 0);
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn++) {
        const u32 buffer = turn % 2;
        copies_wait<0>();
        __syncthreads();
        fetch(tile + gridDim.x, 1 - buffer);
        if (turn > 0 && warp == turn % (INDEX_THREADS / WARP)) weigh(tile - gridDim.x, 1 - buffer);
        if (!works) continue;
#pragma unroll 1
        for (u32 k = 0; k < INDEX_POOLS; k += 4) {
            const u32 key = buffer * KEYS + (k + own_key) * INDEX_DIM * 4 + place * 16;
            float4 x[4];
#pragma unroll
            for (u32 s = 0; s < 4; s++) x[s] = shared_at<float4>(key + s * WARP * 4);
            float sums[INDEX_HEADS];
#pragma unroll
            for (u32 h = 0; h < INDEX_HEADS; h++) {
                float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
#pragma unroll
                for (u32 s = 0; s < 4; s++) {
                    a = fmaf(q[h][s].x, x[s].x, a);
                    b = fmaf(q[h][s].y, x[s].y, b);
                    c = fmaf(q[h][s].z, x[s].z, c);
                    d = fmaf(q[h][s].w, x[s].w, d);
                }
                sums[h] = (a + b) + (c + d);
            }
            const float sum = join_lanes<INDEX_HEADS, 8>(sums);
            const u32 head = first_head + joined_index<INDEX_HEADS>(place);
            shared_at<float>(2 * KEYS + buffer * PRODUCTS + (k + own_key) * PRODUCT_ROW + head * 4) = not_negative(sum);
        }
    }
    __syncthreads();
    if (turn > 0 && warp == 0) weigh(blockIdx.x + (turn - 1) * gridDim.x, (turn - 1) % 2);
}

// Any sizes: a warp a pool.
DEV void index_scores_any(const float* queries, const float* weights, const float* pooled, u32 pools, float* scores, u32 heads,
                          u32 dim, float scale) {
    const u32 warps = blockDim.x / WARP;
    for (u32 p = blockIdx.x * warps + threadIdx.x / WARP; p < pools; p += gridDim.x * warps) {
        const float* key = pooled + size_t(p) * dim;
        float sum = 0.0f;
#pragma unroll 1
        for (u32 h = 0; h < heads; h++) {
            const float* query = queries + size_t(h) * dim;
            const float product = warp_sum(dim, [&](u32 i, float s) { return fmaf(query[i], key[i], s); });
            sum = fmaf(weights[h], not_negative(product), sum);
        }
        if (threadIdx.x % WARP == 0) scores[p] = scale * sum;
    }
}

// ---- the choice
//
// A radix select on keys whose order as unsigned numbers is that of rank_of. Up to HELD scores one block does everything. More
// are first counted by their upper 11 bits by many blocks, whose last one finds the bin that the k-th largest is in. In a
// second kernel all blocks mark scores above that bin as chosen and list those in it, and the last one selects in the list.
// Chosen scores are bits of a map over the pools, so the output comes out ascending whatever order blocks run in.

constexpr u32 CHOICE_THREADS = 1024;
constexpr u32 HELD_EACH = 16;
constexpr u32 HELD = HELD_EACH * CHOICE_THREADS;
constexpr u32 BINS = 2048;

// Words of the choice's memory, all zero before the first launch and again after each.
constexpr u32 COUNTED = 0, CHOSEN = 1;        // blocks that have ended
constexpr u32 LISTED = 2;                     // length of the list
constexpr u32 FOUND_BIN = 3, FOUND_WANT = 4;  // not zeroed: written before they are read
constexpr u32 HISTOGRAM = 64;
constexpr u32 MAPS = HISTOGRAM + BINS;        // above, equal: a bit a pool; then the list: keys, pools. Not zeroed either.

// Places in shared memory.
constexpr u32 AT_BINS = 0;
constexpr u32 AT_TOTALS = BINS * 4;           // of 32 warps
constexpr u32 AT_FOUND = AT_TOTALS + WARP * 4;
constexpr u32 AT_MAPS = AT_FOUND + 16;        // of the scores that one block holds
constexpr u32 CHOICE_SHARED = AT_MAPS + 2 * (HELD / WARP) * 4;
constexpr u32 COUNT_SHARED = AT_MAPS;

DEV u32 choice_key(float score) { return u32(rank_of(score)) ^ 0x80000000u; }

// What lies before this thread's value in the sum over the block's threads, and the whole sum.
DEV u32 sum_before(u32 value, u32& all) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    u32 sum = value;
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 left = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == WARP - 1) shared_at<u32>(AT_TOTALS + warp * 4) = sum;
    __syncthreads();
    u32 totals = lane < warps ? shared_at<u32>(AT_TOTALS + lane * 4) : 0;
    const u32 own = totals;
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 left = __shfl_up_sync(ALL, totals, step);
        if (lane >= step) totals += left;
    }
    all = __shfl_sync(ALL, totals, WARP - 1);
    const u32 before = __shfl_sync(ALL, totals - own, warp);
    __syncthreads();
    return before + sum - value;
}

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
    u32 own = 0, all;
    for (u32 k = 0; k < each; k++) own += shared_at<u32>(AT_BINS + (top - k) * 4);
    u32 before = sum_before(own, all);
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

// True for all threads of the block that ends last; what the others wrote can be read with `fresh`.
DEV bool ends_last(u32* ended) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) shared_at<u32>(AT_FOUND + 8) = atomicAdd(ended, 1u) == gridDim.x - 1;
    __syncthreads();
    const bool last = shared_at<u32>(AT_FOUND + 8);
    if (last) {
        __threadfence();
        if (threadIdx.x == 0) *ended = 0;
    }
    return last;
}

// Counts the upper digits of all scores and leaves the bin in `memory`.
DEV void count_all(const float* scores, u32 pools, u32 top, u32* memory) {
    clear_bins();
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i - threadIdx.x % WARP < pools; i += gridDim.x * blockDim.x) {
        const u32 key = i < pools ? choice_key(scores[i]) : 0;
        count_digit(key >> 21, i < pools);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) {
        const u32 count = shared_at<u32>(AT_BINS + i * 4);
        if (count > 0) atomicAdd(memory + HISTOGRAM + i, count);
    }
    if (!ends_last(memory + COUNTED)) return;
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) {
        shared_at<u32>(AT_BINS + i * 4) = fresh(memory + HISTOGRAM + i);
        memory[HISTOGRAM + i] = 0;
    }
    u32 want = top;
    const u32 bin = find_bin(want);
    if (threadIdx.x == 0) {
        memory[FOUND_BIN] = bin;
        memory[FOUND_WANT] = want;
    }
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

// Writes the pools of the map `above` and the first `ties` of the map `equal`, ascending.
template <typename Above, typename Equal>
DEV void write_chosen(u32 words, Above above, Equal equal, u32 ties, u32* selected) {
    u32 above_before = 0, equal_before = 0;
    for (u32 first = 0; first < words; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        u32 a = word < words ? above(word) : 0, e = word < words ? equal(word) : 0;
        // At most 2^15 bits a round, so both counts fit in one word.
        u32 all;
        const u32 before = sum_before(u32(__popc(a)) << 16 | u32(__popc(e)), all);
        u32 rank = above_before + (before >> 16), tie = equal_before + (before & 0xffffu);
        for (u32 both = a | e; both != 0; both &= both - 1) {
            const u32 bit = __ffs(both) - 1;
            const bool is_above = a >> bit & 1;
            if (is_above || tie < ties) selected[rank + min(tie, ties)] = word * WARP + bit;
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

// One block, pools up to any number (registers are enough up to HELD).
DEV void choose_alone(const float* scores, u32 pools, u32 top, u32* selected) {
    auto load = [&](u32 i) { return choice_key(scores[i]); };
    Candidates<decltype(load)> candidates = {{}, pools, load};
    candidates.begin(candidates);
    u32 ties = top;
    const u32 key = select_key(candidates, 21, 0, ties);
    const u32 words = (pools + WARP - 1) / WARP, equal = AT_MAPS + HELD / WARP * 4;
    Candidates<decltype(load)>::each(candidates, [&](u32 i, u32 own, bool exists) {
        const u32 above_word = __ballot_sync(ALL, exists && own > key), equal_word = __ballot_sync(ALL, exists && own == key);
        if (i % WARP == 0) {
            shared_at<u32>(AT_MAPS + i / WARP * 4) = above_word;
            shared_at<u32>(equal + i / WARP * 4) = equal_word;
        }
    });
    __syncthreads();
    write_chosen(
        words, [&](u32 w) { return shared_at<u32>(AT_MAPS + w * 4); }, [&](u32 w) { return shared_at<u32>(equal + w * 4); }, ties,
        selected);
}

// All blocks, after `count_all`.
DEV void choose_together(const float* scores, u32 pools, u32* selected, u32* memory, u32 capacity) {
    const u32 lane = threadIdx.x % WARP, words = (pools + WARP - 1) / WARP, map = (capacity + WARP - 1) / WARP;
    u32 *above = memory + MAPS, *equal = above + map, *keys = equal + map, *places = keys + capacity;
    const u32 bin = memory[FOUND_BIN];
    u32 ties = memory[FOUND_WANT];
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i - lane < pools; i += gridDim.x * blockDim.x) {
        const u32 key = i < pools ? choice_key(scores[i]) : 0;
        const bool here = i < pools && key >> 21 == bin;
        const u32 above_word = __ballot_sync(ALL, i < pools && key >> 21 > bin), here_word = __ballot_sync(ALL, here);
        u32 from = 0;
        if (lane == 0) {
            above[i / WARP] = above_word;
            equal[i / WARP] = 0;
            if (here_word != 0) from = atomicAdd(memory + LISTED, u32(__popc(here_word)));
        }
        from = __shfl_sync(ALL, from, 0);
        if (here) {
            const u32 place = from + u32(__popc(here_word & ((1u << lane) - 1)));
            keys[place] = key;
            places[place] = i;
        }
    }
    if (!ends_last(memory + CHOSEN)) return;
    const u32 listed = fresh(memory + LISTED);
    auto load = [&](u32 i) { return fresh(keys + i); };
    Candidates<decltype(load)> candidates = {{}, listed, load};
    candidates.begin(candidates);
    const u32 key = select_key(candidates, 10, bin, ties);
    Candidates<decltype(load)>::each(candidates, [&](u32 i, u32 own, bool exists) {
        if (!exists || own < key) return;
        const u32 pool = fresh(places + i);
        atomicOr((own > key ? above : equal) + pool / WARP, 1u << pool % WARP);
    });
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) memory[LISTED] = 0;
    write_chosen(
        words, [&](u32 w) { return fresh(above + w); }, [&](u32 w) { return fresh(equal + w); }, ties, selected);
}
