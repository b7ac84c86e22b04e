// The router (model-spec 5.3), for a row of each sequence: logits, the choice of experts, and where these are.
#include "canon.cuh"
#include "order.cuh"
#include "turn.cuh"

constexpr u32 THREADS = 512;
constexpr u32 AHEAD = 4;  // parts of rows of which a warp has the weights before the vector is known

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
    u32 experts, width, k;
    float scale;
};

DEV float load_fresh(const float* from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
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
    __syncthreads();
    if (threadIdx.x < p.k) {
        float sum = 0.0f;
        for (u32 r = 0; r < p.k; r++) sum = sum + shared_at<float>(chosen + r * 4);
        p.weights[threadIdx.x] = shared_at<float>(chosen + threadIdx.x * 4) / (sum + 1e-20f) * p.scale;
    }
}

// Blocks share the experts' rows out; a warp takes parts of 256 weights. The block that ends last chooses. Shared memory: a float
// a part of the block's rows, or what `choose` needs.
extern "C" __global__ void __launch_bounds__(THREADS) router(Router p) {
    let_successor_begin();
    p.x = of_row(p.x, p.width), p.logits = of_row(p.logits, p.experts), p.ended = of_row(p.ended, 1);
    p.ids = of_row(p.ids, p.k), p.weights = of_row(p.weights, p.k), p.slots = of_row(p.slots, p.k);
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = THREADS / WARP;
    const u32 first = p.experts * blockIdx.x / gridDim.x, rows = p.experts * (blockIdx.x + 1) / gridDim.x - first;
    const u32 parts = blocks_of(p.width), stride = padded(parts), tasks = rows * parts;
    auto weights_of = [&](u32 task, float(&w)[BLOCK / WARP]) {
        const u32 at = task % parts * BLOCK + lane;
        const float* from = p.w + size_t(first + task / parts) * p.width + at;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) w[i] = task < tasks && at + i * WARP < p.width ? from[i * WARP] : 0.0f;
    };
    auto multiply = [&](u32 task, const float(&w)[BLOCK / WARP]) {
        const u32 at = task % parts * BLOCK + lane;
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) {
            if (at + i * WARP < p.width) sum = fmaf(w[i], p.x[at + i * WARP], sum);
        }
#pragma unroll
        for (u32 mask = 1; mask < WARP; mask *= 2) sum = sum + lane_xor(sum, mask);
        if (lane == 0) shared_at<float>((task / parts * stride + task % parts) * 4) = sum;
    };
    float ahead[AHEAD][BLOCK / WARP];
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) weights_of(warp + i * warps, ahead[i]);
    wait_for_predecessor();
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) {
        if (warp + i * warps < tasks) multiply(warp + i * warps, ahead[i]);
    }
    for (u32 task = warp + AHEAD * warps; task < tasks; task += warps) {
        weights_of(task, ahead[0]);
        multiply(task, ahead[0]);
    }
    tree_rows(0, rows, parts);
    for (u32 row = threadIdx.x; row < rows; row += blockDim.x) {
        p.logits[first + row] = shared_at<float>(row * stride * 4);
    }

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) shared_at<u32>(0) = atomicAdd(p.ended, 1) + 1 == gridDim.x;
    __syncthreads();
    if (!shared_at<u32>(0)) return;
    if (threadIdx.x == 0) *p.ended = 0;
    __threadfence();
    __syncthreads();
    choose(p);
}
