// The router's choice (model-spec 5.3) and where the chosen experts are.
#include "canon.cuh"

constexpr u32 THREADS = 256;

struct Route {
    const float* logits;   // [experts]
    const float* bias;     // [experts]
    const u64* table;      // [experts]: residency entries; an address in device memory with the kind in its low bits
    u32* ids;              // [k], in rank order
    float* weights;        // [k]
    u64* slots;            // [k]: addresses
    u32* uses;             // [experts]: counts of use
    u32 experts, k;
    float scale;
};

// Larger is better: the rank of a score above, the lower expert first.
DEV u64 key_of(float score, u32 expert) { return u64(u32(rank_of(score)) ^ 0x80000000u) << 32 | (0xffffffffu - expert); }

extern "C" __global__ void __launch_bounds__(THREADS) route(Route p) {
    let_successor_begin();
    // Scores, then each warp's best.
    const u32 scores = 0, best = (p.experts * 4 + 15) / 16 * 16;
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    wait_for_predecessor();
    for (u32 e = threadIdx.x; e < p.experts; e += blockDim.x) {
        shared_at<float>(scores + e * 4) = sigmoid(p.logits[e]);
    }
    __syncthreads();
    u64 last = ~0ull;
    float sum = 0.0f;
    float mine = 0.0f;
    for (u32 rank = 0; rank < p.k; rank++) {
        u64 key = 0;
        for (u32 e = threadIdx.x; e < p.experts; e += blockDim.x) {
            const u64 other = key_of(shared_at<float>(scores + e * 4) + p.bias[e], e);
            if (other < last && other > key) key = other;
        }
        for (u32 mask = 1; mask < WARP; mask *= 2) {
            const u64 other = __shfl_xor_sync(ALL, key, mask);
            key = other > key ? other : key;
        }
        if (lane == 0) shared_at<u64>(best + warp * 8) = key;
        __syncthreads();
        for (u32 w = 0; w < THREADS / WARP; w++) {
            const u64 other = shared_at<u64>(best + w * 8);
            key = other > key ? other : key;
        }
        __syncthreads();
        last = key;
        const u32 expert = 0xffffffffu - u32(key);
        const float score = shared_at<float>(scores + expert * 4);
        sum = sum + score;
        if (threadIdx.x == rank) {
            mine = score;
            p.ids[rank] = expert;
            p.slots[rank] = p.table[expert] & ~15ull;
            p.uses[expert] += 1;
        }
    }
    if (threadIdx.x < p.k) p.weights[threadIdx.x] = mine / (sum + 1e-20f) * p.scale;
}
