// The router (model-spec 5.3), for a row of each sequence: logits, the choice of experts, and where these are.
#include "canon.cuh"
#include "last.cuh"
#include "order.cuh"
#include "sinkhorn.cuh"
#include "turn.cuh"

constexpr u32 THREADS = 512;
constexpr u32 WARPS = THREADS / WARP;
constexpr u32 AHEAD = 3;      // rows of a part of which a warp has the weights before the vector is known
constexpr u32 FEW = THREADS;  // experts that `choose_few` takes at most, one a thread
constexpr u32 FEW_RANKS = WARP;

struct Router {
    const float* w;        // [experts][width]
    const float* x;        // [rows][width]
    float* logits;         // [rows][experts]
    const float* bias;     // [experts]
    const u64* table;      // [experts]: residency entries; an address in device memory with the kind in its low bits
    u32* ids;              // [rows][k], in rank order
    float* weights;        // [rows][k]
    u64* slots;            // [rows][k]: addresses
    u32* uses;             // [experts]: counts of use
    u32* ended;            // [rows]: blocks that have ended; 0 before and after
    float* gates;          // [rows][4 + 16]: those of the site before, where comb still is its logits; or null
    u32 experts, width, k;
    float scale;
    u32 sinkhorn;
    float hc_eps;
    u32 rows;
    u32 apart;             // `router_logits`: x was complete before the predecessor let it begin
};
static_assert(sizeof(Router) == 120, "crates/glm-graph/src/cuda/abi.rs");

// The weights of the chosen, whose scores lie in rank order at byte offset `chosen`. Begins with a barrier.
DEV void weigh(const Router& p, u32 chosen) {
    __syncthreads();
    if (threadIdx.x >= p.k) return;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 r = 0; r < p.k; r++) sum = sum + shared_at<float>(chosen + r * 4);
    p.weights[threadIdx.x] = shared_at<float>(chosen + threadIdx.x * 4) / (sum + 1e-20f) * p.scale;
}

// An expert's rank is the number of experts with a larger key, counted by all threads at once. Shared memory: a key an expert, in
// whole twos, then a score a rank.
DEV void choose(const Router& p) {
    const u32 pairs = (p.experts + 1) / 2, chosen = pairs * 16;
    for (u32 e = threadIdx.x; e < 2 * pairs; e += blockDim.x) {
        u64 key = 0;
        if (e < p.experts) key = key_of(sigmoid(load_fresh(p.logits + e)) + p.bias[e], e);
        shared_at<u64>(e * 8) = key;
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < p.experts; e += blockDim.x) {
        const u64 mine = shared_at<u64>(e * 8);
        u32 rank = 0;
#pragma unroll 4
        for (u32 i = 0; i < pairs; i++) {
            const ulonglong2 two = shared_at<ulonglong2>(i * 16);
            rank += u32(two.x > mine) + u32(two.y > mine);
        }
        if (rank < p.k) {
            shared_at<float>(chosen + rank * 4) = sigmoid(load_fresh(p.logits + e));
            p.ids[rank] = e;
            p.slots[rank] = p.table[e] & ~15ull;
            atomicAdd(p.uses + e, 1u);
        }
    }
    weigh(p, chosen);
}

DEV u32 larger(ulonglong2 two, u64 mine) { return u32(two.x > mine) + u32(two.y > mine); }

// The same, two steps for one: a warp orders its 32 keys, and only the best of each warp meet the others (72 keys for 288 where k
// is 8). A key has its expert's index, so those behind the last expert are the least. Shared memory: 32 keys a warp, then a score
// a rank.
DEV void choose_few(const Router& p, float bias) {
    const u32 e = threadIdx.x, lane = e % WARP, lists = (p.experts + WARP - 1) / WARP, chosen = lists * WARP * 8;
    const u32 list = e / WARP * WARP * 8;
    const bool there = e < p.experts;
    const float logit = there ? load_fresh(p.logits + e) : 0.0f;
    const u64 slot = there ? p.table[e] & ~15ull : 0;
    const float score = sigmoid(logit);
    const u64 key = there ? key_of(score + bias, e) : ALL - e;
    u32 rank_here = 0;
    if (e < lists * WARP) {
        shared_at<u64>(list + lane * 8) = key;
        __syncwarp();
#pragma unroll 4
        for (u32 i = 0; i < WARP / 2; i++) rank_here += larger(shared_at<ulonglong2>(list + i * 16), key);
        __syncwarp();
        shared_at<u64>(list + rank_here * 8) = key;
    }
    __syncthreads();
    if (e < lists * WARP) {
        // The best `most` of each warp, a power of two: their lanes share the lists out.
        const u32 most = max(padded(p.k), 8u), shift = __clz(most) - __clz(WARP), lanes = 1 << shift, pairs = most / 2 >> shift;
        const u64 best = shared_at<u64>(list + (lane >> shift) * 8);
        u32 rank = 0;
        for (u32 i = 0; i < pairs; i++) {
            const u32 at = ((lane & (lanes - 1)) + i * lanes) * 16;
#pragma unroll 3
            for (u32 from = 0; from < lists; from++) rank += larger(shared_at<ulonglong2>(from * WARP * 8 + at), best);
        }
        for (u32 mask = 1; mask < lanes; mask *= 2) rank += lane_xor(rank, mask);
        rank = __shfl_sync(ALL, rank, (rank_here << shift) % WARP);
        if (rank_here < p.k && rank < p.k) {
            shared_at<float>(chosen + rank * 4) = score;
            p.ids[rank] = e;
            p.slots[rank] = slot;
            atomicAdd(p.uses + e, 1u);
        }
    }
    weigh(p, chosen);
}

// A logit of the partial sums of a row of the block's, `parts` of them, by a warp.
DEV void put_logit(float* to, u32 row, u32 parts, u32 stride) {
    const u32 lane = threadIdx.x % WARP;
    float sum = lane < parts ? shared_at<float>((row * stride + lane) * 4) : 0.0f;
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) {
        const float other = lane_xor(sum, mask);
        if (mask < stride) sum = sum + other;
    }
    if (lane == 0) *to = sum;
}

// A part of a row or of the vector, as the lanes have it in dot order; what does not exist is 0.
DEV void part_of(const Router& p, const float* from, u32 part, bool there, float (&v)[BLOCK / WARP]) {
    const u32 at = part * BLOCK + threadIdx.x % WARP;
#pragma unroll
    for (u32 i = 0; i < BLOCK / WARP; i++) v[i] = there && at + i * WARP < p.width ? from[at + i * WARP] : 0.0f;
}

// A part's sums of some rows. Side by side: one row's sum over lanes is five waits for a shuffle.
DEV void sums_of_part(const Router& p, const float (&w)[AHEAD][BLOCK / WARP], const float (&x)[BLOCK / WARP], u32 part,
                      float (&sum)[AHEAD]) {
#pragma unroll
    for (u32 r = 0; r < AHEAD; r++) {
        sum[r] = 0.0f;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) {
            if (part * BLOCK + i * WARP + threadIdx.x % WARP < p.width) sum[r] = fmaf(w[r][i], x[i], sum[r]);
        }
    }
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) {
#pragma unroll
        for (u32 r = 0; r < AHEAD; r++) sum[r] = sum[r] + lane_xor(sum[r], mask);
    }
}

// Blocks share the experts' rows out; a warp has parts of 256 weights, and so many rows of them. The block that ends last chooses.
// Shared memory: a float a part of the block's rows, or what choosing needs. With gates there is one block more, for them.
extern "C" __global__ void __launch_bounds__(THREADS) router(Router p) {
    let_successor_begin();
    const u32 blocks = gridDim.x - (p.gates ? 1 : 0);
    if (blockIdx.x == blocks) return finish_gates(of_row(p.gates, 20), p.sinkhorn, p.hc_eps);
    p.x = of_row(p.x, p.width), p.logits = of_row(p.logits, p.experts), p.ended = of_row(p.ended, 1);
    p.ids = of_row(p.ids, p.k), p.weights = of_row(p.weights, p.k), p.slots = of_row(p.slots, p.k);
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32 first = p.experts * blockIdx.x / blocks, rows = p.experts * (blockIdx.x + 1) / blocks - first;
    const u32 parts = blocks_of(p.width), stride = padded(parts), beside = min(stride, WARPS);
    const u32 shift = __clz(1) - __clz(beside), row = warp >> shift, step = WARPS >> shift;
    const float bias = threadIdx.x < p.experts ? p.bias[threadIdx.x] : 0.0f;
    // What the last block reads of it comes from the second level cache.
    if (blockIdx.x == 0 && threadIdx.x < p.experts) prefetch(p.table + threadIdx.x);
    prefetch(p.ended);
    prefetch(p.x);
#pragma unroll 1
    for (u32 part = warp & (beside - 1); part < parts; part += beside) {
#pragma unroll 1
        for (u32 from = row; from < rows; from += AHEAD * step) {
            float w[AHEAD][BLOCK / WARP], x[BLOCK / WARP];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 r = from + i * step;
                part_of(p, p.w + size_t(first + r) * p.width, part, r < rows, w[i]);
            }
            // Nothing to wait for but the first time.
            wait_for_predecessor();
            part_of(p, p.x, part, true, x);
            float sum[AHEAD];
            sums_of_part(p, w, x, part, sum);
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 r = from + i * step;
                if (lane == 0 && r < rows) shared_at<float>((r * stride + part) * 4) = sum[i];
            }
        }
    }
    wait_for_predecessor();
    if (parts <= WARP) {
        __syncthreads();
        for (u32 r = warp; r < rows; r += WARPS) put_logit(p.logits + first + r, r, parts, stride);
    } else {
        tree_rows(0, rows, parts);
        for (u32 r = threadIdx.x; r < rows; r += THREADS) p.logits[first + r] = shared_at<float>(r * stride * 4);
    }
    if (!is_last(p.ended, blocks)) return;
    if (p.experts <= FEW && p.k <= FEW_RANKS) {
        choose_few(p, bias);
    } else {
        choose(p);
    }
}

// The logits of all rows, so that a weight is read once for them; `router_choose` comes after it. Shared memory: a float a part of
// the block's rows of each row of the pass.
extern "C" __global__ void __launch_bounds__(THREADS, 2) router_logits(Router p) {
    let_successor_begin();
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32 first = p.experts * blockIdx.x / gridDim.x, rows = p.experts * (blockIdx.x + 1) / gridDim.x - first;
    const u32 parts = blocks_of(p.width), stride = padded(parts), beside = min(stride, WARPS);
    const u32 shift = __clz(1) - __clz(beside), row = warp >> shift, step = WARPS >> shift;
#pragma unroll 1
    for (u32 part = warp & (beside - 1); part < parts; part += beside) {
#pragma unroll 1
        for (u32 from = row; from < rows; from += AHEAD * step) {
            float w[AHEAD][BLOCK / WARP], x[BLOCK / WARP];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 r = from + i * step;
                part_of(p, p.w + size_t(first + r) * p.width, part, r < rows, w[i]);
            }
            if (!p.apart) wait_for_predecessor();
            part_of(p, p.x, part, true, x);
#pragma unroll 1
            for (u32 of = 0; of < p.rows; of++) {
                // The next row's vector comes while this one is multiplied.
                float next[BLOCK / WARP], sum[AHEAD];
                part_of(p, p.x + size_t(of + 1) * p.width, part, of + 1 < p.rows, next);
                sums_of_part(p, w, x, part, sum);
#pragma unroll
                for (u32 i = 0; i < AHEAD; i++) {
                    const u32 r = from + i * step;
                    if (lane == 0 && r < rows) shared_at<float>(((of * rows + r) * stride + part) * 4) = sum[i];
                }
#pragma unroll
                for (u32 i = 0; i < BLOCK / WARP; i++) x[i] = next[i];
            }
        }
    }
    // Also because whoever waits for this kernel's end relies on the end of all before it.
    wait_for_predecessor();
    const u32 all = rows * p.rows;
    auto place = [&](u32 i) { return p.logits + size_t(i / rows) * p.experts + first + i % rows; };
    if (parts <= WARP) {
        __syncthreads();
        for (u32 i = warp; i < all; i += WARPS) put_logit(place(i), i, parts, stride);
    } else {
        tree_rows(0, all, parts);
        for (u32 i = threadIdx.x; i < all; i += THREADS) *place(i) = shared_at<float>(i * stride * 4);
    }
}

// What `router` does after the logits, a block a row of the pass; with gates there is a second one for them.
extern "C" __global__ void __launch_bounds__(THREADS) router_choose(Router p) {
    if (blockIdx.x == 1) return finish_gates(of_row(p.gates, 20), p.sinkhorn, p.hc_eps);
    p.logits = of_row(p.logits, p.experts);
    p.ids = of_row(p.ids, p.k), p.weights = of_row(p.weights, p.k), p.slots = of_row(p.slots, p.k);
    const float bias = threadIdx.x < p.experts ? p.bias[threadIdx.x] : 0.0f;
    if (threadIdx.x < p.experts) prefetch(p.table + threadIdx.x);
    wait_for_predecessor();
    // When the successor runs, all that came before this kernel has ended.
    let_successor_begin();
    if (p.experts <= FEW && p.k <= FEW_RANKS) {
        choose_few(p, bias);
    } else {
        choose(p);
    }
}
