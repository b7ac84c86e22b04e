// Quantised matrices times up to eight vectors (rows_product.cuh has the rest). Weights come once from device memory, so that is what a
// product takes: 4.5 TB/s are 19 weights of Q6_K a cycle of each multiprocessor.
//
// A warp has sixteen matrix rows and all columns, and of a row's steps of 256 weights a part: `split` warps share a row, each has
// neighbouring steps, so that its sums are a branch of the tree. It fetches its steps for itself, some at a time (a stage), and some
// stages are under way: there is no barrier but where the parts of a row meet. With one for all warps at every stage of four steps, and
// addresses made for each, a third of all instructions were not products. The vectors are in shared memory as a whole.
//
// Scales are not folded into the weights, but with a codebook: with eight columns, four multiply-adds for sixteen weights of sixteen
// rows cost less.
#pragma once
#include "activation.cuh"
#include "rows_product.cuh"

// What Lane needs of a Geometry.
struct Few {
    static constexpr u32 NT = 1, TN = 8, OUTPUTS = 4;
};
constexpr u32 FEW_ROWS = 16;         // of a warp
constexpr u32 FEW_THREADS = 512;     // of a block at most
constexpr u32 EXPERT_THREADS = 256;  // and with experts: scales are folded into codebooks' weights, which takes more registers

// Who this thread is, and what a launch has of everyone: warps that share a row, stages under way, steps of a stage.
struct FewWarp {
    u32 lane, warp, warps, split, groups, group, part, stages, deep;

    __device__ __forceinline__ explicit FewWarp(const RowsTasks& tasks)
        : lane(threadIdx.x % WARP), warps(blockDim.x / WARP), split(tasks.split), stages(tasks.stages), deep(tasks.deep) {
        // From lane 0, so that the compiler knows that a warp's lanes agree.
        warp = __shfl_sync(ALL, threadIdx.x / WARP, 0);
        groups = warps / split, group = warp / split, part = warp % split;
    }
};

// Places in shared memory, behind a codebook's tables. In bytes:
//
//   all = round_up(4 * table words, 16) + steps * (2048 + (minima ? 256 : 0)) + 8 * (4 * round_up(steps * each, 4) + 16) + 32
//       + warps * ((split > 1 ? 512 : 0) + stages * 16 * raw_pitch(deep * bytes))
struct FewRooms {
    u32 steps, pitch, stage, x, dx, dx_pitch, sums, column, values, ring;

    __device__ __forceinline__ FewRooms(const FewWarp& me, u32 k, u32 tables, u32 bytes, u32 each, bool minima) {
        steps = (k + STEP - 1) / STEP;
        x = (tables * 4 + 15) & ~15u;                    // activations, [step][..]
        dx = x + steps * (Few::TN * STEP);
        dx_pitch = ((steps * each + 3) & ~3u) * 4 + 16;  // of [column]; sixteen more, so that columns differ in banks
        sums = dx + Few::TN * dx_pitch;                  // [step][column][chunk]: sums of sixteens, where there are minima
        column = sums + (minima ? steps * 256 : 0);      // where a column's result goes
        values = column + Few::TN * 4;                   // [warp][lane]: four floats
        pitch = raw_pitch(me.deep * bytes), stage = FEW_ROWS * pitch;
        ring = values + (me.split > 1 ? me.warps * 512 : 0) + me.warp * me.stages * stage;  // this warp's
    }
};

// The weights of a word as signed bytes times 2^few_shift.
template <u32 BIAS>
constexpr u32 few_shift() { return BIAS == 32 ? 2 : BIAS == 4 ? 5 : 0; }
template <u32 BIAS>
DEV u32 few_signed(u32 u) {
    static_assert(BIAS == 0 || BIAS << few_shift<BIAS>() == 128, "the highest bit is the sign's");
    if constexpr (BIAS == 0) return u;
    return (u << few_shift<BIAS>()) ^ 0x80808080u;
}

template <typename U>
DEV void few_half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
    if constexpr (U::BYTES4) {
        U::signed_half(raw, t, h, out);
    } else {
        U::half(raw, t, h, out);
#pragma unroll
        for (u32 i = 0; i < 8; i++) out[i] = few_signed<U::BIAS>(out[i]);
    }
}

// sum += c * the row's scale.
DEV void add_scaled(i32 (&sum)[4], const i32 (&c)[4], i32 first, i32 second) {
    sum[0] += first * c[0], sum[1] += first * c[1];
    sum[2] += second * c[2], sum[3] += second * c[3];
}

// 256 weights with integer scales: values of the lane's two rows and columns.
template <typename U>
DEV void few_values(const u32 (&raw)[2], const Lane<Few>& own, u32 dx, u32 pitch, u32 sums, float (&v)[4]) {
    typedef typename U::Source F;
    i32 sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 words[2][8];
        few_half<U>(raw[0], own.t, h, words[0]);
        few_half<U>(raw[1], own.t, h, words[1]);
#pragma unroll
        for (u32 c = 0; c < 2; c++) {
            const u32 chunk = 2 * h + c, first = U::scales(raw[0], chunk), second = U::scales(raw[1], chunk);
            const uint4 four = own.chunk_of(0, chunk);
            const u32 x[4] = {four.x, four.y, four.z, four.w};
            auto word = [&](u32 k, u32 group) { return words[k][4 * c + group]; };
#pragma unroll
            for (u32 group = 0; group < 4; group += U::ONE ? 2 : 1) {
                i32 product[4];
                if constexpr (U::ONE) {
                    const uint4 w = make_uint4(word(0, group), word(1, group), word(0, group + 1), word(1, group + 1));
                    product_32(product, w, x[group], x[group + 1]);
                } else {
                    product_16(product, word(0, group), word(1, group), x[group]);
                }
                add_scaled(sum, product, signed_of(first, group), signed_of(second, group));
            }
        }
    }
    const float d[2] = {F::d(raw[0]), F::d(raw[1])};
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        const float scale = shared_at<float>(dx + (2 * own.t + e % 2) * pitch);
        v[e] = (d[e / 2] * scale) * float(sum[e] >> few_shift<U::BIAS>());
        if constexpr (U::MINIMA) {
            i32 least = 0;
#pragma unroll
            for (u32 chunk = 0; chunk < 4; chunk++) {
                const uint2 x = shared_at<uint2>(sums + ((2 * own.t + e % 2) * 4 + chunk) * 8);
                least = dp2a_unsigned(x.x, x.y, U::mins(raw[e / 2], chunk), least);
            }
            v[e] = v[e] - (F::dmin(raw[e / 2]) * scale) * float(least);
        }
    }
}

// The tree over four neighbours, of which `total` there are.
DEV float tree_of_four(float a, float b, float c, float d, u32 total) {
    return total == 1 ? a : total == 2 ? a + b : (a + b) + (c + d);
}

// Runs of 32 weights with a factor each, `runs` of eight, summed up as the tree has them. What does not exist is +0.
template <typename U>
DEV void few_run_values(const u32 (&raw)[2], const Lane<Few>& own, u32 dx, u32 pitch, u32 sums, u32 runs, u32 total,
                        float (&v)[4]) {
    typedef typename U::Source F;
    const u32 scales[2] = {dx + 2 * own.t * pitch, dx + (2 * own.t + 1) * pitch};
    float half[2][4];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 words[2][8];
        U::half(raw[0], own.t, h, words[0]);
        U::half(raw[1], own.t, h, words[1]);
        float value[4][4];
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            const u32 run = 4 * h + r;
            const uint4 x = own.chunk_of(0, run / 2);
            const uint4 w = make_uint4(words[0][2 * r], words[1][2 * r], words[0][2 * r + 1], words[1][2 * r + 1]);
            i32 c[4];
            product_32(c, w, r % 2 ? x.z : x.x, r % 2 ? x.w : x.y);
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                const u32 column = 2 * own.t + e % 2;
                const float scale = shared_beyond<float>(scales[e % 2], run * 4);
                float one = (U::d(raw[e / 2], run * F::BYTES) * scale) * float(c[e] >> U::SHIFT);
                if constexpr (U::MINIMA) {
                    const uint2 both = shared_at<uint2>(sums + (column * 4 + run / 2) * 8);
                    const u32 pair = r % 2 ? both.y : both.x;
                    one = one + (U::m(raw[e / 2], run * F::BYTES) * scale) * float((i32(pair << 16) >> 16) + (i32(pair) >> 16));
                }
                value[r][e] = one;
            }
        }
        if (runs < 8) {
#pragma unroll
            for (u32 i = 0; i < 16; i++) {
                if (4 * h + i / 4 >= runs) value[i / 4][i % 4] = 0.0f;
            }
        }
#pragma unroll
        for (u32 e = 0; e < 4; e++) half[h][e] = tree_of_four(value[0][e], value[1][e], value[2][e], value[3][e], total);
    }
#pragma unroll
    for (u32 e = 0; e < 4; e++) v[e] = total < 8 ? half[0][e] : half[0][e] + half[1][e];
}

// 256 weights of a format with a codebook, scales folded in.
template <typename U>
DEV void few_book_values(const u32 (&raw)[2], const Lane<Few>& own, u32 dx, u32 pitch, float (&v)[4]) {
    typedef typename U::Source F;
    Sums<Few> sums;
    multiply_book<U, true>(raw, own, sums);
    const float d[2] = {F::d(raw[0]), F::d(raw[1])};
#pragma unroll
    for (u32 e = 0; e < 4; e++) v[e] = (d[e / 2] * shared_at<float>(dx + (2 * own.t + e % 2) * pitch)) * float(sums.at(0, e));
}

// The warps that share rows meet: group `group` of the block, of `warps` warps.
DEV void group_meets(u32 group, u32 warps) { asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(warps * WARP) : "memory"); }

// Which rows of the pass a block's columns are, and which vectors they meet.
template <bool EXPERTS>
struct FewColumns {
    const Columns& of;
    u32 share, parts, vector;

    __device__ __forceinline__ FewColumns(const Columns& of, const RowsTask& task, u32 vector)
        : of(of), share(EXPERTS ? task.share : 1), parts(task.parts), vector(vector) {}
    __device__ __forceinline__ u32 column(u32 i) const { return EXPERTS ? of.column(i) : i; }
    __device__ __forceinline__ u32 row(u32 i) const { return EXPERTS ? of.column(i) / share : i; }
    __device__ __forceinline__ u32 vector_of(u32 i) const { return row(i) * parts + vector; }
};

// The whole vectors of a block's columns, rounded before: sixteen lanes a column's step, and as many a column's scales.
template <bool EXPERTS>
DEV void fetch_vectors(const RowsTask& task, const FewRooms& rooms, const FewColumns<EXPERTS>& columns, u32 each) {
    const u32 sixteen = threadIdx.x % 16;
#pragma unroll 1
    for (u32 i = threadIdx.x / 16; i < Few::TN * rooms.steps; i += blockDim.x / 16) {
        const u32 column = i % Few::TN, step = i / Few::TN;
        if (column >= columns.of.count) continue;
        const u8* from = task.q + size_t(columns.vector_of(column)) * task.pitch + size_t(step) * STEP + sixteen * 16;
        copy16(smem + rooms.x + step * (Few::TN * STEP) + x_sixteen(Few::TN, sixteen / 4, column, sixteen % 4), from);
    }
#pragma unroll 1
    for (u32 column = threadIdx.x / 16; column < columns.of.count; column += blockDim.x / 16) {
        const float* scale = task.scale + size_t(columns.vector_of(column)) * task.scales;
        for (u32 i = sixteen * 4; i < rooms.steps * each; i += 64) {
            copy16(smem + rooms.dx + column * rooms.dx_pitch + i * 4, reinterpret_cast<const u8*>(scale + i));
        }
    }
}

// Rounds the vectors of columns itself, as rows/quantize.cu does: for short ones that takes less than a launch. A warp a column's step.
// A function that is called: a copy for each format would be much code.
template <u32 EACH>
static __device__ __noinline__ void round_vectors(const RowsTask& task, u32 x_at, u32 dx_at, u32 dx_pitch, u32 steps, u32 columns,
                                                  u32 vector, u32* faults) {
    const u32 lane = threadIdx.x % WARP;
    u32 own = threadIdx.x / WARP, step = 0;
#pragma unroll 1
    for (;; own += blockDim.x / WARP) {
        while (own >= columns) own -= columns, step++;
        if (step >= steps) break;
        const u32 at = step * STEP + 8 * lane;
        const float* from = task.x + size_t(own) * task.x_stride + size_t(vector) * task.k + at;
        float x[8] = {};
#pragma unroll
        for (u32 c = 0; c < 8; c++) {
            if (at + c < task.k) x[c] = from[c];
        }
        float scale;
        uint2 bytes;
        if (!round_eight(x, WARP / EACH, bytes, scale) && faults[own] == 0) faults[own] = 1;
        // Words 2m and 2m + 1 of the chunk's sixteen.
        const u32 m = lane % 8, word = m % 2 * 2, to = x_at + step * (Few::TN * STEP) + m / 2 * 4;
        shared_at<u32>(to + x_sixteen(Few::TN, lane / 8, own, word)) = bytes.x;
        shared_at<u32>(to + x_sixteen(Few::TN, lane / 8, own, word + 1)) = bytes.y;
        if (lane % (WARP / EACH) == 0) {
            shared_at<float>(dx_at + own * dx_pitch + (step * EACH + lane / (WARP / EACH)) * 4) = scale;
        }
    }
}

// `bytes` of each of a tile's rows, the first at `from`, to stage `slot`, where they lie as in memory behind a multiple of sixteen. Sixteen lanes a row: neighbouring lanes fetch neighbouring sixteens, or each would be a pass of its own over shared memory;
// and a bulk copy a lane takes sixteen instructions each. No more than 480 bytes, so that a lane has two at most.
DEV void fetch_stage(const FewWarp& me, const FewRooms& rooms, const u8* from, u32 rows, u32 row_bytes, u32 bytes, u32 slot) {
    const u32 at = me.lane % 16 * 16, first = me.lane / 16;
    u8* const to = smem + rooms.ring + slot * rooms.stage + first * rooms.pitch + at;
    from += first * row_bytes;
    auto fetch_row = [&](u32 i, const u8* aligned, u32 end) {
        if (at < end) copy16(to + i * (2 * rooms.pitch), aligned);
        if (at + 256 < end) copy16(to + i * (2 * rooms.pitch) + 256, aligned + 256);
    };
    if (rows == FEW_ROWS && row_bytes % 16 == 0) {
        const u32 skew = u32(reinterpret_cast<size_t>(from)) & 15, end = skew + bytes;
        const u8* aligned = from - skew + at;
        if (end <= 256) {
            if (at >= end) return;
#pragma unroll
            for (u32 i = 0; i < FEW_ROWS / 2; i++) copy16(to + i * (2 * rooms.pitch), aligned + size_t(i) * (2 * row_bytes));
        } else {
#pragma unroll
            for (u32 i = 0; i < FEW_ROWS / 2; i++) fetch_row(i, aligned + size_t(i) * (2 * row_bytes), end);
        }
        return;
    }
#pragma unroll 1
    for (u32 i = 0; first + 2 * i < rows; i++) {
        const u32 skew = u32(reinterpret_cast<size_t>(from)) & 15;
        fetch_row(i, from - skew + at, skew + bytes);
        from += 2 * row_bytes;
    }
}

// Some rows of a task times some columns. A group's tiles of sixteen rows follow those of the other groups. Where they are no expert's,
// this waits for the launch's predecessor. `tables` is the format whose tables are there, if any.
template <bool RUNS, bool EXPERTS, typename U>
DEV void few_segment(const RowsTasks& tasks, const FewWarp& me, const Columns& columns, const Place& place, u32& tables) {
    constexpr u32 EACH = RUNS ? 8 : 1, BYTES = U::BYTES;
    const RowsTask& task = tasks.task[place.task];
    const u32 first_row = place.first, rows = place.end - place.first, vector = place.vector;
    const FewRooms rooms(me, task.k, table_words<U, true>(), BYTES, EACH, U::MINIMA);
    const u32 lane = me.lane;
    // What the segment before has in shared memory has been read.
    if (EXPERTS) __syncthreads();
    const FewColumns<EXPERTS> own_columns(columns, task, vector);
    if (EXPERTS && threadIdx.x < columns.count) shared_at<u32>(rooms.column + threadIdx.x * 4) = columns.column(threadIdx.x);
    if (tables != task.format) make_tables<U, true>(task.book);
    tables = task.format;

    const u8* const w = weights_of(task, columns.expert) + size_t(first_row) * task.row_bytes;
    const u32 of_block = (rows + FEW_ROWS - 1) / FEW_ROWS;
    const u32 tiles = of_block > me.group ? (of_block - me.group + me.groups - 1) / me.groups : 0;
    u32 total = 1;
    while (total < (RUNS ? task.k / 32 : rooms.steps)) total *= 2;
    const u32 each = max((RUNS ? max(total / 8, 1u) : total) / me.split, 1u);
    const u32 first = min(me.part * each, rooms.steps), last = min(first + each, rooms.steps);

    u32 next_tile = first < last ? 0 : tiles, next_step = first, fill = 0, use = 0;  // stages to be filled and used next
    auto fetch = [&] {
        if (next_tile < tiles) {
            const u32 row = (next_tile * me.groups + me.group) * FEW_ROWS, until = min(next_step + me.deep, last);
            u32 bytes = (until - next_step) * BYTES;
            if constexpr (RUNS) bytes = min(bytes, task.row_bytes - next_step * BYTES);
            fetch_stage(me, rooms, w + size_t(row) * task.row_bytes + next_step * BYTES, min(rows - row, FEW_ROWS), task.row_bytes,
                        bytes, fill);
            fill = fill + 1 == me.stages ? 0 : fill + 1;
            next_step = until;
            if (until == last) next_step = first, next_tile++;
        }
        copies_end();
    };
    // Weights are nobody's result: the first stages are asked for before the predecessor has ended.
#pragma unroll 1
    for (u32 i = 0; i < me.stages; i++) fetch();
    if (!EXPERTS) {
        if (!tasks.apart) wait_for_predecessor();
        let_successor_begin();
    }
    if (!EXPERTS && task.x) {
        round_vectors<EACH>(task, rooms.x, rooms.dx, rooms.dx_pitch, rooms.steps, columns.count, vector, tasks.faults);
    } else {
        fetch_vectors(task, rooms, own_columns, EACH);
        copies_end();
        copies_wait<0>();
    }
    __syncthreads();
    if constexpr (U::MINIMA) {
        for (u32 i = threadIdx.x; i < rooms.steps * 32; i += blockDim.x) {
            shared_at<uint2>(rooms.sums + i * 8) = chunk_sums(rooms.x + i / 32 * (Few::TN * STEP), Few::TN, i % 4, i / 4 % 8);
        }
        __syncthreads();
    }

    Lane<Few> own = {lane / 4, lane % 4, 0};
    const u32 exchange = rooms.values + me.group * me.split * 512;
    Partials<4, 2, 5> partials;
    float more[5][4];
#pragma unroll 1
    for (u32 tile = 0; tile < tiles; tile++) {
        const u32 row = (tile * me.groups + me.group) * FEW_ROWS;
        float v[4];
        u32 raw[2], left = 0;  // where the lane's rows are in the stage, and steps that are left of it
#pragma unroll 1
        for (u32 i = 0; i < each; i++) {
            const u32 step = first + i;
            v[0] = 0.0f, v[1] = 0.0f, v[2] = 0.0f, v[3] = 0.0f;  // partials that do not exist are +0
            if (step < last) {
                if (left == 0) {
                    if (me.stages > 2) {
                        copies_wait<2>();
                    } else {
                        copies_wait<1>();
                    }
                    __syncwarp();
                    left = min(me.deep, last - step);
#pragma unroll
                    for (u32 k = 0; k < 2; k++) {
                        const u32 r = own.g + 8 * k, low = u32(reinterpret_cast<size_t>(w)) + (row + r) * task.row_bytes + step * BYTES;
                        raw[k] = rooms.ring + use * rooms.stage + r * rooms.pitch + (low & 15);
                    }
                    use = use + 1 == me.stages ? 0 : use + 1;
                }
                own.x = rooms.x + step * (Few::TN * STEP) + own.g * CHUNK;
                const u32 dx = rooms.dx + step * (EACH * 4), sums = rooms.sums + step * 256;
                if constexpr (RUNS) {
                    few_run_values<U>(raw, own, dx, rooms.dx_pitch, sums, task.k / 32 - 8 * step, total, v);
                } else if constexpr (U::BOOK) {
                    few_book_values<U>(raw, own, dx, rooms.dx_pitch, v);
                } else {
                    few_values<U>(raw, own, dx, rooms.dx_pitch, sums, v);
                }
                raw[0] += BYTES, raw[1] += BYTES;
                if (--left == 0) {
                    __syncwarp();
                    fetch();
                }
            }
            partials.push(v, i, each, more);
        }
        auto write = [&](u32 r, u32 to, float sum) {
            if (row + r < rows && to < columns.count) {
                const u32 column = EXPERTS ? shared_at<u32>(rooms.column + to * 4) : to;
                task.y[size_t(column) * task.stride + first_row + row + r] = sum;
            }
        };
        if (me.split == 1) {
#pragma unroll
            for (u32 e = 0; e < 4; e++) write(own.g + e / 2 * 8, 2 * own.t + e % 2, v[e]);
            continue;
        }
        // All have read what the tile before left here.
        if (tile > 0) group_meets(me.group, me.split);
        shared_at<float4>(exchange + me.part * 512 + lane * 16) = make_float4(v[0], v[1], v[2], v[3]);
        group_meets(me.group, me.split);
#pragma unroll 1
        for (u32 i = me.part * WARP + lane; i < FEW_ROWS * Few::TN; i += me.split * WARP) {
            auto of = [&](u32 p) { return shared_at<float>(exchange + p * 512 + i * 4); };
            float sum = of(0) + of(1);
            if (me.split > 2) sum = sum + (of(2) + of(3));
            if (me.split > 4) sum = sum + ((of(4) + of(5)) + (of(6) + of(7)));
            const u32 from = i / 4, e = i % 4;
            write(from / 4 + e / 2 * 8, 2 * (from % 4) + e % 2, sum);
        }
    }
}

// One block's part of a launch with dense matrices: `tall` tiles of sixteen rows for each group of `split` warps. The launch may begin
// before its predecessor has ended. The successor may begin when all blocks have waited for that: products of the same vectors, `apart`,
// then need not wait for these.
template <typename Format>
DEV void rows_few(const RowsTasks& tasks) {
    const FewWarp me(tasks);
    const Place place = find_rows(tasks, FEW_ROWS * me.groups * tasks.tall);
    const Columns columns = {0, tasks.columns, 0, nullptr};
    u32 tables = ALL;
    Format::choose_format(tasks.task[place.task].format, [&](auto unpack) {
        few_segment<Format::RUNS, false, decltype(unpack)>(tasks, me, columns, place, tables);
    });
    // Whoever waits for this kernel's end relies on the end of all before it.
    if (tasks.apart) wait_for_predecessor();
}

// With experts, which only the device knows: a block has an equal share of all of their rows.
template <typename Format>
DEV void rows_few_of_experts(const RowsTasks& tasks) {
    const FewWarp me(tasks);
    u32 tables = ALL;
    auto rounds_of = [&](const RowsTask& task) { return (task.rows + FEW_ROWS * me.groups - 1) / (FEW_ROWS * me.groups); };
    wait_for_predecessor();
    let_successor_begin();
    u32 each = 0;
    for (u32 t = 0; t < tasks.n; t++) each += rounds_of(tasks.task[t]);
    const u32 all = each * *tasks.n_tiles, end = u32(u64(all) * (blockIdx.x + 1) / gridDim.x);
    u32 at = u32(u64(all) * blockIdx.x / gridDim.x);
#pragma unroll 1
    while (at < end) {
        const u32* tile = tasks.tiles + 3 * (at / each);
        const Columns columns = {tile[1], tile[2], tile[0], tasks.order};
        u32 t = 0, in = at % each;
        while (in >= rounds_of(tasks.task[t])) in -= rounds_of(tasks.task[t++]);
        const u32 rounds = min(end - at, rounds_of(tasks.task[t]) - in), first = in * FEW_ROWS * me.groups;
        const Place place = {t, first, min(tasks.task[t].rows, first + rounds * FEW_ROWS * me.groups), tasks.task[t].first_part};
        Format::choose_format(tasks.task[t].format, [&](auto unpack) {
            few_segment<Format::RUNS, true, decltype(unpack)>(tasks, me, columns, place, tables);
        });
        at += rounds;
    }
}
