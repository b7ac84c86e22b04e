// Products of float weights with many f32 vectors, in dot order (docs/ARITHMETIC.md).
//
// A block of threads has 32 matrix rows and 32 columns. Eight lanes share four rows and four columns: each does four neighbouring lanes
// of the dot order, so that two levels of the lanes' tree stay inside a lane and the other three go over sixteen sums at once.
#include "canon.cuh"
#include "partials.cuh"
#include "products.cuh"

constexpr u32 THREADS = 512;
constexpr u32 SIDE = 32;   // rows and columns of a block
constexpr u32 HALF = 128;  // elements in shared memory at once
constexpr u32 BLOCK = 256;

DEV float weight_at(const u8* w, u32 format, size_t i) {
    if (format == 0) return reinterpret_cast<const float*>(w)[i];
    const u16 word = reinterpret_cast<const u16*>(w)[i];
    return format == 1 ? half_value(word) : __uint_as_float(u32(word) << 16);
}

// `format`: 0 F32, 1 F16, 2 BF16; `q` are f32 vectors, those of a column side by side and columns `pitch` bytes apart. Shared memory:
// 32 KB, then a word a column twice.
extern "C" __global__ void __launch_bounds__(THREADS, 1) rows_float(const __grid_constant__ RowsTasks tasks) {
    Columns columns;
    if (!find_columns(tasks, SIDE, columns)) return;
    const Place place = find_rows(tasks, SIDE);
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first, k = task.k, tid = threadIdx.x;
    constexpr u32 W = 0, X = SIDE * HALF * 4, VECTOR = 2 * X, COLUMN = VECTOR + SIDE * 4;
    if (tid < columns.count) {
        const u32 column = columns.column(tid);
        shared_at<u32>(COLUMN + tid * 4) = column;
        shared_at<u32>(VECTOR + tid * 4) = column / task.share;
    }
    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    const u32 lane = tid % 8, group = tid / 8, m0 = group % 8 * 4, n0 = group / 8 * 4;
    // Whether everything begins where four floats can be read at once.
    const bool vectors = task.format == 0 && k % 4 == 0 && task.pitch % 16 == 0 && reinterpret_cast<size_t>(task.q) % 16 == 0;
    const u32 blocks = (k + BLOCK - 1) / BLOCK;
    u32 total = 1;
    while (total < blocks) total *= 2;
    Partials<2, 4, 8> partials;
    float more[8][2], v[2] = {0.0f, 0.0f};
#pragma unroll 1
    for (u32 block = 0; block < blocks; block++) {
        float sum[16][4] = {};
#pragma unroll 1
        for (u32 half = 0; half < 2; half++) {
            const u32 from = block * BLOCK + half * HALF, n = from < k ? min(HALF, k - from) : 0;
            __syncthreads();
            for (u32 i = tid; vectors && n == HALF && i < SIDE * HALF / 4; i += THREADS) {
                const u32 row = i / (HALF / 4), at = i % (HALF / 4) * 4;
                float4 a = make_float4(0.0f, 0.0f, 0.0f, 0.0f), b = a;
                if (row < rows) a = *reinterpret_cast<const float4*>(w + size_t(row) * task.row_bytes + (from + at) * 4);
                if (row < columns.count) {
                    const u8* x = task.q + size_t(shared_at<u32>(VECTOR + row * 4)) * task.pitch;
                    b = *reinterpret_cast<const float4*>(x + (place.vector * k + from + at) * 4);
                }
                shared_at<float4>(W + i * 16) = a;
                shared_at<float4>(X + i * 16) = b;
            }
            for (u32 i = tid; !(vectors && n == HALF) && i < SIDE * HALF; i += THREADS) {
                const u32 row = i / HALF, at = i % HALF;
                float a = 0.0f, b = 0.0f;
                if (at < n && row < rows) a = weight_at(w + size_t(row) * task.row_bytes, task.format, from + at);
                if (at < n && row < columns.count) {
                    const u8* x = task.q + size_t(shared_at<u32>(VECTOR + row * 4)) * task.pitch;
                    b = reinterpret_cast<const float*>(x)[place.vector * k + from + at];
                }
                shared_at<float>(W + i * 4) = a;
                shared_at<float>(X + i * 4) = b;
            }
            __syncthreads();
            const u32 whole = n / 32;
            auto step = [&](u32 s, u32 count) {
                float4 a[4], b[4];
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    a[i] = shared_at<float4>(W + ((m0 + i) * HALF + s * 32 + lane * 4) * 4);
                    b[i] = shared_at<float4>(X + ((n0 + i) * HALF + s * 32 + lane * 4) * 4);
                }
                // A lane takes part only in elements that exist: +0 would make -0 into +0.
#pragma unroll
                for (u32 i = 0; i < 16; i++) {
                    const float4 p = a[i / 4], q = b[i % 4];
                    if (count > 0) sum[i][0] = fmaf(p.x, q.x, sum[i][0]);
                    if (count > 1) sum[i][1] = fmaf(p.y, q.y, sum[i][1]);
                    if (count > 2) sum[i][2] = fmaf(p.z, q.z, sum[i][2]);
                    if (count > 3) sum[i][3] = fmaf(p.w, q.w, sum[i][3]);
                }
            };
#pragma unroll 1
            for (u32 s = 0; s < whole; s++) step(s, 4);
            if (n % 32 > lane * 4) step(whole, n % 32 - lane * 4);
        }
        float all[16];
#pragma unroll
        for (u32 i = 0; i < 16; i++) all[i] = (sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3]);
#pragma unroll
        for (u32 mask = 1, left = 8; mask < 8; mask *= 2, left /= 2) {
            const bool upper = lane & mask;
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                if (i < left) {
                    const float kept = upper ? all[i + left] : all[i], given = upper ? all[i] : all[i + left];
                    all[i] = kept + lane_xor(given, mask);
                }
            }
        }
        v[0] = all[0], v[1] = all[1];
        partials.push(v, block, total, more);
    }
#pragma unroll 1
    for (u32 index = blocks; index < total; index++) {
        v[0] = 0.0f, v[1] = 0.0f;
        partials.push(v, index, total, more);
    }
    // This lane is left with two of the sixteen.
    const u32 first = (lane & 1) * 8 + (lane & 2) * 2 + (lane & 4) / 2;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        const u32 row = m0 + (first + i) / 4, column = n0 + (first + i) % 4;
        if (row < rows && column < columns.count) {
            task.y[size_t(shared_at<u32>(COLUMN + column * 4)) * task.stride + place.first + row] = v[i];
        }
    }
}

// gate = swiglu(gate, up), for products that take f32 vectors.
extern "C" __global__ void __launch_bounds__(256)
    rows_swiglu(float* gate, const float* up, u32 rows, u32 width, u32 stride, float limit) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size_t(rows) * width; i += size_t(gridDim.x) * blockDim.x) {
        const size_t at = i / width * stride + i % width;
        gate[at] = swiglu(gate[at], up[at], limit);
    }
}
