// Delta attention (model-spec 3.1) over the rows of a span: what does not depend on the row before, in parallel; the recurrence, a
// head's columns through all rows; the gated norm, in parallel. The order of every operation is that of glm/kda.cu, row after row.
#include "dots.cuh"
#include "kda_rows.cuh"
#include "order.cuh"

DEV void check(const KdaRows& p, u32 row, float value) {
    if (!(fabsf(value) < bits(0x7f800000u)) && p.faults[row] == 0) p.faults[row] = p.code;
}

// ---- heads of 128 with four taps

constexpr u32 PER_LANE = D / WARP;

constexpr u32 CHUNK = 16;  // rows of a block; the three before are read again, so few would cost reads
constexpr u32 BATCH = 4;   // rows that a warp has on their way at once

// A block has a head and a chunk of rows. Three warps make q, k and v, the fourth the decay and beta. A lane has the channels
// lane, lane + 32, ..., as in dot order.
extern "C" __global__ void __launch_bounds__(128) kda_rows_prepare128(KdaRows p) {
    const u32 part = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.x, all = p.heads * D;
    const u32 begin = blockIdx.y * CHUNK, end = min(begin + CHUNK, p.rows), channel = head * D + lane;
    if (part == 3) {
        float bias[PER_LANE];
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++) bias[i] = p.bias[channel + i * WARP];
        const float scale_of_head = p.decay[head];
        if (begin + lane < end) {
            float* beta = p.beta + size_t(begin + lane) * p.first_width + head;
            *beta = sigmoid(*beta);
        }
#pragma unroll 1
        for (u32 row = begin; row < end; row += BATCH) {
            float x[BATCH][PER_LANE];
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                const float* from = p.forget + size_t(min(row + b, end - 1)) * p.second_width + channel;
#pragma unroll
                for (u32 i = 0; i < PER_LANE; i++) x[b][i] = from[i * WARP];
            }
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                float* to = p.forget + size_t(row + b) * p.second_width + channel;
#pragma unroll
                for (u32 i = 0; i < PER_LANE; i++) {
                    const float factor = canon_exp(sigmoid(scale_of_head * (x[b][i] + bias[i])) * p.bound);
                    if (row + b < end) to[i * WARP] = factor;
                }
            }
        }
        return;
    }

    float4 taps[PER_LANE];
    float x[3 + BATCH][PER_LANE];  // a batch and the three inputs before
#pragma unroll
    for (u32 i = 0; i < PER_LANE; i++) {
        const size_t own = size_t(part) * all + channel + i * WARP;
        taps[i] = *reinterpret_cast<const float4*>(p.taps + own * 4);
#pragma unroll
        for (u32 j = 0; j < 3; j++) {
            x[j][i] = begin == 0 ? state_before(p)[p.history + own * 3 + j] : p.raw[size_t(begin - 3 + j) * p.first_width + own];
        }
    }
    const float* raw = p.raw + size_t(part) * all + channel;
    float* ready = p.ready + size_t(part) * all + channel;
    const float scale = 1.0f / sqrtf(float(D));
#pragma unroll 1
    for (u32 row = begin; row < end; row += BATCH) {
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            const float* from = raw + size_t(min(row + b, end - 1)) * p.first_width;
#pragma unroll
            for (u32 i = 0; i < PER_LANE; i++) x[3 + b][i] = from[i * WARP];
        }
        float value[BATCH][PER_LANE], squares[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            squares[b] = 0.0f;
#pragma unroll
            for (u32 i = 0; i < PER_LANE; i++) {
                float sum = taps[i].x * x[b][i];
                sum = sum + (taps[i].y * x[b + 1][i]);
                sum = sum + (taps[i].z * x[b + 2][i]);
                sum = sum + (taps[i].w * x[b + 3][i]);
                value[b][i] = silu(sum);
                squares[b] = fmaf(value[b][i], value[b][i], squares[b]);
            }
        }
        if (part < 2) {
            // The four sums are in the lanes of `joined_index`, and so are their factors.
            const float sum = join_lanes<BATCH, WARP>(squares);
            float factor = 1.0f / sqrtf(sum + L2_EPS);
            if (part == 0) factor = factor * scale;
#pragma unroll
            for (u32 b = 0; b < BATCH; b++) {
                const float own = __shfl_sync(ALL, factor, b / 2 + b % 2 * 2);
#pragma unroll
                for (u32 i = 0; i < PER_LANE; i++) value[b][i] = value[b][i] * own;
            }
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            if (row + b < end) {
#pragma unroll
                for (u32 i = 0; i < PER_LANE; i++) ready[size_t(row + b) * 3 * all + i * WARP] = value[b][i];
            }
        }
#pragma unroll
        for (u32 j = 0; j < 3; j++) {
#pragma unroll
            for (u32 i = 0; i < PER_LANE; i++) x[j][i] = x[BATCH + j][i];
        }
    }
}

// Block 2h and 2h + 1 have the columns of head h.
extern "C" __global__ void __launch_bounds__(SCAN_THREADS) kda_rows_scan128(KdaRows p) { scan_128(p); }

constexpr u32 GATE_THREADS = 256;

// A warp has a head of a row.
extern "C" __global__ void __launch_bounds__(GATE_THREADS) kda_rows_gate128(KdaRows p) {
    const u32 lane = threadIdx.x % WARP, all = p.heads * D;
    const u32 head = blockIdx.y * (GATE_THREADS / WARP) + threadIdx.x / WARP, row = blockIdx.x, channel = head * D + lane;
    if (head >= p.heads) return;
    float* out = p.out + size_t(row) * all + channel;
    const float* gates = p.gate + size_t(row) * p.second_width + channel;
    float x[PER_LANE], gate[PER_LANE], sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < PER_LANE; i++) x[i] = out[i * WARP], gate[i] = gates[i * WARP];
#pragma unroll
    for (u32 i = 0; i < PER_LANE; i++) sum = fmaf(x[i], x[i], sum);
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) sum = sum + lane_xor(sum, mask);
    const float factor = 1.0f / sqrtf(sum / float(D) + p.rms_eps);
#pragma unroll
    for (u32 i = 0; i < PER_LANE; i++) {
        const float value = ((x[i] * factor) * p.norm[lane + i * WARP]) * sigmoid(gate[i]);
        check(p, row, value);
        out[i * WARP] = value;
    }
}

// ---- heads of any width, any number of taps: a block has a head, and a row where rows do not depend on each other

constexpr u32 THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS) kda_rows_prepare(KdaRows p) {
    const u32 d = p.d, row = blockIdx.x, head = blockIdx.y, all = p.heads * d, past = p.taps_n - 1;
    const u32 q = 0, k = d * 4, scratch = 2 * d * 4;
    float* ready = p.ready + size_t(row) * 3 * all + head * d;
    for (u32 i = threadIdx.x; i < 3 * d; i += blockDim.x) {
        const u32 part = i / d, channel = part * all + head * d + i % d;
        const float* history = state_before(p) + p.history + size_t(channel) * past;
        const float* taps = p.taps + size_t(channel) * p.taps_n;
        auto input = [&](u32 j) {
            return row + j < past ? history[row + j] : p.raw[size_t(row + j - past) * p.first_width + channel];
        };
        float sum = taps[0] * input(0);
        for (u32 j = 1; j < p.taps_n; j++) sum = sum + (taps[j] * input(j));
        const float value = silu(sum);
        if (part < 2) {
            shared_at<float>(i * 4) = value;
        } else {
            ready[2 * all + i % d] = value;
        }
    }
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
        float* forget = p.forget + size_t(row) * p.second_width + head * d + i;
        const float a = p.decay[head] * (*forget + p.bias[head * d + i]);
        *forget = canon_exp(sigmoid(a) * p.bound);
    }
    if (threadIdx.x == 0) {
        float* beta = p.beta + size_t(row) * p.first_width + head;
        *beta = sigmoid(*beta);
    }
    __syncthreads();
    const float qq = squares(q, d, scratch);
    __syncthreads();
    const float kk = squares(k, d, scratch);
    const float scale = 1.0f / sqrtf(float(d));
    const float q_factor = (1.0f / sqrtf(qq + L2_EPS)) * scale, k_factor = 1.0f / sqrtf(kk + L2_EPS);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
        ready[i] = shared_at<float>(q + i * 4) * q_factor;
        ready[all + i] = shared_at<float>(k + i * 4) * k_factor;
    }
}

// A thread's columns of the state stay in device memory, where no other thread touches them.
extern "C" __global__ void __launch_bounds__(THREADS) kda_rows_scan(KdaRows p) {
    const u32 d = p.d, head = blockIdx.x, all = p.heads * d, q = 0, k = d * 4, decay = 2 * d * 4;
    float* after = state_after(p) + p.matrix + size_t(head) * d * d;
    const float* before = state_before(p) + p.matrix + size_t(head) * d * d;
    for (u32 row = 0; row < p.rows; row++) {
        const float* ready = p.ready + size_t(row) * 3 * all + head * d;
        const float* factors = p.forget + size_t(row) * p.second_width + head * d;
        for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
            shared_at<float>(q + i * 4) = ready[i];
            shared_at<float>(k + i * 4) = ready[all + i];
            shared_at<float>(decay + i * 4) = factors[i];
        }
        const float beta = p.beta[size_t(row) * p.first_width + head];
        __syncthreads();
        for (u32 column = threadIdx.x; column < d; column += blockDim.x) {
            float u = 0.0f;
#pragma unroll 4
            for (u32 c = 0; c < d; c++) {
                const float s = before[size_t(c) * d + column] * shared_at<float>(decay + c * 4);
                after[size_t(c) * d + column] = s;
                u = fmaf(shared_at<float>(k + c * 4), s, u);
            }
            const float delta = beta * (ready[2 * all + column] - u);
            float sum = 0.0f;
#pragma unroll 4
            for (u32 c = 0; c < d; c++) {
                const float s = fmaf(shared_at<float>(k + c * 4), delta, after[size_t(c) * d + column]);
                after[size_t(c) * d + column] = s;
                sum = fmaf(shared_at<float>(q + c * 4), s, sum);
            }
            p.out[size_t(row) * all + head * d + column] = sum;
        }
        before = after;
        __syncthreads();
    }
    for (u32 i = threadIdx.x; i < 3 * d; i += blockDim.x) move_history(p, i / d * all + head * d + i % d);
}

extern "C" __global__ void __launch_bounds__(THREADS) kda_rows_gate(KdaRows p) {
    const u32 d = p.d, row = blockIdx.x, head = blockIdx.y, scratch = d * 4;
    float* out = p.out + (size_t(row) * p.heads + head) * d;
    const float* gates = p.gate + size_t(row) * p.second_width + head * d;
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) shared_at<float>(i * 4) = out[i];
    __syncthreads();
    const float sum = squares(0, d, scratch);
    const float factor = 1.0f / sqrtf(sum / float(d) + p.rms_eps);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
        const float value = ((shared_at<float>(i * 4) * factor) * p.norm[i]) * sigmoid(gates[i]);
        check(p, row, value);
        out[i] = value;
    }
}
