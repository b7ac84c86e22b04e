// The streams of many rows (rows/site_rows.cu): how four of them change, and what the mixing sums get from a part of them.
#pragma once
#include "canon.cuh"
#include "dots.cuh"
#include "order.cuh"
#include "sinkhorn.cuh"

// How the streams change before they are read.
constexpr u32 KEEP = 0;     // not at all
constexpr u32 WRITE = 1;    // by one vector
constexpr u32 EMBED = 3;    // all become the vector

struct SiteRows {
    float* streams;        // [rows][streams][hidden]
    const float* y;        // [rows][hidden]: the vector
    float* gates;          // [rows][n + n*n]: post, then comb [source][destination]; of the site before, then of this one
    const float* mix;      // [2n + n*n][n * hidden]; null where only the head's mean is wanted
    const float* base;     // [2n + n*n]
    const float* norm;     // [hidden]
    float* x;              // [rows][hidden]: the normed input
    u32* faults;           // [rows]
    u32 mode, hidden, n, sinkhorn, code;
    u32 rows, rows_of_block;
    float scale[3];
    float rms_eps, hc_eps;
};

DEV bool is_finite(float value) { return fabsf(value) < bits(0x7f800000u); }

DEV void fail(const SiteRows& p, u32 row) {
    if (p.faults[row] == 0) p.faults[row] = p.code;
}

// ---- four streams of whole 256s, up to 4096 values: the published model

constexpr u32 S = 4;
constexpr u32 GATES = 24;         // mixing sums: pre 4, post 4, comb 16
constexpr u32 SUMS = GATES + 1;   // and the square sum
constexpr u32 STREAM_THREADS = 256;
constexpr u32 SIDES = STREAM_THREADS / WARP / S;  // warps of a stream
constexpr u32 TOGETHER = 6;       // sums that a warp makes at once
constexpr u32 BATCH = 4;          // of so many rows
constexpr u32 GATES_OF_ROW = S + S * S;
constexpr u32 LINE = 32;          // floats of a stream's sums of a part: a line of memory, of which SUMS are used

DEV float& component(float4& v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// The streams' values that become of `y` and the old ones; `gates` is the row's place in shared memory.
template <u32 MODE>
DEV void mix_four(float4 y, float4 (&v)[S], u32 gates) {
    if constexpr (MODE == EMBED) {
#pragma unroll
        for (u32 s = 0; s < S; s++) v[s] = y;
    } else if constexpr (MODE != KEEP) {
        float4 old[S], post = shared_at<float4>(gates);
#pragma unroll
        for (u32 s = 0; s < S; s++) {
            old[s] = v[s];
#pragma unroll
            for (u32 c = 0; c < 4; c++) component(v[s], c) = 0.0f + (component(post, s) * component(y, c));
        }
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            float4 comb = shared_at<float4>(gates + (S + S * i) * 4);
#pragma unroll
            for (u32 s = 0; s < S; s++) {
#pragma unroll
                for (u32 c = 0; c < 4; c++) component(v[s], c) = component(v[s], c) + (component(comb, s) * component(old[i], c));
            }
        }
    }
}

// A part's new values of all rows, by the whole block; half a part of a row is a warp's. A warp asks for two before it
// waits for the first. They are left in shared memory, and written where they changed.
template <u32 MODE>
DEV void next_streams(const SiteRows& p, u32 first, u32 count, u32 part, u32 values, u32 gates) {
    constexpr u32 WARPS = STREAM_THREADS / WARP, AT_ONCE = 2;
    const u32 lane = threadIdx.x % WARP;
#pragma unroll 1
    for (u32 task = threadIdx.x / WARP; task < 2 * count; task += AT_ONCE * WARPS) {
        float4 v[AT_ONCE][S], y[AT_ONCE];
        u32 row[AT_ONCE], place[AT_ONCE];
        float* streams[AT_ONCE];
#pragma unroll
        for (u32 t = 0; t < AT_ONCE; t++) {
            const u32 own = min(task + t * WARPS, 2 * count - 1);
            row[t] = own / 2, place[t] = own % 2 * (BLOCK / 2) + lane * 4;
            streams[t] = p.streams + size_t(first + row[t]) * S * p.hidden + part * BLOCK + place[t];
            if (MODE != EMBED) {
#pragma unroll
                for (u32 s = 0; s < S; s++) v[t][s] = *reinterpret_cast<const float4*>(streams[t] + s * p.hidden);
            }
        }
        if (MODE != KEEP) {
#pragma unroll
            for (u32 t = 0; t < AT_ONCE; t++) {
                y[t] = *reinterpret_cast<const float4*>(p.y + size_t(first + row[t]) * p.hidden + part * BLOCK + place[t]);
            }
        }
#pragma unroll
        for (u32 t = 0; t < AT_ONCE; t++) {
            mix_four<MODE>(y[t], v[t], gates + row[t] * GATES_OF_ROW * 4);
            if (task + t * WARPS < 2 * count) {
#pragma unroll
                for (u32 s = 0; s < S; s++) shared_at<float4>(values + ((row[t] * S + s) * BLOCK + place[t]) * 4) = v[t][s];
#pragma unroll
                for (u32 s = 0; s < S; s++) {
                    if (MODE != KEEP) *reinterpret_cast<float4*>(streams[t] + s * p.hidden) = v[t][s];
                }
            }
        }
    }
}

// The partial sums of a part of all rows, into shared memory at `sums`, [row][stream][LINE], by the whole block: a warp has one
// stream, and six mixing sums at a time, whose weights it keeps in registers for all rows.
DEV void part_sums(const SiteRows& p, u32 count, u32 part, u32 values, u32 sums) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, stream = warp / SIDES, side = warp % SIDES;
    // Which of a batch's sums the lane is left with: mixing sum j, or the square sum, of row r.
    const u32 mine = joined_index<WARP>(lane), mine_j = mine / BATCH, mine_r = mine % BATCH;
#pragma unroll 1
    for (u32 pass = 0; pass < GATES / SIDES / TOGETHER; pass++) {
        const u32 sum = (side * (GATES / SIDES / TOGETHER) + pass) * TOGETHER;
        const float* from = p.mix + size_t(sum * S + stream) * p.hidden + part * BLOCK + lane;
        float weight[TOGETHER][BLOCK / WARP];
#pragma unroll
        for (u32 j = 0; j < TOGETHER; j++) {
#pragma unroll
            for (u32 i = 0; i < BLOCK / WARP; i++) weight[j][i] = from[j * S * p.hidden + i * WARP];
        }
        const u32 to_sum = mine_j < TOGETHER ? sum + mine_j : GATES;
        u32 to = sums + ((mine_r * S + stream) * LINE + to_sum) * 4;
#pragma unroll 1
        for (u32 row = 0; row < count; row += BATCH) {
            // Sum j of row r at 4j + r; square sums behind them, which are made once in a stream.
            float v[WARP];
#pragma unroll
            for (u32 i = 0; i < WARP; i++) v[i] = 0.0f;
            const bool squares = row / BATCH % (GATES / TOGETHER) == sum / TOGETHER;
            const float* at = reinterpret_cast<const float*>(smem + values) + (row * S + stream) * BLOCK + lane;
#pragma unroll
            for (u32 r = 0; r < BATCH; r++) {
#pragma unroll
                for (u32 i = 0; i < BLOCK / WARP; i++) {
                    const float value = at[r * S * BLOCK + i * WARP];
#pragma unroll
                    for (u32 j = 0; j < TOGETHER; j++) v[BATCH * j + r] = fmaf(weight[j][i], value, v[BATCH * j + r]);
                }
            }
            if (squares) {
#pragma unroll
                for (u32 r = 0; r < BATCH; r++) {
#pragma unroll
                    for (u32 i = 0; i < BLOCK / WARP; i++) {
                        const float value = at[r * S * BLOCK + i * WARP];
                        v[BATCH * TOGETHER + r] = fmaf(value, value, v[BATCH * TOGETHER + r]);
                    }
                }
            }
            const float total = join_lanes<WARP, WARP>(v);
            if (row + mine_r < count && (mine_j < TOGETHER || (mine_j == TOGETHER && squares))) shared_at<float>(to) = total;
            to += BATCH * S * LINE * 4;
        }
    }
}

// Takes them to where the rows' input will be, [part][stream][LINE] of each row, whole lines at once: 24 bytes here and there, of
// lines that have long left the second level cache, would each be a read and a write of the memory (1 million for 2048 rows).
DEV void put_sums(const SiteRows& p, u32 first, u32 count, u32 part, u32 sums) {
    constexpr u32 FOURS = S * LINE / 4;
    for (u32 i = threadIdx.x; i < count * FOURS; i += STREAM_THREADS) {
        float* to = p.x + size_t(first + i / FOURS) * p.hidden + part * S * LINE + i % FOURS * 4;
        *reinterpret_cast<float4*>(to) = shared_at<float4>(sums + i * 16);
    }
}
