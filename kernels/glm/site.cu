// Hyper-connections (docs/ARITHMETIC.md; model-spec 2.3 to 2.5): the streams take a layer part's output, and the next part's
// input is read from them.
//
// Blocks own parts of the streams and make, beside the new values, what the 24 mixing sums and the square sum get from them.
// The block that ends last adds these up, makes the gates and the normed input. Nobody waits for it.
#include "canon.cuh"
#include "order.cuh"
#include "sinkhorn.cuh"

constexpr u32 ROWS_PER_BLOCK = 4;  // mixing rows of a block
constexpr u32 THREADS = 512;

// How the streams change before they are read; any other way is by weighted experts in rank order and the shared one.
constexpr u32 KEEP = 0;   // not at all
constexpr u32 WRITE = 1;  // by one vector

struct Site {
    const float* residual;  // [streams][hidden]
    float* next;            // [streams][hidden]; not `residual`
    const float* y;         // [hidden]: the vector, or the shared expert's
    const float* experts;   // [k][hidden]
    const float* weights;   // [k]
    const float* gates;     // post, then comb [source][destination], of the site before
    float* gates_out;
    const float* mix;       // [2n + n*n][n * hidden]; null where only the head's mean is wanted
    const float* base;      // [2n + n*n]
    const float* norm;      // [hidden]
    float* x;               // [hidden]: the normed input
    float* partials;        // [2n + n*n + 1][blocks]
    u32* ended;             // blocks that have ended; 0 before and after
    u32* fault;
    u32 mode, k, hidden, streams, sinkhorn, code;
    float scale[3];
    float rms_eps, hc_eps;
};

DEV float load_fresh(const float* from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}

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

// ---- four streams of up to 4096 values: the published model

constexpr u32 FAST_THREADS = 544;  // sixteen warps for the streams, one for the gates
constexpr u32 WORKERS = 512;
constexpr u32 GATES = 24;          // mixing sums: pre 4, post 4, comb 16
constexpr u32 PARTS = 16;          // of a stream, at most
constexpr u32 GROUP_ROWS = 4;      // mixing sums of a block, or the square sum

// A barrier of the sixteen warps that the one for the gates does not take part in.
DEV void workers_meet() { asm volatile("bar.sync 1, 512;" ::: "memory"); }

// The sum of a row's partials, one a part and stream, in their order; every lane of the warp gets it. They are 64 at most.
DEV float row_sum(const float* partials, u32 n) {
    const u32 lane = threadIdx.x % WARP, whole = padded(n);
    if (whole <= WARP) {
        float sum = lane < n ? load_fresh(partials + lane) : 0.0f;
        for (u32 mask = 1; mask < whole; mask *= 2) sum = sum + lane_xor(sum, mask);
        return __shfl_sync(ALL, sum, 0);
    }
    const float left = 2 * lane < n ? load_fresh(partials + 2 * lane) : 0.0f;
    const float right = 2 * lane + 1 < n ? load_fresh(partials + 2 * lane + 1) : 0.0f;
    return lanes_tree(left + right);
}

DEV float4 load_fresh4(const float* from) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    return v;
}

// As `site`. Block (x, y) has part x, 256 values of each stream, and rows 4y to 4y + 4 of the mixing matrix; the row after the
// last is the square sum. Its weights are asked for before the predecessor has ended.
extern "C" __global__ void __launch_bounds__(FAST_THREADS) site4(Site p) {
    let_successor_begin();
    const u32 tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP;
    const u32 parts = p.hidden / BLOCK, width = 4 * p.hidden;
    const u32 rows = p.mix ? GATES : 0;
    // A warp has one row and one stream's part.
    const u32 row = blockIdx.y * GROUP_ROWS + warp % GROUP_ROWS, stream = warp / GROUP_ROWS % 4;
    const bool sums = p.mix && warp < WORKERS / WARP && row <= rows;
    float weight[BLOCK / WARP];
    if (sums && row < rows) {
        const float* from = p.mix + size_t(row) * width + stream * p.hidden + blockIdx.x * BLOCK + lane;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) weight[i] = from[i * WARP];
    }
    wait_for_predecessor();

    // The streams' new values: a thread has one of 256 places and two streams.
    const u32 values = 0;
    if (tid < WORKERS) {
        const u32 place = tid % BLOCK, pair = tid / BLOCK, h = blockIdx.x * BLOCK + place;
        float old[4], next[2];
#pragma unroll
        for (u32 s = 0; s < 4; s++) old[s] = p.residual[s * p.hidden + h];
        if (p.mode == KEEP) {
            next[0] = pair == 0 ? old[0] : old[2];
            next[1] = pair == 0 ? old[1] : old[3];
        } else {
            float y = p.y[h];
            if (p.mode != WRITE) {
                float routed = 0.0f;
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
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const u32 to = 2 * pair + j;
                float value = 0.0f + (p.gates[to] * y);
#pragma unroll
                for (u32 i = 0; i < 4; i++) value = value + (p.gates[4 + 4 * i + to] * old[i]);
                next[j] = value;
            }
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            shared_at<float>(values + ((2 * pair + j) * BLOCK + place) * 4) = next[j];
            if (blockIdx.y == 0) p.next[(2 * pair + j) * p.hidden + h] = next[j];
        }
    }
    __syncthreads();
    if (sums) {
        const u32 at = values + stream * BLOCK * 4;
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) {
            const float value = shared_at<float>(at + (i * WARP + lane) * 4);
            sum = fmaf(row < rows ? weight[i] : value, value, sum);
        }
        sum = lanes_tree(sum);
        if (lane == 0) p.partials[row * 4 * parts + stream * parts + blockIdx.x] = sum;
    }

    // The last block of all goes on.
    __threadfence();
    __syncthreads();
    if (tid == 0) shared_at<u32>(0) = atomicAdd(p.ended, 1) + 1 == gridDim.x * gridDim.y;
    __syncthreads();
    if (!shared_at<u32>(0)) return;
    if (tid == 0) *p.ended = 0;
    __threadfence();
    __syncthreads();

    const u32 logits = 0, raw = (GATES + 1 + 3) / 4 * 16, scratch = raw + PARTS * BLOCK * 4;
    // Eight neighbouring values of each stream a thread, on their way while the sums are made.
    const bool works = tid < WORKERS && tid * 8 < p.hidden;
    float4 old[4][2];
    if (works) {
#pragma unroll
        for (u32 s = 0; s < 4; s++) {
            old[s][0] = load_fresh4(p.next + s * p.hidden + tid * 8);
            old[s][1] = load_fresh4(p.next + s * p.hidden + tid * 8 + 4);
        }
    }
    if (p.mix) {
        for (u32 r = warp; r <= rows; r += FAST_THREADS / WARP) {
            const float sum = row_sum(p.partials + r * 4 * parts, 4 * parts);
            if (lane == 0) shared_at<float>(logits + r * 4) = sum;
        }
        __syncthreads();
    }
    const float square_sum = p.mix ? shared_at<float>(logits + rows * 4) : 0.0f;
    if (tid == 0 && !(fabsf(square_sum) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
    const float inverse = 1.0f / sqrtf(square_sum / float(width) + p.rms_eps);
    auto logit = [&](u32 k, float scale) { return (shared_at<float>(logits + k * 4) * inverse) * scale + p.base[k]; };
    if (warp == WORKERS / WARP) {
        // This warp makes the gates of the next site, and nobody waits for it.
        if (!p.mix) return;
        if (lane < 4) p.gates_out[lane] = sigmoid(logit(4 + lane, p.scale[1])) * 2.0f;
        const u32 element = lane % 16;
        float c = logit(8 + element, p.scale[2]);
        float largest = c;
#pragma unroll
        for (u32 m = 0; m < 4; m++) largest = fmaxf(largest, __shfl_sync(ALL, c, element / 4 * 4 + m));
        c = canon_exp(c - largest);
        float sum = 0.0f;
#pragma unroll
        for (u32 m = 0; m < 4; m++) sum = sum + __shfl_sync(ALL, c, element / 4 * 4 + m);
        c = c / sum + p.hc_eps;
        for (u32 pass = 0; pass < 2 * p.sinkhorn - 1; pass++) {
            const u32 first = pass % 2 == 0 ? element % 4 : element / 4 * 4, step = pass % 2 == 0 ? 4 : 1;
            float v[4];
#pragma unroll
            for (u32 m = 0; m < 4; m++) v[m] = __shfl_sync(ALL, c, first + m * step);
            c = c / ((((0.0f + v[0]) + v[1]) + v[2]) + v[3] + p.hc_eps);
        }
        if (lane < 16) p.gates_out[4 + lane] = c;
        return;
    }
    float x[8];
    if (works) {
        float pre[4];
#pragma unroll
        for (u32 s = 0; s < 4; s++) pre[s] = p.mix ? sigmoid(logit(s, p.scale[0])) + p.hc_eps : 0.0f;
        auto collapse = [&](float a, float b, float c, float d) {
            if (!p.mix) return (((0.0f + a) + b) + c + d) / 4.0f;
            return (((0.0f + (pre[0] * a)) + (pre[1] * b)) + (pre[2] * c)) + (pre[3] * d);
        };
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            x[4 * half] = collapse(old[0][half].x, old[1][half].x, old[2][half].x, old[3][half].x);
            x[4 * half + 1] = collapse(old[0][half].y, old[1][half].y, old[2][half].y, old[3][half].y);
            x[4 * half + 2] = collapse(old[0][half].z, old[1][half].z, old[2][half].z, old[3][half].z);
            x[4 * half + 3] = collapse(old[0][half].w, old[1][half].w, old[2][half].w, old[3][half].w);
            shared_at<float4>(raw + (tid * 8 + 4 * half) * 4) =
                make_float4(x[4 * half], x[4 * half + 1], x[4 * half + 2], x[4 * half + 3]);
        }
    }
    workers_meet();
    if (warp < parts) {
        float sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) {
            const float value = shared_at<float>(raw + (warp * BLOCK + i * WARP + lane) * 4);
            sum = fmaf(value, value, sum);
        }
        sum = lanes_tree(sum);
        if (lane == 0) shared_at<float>(scratch + warp * 4) = sum;
    }
    workers_meet();
    float sum = lane < parts ? shared_at<float>(scratch + lane * 4) : 0.0f;
    for (u32 mask = 1; mask < padded(parts); mask *= 2) sum = sum + lane_xor(sum, mask);
    sum = __shfl_sync(ALL, sum, 0);
    if (tid == 0 && !(fabsf(sum) < bits(0x7f800000u))) atomicCAS(p.fault, 0u, p.code);
    const float factor = 1.0f / sqrtf(sum / float(p.hidden) + p.rms_eps);
    if (works) {
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const float4 norm = *reinterpret_cast<const float4*>(p.norm + tid * 8 + 4 * half);
            *reinterpret_cast<float4*>(p.x + tid * 8 + 4 * half) =
                make_float4((x[4 * half] * factor) * norm.x, (x[4 * half + 1] * factor) * norm.y,
                            (x[4 * half + 2] * factor) * norm.z, (x[4 * half + 3] * factor) * norm.w);
        }
    }
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

    // The last block of all goes on.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) shared_at<u32>(0) = atomicAdd(p.ended, 1) + 1 == gridDim.x * gridDim.y;
    __syncthreads();
    if (!shared_at<u32>(0)) return;
    if (threadIdx.x == 0) *p.ended = 0;
    __threadfence();
    __syncthreads();

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
