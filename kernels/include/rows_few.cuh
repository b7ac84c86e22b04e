// Quantised matrices times up to eight vectors (rows_product.cuh has the rest): formats without a codebook. Weights come once from
// device memory, so that is what a product takes: 4.5 TB/s are 19 weights of Q6_K a cycle of each multiprocessor.
//
// A block has tiles of 32 matrix rows and 8 columns. A stage is 1,024 weights of each row; of its eight warps, four have sixteen of the
// rows, 256 weights each. STAGES stages are under way, two blocks a multiprocessor. Where this gives fewer blocks than that, as for
// 4,096 rows, tiles are of 16 rows, and a stage is 2,048 weights, so that all eight warps have some of them.
//
// Scales are not folded into the weights: with eight columns, four multiply-adds for sixteen weights of sixteen rows cost less.
#pragma once
#include "rows_product.cuh"

// Sizes; what Lane needs of a Geometry is among them. A warp has sixteen rows, 256 weights of a stage's PARTS times 256.
template <u32 ROWS, u32 PARTS_OF_STAGE>
struct Few {
    static constexpr u32 NT = 1, TN = 8, TM = ROWS, PARTS = PARTS_OF_STAGE, THREADS = TM / 16 * PARTS * WARP, DEEP = PARTS * STEP;
    static constexpr u32 LANES = THREADS / TM;  // that fetch a row's bytes
    // Long stretches come by bulk copies, 6 % sooner on an H200; of 850 bytes they come 10 % later than by sixteens.
    static constexpr bool BULK = __CUDA_ARCH__ >= 900 && PARTS == 8;
};

// Places in shared memory. In bytes:
//
//   all = STAGES * (TM * raw_pitch(PARTS * bytes) + PARTS * (2048 + 32 * EACH)) + 4192 + (minima ? 256 * PARTS : 0)
template <typename G, u32 STAGES, u32 EACH>
struct FewRooms {
    static constexpr u32 X = G::TN * G::DEEP, DX = G::TN * G::PARTS * EACH * 4;
    u32 pitch, raw_bytes, x, dx, values, vector, column, barriers, sums;

    __device__ __forceinline__ FewRooms(u32 bytes) {
        pitch = raw_pitch(G::PARTS * bytes), raw_bytes = G::TM * pitch;
        x = STAGES * raw_bytes;
        dx = x + STAGES * X;                     // [column][part][EACH]
        values = dx + STAGES * DX;               // [16 rows][part][lane]: four floats
        vector = values + 4096;                  // of which activations a column is
        column = vector + G::TN * 4;           // and where its result goes
        barriers = column + G::TN * 4;         // of the stages' weights
        sums = barriers + 32;                  // [part][column][chunk]: sums of the activations' sixteens, where there are minima
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
template <typename U, typename G>
DEV void few_values(const u32 (&raw)[2], const Lane<G>& own, u32 dx, u32 sums, float (&v)[4]) {
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
        const float scale = shared_at<float>(dx + (2 * own.t + e % 2) * (G::PARTS * 4));
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
template <typename U, typename G>
DEV void few_run_values(const u32 (&raw)[2], const Lane<G>& own, u32 dx, u32 sums, u32 runs, u32 total, float (&v)[4]) {
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
                const float scale = shared_beyond<float>(dx + 2 * own.t * (G::PARTS * 32), e % 2 * (G::PARTS * 32) + run * 4);
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

// A stage of a tile of rows.
struct FewTurn {
    u32 tile, stage;

    __device__ __forceinline__ void move(u32 stages) {
        stage++;
        if (stage == stages) tile++, stage = 0;
    }
};

// One block's part of a launch, `tall` tiles of rows one after the other without a gap: a block a tile would begin and end for every
// four stages, with 500 of 2,700 instructions and nothing under way. The launch may begin before its predecessor has ended. The successor may begin when all blocks have waited
// for that: products of the same rounded vectors, `apart`, then need not wait for these. `Format`: bytes(format), minima(format) and values(format, ...).
template <typename G, u32 STAGES, typename Format>
DEV void rows_few(const RowsTasks& tasks) {
    constexpr u32 EACH = Format::RUNS ? 8 : 1;
    Columns columns;
    if (tasks.tiles) wait_for_predecessor();
    if (!find_columns(tasks, G::TN, columns)) return;
    const Place place = find_rows(tasks, G::TM * max(tasks.tall, 1u));
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first, tid = threadIdx.x, lane = tid % WARP, part = tid / WARP % G::PARTS;
    const u32 bytes = Format::bytes(task.format);
    const bool minima = Format::minima(task.format);
    const FewRooms<G, STAGES, EACH> rooms(bytes);
    if (tid < columns.count) {
        const u32 column = columns.column(tid);
        shared_at<u32>(rooms.column + tid * 4) = column;
        shared_at<u32>(rooms.vector + tid * 4) = column / task.share * task.parts + place.vector;
    }
    u64* const barriers = reinterpret_cast<u64*>(smem + rooms.barriers);
    if (G::BULK && tid == 0) {
#pragma unroll
        for (u32 stage = 0; stage < STAGES; stage++) arrivals_begin(barriers + stage);
        arrivals_are_visible();
    }
    __syncthreads();

    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    const u32 steps = (task.k + STEP - 1) / STEP, stages = (steps + G::PARTS - 1) / G::PARTS, deep = G::PARTS * bytes;
    const u32 tiles = (rows + G::TM - 1) / G::TM;
    u32 total = 1;
    while (total < (Format::RUNS ? task.k / 32 : steps)) total *= 2;
    const u32 all = Format::RUNS ? max(total / 8, 1u) : total, whole = max(all / G::PARTS, 1u);

    // What a thread fetches of vectors: sixteen lanes a column's activations of a part, one a sixteen of scales.
    const u32 column = tid / 16 % G::TN, sixteen = tid % 16;
    const u8* own_x = nullptr;
    if (column < columns.count) own_x = task.q + size_t(shared_at<u32>(rooms.vector + column * 4)) * task.pitch + sixteen * 16;
    constexpr u32 OF_COLUMN = EACH * G::PARTS / 4;
    const u32 scale_column = tid / OF_COLUMN;
    const float* own_scale = nullptr;
    if (scale_column < columns.count) {
        own_scale = task.scale + size_t(shared_at<u32>(rooms.vector + scale_column * 4)) * task.scales + tid % OF_COLUMN * 4;
    }
    // Whole sixteens around a stage of a row's bytes, and how far behind the first of them they begin.
    auto stretch = [&](const FewTurn& turn, u32 own, const u8*& from) {
        from = w + size_t(own) * task.row_bytes + turn.stage * deep;
        const u32 skew = u32(reinterpret_cast<size_t>(from)) & 15;
        from -= skew;
        return skew + min(deep, task.row_bytes - turn.stage * deep);
    };
    auto fetch_weights = [&](const FewTurn& turn, u32 slot) {
        u8* const to = smem + slot * rooms.raw_bytes;
        const u8* from;
        if constexpr (G::BULK) {
            // A lane of the first warp has a row.
            if (tid >= WARP) return;
            const u32 own = turn.tile * G::TM + lane;
            u32 bytes = 0;
            if (lane < G::TM && own < rows) bytes = (stretch(turn, own, from) + 15) & ~15u;
            u32 sum = bytes;
#pragma unroll
            for (u32 mask = 1; mask < WARP; mask *= 2) sum += lane_xor(sum, mask);
            if (sum == 0) return;
            if (lane == 0) arrivals_expect(barriers + slot, sum);
            __syncwarp();
            if (bytes > 0) copy_stretch(to + lane * rooms.pitch, from, bytes, barriers + slot);
        } else {
            constexpr u32 MOST = G::PARTS * 272 + 15;
            const u32 row = tid / G::LANES, at = tid % G::LANES * 16, own = turn.tile * G::TM + row;
            if (own < rows) {
                const u32 end = stretch(turn, own, from);
#pragma unroll
                for (u32 k = 0; k < MOST; k += G::LANES * 16) {
                    if (at + k < end) copy16(to + row * rooms.pitch + at + k, from + at + k);
                }
            }
        }
    };
    auto fetch_vectors = [&](const FewTurn& turn, u32 slot) {
        if (turn.tile < tiles) {
#pragma unroll
            for (u32 i = 0; i < G::PARTS / 2; i++) {
                const u32 p = tid / 128 + 2 * i, step = G::PARTS * turn.stage + p;
                if (own_x && step < steps) {
                    const u32 at = p * (G::TN * STEP) + x_sixteen(G::TN, sixteen / 4, column, sixteen % 4);
                    copy16(smem + rooms.x + slot * rooms.X + at, own_x + size_t(step) * STEP);
                }
            }
            const u32 at = turn.stage * (G::PARTS * EACH);
            if (own_scale && at + tid % OF_COLUMN * 4 < task.scales) {
                copy16(smem + rooms.dx + slot * rooms.DX + tid * 16, reinterpret_cast<const u8*>(own_scale + at));
            }
        }
        copies_end();
    };

    Lane<G> own = {lane / 4, lane % 4, 0};
    const u32 sixteenth = tid / (WARP * G::PARTS) * 16;  // the first of the warp's rows
    const u32 exchange = rooms.values + sixteenth / 16 * (G::PARTS * 512);
    Partials<1, 0, 8> partials;
    float more[8][1], sum[1];
    // A thread has one of the sixteen rows' 128 results, where there are as many: adds up what the warps have of it.
    const u32 result = part * WARP + lane;
    auto add = [&](const FewTurn& turn) {
        if (result >= 128) return;
        const u32 at = exchange + result * 4;
        auto four = [&](u32 first) {
            return tree_of_four(shared_at<float>(at + first * 512), shared_at<float>(at + (first + 1) * 512),
                                shared_at<float>(at + (first + 2) * 512), shared_at<float>(at + (first + 3) * 512), all);
        };
        sum[0] = four(0);
        if constexpr (G::PARTS == 8) {
            if (all > 4) sum[0] = sum[0] + four(4);
        }
        partials.push(sum, turn.stage, whole, more);
        if (turn.stage + 1 < stages) return;
        // Partials that do not exist are +0.
#pragma unroll 1
        for (u32 stage = stages; stage < whole; stage++) {
            sum[0] = 0.0f;
            partials.push(sum, stage, whole, more);
        }
        const u32 from = result / 4, e = result % 4;
        const u32 out = turn.tile * G::TM + sixteenth + from / 4 + e / 2 * 8, to = 2 * (from % 4) + e % 2;
        if (out < rows && to < columns.count) {
            task.y[size_t(shared_at<u32>(rooms.column + to * 4)) * task.stride + place.first + out] = sum[0];
        }
    };
    // Weights are nobody's result: the first stages are asked for before the predecessor has ended.
    FewTurn next = {0, 0}, of_vectors = {0, 0};
#pragma unroll 1
    for (u32 slot = 0; slot < STAGES; slot++, next.move(stages)) fetch_weights(next, slot);
    if (!tasks.apart) wait_for_predecessor();
    let_successor_begin();
#pragma unroll 1
    for (u32 slot = 0; slot < STAGES; slot++, of_vectors.move(stages)) fetch_vectors(of_vectors, slot);
    u32 slot = 0, phase = 0;
    FewTurn now = {0, 0}, before = {0, 0};
#pragma unroll 1
    for (bool first = true;; first = false) {
        copies_wait<STAGES - 1>();
        if (G::BULK && now.tile < tiles) arrivals_wait(barriers + slot, phase);
        __syncthreads();
        if (!first) add(before);
        if (now.tile >= tiles) break;
        const u32 x = rooms.x + slot * rooms.X;
        if (minima) {
            if (tid < 32 * G::PARTS) {
                shared_at<uint2>(rooms.sums + tid * 8) = chunk_sums(x + tid / 32 * (G::TN * STEP), G::TN, tid % 4, tid / 4 % 8);
            }
            __syncthreads();
        }
        const u32 step = G::PARTS * now.stage + part;
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (step < steps) {
            own.x = x + part * (G::TN * STEP) + own.g * CHUNK;
            const u32 skew = u32(reinterpret_cast<size_t>(w)) + now.tile * G::TM * task.row_bytes + now.stage * deep;
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
        fetch_weights(next, slot);
        fetch_vectors(next, slot);
        next.move(stages);
        slot++;
        if (slot == STAGES) slot = 0, phase ^= 1;
        before = now;
        now.move(stages);
    }
    // Whoever waits for this kernel's end relies on the end of all before it.
    if (tasks.apart) wait_for_predecessor();
}
