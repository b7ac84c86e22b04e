// unit: rows/product_float.cu
// unit: rows/experts.cu
// unit: quant/matvec_f32.cu
// unit: quant/matvec_f16.cu
// unit: quant/matvec_bf16.cu
// unit: glm/router.cu
#include "product_float.unit"
#include "experts.unit"
#include "matvec_f32.unit"
#include "matvec_f16.unit"
#include "matvec_bf16.unit"
#include "router.unit"
#include "emu_test.h"
using namespace test;
inline u32 up(u32 a, u32 b) { return (a + b - 1) / b * b; }
template <typename DT, typename K> void one(const char* name, u32 format, K decode, u32 rows, u32 k, u32 columns, u32 parts) {
    Random r(rows + k); u32 size = format == 0 ? 4 : 2, all = rows * parts;
    std::vector<u8> w(size_t(all) * k * size + 64);
    for (size_t i = 0; i < size_t(all) * k; i++) { float v = r.normal(); if (format == 0) memcpy(&w[4 * i], &v, 4); else { u16 h = format == 1 ? u16((r.word() & 0x83ff) | 0x3000) : u16(__float_as_uint(v) >> 16); memcpy(&w[2 * i], &h, 2); } }
    u32 kk = up(k, 4), stride = k * parts + 8;
    std::vector<float> x = r.normals(size_t(columns) * stride), want(size_t(columns) * all), got(want.size(), 3.f);
    for (u32 c = 0; c < columns; c++) for (u32 p = 0; p < parts; p++) {
        DT tasks; memset(&tasks, 0, sizeof tasks); auto& t = tasks.task[0];
        std::vector<float> xa(kk + 8); float* xp = (float*)((size_t(xa.data()) + 15) / 16 * 16); memcpy(xp, &x[size_t(c) * stride + p * k], 4 * k);
        t.w = w.data() + size_t(p) * rows * k * size; t.x = xp; t.y = &want[size_t(c) * all + p * rows]; t.rows = rows; t.k = k; t.row_bytes = k * size;
        tasks.n = 1; tasks.rows_of_block[0] = rows; tasks.first_block[1] = 1; u32 fault;
        launch(decode, 1, 128, kk * 4, tasks, (const u32*)nullptr, (const u32*)nullptr, &fault);
    }
    product_float::RowsTasks tasks; memset(&tasks, 0, sizeof tasks); auto& t = tasks.task[0];
    t.w = w.data(); t.q = (u8*)x.data(); t.y = got.data(); t.rows = all; t.k = k; t.row_bytes = k * size; t.format = format; t.part_rows = rows; t.parts = parts;
    t.pitch = stride * 4; t.stride = all; t.share = 1; tasks.n = 1; tasks.columns = columns; tasks.first_block[1] = (rows + 31) / 32 * parts;
    launch(product_float::rows_float, {tasks.first_block[1], (columns + 31) / 32, 1}, 256, 65536, tasks);
    same(name, got.data(), want.data(), want.size());
}
int main() {
    one<matvec_f32::Tasks>("f32", 0, matvec_f32::matvec_f32, 50, 700, 40, 1);
    one<matvec_f32::Tasks>("f32", 0, matvec_f32::matvec_f32, 9, 32, 3, 3);
    one<matvec_f32::Tasks>("f32", 0, matvec_f32::matvec_f32, 5, 61, 3, 1);
    one<matvec_f32::Tasks>("f32", 0, matvec_f32::matvec_f32, 33, 4096, 33, 1);
    one<matvec_f32::Tasks>("f32", 0, matvec_f32::matvec_f32, 40, 1280, 70, 1);
    one<matvec_f16::Tasks>("f16", 1, matvec_f16::matvec_f16, 50, 768, 40, 1);
    one<matvec_bf16::Tasks>("bf16", 2, matvec_bf16::matvec_bf16, 50, 300, 40, 2);
    // routes
    Random r(5); u32 n = 300, E = 37, k = 5, width = 64;
    std::vector<float> w = r.normals(E * width, 0.2f), x = r.normals(n * width), bias = r.normals(E, 0.1f), logits(n * E), wl(E), weights(n * k), ww(n * k);
    std::vector<u32> ids(n * k), wi(n * k), uses(E), wu(E); std::vector<emu::u64> table(E), slots(k); u32 ended = 0;
    for (u32 i = 0; i < n; i++) {
        router::Router p = {w.data(), &x[i * width], &logits[i * E], bias.data(), (const u64*)table.data(), &wi[i * k], &ww[i * k], (u64*)slots.data(), wu.data(), &ended, nullptr, E, width, k, 2.5f};
        launch(router::router, 5, 512, 4096, p);
    }
    experts::Routes p = {logits.data(), bias.data(), ids.data(), weights.data(), uses.data(), E, k, 2.5f};
    launch(experts::rows_route, n, 128, (E + 1) / 2 * 16 + k * 4, p);
    same("ids", ids, wi); same("weights", weights, ww); same("uses", uses, wu);
    std::vector<u32> order(n * k), begin(E + 1), wo, wb, tiles(3 * (n * k / 64 + E)), wt; u32 nt = 0;
    launch(experts::rows_order, E, 1024, 32 * 8, (const u32*)ids.data(), n * k, order.data(), begin.data(), E);
    launch(experts::rows_tiles, 1, 1024, 32 * 4, (const u32*)begin.data(), E, 64u, tiles.data(), &nt);
    for (u32 e = 0; e < E; e++) { wb.push_back(wo.size()); u32 f = wo.size(); for (u32 i = 0; i < n * k; i++) if (ids[i] == e) wo.push_back(i); for (u32 a = f; a < wo.size(); a += 64) { wt.push_back(e); wt.push_back(a); wt.push_back(std::min<u32>(64, wo.size() - a)); } }
    wb.push_back(n * k);
    same("order", order, wo); same("begin", begin, wb); check("n", nt * 3 == wt.size()); same("tiles", tiles.data(), wt.data(), wt.size());
    return test::end();
}
