// Hyper-connections (docs/ARITHMETIC.md; model-spec 2.3 to 2.5) over rows: the streams take a layer part's output, and the next
// part's input is read from them. The order of every operation is that of glm/site.cu.
//
// Four streams are three launches, since a block cannot keep the 64 KB of a row's streams for the rows that the mixing matrix
// should be shared by: new streams and partial sums of a stretch of many rows; the gates; the normed input. What the first two
// leave for the next lies where the row's input will be.
#include "site_rows.cuh"

// ---- four streams of whole 256s, up to 4096 values: the published model

// Block (x, y) has rows from y * rows_of_block on, a multiple of four, and parts x, x + gridDim.x, ... of 256 values of each
// stream. Sixteen rows share a weight, so that the matrix is read 200 MB from the second level cache for 2048 rows, less than the
// streams. Two blocks a processor: one waits for memory while the other multiplies.
extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 2) site_rows4_streams(SiteRows p) {
    const u32 first = blockIdx.y * p.rows_of_block, count = min(p.rows_of_block, p.rows - first), parts = p.hidden / BLOCK;
    const u32 values = 0, sums = p.rows_of_block * S * BLOCK * 4, gates = sums + p.rows_of_block * S * LINE * 4;
    // Nothing else writes the ends of the lines.
    for (u32 i = threadIdx.x; i < p.rows_of_block * S * LINE; i += STREAM_THREADS) shared_at<float>(sums + i * 4) = 0.0f;
    if (p.mode == WRITE) {
        for (u32 i = threadIdx.x; i < count * GATES_OF_ROW; i += STREAM_THREADS) {
            shared_at<float>(gates + i * 4) = p.gates[size_t(first) * GATES_OF_ROW + i];
        }
    }
    __syncthreads();
#pragma unroll 1
    for (u32 part = blockIdx.x; part < parts; part += gridDim.x) {
        switch (p.mode) {
            case KEEP: next_streams<KEEP>(p, first, count, part, values, gates); break;
            case WRITE: next_streams<WRITE>(p, first, count, part, values, gates); break;
            default: next_streams<EMBED>(p, first, count, part, values, gates);
        }
        __syncthreads();
        if (p.mix) part_sums(p, count, part, values, sums);
        __syncthreads();
        if (p.mix) put_sums(p, first, count, part, sums);
    }
}

constexpr u32 GATE_THREADS = 128;
constexpr u32 MOST_STRETCHES = S * 16;

// A warp has a row: it adds up the partial sums and makes the gates; `pre` is left at the beginning of the row's input.
extern "C" __global__ void __launch_bounds__(GATE_THREADS) site_rows4_gates(SiteRows p) {
    const u32 lane = threadIdx.x % WARP, row = blockIdx.x * (GATE_THREADS / WARP) + threadIdx.x / WARP;
    if (row >= p.rows) return;
    const u32 parts = p.hidden / BLOCK, n = S * parts, whole = padded(n);
    float* x = p.x + size_t(row) * p.hidden;
    // Lane i has sum i: the tree over stretches of 256 values, stream by stream.
    float v[MOST_STRETCHES];
#pragma unroll
    for (u32 i = 0; i < MOST_STRETCHES; i++) v[i] = i < n ? x[(i % parts * S + i / parts) * LINE + lane] : 0.0f;
#pragma unroll
    for (u32 step = 1; step < MOST_STRETCHES; step *= 2) {
        if (step >= whole) break;
#pragma unroll
        for (u32 i = 0; i < MOST_STRETCHES; i += 2 * step) v[i] = v[i] + v[i + step];
    }
    const float mine = v[0];
    const float square_sum = __shfl_sync(ALL, mine, GATES);
    if (lane == 0 && !is_finite(square_sum)) fail(p, row);
    const float inverse = 1.0f / sqrtf(square_sum / float(S * p.hidden) + p.rms_eps);
    const float scale = lane < S ? p.scale[0] : lane < 2 * S ? p.scale[1] : p.scale[2];
    const float logit = (mine * inverse) * scale + p.base[min(lane, GATES - 1)];
    float* gates = p.gates + size_t(row) * GATES_OF_ROW;
    const float gate = sigmoid(logit);
    __syncwarp();
    if (lane < S) x[lane] = gate + p.hc_eps;
    if (lane >= S && lane < 2 * S) gates[lane - S] = gate * 2.0f;

    const float c = comb4(__shfl_sync(ALL, logit, 2 * S + lane % 16), p.sinkhorn, p.hc_eps);
    if (lane < S * S) gates[S + lane] = c;
}

constexpr u32 NORM_THREADS = 512;

// A block has a row, a warp 256 values, a lane those that it has in dot order. The last rows come first: they may still be in the
// second level cache.
extern "C" __global__ void __launch_bounds__(NORM_THREADS, 2) site_rows4_norm(SiteRows p) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, parts = p.hidden / BLOCK, row = p.rows - 1 - blockIdx.x;
    const float* streams = p.streams + size_t(row) * S * p.hidden + warp * BLOCK + lane;
    float* out = p.x + size_t(row) * p.hidden;
    float old[S][BLOCK / WARP];
#pragma unroll
    for (u32 s = 0; s < S; s++) {
#pragma unroll
        for (u32 i = 0; i < BLOCK / WARP; i++) old[s][i] = streams[s * p.hidden + i * WARP];
    }
    // Everybody has read `pre` when the sums meet.
    float4 pre = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (p.mix) pre = *reinterpret_cast<const float4*>(out);
    float x[BLOCK / WARP], sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < BLOCK / WARP; i++) {
        const float a = old[0][i], b = old[1][i], c = old[2][i], d = old[3][i];
        x[i] = p.mix ? (((0.0f + (pre.x * a)) + (pre.y * b)) + (pre.z * c)) + (pre.w * d) : (((0.0f + a) + b) + c + d) / 4.0f;
        sum = fmaf(x[i], x[i], sum);
    }
    sum = lanes_tree(sum);
    if (lane == 0) shared_at<float>(warp * 4) = sum;
    __syncthreads();
    sum = lane < parts ? shared_at<float>(lane * 4) : 0.0f;
    for (u32 mask = 1; mask < padded(parts); mask *= 2) sum = sum + lane_xor(sum, mask);
    sum = __shfl_sync(ALL, sum, 0);
    if (threadIdx.x == 0 && !is_finite(sum)) fail(p, row);
    const float factor = 1.0f / sqrtf(sum / float(p.hidden) + p.rms_eps);
#pragma unroll
    for (u32 i = 0; i < BLOCK / WARP; i++) {
        const u32 h = warp * BLOCK + i * WARP + lane;
        out[h] = (x[i] * factor) * p.norm[h];
    }
}

// ---- any streams, at most eight; a block has a row

constexpr u32 THREADS = 256;
constexpr u32 MAX_STREAMS = 8;

extern "C" __global__ void __launch_bounds__(THREADS) site_rows(SiteRows p) {
    const u32 n = p.n, row = blockIdx.x, width = n * p.hidden, of_row = n + n * n, sums = p.mix ? 2 * n + n * n : 0;
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32 gates = 0, logits = of_row * 4, partials = logits + (sums + 1) * 4;
    float* streams = p.streams + size_t(row) * width;
    float* own_gates = p.gates + size_t(row) * of_row;
    float* x = p.x + size_t(row) * p.hidden;
    if (p.mode == WRITE) {
        for (u32 i = threadIdx.x; i < of_row; i += THREADS) shared_at<float>(gates + i * 4) = own_gates[i];
    }
    __syncthreads();
    if (p.mode != KEEP) {
        for (u32 h = threadIdx.x; h < p.hidden; h += THREADS) {
            const float y = p.y[size_t(row) * p.hidden + h];
            float old[MAX_STREAMS];
#pragma unroll
            for (u32 s = 0; s < MAX_STREAMS; s++) old[s] = s < n && p.mode != EMBED ? streams[s * p.hidden + h] : 0.0f;
            for (u32 s = 0; s < n; s++) {
                float value = y;
                if (p.mode != EMBED) {
                    value = 0.0f + (shared_at<float>(gates + s * 4) * y);
#pragma unroll
                    for (u32 i = 0; i < MAX_STREAMS; i++) {
                        if (i < n) value = value + (shared_at<float>(gates + (n + i * n + s) * 4) * old[i]);
                    }
                }
                streams[s * p.hidden + h] = value;
            }
        }
    }
    __syncthreads();
    if (p.mix) {
        for (u32 k = warp; k <= sums; k += THREADS / WARP) {
            const float* weights = k < sums ? p.mix + size_t(k) * width : streams;
            const float sum = warp_sum(width, [&](u32 i, float s) { return fmaf(weights[i], streams[i], s); });
            if (lane == 0) shared_at<float>(logits + k * 4) = sum;
        }
        __syncthreads();
        const float square_sum = shared_at<float>(logits + sums * 4);
        if (threadIdx.x == 0 && !is_finite(square_sum)) fail(p, row);
        const float inverse = 1.0f / sqrtf(square_sum / float(width) + p.rms_eps);
        for (u32 k = threadIdx.x; k < sums; k += THREADS) {
            float& logit = shared_at<float>(logits + k * 4);
            logit = (logit * inverse) * p.scale[k < n ? 0 : k < 2 * n ? 1 : 2] + p.base[k];
            if (k < n) logit = sigmoid(logit) + p.hc_eps;
            if (k >= n && k < 2 * n) own_gates[k - n] = sigmoid(logit) * 2.0f;
        }
        __syncthreads();
        if (warp == THREADS / WARP - 1) {
            // There are at most eight lines and columns: a lane has one at a time.
            const u32 comb = logits + 2 * n * 4;
            if (lane < n) {
                float* line = &shared_at<float>(comb + lane * n * 4);
                float largest = -bits(0x7f800000u), sum = 0.0f;
                for (u32 j = 0; j < n; j++) largest = fmaxf(largest, line[j]);
                for (u32 j = 0; j < n; j++) {
                    line[j] = canon_exp(line[j] - largest);
                    sum = sum + line[j];
                }
                for (u32 j = 0; j < n; j++) line[j] = line[j] / sum + p.hc_eps;
            }
            __syncwarp();
            sinkhorn_passes(comb, n, p.sinkhorn, p.hc_eps);
            for (u32 i = lane; i < n * n; i += WARP) own_gates[n + i] = shared_at<float>(comb + i * 4);
        }
    }
    for (u32 h = threadIdx.x; h < p.hidden; h += THREADS) {
        float value = 0.0f;
        for (u32 s = 0; s < n; s++) {
            const float stream = streams[s * p.hidden + h];
            value = p.mix ? value + (shared_at<float>(logits + s * 4) * stream) : value + stream;
        }
        x[h] = p.mix ? value : value / float(n);
    }
    __syncthreads();
    const u32 blocks = blocks_of(p.hidden);
    for (u32 b = warp; b < blocks; b += THREADS / WARP) {
        const float* from = x + b * BLOCK;
        auto value = [&](u32 i) { return from[i]; };
        const float sum = dot_block(min(p.hidden - b * BLOCK, BLOCK), value, value);
        if (lane == 0) shared_at<float>(partials + b * 4) = sum;
    }
    tree_rows(partials, 1, blocks);
    const float sum = shared_at<float>(partials);
    if (threadIdx.x == 0 && !is_finite(sum)) fail(p, row);
    const float factor = 1.0f / sqrtf(sum / float(p.hidden) + p.rms_eps);
    for (u32 h = threadIdx.x; h < p.hidden; h += THREADS) x[h] = (x[h] * factor) * p.norm[h];
}
