// kernels/glm/kda.cu: kda_step128 against kda_step, the same inputs, and a plain reference in another shape; kda_pair128 against
// kda_step128 and the rounding of kernels/rows/quantize.cu.
// unit: glm/kda.cu
// unit: glm/kda.cu --arch 700 --ns kda70
// unit: rows/quantize.cu
#include "kda.unit"
#include "kda70.unit"
#include "quantize.unit"
#include "emu_test.h"
#include <string>
using namespace test;

struct Inputs {
    u32 heads, d, taps_n, position;
    struct alignas(16) Turn { u64 slot; u32 position, reserved; } turn;
    std::vector<float> raw, forget, gate, beta, taps, bias, decay, norm, states, out;
    size_t copy;
    u32 matrix, history, fault = 0;
    Inputs(u32 heads, u32 d, u32 taps_n, u32 position, u64 seed) : heads(heads), d(d), taps_n(taps_n), position(position) {
        Random r(seed);
        const u32 all = heads * d;
        raw = r.normals(3 * all), forget = r.normals(all), gate = r.normals(all), beta = r.normals(heads);
        taps = r.normals(size_t(3) * all * taps_n, 0.5f), bias = r.normals(all), decay = r.uniforms(heads, 0.5f, 4.0f), norm = r.normals(d);
        matrix = 0, history = heads * d * d, copy = history + 3 * all * (taps_n - 1) + 4;
        states = r.normals(2 * copy, 0.3f);
        out.assign(all, -1.0f);
    }
    // The states behind a slot's distance, to see that it is added.
    template <typename P>
    P arguments() {
        turn = {64, position, 0};
        return {raw.data(), forget.data(), gate.data(), beta.data(), taps.data(), bias.data(), decay.data(), norm.data(),
                states.data() - 16, out.data(), reinterpret_cast<decltype(P::turns)>(&turn), &fault, copy, matrix, history, heads, d,
                taps_n, 77, 0, 0, -5.0f, 1e-5f};
    }
    size_t shared() const { return (5 * d * 4 + 64 + 15) / 16 * 16 + d * d * 4; }
};

// In the order of docs/ARITHMETIC.md.
void reference(Inputs& in) {
    const u32 d = in.d, past = in.taps_n - 1, all = in.heads * d;
    const float* before = in.states.data() + (in.position & 1) * in.copy;
    float* after = in.states.data() + (~in.position & 1) * in.copy;
    for (u32 h = 0; h < in.heads; h++) {
        std::vector<float> value[3], decay(d), raw(d);
        for (u32 part = 0; part < 3; part++) {
            for (u32 i = 0; i < d; i++) {
                const u32 channel = part * all + h * d + i;
                const float *was = before + in.history + size_t(channel) * past, *taps = &in.taps[size_t(channel) * in.taps_n];
                std::vector<float> x(was, was + past);
                x.push_back(in.raw[channel]);
                float sum = taps[0] * x[0];
                for (u32 j = 1; j < in.taps_n; j++) sum = sum + taps[j] * x[j];
                for (u32 j = 0; j < past; j++) after[in.history + size_t(channel) * past + j] = x[j + 1];
                value[part].push_back(silu(sum));
            }
        }
        for (u32 i = 0; i < d; i++) decay[i] = canon_exp(sigmoid(in.decay[h] * (in.forget[h * d + i] + in.bias[h * d + i])) * -5.0f);
        const float scale = 1.0f / sqrtf(float(d));
        const float qf = (1.0f / sqrtf(dot(value[0].data(), value[0].data(), d) + 1e-6f)) * scale;
        const float kf = 1.0f / sqrtf(dot(value[1].data(), value[1].data(), d) + 1e-6f);
        for (u32 i = 0; i < d; i++) value[0][i] = value[0][i] * qf, value[1][i] = value[1][i] * kf;
        const float beta = sigmoid(in.beta[h]);
        for (u32 column = 0; column < d; column++) {
            const float* s0 = before + in.matrix + size_t(h) * d * d + column;
            float* s1 = after + in.matrix + size_t(h) * d * d + column;
            float u = 0.0f, sum = 0.0f;
            for (u32 c = 0; c < d; c++) {
                s1[c * d] = s0[c * d] * decay[c];
                u = __builtin_fmaf(value[1][c], s1[c * d], u);
            }
            const float delta = beta * (value[2][column] - u);
            for (u32 c = 0; c < d; c++) {
                s1[c * d] = __builtin_fmaf(value[1][c], delta, s1[c * d]);
                sum = __builtin_fmaf(value[0][c], s1[c * d], sum);
            }
            raw[column] = sum;
        }
        const float factor = 1.0f / sqrtf(dot(raw.data(), raw.data(), d) / float(d) + 1e-5f);
        for (u32 i = 0; i < d; i++) in.out[h * d + i] = ((raw[i] * factor) * in.norm[i]) * sigmoid(in.gate[h * d + i]);
    }
}

// A pass of `n` rows, each with a slot and a position of its own, laid out as crates/glm-graph does it.
struct Pass {
    static constexpr u32 HEADS = 6, D = 128, ALL = HEADS * D, CODE = 77;
    u32 n, first_width = 3 * ALL + 2 * D + HEADS, second_width = 2 * ALL;
    std::vector<kda::Turn> turns;
    std::vector<float> first, second, taps, bias, decay, norm, states, out, gates;
    std::vector<u32> faults;
    size_t copy;
    u32 history = HEADS * D * D;
    Pass(u32 n, u64 seed) : n(n), turns(n) {
        Random r(seed);
        first = r.normals(size_t(n) * first_width), second = r.normals(size_t(n) * second_width), taps = r.normals(3 * ALL * 4, 0.5f);
        bias = r.normals(ALL), decay = r.uniforms(HEADS, 0.5f, 4.0f), norm = r.normals(D), gates = r.normals(n * 20);
        copy = history + 3 * ALL * 3, states = r.normals(n * 2 * copy, 0.3f);
        out.assign(n * ALL, -1.0f), faults.assign(n, 0);
        for (u32 row = 0; row < n; row++) turns[row] = {(n - 1 - row) * 2 * copy * 4, row + 3, 0};
        // What rounds to nothing: two heads that are one block of 256, and one of 32.
        for (u32 i = 0; i < 2 * D; i++) gate(0, 2 * D + i) = -80.0f;
        for (u32 i = 0; i < 32; i++) gate(n - 1, 32 + i) = -80.0f;
        // And what cannot be rounded, of a row that is not alone.
        if (n > 1) first[first_width + 2 * ALL + D + 5] = __uint_as_float(0x7f800000u);
    }
    float& gate(u32 row, u32 channel) { return second[row * second_width + ALL + channel]; }
    kda::Kda arguments() {
        kda::Kda p{};
        p.raw = first.data(), p.forget = second.data(), p.gate = &second[ALL], p.beta = &first[3 * ALL + 2 * D], p.taps = taps.data();
        p.bias = bias.data(), p.decay = decay.data(), p.norm = norm.data(), p.states = states.data(), p.out = out.data();
        p.turns = turns.data(), p.fault = faults.data(), p.copy = copy, p.history = history, p.heads = HEADS, p.d = D, p.taps_n = 4;
        p.code = CODE, p.first_width = first_width, p.second_width = second_width, p.bound = -5.0f, p.rms_eps = 1e-5f;
        p.gates = gates.data(), p.sinkhorn = 20, p.hc_eps = 1e-6f;
        return p;
    }
};

void pairs(u32 n, bool narrow) {
    const u32 room = 4 * 128 * 4 + 48 * 128 * 4, scales = Pass::ALL / 32, written = narrow ? scales : Pass::ALL / 256;
    Pass apart(n, n), together = apart;
    std::vector<u8> want(n * Pass::ALL, 0xaa), got = want;
    std::vector<float> want_scale(n * scales, -1.0f), got_scale = want_scale;
    launch(kda::kda_step128, {Pass::HEADS + 1, 1, n}, 128, room, apart.arguments());
    quantize::Quantize q{apart.out.data(), nullptr, want.data(), want_scale.data(), apart.faults.data(), Pass::ALL, n, 1, Pass::ALL,
                         Pass::ALL, scales, 1, narrow};
    launch(quantize::rows_quantize, {(n + 7) / 8, Pass::ALL / 256, 1}, 256, 0, q);
    kda::Kda p = together.arguments();
    p.q = got.data(), p.q_scale = got_scale.data(), p.narrow = narrow;
    launch(kda::kda_pair128, {Pass::HEADS / 2 + 1, 1, n}, 256, 2 * room, p);
    const std::string name = std::to_string(n) + " rows, blocks of " + (narrow ? "32: " : "256: ");
    same((name + "bytes").c_str(), got, want);
    same((name + "scales").c_str(), got_scale, want_scale);
    same((name + "faults").c_str(), together.faults, apart.faults);
    same((name + "gates").c_str(), together.gates, apart.gates);
    // Any NaN is as good as another.
    for (auto* states : {&together.states, &apart.states}) for (float& x : *states) x = x == x ? x : 0.0f;
    same((name + "states").c_str(), together.states, apart.states);
    u32 zeros = 0, places = 0;
    for (u32 i = 0; i < n * scales; i++) zeros += got_scale[i] == 0.0f, places += got_scale[i] >= 0.0f;
    check((name + "nothing else is written, some blocks are zero").c_str(), places == n * written && zeros > 0 && zeros < places);
    for (u32 row = 0; row < n; row++) {
        check((name + "fault").c_str(), together.faults[row] == (row == 1 ? u32(Pass::CODE) : 0));
    }
}

int main() {
    for (u32 position : {4u, 5u}) {
        Inputs a(3, 128, 4, position, 5), b = a, c = a, want = a;
        launch(kda::kda_step128, 3, 128, 4 * 128 * 4 + 48 * 128 * 4, a.arguments<kda::Kda>());
        launch(kda::kda_step, 3, 512, b.shared(), b.arguments<kda::Kda>());
        launch(kda70::kda_step, 3, 512, c.shared(), c.arguments<kda70::Kda>());
        reference(want);
        printf("position %u\n", position);
        same("kda_step128 and kda_step: out", a.out, b.out);
        same("kda_step128 and kda_step: states", a.states, b.states);
        same("sm_70: states", c.states, b.states);
        same("reference: out", b.out, want.out);
        same("reference: states", b.states, want.states);
        check("no fault", a.fault == 0 && b.fault == 0);
    }
    for (u32 d : {6u, 40u}) {
        Inputs a(2, d, 3, 1, d), want = a;
        launch(kda::kda_step, 2, 512, a.shared(), a.arguments<kda::Kda>());
        reference(want);
        same("small: out", a.out, want.out);
        same("small: states", a.states, want.states);
    }
    for (u32 n : {1u, 3u, 8u}) pairs(n, false), pairs(n, true);
    return test::end();
}
