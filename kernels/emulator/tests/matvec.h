// What tests/matvec.cpp runs: weights of random bytes, their values by definition, and launches.
#pragma once
using namespace test;

enum Code { IQ2_XXS, IQ2_S, IQ3_XXS, Q6_K, Q8_0 };
struct Format {
    Code code;
    u32 bytes, len;
};

inline u32 up(u32 n, u32 to) { return (n + to - 1) / to * to; }
inline float half_from(const u8* at) {
    u16 bits;
    memcpy(&bits, at, 2);
    return emu::half_value(bits);
}

// Tables as the host gives them: random entries in the form that codebook.cuh says.
inline std::vector<u32> tables_of(Code code, Random& r) {
    const u32 grid = code == IQ2_S ? 1024 : code == IQ2_XXS || code == IQ3_XXS ? 256 : 0;
    const u32 signs = code == IQ2_S ? 256 : grid ? 128 : 0;
    std::vector<u32> all;
    for (u32 i = 0; i < grid; i++) {
        u32 word = 0;
        for (u32 j = 0; j < 8; j++) word |= r.below(3) << (4 * j);
        if (code == IQ3_XXS) word = r.below(63) | r.below(63) << 8 | r.below(63) << 16 | r.below(63) << 24;
        all.push_back(word);
    }
    for (u32 i = 0; i < signs; i++) {
        u32 bits = i, word = 0;
        if (signs == 128) bits |= u32(__builtin_popcount(i) & 1) << 7;
        for (u32 j = 0; j < 8; j++) {
            const u32 bit = bits >> j & 1;
            word |= code == IQ3_XXS ? bit << (j < 4 ? 8 * j + 7 : 8 * (j - 4) + 6) : bit << (4 * j + 2);
        }
        all.push_back(word);
    }
    return all;
}

// A block's 256 weights times their integer scales, and its factor; Q8_0's 32.
inline float weights_of_block(Code code, const u8* b, const std::vector<u32>& tables, int (&w)[256]) {
    const int magnitudes[4] = {8, 25, 43, 0};
    auto sign = [&](u32 grid, u32 index, u32 j) {
        const u32 word = tables[grid + index];
        return (code == IQ3_XXS ? word >> (j < 4 ? 8 * j + 7 : 8 * (j - 4) + 6) : word >> (4 * j + 2)) & 1 ? -1 : 1;
    };
    if (code == Q8_0) {
        for (u32 i = 0; i < 32; i++) w[i] = i8(b[2 + i]);
        return half_from(b);
    }
    for (u32 i = 0; i < 256; i++) {
        const u32 run = i / 32, eight = i / 8, j = i % 8;
        if (code == IQ2_XXS || code == IQ3_XXS) {
            u32 aux;
            memcpy(&aux, b + (code == IQ2_XXS ? 2 + 8 * run + 4 : 66 + 4 * run), 4);
            const int scale = int(aux >> 28) * 2 + 1;
            const u32 signs = aux >> (7 * (eight % 4)) & 127;
            const int m = code == IQ2_XXS ? magnitudes[tables[b[2 + 8 * run + eight % 4]] >> (4 * j) & 15]
                                          : int(tables[b[2 + i / 4]] >> (8 * (i % 4)) & 255);
            w[i] = scale * m * sign(256, signs, j);
        } else if (code == IQ2_S) {
            const u32 index = b[2 + eight] | (b[66 + run] >> (2 * (eight % 4)) & 3u) << 8;
            const int scale = (b[74 + run] >> (i % 32 / 16 * 4) & 15) * 2 + 1;
            w[i] = scale * magnitudes[tables[index] >> (4 * j) & 15] * sign(1024, b[34 + eight], j);
        } else {
            const u32 l = i % 32, part = i % 128 / 32, half = i / 128;
            const int low = b[half * 64 + part % 2 * 32 + l] >> (part / 2 * 4) & 15, high = b[128 + half * 32 + l] >> (2 * part) & 3;
            w[i] = i8(b[192 + i / 16]) * ((low | high << 4) - 32);
        }
    }
    return half_from(b + (code == Q6_K ? 208 : 0)) * (code == IQ2_XXS || code == IQ2_S ? 0.125f : code == IQ3_XXS ? 0.25f : 1.0f);
}

inline float row_by_definition(const Format& f, const u8* row, const std::vector<u32>& tables, const std::vector<i8>& q,
                               const std::vector<float>& scale) {
    std::vector<float> parts;
    for (u32 b = 0; b < q.size() / f.len; b++) {
        int w[256];
        const float d = weights_of_block(f.code, row + b * f.bytes, tables, w);
        i32 sum = 0;
        for (u32 i = 0; i < f.len; i++) sum += w[i] * q[b * f.len + i];
        parts.push_back((d * scale[b]) * float(sum));
    }
    return tree(parts);
}

// Shared memory by the formula of ring.cuh; `S` is a format's Shape.
template <typename S>
u32 shared_of(u32 k, u32 rows, u32 threads) {
    const u32 units = (k + 127) / 128, segments = (units + 31) / 32, joined = segments > 1 ? rows * segments * 4 : 0;
    return up(S::TABLES + units * 144 + up((k + 31) / 32, 4) * 4 + joined, 16) + threads / 32 * (2 * (8 + S::STAGE) + S::ROW_SUMS);
}

struct One {
    u32 format, rows, k, each, kind, x_rows;
    bool slot;
};

template <typename Tasks, typename A, typename B, typename Kernel>
void launch_of(const char* name, Kernel kernel, const Format (&formats)[2], const std::vector<One>& list, u32 threads, u32 seed) {
    using Task = std::remove_reference_t<decltype(Tasks().task[0])>;
    Random r(seed);
    const std::vector<u32> tables[2] = {tables_of(formats[0].code, r), tables_of(formats[1].code, r)};
    Tasks tasks = {};
    memset((void*)&tasks, 0, sizeof tasks);
    std::vector<std::vector<u8>> matrices(list.size());
    std::vector<std::vector<float>> vectors(list.size()), ups(list.size()), norms(list.size()), got(list.size()), want(list.size());
    std::vector<emu::u64> slots(list.size());
    u32 blocks = 0, smem = 0, fault = 0;
    for (size_t i = 0; i < list.size(); i++) {
        const One& one = list[i];
        const Format& f = formats[one.format];
        const u32 row_bytes = one.k / f.len * f.bytes;
        // Any multiple of 8; what a copy of sixteens reads before and behind it exists.
        matrices[i] = r.bytes(size_t(one.rows) * row_bytes + 96);
        u8* const w = (u8*)(up(u32(size_t(matrices[i].data()) & 63), 64) - (size_t(matrices[i].data()) & 63) + matrices[i].data()) + 8 * (i % 2);
        for (u32 b = 0; b < one.rows * one.k / f.len; b++) {
            const u16 half = u16((r.word() & 0x83ff) | 0x2c00 | (r.word() & 0x0c00));
            memcpy(w + size_t(b) * f.bytes + (f.code == Q6_K ? 208 : 0), &half, 2);
        }
        const u32 parts = one.x_rows ? one.rows / one.x_rows : 1;
        auto aligned = [&](std::vector<float>& v, size_t n, float scale) {
            v = r.normals(n + 4, scale);
            return (float*)((size_t(v.data()) + 15) / 16 * 16);
        };
        float* const x = aligned(vectors[i], size_t(parts) * one.k, 3.0f);
        float* const up = aligned(ups[i], one.k, 3.0f);
        float* const norm = aligned(norms[i], 128, 1.0f);
        if (one.k > 256) for (u32 c = 0; c < 256; c++) x[c] = 0.0f;  // a block without a scale
        got[i].assign(one.rows, 123.0f), want[i].assign(one.rows, 0.0f);
        Task& t = tasks.task[i];
        slots[i] = emu::u64(size_t(w)) - 40;
        t.w = one.slot ? nullptr : w, t.slot = one.slot ? &slots[i] : nullptr, t.offset = one.slot ? 40 : 0;
        t.x = x, t.x2 = up, t.x3 = norm, t.y = got[i].data(), t.rows = one.rows, t.k = one.k, t.row_bytes = row_bytes;
        t.kind = decltype(t.kind)(one.kind), t.format = one.format, t.limit = 2.5f, t.x_rows = one.x_rows;
        tasks.first_block[i] = blocks, tasks.rows_of_block[i] = one.each;
        blocks += (one.rows + one.each - 1) / one.each;
        smem = std::max(smem, one.format ? shared_of<B>(one.k, one.each, threads) : shared_of<A>(one.k, one.each, threads));
        for (u32 part = 0; part < parts; part++) {
            std::vector<float> input(x + part * one.k, x + (part + 1) * one.k);
            if (one.kind == 1) {
                for (u32 c = 0; c < one.k; c++) {
                    const float g = input[c] > t.limit ? t.limit : input[c];
                    float u = up[c] > t.limit ? t.limit : up[c];
                    u = u < -t.limit ? -t.limit : u;
                    input[c] = (g / (1.0f + canon_exp(-g))) * u;
                }
            } else if (one.kind == 2) {
                for (u32 h = 0; h < one.k; h += 128) {
                    const float factor = 1.0f / sqrtf(dot(&x[h], &x[h], 128) / 128.0f + 1e-5f);
                    for (u32 c = h; c < h + 128; c++) input[c] = ((x[c] * factor) * norm[c - h]) * up[c];
                }
            }
            std::vector<i8> q;
            std::vector<float> scale;
            quantize(input.data(), one.k, f.len, q, scale);
            const u32 from = part * one.x_rows, to = one.x_rows ? from + one.x_rows : one.rows;
            for (u32 row = from; row < to; row++) want[i][row] = row_by_definition(f, w + size_t(row) * row_bytes, tables[one.format], q, scale);
        }
    }
    tasks.n = list.size();
    for (size_t i = list.size(); i <= 20; i++) tasks.first_block[i] = blocks;
    launch(kernel, blocks, threads, smem, tasks, tables[0].data(), tables[1].data(), &fault);
    check("no fault", fault == 0);
    for (size_t i = 0; i < list.size(); i++) {
        char text[120];
        const One& one = list[i];
        snprintf(text, sizeof text, "%s, %u threads: task %zu, format %u, %u x %u, kind %u, %u rows a vector%s", name, threads, i, one.format, one.rows,
                 one.k, one.kind, one.x_rows, one.slot ? ", slot" : "");
        same(text, got[i].data(), want[i].data(), one.rows);
    }
}

template <typename Tasks, typename A, typename B, typename Kernel>
void run(const char* name, Kernel kernel, Format a, Format b) {
    const Format formats[2] = {a, b};
    // As experts come: gates and ups of several in slots, then the shared one; then downs.
    launch_of<Tasks, A, B>(name, kernel, formats, {{0, 77, 4096, 40, 0, 0, true}, {1, 19, 4096, 19, 0, 0, false}, {0, 9, 4096, 9, 0, 0, true}}, 256, 1);
    launch_of<Tasks, A, B>(name, kernel, formats, {{0, 203, 2048, 101, 1, 0, true}, {1, 60, 2048, 31, 1, 0, false}, {0, 1, 2048, 1, 1, 0, true}}, 256, 2);
    // Rows of several segments, of few blocks, and those that share parts of a vector.
    launch_of<Tasks, A, B>(name, kernel, formats, {{0, 37, 8192, 20, 2, 0, false}, {1, 13, 8448, 13, 0, 0, false}, {1, 7, 256, 7, 0, 0, false}}, 128, 3);
    launch_of<Tasks, A, B>(name, kernel, formats, {{0, 96, 256, 32, 0, 32, false}, {1, 48, 512, 8, 0, 16, false}, {0, 33, 768, 17, 0, 0, true}, {1, 5, 1280, 5, 1, 0, false}}, 128, 4);
}
