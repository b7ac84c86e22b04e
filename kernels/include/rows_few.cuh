// Quantised matrices times up to eight vectors (rows_product.cuh has the rest): formats without a codebook. Weights come once from
// device memory, so that is what a product takes: 4.5 TB/s are 19 weights of Q6_K a cycle of each multiprocessor.
//
// A block has 32 matrix rows and 8 columns. A stage is 1,024 weights of each row; of its eight warps, four have sixteen of the rows, 256
// weights each. So a matrix of 4,096 rows is 128 blocks, and still reads stretches of hundreds of bytes. STAGES stages are under
// way, two blocks a multiprocessor.
//
// Scales are not folded into the weights: with eight columns, four multiply-adds for sixteen weights of sixteen rows cost less.
#pragma once
#include "rows_product.cuh"

// Sizes; what Lane needs of a Geometry is among them.
struct Few {
    static constexpr u32 NT = 1, TN = 8, TM = 32, PARTS = 4, THREADS = 256, DEEP = PARTS * STEP;
};

// Places in shared memory. In bytes:
//
//   all = STAGES * (32 * raw_pitch(4 * bytes) + 8192 + 128 * EACH) + 4160 + (minima ? 1024 : 0)
template <u32 STAGES, u32 EACH>
struct FewRooms {
    static constexpr u32 X = Few::TN * Few::DEEP, DX = Few::TN * Few::PARTS * EACH * 4;
    u32 pitch, raw_bytes, x, dx, values, vector, column, sums;

    __device__ __forceinline__ FewRooms(u32 bytes) {
        pitch = raw_pitch(Few::PARTS * bytes), raw_bytes = Few::TM * pitch;
        x = STAGES * raw_bytes;
        dx = x + STAGES * X;                     // [column][part][EACH]
        values = dx + STAGES * DX;               // [16 rows][part][lane]: four floats
        vector = values + 4096;                  // of which activations a column is
        column = vector + Few::TN * 4;           // and where its result goes
        sums = column + Few::TN * 4;             // [part][column][chunk]: sums of the activations' sixteens, where there are minima
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
DEV void few_values(const u32 (&raw)[2], const Lane<Few>& own, u32 dx, u32 sums, float (&v)[4]) {
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
        const float scale = shared_at<float>(dx + (2 * own.t + e % 2) * (Few::PARTS * 4));
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
DEV void few_run_values(const u32 (&raw)[2], const Lane<Few>& own, u32 dx, u32 sums, u32 runs, u32 total, float (&v)[4]) {
    typedef typename U::Source F;
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
                const float scale = shared_beyond<float>(dx + 2 * own.t * (Few::PARTS * 32), e % 2 * (Few::PARTS * 32) + run * 4);
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

// One block's part of a launch. `Format`: bytes(format), minima(format) and values(format, ...).
template <u32 STAGES, typename Format>
DEV void rows_few(const RowsTasks& tasks) {
    constexpr u32 EACH = Format::RUNS ? 8 : 1;
    Columns columns;
    if (!find_columns(tasks, Few::TN, columns)) return;
    const Place place = find_rows(tasks, Few::TM);
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first, tid = threadIdx.x, lane = tid % WARP, part = tid / WARP % Few::PARTS;
    const u32 bytes = Format::bytes(task.format);
    const bool minima = Format::minima(task.format);
    const FewRooms<STAGES, EACH> rooms(bytes);
    if (tid < columns.count) {
        const u32 column = columns.column(tid);
        shared_at<u32>(rooms.column + tid * 4) = column;
        shared_at<u32>(rooms.vector + tid * 4) = column / task.share * task.parts + place.vector;
    }
    __syncthreads();

    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    const u32 steps = (task.k + STEP - 1) / STEP, stages = (steps + Few::PARTS - 1) / Few::PARTS, deep = Few::PARTS * bytes;
    u32 total = 1;
    while (total < (Format::RUNS ? task.k / 32 : steps)) total *= 2;
    const u32 all = Format::RUNS ? max(total / 8, 1u) : total, whole = max(all / Few::PARTS, 1u);

    // What a thread fetches: eight lanes a row's bytes, sixteen a column's activations of a part, one a sixteen of scales.
    const u32 row = tid / 8, column = tid / 16 % Few::TN, sixteen = tid % 16;
    const u8* const own_row = w + size_t(row) * task.row_bytes;
    const u8* own_x = nullptr;
    if (column < columns.count) own_x = task.q + size_t(shared_at<u32>(rooms.vector + column * 4)) * task.pitch + sixteen * 16;
    const u32 scale_column = tid / EACH;
    const float* own_scale = nullptr;
    if (scale_column < columns.count) {
        own_scale = task.scale + size_t(shared_at<u32>(rooms.vector + scale_column * 4)) * task.scales + tid % EACH * 4;
    }
    constexpr u32 MOST = Few::PARTS * 272 + 15;
    auto fetch = [&](u32 stage, u32 slot) {
        if (stage < stages) {
            if (row < rows) {
                const u8* from = own_row + stage * deep;
                const u32 skew = u32(reinterpret_cast<size_t>(from)) & 15, end = skew + min(deep, task.row_bytes - stage * deep);
                from -= skew;
                u8* const to = smem + slot * rooms.raw_bytes + row * rooms.pitch;
#pragma unroll
                for (u32 k = 0; k < MOST; k += 128) {
                    if (tid % 8 * 16 + k < end) copy16(to + tid % 8 * 16 + k, from + tid % 8 * 16 + k);
                }
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const u32 p = tid / 128 + 2 * i, step = Few::PARTS * stage + p;
                if (own_x && step < steps) {
                    const u32 at = p * (Few::TN * STEP) + x_sixteen(Few::TN, sixteen / 4, column, sixteen % 4);
                    copy16(smem + rooms.x + slot * rooms.X + at, own_x + size_t(step) * STEP);
                }
            }
            const u32 at = stage * (Few::PARTS * EACH);
            if (own_scale && at + tid % EACH * 4 < task.scales) {
                copy16(smem + rooms.dx + slot * rooms.DX + tid * 16, reinterpret_cast<const u8*>(own_scale + at));
            }
        }
        copies_end();
    };

    Lane<Few> own = {lane / 4, lane % 4, 0};
    const u32 sixteenth = tid / (WARP * Few::PARTS) * 16;  // the first of the warp's rows
    const u32 exchange = rooms.values + sixteenth / 16 * 2048;
    Partials<1, 0, 8> partials;
    float more[8][1], sum[1];
    // A thread has one of the sixteen rows' 128 results: adds up what the four warps have of it.
    auto add = [&](u32 stage) {
        const u32 at = exchange + (part * WARP + lane) * 4;
        sum[0] = tree_of_four(shared_beyond<float>(at, 0), shared_beyond<float>(at, 512), shared_beyond<float>(at, 1024),
                              shared_beyond<float>(at, 1536), all);
        partials.push(sum, stage, whole, more);
    };
#pragma unroll 1
    for (u32 stage = 0; stage < STAGES; stage++) fetch(stage, stage);
    u32 slot = 0;
#pragma unroll 1
    for (u32 stage = 0; stage < stages; stage++) {
        copies_wait<STAGES - 1>();
        __syncthreads();
        if (stage > 0) add(stage - 1);
        const u32 x = rooms.x + slot * rooms.X;
        if (minima) {
            if (tid < 128) {
                shared_at<uint2>(rooms.sums + tid * 8) = chunk_sums(x + tid / 32 * (Few::TN * STEP), Few::TN, tid % 4, tid / 4 % 8);
            }
            __syncthreads();
        }
        const u32 step = Few::PARTS * stage + part;
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (step < steps) {
            own.x = x + part * (Few::TN * STEP) + own.g * CHUNK;
            const u32 skew = u32(reinterpret_cast<size_t>(w)) + stage * deep;
            u32 raw[2];
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                const u32 r = sixteenth + own.g + 8 * k;
                raw[k] = slot * rooms.raw_bytes + r * rooms.pitch + ((skew + r * task.row_bytes) & 15) + part * bytes;
            }
            const u32 dx = rooms.dx + slot * rooms.DX + part * (EACH * 4), sums = rooms.sums + part * 256;
            if constexpr (Format::RUNS) {
                Format::values(task.format, raw, own, dx, sums, task.k / 32 - 8 * step, total, v);
            } else {
                Format::values(task.format, raw, own, dx, sums, v);
            }
        }
        // All have read the stage, and what the warps had of the one before.
        __syncthreads();
        shared_at<float4>(exchange + part * 512 + lane * 16) = make_float4(v[0], v[1], v[2], v[3]);
        fetch(stage + STAGES, slot);
        slot = slot + 1 < STAGES ? slot + 1 : 0;
    }
    __syncthreads();
    add(stages - 1);
    // Partials that do not exist are +0.
#pragma unroll 1
    for (u32 stage = stages; stage < whole; stage++) {
        sum[0] = 0.0f;
        partials.push(sum, stage, whole, more);
    }
    const u32 result = part * WARP + lane, from = result / 4, e = result % 4;
    const u32 out = sixteenth + from / 4 + e / 2 * 8, to = 2 * (from % 4) + e % 2;
    if (out < rows && to < columns.count) {
        task.y[size_t(shared_at<u32>(rooms.column + to * 4)) * task.stride + place.first + out] = sum[0];
    }
}
