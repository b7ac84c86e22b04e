// kernels/glm/router.cu against plain C++ in dot order.
// unit: glm/router.cu
// unit: glm/router.cu --arch 700 --ns router70
#include "router.unit"
#include "router70.unit"
#include "emu_test.h"
#include <algorithm>
using namespace test;

// Softmax over rows and Sinkhorn's passes, in the orders of glm/site.cu.
void comb(float* c) {
    for (u32 i = 0; i < 16; i += 4) {
        const float largest = std::max(std::max(c[i], c[i + 1]), std::max(c[i + 2], c[i + 3]));
        float sum = 0.0f;
        for (u32 m = 0; m < 4; m++) c[i + m] = canon_exp(c[i + m] - largest);
        for (u32 m = 0; m < 4; m++) sum = sum + c[i + m];
        for (u32 m = 0; m < 4; m++) c[i + m] = c[i + m] / sum + 1e-6f;
    }
    for (u32 pass = 0; pass < 39; pass++) {
        const u32 step = pass % 2 == 0 ? 4 : 1;
        for (u32 line = 0; line < 4; line++) {
            float* v = c + (pass % 2 == 0 ? line : 4 * line);
            float sum = 0.0f;
            for (u32 m = 0; m < 4; m++) sum = sum + v[m * step];
            sum = sum + 1e-6f;
            for (u32 m = 0; m < 4; m++) v[m * step] = v[m * step] / sum;
        }
    }
}

template <typename P, typename K>
void one(const char* name, K kernel, u32 experts, u32 width, u32 k, u32 blocks, u64 seed) {
    Random r(seed);
    std::vector<float> w = r.normals(size_t(experts) * width, 0.05f), x = r.normals(width), bias = r.normals(experts, 0.1f);
    // Every fifth expert is the one before again: equal scores.
    for (u32 e = 5; e < experts; e += 5) {
        std::copy_n(&w[size_t(e - 1) * width], width, &w[size_t(e) * width]);
        bias[e] = bias[e - 1];
    }
    std::vector<float> logits(experts, -1), weights(k, -1), want_logits(experts), want_weights(k);
    std::vector<emu::u64> table(experts), slots(k), want_slots(k);
    std::vector<u32> ids(k), uses(experts, 7), want_ids(k), want_uses(experts, 7);
    for (u32 e = 0; e < experts; e++) table[e] = 0x1000 * (e + 1) + e % 3;
    u32 ended = 0;
    // Comb of logits and their matrix, every other time.
    float gates_values[20], want_gates[20], *gates = seed % 2 ? gates_values : nullptr;
    for (float& gate : gates_values) gate = r.normal(2.0f);
    std::copy_n(gates_values, 20, want_gates);
    if (gates) comb(want_gates + 4);
    P p = {w.data(), x.data(), logits.data(), bias.data(), (const u64*)table.data(), ids.data(), weights.data(), (u64*)slots.data(),
           uses.data(), &ended, gates, experts, width, k, 2.5f, 20, 1e-6f};
    const u32 parts = (width + 255) / 256;
    u32 stride = 1;
    while (stride < parts) stride *= 2;
    const u32 rows = (experts + blocks - 1) / blocks;
    const size_t shared = std::max(rows * stride * 4, (experts + 31) / 32 * 256 + k * 4);
    launch(kernel, blocks + (gates ? 1 : 0), 512, shared, p);
    std::vector<float> score(experts), weight(experts);
    for (u32 e = 0; e < experts; e++) {
        want_logits[e] = dot(&w[size_t(e) * width], x.data(), width);
        weight[e] = sigmoid(want_logits[e]);
        score[e] = weight[e] + bias[e];
    }
    std::vector<u32> by(experts);
    for (u32 e = 0; e < experts; e++) by[e] = e;
    std::stable_sort(by.begin(), by.end(), [&](u32 a, u32 b) { return score[a] > score[b]; });
    float sum = 0.0f;
    for (u32 i = 0; i < k; i++) {
        want_ids[i] = by[i];
        want_slots[i] = table[by[i]] & ~15ull;
        want_uses[by[i]]++;
        sum = sum + weight[by[i]];
    }
    for (u32 i = 0; i < k; i++) want_weights[i] = weight[by[i]] / (sum + 1e-20f) * 2.5f;
    printf("%s: %u experts, %u wide, %u blocks\n", name, experts, width, blocks);
    same("logits", logits, want_logits);
    same("ids", ids, want_ids);
    same("weights", weights, want_weights);
    same("slots", slots, want_slots);
    same("uses", uses, want_uses);
    same("gates", gates_values, want_gates, 20);
    check("ended is 0 again", ended == 0);
}

// Several rows at once against each alone.
void together(u32 experts, u32 width, u32 k, u32 blocks, u32 rows, u64 seed) {
    Random r(seed);
    std::vector<float> w = r.normals(size_t(experts) * width, 0.05f), x = r.normals(size_t(rows) * width), bias = r.normals(experts, 0.1f);
    std::vector<emu::u64> table(experts);
    for (u32 e = 0; e < experts; e++) table[e] = 0x1000 * (e + 1) + e % 3;
    struct Out {
        std::vector<float> logits, weights, gates;
        std::vector<emu::u64> slots;
        std::vector<u32> ids, uses, ended;
    };
    const std::vector<float> gates = r.normals(20 * rows, 2.0f);
    Out got, want;
    for (Out* o : {&got, &want}) {
        *o = {std::vector<float>(experts * rows, -1), std::vector<float>(k * rows, -1), gates, std::vector<emu::u64>(k * rows),
              std::vector<u32>(k * rows), std::vector<u32>(experts, 3), std::vector<u32>(rows, 0)};
    }
    auto of = [&](Out& o, u32 row, u32 n) {
        return router::Router{w.data(), &x[size_t(row) * width], &o.logits[row * experts], bias.data(), (const router::u64*)table.data(),
                              &o.ids[row * k], &o.weights[row * k], (router::u64*)&o.slots[row * k], o.uses.data(), &o.ended[row],
                              &o.gates[20 * row], experts, width, k, 2.5f, 20, 1e-6f, n};
    };
    const u32 parts = (width + 255) / 256;
    u32 stride = 1;
    while (stride < parts) stride *= 2;
    const u32 sums = (experts + blocks - 1) / blocks * stride * 4, choice = (experts + 31) / 32 * 256 + k * 4;
    for (u32 row = 0; row < rows; row++) launch(router::router, blocks + 1, 512, std::max(sums, choice), of(want, row, 1));
    launch(router::router_logits, blocks, 512, sums * rows, of(got, 0, rows));
    launch(router::router_choose, {2, 1, rows}, 512, choice, of(got, 0, rows));
    printf("%u rows: %u experts, %u wide, %u blocks\n", rows, experts, width, blocks);
    same("logits", got.logits, want.logits);
    same("ids", got.ids, want.ids);
    same("weights", got.weights, want.weights);
    same("slots", got.slots, want.slots);
    same("uses", got.uses, want.uses);
    same("gates", got.gates, want.gates);
}

int main() {
    together(288, 4096, 8, 132, 8, 21);
    together(33, 700, 5, 7, 3, 22);
    together(7, 8500, 7, 1, 2, 23);
    together(600, 300, 8, 11, 4, 24);
    one<router::Router>("sm_90", router::router, 256, 2048, 8, 64, 1);
    one<router::Router>("sm_90", router::router, 288, 4096, 8, 132, 4);
    one<router::Router>("sm_90", router::router, 33, 700, 5, 7, 2);
    one<router::Router>("sm_90", router::router, 512, 256, 12, 9, 5);
    one<router::Router>("sm_90", router::router, 40, 5000, 32, 2, 6);
    one<router::Router>("sm_90", router::router, 7, 8500, 7, 1, 7);
    one<router::Router>("sm_90", router::router, 16, 512, 1, 16, 8);
    one<router::Router>("sm_90", router::router, 600, 300, 8, 11, 9);
    one<router::Router>("sm_90", router::router, 100, 300, 40, 11, 10);
    one<router70::Router>("sm_70", router70::router, 100, 1111, 6, 12, 3);
    return test::end();
}
