// What the indexer does with one new row (crates/glm-graph/src/indexer.rs, cpu/pools.rs; docs/ARITHMETIC.md): norms, pooled
// keys, scores of pools and the choice of the best.
#pragma once
#include "attend.cuh"
#include "turn.cuh"

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

constexpr u32 BINS = 2048;
// Words of the choice's memory; those before MAPS are zero before the first launch and again after each choice.
constexpr u32 CHOSEN = 1;  // blocks that have ended
constexpr u32 HISTOGRAM = 64;

// A score's place in the order of the choice: ~choice_key(score), in fewer instructions; smaller is better.
DEV u32 order_of(float score) {
    const u32 word = __float_as_uint(score + 0.0f);
    return score != score ? ALL : word ^ (~u32(i32(word) >> 31) & 0x7fffffffu);
}

// Counts a warp's scores by their upper 11 bits, of the lanes that have one. Many are often alike (an exact 0), so what equals the
// first of them is added at once.
DEV void count_upper(u32* memory, float score, bool there) {
    const u32 lane = threadIdx.x % WARP, bin = order_of(score) >> 21, who = __ballot_sync(ALL, there);
    if (who == 0) return;
    const u32 leader = __ffs(who) - 1, its = __shfl_sync(ALL, bin, leader), same = __ballot_sync(ALL, there && bin == its);
    if (lane == leader) atomicAdd(memory + HISTOGRAM + its, u32(__popc(same)));
    if (there && bin != its) atomicAdd(memory + HISTOGRAM + bin, 1u);
}

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
DEV void index_scores_128(const float* queries, const float* weights, const float* pooled, u32 pools, float* scores, u32* memory,
                          u32 heads, float scale) {
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
        const float score = scale * sum;
        if (pool < pools) scores[pool] = score;
        count_upper(memory, score, pool < pools);
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
DEV void index_scores_any(const float* queries, const float* weights, const float* pooled, u32 pools, float* scores, u32* memory,
                          u32 heads, u32 dim, float scale) {
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
        const float score = scale * sum;
        if (threadIdx.x % WARP > 0) continue;
        scores[p] = score;
        atomicAdd(memory + HISTOGRAM + (order_of(score) >> 21), 1u);
    }
}

// ---- the choice
//
// A radix select on keys whose order as unsigned numbers is that of rank_of, turned round: the smallest are the best. The scores'
// kernel counts them by their upper 11 bits. In a second kernel every block looks up for itself the bin that the k-th best is in
// (8 KB that L2 has), and marks what lies before that bin and what is in it, a bit each. The block that ends last finds the
// k-th best among those in the bin, some percent of all as a rule, and writes the chosen ones ascending.
//
// Each launch meets cold instructions, since a layer has more code than the caches. 6,600 instructions in straight lines took 15 us
// for 8,192 pools, most of it waiting for the next one. So loops over pools are not unrolled, and what is needed more than once is
// a function that is called.

constexpr u32 CHOICE_THREADS = 1024;
// Blocks of that many threads that a processor must have room for: where it can, one begins beside those of the kernels before.
constexpr u32 CHOICE_ROOM = __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 ? 2 : 1;
constexpr u32 AHEAD = 4;     // scores of a thread that are under way
constexpr u32 ALONE = 8704;  // pools up to which one block marks all: more blocks were not quicker
constexpr u32 LISTED = BINS;  // of those in the bin, what shared memory holds
static_assert(CHOICE_THREADS >= BINS / 4, "a thread reads four bins");

// Of the choice's memory, behind what is zero.
constexpr u32 MAPS = HISTOGRAM + BINS;  // 32 pools before the bin, the same in it; after all of these a list of pools

// Places in shared memory.
constexpr u32 AT_BINS = 0;           // later the list
constexpr u32 AT_TOTALS = BINS * 4;  // of 32 warps
constexpr u32 AT_FOUND = AT_TOTALS + WARP * 4;
constexpr u32 AT_GROUPS = AT_FOUND + 16;  // counts of 16 bins each
constexpr u32 DIGIT = 128 * 4;
constexpr u32 AT_DIGITS = AT_GROUPS + DIGIT;  // three of 7 bits
constexpr u32 CHOICE_SHARED = AT_GROUPS + 4096;  // what the choice of rows (index_rows.cuh) takes; AT_DIGITS + 3 * DIGIT is less
static_assert(AT_DIGITS + 3 * DIGIT <= CHOICE_SHARED && AT_GROUPS % 16 == 0, "counts of digits are read by fours");

DEV u32 choice_key(float score) { return u32(rank_of(score)) ^ 0x80000000u; }

// What lies before this thread's value in the sum over the block's threads, and the whole sum. A function of its own: it is
// called three times, and a call is quicker than instructions that are not there yet.
static __device__ __noinline__ uint2 sum_before(u32 value) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    u32 sum = value;
#pragma unroll
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 left = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == WARP - 1) shared_at<u32>(AT_TOTALS + warp * 4) = sum;
    __syncthreads();
    u32 totals = lane < warps ? shared_at<u32>(AT_TOTALS + lane * 4) : 0;
    const u32 own = totals;
#pragma unroll
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 left = __shfl_up_sync(ALL, totals, step);
        if (lane >= step) totals += left;
    }
    const u32 all = __shfl_sync(ALL, totals, WARP - 1), before = __shfl_sync(ALL, totals - own, warp);
    __syncthreads();
    return make_uint2(before + sum - value, all);
}

DEV void clear_shared(u32 from, u32 words) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) shared_at<u32>(from + i * 4) = 0;
}

DEV float4 load_fresh4(const float* from) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    return v;
}

// Which of up to 128 counts in shared memory, `lanes` times four, the `want`-th of what they count is in; `want` becomes its
// place there. Each warp does it for itself, so that nobody waits.
static __device__ __noinline__ uint2 find_count(u32 at, u32 lanes, u32 want) {
    const u32 lane = threadIdx.x % WARP;
    uint4 own = make_uint4(0, 0, 0, 0);
    if (lane < lanes) own = shared_at<uint4>(at + lane * 16);
    const u32 two = own.x + own.y, three = two + own.z, sum = three + own.w;
    u32 upto = sum;
#pragma unroll
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 left = __shfl_up_sync(ALL, upto, step);
        if (lane >= step) upto += left;
    }
    const u32 its = __ffs(__ballot_sync(ALL, upto >= want)) - 1;
    // What only the lane that has it gets right.
    const u32 here = want - (upto - sum);
    const u32 index = lane * 4 + (here > own.x) + (here > two) + (here > three);
    const u32 before = here > three ? three : here > two ? two : here > own.x ? own.x : 0;
    return make_uint2(__shfl_sync(ALL, index, its), __shfl_sync(ALL, here - before, its));
}

// What the histogram counts, to shared memory, and the sums of 16 bins each.
DEV void fetch_counts(const u32* memory) {
    if (threadIdx.x >= BINS / 4) return;
    const float4 counts = load_fresh4(reinterpret_cast<const float*>(memory + HISTOGRAM) + threadIdx.x * 4);
    const u32 x = __float_as_uint(counts.x), y = __float_as_uint(counts.y), z = __float_as_uint(counts.z), w = __float_as_uint(counts.w);
    shared_at<uint4>(AT_BINS + threadIdx.x * 16) = make_uint4(x, y, z, w);
    u32 sum = x + y + z + w;
    sum += lane_xor(sum, 1);
    sum += lane_xor(sum, 2);
    if (threadIdx.x % 4 == 0) shared_at<u32>(AT_GROUPS + threadIdx.x) = sum;
}

// The bin of the `want`-th best: first among groups of 16.
DEV u32 find_upper(u32& want) {
    __syncthreads();
    u32 bin = 0;
#pragma unroll 1
    for (u32 level = 0; level < 2; level++) {
        const uint2 found = find_count(level == 0 ? AT_GROUPS : AT_BINS + bin * 64, level == 0 ? WARP : 4, want);
        bin = bin * 16 + found.x, want = found.y;
    }
    return bin;
}

// Orders what this thread knows of before what it does after, for all blocks. Lighter than __threadfence, which orders more.
DEV void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// True for all threads of the block that ends last of `parts`; what the others wrote before can then be read.
DEV bool ends_last(u32* ended, u32 parts) {
    __syncthreads();
    if (parts == 1) return true;
    if (threadIdx.x == 0) {
        // One thread's fence is enough: the barrier puts the others' writes before it.
        fence();
        const bool last = atomicAdd(ended, 1u) == parts - 1;
        if (last) {
            fence();
            *ended = 0;
        }
        shared_at<u32>(AT_FOUND) = last;
    }
    __syncthreads();
    return shared_at<u32>(AT_FOUND);
}

// A block's scores: of every CHOICE_THREADS that there are, each parts-th. This thread's first is at `own`.
struct Marks {
    u32 own, stride;
    u32 held[AHEAD];
};

DEV void begin_marks(Marks& m, const u32* scores, u32 capacity) {
#pragma unroll
    for (u32 k = 0; k < AHEAD; k++) {
        const u32 i = m.own + k * m.stride;
        m.held[k] = i < capacity ? fresh(scores + i) : 0;
    }
}

// Bits in `maps` for pools before the bin and in it.
DEV void write_marks(Marks& m, const u32* scores, u32 pools, u32 bin, uint2* maps) {
    const u32 lane = threadIdx.x % WARP;
    const u32* ahead = scores + m.own + AHEAD * m.stride;
    uint2* to = maps + m.own / WARP;
#pragma unroll 1
    for (u32 i = m.own; i - lane < pools; i += m.stride, ahead += m.stride, to += m.stride / WARP) {
        const u32 upper = order_of(bits(m.held[0])) >> 21;
#pragma unroll
        for (u32 k = 0; k + 1 < AHEAD; k++) m.held[k] = m.held[k + 1];
        m.held[AHEAD - 1] = i + AHEAD * m.stride < pools ? fresh(ahead) : 0;
        const u32 before = __ballot_sync(ALL, i < pools && upper < bin), in = __ballot_sync(ALL, i < pools && upper == bin);
        if (lane == 0) *to = make_uint2(before, in);
    }
}

// What the last block does. A thread has the units `first` to `end` of the maps, 8, 16 or 32 pools each, so that few pools are
// many threads' work, too. What is marked there as in the bin is in the list from `listed` on; all of it are `all`.
struct Last {
    const uint2* maps;
    u32* slots;
    u32 width, first, end, listed, all;
};

DEV Last last_of(const uint2* maps, u32 pools) {
    const u32 width = pools <= 8 * CHOICE_THREADS ? 3 : pools <= 16 * CHOICE_THREADS ? 4 : 5;
    const u32 units = (pools + (1u << width) - 1) >> width, each = (units + CHOICE_THREADS - 1) / CHOICE_THREADS;
    const u32 first = min(units, threadIdx.x * each);
    return {maps, nullptr, width, first, min(units, first + each), 0, 0};
}

DEV uint2 unit_of(const Last& last, u32 unit) {
    const u32 at = unit << last.width, mask = ALL >> (32 - (1u << last.width));
    const uint2 marks = last.maps[at / WARP];
    return make_uint2(marks.x >> at % WARP & mask, marks.y >> at % WARP & mask);
}

// Lists the pools in the bin, ascending.
DEV void list_marked(Last& last, u32* list) {
    u32 own = 0;
#pragma unroll 1
    for (u32 u = last.first; u < last.end; u++) own += u32(__popc(unit_of(last, u).y));
    const uint2 sums = sum_before(own);
    last.listed = sums.x, last.all = sums.y;
    last.slots = last.all <= LISTED ? &shared_at<u32>(AT_BINS) : list;
    u32 at = last.listed;
#pragma unroll 1
    for (u32 u = last.first; u < last.end; u++) {
#pragma unroll 1
        for (u32 in = unit_of(last, u).y; in != 0; in &= in - 1) last.slots[at++] = (u << last.width) + __ffs(in) - 1;
    }
    __syncthreads();
}

// The key of the `want`-th best in the list, all of which are in `bin`; `want` becomes how many of those equal to it are chosen,
// `equal` how many there are. Pools in the list give way to their keys.
DEV u32 select_listed(const Last& last, const u32* scores, u32 bin, u32& want, u32& equal) {
    u32 prefix = bin, digit = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < last.all; i += CHOICE_THREADS) last.slots[i] = order_of(bits(scores[last.slots[i]]));
#pragma unroll 1
    for (u32 round = 0; round < 3; round++) {
        const u32 shift = 14 - 7 * round, at = AT_DIGITS + round * DIGIT;
#pragma unroll 1
        for (u32 i = threadIdx.x; i < last.all; i += CHOICE_THREADS) {
            const u32 key = last.slots[i] >> shift;
            if (key >> 7 == prefix) atomicAdd(&shared_at<u32>(at + key % 128 * 4), 1u);
        }
        __syncthreads();
        const uint2 found = find_count(at, WARP, want);
        digit = found.x, want = found.y;
        prefix = prefix << 7 | digit;
    }
    equal = shared_at<u32>(AT_DIGITS + 2 * DIGIT + digit * 4);
    return prefix;
}

// Writes those before `key` and the first `ties` of the `equal` ones equal to it, ascending.
DEV void write_chosen(const Last& last, u32 key, u32 ties, u32 equal, u32* selected) {
    u32 at = last.listed, chosen = 0, own_ties = 0;
#pragma unroll 1
    for (u32 u = last.first; u < last.end; u++) {
        const uint2 marks = unit_of(last, u);
        chosen += u32(__popc(marks.x));
#pragma unroll 1
        for (const u32 end = at + u32(__popc(marks.y)); at < end; at++) {
            const u32 own = last.slots[at];
            chosen += own < key, own_ties += own == key;
        }
    }
    // Which ties come first matters only where not all of them are chosen.
    u32 left = own_ties;
    if (equal != ties) left = min(own_ties, ties - min(ties, sum_before(own_ties).x));
    u32 rank = sum_before(chosen + left).x;
    at = last.listed;
#pragma unroll 1
    for (u32 u = last.first; u < last.end; u++) {
        const uint2 marks = unit_of(last, u);
#pragma unroll 1
        for (u32 both = marks.x | marks.y; both != 0; both &= both - 1) {
            u32 own = 0;  // before any key that a score has
            if ((marks.y & both & (0u - both)) != 0) own = last.slots[at++];
            if (own > key || (own == key && left == 0)) continue;
            left -= own == key;
            selected[rank++] = (u << last.width) + __ffs(both) - 1;
        }
    }
}

// All blocks, after the scores have been counted. Counts of digits are 0. The position and the histogram come at the same time, and the scores
// while the bin is looked up.
DEV void choose_best(const u32* scores, const Turn* turns, u32 kpool, u32 top, u32* selected, u32* memory, u32 capacity) {
    const u32 position = turn_of(turns).position;
    fetch_counts(memory);
    if (sees_everything(position, kpool, top)) return;
    const bool alone = position + 1 < (ALONE + 1) * kpool;
    Marks marks = {blockIdx.x * CHOICE_THREADS + threadIdx.x, (alone ? 1 : gridDim.x) * CHOICE_THREADS, {}};
    begin_marks(marks, scores, capacity);
    const u32 pools = (position + 1) / kpool, parts = alone ? 1 : min(gridDim.x, (pools + CHOICE_THREADS - 1) / CHOICE_THREADS);
    if (blockIdx.x >= parts) return;

    u32 want = top, equal;
    const u32 bin = find_upper(want);
    uint2* maps = reinterpret_cast<uint2*>(memory + MAPS);
    write_marks(marks, scores, pools, bin, maps);
    if (!ends_last(memory + CHOSEN, parts)) return;
    if (threadIdx.x < BINS / 4) *reinterpret_cast<uint4*>(memory + HISTOGRAM + threadIdx.x * 4) = make_uint4(0, 0, 0, 0);
    Last last = last_of(maps, pools);
    list_marked(last, memory + MAPS + 2 * ((capacity + WARP - 1) / WARP));
    const u32 key = select_listed(last, scores, bin, want, equal);
    write_chosen(last, key, want, equal, selected);
}
