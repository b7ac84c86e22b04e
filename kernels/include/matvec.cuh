// Matrices times one vector each.
//
// Weights of quantised rows come through shared memory (ring.cuh) and meet activations that lanes keep in registers;
// some tiles are multiplied at once, so that one's look-ups hide another's.
#pragma once
#include "codebook.cuh"
#include "floats.cuh"
#include "narrow.cuh"
#include "ring.cuh"
#include "row_sums.cuh"
#include "task.cuh"
#include "tree.cuh"
#include "wide.cuh"

// A row's segments, whose sums lie in shared memory, are added by one thread.
template <typename F>
DEV void join_segments(const Shape<F>& shape, float* y) {
    __syncthreads();
#pragma unroll 1
    for (u32 row = threadIdx.x; row < shape.rows; row += blockDim.x) {
        float sum[MOST_SEGMENTS];
#pragma unroll
        for (u32 s = 0; s < MOST_SEGMENTS; s++) {
            sum[s] = s < shape.segments ? shared_at<float>(shape.partials + (row * shape.segments + s) * 4) : 0.0f;
        }
        float all = sum[0] + sum[1];
        if (shape.segments > 2) all = all + (sum[2] + sum[3]);
        if (shape.segments > 4) all = all + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
        y[row] = all;
    }
}

// Multiplies all tiles of this warp. `units(block, value)` gives the values of this lane's units in ABREAST tiles, the first
// block of each at `block`. PAIRED: a value belongs to the first of two tiles in an even lane and to the second in an
// odd one. Values that do not exist are +0; a row has as many lanes as its tree is wide.
template <bool PAIRED, typename F, typename Units>
DEV void multiply(const Shape<F>& shape, const Ring<F>& ring, u32 lane_offset, float* y, Units units) {
    constexpr u32 OF = PAIRED ? 2 : 1, VALUES = F::TILES / OF, SOME = F::ABREAST / OF;
    const u32 lane = ring.lane, across = shape.across, at = lane & (across - 1), row_in_tile = lane >> shape.log_across;
#pragma unroll 1
    for (u32 stage = 0; stage < shape.stages; stage++) {
        const u32 first = shape.first_tile(stage);
        ring.wait(stage);
        float value[VALUES] = {};
        // Not unrolled: a launch finds little of its code in the caches, and does few turns of this loop, so that instructions would
        // be waited for (a quarter of the time of a codebook's gates, unrolled).
#pragma unroll 1
        for (u32 t = 0; t < F::TILES; t += F::ABREAST) {
            if (first + t < shape.last) {
                u32 block[F::ABREAST];
#pragma unroll
                for (u32 u = 0; u < F::ABREAST; u++) block[u] = ring.tile_at(stage, t + u) + lane_offset;
                float some[SOME] = {};
                units(block, some);
#pragma unroll
                for (u32 v = 0; v < VALUES; v++) value[v] = v / SOME * F::ABREAST == t ? some[v % SOME] : value[v];
            }
        }
        // The stage has been read: it takes the one after next while the sums are added.
        __syncwarp();
        ring.fetch(stage + STAGES);
        // All trees of the stage at once: one level's shuffles hide each other.
#pragma unroll
        for (u32 mask = OF; mask < WARP; mask *= 2) {
#pragma unroll
            for (u32 v = 0; v < VALUES; v++) {
                const float other = lane_xor(value[v], mask);
                if (mask < across) value[v] = value[v] + other;
            }
        }
        // A tile's sum is in all lanes of its row: each writes another tile's.
#pragma unroll 1
        for (u32 t = at; t < F::TILES; t += across) {
            const u32 row = (first + t) * shape.per_tile + row_in_tile;
            float sum = value[0];
#pragma unroll
            for (u32 v = 1; v < VALUES; v++) {
                const float other = value[v];
                sum = t / OF == v ? other : sum;
            }
            if (first + t < shape.last && row < shape.rows) {
                if (shape.segments > 1) {
                    shared_at<float>(shape.partials + (row * shape.segments + shape.segment) * 4) = sum;
                } else {
                    y[row] = sum;
                }
            }
        }
    }
    if (shape.segments > 1) join_segments(shape, y);
}

// The same, of PAIRED values, with the sums of some stages made at once (row_sums.cuh): 90 us for eight sequences' gates and ups instead of
// 94. Products that have few stages for each warp lose.
template <typename F, typename Units>
DEV void multiply_together(const Shape<F>& shape, const Ring<F>& ring, u32 lane_offset, float* y, Units units) {
    RowSums<F> sums(shape, ring.lane, y);
#pragma unroll 1
    for (u32 stage = 0; stage < shape.stages; stage++) {
        const u32 first = shape.first_tile(stage), tiles = min(F::TILES, shape.last - first);
        ring.wait(stage);
        u32 block[2] = {ring.tile_at(stage, 0) + lane_offset, ring.tile_at(stage, 1) + lane_offset};
        // Not unrolled either.
#pragma unroll 1
        for (u32 t = 0; t < tiles; t += 2) {
            float value;
            units(block, &value);
            sums.put(t, value);
            // Made anew for each pair, places would be one in twenty instructions.
            block[0] += shape.pair_bytes, block[1] += shape.pair_bytes;
            if (shape.segments > 1) block[0] = ring.tile_at(stage, t + 2) + lane_offset, block[1] = ring.tile_at(stage, t + 3) + lane_offset;
        }
        // The stage has been read: it takes the one after next.
        __syncwarp();
        ring.fetch(stage + STAGES);
        sums.add(tiles, stage + 1 == shape.stages);
    }
    if (shape.segments > 1) join_segments(shape, y);
}

// Everything up to the first product: weights on their way, tables and activations in shared memory.
template <u32 LANES, typename F>
DEV void begin(const Task& task, u32 first, const Shape<F>& shape, Ring<F>& ring, const u32* tables, u32* fault) {
    const size_t before = size_t(first) * task.row_bytes;
    const bool known = weights_are_known(task);
    if (known) ring.begin(weights_of(task) + before);
    F::Book::fill(tables);
    wait_for_predecessor();
    let_successor_begin();
    if (!known) ring.begin(weights_of(task) + before);
    quantize<LANES, Raw>(
        task.k, [&](u32 i, Raw& raw) { fetch_raw(task, i, raw); },
        [&](u32 i, const Raw& raw, float(&x)[8]) { activations(task, i, raw, x); }, shape.q, shape.scales, fault);
    __syncthreads();
}

// Two lanes share a block of 256 weights.
template <typename F>
DEV void matvec_wide(const Task& task, u32 first, u32 rows, const u32* tables, u32* fault) {
    const Shape<F> shape(task.k, rows, task.row_bytes);
    Ring<F> ring(shape);
    begin<32>(task, first, shape, ring, tables, fault);

    const u32 lane = ring.lane, half = lane % 2;
    const u32 at = lane & (shape.across - 1), row = lane >> shape.log_across;
    const u32 unit = shape.segment * SEGMENT + at;
    const bool present = unit < shape.units;
    u32 x[32], sums[4];
    unit_of(shape.q, present ? unit : 0, x);
    sums_of<F::RUN>(x, sums);
    F::arrange(x);
    const typename F::Book codebook(lane, x);
    const float dx = present ? shared_at<float>(shape.scales + unit / 2 * 4) : 0.0f;
    const u32 offset = row * task.row_bytes + (present ? at / 2 * F::BYTES : 0);
    // Of two tiles an even lane takes the first one's sum, and an odd lane the second one's. Nothing but dot products
    // stands before the shuffle: then the compiler puts the two into one stretch of instructions.
    static_assert(F::ABREAST == 2, "a lane of a pair has a tile");
    auto units = [&](const u32 (&block)[2], float* value) {
        const i32 s0 = F::dot(block[0], half, x, sums, codebook), s1 = F::dot(block[1], half, x, sums, codebook);
        const u32 mine = half ? block[1] : block[0];
        const i32 sum = (half ? s1 : s0) + lane_xor(half ? s0 : s1, 1);
        float product = (F::d(mine) * dx) * float(sum);
        if constexpr (F::MINIMA) {
            const i32 m0 = F::mins(block[0], half, sums), m1 = F::mins(block[1], half, sums);
            const i32 mins = (half ? m1 : m0) + lane_xor(half ? m0 : m1, 1);
            product = product - (F::dmin(mine) * dx) * float(mins);
        }
        *value = present ? product : 0.0f;
    };
    if constexpr (F::TOGETHER > 0) {
        multiply_together(shape, ring, offset, task.y + first, units);
    } else {
        multiply<true>(shape, ring, offset, task.y + first, units);
    }
}

// A lane has four blocks of 32 weights, which are the lowest levels of the tree.
template <typename F>
DEV void matvec_narrow(const Task& task, u32 first, u32 rows, const u32* tables, u32* fault) {
    const Shape<F> shape(task.k, rows, task.row_bytes);
    Ring<F> ring(shape);
    begin<4>(task, first, shape, ring, tables, fault);

    const u32 lane = ring.lane;
    const u32 at = lane & (shape.across - 1), row = lane >> shape.log_across;
    const u32 unit = shape.segment * SEGMENT + at;
    const bool present = unit < shape.units;
    const u32 blocks = task.k / F::LEN, exist = present ? blocks - 4 * unit : 0;  // 4 and more: all of them
    u32 x[32];
    unit_of(shape.q, present ? unit : 0, x);
    float dx[4], sum_of_q[4];
#pragma unroll
    for (u32 b = 0; b < 4; b++) {
        dx[b] = b < exist ? shared_at<float>(shape.scales + (4 * unit + b) * 4) : 0.0f;
        i32 sum = 0;
#pragma unroll
        for (u32 i = 0; i < 8; i++) sum = dp4a(0x01010101u, x[8 * b + i], sum);
        sum_of_q[b] = float(sum);
    }
    F::arrange(x);
    const u32 offset = row * task.row_bytes + (present ? at * 4 * F::BYTES : 0);
    multiply<false>(shape, ring, offset, task.y + first, [&](const u32 (&block)[F::ABREAST], float* value) {
#pragma unroll
        for (u32 u = 0; u < F::ABREAST; u++) {
            float product[4];
#pragma unroll
            for (u32 b = 0; b < 4; b++) {
                const u32 at = block[u] + b * F::BYTES;
                product[b] = (F::d(at) * dx[b]) * float(F::dot(at, x + 8 * b));
                if constexpr (F::MINIMUM) product[b] = product[b] + (F::m(at) * dx[b]) * sum_of_q[b];
                if (b >= exist) product[b] = 0.0f;
            }
            // A row of one block or of two has no more levels: +0 would make -0 into +0.
            const float pair = product[0] + product[1];
            value[u] = blocks == 1 ? product[0] : blocks == 2 ? pair : pair + (product[2] + product[3]);
        }
    });
}

template <typename F>
DEV void matvec(const Task& task, u32 first, u32 rows, const u32* tables, u32* fault) {
    if constexpr (F::FAMILY == WIDE) matvec_wide<F>(task, first, rows, tables, fault);
    if constexpr (F::FAMILY == NARROW) matvec_narrow<F>(task, first, rows, tables, fault);
    if constexpr (F::FAMILY == FLOAT) matvec_floats<F>(task, first, rows);
}

// This block's task and rows; false where there are none.
DEV bool find_task(const Tasks& tasks, Task& task, u32& first, u32& rows) {
    // All are asked at once, in some 130 cycles: one after the other took about 40 cycles each.
    u32 t = 0;
    if (tasks.n > 1) {
#pragma unroll
        for (u32 i = 1; i < MOST_TASKS; i++) t += i < tasks.n && blockIdx.x >= tasks.first_block[i];
    }
    first = (blockIdx.x - tasks.first_block[t]) * tasks.rows_of_block[t];
    if (first >= tasks.task[t].rows) return false;
    rows = min(tasks.rows_of_block[t], tasks.task[t].rows - first);
    task = tasks.task[t];
    if (task.x_rows > 0) task.x += size_t(first / task.x_rows) * task.k;
    const size_t row = blockIdx.z;
    if (task.slot) task.slot += row * tasks.slots;
    task.x += row * tasks.xs, task.x2 += row * tasks.xs, task.y += row * tasks.ys;
    return true;
}

// The successor may begin when all blocks have waited: when it runs, all that came before this kernel has ended
// (`weights_are_known`). It finds no room earlier, because a block takes most of a multiprocessor.
//
// Kernels whose tasks have one format, or one of two (`Task::format` 0 or 1). A row's `fault` becomes 1 if activations
// of a quantised product are not finite. `tables` is codebook.cuh's; without a codebook it may be null.
#define MATVEC(NAME, F)                                                                                             \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                            \
        NAME(const __grid_constant__ Tasks tasks, const u32* tables1, const u32*, u32* fault) {                     \
        Task task;                                                                                                  \
        u32 first, rows;                                                                                            \
        if (find_task(tasks, task, first, rows)) matvec<F>(task, first, rows, tables1, fault + blockIdx.z);         \
    }

#define MATVEC_PAIR(NAME, F1, F2)                                                                                   \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                            \
        NAME(const __grid_constant__ Tasks tasks, const u32* tables1, const u32* tables2, u32* fault) {             \
        Task task;                                                                                                  \
        u32 first, rows;                                                                                            \
        if (!find_task(tasks, task, first, rows)) return;                                                           \
        fault += blockIdx.z;                                                                                        \
        if (task.format == 0) {                                                                                     \
            matvec<F1>(task, first, rows, tables1, fault);                                                          \
        } else {                                                                                                    \
            matvec<F2>(task, first, rows, tables2, fault);                                                          \
        }                                                                                                           \
    }
