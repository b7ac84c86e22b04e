// kernels/rows/kda_rows.cu against kernels/glm/kda.cu row by row, bits.
// unit: glm/kda.cu
// unit: rows/kda_rows.cu
// unit: rows/kda_rows.cu --arch 700 --ns kda_rows70
#include "kda.unit"
#include "kda_rows.unit"
#include "kda_rows70.unit"
#include "emu_test.h"
#include <algorithm>
#include <string>
using namespace test;
static u32 blocks_padded(u32 n) { u32 b = (n + 255) / 256, w = 1; while (w < b) w *= 2; return w; }
static void plain(std::vector<float>& v) { for (float& x : v) if (x != x) x = __uint_as_float(0x7fc00000u); }

template <typename Args, typename P, typename S, typename G>
void run(const char* how, u32 heads, u32 d, u32 taps, u32 n, u32 first, bool fast, bool fast_decode, P prepare, S scan, G gate, bool bad) {
    const u32 inner = heads * d, past = taps - 1, extra = 2 * d + heads;
    const u32 w1 = 3 * inner + extra, w2 = 2 * inner;
    Random r(heads * 1000 + d * 7 + n * 31 + first + taps);
    auto raw = r.normals(size_t(n) * w1, 1.0f), second = r.normals(size_t(n) * w2, 1.5f);
    auto tap = r.normals(size_t(3) * inner * taps, 0.6f), bias = r.normals(inner, 1.0f), decay = r.uniforms(heads, 0.2f, 3.0f), norm = r.normals(d, 1.0f);
    const u32 matrix = 8, history = matrix + inner * d + 4, copy = (history + 3 * inner * past + 8 + 3) / 4 * 4;
    auto states = r.normals(size_t(2) * copy, 0.5f);
    for (u32 i = 0; i < 3 * inner; i += 5) raw[size_t(n - 1) * w1 + i] = -0.0f;
    if (bad && n > 1) raw[size_t(1) * w1 + inner + d + 1] = __uint_as_float(0x7f800000u);
    auto states_rows = states;
    std::vector<float> want(size_t(n) * inner), got(size_t(n) * inner, 9.0f);
    std::vector<u32> want_fault(n), got_fault(n);
    for (u32 t = 0; t < n; t++) {
        u32 fault = 0;
        alignas(16) kda::Turn turn = {0, first + t, 0};
        kda::Kda p{};
        p.raw = &raw[size_t(t) * w1], p.forget = &second[size_t(t) * w2], p.gate = p.forget + inner, p.beta = p.raw + 3 * inner + 2 * d;
        p.taps = tap.data(), p.bias = bias.data(), p.decay = decay.data(), p.norm = norm.data(), p.states = states.data();
        p.out = &want[size_t(t) * inner], p.turns = &turn, p.fault = &fault, p.copy = copy, p.matrix = matrix, p.history = history;
        p.heads = heads, p.d = d, p.taps_n = taps, p.code = 7, p.bound = -5.0f, p.rms_eps = 1e-5f;
        if (fast_decode) launch(kda::kda_step128, heads, 128, 4 * 128 * 4 + 48 * 128 * 4, p);
        else launch(kda::kda_step, heads, 512, ((5 * d * 4 + 64 + 15) / 16 * 16) + d * d * 4, p);
        want_fault[t] = fault;
    }
    std::vector<float> ready(size_t(n) * 3 * inner, 5.0f);
    Args p{};
    p.raw = raw.data(), p.forget = second.data(), p.gate = second.data() + inner, p.beta = raw.data() + 3 * inner + 2 * d;
    p.taps = tap.data(), p.bias = bias.data(), p.decay = decay.data(), p.norm = norm.data(), p.states = states_rows.data();
    p.ready = ready.data(), p.out = got.data(), p.faults = got_fault.data(), p.copy = copy, p.matrix = matrix, p.history = history;
    p.heads = heads, p.d = d, p.taps_n = taps, p.code = 7, p.first = first, p.rows = n, p.first_width = w1, p.second_width = w2;
    p.bound = -5.0f, p.rms_eps = 1e-5f;
    if (fast) {
        launch(prepare, dim3(heads, (n + 15) / 16), 128, 0, p);
        launch(scan, 2 * heads, 128, 16 * (3 * 512 + 256 + 16), p);
        launch(gate, dim3(n, (heads + 7) / 8), 256, 0, p);
    } else {
        launch(prepare, dim3(n, heads), 128, (2 * d + blocks_padded(d)) * 4, p);
        launch(scan, heads, 128, 3 * d * 4, p);
        launch(gate, dim3(n, heads), 128, (d + blocks_padded(d)) * 4, p);
    }
    const std::string name = std::string(how) + " heads " + std::to_string(heads) + " d " + std::to_string(d) + " taps " + std::to_string(taps) +
                             " n " + std::to_string(n) + " first " + std::to_string(first) + (bad ? " bad" : "");
    plain(want), plain(got), plain(states), plain(states_rows);
    same((name + " out").c_str(), got, want);
    same((name + " faults").c_str(), got_fault, want_fault);
    const size_t to = ((first + n) & 1) * size_t(copy);
    same((name + " state").c_str(), &states_rows[to], &states[to], copy);
    if (n == 1) same((name + " other copy").c_str(), &states_rows[copy - to], &states[copy - to], copy);
}

int main() {
    for (u32 first : {0u, 5u}) {
        for (u32 n : {1u, 2u, 3u, 4u, 5u, 17u, 37u}) {
            if (n < 37) run<kda_rows::KdaRows>("any", 2, 16, 3, n, first, false, false, kda_rows::kda_rows_prepare, kda_rows::kda_rows_scan, kda_rows::kda_rows_gate, n == 5);
            if (n < 6) run<kda_rows::KdaRows>("any", 3, 10, 1, n, first, false, false, kda_rows::kda_rows_prepare, kda_rows::kda_rows_scan, kda_rows::kda_rows_gate, false);
            if (n < 6) run<kda_rows::KdaRows>("any", 1, 24, 5, n, first, false, false, kda_rows::kda_rows_prepare, kda_rows::kda_rows_scan, kda_rows::kda_rows_gate, false);
            if (n == 3) run<kda_rows::KdaRows>("any", 1, 200, 4, n, first, false, false, kda_rows::kda_rows_prepare, kda_rows::kda_rows_scan, kda_rows::kda_rows_gate, false);
            run<kda_rows::KdaRows>("fast", 2, 128, 4, n, first, true, true, kda_rows::kda_rows_prepare128, kda_rows::kda_rows_scan128, kda_rows::kda_rows_gate128, n == 17);
            run<kda_rows70::KdaRows>("fast70", 2, 128, 4, n, first, true, true, kda_rows70::kda_rows_prepare128, kda_rows70::kda_rows_scan128, kda_rows70::kda_rows_gate128, false);
        }
        run<kda_rows::KdaRows>("any", 1, 128, 4, 5, first, false, false, kda_rows::kda_rows_prepare, kda_rows::kda_rows_scan, kda_rows::kda_rows_gate, false);
    }
    run<kda_rows::KdaRows>("fast", 9, 128, 4, 21, 3, true, true, kda_rows::kda_rows_prepare128, kda_rows::kda_rows_scan128, kda_rows::kda_rows_gate128, false);
    return end();
}
