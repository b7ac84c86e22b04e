// Hyper-connections (docs/ARITHMETIC.md; model-spec 2.3 to 2.5): the streams take a layer part's output, and the next part's
// input is read from them.
//
// Blocks own parts of the streams and make, beside the new values, what the 24 mixing sums and the square sum get from them.
// The block that ends last adds these up, makes the gates and the normed input. Nobody waits for it.
#include "activation.cuh"
#include "canon.cuh"
#include "last.cuh"
#include "order.cuh"
#include "sinkhorn.cuh"
#include "turn.cuh"

constexpr u32 ROWS_PER_BLOCK = 4;  // mixing rows of a block
constexpr u32 THREADS = 512;

// How the streams change before they are read; any other way is by weighted experts in rank order and the shared one.
constexpr u32 KEEP = 0;   // not at all
constexpr u32 WRITE = 1;  // by one vector
constexpr u32 EMBED = 3;  // all become the vector; only with four streams

// `site` has one row.
struct Site {
    const float* residual;  // [rows][streams][hidden]
    float* next;            // [rows][streams][hidden]; not `residual`
    const float* y;         // [rows][hidden]: the vector, or the shared expert's
    const float* experts;   // [rows][k][hidden]
    const float* weights;   // [rows][k]
    const float* gates;     // [rows]: post, then comb [source][destination], of the site before
    float* gates_out;
    const float* mix;       // [2n + n*n][n * hidden]; null where only the head's mean is wanted
    const float* base;      // [2n + n*n]
    const float* norm;      // [hidden]
    float* x;               // [rows][hidden]: the normed input
    float* partials;        // [rows][2n + n*n + 1][blocks]
    u32* ended;             // [rows]: blocks that have ended; 0 before and after
    u32* fault;             // [rows]
    u32 mode, k, hidden, streams, sinkhorn, code;
    float scale[3];
    float rms_eps, hc_eps;
    u32 later;              // four streams: comb's logits are left in `gates_out`, for a kernel before the next site (`finish_gates`)
    u8* q;                  // four streams, where not null: x rounded in blocks of 256, [rows][hidden], in the order of tile.cuh
    float* q_scale;         // [rows][hidden / 32], of which blocks of 256 have the first
    u8* q2;                 // and in blocks of 32
    float* q2_scale;
};
static_assert(sizeof(Site) == 192, "crates/glm-graph/src/cuda/abi.rs");

// What the layer part adds, at `h`.
DEV float output_at(const Site& p, u32 h) {
    if (p.mode == WRITE) return p.y[h];
    float y = 0.0f;
    for (u32 r = 0; r < p.k; r++) y = y + (p.weights[r] * p.experts[size_t(r) * p.hidden + h]);
    return y + p.y[h];
}

DEV float stream_at(const Site& p, u32 stream, u32 h, float y, u32 gates) {
    if (p.mode == KEEP) return p.residual[stream * p.hidden + h];
    const u32 n = p.streams;
    float value = 0.0f + (shared_at<float>(gates + stream * 4) * y);
    for (u32 i = 0; i < n; i++) {
        value = value + (shared_at<float>(gates + (n + i * n + stream) * 4) * p.residual[i * p.hidden + h]);
    }
    return value;
}

// A lane's element of the comb matrix through all passes; n * n lanes of one warp, element `lane` = [i][j].
DEV float sinkhorn_of(float c, u32 n, u32 iterations, float eps) {
    const u32 lane = threadIdx.x % WARP, i = lane / n, j = lane % n;
    for (u32 pass = 0; pass < 2 * iterations - 1; pass++) {
        float sum = 0.0f;
        for (u32 m = 0; m < n; m++) {
            const u32 from = pass % 2 == 0 ? m * n + j : i * n + m;
            sum = sum + __shfl_sync(ALL, c, from % WARP);
        }
        c = c / (sum + eps);
    }
    return c;
}

// ---- four streams of up to 4096 values: the published model, for a row of each sequence

constexpr u32 FAST_THREADS = 544;  // sixteen warps for the streams, one for the gates
constexpr u32 WORKERS = 512;
constexpr u32 GATES = 24;          // mixing sums: pre 4, post 4, comb 16
constexpr u32 GATES_OF_ROW = 20;   // post and comb
constexpr u32 PARTS = 16;          // of a stream, at most
constexpr u32 GROUP_ROWS = 4;      // mixing sums of a block, or the square sum
constexpr u32 SHARE = 3;           // mixing sums that a warp of the last block adds up, beside the square sum

// The last block's shared memory: what the streams are multiplied by, the logits of comb, sums of parts, and the unnormed input.
constexpr u32 PRE = 0, COMB = 16, SUMS = COMB + 16 * 4, RAW = SUMS + PARTS * 4;

// A barrier of the sixteen warps that the one for the gates does not take part in.
DEV void workers_meet() { asm volatile("bar.sync 1, 512;" ::: "memory"); }

DEV void check(const Site& p, float sum) {
    if (!(fabsf(sum) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
}

DEV float2 two(const float* from) { return *reinterpret_cast<const float2*>(from); }

// The streams' new values of the block's part, into shared memory; a thread has one of 256 places and two streams. All loads are
// asked for before one is waited for.
DEV void change_streams(const Site& p) {
    const u32 place = threadIdx.x % BLOCK, pair = threadIdx.x / BLOCK, h = blockIdx.x * BLOCK + place;
    const bool mixes = p.mode != KEEP && p.mode != EMBED;
    float old[4], y = p.mode != KEEP ? p.y[h] : 0.0f;
    float2 post = make_float2(0.0f, 0.0f), comb[4];
#pragma unroll
    for (u32 s = 0; s < 4; s++) old[s] = p.mode != EMBED ? p.residual[s * p.hidden + h] : y;
    if (mixes) {
        post = two(p.gates + 2 * pair);
#pragma unroll
        for (u32 i = 0; i < 4; i++) comb[i] = two(p.gates + 4 + 4 * i + 2 * pair);
    }
    float2 next = pair == 0 ? make_float2(old[0], old[1]) : make_float2(old[2], old[3]);
    if (mixes) {
        if (p.mode != WRITE) {
            float routed = 0.0f;
#pragma unroll 1
            for (u32 first = 0; first < p.k; first += 8) {
                float e[8], w[8];
#pragma unroll
                for (u32 r = 0; r < 8; r++) {
                    const bool there = first + r < p.k;
                    e[r] = there ? p.experts[size_t(first + r) * p.hidden + h] : 0.0f;
                    w[r] = there ? p.weights[first + r] : 0.0f;
                }
#pragma unroll
                for (u32 r = 0; r < 8; r++) {
                    if (first + r < p.k) routed = routed + (w[r] * e[r]);
                }
            }
            y = routed + y;
        }
        next = make_float2(0.0f + (post.x * y), 0.0f + (post.y * y));
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            next.x = next.x + (comb[i].x * old[i]);
            next.y = next.y + (comb[i].y * old[i]);
        }
    }
    shared_at<float>((2 * pair * BLOCK + place) * 4) = next.x;
    shared_at<float>(((2 * pair + 1) * BLOCK + place) * 4) = next.y;
    if (blockIdx.y == 0) {
        p.next[2 * pair * p.hidden + h] = next.x;
        p.next[(2 * pair + 1) * p.hidden + h] = next.y;
    }
}

// What a lane of the last block has of a row's partial sums: eight of at most 64, one a part and stream, in their order.
struct Eight {
    float4 low, high;
};

DEV Eight eight_of(const float* partials, u32 n) {
    const u32 at = threadIdx.x % 8 * 8;
    const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    Eight v;
    v.low = at < n ? load_fresh4(partials + at) : none;
    v.high = at + 4 < n ? load_fresh4(partials + at + 4) : none;
    return v;
}

// Their tree, of `n` partials in all, by eight lanes; the first gets the sum.
DEV float row_sum(const Eight& v, u32 n) {
    float sum = (v.low.x + v.low.y) + (v.low.z + v.low.w);
    if (n > 4) sum = sum + ((v.high.x + v.high.y) + (v.high.z + v.high.w));
#pragma unroll
    for (u32 mask = 1; mask < 8; mask *= 2) {
        const float other = lane_xor(sum, mask);
        if (8 * mask < n) sum = sum + other;
    }
    return sum;
}

// The mixing sums of a warp of the last block: `pre` and comb's logits for the others, `post` for the next site.
DEV void make_gates(const Site& p, const Eight& partials, u32 row, float base) {
    const u32 lane = threadIdx.x % WARP, parts = p.hidden / BLOCK;
    const float sum = row_sum(partials, 4 * parts), square_sum = __shfl_sync(ALL, sum, WARP - 8);
    const float inverse = 1.0f / sqrtf(square_sum / float(4 * p.hidden) + p.rms_eps);
    const float logit = (sum * inverse) * (row < 4 ? p.scale[0] : row < 8 ? p.scale[1] : p.scale[2]) + base;
    if (threadIdx.x == 0) check(p, square_sum);
    if (lane % 8 != 0 || row == GATES) return;
    if (row >= 8) {
        shared_at<float>(COMB + (row - 8) * 4) = logit;
        if (p.later) p.gates_out[4 + row - 8] = logit;
        return;
    }
    const float gate = sigmoid(logit);
    if (row < 4) {
        shared_at<float>(PRE + row * 4) = gate + p.hc_eps;
    } else {
        p.gates_out[row - 4] = gate * 2.0f;
    }
}

DEV float& component(float4& v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Rounds a part of the normed input, of which a lane has values 4 * lane and 128 + 4 * lane on, as rows/quantize.cu does. `code` is
// noted where one is not finite: the site's own if its norm is not, since warps come here in any order.
DEV void round_part(const Site& p, u32 part, const float4 (&x)[2], u32 code) {
    const u32 lane = threadIdx.x % WARP;
    u32 largest[2];
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        largest[half] = 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const float value = i == 0 ? x[half].x : i == 1 ? x[half].y : i == 2 ? x[half].z : x[half].w;
            largest[half] = max(largest[half], __float_as_uint(value) & 0x7fffffffu);
        }
    }
    // Eight lanes have a block of 32.
#pragma unroll
    for (u32 mask = 1; mask < 8; mask *= 2) {
        largest[0] = max(largest[0], lane_xor(largest[0], mask)), largest[1] = max(largest[1], lane_xor(largest[1], mask));
    }
    u32 all = max(largest[0], largest[1]);
#pragma unroll
    for (u32 mask = 8; mask < WARP; mask *= 2) all = max(all, lane_xor(all, mask));
    if (all >= 0x7f800000u) {
        atomicCAS(p.fault, 0u, code);
        return;
    }
    float scale, inverse, scale2, inverse2;
    scale_of(all, scale, inverse);
    if (lane == 0) p.q_scale[part] = scale;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        const u32 at = part * BLOCK + (2 * half + lane / 16) * 64 + place_in_chunk(lane % 16);
        *reinterpret_cast<u32*>(p.q + at) = quantize4(x[half], inverse);
        scale_of(largest[half], scale2, inverse2);
        *reinterpret_cast<u32*>(p.q2 + at) = quantize4(x[half], inverse2);
        if (lane % 8 == 0) p.q2_scale[part * 8 + half * 4 + lane / 8] = scale2;
    }
}

// What the last block does: gates of all partial sums, and the normed input. A warp has a part of each stream, a lane values
// 4 * lane and 128 + 4 * lane of it on.
DEV void finish(const Site& p) {
    const u32 tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, parts = p.hidden / BLOCK;
    // First what the sums are made of, then the streams: they come while gates are made. What no block wrote comes with them.
    const bool adds = p.mix && warp < GATES / SHARE, works = warp < parts;
    const u32 row = lane / 8 < SHARE ? SHARE * warp + lane / 8 : GATES;
    Eight partials;
    float base = 0.0f;
    if (adds) {
        if (row < GATES) base = p.base[row];
        partials = eight_of(p.partials + row * 4 * parts, 4 * parts);
    }
    float4 old[4][2], norm[2];
    if (works) {
        const u32 at = warp * BLOCK + lane * 4;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
#pragma unroll
            for (u32 s = 0; s < 4; s++) old[s][half] = load_fresh4(p.next + s * p.hidden + at + half * BLOCK / 2);
            norm[half] = *reinterpret_cast<const float4*>(p.norm + at + half * BLOCK / 2);
        }
    }
    if (adds) make_gates(p, partials, row, base);
    if (p.mix) __syncthreads();
    if (warp == WORKERS / WARP) {
        // Comb of the next site. Nobody in this kernel waits for it, but the next one would, 2 us.
        if (!p.mix || p.later) return;
        const float c = comb4(shared_at<float>(COMB + lane % 16 * 4), p.sinkhorn, p.hc_eps);
        if (lane < 16) p.gates_out[4 + lane] = c;
        return;
    }
    float4 x[2];
    if (works) {
        // The head's mean is the sum of the streams as they are.
        const float4 one = make_float4(1.0f, 1.0f, 1.0f, 1.0f), pre = p.mix ? shared_at<float4>(PRE) : one;
        const float share = p.mix ? 1.0f : 0.25f;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                float value = 0.0f + (pre.x * component(old[0][half], i));
                value = value + (pre.y * component(old[1][half], i));
                value = value + (pre.z * component(old[2][half], i));
                component(x[half], i) = (value + (pre.w * component(old[3][half], i))) * share;
            }
            shared_at<float4>(RAW + (warp * BLOCK + half * BLOCK / 2 + lane * 4) * 4) = x[half];
        }
        __syncwarp();
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) {
            const float value = shared_at<float>(RAW + (warp * BLOCK + i * WARP + lane) * 4);
            sum = fmaf(value, value, sum);
        }
        sum = lanes_tree(sum);
        if (lane == 0) shared_at<float>(SUMS + warp * 4) = sum;
    }
    workers_meet();
    if (!works) return;
    const u32 whole = padded(parts), part = lane & (whole - 1);
    float sum = part < parts ? shared_at<float>(SUMS + part * 4) : 0.0f;
#pragma unroll
    for (u32 mask = 1; mask < PARTS; mask *= 2) {
        const float other = lane_xor(sum, mask);
        if (mask < whole) sum = sum + other;
    }
    if (tid == 0) check(p, sum);
    const float factor = 1.0f / sqrtf(sum / float(p.hidden) + p.rms_eps);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) component(x[half], i) = (component(x[half], i) * factor) * component(norm[half], i);
        *reinterpret_cast<float4*>(p.x + warp * BLOCK + half * BLOCK / 2 + lane * 4) = x[half];
    }
    if (p.q) round_part(p, warp, x, fabsf(sum) < bits(0x7f800000u) ? 1u : p.code);
}

// As `site`. Block (x, y) of a row has part x, 256 values of each stream, and rows 4y to 4y + 4 of the mixing matrix, and those that
// are 4 * gridDim.y further; the row after the last is the square sum. Its weights are asked for before the predecessor has ended.
// The second phase is one block's: what it costs is waits for the second level cache one after the other and instructions that no
// cache has, so it is short.
extern "C" __global__ void __launch_bounds__(FAST_THREADS) site4(Site p) {
    let_successor_begin();
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, parts = p.hidden / BLOCK, width = 4 * p.hidden;
    const u32 rows = p.mix ? GATES : 0;
    p.residual = of_row(p.residual, width), p.next = of_row(p.next, width), p.y = of_row(p.y, p.hidden), p.x = of_row(p.x, p.hidden);
    p.experts = of_row(p.experts, size_t(p.k) * p.hidden), p.weights = of_row(p.weights, p.k);
    p.gates = of_row(p.gates, GATES_OF_ROW), p.gates_out = of_row(p.gates_out, GATES_OF_ROW);
    p.partials = of_row(p.partials, (GATES + 1) * 4 * parts), p.ended = of_row(p.ended, 1), p.fault = of_row(p.fault, 1);
    if (p.q) {
        p.q = of_row(p.q, p.hidden), p.q2 = of_row(p.q2, p.hidden);
        p.q_scale = of_row(p.q_scale, p.hidden / 32), p.q2_scale = of_row(p.q2_scale, p.hidden / 32);
    }
    // A warp has one row at a time and one stream's part.
    const u32 stream = warp / GROUP_ROWS % 4, place = stream * p.hidden + blockIdx.x * BLOCK + lane;
    auto ask = [&](u32 row, float(&weight)[BLOCK / WARP]) {
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) weight[i] = row < rows ? p.mix[size_t(row) * width + place + i * WARP] : 0.0f;
    };
    u32 row = warp < WORKERS / WARP ? blockIdx.y * GROUP_ROWS + warp % GROUP_ROWS : rows;
    float weight[BLOCK / WARP];
    ask(row, weight);
    // What the last block reads of weights; addresses, so that the constants' lines that they lie in come now, too.
    if (blockIdx.y == 0 && threadIdx.x < BLOCK / WARP) prefetch(p.norm + blockIdx.x * BLOCK + threadIdx.x * WARP);
    if (p.mix && threadIdx.x < 2) prefetch(p.base + threadIdx.x * (GATES - 1));
    prefetch(p.ended);
    prefetch(p.residual);
    wait_for_predecessor();

    if (threadIdx.x < WORKERS) change_streams(p);
    __syncthreads();
    if (p.mix && warp < WORKERS / WARP) {
#pragma unroll 1
        while (row <= rows) {
            // The next row's weights come while this one's sum is made.
            const u32 following = row + gridDim.y * GROUP_ROWS;
            float next[BLOCK / WARP], sum = 0.0f;
            ask(following, next);
#pragma unroll
            for (u32 i = 0; i < BLOCK / WARP; i++) {
                const float value = shared_at<float>((stream * BLOCK + i * WARP + lane) * 4);
                sum = fmaf(row < rows ? weight[i] : value, value, sum);
            }
            sum = lanes_tree(sum);
            if (lane == 0) p.partials[row * 4 * parts + stream * parts + blockIdx.x] = sum;
#pragma unroll
            for (u32 i = 0; i < BLOCK / WARP; i++) weight[i] = next[i];
            row = following;
        }
    }
    if (is_last(p.ended, gridDim.x * gridDim.y)) finish(p);
}

// ---- any streams

extern "C" __global__ void __launch_bounds__(THREADS) site(Site p) {
    let_successor_begin();
    const u32 n = p.streams, width = n * p.hidden, rows = p.mix ? 2 * n + n * n : 0;
    const u32 blocks = blocks_of(width);
    const u32 mine = (blocks - blockIdx.x + gridDim.x - 1) / gridDim.x;  // parts of 256: blockIdx.x, + gridDim.x, ...
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    const u32 gates = 0, values = (n + n * n + 3) / 4 * 16;
    wait_for_predecessor();
    if (p.mode != KEEP) {
        for (u32 i = threadIdx.x; i < n + n * n; i += blockDim.x) shared_at<float>(gates + i * 4) = p.gates[i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < mine * BLOCK; i += blockDim.x) {
        const u32 at = (blockIdx.x + i / BLOCK * gridDim.x) * BLOCK + i % BLOCK;
        float value = 0.0f;
        if (at < width) {
            const u32 h = at % p.hidden;
            const float y = p.mode == KEEP ? 0.0f : output_at(p, h);
            value = stream_at(p, at / p.hidden, h, y, gates);
            if (blockIdx.y == 0) p.next[at] = value;
        }
        shared_at<float>(values + i * 4) = value;
    }
    __syncthreads();
    if (p.mix) {
        const u32 first = blockIdx.y * ROWS_PER_BLOCK, some = min(ROWS_PER_BLOCK, rows + 1 - first);
        for (u32 task = warp; task < some * mine; task += warps) {
            const u32 row = first + task / mine, part = task % mine, block = blockIdx.x + part * gridDim.x;
            const u32 at = values + part * BLOCK * 4;
            auto value = [&](u32 i) { return shared_at<float>(at + i * 4); };
            const float* weights = p.mix + size_t(row) * width + size_t(block) * BLOCK;
            auto weight = [&](u32 i) { return row < rows ? weights[i] : shared_at<float>(at + i * 4); };
            const float sum = dot_block(min(width - block * BLOCK, BLOCK), weight, value);
            if (lane == 0) p.partials[row * blocks + block] = sum;
        }
    }

    if (!is_last(p.ended, gridDim.x * gridDim.y)) return;
    const u32 raw = 0, scratch = raw + p.hidden * 4, sums = scratch + padded(blocks_of(p.hidden)) * 4;
    const u32 stride = padded(blocks), pre = sums + (rows + 1) * stride * 4, comb = pre + n * 4;
    if (p.mix) {
        for (u32 i = threadIdx.x; i < (rows + 1) * blocks; i += blockDim.x) {
            shared_at<float>(sums + (i / blocks * stride + i % blocks) * 4) = load_fresh(p.partials + i);
        }
        tree_rows(sums, rows + 1, blocks);
        const float squares_of_all = shared_at<float>(sums + rows * stride * 4);
        if (threadIdx.x == 0 && !(fabsf(squares_of_all) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
        const float inverse = 1.0f / sqrtf(squares_of_all / float(width) + p.rms_eps);
        auto logit = [&](u32 k, float scale) {
            return (shared_at<float>(sums + k * stride * 4) * inverse) * scale + p.base[k];
        };
        if (threadIdx.x < n) {
            shared_at<float>(pre + threadIdx.x * 4) = sigmoid(logit(threadIdx.x, p.scale[0])) + p.hc_eps;
        }
        __syncthreads();
        // The last warp makes the other gates, which nobody needs before the next site.
        if (warp == warps - 1) {
            if (lane < n) p.gates_out[lane] = sigmoid(logit(n + lane, p.scale[1])) * 2.0f;
            for (u32 i = lane; i < n * n; i += WARP) {
                shared_at<float>(comb + i * 4) = logit(2 * n + i, p.scale[2]);
            }
            __syncwarp();
            for (u32 i = lane; i < n; i += WARP) {
                float* row = &shared_at<float>(comb + i * n * 4);
                float largest = -bits(0x7f800000u);
                for (u32 j = 0; j < n; j++) largest = fmaxf(largest, row[j]);
                float sum = 0.0f;
                for (u32 j = 0; j < n; j++) {
                    row[j] = canon_exp(row[j] - largest);
                    sum = sum + row[j];
                }
                for (u32 j = 0; j < n; j++) row[j] = row[j] / sum + p.hc_eps;
            }
            __syncwarp();
            if (n * n <= WARP) {
                const float c = lane < n * n ? shared_at<float>(comb + lane * 4) : 1.0f;
                const float mixed = sinkhorn_of(c, n, p.sinkhorn, p.hc_eps);
                if (lane < n * n) p.gates_out[n + lane] = mixed;
            } else {
                // n is at most 8: this warp has a lane for every row.
                sinkhorn_passes(comb, n, p.sinkhorn, p.hc_eps);
                for (u32 i = lane; i < n * n; i += WARP) p.gates_out[n + i] = shared_at<float>(comb + i * 4);
            }
        }
    }
    for (u32 h = threadIdx.x; h < p.hidden; h += blockDim.x) {
        float value = 0.0f;
        for (u32 s = 0; s < n; s++) {
            const float stream = load_fresh(p.next + s * p.hidden + h);
            value = p.mix ? value + (shared_at<float>(pre + s * 4) * stream) : value + stream;
        }
        shared_at<float>(raw + h * 4) = p.mix ? value : value / float(n);
    }
    __syncthreads();
    const float sum = squares(raw, p.hidden, scratch);
    if (threadIdx.x == 0 && !(fabsf(sum) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
    const float factor = 1.0f / sqrtf(sum / float(p.hidden) + p.rms_eps);
    for (u32 h = threadIdx.x; h < p.hidden; h += blockDim.x) {
        p.x[h] = (shared_at<float>(raw + h * 4) * factor) * p.norm[h];
    }
}
