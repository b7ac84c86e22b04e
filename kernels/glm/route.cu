// The router's choice (model-spec 5.3) and where the chosen experts are.
#include "canon.cuh"

constexpr u32 THREADS = 512;

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

// Larger is better: the rank of a score above, the lower expert first. No two are equal.
DEV u64 key_of(float score, u32 expert) { return u64(u32(rank_of(score)) ^ 0x80000000u) << 32 | (ALL - expert); }

// One block. An expert's rank is the number of experts with a larger key, counted by all threads at once. Shared memory: a key
// an expert, in whole twos, then a score a rank.
extern "C" __global__ void __launch_bounds__(THREADS) route(Route p) {
    let_successor_begin();
    const u32 pairs = (p.experts + 1) / 2, chosen = pairs * 16;
    wait_for_predecessor();
    for (u32 e = threadIdx.x; e < 2 * pairs; e += blockDim.x) {
        u64 key = 0;
        if (e < p.experts) key = key_of(sigmoid(p.logits[e]) + p.bias[e], e);
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
            shared_at<float>(chosen + rank * 4) = sigmoid(p.logits[e]);
            p.ids[rank] = e;
            p.slots[rank] = p.table[e] & ~15ull;
            p.uses[e] += 1;
        }
    }
    __syncthreads();
    if (threadIdx.x < p.k) {
        float sum = 0.0f;
        for (u32 r = 0; r < p.k; r++) sum = sum + shared_at<float>(chosen + r * 4);
        p.weights[threadIdx.x] = shared_at<float>(chosen + threadIdx.x * 4) / (sum + 1e-20f) * p.scale;
    }
}
