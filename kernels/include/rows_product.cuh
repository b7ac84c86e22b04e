// Quantised matrices times many vectors, by tensor cores on bytes, in the arithmetic of docs/ARITHMETIC.md: a block's integer sum
// is exact, so it may be cut and ordered at will; its float value and the tree over blocks are those of a single vector.
//
// A block of threads has TM matrix rows and TN columns, a warp 16 rows of them and all columns. Steps of 256 weights: their bytes come as
// they lie in the file, four lanes a row unpack what they multiply (unpack.cuh, tile.cuh).
#pragma once
#include "partials.cuh"
#include "products.cuh"
#include "unpack_book.cuh"

constexpr u32 STEP = 256;

// Sizes of a variant: WARPS warps of 16 rows and NT * 8 columns each. HELD: levels of the tree that registers hold.
template <u32 WARPS_, u32 NT_, u32 HELD_ = 1>
struct Geometry {
    static constexpr u32 WARPS = WARPS_, NT = NT_, HELD = HELD_;
    static constexpr u32 TM = WARPS * 16, TN = NT * 8, THREADS = WARPS * WARP, OUTPUTS = NT * 4;
};

// What the loop needs of a format, known when a launch meets it.
struct Traits {
    u32 bytes, pitch, table_words;
    bool minima;
};

// Bytes from one row's raw bytes to the next: room for an odd start, and an odd number of sixteens, so that eight rows' words lie
// in different banks.
constexpr u32 raw_pitch(u32 bytes) { return ((bytes + 15 + 15) / 16 | 1) * 16; }

// Copies of a codebook's entries in shared memory. A large block takes 97 KB at most, so that two leave 60 KB of first-level cache: a level
// of the tree's partial sums is 64 KB.
template <typename F, bool BIG>
constexpr u32 book_copies() {
    constexpr u32 HALF = F::GRID < 1024 ? F::COPIES / 2 : F::COPIES;
    return BIG ? HALF : F::GRID > 512 ? 2 : F::GRID > 0 ? 4 : 1;
}

// Words of a format's tables.
template <typename U, bool BIG>
constexpr u32 table_words() {
    typedef typename U::Source F;
    return (F::GRID + (U::SIGN_TABLE ? F::SIGNS : 0)) * book_copies<F, BIG>();
}

template <typename U, bool BIG>
DEV Traits traits_of() {
    return {U::BYTES, raw_pitch(U::BYTES), table_words<U, BIG>(), U::MINIMA};
}

// A format's tables at the beginning of shared memory.
template <typename U, bool BIG>
DEV void make_tables(const u32* book) {
    typedef typename U::Source F;
    constexpr u32 COPIES = book_copies<F, BIG>(), WORDS = table_words<U, BIG>();
    if constexpr (F::GRID > 0) {
        // Copies of a word lie side by side; two or four are written at once.
        constexpr u32 EACH = COPIES < 4 ? COPIES : 4;
#pragma unroll 4
        for (u32 i = threadIdx.x * EACH; i < WORDS; i += blockDim.x * EACH) {
            const u32 word = book[i / COPIES];
            if constexpr (EACH == 4) {
                shared_at<uint4>(4 * i) = make_uint4(word, word, word, word);
            } else {
                shared_at<uint2>(4 * i) = make_uint2(word, word);
            }
        }
    }
}

// Places in shared memory; a column has EACH scales a step. In bytes:
//
//   all = round_up(4 * table words, 16) + 2 * (TM * raw_pitch + TN * (256 + 4 * EACH)) + TN * (8 + (minima ? 32 : 0))
template <typename G, u32 EACH>
struct Rooms {
    static constexpr u32 X = G::TN * STEP, DX = G::TN * EACH * 4;
    u32 raw, raw_bytes, x, dx, vector, column, sums;

    __device__ __forceinline__ Rooms(const Traits& f) {
        raw = (f.table_words * 4 + 15) & ~15u;
        raw_bytes = G::TM * f.pitch;
        x = raw + 2 * raw_bytes;
        dx = x + 2 * X;                       // two of [TN][EACH] floats
        vector = dx + 2 * DX;                 // [TN]: of which activations
        column = vector + G::TN * 4;          // [TN]: and to which column of the result
        sums = column + G::TN * 4;            // [TN][4] pairs of words: sums of the activations' sixteens, where there are minima
    }
    __device__ __forceinline__ u32 raw_at(u32 step) const { return raw + step % 2 * raw_bytes; }
    __device__ __forceinline__ u32 x_at(u32 step) const { return x + step % 2 * X; }
    __device__ __forceinline__ u32 dx_at(u32 step) const { return dx + step % 2 * DX; }
};

// What a thread fetches each step: sixteens of raw bytes, four lanes a row, and of activations, sixteen lanes a column. Addresses are
// made once.
template <typename G, u32 EACH>
struct Fetch {
    static constexpr u32 ROWS = G::TM * 4 / G::THREADS, SIXTEENS = 5;
    static constexpr u32 COLUMNS = (G::TN * 16 + G::THREADS - 1) / G::THREADS;
    const u8* w[ROWS];    // null: no such row
    u32 offset[COLUMNS];  // of a column's activations
    u32 to_raw, to_x, at, n_columns, bytes, row_bytes, pitch;
    const u8* q;

    __device__ __forceinline__ Fetch(const Rooms<G, EACH>& rooms, const Traits& f, const RowsTask& task, const u8* first, u32 rows,
                                     u32 columns)
        : bytes(f.bytes), row_bytes(task.row_bytes), pitch(f.pitch), q(task.q) {
        const u32 row = threadIdx.x / 4, column = threadIdx.x / 16, sixteen = threadIdx.x % 16;
        at = threadIdx.x % 4 * 16;
        to_raw = rooms.raw + row * f.pitch + at;
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
            const u32 own = row + i * (G::THREADS / 4);
            w[i] = own < rows ? first + size_t(own) * task.row_bytes : nullptr;
        }
        to_x = rooms.x + x_sixteen(G::TN, sixteen / 4, column, sixteen % 4);
        n_columns = columns;
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++) {
            const u32 own = column + i * (G::THREADS / 16);
            offset[i] = own < columns ? shared_at<u32>(rooms.vector + own * 4) * task.pitch + sixteen * 16 : 0;
        }
    }

    __device__ __forceinline__ void raw(const Rooms<G, EACH>& rooms, u32 step) const {
        const u32 count = min(bytes, row_bytes - step * bytes), to = to_raw + step % 2 * rooms.raw_bytes;
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
            if (!w[i]) continue;
            const u8* from = w[i] + step * bytes;
            const u32 skew = u32(reinterpret_cast<size_t>(from)) & 15, end = skew + count;
            from = from - skew + at;
#pragma unroll
            for (u32 k = 0; k < SIXTEENS; k++) {
                if (at + k * 64 < end) copy16(smem + to + i * (G::THREADS / 4) * pitch + k * 64, from + k * 64);
            }
        }
    }

    __device__ __forceinline__ void x(const Rooms<G, EACH>& rooms, const RowsTask& task, u32 step) const {
        const u8* from = q + step * STEP;
        const u32 to = to_x + step % 2 * Rooms<G, EACH>::X;
#pragma unroll
        for (u32 i = 0; i < COLUMNS; i++) {
            const u32 before = i * (G::THREADS / 16);
            if (threadIdx.x / 16 + before < n_columns) copy16(smem + to + before * CHUNK, from + offset[i]);
        }
        // `EACH` scales a column.
        const u32 scales = rooms.dx_at(step), c = threadIdx.x / (EACH == 1 ? 1 : 2);
        if (c < n_columns) {
            const float* scale = task.scale + size_t(shared_at<u32>(rooms.vector + c * 4)) * task.scales;
            if constexpr (EACH == 1) {
                copy4(smem + scales + c * 4, scale + step);
            } else {
                const u32 half = threadIdx.x % 2 * 4;
                copy16(smem + scales + c * 32 + half * 4, reinterpret_cast<const u8*>(scale + step * 8 + half));
            }
        }
    }
};

// Sums of the sixteens of a column's chunk: four signed halves. `x`: where the activations of 256 weights are, of `columns` columns.
DEV uint2 chunk_sums(u32 x, u32 columns, u32 chunk, u32 column) {
    i32 sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 t = 0; t < 4; t++) {
        const uint4 four = shared_at<uint4>(x + x_sixteen(columns, chunk, column, t));
        sum[0] = dp4a(0x01010101u, four.x, sum[0]), sum[1] = dp4a(0x01010101u, four.y, sum[1]);
        sum[2] = dp4a(0x01010101u, four.z, sum[2]), sum[3] = dp4a(0x01010101u, four.w, sum[3]);
    }
    return make_uint2((u32(sum[0]) & 0xffffu) | u32(sum[1]) << 16, (u32(sum[2]) & 0xffffu) | u32(sum[3]) << 16);
}

template <typename G, u32 EACH>
DEV void sum_sixteens(const Rooms<G, EACH>& rooms, u32 step) {
    for (u32 i = threadIdx.x; i < G::TN * 4; i += G::THREADS) {
        shared_at<uint2>(rooms.sums + i * 8) = chunk_sums(rooms.x_at(step), G::TN, i % 4, i / 4);
    }
}

// A lane's part of a warp's product: rows g and g + 8 of sixteen, of each eight columns 2t and 2t + 1.
template <typename G>
struct Lane {
    u32 g, t;
    u32 x;  // where column g of the step's activations is

    // Places are those of x_sixteen, in parts: what depends on the lane is made once, and the rest is known to the compiler. The
    // exchange of sixteens is the same for columns that are eight apart.
    __device__ __forceinline__ u32 exchanged(u32 sixteen, u32 chunk) const {
        return (sixteen ^ (g >> 1 & 3) ^ exchange_of(chunk)) << 4;
    }

    // `of(n)` for all tiles of eight columns: those that have none as well, since to ask would cut the products apart.
    template <typename Of>
    __device__ __forceinline__ void tiles(Of of) const {
#pragma unroll
        for (u32 n = 0; n < G::NT; n++) of(n);
    }
    // Column g of a tile: this lane's words of a chunk.
    __device__ __forceinline__ uint4 chunk_of(u32 n, u32 chunk) const {
        return shared_beyond<uint4>(x + exchanged(t, chunk), (chunk * G::TN + n * 8) * CHUNK);
    }
    // Where word i of both groups of a run is.
    __device__ __forceinline__ u32 words_at(u32 run, u32 i) const {
        return x + run / 2 * (G::TN * CHUNK) + run % 2 * 8 + exchanged(i, run / 2);
    }
    __device__ __forceinline__ uint2 words_of(u32 n, u32 at) const { return shared_beyond<uint2>(at, n * 8 * CHUNK); }
};

// Sums of a step, of low and of high digits.
template <typename G>
struct Sums {
    i32 low[G::NT][4], high[G::NT][4];

    __device__ __forceinline__ Sums() {
#pragma unroll
        for (u32 n = 0; n < G::NT; n++) {
#pragma unroll
            for (u32 e = 0; e < 4; e++) low[n][e] = high[n][e] = 0;
        }
    }
    __device__ __forceinline__ void add(u32 n, const uint4& low_digits, const uint4& high_digits, u32 b0, u32 b1) {
        add_product_32<true>(low[n], low_digits, b0, b1);
        add_product_32<false>(high[n], high_digits, b0, b1);
    }
    __device__ __forceinline__ i32 at(u32 n, u32 e) const { return high[n][e] * 256 + low[n][e]; }
};

// Words of both rows and groups as the tensor cores want them: {g, g + 8} of the first group, then of the second.
template <typename Of>
DEV void two_planes(Of digits, uint4& low, uint4& high) {
    const Digits a = digits(0, 0), b = digits(1, 0), c = digits(0, 1), d = digits(1, 1);
    low = make_uint4(a.low, b.low, c.low, d.low);
    high = make_uint4(a.high, b.high, c.high, d.high);
}

// All words of a run of 32, which this lane has: `digits(k, group, i)` is word i of a group of row g + 8k.
template <typename G, typename Of>
DEV void multiply_run(const Lane<G>& own, u32 run, Sums<G>& sums, Of digits) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        uint4 low, high;
        two_planes([&](u32 k, u32 group) -> Digits { return digits(k, group, i); }, low, high);
        const u32 at = own.words_at(run, i);
        own.tiles([&](u32 n) {
            const uint2 x = own.words_of(n, at);
            sums.add(n, low, high, x.x, x.y);
        });
    }
}

// A step of a format whose entries choose among eight values; run t of each half is this lane's.
template <typename U, typename Book, typename G>
DEV void multiply_chosen(const u32 (&raw)[2], const Lane<G>& own, const Book& book, Sums<G>& sums) {
#pragma unroll 1
    for (u32 run = own.t; run < 8; run += 4) {
        u32 selector[2][4];
        uint4 values[2][2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 scales = U::selectors(raw[k], run, book, selector[k]);
            values[k][0] = eight_times<U>(2 * byte_of(scales, 0) + 1);
            values[k][1] = U::ONE ? values[k][0] : eight_times<U>(2 * byte_of(scales, 1) + 1);
        }
        multiply_run(own, run, sums, [&](u32 k, u32 group, u32 i) -> Digits {
            const u32 by = selector[k][2 * group + i / 2] >> (i % 2 * 16);
            const uint4& v = values[k][group];
            return {choose(v.x, v.y, by), choose(v.z, v.w, by)};
        });
    }
}

// A step of a format with entries of four weights.
template <typename U, typename Book, typename G>
DEV void multiply_entries(const u32 (&raw)[2], const Lane<G>& own, const Book& book, Sums<G>& sums) {
#pragma unroll 1
    for (u32 run = own.t; run < 8; run += 4) {
        u32 words[2][8];
        i32 scale[2][2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 scales = U::run(raw[k], run, book, words[k]);
#pragma unroll
            for (u32 group = 0; group < 2; group++) scale[k][group] = i32(2 * byte_of(scales, U::ONE ? 0 : group) + 1);
        }
        multiply_run(own, run, sums, [&](u32 k, u32 group, u32 i) {
            return scaled<U::BIAS, U::SIGNED>(words[k][4 * group + i], scale[k][group]);
        });
    }
}

// A step of a format with a codebook.
template <typename U, bool BIG, typename G>
DEV void multiply_book(const u32 (&raw)[2], const Lane<G>& own, Sums<G>& sums) {
    typedef typename U::Source F;
    constexpr u32 COPIES = book_copies<F, BIG>();
    const NearBook<F::GRID, COPIES> book = {{threadIdx.x % COPIES * 4}};
    if constexpr (U::CHOSEN) {
        multiply_chosen<U>(raw, own, book, sums);
    } else {
        multiply_entries<U>(raw, own, book, sums);
    }
}

// A step of a format without a codebook: this lane has word t of every group.
template <typename U, typename G>
DEV void multiply_halves(const u32 (&raw)[2], const Lane<G>& own, Sums<G>& sums) {
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 words[2][8];
        U::half(raw[0], own.t, h, words[0]);
        U::half(raw[1], own.t, h, words[1]);
#pragma unroll
        for (u32 c = 0; c < 2; c++) {
            const u32 chunk = 2 * h + c, scales[2] = {U::scales(raw[0], chunk), U::scales(raw[1], chunk)};
            uint4 low[2], high[2];
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                two_planes(
                    [&](u32 k, u32 group) {
                        const u32 in_chunk = 2 * r + group;
                        return scaled<U::BIAS, U::SIGNED>(words[k][4 * c + in_chunk], signed_of(scales[k], in_chunk));
                    },
                    low[r], high[r]);
            }
            own.tiles([&](u32 n) {
                const uint4 x = own.chunk_of(n, chunk);
                sums.add(n, low[0], high[0], x.x, x.y);
                sums.add(n, low[1], high[1], x.z, x.w);
            });
        }
    }
}

// Output i of a lane: its row of sixteen and its column.
DEV u32 row_of(u32 g, u32 i) { return g + i % 4 / 2 * 8; }
DEV u32 column_of(u32 t, u32 i) { return i / 4 * 8 + 2 * t + i % 2; }

// A step's value of each output: formats with 256 weights a block.
template <typename U, bool BIG, typename G>
DEV void wide_values(const u32 (&raw)[2], const Lane<G>& own, const Rooms<G, 1>& rooms, u32 step, float (&v)[G::OUTPUTS]) {
    typedef typename U::Source F;
    Sums<G> sums;
    if constexpr (U::BOOK) {
        multiply_book<U, BIG>(raw, own, sums);
    } else {
        multiply_halves<U>(raw, own, sums);
    }
    const u32 dx = rooms.dx_at(step);
    const float d[2] = {F::d(raw[0]), F::d(raw[1])};
#pragma unroll
    for (u32 n = 0; n < G::NT; n++) {
        const float2 x = shared_beyond<float2>(dx + 2 * own.t * 4, n * 8 * 4);
        v[4 * n] = (d[0] * x.x) * float(sums.at(n, 0)), v[4 * n + 1] = (d[0] * x.y) * float(sums.at(n, 1));
        v[4 * n + 2] = (d[1] * x.x) * float(sums.at(n, 2)), v[4 * n + 3] = (d[1] * x.y) * float(sums.at(n, 3));
    }
    if constexpr (U::MINIMA) {
        const float m[2] = {F::dmin(raw[0]), F::dmin(raw[1])};
        u32 mins[2][4];
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) mins[0][chunk] = U::mins(raw[0], chunk), mins[1][chunk] = U::mins(raw[1], chunk);
#pragma unroll
        for (u32 i = 0; i < G::OUTPUTS; i++) {
            const u32 column = column_of(own.t, i), k = i % 4 / 2;
            i32 sum = 0;
#pragma unroll
            for (u32 chunk = 0; chunk < 4; chunk++) {
                const uint2 x = shared_at<uint2>(rooms.sums + (column * 4 + chunk) * 8);
                sum = dp2a_unsigned(x.x, x.y, mins[k][chunk], sum);
            }
            v[i] = v[i] - (m[k] * shared_at<float>(dx + column * 4)) * float(sum);
        }
    }
}

// The values of a step's runs of 32 weights, one after the other: formats with a factor for each. `take(run, v)`.
template <typename U, typename G, typename Take>
DEV void run_values(const u32 (&raw)[2], const Lane<G>& own, const Rooms<G, 8>& rooms, u32 step, u32 runs, float (&v)[G::OUTPUTS],
                    Take take) {
    typedef typename U::Source F;
    const u32 dx = rooms.dx_at(step);
#pragma unroll 1
    for (u32 h = 0; h < 2; h++) {
        u32 words[2][8];
        U::half(raw[0], own.t, h, words[0]);
        U::half(raw[1], own.t, h, words[1]);
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            const u32 run = 4 * h + r;
            if (run >= runs) return;
            const uint4 w = make_uint4(words[0][2 * r], words[1][2 * r], words[0][2 * r + 1], words[1][2 * r + 1]);
            const u32 four[2] = {raw[0] + 4 * h * F::BYTES, raw[1] + 4 * h * F::BYTES};
            const float d[2] = {U::d(four[0], r * F::BYTES), U::d(four[1], r * F::BYTES)};
            const float m[2] = {U::m(four[0], r * F::BYTES), U::m(four[1], r * F::BYTES)};
            own.tiles([&](u32 n) {
                const uint4 x = own.chunk_of(n, run / 2);
                i32 c[4];
                product_32(c, w, r % 2 ? x.z : x.x, r % 2 ? x.w : x.y);
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    const u32 column = n * 8 + 2 * own.t + e % 2, k = e / 2;
                    const float scale = shared_beyond<float>(dx + 2 * own.t * 32 + h * 16, n * 8 * 32 + e % 2 * 32 + r * 4);
                    float value = (d[k] * scale) * float(c[e] >> U::SHIFT);
                    if constexpr (U::MINIMA) {
                        const uint2 sums = shared_at<uint2>(rooms.sums + (column * 4 + run / 2) * 8);
                        const u32 both = r % 2 ? sums.y : sums.x;
                        value = value + (m[k] * scale) * float((i32(both << 16) >> 16) + (i32(both) >> 16));
                    }
                    v[4 * n + e] = value;
                }
            });
            take(run);
        }
    }
}

// One block's part of a launch. `Format` says which formats there are: traits(format), tables(format, book) and
// values(format, ...); RUNS: those with a factor for 32 weights.
template <typename G, typename Format>
DEV void rows_product(const RowsTasks& tasks) {
    Columns columns;
    if (!find_columns(tasks, G::TN, columns)) return;
    const Place place = find_rows(tasks, G::TM);
    const RowsTask& task = tasks.task[place.task];
    const u32 rows = place.end - place.first;
    const Traits f = Format::traits(task.format);
    constexpr u32 EACH = Format::RUNS ? 8 : 1;
    const Rooms<G, EACH> rooms(f);
    for (u32 c = threadIdx.x; c < columns.count; c += G::THREADS) {
        const u32 column = columns.column(c);
        shared_at<u32>(rooms.column + c * 4) = column;
        shared_at<u32>(rooms.vector + c * 4) = column / task.share * task.parts + place.vector;
    }
    const u8* const w = weights_of(task, columns.expert) + size_t(place.first) * task.row_bytes;
    Format::tables(task.format, task.book);
    __syncthreads();

    const u32 steps = (task.k + STEP - 1) / STEP, blocks = Format::RUNS ? task.k / 32 : steps;
    const Fetch<G, EACH> fetches(rooms, f, task, w, rows, columns.count);
    auto fetch = [&](u32 step) {
        if (step < steps) {
            fetches.raw(rooms, step);
            fetches.x(rooms, task, step);
        }
        copies_end();
    };
    const u32 first = threadIdx.x / WARP * 16, g = threadIdx.x % WARP / 4;
    Lane<G> own = {g, threadIdx.x % 4, 0};
    // k is at most 2^18.
    constexpr u32 MORE = (Format::RUNS ? 13 : 10) - G::HELD;
    Partials<G::OUTPUTS, G::HELD, MORE> partials;
    float more[MORE][G::OUTPUTS];
    u32 total = 1;
    while (total < blocks) total *= 2;
    float v[G::OUTPUTS];
    fetch(0);
#pragma unroll 1
    for (u32 step = 0; step < steps; step++) {
        // The step is there, and nobody reads the one before.
        copies_wait<0>();
        __syncthreads();
        fetch(step + 1);
        if (f.minima) {
            sum_sixteens(rooms, step);
            __syncthreads();
        }
        own.x = rooms.x_at(step) + g * CHUNK;
        const u32 skew = u32(reinterpret_cast<size_t>(w)) + step * f.bytes;
        u32 raw[2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 row = first + g + 8 * k;
            raw[k] = rooms.raw_at(step) + row * f.pitch + ((skew + row * task.row_bytes) & 15);
        }
        if constexpr (Format::RUNS) {
            Format::values(task.format, raw, own, rooms, step, blocks - 8 * step, v,
                           [&](u32 run) { partials.push(v, 8 * step + run, total, more); });
        } else {
            Format::values(task.format, raw, own, rooms, step, v);
            partials.push(v, step, total, more);
        }
    }
    // Partials that do not exist are +0.
#pragma unroll 1
    for (u32 index = blocks; index < total; index++) {
#pragma unroll
        for (u32 i = 0; i < G::OUTPUTS; i++) v[i] = 0.0f;
        partials.push(v, index, total, more);
    }
    // The last partial has made the sums whole.
#pragma unroll
    for (u32 i = 0; i < G::OUTPUTS; i++) {
        const u32 row = first + row_of(g, i), column = column_of(own.t, i);
        if (row < rows && column < columns.count) {
            task.y[size_t(shared_at<u32>(rooms.column + column * 4)) * task.stride + place.first + row] = v[i];
        }
    }
}
