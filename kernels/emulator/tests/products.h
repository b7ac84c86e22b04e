#pragma once
using namespace test;
#ifndef ROOM
#define ROOM 227  // KB of shared memory that the chip of --arch has; -DROOM=99 for 860, 64 for 700 and 750
#endif
struct Format { const char* name; u32 code, bytes, len; std::vector<int> ds; u32 grid, signs, table_words, tiles; };
inline u32 up(u32 a, u32 b) { return (a + b - 1) / b * b; }
inline void patch(Format& f, u8* block, Random& r) {
    for (int d : f.ds) { u16 h = u16((r.word() & 0x83ff) | 0x2c00 | (r.word() & 0x0c00)); if (r.below(20) == 0) h = r.word() & 0x83ff; memcpy(block + d, &h, 2); }
    if (!strcmp(f.name, "iq1_m")) block[55] = u8((block[55] & 0x0f) | 0x20);
    if (!strcmp(f.name, "mxfp4")) block[0] = u8(100 + r.below(40));
}
// `few`: of a unit for few vectors; `book_few`: with a codebook. Null where a format has none.
template <typename DT, typename T1, typename RT, typename FT, typename K1, typename K2, typename K3>
void run(Format f, K1 decode, K2 rows_big, K3 rows_small, K3 rows_double, void (*few)(FT), void (*book_few)(FT), void (*few_experts)(FT)) {
    Random r(f.code * 77 + f.len);
    std::vector<u32> book(f.grid + f.signs);
    bool iq3 = !strncmp(f.name, "iq3", 3);
    for (u32 i = 0; i < f.grid; i++) {
        u32 w = 0;
        if (iq3) for (int j = 0; j < 4; j++) w |= (1 + r.below(62)) << (8 * j);
        else for (int j = 0; j < 8; j++) w |= r.below(3) << (4 * j);
        book[i] = w;
    }
    for (u32 i = 0; i < f.signs && !strcmp(f.name, "iq2_s"); i++) for (u32 j = 0; j < 8; j++) book[f.grid + i] |= (i >> j & 1) << (4 * j + 2);
    for (u32 i = 0; i < f.signs && strcmp(f.name, "iq2_s"); i++) { if (iq3) book[f.grid + i] = r.word() & 0xc0c0c0c0u; else book[f.grid + i] = r.word() & 0x44444444u; }
    bool wide = f.len == 256;
    struct Case { u32 rows, k, columns, parts, share; bool experts; };
    std::vector<Case> cases = {{150, 512, 70, 1, 1, false}, {60, 768, 9, 3, 1, false}, {40, 2304, 33, 1, 2, true}, {140, 1280, 150, 1, 1, false}, {70, 4352, 3, 1, 1, false}, {33, 256, 8, 1, 1, false}, {150, 512, 7, 1, 1, false}, {60, 768, 8, 3, 1, false}, {140, 1280, 5, 1, 1, false}};
    if (!wide) { cases.push_back({33, 32, 5, 1, 1, false}); cases.push_back({20, 96, 17, 1, 1, false}); cases.push_back({20, 352, 17, 1, 1, false}); cases.push_back({40, 352, 6, 2, 1, false}); }
    for (auto& c : cases) {
        u32 experts = c.experts ? 3 : 1;
        u32 row_bytes = c.k / f.len * f.bytes, all = c.rows * c.parts;
        size_t each = up(u32(size_t(all) * row_bytes) + 256, 256);
        std::vector<u8> weights_raw = r.bytes(each * experts + 512);
        u8* weights = (u8*)((size_t(weights_raw.data()) + 255) / 256 * 256);
        for (u32 e = 0; e < experts; e++) for (u32 i = 0; i < all * c.k / f.len; i++) patch(f, weights + e * each + size_t(i) * f.bytes, r);
        u32 vecs = c.columns * c.parts;
        std::vector<float> x = r.normals(size_t(vecs) * c.k);
        for (u32 i = 0; i < c.k && vecs > 3; i++) x[2 * c.k + i] = i < 100 ? 0.0f : x[2 * c.k + i] ;
        // quantised
        u32 pitch = up(c.k, 256), scales = up((c.k + f.len - 1) / f.len, 8);
        std::vector<u8> q(size_t(vecs) * pitch + 64, 0x55);
        u8* qa = (u8*)((size_t(q.data()) + 63) / 64 * 64);
        std::vector<float> sc(size_t(vecs) * scales, 1e30f);
        std::vector<u32> faults(c.columns, 0);
        quantize::Quantize Q = {x.data(), nullptr, qa, sc.data(), faults.data(), c.parts * c.k, c.columns, c.parts, c.k, pitch, scales, 1, !wide, 0.0f};
        if (wide) {
            launch(quantize::rows_quantize, {(vecs + 7) / 8, (c.k + 255) / 256, 1}, 256, 0, Q);
        } else {
            // The second of both roundings.
            std::vector<u8> other(q.size());
            std::vector<float> of_other(sc.size());
            Q.q = other.data(), Q.scale = of_other.data(), Q.narrow = 0, Q.q2 = qa, Q.scale2 = sc.data();
            launch(quantize::rows_quantize, {(vecs + 7) / 8, (c.k + 255) / 256, 2}, 256, 0, Q);
        }
        // reference: each (column, part)
        u32 outs = c.experts ? c.columns * c.share : c.columns;
        std::vector<u32> expert(outs, 0);
        for (auto& e : expert) e = r.below(experts);
        std::vector<float> want(size_t(outs) * all, 0.5f), got(size_t(outs) * all, 0.25f), got2(size_t(outs) * all, 0.25f);
        for (u32 o = 0; o < outs; o++) for (u32 p = 0; p < c.parts; p++) {
            DT tasks; memset(&tasks, 0, sizeof tasks);
            T1& t = tasks.task[0];
            t.w = weights + expert[o] * each + size_t(p) * c.rows * row_bytes; t.slot = nullptr;
            std::vector<float> xa(c.k + 8); float* xp = (float*)((size_t(xa.data()) + 15) / 16 * 16);
            memcpy(xp, &x[size_t(o / c.share * c.parts + p) * c.k], c.k * 4);
            t.x = xp; t.y = &want[size_t(o) * all + p * c.rows]; t.rows = c.rows; t.k = c.k; t.row_bytes = row_bytes; t.kind = decltype(t.kind)(0);
            tasks.n = 1; tasks.rows_of_block[0] = c.rows; tasks.first_block[1] = 1;
            u32 units = (c.k + 127) / 128, segments = (units + 31) / 32, threads = 128;
            u32 partials = segments > 1 ? c.rows * segments * 4 : 0, stage = f.tiles * (4096 / f.len * f.bytes + 32);
            const u32 together = strcmp(f.name, "iq2_xxs") ? 0 : 8;
            u32 smem = up(f.table_words * 4 + units * 144 + up((c.k + 31) / 32, 4) * 4 + partials, 16) + threads / 32 * (2 * (8 + stage) + together * 64);
            u32 fault = 0;
            launch(decode, 1, threads, smem, tasks, (const u32*)book.data(), (const u32*)book.data(), &fault);
        }
        RT tasks; memset(&tasks, 0, sizeof tasks);
        auto& t = tasks.task[0];
        std::vector<emu::u64> table;
        for (u32 e = 0; e < experts; e++) table.push_back(size_t(weights) + e * each - 256 + 1 + 0);
        t.w = c.experts ? nullptr : weights; t.table = c.experts ? (decltype(t.table))table.data() : nullptr; t.offset = 256; t.q = qa; t.scale = sc.data(); t.book = book.data();
        t.rows = all; t.k = c.k; t.row_bytes = row_bytes; t.format = f.code; t.part_rows = c.rows; t.parts = c.parts; t.pitch = pitch; t.scales = scales; t.stride = all; t.share = c.share;
        tasks.n = 1; tasks.columns = outs;
        // The third variant has the formats of dense matrices only.
        const bool dense = f.code == 0 || f.code == 6 || f.code == 7;
        // The sixth and the seventh are the fourth with other warps a row and more tiles, and need not wait for their predecessor; the
        // seventh rounds the vectors for itself.
        for (int turn = 0; turn < 7; turn++) {
            const int small = turn < 5 ? turn : 3;
            if (turn == 4) continue;
            u32 padded = 1;
            while (padded < (c.k + 255) / 256) padded *= 2;
            const u32 warps = ROOM < 163 ? 4 : turn == 3 ? (c.experts ? 8 : 16) : turn == 5 ? 8 : 3, split = turn == 3 ? 1u : std::min(turn == 5 ? 4u : 1u, padded);
            const bool is_few = turn == 3 || turn > 4;
            tasks.tall = turn == 3 ? 1 : turn - 2, tasks.apart = turn > 4 && !c.experts, tasks.split = split, tasks.stages = turn == 5 ? 3 : 2, tasks.deep = turn == 3 || 512 / f.len * f.bytes > 480 ? 1 : 2;
            tasks.faults = faults.data(), t.x = turn == 6 && !c.experts ? x.data() : nullptr, t.x_stride = c.parts * c.k;
            if (small == 2 && !(wide && dense && ROOM > 99)) continue;
            if (small != 1 && ROOM <= 64) continue;
            if (is_few && ((!few && !book_few) || (!c.experts && c.columns > 8))) continue;
            auto& out = small ? got2 : got;
            for (auto& x : out) x = 0.125f;
            t.y = out.data();
            u32 TM = small == 1 ? 64 : 128, TN = small > 2 ? 8 : small == 2 ? 128 : small == 1 || !wide ? 32 : 64;
            const u32 height = small == 3 ? 16 * tasks.tall * (warps / split) : TM;
            u32 blocks = (c.rows + height - 1) / height * c.parts;
            tasks.first_block[1] = blocks;
            std::vector<u32> order, tl; u32 nt = 0;
            if (c.experts) {
                for (u32 e = 0; e < experts; e++) {
                    u32 first = order.size();
                    for (u32 o = 0; o < outs; o++) if (expert[o] == e) order.push_back(o);
                    for (u32 a = first; a < order.size(); a += TN) { tl.push_back(e); tl.push_back(a); tl.push_back(std::min<u32>(TN, order.size() - a)); nt++; }
                }
                tasks.order = order.data(); tasks.tiles = tl.data(); tasks.n_tiles = &nt;
            }
            u32 copies = f.grid == 0 ? 0 : small == 1 ? (f.grid > 512 ? 2 : 4) : f.table_words / (f.grid + f.signs) / (f.grid < 1024 ? 2 : 1);
            const bool minima = wide ? f.code == 4 || f.code == 6 || f.code == 7 : f.code == 2 || f.code == 4;
            u32 by = 256 / f.len * f.bytes, rp = ((by + 30) / 16 | 1) * 16;
            u32 smem = up((f.grid + (strcmp(f.name, "iq2_s") ? f.signs : 0)) * copies * 4, 16) + 2 * (TM * rp + TN * (256 + (wide ? 4 : 32))) + TN * (minima ? 40 : 8);
            if (is_few) {
                const u32 steps = (c.k + 255) / 256, words = (f.grid + (strcmp(f.name, "iq2_s") ? f.signs : 0)) * copies, rp = ((tasks.deep * by + 30) / 16 | 1) * 16;
                smem = up(words * 4, 16) + steps * (minima ? 2304 : 2048) + 8 * (up(steps * (wide ? 1 : 8), 4) * 4 + 16) + 32 + warps * ((split > 1 ? 512 : 0) + tasks.stages * 16 * rp);
            }
            if (c.columns == 70 || c.columns == 7) printf("%s smem %u %s\n", f.name, smem, small == 0 ? "big" : small == 1 ? "small" : small == 2 ? "double" : "few");
            u32 ny = is_few && c.experts ? 1 : c.experts ? nt + 1 : (outs + TN - 1) / TN;
            if (is_few && c.experts) blocks = 5;
            if (smem > ROOM << 10) continue;
            if (small == 1) launch(rows_small, {blocks, ny, 1}, 128, smem, tasks); else if (is_few) { FT same_tasks; static_assert(sizeof same_tasks == sizeof tasks); memcpy(&same_tasks, &tasks, sizeof tasks); launch(c.experts ? few_experts : few ? few : book_few, {blocks, ny, 1}, 32 * warps, smem, same_tasks); } else launch(small == 2 ? rows_double : rows_big, {blocks, ny, 1}, 256, smem, tasks);
            char name[100]; snprintf(name, sizeof name, "%s %u x %u, %u columns, %u parts %d", f.name, c.rows, c.k, c.columns, c.parts, turn);
            same(name, out.data(), want.data(), want.size());
        }
    }
}
