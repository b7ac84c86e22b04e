// What the kernels of delta attention over a span are told, and its recurrence for heads of 128.
#pragma once
#include "canon.cuh"

constexpr float L2_EPS = 1e-6f;

struct KdaRows {
    const float* raw;    // [rows][first_width]: q, k, v before the convolution, `heads * d` each
    float* forget;       // [rows][second_width], before its bias; afterwards the decay's factors
    const float* gate;   // [rows][second_width], before its sigmoid
    float* beta;         // [rows][first_width], before its sigmoid; afterwards behind it
    const float* taps;   // [3][heads * d][taps]
    const float* bias;   // [heads * d]
    const float* decay;  // [heads]: exp(A_log)
    const float* norm;   // [d]
    float* states;       // of the sequence: two copies, `copy` floats apart, of which the even positions read the first
    float* ready;        // [rows][3][heads * d]: q and k normed, v
    float* out;          // [rows][heads * d]: what the state answers, then that normed and gated
    u32* faults;         // [rows]
    size_t copy;
    u32 matrix, history;  // where the layer's matrices and histories begin in a copy, in floats
    u32 heads, d, taps_n, code;
    u32 first, rows;  // position of the first row
    u32 first_width, second_width;
    float bound, rms_eps;
};

DEV const float* state_before(const KdaRows& p) { return p.states + (p.first & 1) * p.copy; }

// May be the same copy: a value is written there by the thread that alone has read it, or after all have read it.
DEV float* state_after(const KdaRows& p) { return p.states + ((p.first + p.rows) & 1) * p.copy; }

// The last inputs of channel `channel` of q, k and v for the token behind the span, oldest first. The convolutions, which read
// those before the span, have ended, and the channel is this thread's alone.
DEV void move_history(const KdaRows& p, u32 channel) {
    const u32 past = p.taps_n - 1;
    const float* old = state_before(p) + p.history + size_t(channel) * past;
    float* moved = state_after(p) + p.history + size_t(channel) * past;
    for (u32 j = 0; j < past; j++) {
        const u32 at = p.rows + j;
        moved[j] = at < past ? old[at] : p.raw[size_t(at - past) * p.first_width + channel];
    }
}

// ---- the recurrence for heads of 128

constexpr u32 D = 128;
constexpr u32 KEYS = D / 2;   // of a lane
constexpr u32 COLUMNS = 64;   // of a block: two blocks a head, so 64 heads keep 128 processors busy
constexpr u32 SCAN_THREADS = 2 * COLUMNS;
constexpr u32 FOURS = KEYS / 4;

// A row in shared memory, in bytes: q, k, decay, the block's columns of v, beta.
constexpr u32 Q_AT = 0, K_AT = D * 4, DECAY_AT = 2 * D * 4, V_AT = 3 * D * 4, BETA_AT = V_AT + COLUMNS * 4, ROW = BETA_AT + 16;
constexpr u32 SLOTS = 16;          // rows in shared memory
constexpr u32 GROUP_ROWS = 4;      // rows between two barriers
constexpr u32 FETCHED_AHEAD = 11;  // rows: 4 us at the pace of a row
constexpr u32 LEAD = 2;            // fours of keys between the read of their factors and their use
// A row reads the slots of the row before and of the two behind it, and between two barriers one warp may be at a group's first row
// while another brings what its last row brings.
static_assert(FETCHED_AHEAD + GROUP_ROWS < SLOTS, "no copy may meet a slot that is read");
// Of a thread's copies, one a row, so many may be under way at the start and at a barrier.
constexpr int FIRST_PENDING = FETCHED_AHEAD - 3, PENDING = FETCHED_AHEAD - GROUP_ROWS - 2;

// Reads of shared memory do not move up over this: all of them at once would take more registers than there are.
DEV void keep_order() { asm volatile("" ::: "memory"); }

DEV float4 four_at(const u8* at) { return *reinterpret_cast<const float4*>(at); }
DEV float one_of(const float4& v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Where a row's factors lie for a lane's half of the keys. What the two chains take depends on the half.
struct FactorPlaces {
    const u8 *k, *decay, *early, *late;
};

// Factors of four keys.
struct Factors {
    float4 k, decay, chain;

    // Fours 0 to 15 are those of the first turn, then those of the second, which takes only the chains'.
    __device__ __forceinline__ void read(const FactorPlaces& at, u32 four) {
        keep_order();
        const u32 key = four % FOURS * 16;
        chain = four_at((four < FOURS ? at.early : at.late) + key);
        if (four >= FOURS) return;
        decay = four_at(at.decay + key);
        k = four_at(at.k + key);
    }
};

// A lane has half of a column of a head's state in registers, through all rows: lanes 0 to 15 the first 64 keys of sixteen
// columns, lanes 16 to 31 the others. Two chains of 128 multiply-adds over the keys make the time: u, which the next row waits
// for, and the row's answer. A row is two turns of 64 steps. In the first, the low lanes are at their half of the next row's u
// and the high ones at their half of the answer of the row before; in the second it is the high lanes' u and the low lanes'
// answer. So all four quarters of a processor work, each on 384 multiplications and multiply-adds a row where a thread for a
// whole column would need 512 on two quarters; 512 cycles are the chain, and by the machine code's counts a row is about 750.
// Factors come as 16 bytes that half a warp shares, two cycles of the shared memory each, 512 a row for the four warps: a whole
// head in one processor would be bound by them.
DEV void scan_128(const KdaRows& p) {
    const u32 tid = threadIdx.x, lane = tid % WARP, head = blockIdx.x / 2, from = blockIdx.x % 2 * COLUMNS;
    const u32 half = lane / 16, column = tid / WARP * 16 + lane % 16, all = p.heads * D, rows = p.rows;
    const bool low = half == 0;
    const size_t matrix = p.matrix + (size_t(head) * D + half * KEYS) * D + from + column;
    float s[KEYS], x[KEYS];  // the state before a row, with its decay; the state after the row before
    {
        const float* before = state_before(p) + matrix;
#pragma unroll
        for (u32 c = 0; c < KEYS; c++) s[c] = before[c * D];
    }

    // Each thread brings sixteen bytes of a row, one beta.
    const u32 kind = tid / WARP;
    const float* source = p.ready + kind * all + head * D + lane * 4;
    u32 source_step = 3 * all;
    if (kind == 2) source = p.forget + head * D + lane * 4, source_step = p.second_width;
    if (kind == 3) source = p.ready + 2 * all + head * D + from + lane * 4;
    if (tid == BETA_AT / 16) source = p.beta + head, source_step = p.first_width;
    u32 fetched = 0;
    // The last row comes again when there is no other, to where nobody reads.
    auto fetch = [&] {
        u8* to = smem + fetched % SLOTS * ROW + tid * 16;
        if (tid < BETA_AT / 16) copy16(to, reinterpret_cast<const u8*>(source));
        if (tid == BETA_AT / 16) copy4(to, source);
        fetched++;
        source += fetched < rows ? source_step : 0;
        copies_end();
    };
#pragma unroll 1
    for (u32 i = 0; i < FETCHED_AHEAD; i++) fetch();
    copies_wait<FIRST_PENDING>();
    __syncthreads();

    const u8* slots = smem + half * KEYS * 4;
    const float* vs = reinterpret_cast<const float*>(smem + V_AT) + column;
    const float* betas = reinterpret_cast<const float*>(smem + BETA_AT);
    float u = 0.0f, answer = 0.0f;
#pragma unroll
    for (u32 turn = 0; turn < 2; turn++) {
#pragma unroll
        for (u32 c = 0; c < KEYS; c += 4) {
            if (c % 16 == 0) keep_order();
            const float4 k = four_at(slots + K_AT + c * 4);
            if (turn == 0) {
                const float4 decay = four_at(slots + DECAY_AT + c * 4);
#pragma unroll
                for (u32 i = 0; i < 4; i++) s[c + i] = s[c + i] * one_of(decay, i), x[c + i] = 0.0f;
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) u = fmaf(one_of(k, i), s[c + i], u);
        }
        u = __shfl_sync(ALL, u, turn == 0 ? lane % 16 : lane | 16);
    }
    float delta = betas[0] * (vs[0] - u), v = vs[ROW / 4];
    u = 0.0f;

    float* out = p.out + head * D + from + column;
    u32 out_step = 0;
    FactorPlaces at = {slots + K_AT, slots + ROW + DECAY_AT, low ? slots + ROW + K_AT : slots + Q_AT,
                       low ? slots + Q_AT : slots + ROW + K_AT};
    Factors f[LEAD + 1];
#pragma unroll
    for (u32 i = 0; i < LEAD; i++) f[i].read(at, i);
#pragma unroll 1
    for (u32 row = 0; row < rows; row++) {
        if (row % GROUP_ROWS == 0) {
            // What the group reads has come, and nobody reads any more what the copies of the group overwrite.
            copies_wait<PENDING>();
            __syncthreads();
        }
        fetch();
        const float beta = betas[(row + 1) % SLOTS * (ROW / 4)];
        const u8 *now = slots + row % SLOTS * ROW, *next = slots + (row + 1) % SLOTS * ROW;
        const u8* second = slots + (row + 2) % SLOTS * ROW;
        const FactorPlaces then = {next + K_AT, second + DECAY_AT, low ? second + K_AT : now + Q_AT,
                                   low ? next + Q_AT : second + K_AT};
#pragma unroll
        for (u32 g = 0; g < 2 * FOURS; g++) {
            if (g + LEAD < 2 * FOURS) {
                f[LEAD].read(at, g + LEAD);
            } else {
                f[LEAD].read(then, g + LEAD - 2 * FOURS);
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 c = g % FOURS * 4 + i;
                answer = fmaf(one_of(f[0].chain, i), x[c], answer);
                if (g < FOURS) {
                    x[c] = fmaf(one_of(f[0].k, i), delta, s[c]);
                    s[c] = x[c] * one_of(f[0].decay, i);
                }
                u = fmaf(one_of(f[0].chain, i), s[c], u);
            }
            if (g == FOURS - 1) {
                // Of the row before; there is none before the first, and what is written then is written again.
                if (!low) *out = answer;
                out += out_step;
                out_step = all;
                answer = 0.0f;
                u = __shfl_xor_sync(ALL, u, 16);
            }
#pragma unroll
            for (u32 i = 0; i < LEAD; i++) f[i] = f[i + 1];
        }
        u = __shfl_sync(ALL, u, lane | 16);
        answer = __shfl_xor_sync(ALL, answer, 16);
        delta = beta * (v - u);
        u = 0.0f;
        v = vs[(row + 2) % SLOTS * (ROW / 4)];
        at = then;
    }
    copies_wait<0>();

    float* after = state_after(p) + matrix;
    const u8* q_at = slots + (rows - 1) % SLOTS * ROW + Q_AT;
#pragma unroll
    for (u32 c = 0; c < KEYS; c += 4) {
        const float4 q = four_at(q_at + c * 4);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            answer = fmaf(one_of(q, i), x[c + i], answer);
            after[(c + i) * D] = x[c + i];
        }
    }
    if (!low) *out = answer;
    if (low) {
        for (u32 part = 0; part < 3; part++) move_history(p, part * all + head * D + from + column);
    }
}
