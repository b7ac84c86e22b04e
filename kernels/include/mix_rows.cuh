// The weighted sum of attention for many new rows (attend_rows.cuh).
#pragma once
#include "attend_rows.cuh"

constexpr u32 MIXED_COLUMNS = 128;                    // of a block
constexpr u32 MIXED_BLOCKS = FAST_LATENT / MIXED_COLUMNS;
constexpr u32 DEPTH = 16;                             // positions in shared memory at once
constexpr u32 MIXED_ROW = MIXED_COLUMNS * 4;
constexpr u32 AT_ROWS = DEPTH * TILE_ROW;             // behind the weights, [position][head]
constexpr u32 MIXED_STAGE = AT_ROWS + DEPTH * MIXED_ROW;
constexpr u32 MIXED_SHARED = 2 * MIXED_STAGE;

// 64 heads by 128 columns of a row, a thread eight heads by eight columns: the matrix product that every library has, its inner
// dimension the positions in their order. The next positions' latents and weights are in registers while these are multiplied.
template <typename Row>
DEV void mix_rows_512(const float* weights, const u8* rows, const u32* pools, const Attended& a, float* out, u32 heads, u32 shift,
                      u32 stride) {
    constexpr u32 ROW = FAST_LATENT * Row::BYTES, PIECES = MIXED_COLUMNS * Row::BYTES / 16, EACH = DEPTH * PIECES / TILE_THREADS;
    const u32 tid = threadIdx.x, tiles = (a.n + DEPTH - 1) / DEPTH;
    const u32 first_head = blockIdx.x / MIXED_BLOCKS * TILE_SIDE, column = blockIdx.x % MIXED_BLOCKS * MIXED_COLUMNS;
    // A thread brings 16 bytes of each of EACH rows, and four positions' weights of two heads.
    const u32 own_row = tid / PIECES, own_piece = tid % PIECES;
    const u32 own_head = tid / (DEPTH / 4), own_four = tid % (DEPTH / 4) * 4;
    const u8* own_rows = rows + column * Row::BYTES + own_piece * 16;
    const float* own_weights = weights + size_t(first_head + own_head) * stride + own_four;
    u32 places[EACH];
    uint4 held[EACH];
    float4 held_weights[2];
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
        for (u32 m = 0; m < 2; m++) {
            if (first_head + own_head + m * (TILE_SIDE / 2) >= heads || tile * DEPTH + own_four >= a.n) break;
            held_weights[m] = *reinterpret_cast<const float4*>(own_weights + size_t(m) * (TILE_SIDE / 2) * stride + tile * DEPTH);
        }
    };
    auto put = [&](u32 tile) {
        const u32 stage = tile % 2 * MIXED_STAGE;
#pragma unroll
        for (u32 m = 0; m < EACH; m++) {
            const u32 to = stage + AT_ROWS + (own_row + m * (DEPTH / EACH)) * MIXED_ROW + own_piece * (16 / Row::BYTES * 4);
            if constexpr (Row::BYTES == 2) {
                const float2 a = halves_of(held[m].x), b = halves_of(held[m].y);
                const float2 c = halves_of(held[m].z), d = halves_of(held[m].w);
                shared_at<float4>(to) = make_float4(a.x, a.y, b.x, b.y);
                shared_at<float4>(to + 16) = make_float4(c.x, c.y, d.x, d.y);
            } else {
                shared_at<uint4>(to) = held[m];
            }
        }
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
            const u32 to = stage + own_four * TILE_ROW + (own_head + m * (TILE_SIDE / 2)) * 4;
            shared_at<float>(to) = held_weights[m].x;
            shared_at<float>(to + TILE_ROW) = held_weights[m].y;
            shared_at<float>(to + 2 * TILE_ROW) = held_weights[m].z;
            shared_at<float>(to + 3 * TILE_ROW) = held_weights[m].w;
        }
    };

    const u32 left = tile_left(tid), right = tile_right(tid);
    float sum[8][8] = {};
    auto add = [&](u32 at, u32 k) {
        const u32 w = at + k * TILE_ROW + left * 16, x = at + AT_ROWS + k * MIXED_ROW + right * 16;
        const float4 w0 = shared_at<float4>(w), w1 = shared_at<float4>(w + TILE_SIDE / 2 * 4);
        const float4 x0 = shared_at<float4>(x), x1 = shared_at<float4>(x + MIXED_COLUMNS / 2 * 4);
        const float p[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
        const float c[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) sum[i][j] = fmaf(p[i], c[j], sum[i][j]);
        }
    };
    find(0);
    load(0);
    find(1);
    put(0);
    __syncthreads();
#pragma unroll 1
    for (u32 tile = 0; tile < tiles; tile++) {
        const u32 at = tile % 2 * MIXED_STAGE;
        if (tile + 1 < tiles) {
            load(tile + 1);
            find(tile + 2);
        }
        // What lies behind position n is no weight of 0: a sum of -0 would become +0.
        const u32 count = a.n - tile * DEPTH;
        if (count >= DEPTH) {
#pragma unroll
            for (u32 k = 0; k < DEPTH; k++) add(at, k);
        } else {
#pragma unroll 1
            for (u32 k = 0; k < count; k++) add(at, k);
        }
        if (tile + 1 < tiles) put(tile + 1);
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        const u32 head = first_head + i / 4 * (TILE_SIDE / 2) + left * 4 + i % 4;
        if (head >= heads) continue;
        float* to = out + size_t(head) * FAST_LATENT + column + right * 4;
        *reinterpret_cast<float4*>(to) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        *reinterpret_cast<float4*>(to + MIXED_COLUMNS / 2) = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
}
