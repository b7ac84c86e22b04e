// Products of float weights with many f32 vectors, in dot order (docs/ARITHMETIC.md).
//
// A block of threads has 32 matrix rows and 32 columns. Eight threads share a tile of eight rows and four columns: each does four
// neighbouring lanes of the dot order, so that two levels of the lanes' tree stay inside a thread and the other three go over 32
// sums at once. Twelve 16-byte reads of shared memory serve 128 multiply-adds; with four by four it was eight for 64, each of
// twice as many cycles, and that was the time.
#include "canon.cuh"
#include "partials.cuh"
#include "products.cuh"

constexpr u32 THREADS = 256;
constexpr u32 SIDE = 32;         // rows and columns of a block
constexpr u32 HALF = 128;        // elements in shared memory at once, twice
constexpr u32 BLOCK = 256;
constexpr u32 ROWS = 8, COLUMNS = 4;  // of a thread
constexpr u32 VECTOR = HALF * 4;      // bytes of a row, or of a column
constexpr u32 X = SIDE * VECTOR;      // columns are behind the rows
constexpr u32 STAGE = 2 * X;
constexpr u32 TILES = SIDE / ROWS, ACROSS = SIDE / COLUMNS;
// Steps without a branch. With four, newer compilers hold so many reads ahead that registers do not suffice.
constexpr u32 AT_ONCE = __CUDA_ARCH__ >= 1000 ? 1 : HALF / WARP;
constexpr u32 BATCH = THREADS / WARP;  // vectors that are copied at once

DEV float weight_at(const u8* w, u32 format, size_t i) {
    if (format == 0) return reinterpret_cast<const float*>(w)[i];
    const u16 word = reinterpret_cast<const u16*>(w)[i];
    return format == 1 ? half_value(word) : __uint_as_float(u32(word) << 16);
}

// Sixteen bytes `piece` of a vector. Those of odd vectors lie 64 bytes off: half a warp reads four pieces of two neighbours.
DEV u32 place_of(u32 vector, u32 piece) { return vector * VECTOR + (piece ^ vector % 2 * 4) * 16; }

// Where a thread's vectors are in a stage. Row i of it is at rows[i]: which of the eight that is depends on the thread, so that
// what it gives away of its sums is always in the same registers.
struct Reads {
    u32 rows[ROWS], columns;
};

// Elements 4 lane to 4 lane + 3 of step s, of those that exist: +0 would make -0 into +0.
DEV void add_step(const Reads& reads, const u8* stage, u32 s, u32 count, float (&sum)[ROWS][COLUMNS][4]) {
    float4 q[COLUMNS];
#pragma unroll
    for (u32 j = 0; j < COLUMNS; j++) {
        q[j] = *reinterpret_cast<const float4*>(stage + reads.columns + j * ACROSS * VECTOR + s * WARP * 4);
    }
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        const float4 p = *reinterpret_cast<const float4*>(stage + reads.rows[i] + s * WARP * 4);
#pragma unroll
        for (u32 j = 0; j < COLUMNS; j++) {
            float(&t)[4] = sum[i][j];
            if (count > 0) t[0] = fmaf(p.x, q[j].x, t[0]);
            if (count > 1) t[1] = fmaf(p.y, q[j].y, t[1]);
            if (count > 2) t[2] = fmaf(p.z, q[j].z, t[2]);
            if (count > 3) t[3] = fmaf(p.w, q[j].w, t[3]);
        }
    }
}

// `format`: 0 F32, 1 F16, 2 BF16; `q` are f32 vectors, those of a column side by side and columns `pitch` bytes apart. Shared
// memory: 64 KB.
extern "C" __global__ void __launch_bounds__(THREADS, 1) rows_float(const __grid_constant__ RowsTasks tasks) {
    Columns columns;
    if (!find_columns(tasks, SIDE, columns)) return;
    const Place place = find_rows(tasks, SIDE);
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first, k = task.k, tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    // Whether everything begins where sixteen bytes can be copied.
    const bool aligned = (reinterpret_cast<size_t>(task.q) | reinterpret_cast<size_t>(w)) % 16 == 0;
    const bool vectors = task.format == 0 && k % 4 == 0 && task.pitch % 16 == 0 && aligned;
    // A warp copies every eighth row and column.
    const float* x[SIDE / BATCH];
#pragma unroll
    for (u32 m = 0; m < SIDE / BATCH; m++) {
        const u32 column = columns.column(min(warp + m * BATCH, columns.count - 1)) / task.share;
        x[m] = reinterpret_cast<const float*>(task.q + size_t(column) * task.pitch) + size_t(place.vector) * k;
    }
    auto fetch = [&](u32 half) {
        const u32 from = half * HALF, n = from < k ? min(HALF, k - from) : 0, stage = half % 2 * STAGE;
        if (vectors && n == HALF) {
#pragma unroll
            for (u32 m = 0; m < SIDE / BATCH; m++) {
                const u32 own = warp + m * BATCH, to = stage + place_of(own, lane);
                if (own < rows) copy16(smem + to, w + size_t(own) * task.row_bytes + (from + lane * 4) * 4);
                if (own < columns.count) copy16(smem + to + X, reinterpret_cast<const u8*>(x[m] + from + lane * 4));
            }
        } else {
#pragma unroll 1
            for (u32 at = lane; at < n; at += WARP) {
#pragma unroll
                for (u32 m = 0; m < SIDE / BATCH; m++) {
                    const u32 own = warp + m * BATCH, to = stage + place_of(own, at / 4) + at % 4 * 4;
                    if (own < rows) shared_at<float>(to) = weight_at(w + size_t(own) * task.row_bytes, task.format, from + at);
                    if (own < columns.count) shared_at<float>(to + X) = x[m][from + at];
                }
            }
        }
        copies_end();
    };

    // Neighbouring threads share columns, those two apart rows.
    const u32 group = lane >> 2, tile = (lane & 1) | (warp & 1) << 1, across = (lane >> 1 & 1) | (warp >> 1) << 1;
    const u32 kept = (group >> 2) | (group & 2) | (group & 1) << 2;
    Reads reads;
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) reads.rows[i] = place_of((i ^ kept) * TILES + tile, group);
    reads.columns = X + place_of(across, group);

    const u32 blocks = (k + BLOCK - 1) / BLOCK;
    u32 total = 1;
    while (total < blocks) total *= 2;
    Partials<COLUMNS, 2, 8> partials;
    float more[8][COLUMNS], v[COLUMNS] = {};
    fetch(0);
#pragma unroll 1
    for (u32 block = 0; block < blocks; block++) {
        float sum[ROWS][COLUMNS][4] = {};
#pragma unroll 1
        for (u32 half = 2 * block; half < 2 * block + 2; half++) {
            copies_wait<0>();
            __syncthreads();
            if (half + 1 < 2 * blocks) fetch(half + 1);
            const u32 from = half * HALF, n = from < k ? min(HALF, k - from) : 0;
            const u8* const stage = smem + half % 2 * STAGE;
            if (n == HALF) {
#pragma unroll 1
                for (u32 s = 0; s < HALF / WARP; s += AT_ONCE) {
#pragma unroll
                    for (u32 i = 0; i < AT_ONCE; i++) add_step(reads, stage, s + i, 4, sum);
                }
            } else {
#pragma unroll 1
                for (u32 at = group * 4; at < n; at += WARP) add_step(reads, stage, at / WARP, n - at, sum);
            }
        }
        float all[ROWS][COLUMNS];
#pragma unroll
        for (u32 j = 0; j < COLUMNS; j++) {
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) all[i][j] = (sum[i][j][0] + sum[i][j][1]) + (sum[i][j][2] + sum[i][j][3]);
#pragma unroll
            for (u32 i = 0; i < 4; i++) all[i][j] = all[i][j] + lane_xor(all[i + 4][j], 4);
#pragma unroll
            for (u32 i = 0; i < 2; i++) all[i][j] = all[i][j] + lane_xor(all[i + 2][j], 8);
            v[j] = all[0][j] + lane_xor(all[1][j], 16);
        }
        partials.push(v, block, total, more);
    }
#pragma unroll 1
    for (u32 index = blocks; index < total; index++) {
#pragma unroll
        for (u32 j = 0; j < COLUMNS; j++) v[j] = 0.0f;
        partials.push(v, index, total, more);
    }
    // The thread is left with one row.
    const u32 row = kept * TILES + tile;
#pragma unroll
    for (u32 j = 0; j < COLUMNS; j++) {
        const u32 column = j * ACROSS + across;
        if (row < rows && column < columns.count) task.y[size_t(columns.column(column)) * task.stride + place.first + row] = v[j];
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
