// kernels/glm/site.cu: site4, rows together, against site, row by row, the same inputs.
// unit: glm/site.cu
#include "site.unit"
#include "emu_test.h"
#include <algorithm>
using namespace test;

constexpr u32 EMBED = 3, CODE = 99;

struct Run {
    std::vector<float> next, gates_out, x, partials;
    std::vector<u32> ended, fault;
    Run(u32 rows, u32 width, u32 hidden, u32 parts)
        : next(size_t(rows) * width, -1), gates_out(rows * 20, -1), x(size_t(rows) * hidden, -1), partials(size_t(rows) * 25 * parts, -1),
          ended(rows), fault(rows) {}
};

// `bad`: a row whose input is not finite; another one has a fault already. `gate`: a mixing sum's base, for gates that are not usual.
void one(u32 mode, u32 k, u32 hidden, bool mixes, u32 rows, u64 seed, u32 bad = ~0u, float gate = 0.0f) {
    Random r(seed);
    const u32 n = 4, width = n * hidden, sums = mixes ? 24 : 0, groups = mixes ? 7 : 1, parts = width / 256;
    std::vector<float> residual = r.normals(size_t(rows) * width), y = r.normals(size_t(rows) * hidden),
                       experts = r.normals(size_t(rows) * k * hidden), weights = r.uniforms(rows * k, 0, 1), gates = r.uniforms(rows * 20, 0, 1),
                       mix = r.normals(size_t(24) * width, 0.02f), base = r.normals(24), norm = r.normals(hidden);
    base[9] += gate;
    if (bad < rows) y[size_t(bad) * hidden + hidden / 2] = __uint_as_float(0x7f800000u);
    Run fast(rows, width, hidden, parts), slow = fast;
    if (rows > 1) fast.fault[0] = slow.fault[0] = 7;
    auto params = [&](Run& o, u32 row, const float* streams, u32 how) {
        return site::Site{streams, &o.next[size_t(row) * width], &y[size_t(row) * hidden], experts.data() + size_t(row) * k * hidden,
                          weights.data() + row * k, &gates[row * 20], &o.gates_out[row * 20], mixes ? mix.data() : nullptr, base.data(), norm.data(),
                          &o.x[size_t(row) * hidden], &o.partials[size_t(row) * 25 * parts], &o.ended[row], &o.fault[row],
                          how, k, hidden, n, 20, CODE, {0.7f, 0.8f, 0.9f}, 1e-5f, 1e-6f, 0};
    };
    launch(site::site4, dim3(hidden / 256, groups, rows), 544, 16 + 16 * 4 + 16 * 4 + 4096 * 4, params(fast, 0, residual.data(), mode));
    for (u32 row = 0; row < rows; row++) {
        std::vector<float> embedded;
        for (u32 s = 0; s < n; s++) embedded.insert(embedded.end(), &y[size_t(row) * hidden], &y[size_t(row) * hidden] + hidden);
        const u32 blocks = std::min(parts, 64u);
        u32 padded_parts = 1, padded_hidden = 1;
        while (padded_parts < parts) padded_parts *= 2;
        while (padded_hidden < (hidden + 255) / 256) padded_hidden *= 2;
        const u32 values = (n + n * n + 3) / 4 * 16 + (parts + blocks - 1) / blocks * 1024;
        const u32 last = 4 * (hidden + padded_hidden + (sums + 1) * padded_parts + n + n * n);
        const bool embeds = mode == EMBED;
        launch(site::site, dim3(blocks, groups), 512, std::max(values, last),
               params(slow, row, embeds ? embedded.data() : &residual[size_t(row) * width], embeds ? 0 : mode));
    }
    printf("mode %u, %u experts, hidden %u, %s, %u rows\n", mode, k, hidden, mixes ? "mix" : "mean", rows);
    // Which NaN it is does not count.
    for (std::vector<float>* values : {&fast.next, &slow.next, &fast.gates_out, &slow.gates_out, &fast.x, &slow.x, &fast.partials, &slow.partials}) {
        for (float& value : *values) value = value != value ? __uint_as_float(0x7fc00000u) : value;
    }
    same("next", fast.next, slow.next);
    same("gates", fast.gates_out, slow.gates_out);
    same("x", fast.x, slow.x);
    same("partials", fast.partials.data(), slow.partials.data(), mixes ? slow.partials.size() : 0);
    same("faults", fast.fault, slow.fault);
    bool clean = true;
    for (u32 row = 0; row < rows; row++) clean = clean && fast.ended[row] == 0 && slow.fault[row] == (row == bad ? CODE : row == 0 && rows > 1 ? 7 : 0);
    check("ended, fault", clean);
}

int main() {
    one(0, 0, 256, true, 1, 1);
    one(1, 0, 768, true, 1, 2);
    one(2, 8, 1024, true, 1, 3);
    one(2, 11, 2048, true, 1, 4);
    one(2, 8, 4096, false, 1, 5);
    one(EMBED, 0, 512, true, 3, 6);
    one(1, 0, 1280, true, 2, 7);
    one(2, 8, 768, true, 5, 8, 3);
    one(2, 3, 256, false, 8, 9);
    one(1, 0, 256, true, 1, 10, 0);
    one(1, 0, 256, true, 1, 11, ~0u, 1e30f);
    one(1, 0, 512, true, 1, 12, ~0u, -1e30f);
    return test::end();
}
