// What a launch is told: up to twenty matrices, and where their activations come from.
#pragma once
#include "activation.cuh"
#include "canon.cuh"

// The activations of a task, `k` values:
enum Kind : u32 {
    PLAIN,   // x
    SWIGLU,  // swiglu(x, x2, limit)
    GATED,   // per head of 128: the RMS norm of x with the weight x3 [128], times x2, the gate after its sigmoid
};

// rows x k weights times one vector. All activations are at multiples of 16 bytes. Weights are at a multiple of 8, or
// of their own size for floats; the sixteens of bytes that they share with others at both ends may be read.
struct Task {
    const u8* w;      // where the weights are; unless
    const u64* slot;  // their address stands here: then *slot + offset. It is there when the kernel before has ended, and
                      // of SWIGLU when the one before that has
    const float* x;
    const float* x2;
    const float* x3;
    float* y;
    u32 rows, k, row_bytes, offset, kind, format;
    float limit;
    u32 x_rows;  // rows that share x; the next ones take the next k values. 0: all of them
};

// Block b works on the task with first_block[t] <= b < first_block[t + 1], on rows_of_block[t] of its rows.
constexpr u32 MOST_TASKS = 20;
struct Tasks {
    Task task[MOST_TASKS];
    u32 first_block[MOST_TASKS + 1];
    u32 rows_of_block[MOST_TASKS];
    u32 n;
    // A row of each of several sequences is a z of the grid. So many entries, floats and floats further lie the next row's slots,
    // activations and results.
    u32 slots, xs, ys;
};

constexpr u32 HEAD = 128;
constexpr float HEAD_EPS = 1e-5f;

DEV void eight_floats(const float* from, float (&out)[8]) {
    const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// 1 / RMS of a head whose 128 values lie in sixteen neighbouring lanes, eight each; all of the sixteen call it. Lane j
// of dot order takes the values j, j + 32, j + 64, j + 96, which lie four lanes apart here: its sum goes from lane to
// lane.
DEV float head_factor(const float (&x)[8]) {
    const u32 lane = threadIdx.x % WARP, mine = 0xffffu << (lane & 16), at = lane % 16;
    float sum[8];
#pragma unroll
    for (int c = 0; c < 8; c++) sum[c] = fmaf(x[c], x[c], 0.0f);
#pragma unroll
    for (u32 step = 1; step < 4; step++) {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const float before = __shfl_up_sync(mine, sum[c], 4, 16);
            if (at / 4 == step) sum[c] = fmaf(x[c], x[c], before);
        }
    }
    float all = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    all = all + __shfl_xor_sync(mine, all, 1, 16);
    all = all + __shfl_xor_sync(mine, all, 2, 16);
    const float squares = __shfl_sync(mine, all, 12, 16);
    return 1.0f / sqrtf(squares / float(HEAD) + HEAD_EPS);
}

// What eight activations are made of: x, and x2 where the kind has it.
struct Raw {
    float x[8], x2[8];
};
DEV void fetch_raw(const Task& task, u32 i, Raw& raw) {
    eight_floats(task.x + i, raw.x);
    if (task.kind != PLAIN) eight_floats(task.x2 + i, raw.x2);
}

// swiglu, for eight at once.
DEV void eight_swiglu(const Raw& raw, float limit, float (&x)[8]) {
    float gate[8], below[8];
#pragma unroll
    for (int c = 0; c < 8; c++) {
        gate[c] = raw.x[c] > limit ? limit : raw.x[c];
        below[c] = 1.0f + canon_exp(-gate[c]);
    }
    quotients(gate, below, x);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float up = raw.x2[c] > limit ? limit : raw.x2[c];
        up = up < -limit ? -limit : up;
        x[c] = x[c] * up;
    }
}

// Values i to i + 8 of a task's activations. Lanes hold neighbouring eights, and sixteen lanes a head.
DEV void activations(const Task& task, u32 i, const Raw& raw, float (&x)[8]) {
    if (task.kind == SWIGLU) {
        eight_swiglu(raw, task.limit, x);
    } else if (task.kind == GATED) {
        float weight[8];
        eight_floats(task.x3 + i % HEAD, weight);
        const float factor = head_factor(raw.x);
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = ((raw.x[c] * factor) * weight[c]) * raw.x2[c];
    } else {
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = raw.x[c];
    }
}

// The weights' first byte; of a slot only if it is known.
DEV const u8* weights_of(const Task& task) {
    return task.slot ? reinterpret_cast<const u8*>(*static_cast<const volatile u64*>(task.slot)) + task.offset : task.w;
}

// Whether `weights_of` may be asked before `wait_for_predecessor`. An expert's second matrix takes what its first one made,
// so its slot was filled before the predecessor, a product that had the same slot, let this kernel begin.
DEV bool weights_are_known(const Task& task) { return !task.slot || task.kind == SWIGLU; }
