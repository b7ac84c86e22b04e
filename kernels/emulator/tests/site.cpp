// kernels/glm/site.cu: site4 against site, the same inputs.
// unit: glm/site.cu
#include "site.unit"
#include "emu_test.h"
#include <algorithm>
using namespace test;

struct Run {
    std::vector<float> next, gates_out, x, partials;
    u32 ended = 0, fault = 0;
};

void one(u32 mode, u32 k, u32 hidden, bool mixes, u64 seed) {
    Random r(seed);
    const u32 n = 4, width = n * hidden, rows = mixes ? 24 : 0;
    std::vector<float> residual = r.normals(width), y = r.normals(hidden), experts = r.normals(size_t(k) * hidden),
                       weights = r.uniforms(k, 0, 1), gates = r.uniforms(20, 0, 1), mix = r.normals(size_t(24) * width, 0.02f),
                       base = r.normals(24), norm = r.normals(hidden);
    Run run[2];
    const u32 groups = mixes ? 7 : 1, parts = width / 256;
    for (int fast = 0; fast < 2; fast++) {
        Run& o = run[fast];
        o.next.assign(width, -1), o.gates_out.assign(20, -1), o.x.assign(hidden, -1), o.partials.assign(25 * parts, -1);
        site::Site p = {residual.data(), o.next.data(), y.data(), experts.data(), weights.data(), gates.data(), o.gates_out.data(),
                        mixes ? mix.data() : nullptr, base.data(), norm.data(), o.x.data(), o.partials.data(), &o.ended, &o.fault,
                        mode, k, hidden, n, 20, 99, {0.7f, 0.8f, 0.9f}, 1e-5f, 1e-6f};
        if (fast) {
            launch(site::site4, dim3(hidden / 256, groups), 544, 112 + 4096 * 4 + 16 * 4, p);
        } else {
            const u32 blocks = std::min(parts, 64u);
            u32 padded_parts = 1, padded_hidden = 1;
            while (padded_parts < parts) padded_parts *= 2;
            while (padded_hidden < (hidden + 255) / 256) padded_hidden *= 2;
            const u32 values = (n + n * n + 3) / 4 * 16 + (parts + blocks - 1) / blocks * 1024;
            const u32 last = 4 * (hidden + padded_hidden + (rows + 1) * padded_parts + n + n * n);
            launch(site::site, dim3(blocks, groups), 512, std::max(values, last), p);
        }
    }
    printf("mode %u, %u experts, hidden %u, %s\n", mode, k, hidden, mixes ? "mix" : "mean");
    same("next", run[1].next, run[0].next);
    same("gates", run[1].gates_out, run[0].gates_out);
    same("x", run[1].x, run[0].x);
    same("partials", run[1].partials.data(), run[0].partials.data(), mixes ? run[0].partials.size() : 0);
    check("ended, fault", run[0].ended == 0 && run[1].ended == 0 && run[0].fault == 0 && run[1].fault == 0);
}

int main() {
    one(0, 0, 256, true, 1);
    one(1, 0, 768, true, 2);
    one(2, 8, 1024, true, 3);
    one(2, 11, 2048, true, 4);
    one(2, 8, 4096, false, 5);
    return test::end();
}
