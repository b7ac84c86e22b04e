// Attention of a chunk of rows against the decode kernels, row by row.
// unit: rows/dsa_rows_scores.cu --ns manyscores
// unit: rows/dsa_rows_mix.cu --ns many
// unit: glm/dsa_attend.cu --ns one
#include "manyscores.unit"
#include "many.unit"
#include "one.unit"
#include "emu_test.h"
#include <algorithm>
using namespace test;

static u32 zeros;

// `eights`: blocks of 256 threads, so many for the scores of all rows.
static void run(u32 heads, u32 latent, u32 kpool, u32 top, u32 half, u32 first, u32 n, u64 seed, u32 eights = 0) {
    Random r(seed);
    const u32 ctx = first + n, most = (top + 1) * kpool - 1, stride = (std::min(ctx, most) + 3) / 4 * 4;
    printf("heads %u latent %u kpool %u top %u half %u first %u n %u stride %u eights %u\n", heads, latent, kpool, top, half, first, n, stride, eights);
    std::vector<float> wide = r.normals(size_t(ctx) * latent);
    // Sums of -0, where all weights are below a half.
    for (size_t i = 3; i < wide.size(); i += latent) wide[i] = half ? -6e-8f : -1.4e-45f;
    std::vector<u16> narrow(wide.size());
    for (size_t i = 0; i < wide.size(); i++) narrow[i] = emu::nearest_half(wide[i]);
    const u8* latents = half ? (const u8*)narrow.data() : (const u8*)wide.data();
    std::vector<float> queries = r.normals(size_t(n) * heads * latent, 0.3f);
    std::vector<u32> pools(size_t(n) * top, 0xffffffff);
    for (u32 row = 0; row < n; row++) {
        const u32 position = first + row, complete = (position + 1) / kpool;
        if (position < most) continue;
        std::vector<u32> all(complete);
        for (u32 i = 0; i < complete; i++) all[i] = i;
        for (u32 i = 0; i < top; i++) std::swap(all[i], all[i + r.below(complete - i)]);
        std::sort(all.begin(), all.begin() + top);
        std::copy(all.begin(), all.begin() + top, &pools[size_t(row) * top]);
    }
    const float scale = 0.125f;
    std::vector<float> scores(size_t(n) * heads * stride, NAN), mixed(size_t(n) * heads * latent, NAN), weights;
    const u32 head_blocks = (heads + 63) / 64;
    const bool fast = latent == 512 && (kpool & (kpool - 1)) == 0;
    launch(manyscores::attend_rows_scores, eights ? dim3(eights, 1, head_blocks) : dim3((stride + 63) / 64, n, head_blocks), eights ? 256 : 128,
           eights ? manyscores::EIGHT_SCORES_SHARED : manyscores::SCORES_SHARED, queries.data(), latents, pools.data(),
           scores.data(), first, n, heads, latent, kpool, top, stride, half, scale);
    weights = scores;
    launch(many::attend_rows_softmax, dim3(heads, n), std::min<u32>(16, (stride + 255) / 256) * 32, 4 * (32 + (stride + 255) / 256), weights.data(),
           first, heads, kpool, top, stride);
    if (fast && eights) {
        launch(many::attend_rows_mix_wide, dim3(head_blocks, n), 256, many::Wide::SHARED, weights.data(), latents, pools.data(),
               mixed.data(), first, heads, latent, kpool, top, stride, half);
    } else {
        launch(many::attend_rows_mix, dim3(fast ? 4 * head_blocks : 3, n), 128, many::Narrow::SHARED, weights.data(), latents,
               pools.data(), mixed.data(), first, heads, latent, kpool, top, stride, half);
    }
    size_t bad = 0;
    std::vector<float> want_scores(size_t(heads) * stride), want(size_t(heads) * latent);
    std::vector<u8> gathered(size_t(stride) * latent * 4 + 64);
    for (u32 row = 0; row < n; row++) {
        const u32 position = first + row;
        alignas(16) one::Turn turn = {0, position, 0};
        const u32 seen = position < most ? position + 1 : top * kpool + (position + 1) % kpool;
        const bool decode_fast = latent == 512 && heads % 8 == 0;
        launch(one::attend_scores, dim3(3, (heads + 31) / 32), 512, 32 * 512 * 4, queries.data() + size_t(row) * heads * latent, latents,
               pools.data() + size_t(row) * top, &turn, want_scores.data(), gathered.data(), heads, latent, kpool, top, stride, half, scale);
        for (u32 h = 0; h < heads; h++) {
            const float* got = &scores[(size_t(row) * heads + h) * stride];
            for (u32 j = 0; j < seen; j++) {
                if (memcmp(got + j, &want_scores[size_t(h) * stride + j], 4)) {
                    if (!bad++) printf("score row %u head %u j %u: %g not %g\n", row, h, j, got[j], want_scores[size_t(h) * stride + j]);
                }
            }
        }
        launch(one::attend_softmax, heads, 512, 4 * (32 + (stride + 255) / 256), want_scores.data(), &turn, kpool, top, stride);
        for (u32 h = 0; h < heads; h++) {
            const float* got = &weights[(size_t(row) * heads + h) * stride];
            for (u32 j = 0; j < seen; j++) {
                if (memcmp(got + j, &want_scores[size_t(h) * stride + j], 4)) {
                    if (!bad++) printf("weight row %u head %u j %u: %g not %g\n", row, h, j, got[j], want_scores[size_t(h) * stride + j]);
                }
            }
        }
        const u32 stages = half ? 5 : 3, stage = 128 * 16 * (half ? 2 : 4) + 16 * 132 * 4;
        launch(one::attend_mix, decode_fast ? (heads + 15) / 16 * 32 : 3, 256, stages * stage, want_scores.data(), latents, pools.data() + size_t(row) * top,
               &turn, gathered.data(), want.data(), heads, latent, kpool, top, stride, half);
        for (size_t i = 0; i < want.size(); i++) zeros += __float_as_uint(want[i]) == 0x80000000u;
        for (size_t i = 0; i < want.size(); i++) {
            const float* got = &mixed[size_t(row) * want.size()];
            if (memcmp(got + i, &want[i], 4)) {
                if (!bad++) printf("mixed row %u head %zu c %zu: %g not %g\n", row, i / latent, i % latent, got[i], want[i]);
            }
        }
    }
    check("bits", bad == 0);
}

int main(int argc, char**) {
    const bool all = argc > 1;
    static_assert(manyscores::EIGHT_SCORES_SHARED == 227 << 10);
    static_assert(manyscores::SCORES_SHARED == 3 * 64 * 272 + 8 * (64 * 16 + 16) + 64 * 4 && many::Narrow::SHARED == 2 * 16 * (272 + 128 * 4));
    static_assert(many::Wide::SHARED == 2 * 16 * (272 + 512 * 4));
    for (u32 half = 0; half < 2; half++) {
        run(2, 16, 4, 2, half, 0, 37, 1);
        run(3, 300, 3, 4, half, 5, 20, 2);
        run(5, 770, 2, 3, half, 0, 9, 3);
        run(70, 40, 2, 3, half, 0, 9, 33);
        run(3, 512, 3, 4, half, 7, 12, 14);
        for (u32 first : {0u, 3u, 40u}) {
            for (u32 n : {1u, 5u, 37u}) {
                if (!all && n == 37 && first != 3) continue;
                run(64, 512, 4, 8, half, first, n, 4 + first + n);
                run(64, 512, 4, 8, half, first, n, 4 + first + n, 1);
            }
        }
        run(64, 512, 4, 40, half, 155, 12, 5);   // tiles, half a tile and few
        for (u32 eights : {1u, 5u, 13u, 50u}) run(64, 512, 4, 40, half, 155, 12, 5, eights);
        run(64, 512, 4, 64, half, 255, 5, 55, 3);
        run(64, 512, 4, 256, half, 1010, 3, 56, 2);   // more turns than positions are known for
        run(72, 512, 4, 16, half, 62, 7, 6);
        run(72, 512, 4, 16, half, 62, 7, 6, 1);
        run(5, 512, 1, 70, half, 60, 14, 8, 2);
        run(16, 512, 8, 12, half, 90, 9, 7);
        run(5, 512, 1, 70, half, 60, 14, 8);
    }
    if (argc > 2) run(64, 512, 4, 512, 1, 3000, 2, 77);
    printf("%u sums of -0\n", zeros);
    return test::end();
}
