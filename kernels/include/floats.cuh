// Float weights times f32 activations in dot order (docs/ARITHMETIC.md): a warp a row, where it lies.
//
// Shared memory: the activations, round_up(k, 4) * 4 bytes. k is at most 131072.
#pragma once
#include "task.cuh"
#include "tree.cuh"
#include "ring.cuh"
#include "wide.cuh"

struct FloatFormat {
    static constexpr Family FAMILY = FLOAT;
};

struct F32 : FloatFormat {
    static constexpr u32 BYTES = 4;
    typedef float Word;
    DEV float value(float word) { return word; }
};

struct F16 : FloatFormat {
    static constexpr u32 BYTES = 2;
    typedef u16 Word;
    DEV float value(u16 word) { return half_value(word); }
};

struct Bf16 : FloatFormat {
    static constexpr u32 BYTES = 2;
    typedef u16 Word;
    DEV float value(u16 word) { return __uint_as_float(u32(word) << 16); }
};

constexpr u32 FLOATS = 256;  // elements of a partial sum
constexpr u32 GROUP = 16;    // partial sums whose lanes are added together

// This lane's part of one partial sum: elements lane, lane + 32, ... of those that exist.
template <typename F, bool WHOLE>
DEV float lane_part(const typename F::Word* w, u32 x, u32 n) {
    typename F::Word words[FLOATS / WARP];
#pragma unroll
    for (u32 i = 0; i < FLOATS / WARP; i++) {
        words[i] = 0;
        if (WHOLE || i * WARP + threadIdx.x % WARP < n) words[i] = w[i * WARP];
    }
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < FLOATS / WARP; i++) {
        if (WHOLE || i * WARP + threadIdx.x % WARP < n) {
            sum = fmaf(F::value(words[i]), shared_at<float>(x + i * WARP * 4), sum);
        }
    }
    return sum;
}

// One level of the lanes' tree for `2 * N` sums at once: lanes `mask` apart add, each for half of the sums. The lane
// whose bit is set keeps the upper half.
template <int N>
DEV void level(float (&sum)[GROUP], u32 mask) {
    const bool upper = threadIdx.x & mask;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float keep = upper ? sum[N + i] : sum[i], give = upper ? sum[i] : sum[N + i];
        sum[i] = keep + lane_xor(give, mask);
    }
}

// The sum over lanes of each of 16 parts: lane l has that of the part whose number is l's low four bits in reverse.
DEV float lanes_added(float (&part)[GROUP]) {
    level<8>(part, 1);
    level<4>(part, 2);
    level<2>(part, 4);
    level<1>(part, 8);
    return part[0] + lane_xor(part[0], 16);
}

// One row; every lane gets the result. `x` is where the activations are in shared memory.
template <typename F>
DEV float row_times(const u8* row, u32 k, u32 x) {
    const u32 lane = threadIdx.x % WARP;
    const u32 blocks = (k + FLOATS - 1) / FLOATS, groups = (blocks + GROUP - 1) / GROUP;
    const typename F::Word* const w = reinterpret_cast<const typename F::Word*>(row) + lane;
    const u32 levels = pow2(blocks);  // partial sums that are added, those that do not exist being +0
    float mine = 0.0f;                // a group's sum, in the lane of its number
    for (u32 g = 0; g < groups; g++) {
        const u32 from = g * GROUP * FLOATS, n = k - from;
        float part[GROUP];
        if (n >= GROUP * FLOATS) {
#pragma unroll
            for (u32 b = 0; b < GROUP; b++) {
                const u32 at = from + b * FLOATS;
                part[b] = lane_part<F, true>(w + at, x + (at + lane) * 4, FLOATS);
            }
        } else {
#pragma unroll
            for (u32 b = 0; b < GROUP; b++) {
                const u32 at = from + b * FLOATS;
                part[b] = at < k ? lane_part<F, false>(w + at, x + (at + lane) * 4, k - at) : 0.0f;
            }
        }
        float sum = lanes_added(part);
        // Neighbouring partial sums are 8 lanes apart, neighbouring pairs 4.
        if (levels > 1) sum = sum + lane_xor(sum, 8);
        if (levels > 2) sum = sum + lane_xor(sum, 4);
        if (levels > 4) sum = sum + lane_xor(sum, 2);
        if (levels > 8) sum = sum + lane_xor(sum, 1);
        if (lane == g) mine = sum;
    }
    return tree(mine, 1, pow2(groups));
}

// Moves a block's rows nearer before anything else is known. More than this of them would push each other out again.
DEV void fetch_ahead(const u8* from, u32 bytes) {
    for (u32 at = threadIdx.x * 128; at < min(bytes, 131072u); at += blockDim.x * 128) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
    }
}

template <typename F>
DEV void matvec_floats(const Task& task, u32 first, u32 rows) {
    if (weights_are_known(task)) fetch_ahead(weights_of(task) + size_t(first) * task.row_bytes, rows * task.row_bytes);
    wait_for_predecessor();
    let_successor_begin();
    if (task.kind == GATED) {
        for (u32 i = 8 * threadIdx.x; i < task.k; i += 8 * blockDim.x) {
            Raw raw;
            fetch_raw(task, i, raw);
            float x[8];
            activations(task, i, raw, x);
#pragma unroll
            for (u32 c = 0; c < 8; c++) shared_at<float>((i + c) * 4) = x[c];
        }
    } else {
        for (u32 i = threadIdx.x; i < task.k; i += blockDim.x) {
            shared_at<float>(i * 4) = task.kind == SWIGLU ? swiglu(task.x[i], task.x2[i], task.limit) : task.x[i];
        }
    }
    __syncthreads();
    const u8* const w = weights_of(task) + size_t(first) * task.row_bytes;
    for (u32 row = threadIdx.x / WARP; row < rows; row += blockDim.x / WARP) {
        const float y = row_times<F>(w + size_t(row) * task.row_bytes, task.k, 0);
        if (threadIdx.x % WARP == 0) task.y[first + row] = y;
    }
}
