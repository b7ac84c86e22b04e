// kernels/glm/dsa_attend.cu: a small case against plain C++, and 512 latents fast against the path for any sizes.
// unit: glm/dsa_attend.cu
// unit: glm/dsa_attend.cu --arch 750 --ns attend75
#include "dsa_attend.unit"
#include "attend75.unit"
#include "emu_test.h"
#include <algorithm>
using namespace test;

// Units are C++: a test's own kernel calls what the unit's would only call for other sizes.
template <typename Row>
void scores_any(const float* queries, const u8* rows, const u32* pools, const u32* position, float* scores, u32 heads, u32 latent,
                u32 kpool, u32 top, u32 stride, float scale) {
    dsa_attend::scores_any<Row>(queries, rows, pools, dsa_attend::attended(*position, kpool, top), scores, heads, latent, kpool, stride, scale);
}
template <typename Row>
void mix_any(const float* weights, const u8* rows, const u32* pools, const u32* position, float* out, u32 heads, u32 latent, u32 kpool,
             u32 top, u32 stride) {
    dsa_attend::mix_any<Row>(weights, rows, pools, dsa_attend::attended(*position, kpool, top), out, heads, latent, kpool, stride);
}

struct alignas(16) Turn { u64 slot; u32 position, reserved; };
struct Case {
    Turn turn;
    u32 heads, latent, kpool, top, position, half, stride;
    float scale = 0.0883883461f;
    std::vector<float> queries, wide;  // rows as f32
    std::vector<u8> rows, gathered;
    std::vector<u32> pools, at;        // chosen, attended positions
    Case(u32 heads, u32 latent, u32 kpool, u32 top, u32 position, u32 half, u64 seed)
        : turn{0, position, 0}, heads(heads), latent(latent), kpool(kpool), top(top), position(position), half(half) {
        Random r(seed);
        stride = ((top + 1) * kpool + 3) & ~3u;
        queries = r.normals(size_t(heads) * latent, 0.5f), wide = r.normals(size_t(position + 1) * latent);
        rows.resize(wide.size() * (half ? 2 : 4));
        for (size_t i = 0; i < wide.size(); i++) {
            if (half) {
                const u16 h = emu::nearest_half(wide[i]);
                memcpy(&rows[2 * i], &h, 2);
                wide[i] = emu::half_value(h);
            } else {
                memcpy(&rows[4 * i], &wide[i], 4);
            }
        }
        gathered.assign(size_t(stride) * latent * 4, 0xee);
        const u32 complete = (position + 1) / kpool;
        if (position < (top + 1) * kpool - 1) {
            for (u32 i = 0; i <= position; i++) at.push_back(i);
        } else {
            std::vector<u32> all(complete);
            for (u32 i = 0; i < complete; i++) all[i] = i;
            for (u32 i = 0; i < top; i++) std::swap(all[i], all[i + r.below(complete - i)]);
            pools.assign(all.begin(), all.begin() + top);
            std::sort(pools.begin(), pools.end());
            for (u32 p : pools) {
                for (u32 i = 0; i < kpool; i++) at.push_back(p * kpool + i);
            }
            for (u32 i = complete * kpool; i <= position; i++) at.push_back(i);
        }
    }
    std::vector<float> reference_scores() {
        std::vector<float> s(size_t(heads) * stride, -9.0f);
        for (u32 h = 0; h < heads; h++) {
            for (size_t j = 0; j < at.size(); j++) s[h * stride + j] = dot(&queries[h * latent], &wide[size_t(at[j]) * latent], latent) * scale;
        }
        return s;
    }
    void reference_softmax(std::vector<float>& s) {
        for (u32 h = 0; h < heads; h++) {
            float* x = &s[h * stride];
            const size_t n = at.size();
            const float m = *std::max_element(x, x + n);
            for (size_t j = 0; j < n; j++) x[j] = canon_exp(x[j] - m);
            const float sum = in_dot_order(n, [&](size_t j, float t) { return t + x[j]; });
            for (size_t j = 0; j < n; j++) x[j] = x[j] / sum;
        }
    }
    std::vector<float> reference_mix(const std::vector<float>& s) {
        std::vector<float> out(size_t(heads) * latent);
        for (u32 h = 0; h < heads; h++) {
            for (u32 c = 0; c < latent; c++) {
                float sum = 0.0f;
                for (size_t j = 0; j < at.size(); j++) sum = __builtin_fmaf(s[h * stride + j], wide[size_t(at[j]) * latent + c], sum);
                out[size_t(h) * latent + c] = sum;
            }
        }
        return out;
    }
};

// As the unit calls it.
template <typename T, typename U, typename V, typename W, typename... Rest>
const W* turns(void (*)(T, U, V, const W*, Rest...), const Turn* turn) { return reinterpret_cast<const W*>(turn); }

template <typename Scores, typename Softmax, typename Mix>
void one(const char* name, Scores scores_kernel, Softmax softmax, Mix mix, Case c) {
    printf("%s: %u heads of %u, position %u, %s\n", name, c.heads, c.latent, c.position, c.half ? "f16" : "f32");
    const bool fast = c.latent == 512 && c.heads % 8 == 0;
    const u32 bytes = c.half ? 2 : 4, parts = (c.heads + 31) / 32, blocks = 132 / parts / 8;
    std::vector<float> scores(size_t(c.heads) * c.stride, -9.0f), mixed(size_t(c.heads) * c.latent, -9.0f);
    launch(scores_kernel, dim3(blocks, parts), 512, 32 * 512 * bytes, c.queries.data(), c.rows.data(), c.pools.data(), turns(scores_kernel, &c.turn),
           scores.data(), c.gathered.data(), c.heads, c.latent, c.kpool, c.top, c.stride, c.half, c.scale);
    std::vector<float> want = c.reference_scores();
    same("scores", scores, want);
    if (fast) {
        std::vector<float> any(scores.size(), -9.0f);
        launch(c.half ? scores_any<dsa_attend::HalfRow> : scores_any<dsa_attend::FloatRow>, dim3(3, parts), 512, 64, c.queries.data(),
               c.rows.data(), c.pools.data(), &c.position, any.data(), c.heads, c.latent, c.kpool, c.top, c.stride, c.scale);
        same("scores, fast and any", scores, any);
    }
    launch(softmax, c.heads, 512, 4 * (32 + (c.stride + 255) / 256), scores.data(), turns(scores_kernel, &c.turn), c.kpool, c.top, c.stride);
    c.reference_softmax(want);
    same("softmax", scores, want);
    const u32 stages = c.half ? 5 : 3, stage = 128 * 16 * bytes + 16 * 132 * 4;
    launch(mix, fast ? (c.heads + 15) / 16 * 32 : (c.heads * c.latent + 255) / 256, 256, stages * stage, scores.data(), c.rows.data(), c.pools.data(),
           turns(scores_kernel, &c.turn), c.gathered.data(), mixed.data(), c.heads, c.latent, c.kpool, c.top, c.stride, c.half);
    same("mix", mixed, c.reference_mix(want));
    if (fast) {
        std::vector<float> any(mixed.size(), -9.0f);
        launch(c.half ? mix_any<dsa_attend::HalfRow> : mix_any<dsa_attend::FloatRow>, 64, 128, 64, scores.data(), c.rows.data(),
               c.pools.data(), &c.position, any.data(), c.heads, c.latent, c.kpool, c.top, c.stride);
        same("mix, fast and any", mixed, any);
    }
}

// Rows of several sequences in one launch against each alone.
void rows(u32 heads, u32 half) {
    constexpr u32 N = 3;
    const u32 latent = 512, kpool = 4, top = 60, positions[N] = {3, 170, 500}, bytes = half ? 2 : 4, parts = (heads + 31) / 32;
    std::vector<Case> cases;
    for (u32 i = 0; i < N; i++) cases.emplace_back(heads, latent, kpool, top, positions[i], half, 20 + i);
    const u32 stride = cases[0].stride, stages = half ? 5 : 3, stage = 128 * 16 * bytes + 16 * 132 * 4;
    printf("%u rows: %u heads of %u, %s\n", N, heads, latent, half ? "f16" : "f32");
    const size_t slot = cases[N - 1].rows.size(), each = size_t(heads) * latent;
    std::vector<u8> latents(N * slot), gathered(N * size_t(stride) * latent * bytes, 0xee);
    std::vector<Turn> turn(N);
    std::vector<u32> pools(N * top, ~0u);
    std::vector<float> queries(N * each), scores(N * size_t(heads) * stride, -9.0f), mixed(N * each, -9.0f);
    auto run = [&](u32 n, const float* q, const u8* r, const u32* p, const Turn* t, float* s, u8* g, float* out) {
        const auto* turns_at = turns(dsa_attend::attend_scores, t);
        const float scale = cases[0].scale;
        launch(dsa_attend::attend_scores, dim3(5, parts, n), 512, 32 * 512 * bytes, q, r, p, turns_at, s, g, heads, latent, kpool, top, stride, half, scale);
        launch(dsa_attend::attend_softmax, dim3(heads, 1, n), 512, 4 * (32 + (stride + 255) / 256), s, turns_at, kpool, top, stride);
        launch(dsa_attend::attend_mix, dim3((heads + 15) / 16 * 32, 1, n), 256, stages * stage, s, r, p, turns_at, g, out, heads, latent, kpool, top, stride, half);
    };
    std::vector<float> want_mixed, want_scores;
    for (u32 i = 0; i < N; i++) {
        Case& c = cases[i];
        std::copy(c.rows.begin(), c.rows.end(), &latents[i * slot]);
        std::copy(c.pools.begin(), c.pools.end(), &pools[i * top]);
        std::copy(c.queries.begin(), c.queries.end(), &queries[i * each]);
        turn[i] = {i * slot, positions[i], 0};
        std::vector<float> s(size_t(heads) * stride, -9.0f), out(each, -9.0f);
        run(1, c.queries.data(), c.rows.data(), c.pools.data(), &c.turn, s.data(), c.gathered.data(), out.data());
        want_scores.insert(want_scores.end(), s.begin(), s.end());
        want_mixed.insert(want_mixed.end(), out.begin(), out.end());
    }
    run(N, queries.data(), latents.data(), pools.data(), turn.data(), scores.data(), gathered.data(), mixed.data());
    same("weights of rows", scores, want_scores);
    same("mix of rows", mixed, want_mixed);
}

int main() {
    using namespace dsa_attend;
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(3, 24, 4, 5, 60, 1, 1));
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(2, 300, 4, 5, 9, 0, 2));
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(8, 512, 8, 40, 700, 1, 3));
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(40, 512, 4, 70, 333, 0, 4));
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(8, 512, 8, 40, 0, 1, 5));
    one("sm_75", attend75::attend_scores, attend75::attend_softmax, attend75::attend_mix, Case(8, 512, 8, 20, 301, 1, 6));
    // Turns, tiles and rings that end exactly, one before and one behind; a head block that is half empty.
    for (u32 n : {15, 16, 17, 31, 32, 33, 127, 128, 129, 160, 384, 385, 639, 640, 641, 672}) {
        for (u32 half = 0; half < 2; half++) one("sm_90", attend_scores, attend_softmax, attend_mix, Case(24, 512, 4, 256, n - 1, half, 10 + n));
    }
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(16, 512, 4, 512, 2501, 1, 7));
    one("sm_90", attend_scores, attend_softmax, attend_mix, Case(16, 512, 4, 512, 2502, 0, 8));
    one("sm_75", attend75::attend_scores, attend75::attend_softmax, attend75::attend_mix, Case(16, 512, 4, 200, 1303, 1, 9));
    rows(16, 1);
    rows(40, 0);
    return test::end();
}
