// The weighted sum of attention for many new rows (attend_rows.cuh).
#pragma once
#include "attend_rows.cuh"

constexpr u32 DEPTH = 16;                  // positions in shared memory at once
constexpr u32 AT_ROWS = DEPTH * TILE_ROW;  // behind the weights, [position][head]

// A block has 64 heads by so many columns of a row, a thread eight heads by so many fours of columns.
template <u32 FOURS_, u32 THREADS_>
struct Mix {
    static constexpr u32 FOURS = FOURS_, THREADS = THREADS_;
    static constexpr u32 ACROSS = THREADS / 8;  // threads that share heads
    static constexpr u32 COLUMNS = ACROSS * FOURS * 4, BLOCKS = FAST_LATENT / COLUMNS, ROW = COLUMNS * 4;
    static constexpr u32 STAGE = AT_ROWS + DEPTH * ROW, SHARED = 2 * STAGE;
};

// Three blocks of 128 columns on a multiprocessor; or one of all 512, where as many rows come as there are multiprocessors: it
// reads shared memory six times for 128 multiply-adds instead of four for 64, and a head's weights once.
typedef Mix<2, 128> Narrow;
typedef Mix<4, 256> Wide;

// The matrix product that every library has, its inner dimension the positions in their order. The next positions' latents and
// weights are in registers while these are multiplied.
template <typename Row, typename M>
DEV void mix_rows_512(const float* weights, const u8* rows, const u32* pools, const Attended& a, float* out, u32 heads, u32 shift,
                      u32 stride) {
    constexpr u32 ROW = FAST_LATENT * Row::BYTES, PIECES = M::COLUMNS * Row::BYTES / 16, EACH = DEPTH * PIECES / M::THREADS;
    constexpr u32 HEADS = M::THREADS / (DEPTH / 4), TURNS = TILE_SIDE / HEADS;
    const u32 tid = threadIdx.x, tiles = (a.n + DEPTH - 1) / DEPTH;
    const u32 first_head = blockIdx.x / M::BLOCKS * TILE_SIDE, column = blockIdx.x % M::BLOCKS * M::COLUMNS;
    // A thread brings 16 bytes of each of EACH rows, and four positions' weights of a head, or two.
    const u32 own_row = tid / PIECES, own_piece = tid % PIECES;
    const u32 own_head = tid / (DEPTH / 4), own_four = tid % (DEPTH / 4) * 4;
    const u8* own_rows = rows + column * Row::BYTES + own_piece * 16;
    const float* own_weights = weights + size_t(first_head + own_head) * stride + own_four;
    u32 places[EACH];
    uint4 held[EACH];
    float4 held_weights[TURNS];
    auto find = [&](u32 tile) {
#pragma unroll
        for (u32 m = 0; m < EACH; m++) {
            places[m] = row_position(a, pools, shift, min(tile * DEPTH + own_row + m * (DEPTH / EACH), a.n - 1));
        }
    };
    auto load = [&](u32 tile) {
#pragma unroll
        for (u32 m = 0; m < EACH; m++) held[m] = *reinterpret_cast<const uint4*>(own_rows + size_t(places[m]) * ROW);
#pragma unroll
        for (u32 m = 0; m < TURNS; m++) {
            if (first_head + own_head + m * HEADS >= heads || tile * DEPTH + own_four >= a.n) break;
            held_weights[m] = *reinterpret_cast<const float4*>(own_weights + size_t(m) * HEADS * stride + tile * DEPTH);
        }
    };
    // Eight values of 16 bits become two fours, the second of all pieces behind the first ones: side by side, two threads would
    // write to the same banks.
    auto put = [&](u32 tile) {
        const u32 stage = tile % 2 * M::STAGE;
#pragma unroll
        for (u32 m = 0; m < EACH; m++) {
            const u32 to = stage + AT_ROWS + (own_row + m * (DEPTH / EACH)) * M::ROW + own_piece * 16;
            if constexpr (Row::BYTES == 2) {
                const float2 a = halves_of(held[m].x), b = halves_of(held[m].y);
                const float2 c = halves_of(held[m].z), d = halves_of(held[m].w);
                shared_at<float4>(to) = make_float4(a.x, a.y, b.x, b.y);
                shared_at<float4>(to + PIECES * 16) = make_float4(c.x, c.y, d.x, d.y);
            } else {
                shared_at<uint4>(to) = held[m];
            }
        }
#pragma unroll
        for (u32 m = 0; m < TURNS; m++) {
            const u32 to = stage + own_four * TILE_ROW + (own_head + m * HEADS) * 4;
            shared_at<float>(to) = held_weights[m].x;
            shared_at<float>(to + TILE_ROW) = held_weights[m].y;
            shared_at<float>(to + 2 * TILE_ROW) = held_weights[m].z;
            shared_at<float>(to + 3 * TILE_ROW) = held_weights[m].w;
        }
    };

    const u32 left = tile_left(tid), right = tile_right(tid) | (tid >> 3 & 16);
    float sum[8][4 * M::FOURS] = {};
    auto add = [&](auto stage, u32 k) {
        const auto w = stage + k * TILE_ROW + left * 16, x = stage + AT_ROWS + k * M::ROW + right * 16;
        const float4 w0 = four_at(w), w1 = four_at(w + TILE_SIDE / 2 * 4);
        const float p[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
#pragma unroll
        for (u32 f = 0; f < M::FOURS; f++) {
            const float4 c = four_at(x + f * M::ACROSS * 16);
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                sum[i][4 * f] = fmaf(p[i], c.x, sum[i][4 * f]);
                sum[i][4 * f + 1] = fmaf(p[i], c.y, sum[i][4 * f + 1]);
                sum[i][4 * f + 2] = fmaf(p[i], c.z, sum[i][4 * f + 2]);
                sum[i][4 * f + 3] = fmaf(p[i], c.w, sum[i][4 * f + 3]);
            }
        }
    };
    auto add_tile = [&](auto stage, u32 count) {
        if (count >= DEPTH) {
            // 1024 multiply-adds: twice as many are more code than the caches next to the cores hold.
#pragma unroll 1
            for (u32 k = 0; k < DEPTH; k += 32 / M::FOURS) {
#pragma unroll
                for (u32 i = 0; i < 32 / M::FOURS; i++) add(stage, k + i);
            }
        } else {
#pragma unroll 1
            for (u32 k = 0; k < count; k++) add(stage, k);
        }
    };
    find(0);
    load(0);
    find(1);
    put(0);
    __syncthreads();
#pragma unroll 1
    for (u32 tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            load(tile + 1);
            find(tile + 2);
        }
        // What lies behind position n is no weight of 0: a sum of -0 would become +0.
        const u32 count = a.n - tile * DEPTH, stage = tile % 2 * M::STAGE;
        // A pointer, which makes the constant parts of offsets parts of the reads, where there are registers for it.
        if constexpr (M::FOURS > 2) {
            add_tile(static_cast<const u8*>(smem) + stage, count);
        } else {
            add_tile(stage, count);
        }
        if (tile + 1 < tiles) put(tile + 1);
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        const u32 head = first_head + i / 4 * (TILE_SIDE / 2) + left * 4 + i % 4;
        if (head >= heads) continue;
        float* const to = out + size_t(head) * FAST_LATENT + column;
#pragma unroll
        for (u32 f = 0; f < M::FOURS; f++) {
            const u32 four = f * M::ACROSS + right, own = Row::BYTES == 2 ? four % PIECES * 8 + four / PIECES * 4 : four * 4;
            const float* const s = &sum[i][4 * f];
            *reinterpret_cast<float4*>(to + own) = make_float4(s[0], s[1], s[2], s[3]);
        }
    }
}
