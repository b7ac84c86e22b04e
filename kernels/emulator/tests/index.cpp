// The indexer over rows against the decode kernels, row by row.
// unit: rows/dsa_rows_index.cu --ns many
// unit: glm/dsa_index.cu --ns one
// unit: rows/dsa_rows_prepare.cu --ns manyprep
// unit: glm/dsa_prepare.cu --ns oneprep
#include "many.unit"
#include "one.unit"
#include "manyprep.unit"
#include "oneprep.unit"
#include "emu_test.h"
#include <algorithm>
using namespace test;

static bool differ(float a, float b) { return memcmp(&a, &b, 4) && !(std::isnan(a) && std::isnan(b)); }

// `eights`: blocks of 256 threads, so many for all.
static void scores(u32 heads, u32 dim, u32 kpool, u32 top, u32 first, u32 n, u64 seed, u32 eights = 0, u32 extra = 28) {
    Random r(seed);
    const u32 ctx = first + n, capacity = ctx / kpool + 1, all_pools = ctx / kpool;
    printf("index: heads %u dim %u kpool %u top %u first %u n %u eights %u\n", heads, dim, kpool, top, first, n, eights);
    std::vector<float> pooled = r.normals(size_t(all_pools) * dim);
    const u32 query_row = extra + heads * dim, weight_row = heads + 3;
    std::vector<float> queries = r.normals(size_t(n) * query_row), weights = r.normals(size_t(n) * weight_row);
    for (size_t i = 0; i < queries.size(); i += 5) queries[i] = -fabsf(queries[i]);
    std::vector<float> got(size_t(n) * capacity, -77.0f), want(capacity);
    std::vector<u32> pools(size_t(n) * top, 0xabcdef), want_pools(top), counts(64 + 2048 + 4 * capacity + 64);
    const float scale = 1.0f / sqrtf(float(heads * dim));
    launch(many::index_rows_scores, eights ? dim3(eights) : dim3(std::max(1u, (all_pools + 63) / 64), (n + 7) / 8), eights ? 256 : 128,
           eights ? many::EIGHT_INDEX_SHARED : many::INDEX_ROWS_SHARED, queries.data() + extra, weights.data(), pooled.data(),
           got.data(), query_row, weight_row, capacity, first, n, heads, dim, kpool, top, scale);
    launch(many::top_rows_choose, n, 1024, many::CHOICE_SHARED, got.data(), pools.data(), capacity, first, kpool, top);
    size_t bad = 0, rows = 0;
    for (u32 row = 0; row < n; row++) {
        const u32 position = first + row;
        alignas(16) one::Turn turn = {0, position, 0};
        const bool sees = position < (top + 1) * kpool - 1;
        const u32 here = sees ? 0 : (position + 1) / kpool;
        if (!sees) {
            rows++;
            const float* own = queries.data() + extra + size_t(row) * query_row;
            const std::vector<float> aligned(own, own + heads * dim);
            launch(one::index_scores, 3, 128, 2 * 32 * 128 * 4 + 2 * 32 * 33 * 4, aligned.data(),
                   weights.data() + size_t(row) * weight_row, pooled.data(), &turn, want.data(), counts.data(), 0, 0, 0, capacity, heads, dim, kpool, top, scale);
            launch(one::top_choose, 1, 1024, one::CHOICE_SHARED, want.data(), &turn, want_pools.data(), counts.data(), kpool, top, capacity, 0);
            for (u32 i = 0; i < top; i++) {
                if (pools[size_t(row) * top + i] != want_pools[i] && !bad++) printf("pool row %u %u: %u not %u\n", row, i, pools[size_t(row) * top + i], want_pools[i]);
            }
        }
        for (u32 p = 0; p < capacity; p++) {
            const float g = got[size_t(row) * capacity + p], w = p < here ? want[p] : -77.0f;
            if (differ(g, w) && !bad++) printf("score row %u pool %u: %g not %g\n", row, p, g, w);
        }
    }
    printf("  %zu rows choose\n", rows);
    check("bits", bad == 0);
}

static void choose(u32 pools, u32 top, u32 kinds, u64 seed) {
    Random r(seed);
    const u32 n = 2;
    std::vector<float> score(size_t(n) * (pools + 3));
    for (float& s : score) {
        const u32 k = r.below(kinds + 2);
        s = k == 0 ? (r.below(2) ? 0.0f : -0.0f) : k == 1 ? (r.below(9) ? 0.25f : NAN) : kinds > 1000 ? r.normal() : float(k) * 0.5f - 2.0f;
    }
    std::vector<u32> got(size_t(n) * top, 0xffffffff);
    launch(many::top_rows_choose, n, 1024, many::CHOICE_SHARED, score.data(), got.data(), pools + 3, pools - 1 - 1, 1u, top);
    bool good = true;
    for (u32 row = 0; row < n; row++) {
        const u32 here = pools - 1 + row;
        const float* s = &score[size_t(row) * (pools + 3)];
        std::vector<u32> order(here);
        for (u32 i = 0; i < here; i++) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return many::rank_of(s[a]) > many::rank_of(s[b]); });
        order.resize(top);
        std::sort(order.begin(), order.end());
        for (u32 i = 0; i < top; i++) good &= got[size_t(row) * top + i] == order[i];
    }
    printf("choose %u of %u, %u kinds\n", top, pools, kinds);
    check("the best", good);
}

enum Scores { NORMAL, EQUAL, TWO, RISING, FALLING, TIED, NARROW, ODD };

static float drawn(Scores kind, u32 i, u32 pools, Random& r) {
    switch (kind) {
    case NORMAL: return r.normal();
    case EQUAL: return 0.0f;
    case TWO: return r.below(40) ? -1.5f : 2.0f;
    case RISING: return float(i) - float(pools / 2);
    case FALLING: return float(pools / 2) - float(i);
    case TIED: return float(r.below(7)) - 3.0f;
    case NARROW: return 10.0f + r.normal();
    default: break;
    }
    const u32 k = r.below(12);
    if (k < 6) return one::bits(r.word());
    return k == 6 ? NAN : k == 7 ? -NAN : k == 8 ? -0.0f : k == 9 ? 0.0f : k == 10 ? -INFINITY : INFINITY;
}

// Rows of a pass: each has its own position and its own memory, which is zero again when all have ended.
static void choose_decode(u32 pools, u32 top, Scores kind, u64 seed, u32 blocks = 32) {
    Random r(seed);
    const u32 n = 2, capacity = pools + 3, words = (64 + 2048 + 2 * ((capacity + 31) / 32) + 2 * capacity + 3) / 4 * 4;
    std::vector<float> score(size_t(n) * capacity);
    for (size_t i = 0; i < score.size(); i++) score[i] = drawn(kind, u32(i % capacity), pools, r);
    alignas(16) one::Turn turns[n] = {{0, pools * 4 - 1, 0}, {0, (pools - 1) * 4 + 2, 0}};
    std::vector<u32> got(size_t(n) * top, 0xffffffff), memory(size_t(n) * words, 0xabababab);
    for (u32 row = 0; row < n; row++) std::fill_n(memory.begin() + row * words, 64 + 2048, 0u);
    bool good = true, zero = true;
    for (u32 again = 0; again < 2; again++) {
        for (u32 row = 0; row < n; row++) {
            if (pools - row <= top) continue;
            for (u32 i = 0; i < pools - row; i++) memory[row * words + one::HISTOGRAM + (one::order_of(score[size_t(row) * capacity + i]) >> 21)]++;
        }
        launch(one::top_choose, dim3(blocks, 1, n), one::CHOICE_THREADS, one::CHOICE_SHARED, score.data(), turns, got.data(), memory.data(), 4u, top, capacity, words);
        for (u32 row = 0; row < n; row++) {
            const u32 here = pools - row;
            if (here <= top) continue;
            const float* s = &score[size_t(row) * capacity];
            std::vector<u32> order(here);
            for (u32 i = 0; i < here; i++) order[i] = i;
            std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return one::rank_of(s[a]) > one::rank_of(s[b]); });
            order.resize(top);
            std::sort(order.begin(), order.end());
            for (u32 i = 0; i < top; i++) good &= got[size_t(row) * top + i] == order[i];
            for (u32 i = 0; i < 64 + 2048; i++) zero &= memory[size_t(row) * words + i] == 0;
        }
        std::fill(got.begin(), got.end(), 0xffffffff);
    }
    printf("decode: choose %u of %u, scores %d, %u blocks\n", top, pools, int(kind), blocks);
    check("the best", good);
    check("memory is zero again", zero);
}

static void prepare(u32 rank, u32 latent, u32 dim, u32 kpool, u32 half, std::vector<u32> spans, u64 seed) {
    Random r(seed);
    printf("prepare: rank %u latent %u dim %u kpool %u half %u, %zu spans\n", rank, latent, dim, kpool, half, spans.size());
    u32 ctx = 0;
    for (u32 n : spans) ctx += n;
    const u32 width = rank + latent + 2 * dim + 5;
    std::vector<float> in = r.normals(size_t(ctx) * width), q_norm = r.normals(rank), kv_norm = r.normals(latent), k_norm = r.normals(dim), k_bias = r.normals(dim),
                       ape = r.normals(size_t(kpool) * dim);
    const size_t bytes = size_t(ctx) * latent * (half ? 2 : 4);
    const float eps = 1e-5f, ln = 1e-6f;
    std::vector<float> low(size_t(ctx) * rank, NAN), want_low(low), pooled(size_t(ctx / kpool) * dim + 1, -3), want_pooled(pooled);
    std::vector<u8> latents(bytes, 0xee), want_latents(bytes, 0xee);
    std::vector<float> keys(size_t(kpool) * dim, -9), gates(keys), want_keys(keys), want_gates(keys);
    u32 first = 0;
    bool good = true;
    for (u32 n : spans) {
        std::vector<float> rows(size_t(n) * 2 * dim, NAN);
        const float* x = in.data() + size_t(first) * width;
        const u32 longest = std::max({(rank + 255) / 256, (latent + 255) / 256, dim});
        launch(manyprep::dsa_rows_prepare, dim3(n, 3), 256, 4 * longest, x, x + rank, x + rank + latent, x + rank + latent + dim, q_norm.data(), kv_norm.data(), k_norm.data(),
               k_bias.data(), low.data() + size_t(first) * rank, latents.data(), rows.data(), width, first, rank, latent, dim, half, eps, ln);
        const u32 complete = (first + n) / kpool - first / kpool;
        launch(manyprep::dsa_rows_pool, std::max(complete, 1u), 128, 0, rows.data(), ape.data(), keys.data(), gates.data(), pooled.data(), first, n, dim, kpool);
        for (u32 row = 0; row < n; row++) {
            const u32 position = first + row;
            alignas(16) oneprep::Turn turn = {0, position, 0};
            const float* y = in.data() + size_t(position) * width;
            launch(oneprep::dsa_prepare, 3, 256, 4 * longest, y, y + rank, y + rank + latent, y + rank + latent + dim, q_norm.data(), kv_norm.data(), k_norm.data(), k_bias.data(),
                   ape.data(), &turn, want_low.data() + size_t(position) * rank, want_latents.data(), want_keys.data(), want_gates.data(), want_pooled.data(), 0, rank, latent, dim,
                   kpool, half, eps, ln, (float*)nullptr, 20u, 1e-6f);
        }
        first += n;
        good &= !memcmp(keys.data(), want_keys.data(), keys.size() * 4) && !memcmp(gates.data(), want_gates.data(), gates.size() * 4);
    }
    check("open after each span", good);
    same("low", low, want_low);
    same("latents", latents, want_latents);
    same("pooled", pooled, want_pooled);
}

int main() {
    static_assert(many::INDEX_ROWS_SHARED == 6 * 4 * 8 * 272 && many::CHOICE_SHARED == 2048 * 4 + 32 * 4 + 16 + 2 * (16 * 1024 / 32) * 4);
    for (auto [first, n] : {std::pair{0u, 37u}, {0u, 5u}, {3u, 37u}, {40u, 1u}, {40u, 5u}, {60u, 37u}}) scores(2, 8, 4, 2, first, n, 1 + first);
    scores(3, 300, 3, 4, 7, 30, 2);
    for (auto [first, n] : {std::pair{0u, 37u}, {40u, 1u}, {40u, 5u}, {30u, 37u}}) scores(32, 128, 4, 8, first, n, 3 + first);
    scores(32, 128, 4, 8, 700, 19, 4);
    static_assert(many::EIGHT_INDEX_SHARED == 4 * 128 * 256 + 3 * 128 * 128 + 8 * 32 * 4);
    for (auto [first, n] : {std::pair{0u, 37u}, {40u, 1u}, {40u, 5u}, {30u, 37u}}) scores(32, 128, 4, 8, first, n, 3 + first, 1);
    for (u32 eights : {1u, 2u, 3u, 7u, 40u}) scores(32, 128, 4, 8, 700, 19, 4, eights);
    scores(8, 128, 1, 5, 0, 90, 5, 2);
    scores(24, 128, 2, 20, 235, 12, 6, 2, 27);
    scores(8, 128, 1, 5, 0, 90, 5);
    scores(72, 128, 2, 20, 35, 12, 6);
    scores(12, 128, 2, 20, 35, 12, 6);
    choose(10, 8, 2000, 1);
    choose(700, 512, 3, 2);
    choose(700, 512, 2000, 3);
    choose(16384, 512, 2000, 4);
    choose(16386, 512, 2000, 5);
    choose(70001, 512, 2000, 6);
    choose(70001, 40000, 5, 7);
    choose(50000, 3, 4, 8);
    for (Scores kind : {NORMAL, EQUAL, TWO, RISING, FALLING, TIED, NARROW, ODD}) {
        for (u32 pools : {513u, 514u, 2000u, 8192u, 8193u, 16384u, 16385u, 70000u}) choose_decode(pools, 512, kind, 9 + pools);
    }
    for (Scores kind : {NORMAL, EQUAL, ODD}) choose_decode(262144, 512, kind, 10);
    for (Scores kind : {NORMAL, TIED, ODD}) choose_decode(70000, 512, kind, 11, 64);
    for (Scores kind : {EQUAL, NARROW, FALLING}) choose_decode(8000, 512, kind, 12, 5);
    for (u32 top : {1u, 2u, 40000u}) choose_decode(70001, top, TIED, 13);
    for (u32 pools : {9u, 33u, 64u}) choose_decode(pools, 8, ODD, 14);
    prepare(16, 16, 8, 4, 0, {1, 2, 1, 3, 5, 9, 1, 1, 1, 1, 37, 4}, 1);
    prepare(300, 270, 33, 3, 1, {1, 1, 2, 7, 1, 5, 3}, 2);
    prepare(2048, 512, 128, 4, 1, {3, 37, 1, 2, 8}, 3);
    prepare(2048, 512, 128, 4, 0, {1, 1, 5, 37}, 4);
    prepare(64, 64, 16, 1, 0, {1, 5, 3}, 5);
    prepare(64, 64, 16, 16, 0, {1, 5, 3, 20, 40, 2}, 6);
    return test::end();
}
