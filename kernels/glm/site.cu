// Hyper-connections (docs/ARITHMETIC.md; model-spec 2.3 to 2.5): the streams take a layer part's output, and the next part's
// input is read from them.
//
// Blocks own parts of the streams and make, beside the new values, what the 24 mixing sums and the square sum get from them.
// The block that ends last adds these up, makes the gates and the normed input. Nobody waits for it.
#include "canon.cuh"
#include "order.cuh"

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
        if (threadIdx.x == 0 && !(fabsf(squares_of_all) < bits(0x7f800000u))) *p.fault = p.code;
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
                for (u32 pass = 0; pass < 2 * p.sinkhorn - 1; pass++) {
                    const u32 step = pass % 2 == 0 ? n : 1, from = pass % 2 == 0 ? lane : lane * n;
                    if (lane < n) {
                        float sum = 0.0f;
                        for (u32 m = 0; m < n; m++) sum = sum + shared_at<float>(comb + (from + m * step) * 4);
                        sum = sum + p.hc_eps;
                        for (u32 m = 0; m < n; m++) {
                            float& c = shared_at<float>(comb + (from + m * step) * 4);
                            c = c / sum;
                        }
                    }
                    __syncwarp();
                }
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
    if (threadIdx.x == 0 && !(fabsf(sum) < bits(0x7f800000u))) *p.fault = p.code;
    const float factor = 1.0f / sqrtf(sum / float(p.hidden) + p.rms_eps);
    for (u32 h = threadIdx.x; h < p.hidden; h += blockDim.x) {
        p.x[h] = (shared_at<float>(raw + h * 4) * factor) * p.norm[h];
    }
}
