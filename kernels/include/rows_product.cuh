// Quantised matrices times many vectors, by tensor cores on bytes, in the arithmetic of docs/ARITHMETIC.md: a block's integer sum
// is exact, so it may be cut and ordered at will; its float value and the tree over blocks are those of a single vector.
//
// A block of threads has TM matrix rows and TN columns, a warp MT * 16 by NT * 8 of them. Steps of 256 weights: their bytes come as they
// lie in the file, four lanes a row unpack them (unpack.cuh, tile.cuh), warps multiply.
#pragma once
#include "partials.cuh"
#include "products.cuh"
#include "unpack_book.cuh"

constexpr u32 STEP = 256;

// Sizes of a variant. AHEAD: a step's bytes come while the step before is unpacked and multiplied, which takes room for two.
template <u32 MT_, u32 NT_, u32 WM_, u32 WN_, bool AHEAD_>
struct Geometry {
    static constexpr u32 MT = MT_, NT = NT_, WM = WM_, WN = WN_;
    static constexpr bool AHEAD = AHEAD_;
    static constexpr u32 TM = MT * 16 * WM, TN = NT * 8 * WN, THREADS = WM * WN * WARP, PARTS = MT * NT, OUTPUTS = PARTS * 4;
};

// What the loop needs of a format, known when a launch meets it.
struct Traits {
    u32 bytes, pitch, shift, table_words;
    bool minima;
};

// Bytes from one row's raw bytes to the next: room for an odd start, and an odd number of sixteens, so that eight rows' words lie
// in different banks.
constexpr u32 raw_pitch(u32 bytes) { return ((bytes + 15 + 15) / 16 | 1) * 16; }

// Copies of a codebook's entries in shared memory.
template <typename F, bool BIG>
constexpr u32 book_copies() {
    return BIG ? F::COPIES : F::GRID > 512 ? 2 : F::GRID > 0 ? 4 : 1;
}

// Words of the tables of values times scales.
template <typename U>
constexpr u32 value_words() {
    if constexpr (U::BOOK) return 4 * U::SCALES;
    return 0;
}

template <typename U, bool BIG>
DEV Traits traits_of() {
    typedef typename U::Source F;
    const u32 words = (F::GRID + F::SIGNS) * book_copies<F, BIG>() + value_words<U>();
    return {U::BYTES, raw_pitch(U::BYTES), U::SHIFT, words, U::MINIMA};
}

// A format's tables at the beginning of shared memory.
template <typename U, bool BIG>
DEV void make_tables(const u32* book) {
    typedef typename U::Source F;
    constexpr u32 COPIES = book_copies<F, BIG>(), WORDS = (F::GRID + F::SIGNS) * COPIES;
    if constexpr (F::GRID > 0) {
        // Many loads on their way at once.
#pragma unroll 8
        for (u32 i = threadIdx.x; i < WORDS; i += blockDim.x) shared_at<u32>(4 * i) = book[i / COPIES];
    }
    if constexpr (value_words<U>() > 0) {
        for (u32 i = threadIdx.x; i < value_words<U>(); i += blockDim.x) {
            shared_at<u32>(4 * (WORDS + i)) = table_word<U>(i / 4, i % 4);
        }
    }
}

// Where unpacked words go: run `r`, word i of both groups of rows g and g + 8 of sixteen.
template <typename T>
struct Unpacking {
    u32 tile, rows16, g;

    __device__ __forceinline__ void put(u32 plane, u32 run, u32 i, u32 a, u32 b, u32 c, u32 d) const {
        shared_at<uint4>(tile + plane * T::PLANE + T::sixteen(run, rows16, g, i)) = make_uint4(a, b, c, d);
    }
    __device__ __forceinline__ void put(u32 run, u32 i, const Digits& a, const Digits& b, const Digits& c, const Digits& d) const {
        put(0, run, i, a.low, b.low, c.low, d.low);
        put(1, run, i, a.high, b.high, c.high, d.high);
    }
};

// A run of a format whose entries choose among eight values.
template <typename U, typename Book, typename T>
DEV void unpack_chosen(const u32 (&raw)[2], u32 run, const Book& book, u32 values, const Unpacking<T>& to) {
    u32 selector[2][4];
    uint4 table[2][2];
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        U::selectors(raw[k], run, book, selector[k]);
        const u32 scales = U::scales(raw[k], run);
#pragma unroll
        for (u32 group = 0; group < 2; group++) table[k][group] = shared_at<uint4>(values + byte_of(scales, group) * 16);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        auto digits = [&](u32 k, u32 group) -> Digits {
            const u32 by = selector[k][2 * group + i / 2] >> (i % 2 * 16);
            const uint4& t = table[k][group];
            return {choose(t.x, t.y, by), choose(t.z, t.w, by)};
        };
        to.put(run, i, digits(0, 0), digits(1, 0), digits(0, 1), digits(1, 1));
    }
}

// A run of a format with entries of four weights.
template <typename U, typename Book, typename T>
DEV void unpack_entries(const u32 (&raw)[2], u32 run, const Book& book, const Unpacking<T>& to) {
    u32 words[2][8];
    i32 scale[2][2];
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        U::run(raw[k], run, book, words[k]);
        const u32 scales = U::scales(raw[k], run);
#pragma unroll
        for (u32 group = 0; group < 2; group++) scale[k][group] = i32(2 * byte_of(scales, group) + 1);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        auto digits = [&](u32 k, u32 group) { return scaled<U::BIAS, U::SIGNED>(words[k][4 * group + i], scale[k][group]); };
        to.put(run, i, digits(0, 0), digits(1, 0), digits(0, 1), digits(1, 1));
    }
}

// Half h of a format without a codebook, this lane's words.
template <typename U, bool RUNS, typename T>
DEV void unpack_half(const u32 (&raw)[2], u32 t, u32 h, const Unpacking<T>& to) {
    u32 words[2][8];
    U::half(raw[0], t, h, words[0]);
    U::half(raw[1], t, h, words[1]);
    if constexpr (RUNS) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) to.put(0, 4 * h + i, t, words[0][2 * i], words[1][2 * i], words[0][2 * i + 1], words[1][2 * i + 1]);
    } else {
#pragma unroll
        for (u32 c = 0; c < 2; c++) {
            const u32 scales[2] = {U::scales(raw[0], 2 * h + c), U::scales(raw[1], 2 * h + c)};
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                auto digits = [&](u32 k, u32 group) {
                    const u32 in_chunk = 2 * r + group;
                    return scaled<U::BIAS, U::SIGNED>(words[k][4 * c + in_chunk], signed_byte_of(scales[k], in_chunk));
                };
                to.put(4 * h + 2 * c + r, t, digits(0, 0), digits(1, 0), digits(0, 1), digits(1, 1));
            }
        }
    }
}

// Unpacks half h of rows g and g + 8 of sixteen, of which one lane of four has its words of both. `raw` are the two rows' bytes.
template <typename U, bool BIG, bool RUNS, typename T>
DEV void unpack_two(const u32 (&raw)[2], u32 tile, u32 rows16, u32 g, u32 t, u32 h) {
    typedef typename U::Source F;
    const Unpacking<T> to = {tile, rows16, g};
    if constexpr (U::BOOK) {
        constexpr u32 COPIES = book_copies<F, BIG>();
        const Codebook<F::GRID, COPIES> book = {threadIdx.x % COPIES * 4};
        if constexpr (U::SCALES > 0) {
            unpack_chosen<U>(raw, 4 * h + t, book, (F::GRID + F::SIGNS) * COPIES * 4, to);
        } else {
            unpack_entries<U>(raw, 4 * h + t, book, to);
        }
    } else {
        unpack_half<U, RUNS>(raw, t, h, to);
    }
    // What the lane of the other half does for one row, this one does for the other.
    const u32 row = rows16 * 16 + h * 8 + g, own = h ? raw[1] : raw[0];
    auto at = [&](u32 part, u32 column) { return tile + part + (column * T::PAD + row) * 4; };
    if constexpr (RUNS) {
#pragma unroll
        for (u32 run = t; run < 8; run += 4) {
            shared_at<float>(at(T::D, run)) = F::d(own + run * F::BYTES);
            if constexpr (U::MINIMA) shared_at<float>(at(T::M, run)) = F::m(own + run * F::BYTES);
        }
    } else {
        if constexpr (U::MINIMA) shared_at<u32>(at(T::MINS, t)) = U::mins(own, t);
        if (t == 0) shared_at<float>(at(T::D, 0)) = F::d(own);
        if (U::MINIMA && t == 1) shared_at<float>(at(T::M, 0)) = F::dmin(own);
    }
}

// Places in shared memory. In bytes, with TIMES = AHEAD ? 2 : 1:
//
//   all = round_up(4 * table words, 16) + Tile::BYTES + TIMES * TM * raw_pitch + 2 * (TN * 256 + TN * 32) + TN * 40
template <typename G, typename T>
struct Rooms {
    static constexpr u32 TIMES = G::AHEAD ? 2 : 1, X = G::TN * STEP;
    u32 tile, raw, x, dx, sums, vector, column;
    u32 raw_bytes;

    __device__ __forceinline__ Rooms(const Traits& f) {
        tile = (f.table_words * 4 + 15) & ~15u;
        raw = tile + T::BYTES;
        raw_bytes = G::TM * f.pitch;
        x = raw + TIMES * raw_bytes;
        dx = x + 2 * X;                       // two of [TN][8] floats
        sums = dx + 2 * G::TN * 32;           // [TN][4] pairs of words: sums of the activations' sixteens
        vector = sums + G::TN * 32;           // [TN]: of which activations
        column = vector + G::TN * 4;          // [TN]: and to which column of the result
    }
    __device__ __forceinline__ u32 raw_at(u32 step) const { return raw + step % TIMES * raw_bytes; }
    __device__ __forceinline__ u32 x_at(u32 step) const { return x + step % 2 * X; }
    __device__ __forceinline__ u32 dx_at(u32 step) const { return dx + step % 2 * G::TN * 32; }
};

// Raw bytes of a step of all rows on their way.
template <typename G, typename T>
DEV void fetch_raw(const Rooms<G, T>& rooms, const Traits& f, const RowsTask& task, const u8* w, u32 rows, u32 step) {
    const u32 t = threadIdx.x % 4, bytes = min(f.bytes, task.row_bytes - step * f.bytes);
    for (u32 row = threadIdx.x / 4; row < rows; row += G::THREADS / 4) {
        const u8* from = w + size_t(row) * task.row_bytes + step * f.bytes;
        const u32 skew = u32(reinterpret_cast<size_t>(from) & 15), to = rooms.raw_at(step) + row * f.pitch;
        for (u32 at = 16 * t; at < skew + bytes; at += 64) copy16(smem + to + at, from - skew + at);
    }
}

// Activations of a step of all columns, and their scales: `each` floats a step.
template <u32 EACH, typename G, typename T>
DEV void fetch_x(const Rooms<G, T>& rooms, const RowsTask& task, u32 columns, u32 step) {
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
template <typename G, typename T>
DEV void sum_sixteens(const Rooms<G, T>& rooms, u32 step) {
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
template <typename G, typename T, u32 LIVE>
struct Operands {
    uint4 a[G::MT][2], b[LIVE];  // of a: both runs

    // `plane` is where the weights' bytes are.
    __device__ __forceinline__ void load(const Warp<G>& own, u32 plane, u32 x, u32 chunk) {
#pragma unroll
        for (u32 mt = 0; mt < G::MT; mt++) {
#pragma unroll
            for (u32 r = 0; r < 2; r++) a[mt][r] = shared_at<uint4>(plane + T::sixteen(2 * chunk + r, own.row / 16 + mt, own.g, own.t));
        }
#pragma unroll
        for (u32 nt = 0; nt < LIVE; nt++) b[nt] = shared_at<uint4>(x + x_sixteen(G::TN, chunk, own.column(nt) + own.g, own.t));
    }
};

// Adds a chunk's products of one plane.
template <bool UNSIGNED, typename G, typename T, u32 LIVE>
DEV void add_products(const Operands<G, T, LIVE>& in, i32 (&sum)[G::PARTS][4]) {
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
#pragma unroll
        for (u32 mt = 0; mt < G::MT; mt++) {
#pragma unroll
            for (u32 nt = 0; nt < LIVE; nt++) {
                const uint4& b = in.b[nt];
                add_product_32<UNSIGNED>(sum[mt * G::NT + nt], in.a[mt][r], r ? b.z : b.x, r ? b.w : b.y);
            }
        }
    }
}

// A step's sums: of high digits, moved up, then of low ones. Where there are registers for it, the next chunk's operands are on their
// way while one is multiplied.
template <u32 LIVE, typename G, typename T>
DEV void multiply_digits(const Warp<G>& own, u32 tile, u32 x, i32 (&sum)[G::PARTS][4]) {
#pragma unroll
    for (u32 i = 0; i < G::PARTS; i++) sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0;
    auto move_up = [&]() {
#pragma unroll
        for (u32 i = 0; i < G::PARTS; i++) sum[i][0] <<= 8, sum[i][1] <<= 8, sum[i][2] <<= 8, sum[i][3] <<= 8;
    };
    if constexpr (G::OUTPUTS > 16) {
        Operands<G, T, LIVE> in;
#pragma unroll 1
        for (u32 chunk = 0; chunk < 4; chunk++) {
            in.load(own, tile + T::PLANE, x, chunk);
            add_products<false>(in, sum);
        }
        move_up();
#pragma unroll 1
        for (u32 chunk = 0; chunk < 4; chunk++) {
            in.load(own, tile, x, chunk);
            add_products<true>(in, sum);
        }
    } else {
        Operands<G, T, LIVE> in[2];
        in[0].load(own, tile + T::PLANE, x, 0);
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) {
            in[(chunk + 1) % 2].load(own, chunk < 3 ? tile + T::PLANE : tile, x, (chunk + 1) % 4);
            add_products<false>(in[chunk % 2], sum);
        }
        move_up();
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) {
            if (chunk < 3) in[(chunk + 1) % 2].load(own, tile, x, chunk + 1);
            add_products<true>(in[chunk % 2], sum);
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
template <typename G, typename T>
DEV void wide_values(const Warp<G>& own, const Rooms<G, T>& rooms, const Traits& f, u32 step, const i32 (&sum)[G::PARTS][4],
                     float (&v)[G::OUTPUTS]) {
    const u32 tile = rooms.tile, dx = rooms.dx_at(step);
#pragma unroll
    for (u32 i = 0; i < G::OUTPUTS; i++) {
        const u32 row = row_of<G>(own, i), column = column_of<G>(own, i);
        const float x = shared_at<float>(dx + column * 32);
        v[i] = (shared_at<float>(tile + T::D + row * 4) * x) * float(sum[i / 4][i % 4]);
    }
    if (!f.minima) return;
#pragma unroll
    for (u32 i = 0; i < G::OUTPUTS; i++) {
        const u32 row = row_of<G>(own, i), column = column_of<G>(own, i);
        i32 mins = 0;
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) {
            const uint2 sums = shared_at<uint2>(rooms.sums + (column * 4 + chunk) * 8);
            mins = dp2a_unsigned(sums.x, sums.y, shared_at<u32>(tile + T::MINS + (chunk * T::PAD + row) * 4), mins);
        }
        v[i] = v[i] - (shared_at<float>(tile + T::M + row * 4) * shared_at<float>(dx + column * 32)) * float(mins);
    }
}

// The values of one run of 32 weights, formats with a factor for each.
template <typename G, typename T>
DEV void run_values(const Warp<G>& own, const Rooms<G, T>& rooms, const Traits& f, const Operands<G, T, G::NT>& in, u32 step, u32 run,
                    float (&v)[G::OUTPUTS]) {
    const u32 tile = rooms.tile, dx = rooms.dx_at(step), second = run % 2;
#pragma unroll
    for (u32 mt = 0; mt < G::MT; mt++) {
#pragma unroll
        for (u32 nt = 0; nt < G::NT; nt++) {
            i32 c[4];
            const uint4& b = in.b[nt];
            product_32(c, in.a[mt][second], second ? b.z : b.x, second ? b.w : b.y);
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                const u32 i = (mt * G::NT + nt) * 4 + e, row = row_of<G>(own, i), column = column_of<G>(own, i);
                const u32 at = (run * T::PAD + row) * 4;
                const float x = shared_at<float>(dx + column * 32 + run * 4);
                v[i] = (shared_at<float>(tile + T::D + at) * x) * float(c[e] >> f.shift);
                if (f.minima) {
                    const uint2 sums = shared_at<uint2>(rooms.sums + (column * 4 + run / 2) * 8);
                    const u32 both = second ? sums.y : sums.x;
                    const i32 q = (i32(both << 16) >> 16) + (i32(both) >> 16);
                    v[i] = v[i] + (shared_at<float>(tile + T::M + at) * x) * float(q);
                }
            }
        }
    }
}

// One block's part of a launch. `Format` says which formats there are: traits(format), tables(format, book), unpack(format, ...);
// RUNS: those with a factor for 32 weights.
template <typename G, typename Format>
DEV void rows_product(const RowsTasks& tasks) {
    typedef Tile<G::TM, Format::RUNS ? 1 : 2, Format::RUNS ? 8 : 1> T;
    Columns columns;
    if (!find_columns(tasks, G::TN, columns)) return;
    const Place place = find_rows(tasks, G::TM);
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first;
    const Traits f = Format::traits(task.format);
    const Rooms<G, T> rooms(f);
    for (u32 c = threadIdx.x; c < columns.count; c += G::THREADS) {
        const u32 column = columns.column(c);
        shared_at<u32>(rooms.column + c * 4) = column;
        shared_at<u32>(rooms.vector + c * 4) = column / task.share * task.parts + place.vector;
    }
    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    Format::tables(task.format, task.book);
    __syncthreads();

    constexpr u32 EACH = Format::RUNS ? 8 : 1;
    const u32 steps = (task.k + STEP - 1) / STEP, blocks = Format::RUNS ? task.k / 32 : steps;
    auto fetch = [&](u32 step) {
        if (step < steps) {
            fetch_raw(rooms, f, task, w, rows, step);
            fetch_x<EACH>(rooms, task, columns.count, step);
        }
        copies_end();
    };
    auto unpack = [&](u32 step) {
        const u32 skew = u32(reinterpret_cast<size_t>(w)) + step * f.bytes;
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 4 * G::TM; i += G::THREADS) {
            const u32 half = i / (2 * G::TM), rows16 = i / 32 % (G::TM / 16), g = i % 32 / 4, row = rows16 * 16 + g;
            u32 raw[2];
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                raw[k] = rooms.raw_at(step) + (row + 8 * k) * f.pitch + ((skew + (row + 8 * k) * task.row_bytes) & 15);
            }
            Format::template unpack<T>(task.format, raw, rooms.tile, rows16, g, i % 4, half);
        }
    };
    const Warp<G> own;
    const bool few = columns.count <= G::WN * 8;
    // k is at most 2^18.
    constexpr u32 HELD = Format::RUNS ? 2 : 1, MORE = (Format::RUNS ? 13 : 10) - HELD;
    Partials<G::OUTPUTS, HELD, MORE> partials;
    float more[MORE][G::OUTPUTS], v[G::OUTPUTS];
    u32 total = 1;
    while (total < blocks) total *= 2;
    auto multiply = [&](u32 step) {
        if (f.minima) {
            sum_sixteens(rooms, step);
            __syncthreads();
        }
        if constexpr (Format::RUNS) {
#pragma unroll 1
            for (u32 chunk = 0; chunk < 4; chunk++) {
                Operands<G, T, G::NT> in;
                in.load(own, rooms.tile, rooms.x_at(step), chunk);
#pragma unroll
                for (u32 r = 0; r < 2; r++) {
                    const u32 run = 2 * chunk + r, index = step * 8 + run;
                    if (index < blocks) {
                        run_values(own, rooms, f, in, step, run, v);
                        partials.push(v, index, total, more);
                    }
                }
            }
        } else {
            i32 sum[G::PARTS][4];
            if (few) {
                multiply_digits<1, G, T>(own, rooms.tile, rooms.x_at(step), sum);
            } else {
                multiply_digits<G::NT, G, T>(own, rooms.tile, rooms.x_at(step), sum);
            }
            wide_values(own, rooms, f, step, sum, v);
            partials.push(v, step, total, more);
        }
    };
    fetch(0);
#pragma unroll 1
    for (u32 step = 0; step < steps; step++) {
        // The step's bytes are there, and nobody multiplies the one before.
        copies_wait<0>();
        __syncthreads();
        if constexpr (G::AHEAD) fetch(step + 1);
        unpack(step);
        __syncthreads();
        if constexpr (!G::AHEAD) fetch(step + 1);
        multiply(step);
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
