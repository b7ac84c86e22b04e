// One token of delta attention (model-spec 3.1), a block a head: convolution, gates, the recurrence in its own order, gated norm.
#include "canon.cuh"
#include "order.cuh"

constexpr u32 THREADS = 512;
constexpr float L2_EPS = 1e-6f;

struct Kda {
    const float* raw;     // [3][heads * d]: q, k, v before the convolution
    const float* forget;  // [heads * d], before its bias
    const float* gate;    // [heads * d], before its sigmoid
    const float* beta;    // [heads], before its sigmoid
    const float* taps;    // [3][heads * d][taps]
    const float* bias;    // [heads * d]
    const float* decay;   // [heads]: exp(A_log)
    const float* norm;    // [d]
    float* states;        // of the sequence: two copies, `copy` floats apart, of which the even positions read the first
    float* out;           // [heads * d]
    const u32* position;
    u32* fault;
    size_t copy;
    u32 matrix, history;  // where the layer's matrices and histories begin in a copy, in floats
    u32 heads, d, taps_n, code;
    float bound, rms_eps;
};

extern "C" __global__ void __launch_bounds__(THREADS) kda_step(Kda p) {
    let_successor_begin();
    const u32 d = p.d, head = blockIdx.x, past = p.taps_n - 1;
    // q, k, v, decay, output: d floats each; then the state, d * d.
    const u32 q = 0, k = d * 4, v = 2 * d * 4, decay = 3 * d * 4, raw = 4 * d * 4, scratch = 5 * d * 4;
    const u32 state = (scratch + 64 + 15) / 16 * 16;
    const u32 position = *p.position;
    const float* before = p.states + (position & 1) * p.copy;
    float* after = p.states + (~position & 1) * p.copy;

    // The state does not depend on what this token's products say.
    const float* matrix = before + p.matrix + size_t(head) * d * d;
    if (d % 4 == 0) {
        for (u32 i = threadIdx.x * 4; i < d * d; i += blockDim.x * 4) {
            copy16(smem + state + i * 4, reinterpret_cast<const u8*>(matrix + i));
        }
    } else {
        for (u32 i = threadIdx.x; i < d * d; i += blockDim.x) shared_at<float>(state + i * 4) = matrix[i];
    }
    copies_end();
    wait_for_predecessor();

    for (u32 i = threadIdx.x; i < 3 * d; i += blockDim.x) {
        const u32 part = i / d, channel = part * p.heads * d + head * d + i % d;
        const float* history = before + p.history + size_t(channel) * past;
        float* moved = after + p.history + size_t(channel) * past;
        const float* taps = p.taps + size_t(channel) * p.taps_n;
        const float input = p.raw[channel];
        float sum = taps[0] * (past > 0 ? history[0] : input);
        for (u32 j = 1; j < p.taps_n; j++) sum = sum + (taps[j] * (j < past ? history[j] : input));
        for (u32 j = 0; j < past; j++) moved[j] = j + 1 < past ? history[j + 1] : input;
        shared_at<float>(i * 4) = silu(sum);
    }
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
        const u32 channel = head * d + i;
        const float a = p.decay[head] * (p.forget[channel] + p.bias[channel]);
        shared_at<float>(decay + i * 4) = canon_exp(sigmoid(a) * p.bound);
    }
    __syncthreads();

    // Heads are usually one block of a dot product; wider ones take the general way.
    const float qq = squares(q, d, scratch);
    __syncthreads();
    const float kk = squares(k, d, scratch);
    const float scale = 1.0f / sqrtf(float(d));
    const float q_factor = (1.0f / sqrtf(qq + L2_EPS)) * scale, k_factor = 1.0f / sqrtf(kk + L2_EPS);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
        shared_at<float>(q + i * 4) = shared_at<float>(q + i * 4) * q_factor;
        shared_at<float>(k + i * 4) = shared_at<float>(k + i * 4) * k_factor;
    }
    const float beta = sigmoid(p.beta[head]);
    copies_wait<0>();
    __syncthreads();

    for (u32 column = threadIdx.x; column < d; column += blockDim.x) {
        float u = 0.0f;
#pragma unroll 8
        for (u32 c = 0; c < d; c++) {
            float& s = shared_at<float>(state + (c * d + column) * 4);
            s = s * shared_at<float>(decay + c * 4);
            u = fmaf(shared_at<float>(k + c * 4), s, u);
        }
        const float delta = beta * (shared_at<float>(v + column * 4) - u);
        float sum = 0.0f;
#pragma unroll 8
        for (u32 c = 0; c < d; c++) {
            float& s = shared_at<float>(state + (c * d + column) * 4);
            s = fmaf(shared_at<float>(k + c * 4), delta, s);
            sum = fmaf(shared_at<float>(q + c * 4), s, sum);
        }
        shared_at<float>(raw + column * 4) = sum;
    }
    __syncthreads();
    float* stored = after + p.matrix + size_t(head) * d * d;
    if (d % 4 == 0) {
        for (u32 i = threadIdx.x * 4; i < d * d; i += blockDim.x * 4) {
            *reinterpret_cast<float4*>(stored + i) = shared_at<float4>(state + i * 4);
        }
    } else {
        for (u32 i = threadIdx.x; i < d * d; i += blockDim.x) stored[i] = shared_at<float>(state + i * 4);
    }
    const float sum = squares(raw, d, scratch);
    const float factor = 1.0f / sqrtf(sum / float(d) + p.rms_eps);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
        const u32 channel = head * d + i;
        const float normed = (shared_at<float>(raw + i * 4) * factor) * p.norm[i];
        const float value = normed * sigmoid(p.gate[channel]);
        if (!(fabsf(value) < bits(0x7f800000u))) *p.fault = p.code;
        p.out[channel] = value;
    }
}
