// Which experts the rows of a span take (model-spec 5.3), and which rows an expert has.
#include "canon.cuh"

constexpr u32 THREADS = 128;

struct Routes {
    const float* logits;  // [rows][experts]
    const float* bias;    // [experts]
    u32* ids;             // [rows][k], in rank order
    float* weights;       // [rows][k]
    u32* uses;            // [experts]: counts of use
    u32 experts, k;
    float scale;
};

// A block a row; an expert's rank is the number of experts with a larger key. Shared memory: a key an expert, in whole twos, then a
// score a rank.
extern "C" __global__ void __launch_bounds__(THREADS) rows_route(Routes p) {
    const u32 pairs = (p.experts + 1) / 2, chosen = pairs * 16, row = blockIdx.x;
    const float* logits = p.logits + size_t(row) * p.experts;
    for (u32 e = threadIdx.x; e < 2 * pairs; e += THREADS) {
        shared_at<u64>(e * 8) = e < p.experts ? key_of(sigmoid(logits[e]) + p.bias[e], e) : 0;
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < p.experts; e += THREADS) {
        const u64 mine = shared_at<u64>(e * 8);
        u32 rank = 0;
#pragma unroll 4
        for (u32 i = 0; i < pairs; i++) {
            const ulonglong2 two = shared_at<ulonglong2>(i * 16);
            rank += u32(two.x > mine) + u32(two.y > mine);
        }
        if (rank < p.k) {
            shared_at<float>(chosen + rank * 4) = sigmoid(logits[e]);
            p.ids[size_t(row) * p.k + rank] = e;
            atomicAdd(p.uses + e, 1u);
        }
    }
    __syncthreads();
    for (u32 rank = threadIdx.x; rank < p.k; rank += THREADS) {
        float sum = 0.0f;
        for (u32 r = 0; r < p.k; r++) sum = sum + shared_at<float>(chosen + r * 4);
        p.weights[size_t(row) * p.k + rank] = shared_at<float>(chosen + rank * 4) / (sum + 1e-20f) * p.scale;
    }
}

// The pairs of a row and a rank, ordered by expert, then ascending. A block an expert counts what lies before it and lists its own.
// `begin[e]` is where expert e's begin.
extern "C" __global__ void __launch_bounds__(1024) rows_order(const u32* ids, u32 pairs, u32* order, u32* begin, u32 experts) {
    const u32 expert = blockIdx.x, tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, warps = blockDim.x / WARP;
    // Pairs with a lower expert, and each warp's own count in a round.
    constexpr u32 LESS = 0, COUNTS = WARP * 4;
    u32 less = 0;
    for (u32 i = tid; i < pairs; i += blockDim.x) less += ids[i] < expert;
    for (u32 mask = 1; mask < WARP; mask *= 2) less += lane_xor(less, mask);
    if (lane == 0) shared_at<u32>(LESS + warp * 4) = less;
    __syncthreads();
    u32 at = 0;
    for (u32 w = 0; w < warps; w++) at += shared_at<u32>(LESS + w * 4);
    if (tid == 0) begin[expert] = at;
    if (expert == experts - 1 && tid == 0) begin[experts] = pairs;
    for (u32 first = 0; first < pairs; first += blockDim.x) {
        const u32 i = first + tid;
        const bool own = i < pairs && ids[i] == expert;
        const u32 who = __ballot_sync(ALL, own);
        __syncthreads();
        if (lane == 0) shared_at<u32>(COUNTS + warp * 4) = __popc(who);
        __syncthreads();
        u32 before = 0, all = 0;
        for (u32 w = 0; w < warps; w++) {
            const u32 count = shared_at<u32>(COUNTS + w * 4);
            before += w < warp ? count : 0;
            all += count;
        }
        if (own) order[at + before + __popc(who & ((1u << lane) - 1))] = i;
        at += all;
    }
}

// Tiles of at most `width` pairs of one expert: {expert, first, count} each.
extern "C" __global__ void __launch_bounds__(1024) rows_tiles(const u32* begin, u32 experts, u32 width, u32* tiles, u32* n_tiles) {
    const u32 tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, warps = blockDim.x / WARP;
    u32 base = 0;
    for (u32 first = 0; first < experts; first += blockDim.x) {
        const u32 expert = first + tid, from = expert < experts ? begin[expert] : 0;
        const u32 count = expert < experts ? begin[expert + 1] - from : 0, own = (count + width - 1) / width;
        u32 sum = own;
        for (u32 step = 1; step < WARP; step *= 2) {
            const u32 left = __shfl_up_sync(ALL, sum, step);
            if (lane >= step) sum += left;
        }
        __syncthreads();
        if (lane == WARP - 1) shared_at<u32>(warp * 4) = sum;
        __syncthreads();
        u32 before = 0, all = 0;
        for (u32 w = 0; w < warps; w++) {
            const u32 its = shared_at<u32>(w * 4);
            before += w < warp ? its : 0;
            all += its;
        }
        for (u32 t = 0; t < own; t++) {
            u32* tile = tiles + 3 * (base + before + sum - own + t);
            tile[0] = expert, tile[1] = from + t * width, tile[2] = min(width, count - t * width);
        }
        base += all;
    }
    if (tid == 0) *n_tiles = base;
}

// y = the experts' outputs [rows][k][hidden] by their weights [rows][k], in rank order, + y [rows][hidden]. A thread has four values of
// row blockIdx.y.
extern "C" __global__ void __launch_bounds__(256) rows_combine(float* y, const float* experts, const float* weights, u32 hidden, u32 k) {
    const u32 row = blockIdx.y, h = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    float* const own = y + size_t(row) * hidden;
    const float *outputs = experts + size_t(row) * k * hidden, *shares = weights + size_t(row) * k;
    if (hidden % 4 == 0) {
        if (h >= hidden) return;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
        for (u32 r = 0; r < k; r++) {
            const float4 e = *reinterpret_cast<const float4*>(outputs + size_t(r) * hidden + h);
            const float w = shares[r];
            sum.x = sum.x + (w * e.x), sum.y = sum.y + (w * e.y), sum.z = sum.z + (w * e.z), sum.w = sum.w + (w * e.w);
        }
        const float4 shared = *reinterpret_cast<const float4*>(own + h);
        *reinterpret_cast<float4*>(own + h) = make_float4(sum.x + shared.x, sum.y + shared.y, sum.z + shared.z, sum.w + shared.w);
    } else {
        for (u32 i = h; i < min(h + 4, hidden); i++) {
            float sum = 0.0f;
            for (u32 r = 0; r < k; r++) sum = sum + (shares[r] * outputs[size_t(r) * hidden + i]);
            own[i] = sum + own[i];
        }
    }
}
