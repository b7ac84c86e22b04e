// Quantised matrices times many vectors, by tensor cores on bytes, in the arithmetic of docs/ARITHMETIC.md: a block's integer sum
// is exact, so it may be cut and ordered at will; its float value and the tree over blocks are those of a single vector.
//
// A block of threads has TM matrix rows and TN columns, a warp MT * 16 by NT * 8 of them. Steps of 256 weights: their bytes come as they
// lie in the file, four lanes a row unpack them (unpack.cuh), warps multiply. Scales of sixteen or of 32 weights are
// multiplied into the integer sums.
#pragma once
#include "partials.cuh"
#include "products.cuh"
#include "unpack_book.cuh"

constexpr u32 STEP = 256;

// Sizes of a variant. DOUBLE: the next step is unpacked while this one is multiplied, which takes shared memory twice.
template <u32 MT_, u32 NT_, u32 WM_, u32 WN_, bool DOUBLE_>
struct Geometry {
    static constexpr u32 MT = MT_, NT = NT_, WM = WM_, WN = WN_;
    static constexpr bool DOUBLE = DOUBLE_;
    static constexpr u32 TM = MT * 16 * WM, TN = NT * 8 * WN, THREADS = WM * WN * WARP, OUTPUTS = MT * NT * 4;
};

// What the loop needs of a format, known when a launch meets it.
struct Traits {
    u32 bytes, pitch, shift, table_words;
    bool paired, minima;
};

// Bytes from one row's raw bytes to the next: room for an odd start, and an odd number of sixteens, so that eight rows' words lie
// in different banks.
constexpr u32 raw_pitch(u32 bytes) { return ((bytes + 15 + 15) / 16 | 1) * 16; }

// Copies of a codebook's entries in shared memory.
template <typename F, bool BIG>
constexpr u32 book_copies() {
    return BIG ? F::COPIES : F::GRID > 512 ? 2 : F::GRID > 0 ? 4 : 1;
}

template <typename U, bool BIG>
DEV Traits traits_of() {
    typedef typename U::Source F;
    return {U::BYTES, raw_pitch(U::BYTES), U::SHIFT, (F::GRID + F::SIGNS) * book_copies<F, BIG>(), U::PAIRED, U::MINIMA};
}

// A format's codebook at the beginning of shared memory.
template <typename U, bool BIG>
DEV void copy_book(const u32* book) {
    typedef typename U::Source F;
    constexpr u32 COPIES = book_copies<F, BIG>();
    if constexpr (F::GRID > 0) {
        for (u32 i = threadIdx.x; i < (F::GRID + F::SIGNS) * COPIES; i += blockDim.x) shared_at<u32>(4 * i) = book[i / COPIES];
    }
}

// Unpacks half h of rows g and g + 8 of sixteen, of which one lane of four has its words of both. `raw` are the two rows' bytes.
template <typename U, bool BIG, bool RUNS, u32 TM>
DEV void unpack_two(const u32 (&raw)[2], u32 tile, u32 rows16, u32 g, u32 t, u32 h) {
    typedef typename U::Source F;
    auto put = [&](u32 run, u32 i, u32 a, u32 b, u32 c, u32 d) {
        shared_at<uint4>(tile + Tile<TM>::sixteen(run, rows16, g, i)) = make_uint4(a, b, c, d);
    };
    if constexpr (U::BOOK) {
        constexpr u32 COPIES = book_copies<F, BIG>();
        const Codebook<F::GRID, COPIES> book = {threadIdx.x % COPIES * 4};
        const u32 run = 4 * h + t;
        u32 first[8], second[8];
        U::run(raw[0], run, book, first);
        U::run(raw[1], run, book, second);
#pragma unroll
        for (u32 i = 0; i < 4; i++) put(run, i, first[i], second[i], first[4 + i], second[4 + i]);
    } else {
        u32 first[8], second[8];
        U::half(raw[0], t, h, first);
        U::half(raw[1], t, h, second);
#pragma unroll
        for (u32 i = 0; i < 4; i++) put(4 * h + i, t, first[2 * i], second[2 * i], first[2 * i + 1], second[2 * i + 1]);
    }
    // What the lane of the other half does for one row, this one does for the other.
    const u32 row = rows16 * 16 + h * 8 + g, own = h ? raw[1] : raw[0];
    auto at = [&](u32 part, u32 column) { return tile + part + (column * Tile<TM>::PAD + row) * 4; };
    if constexpr (RUNS) {
#pragma unroll
        for (u32 run = t; run < 8; run += 4) {
            shared_at<float>(at(Tile<TM>::D, run)) = F::d(own + run * F::BYTES);
            if constexpr (U::MINIMA) shared_at<float>(at(Tile<TM>::M, run)) = F::m(own + run * F::BYTES);
        }
    } else {
        shared_at<u32>(at(Tile<TM>::SCALES, t)) = U::scales(own, t);
        if constexpr (U::MINIMA) shared_at<u32>(at(Tile<TM>::MINS, t)) = U::mins(own, t);
        if (t == 0) shared_at<float>(at(Tile<TM>::D, 0)) = F::d(own);
        if (U::MINIMA && t == 1) shared_at<float>(at(Tile<TM>::M, 0)) = F::dmin(own);
    }
}

// Places in shared memory. In bytes, with TIMES = DOUBLE ? 2 : 1:
//
//   all = round_up(4 * table words, 16) + TIMES * (Tile::BYTES + TM * raw_pitch) + 2 * (TN * 256 + TN * 32) + TN * 40
template <typename G>
struct Rooms {
    static constexpr u32 TIMES = G::DOUBLE ? 2 : 1, X = G::TN * STEP;
    u32 tile, raw, x, dx, sums, vector, column;
    u32 raw_bytes;

    __device__ __forceinline__ Rooms(const Traits& f) {
        tile = (f.table_words * 4 + 15) & ~15u;
        raw = tile + TIMES * Tile<G::TM>::BYTES;
        raw_bytes = G::TM * f.pitch;
        x = raw + TIMES * raw_bytes;
        dx = x + 2 * X;                       // two of [TN][8] floats
        sums = dx + 2 * G::TN * 32;           // [TN][4] pairs of words: sums of the activations' sixteens
        vector = sums + G::TN * 32;           // [TN]: of which activations
        column = vector + G::TN * 4;          // [TN]: and to which column of the result
    }
    __device__ __forceinline__ u32 tile_at(u32 step) const { return tile + step % TIMES * Tile<G::TM>::BYTES; }
    __device__ __forceinline__ u32 raw_at(u32 step) const { return raw + step % TIMES * raw_bytes; }
    __device__ __forceinline__ u32 x_at(u32 step) const { return x + step % 2 * X; }
    __device__ __forceinline__ u32 dx_at(u32 step) const { return dx + step % 2 * G::TN * 32; }
};

// Raw bytes of a step of all rows on their way.
template <typename G>
DEV void fetch_raw(const Rooms<G>& rooms, const Traits& f, const RowsTask& task, const u8* w, u32 rows, u32 step) {
    const u32 t = threadIdx.x % 4, bytes = min(f.bytes, task.row_bytes - step * f.bytes);
    for (u32 row = threadIdx.x / 4; row < rows; row += G::THREADS / 4) {
        const u8* from = w + size_t(row) * task.row_bytes + step * f.bytes;
        const u32 skew = u32(reinterpret_cast<size_t>(from) & 15), to = rooms.raw_at(step) + row * f.pitch;
        for (u32 at = 16 * t; at < skew + bytes; at += 64) copy16(smem + to + at, from - skew + at);
    }
}

// Activations of a step of all columns, and their scales: `each` floats a step.
template <typename G, u32 EACH>
DEV void fetch_x(const Rooms<G>& rooms, const RowsTask& task, u32 columns, u32 step) {
    const u32 to = rooms.x_at(step), scales = rooms.dx_at(step);
    for (u32 i = threadIdx.x; i < columns * 16; i += G::THREADS) {
        const u32 c = i / 16, p = i % 16;
        const u8* from = task.q + size_t(shared_at<u32>(rooms.vector + c * 4)) * task.pitch + step * STEP + p * 16;
        copy16(smem + to + x_sixteen(G::TN, p / 4, c, p % 4), from);
    }
    if constexpr (EACH == 1) {
        for (u32 c = threadIdx.x; c < columns; c += G::THREADS) {
            copy4(smem + scales + c * 32, task.scale + size_t(shared_at<u32>(rooms.vector + c * 4)) * task.scales + step);
        }
    } else {
        for (u32 i = threadIdx.x; i < columns * 2; i += G::THREADS) {
            const u32 c = i / 2, half = i % 2 * 4;
            const float* from = task.scale + size_t(shared_at<u32>(rooms.vector + c * 4)) * task.scales + step * 8 + half;
            copy16(smem + scales + c * 32 + half * 4, reinterpret_cast<const u8*>(from));
        }
    }
}

// Sums of each sixteen of the activations: four signed halves a chunk.
template <typename G>
DEV void sum_sixteens(const Rooms<G>& rooms, u32 step) {
    for (u32 i = threadIdx.x; i < G::TN * 4; i += G::THREADS) {
        const u32 c = i / 4, chunk = i % 4;
        i32 sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 t = 0; t < 4; t++) {
            const uint4 x = shared_at<uint4>(rooms.x_at(step) + x_sixteen(G::TN, chunk, c, t));
            sum[0] = dp4a(0x01010101u, x.x, sum[0]), sum[1] = dp4a(0x01010101u, x.y, sum[1]);
            sum[2] = dp4a(0x01010101u, x.z, sum[2]), sum[3] = dp4a(0x01010101u, x.w, sum[3]);
        }
        shared_at<uint2>(rooms.sums + i * 8) =
            make_uint2((u32(sum[0]) & 0xffffu) | u32(sum[1]) << 16, (u32(sum[2]) & 0xffffu) | u32(sum[3]) << 16);
    }
}

DEV u32 word_of(const uint4& four, u32 i) { return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w; }

// Where a warp's rows and columns are.
template <typename G>
struct Warp {
    u32 g, t, row, across;

    __device__ __forceinline__ Warp() {
        const u32 warp = threadIdx.x / WARP;
        g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
        row = warp % G::WM * G::MT * 16 + g;
        across = warp / G::WM;
    }
    // Neighbouring tiles of eight columns belong to different warps, so that few columns are shared out evenly.
    __device__ __forceinline__ u32 column(u32 nt) const { return (nt * G::WN + across) * 8; }
};

// One chunk's operands of a warp, of its first LIVE tiles of columns.
template <typename G, u32 LIVE>
struct Operands {
    uint4 a[G::MT][2], b[LIVE];  // of a: both runs

    __device__ __forceinline__ Operands(const Warp<G>& own, u32 tile, u32 x, u32 chunk) {
#pragma unroll
        for (u32 mt = 0; mt < G::MT; mt++) {
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                a[mt][r] = shared_at<uint4>(tile + Tile<G::TM>::sixteen(2 * chunk + r, own.row / 16 + mt, own.g, own.t));
            }
        }
#pragma unroll
        for (u32 nt = 0; nt < LIVE; nt++) b[nt] = shared_at<uint4>(x + x_sixteen(G::TN, chunk, own.column(nt) + own.g, own.t));
    }
    // Rows and columns of a run of 32.
    __device__ __forceinline__ void multiply_run(u32 mt, u32 nt, u32 run, i32 (&c)[4]) const {
        const uint4 w = a[mt][run];
        product_32(c, w.x, w.y, w.z, w.w, word_of(b[nt], 2 * run), word_of(b[nt], 2 * run + 1));
    }
    // Of one of four groups.
    __device__ __forceinline__ void multiply_group(u32 mt, u32 nt, u32 group, i32 (&c)[4]) const {
        const uint4 w = a[mt][group / 2];
        product_16(c, group % 2 ? w.z : w.x, group % 2 ? w.w : w.y, word_of(b[nt], group));
    }
};

// Adds a step's scaled products to integer sums.
template <typename G, u32 LIVE, bool PAIRED>
DEV void multiply_scaled(const Warp<G>& own, u32 tile, u32 x, i32 (&sum)[G::OUTPUTS]) {
#pragma unroll 1
    for (u32 chunk = 0; chunk < 4; chunk++) {
        const Operands<G, LIVE> in(own, tile, x, chunk);
        const u32 scales = tile + Tile<G::TM>::SCALES + (chunk * Tile<G::TM>::PAD + own.row) * 4;
#pragma unroll
        for (u32 mt = 0; mt < G::MT; mt++) {
            const u32 tops = shared_at<u32>(scales + mt * 64), lows = shared_at<u32>(scales + mt * 64 + 32);
#pragma unroll
            for (u32 j = 0; j < 4; j += PAIRED ? 2 : 1) {
                const i32 top = signed_byte_of(tops, j), low = signed_byte_of(lows, j);
#pragma unroll
                for (u32 nt = 0; nt < LIVE; nt++) {
                    i32 c[4];
                    if constexpr (PAIRED) {
                        in.multiply_run(mt, nt, j / 2, c);
                    } else {
                        in.multiply_group(mt, nt, j, c);
                    }
                    i32* out = sum + (mt * G::NT + nt) * 4;
                    out[0] += top * c[0], out[1] += top * c[1], out[2] += low * c[2], out[3] += low * c[3];
                }
            }
        }
    }
}

// Output i of a lane: its row and column in the block's.
template <typename G>
DEV u32 row_of(const Warp<G>& own, u32 i) {
    return own.row + i / 4 / G::NT * 16 + i % 4 / 2 * 8;
}
template <typename G>
DEV u32 column_of(const Warp<G>& own, u32 i) {
    return own.column(i / 4 % G::NT) + 2 * own.t + i % 2;
}

// A step's value of each output: formats with 256 weights a block.
template <typename G>
DEV void wide_values(const Warp<G>& own, const Rooms<G>& rooms, const Traits& f, u32 step, const i32 (&sum)[G::OUTPUTS],
                     float (&v)[G::OUTPUTS]) {
    const u32 tile = rooms.tile_at(step), dx = rooms.dx_at(step);
#pragma unroll
    for (u32 i = 0; i < G::OUTPUTS; i++) {
        const u32 row = row_of<G>(own, i), column = column_of<G>(own, i);
        const float x = shared_at<float>(dx + column * 32);
        v[i] = (shared_at<float>(tile + Tile<G::TM>::D + row * 4) * x) * float(sum[i] >> f.shift);
        if (f.minima) {
            i32 mins = 0;
#pragma unroll
            for (u32 chunk = 0; chunk < 4; chunk++) {
                const uint2 sums = shared_at<uint2>(rooms.sums + (column * 4 + chunk) * 8);
                mins = dp2a_unsigned(sums.x, sums.y, shared_at<u32>(tile + Tile<G::TM>::MINS + (chunk * Tile<G::TM>::PAD + row) * 4), mins);
            }
            v[i] = v[i] - (shared_at<float>(tile + Tile<G::TM>::M + row * 4) * x) * float(mins);
        }
    }
}

// The values of one run of 32 weights, formats with a factor for each.
template <typename G>
DEV void run_values(const Warp<G>& own, const Rooms<G>& rooms, const Traits& f, const Operands<G, G::NT>& in, u32 step, u32 run,
                    float (&v)[G::OUTPUTS]) {
    const u32 tile = rooms.tile_at(step), dx = rooms.dx_at(step);
#pragma unroll
    for (u32 mt = 0; mt < G::MT; mt++) {
#pragma unroll
        for (u32 nt = 0; nt < G::NT; nt++) {
            i32 c[4];
            in.multiply_run(mt, nt, run % 2, c);
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                const u32 i = (mt * G::NT + nt) * 4 + e, row = row_of<G>(own, i), column = column_of<G>(own, i);
                const u32 at = (run * Tile<G::TM>::PAD + row) * 4;
                const float x = shared_at<float>(dx + column * 32 + run * 4);
                v[i] = (shared_at<float>(tile + Tile<G::TM>::D + at) * x) * float(c[e] >> f.shift);
                if (f.minima) {
                    const uint2 sums = shared_at<uint2>(rooms.sums + (column * 4 + run / 2) * 8);
                    const u32 both = run % 2 ? sums.y : sums.x;
                    const i32 q = (i32(both << 16) >> 16) + (i32(both) >> 16);
                    v[i] = v[i] + (shared_at<float>(tile + Tile<G::TM>::M + at) * x) * float(q);
                }
            }
        }
    }
}

// One block's part of a launch. `Format` says which formats there are: traits(format), unpack(format, raw, row); RUNS: those with
// a factor for 32 weights.
template <typename G, typename Format>
DEV void rows_product(const RowsTasks& tasks) {
    Columns columns;
    if (!find_columns(tasks, G::TN, columns)) return;
    const Place place = find_rows(tasks, G::TM);
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first;
    const Traits f = Format::traits(task.format);
    const Rooms<G> rooms(f);
    for (u32 c = threadIdx.x; c < columns.count; c += G::THREADS) {
        const u32 column = columns.column(c);
        shared_at<u32>(rooms.column + c * 4) = column;
        shared_at<u32>(rooms.vector + c * 4) = column / task.share * task.parts + place.vector;
    }
    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    Format::tables(task.format, task.book);
    __syncthreads();

    constexpr u32 EACH = Format::RUNS ? 8 : 1;
    const u32 steps = (task.k + STEP - 1) / STEP;
    auto unpack = [&](u32 step) {
        const u32 skew = u32(reinterpret_cast<size_t>(w)) + step * f.bytes;
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 4 * G::TM; i += G::THREADS) {
            const u32 half = i / (2 * G::TM), rows16 = i / 32 % (G::TM / 16), g = i % 32 / 4, row = rows16 * 16 + g;
            u32 raw[2];
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                raw[h] = rooms.raw_at(step) + (row + 8 * h) * f.pitch + ((skew + (row + 8 * h) * task.row_bytes) & 15);
            }
            Format::template unpack<G::TM>(task.format, raw, rooms.tile_at(step), rows16, g, i % 4, half);
        }
    };
    const Warp<G> own;
    const bool few = columns.count <= G::WN * 8;
    // k is at most 2^18.
    constexpr u32 HELD = 2, MORE = (Format::RUNS ? 13 : 10) - HELD;
    Partials<G::OUTPUTS, HELD, MORE> partials;
    float more[MORE][G::OUTPUTS];
    float v[G::OUTPUTS];
    const u32 blocks = Format::RUNS ? task.k / 32 : steps;
    u32 total = 1;
    while (total < blocks) total *= 2;
    auto multiply = [&](u32 step) {
        if (f.minima) {
            sum_sixteens<G>(rooms, step);
            __syncthreads();
        }
        if constexpr (Format::RUNS) {
#pragma unroll 1
            for (u32 chunk = 0; chunk < 4; chunk++) {
                const Operands<G, G::NT> in(own, rooms.tile_at(step), rooms.x_at(step), chunk);
#pragma unroll
                for (u32 r = 0; r < 2; r++) {
                    const u32 run = 2 * chunk + r, index = step * 8 + run;
                    if (index < blocks) {
                        run_values<G>(own, rooms, f, in, step, run, v);
                        partials.push(v, index, total, more);
                    }
                }
            }
        } else {
            i32 sum[G::OUTPUTS];
#pragma unroll
            for (u32 i = 0; i < G::OUTPUTS; i++) sum[i] = 0;
            const u32 tile = rooms.tile_at(step), x = rooms.x_at(step);
            if (few) {
                f.paired ? multiply_scaled<G, 1, true>(own, tile, x, sum) : multiply_scaled<G, 1, false>(own, tile, x, sum);
            } else {
                f.paired ? multiply_scaled<G, G::NT, true>(own, tile, x, sum) : multiply_scaled<G, G::NT, false>(own, tile, x, sum);
            }
            wide_values<G>(own, rooms, f, step, sum, v);
            partials.push(v, step, total, more);
        }
    };
    if constexpr (G::DOUBLE) {
        fetch_raw<G>(rooms, f, task, w, rows, 0);
        copies_end();
        copies_wait<0>();
        __syncthreads();
        if (steps > 1) fetch_raw<G>(rooms, f, task, w, rows, 1);
        fetch_x<G, EACH>(rooms, task, columns.count, 0);
        copies_end();
        unpack(0);
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
            // This step is unpacked and its activations are there, as are the next one's bytes; nobody reads the step before.
            copies_wait<0>();
            __syncthreads();
            if (step + 2 < steps) fetch_raw<G>(rooms, f, task, w, rows, step + 2);
            if (step + 1 < steps) fetch_x<G, EACH>(rooms, task, columns.count, step + 1);
            copies_end();
            if (step + 1 < steps) unpack(step + 1);
            multiply(step);
        }
    } else {
        fetch_raw<G>(rooms, f, task, w, rows, 0);
        fetch_x<G, EACH>(rooms, task, columns.count, 0);
        copies_end();
#pragma unroll 1
        for (u32 step = 0; step < steps; step++) {
            copies_wait<0>();
            __syncthreads();
            unpack(step);
            __syncthreads();
            if (step + 1 < steps) {
                fetch_raw<G>(rooms, f, task, w, rows, step + 1);
                fetch_x<G, EACH>(rooms, task, columns.count, step + 1);
            }
            copies_end();
            multiply(step);
        }
    }
    // Partials that do not exist are +0.
#pragma unroll 1
    for (u32 index = blocks; index < total; index++) {
#pragma unroll
        for (u32 i = 0; i < G::OUTPUTS; i++) v[i] = 0.0f;
        partials.push(v, index, total, more);
    }
#pragma unroll
    for (u32 i = 0; i < G::OUTPUTS; i++) {
        const u32 row = row_of<G>(own, i), column = column_of<G>(own, i);
        if (row < rows && column < columns.count) {
            task.y[size_t(shared_at<u32>(rooms.column + column * 4)) * task.stride + place.first + row] = v[i];
        }
    }
}
