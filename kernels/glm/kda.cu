// One token of each of several sequences in delta attention (model-spec 3.1), a block a head, or two: convolution, gates, the recurrence in
// its own order, gated norm. With gates there is one block more, which finishes them.
#include "activation.cuh"
#include "canon.cuh"
#include "order.cuh"
#include "sinkhorn.cuh"
#include "turn.cuh"

constexpr u32 THREADS = 512;
constexpr float L2_EPS = 1e-6f;

struct Kda {
    // Of the first row; in the next one `first_width` or `second_width` values further.
    const float* raw;     // [3][heads * d]: q, k, v before the convolution
    const float* forget;  // [heads * d], before its bias
    const float* gate;    // [heads * d], before its sigmoid
    const float* beta;    // [heads], before its sigmoid
    const float* taps;    // [3][heads * d][taps]
    const float* bias;    // [heads * d]
    const float* decay;   // [heads]: exp(A_log)
    const float* norm;    // [d]
    float* states;        // of the first slot: two copies, `copy` floats apart, of which the even positions read the first
    float* out;           // [rows][heads * d]
    const Turn* turns;    // [rows]
    u32* fault;           // [rows]; the first that is noted stays
    size_t copy;
    u32 matrix, history;  // where the layer's matrices and histories begin in a copy, in floats
    u32 heads, d, taps_n, code, first_width, second_width;
    float bound, rms_eps;
    float* gates;         // [rows][4 + 16]: those of the site before, where comb still is its logits; or null
    u32 sinkhorn;
    float hc_eps;
    u8* q;                // of `kda_pair128`: what `out` would have, rounded, [rows][heads * d], in the order of tile.cuh
    float* q_scale;       // [rows][heads * d / 32], of which blocks of 256 have the first
    u32 narrow;           // blocks of 32 values, not of 256
    u32 reserved;
};
static_assert(sizeof(Kda) == 184, "crates/glm-graph/src/cuda/abi.rs");

// The parameters of this block's row.
DEV void take_row(Kda& p) {
    p.raw = of_row(p.raw, p.first_width), p.beta = of_row(p.beta, p.first_width);
    p.forget = of_row(p.forget, p.second_width), p.gate = of_row(p.gate, p.second_width);
    p.out = of_row(p.out, size_t(p.heads) * p.d), p.fault = of_row(p.fault, 1);
}

// ---- heads of 128 with four taps: the published model

constexpr u32 D = 128;

// Sum of squares of 128 values in shared memory in dot order, by a warp: a lane takes four of them.
DEV float squares128(u32 at) {
    const u32 lane = threadIdx.x % WARP;
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const float x = shared_at<float>(at + (lane + 32 * i) * 4);
        sum = fmaf(x, x, sum);
    }
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) sum = sum + lane_xor(sum, mask);
    return sum;
}

// Rounds what a row's two heads of a block have, a value a thread, as rows/quantize.cu does: a warp has one of the blocks of 32.
// `meeting` is shared memory for eight words. That a value is not finite has been noted; its block is zero.
DEV void round_pair(const Kda& p, float value, u32 meeting) {
    const u32 at = threadIdx.x, warp = at / WARP, lane = at % WARP;
    u32 largest = __float_as_uint(value) & 0x7fffffffu;
#pragma unroll
    for (u32 mask = 1; mask < WARP; mask *= 2) largest = max(largest, lane_xor(largest, mask));
    if (!p.narrow) {
        if (lane == 0) shared_at<u32>(meeting + warp * 4) = largest;
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < 2 * D / WARP; i += 4) {
            const uint4 four = shared_at<uint4>(meeting + i * 4);
            largest = max(max(largest, max(four.x, four.y)), max(four.z, four.w));
        }
    }
    float scale = 0.0f, inverse = 0.0f;
    const bool finite = largest < 0x7f800000u;
    if (finite) scale_of(largest, scale, inverse);
    const i32 byte = finite ? rounded_byte(value, inverse) : 0;
    const u32 place = at / 64 * 64 + place_in_chunk(at % 64 / 4) + at % 4;
    of_row(p.q, size_t(p.heads) * D)[blockIdx.x * 2 * D + place] = u8(byte);
    float* scales = of_row(p.q_scale, p.heads * D / 32);
    if (p.narrow ? lane == 0 : at == 0) scales[p.narrow ? blockIdx.x * (2 * D / WARP) + warp : blockIdx.x] = scale;
}

// Reads of shared memory do not move up over this: all of them at once would take more registers than there are.
DEV void keep_order() { asm volatile("" ::: "memory"); }

// Heads of 128 with four taps, a thread a column of the state, most of which it keeps in registers from before its predecessor has
// ended: 64 KB are on their way to a processor at once, and the chains of multiply-adds meet little shared memory but broadcasts. The
// last rows are in shared memory, so that a processor has room for four heads: eight sequences' 512 are then all at work at once.
//
// A block has one head, and leaves its values; or two, and leaves them rounded.
template <u32 HEADS>
DEV void step128(Kda& p) {
    constexpr u32 OWN = 80, ROOM = (4 * D + (D - OWN) * D) * 4;
    let_successor_begin();
    if (blockIdx.x == p.heads / HEADS) return finish_gates(of_row(p.gates, 20), p.sinkhorn, p.hc_eps);
    take_row(p);
    const u32 own_head = HEADS > 1 ? threadIdx.x / D : 0, at = HEADS > 1 ? threadIdx.x % D : threadIdx.x;
    const u32 head = blockIdx.x * HEADS + own_head, channel = head * D + at, all = p.heads * D;
    const u32 q = own_head * ROOM, k = q + D * 4, decay = q + 2 * D * 4, raw = q + 3 * D * 4, rest = q + 4 * D * 4;
    const Turn turn = turn_of(p.turns);
    float* const states = in_slot(p.states, turn);
    const float* before = states + (turn.position & 1) * p.copy;
    float* after = states + (~turn.position & 1) * p.copy;
    const float* matrix = before + p.matrix + size_t(head) * D * D;
#pragma unroll
    for (u32 i = at * 4; i < (D - OWN) * D; i += D * 4) {
        copy16(smem + rest + i * 4, reinterpret_cast<const u8*>(matrix + OWN * D + i));
    }
    copies_end();
    float s[OWN];
#pragma unroll
    for (u32 c = 0; c < OWN; c++) s[c] = matrix[c * D + at];
    float past[3][3];
    float4 taps[3];
#pragma unroll
    for (u32 part = 0; part < 3; part++) {
        const size_t own = size_t(part) * all + channel;
#pragma unroll
        for (u32 j = 0; j < 3; j++) past[part][j] = before[p.history + own * 3 + j];
        taps[part] = *reinterpret_cast<const float4*>(p.taps + own * 4);
    }
    const float bias = p.bias[channel], scale_of_head = p.decay[head], norm = p.norm[at];
    wait_for_predecessor();

    float value[3];
#pragma unroll
    for (u32 part = 0; part < 3; part++) {
        const size_t own = size_t(part) * all + channel;
        const float input = p.raw[own];
        float sum = taps[part].x * past[part][0];
        sum = sum + (taps[part].y * past[part][1]);
        sum = sum + (taps[part].z * past[part][2]);
        sum = sum + (taps[part].w * input);
        float* moved = after + p.history + own * 3;
        moved[0] = past[part][1], moved[1] = past[part][2], moved[2] = input;
        value[part] = silu(sum);
    }
    shared_at<float>(q + at * 4) = value[0];
    shared_at<float>(k + at * 4) = value[1];
    shared_at<float>(decay + at * 4) = canon_exp(sigmoid(scale_of_head * (p.forget[channel] + bias)) * p.bound);
    __syncthreads();
    const float scale = 1.0f / sqrtf(float(D));
    const float q_factor = (1.0f / sqrtf(squares128(q) + L2_EPS)) * scale, k_factor = 1.0f / sqrtf(squares128(k) + L2_EPS);
    __syncthreads();
    shared_at<float>(q + at * 4) = value[0] * q_factor;
    shared_at<float>(k + at * 4) = value[1] * k_factor;
    const float beta = sigmoid(p.beta[head]), gate = sigmoid(p.gate[channel]);
    copies_wait<0>();
    __syncthreads();

    // This column of a row of the last.
    auto own_rest = [&](u32 c) -> float& { return shared_at<float>(rest + (c - OWN) * D * 4 + at * 4); };
    float u = 0.0f;
#pragma unroll
    for (u32 c = 0; c < OWN; c += 4) {
        if (c % 16 == 0) keep_order();
        const float4 d4 = shared_at<float4>(decay + c * 4), k4 = shared_at<float4>(k + c * 4);
        s[c] = s[c] * d4.x, s[c + 1] = s[c + 1] * d4.y, s[c + 2] = s[c + 2] * d4.z, s[c + 3] = s[c + 3] * d4.w;
        u = fmaf(k4.x, s[c], u);
        u = fmaf(k4.y, s[c + 1], u);
        u = fmaf(k4.z, s[c + 2], u);
        u = fmaf(k4.w, s[c + 3], u);
    }
#pragma unroll 4
    for (u32 c = OWN; c < D; c += 4) {
        const float4 d4 = shared_at<float4>(decay + c * 4), k4 = shared_at<float4>(k + c * 4);
        const float x[4] = {own_rest(c) * d4.x, own_rest(c + 1) * d4.y, own_rest(c + 2) * d4.z, own_rest(c + 3) * d4.w};
        u = fmaf(k4.x, x[0], u);
        u = fmaf(k4.y, x[1], u);
        u = fmaf(k4.z, x[2], u);
        u = fmaf(k4.w, x[3], u);
#pragma unroll
        for (u32 i = 0; i < 4; i++) own_rest(c + i) = x[i];
    }
    const float delta = beta * (value[2] - u);
    float sum = 0.0f;
    float* stored = after + p.matrix + size_t(head) * D * D + at;
#pragma unroll
    for (u32 c = 0; c < OWN; c += 4) {
        if (c % 16 == 0) keep_order();
        const float4 q4 = shared_at<float4>(q + c * 4), k4 = shared_at<float4>(k + c * 4);
        s[c] = fmaf(k4.x, delta, s[c]), s[c + 1] = fmaf(k4.y, delta, s[c + 1]);
        s[c + 2] = fmaf(k4.z, delta, s[c + 2]), s[c + 3] = fmaf(k4.w, delta, s[c + 3]);
        sum = fmaf(q4.x, s[c], sum);
        sum = fmaf(q4.y, s[c + 1], sum);
        sum = fmaf(q4.z, s[c + 2], sum);
        sum = fmaf(q4.w, s[c + 3], sum);
#pragma unroll
        for (u32 i = 0; i < 4; i++) stored[(c + i) * D] = s[c + i];
    }
#pragma unroll 4
    for (u32 c = OWN; c < D; c += 4) {
        const float4 q4 = shared_at<float4>(q + c * 4), k4 = shared_at<float4>(k + c * 4);
        const float x[4] = {fmaf(k4.x, delta, own_rest(c)), fmaf(k4.y, delta, own_rest(c + 1)), fmaf(k4.z, delta, own_rest(c + 2)),
                            fmaf(k4.w, delta, own_rest(c + 3))};
        sum = fmaf(q4.x, x[0], sum);
        sum = fmaf(q4.y, x[1], sum);
        sum = fmaf(q4.z, x[2], sum);
        sum = fmaf(q4.w, x[3], sum);
#pragma unroll
        for (u32 i = 0; i < 4; i++) stored[(c + i) * D] = x[i];
    }
    shared_at<float>(raw + at * 4) = sum;
    __syncthreads();
    const float factor = 1.0f / sqrtf(squares128(raw) / float(D) + p.rms_eps);
    const float out = ((sum * factor) * norm) * gate;
    if (!(fabsf(out) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
    // The first head's q has been read by all.
    if (HEADS == 1) {
        p.out[channel] = out;
    } else {
        round_pair(p, out, 0);
    }
}

extern "C" __global__ void __launch_bounds__(128, 4) kda_step128(Kda p) { step128<1>(p); }

// Two neighbouring heads a block have the 256 values that products take with one scale, so that no launch has to round them. Of one
// sequence's 64 heads that would be half as many blocks, and there the product rounds for itself.
extern "C" __global__ void __launch_bounds__(256, 2) kda_pair128(Kda p) { step128<2>(p); }

// ---- heads of any width, any number of taps

extern "C" __global__ void __launch_bounds__(THREADS) kda_step(Kda p) {
    let_successor_begin();
    if (blockIdx.x == p.heads) return finish_gates(of_row(p.gates, 20), p.sinkhorn, p.hc_eps);
    take_row(p);
    const u32 d = p.d, head = blockIdx.x, past = p.taps_n - 1;
    // q, k, v, decay, output: d floats each; then the state, d * d.
    const u32 q = 0, k = d * 4, v = 2 * d * 4, decay = 3 * d * 4, raw = 4 * d * 4, scratch = 5 * d * 4;
    const u32 state = (scratch + 64 + 15) / 16 * 16;
    const Turn turn = turn_of(p.turns);
    float* const states = in_slot(p.states, turn);
    const float* before = states + (turn.position & 1) * p.copy;
    float* after = states + (~turn.position & 1) * p.copy;

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
        if (!(fabsf(value) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
        p.out[channel] = value;
    }
}
