// kernels/rows/site_rows.cu against kernels/glm/site.cu row by row, bits.
// unit: glm/site.cu
// unit: rows/site_rows.cu
// unit: rows/experts.cu
#include "site.unit"
#include "site_rows.unit"
#include "experts.unit"
#include "emu_test.h"
#include <algorithm>
#include <string>
using namespace test;
static u32 power(u32 b) { u32 w = 1; while (w < b) w *= 2; return w; }
static void plain(std::vector<float>& v) { for (float& x : v) if (x != x) x = __uint_as_float(0x7fc00000u); }

static void run(u32 n, u32 hidden, u32 rows, u32 mode, bool mix, bool fast, bool fast_decode, u32 k = 8, u32 rows_of_block = 16, u32 splits = 0, bool bad = false) {
    const u32 width = n * hidden, gates_n = n + n * n, sums = 2 * n + n * n, parts = (width + 255) / 256;
    Random r(n * 100000 + hidden * 10 + rows + mode * 7 + k);
    auto streams = r.normals(size_t(rows) * width), y = r.normals(size_t(rows) * hidden), experts = r.normals(size_t(rows) * k * hidden);
    auto weights = r.uniforms(size_t(rows) * k, 0.0f, 1.0f), gates = r.uniforms(size_t(rows) * gates_n, 0.0f, 1.0f);
    auto matrix = r.normals(size_t(sums) * width, 0.02f), base = r.normals(sums), norm = r.normals(hidden);
    for (u32 i = 0; i < y.size(); i += 3) y[i] = -0.0f;
    for (u32 i = 0; i < streams.size(); i += 5) streams[i] = -0.0f;
    for (u32 i = 0; i < hidden / 2; i++) streams[i] = 1e-30f, y[i] = 1e-36f;  // squares that vanish
    if (bad) streams[size_t(rows - 1) * width + 3] = __uint_as_float(0x7f800000u), y[5] = __uint_as_float(0x7fc00000u);
    std::vector<float> want_streams(streams.size()), want_x(size_t(rows) * hidden), want_gates = gates;
    std::vector<u32> want_faults(rows), faults(rows);
    for (u32 t = 0; t < rows; t++) {
        std::vector<float> residual(&streams[size_t(t) * width], &streams[size_t(t) * width] + width), gates_out(gates_n), partials(size_t(sums + 1) * parts);
        if (mode == site_rows::EMBED) for (u32 s = 0; s < n; s++) std::copy_n(&y[size_t(t) * hidden], hidden, &residual[s * hidden]);
        u32 ended[64] = {}, fault = 0;
        site::Site p{};
        p.residual = residual.data(), p.next = &want_streams[size_t(t) * width], p.y = &y[size_t(t) * hidden], p.experts = &experts[size_t(t) * k * hidden];
        p.weights = &weights[size_t(t) * k], p.gates = &gates[size_t(t) * gates_n], p.gates_out = gates_out.data(), p.mix = mix ? matrix.data() : nullptr;
        p.base = base.data(), p.norm = norm.data(), p.x = &want_x[size_t(t) * hidden], p.partials = partials.data(), p.ended = ended, p.fault = &fault;
        p.mode = mode == site_rows::EMBED ? site::KEEP : mode, p.k = k, p.hidden = hidden, p.streams = n, p.sinkhorn = 20, p.code = 3;
        p.scale[0] = 0.9f, p.scale[1] = 0.6f, p.scale[2] = 1.7f, p.rms_eps = 1e-5f, p.hc_eps = 1e-6f;
        const u32 of = mix ? sums : 0, groups = mix ? (of + 1 + 3) / 4 : 1;
        if (fast_decode) {
            launch(site::site4, dim3(hidden / 256, groups), 544, 112 + 4096 * 4 + 64, p);
        } else {
            const u32 blocks = std::min(parts, 16u), values = (n + n * n + 3) / 4 * 16 + (parts + blocks - 1) / blocks * 1024;
            const u32 sum_words = (of + 1) * power(parts) + n + n * n, last = 4 * (hidden + power((hidden + 255) / 256) + sum_words);
            launch(site::site, dim3(blocks, groups), 512, std::max(values, last), p);
        }
        want_faults[t] = fault;
        if (mix) std::copy(gates_out.begin(), gates_out.end(), &want_gates[size_t(t) * gates_n]);
    }
    std::vector<float> x(size_t(rows) * hidden, 77.0f);
    site_rows::SiteRows p{};
    p.streams = streams.data(), p.y = y.data(), p.gates = gates.data();
    p.mix = mix ? matrix.data() : nullptr, p.base = base.data(), p.norm = norm.data(), p.x = x.data(), p.faults = faults.data();
    p.mode = mode == 2 ? 1 : mode, p.hidden = hidden, p.n = n, p.sinkhorn = 20, p.code = 3, p.rows = rows, p.rows_of_block = rows_of_block;
    p.scale[0] = 0.9f, p.scale[1] = 0.6f, p.scale[2] = 1.7f, p.rms_eps = 1e-5f, p.hc_eps = 1e-6f;
    if (mode == 2) launch(experts::rows_combine, dim3((hidden + 1023) / 1024, rows), 256, 0, y.data(), (const float*)experts.data(), (const float*)weights.data(), hidden, k);
    if (fast) {
        if (!splits) splits = hidden / 256;
        launch(site_rows::site_rows4_streams, dim3(splits, (rows + rows_of_block - 1) / rows_of_block), 256, rows_of_block * (4096 + 512 + 80), p);
        if (mix) launch(site_rows::site_rows4_gates, (rows + 3) / 4, 128, 0, p);
        launch(site_rows::site_rows4_norm, rows, hidden / 8, hidden / 256 * 4, p);
    } else {
        launch(site_rows::site_rows, rows, 256, (gates_n + (mix ? sums : 0) + 1 + power((hidden + 255) / 256)) * 4, p);
    }
    const char* modes[] = {"keep", "write", "combine", "embed"};
    const std::string name = std::string(fast ? "fast " : "any ") + std::to_string(n) + " x " + std::to_string(hidden) + " rows " + std::to_string(rows) + " " + modes[mode] +
                             (mix ? "" : " head") + " k " + std::to_string(k) + " block " + std::to_string(rows_of_block) + "/" + std::to_string(splits) + (bad ? " bad" : "");
    plain(want_streams), plain(streams), plain(want_x), plain(x), plain(want_gates), plain(gates);
    same((name + " streams").c_str(), streams, want_streams);
    same((name + " gates").c_str(), gates, want_gates);
    same((name + " x").c_str(), x, want_x);
    same((name + " faults").c_str(), faults, want_faults);
}

int main() {
    for (u32 mode = 0; mode < 4; mode++) {
        for (u32 rows : {1u, 2u, 5u, 19u}) {
            for (bool mix : {true, false}) {
                run(4, 512, rows, mode, mix, true, true);
                run(4, 512, rows, mode, mix, true, true, 3, 8, 1);
                run(4, 768, rows, mode, mix, true, true, 11, 16, 2);
                run(2, 64, rows, mode, mix, false, false, 2);
            }
        }
        run(3, 48, 3, mode, true, false, false, 4);
        run(1, 40, 2, mode, true, false, false, 4);
        run(8, 72, 2, mode, true, false, false, 4);
        run(6, 300, 2, mode, true, false, false, 1);
        run(4, 512, 3, mode, true, false, false, 4);
        run(4, 256, 3, mode, true, true, true);
        run(4, 1024, 3, mode, true, true, false);
        run(4, 512, 3, mode, true, true, true, 8, 16, 0, true);
        run(3, 48, 3, mode, true, false, false, 4, 16, 0, true);
        if (mode == 2) run(4, 4096, 6, mode, true, true, true);
        if (mode == 1) run(4, 4096, 33, mode, true, true, true, 8, 16, 4);
        if (mode == 1) run(4, 2304, 4, mode, true, true, true, 8, 16, 4);
    }
    return end();
}
