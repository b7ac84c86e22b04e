// Many dot products in dot order (docs/ARITHMETIC.md) at once: a tile of 64 left vectors by 64 right ones, every product by a
// single thread.
//
// A thread does eight left by four right vectors, as in any matrix product: three 16-byte reads of shared memory for 32
// multiply-adds. What the dot order adds is the tree over 32 partial sums: 31 additions for a block of 256 elements, in registers
// while the sums come up, where trees over lanes would take four instructions for each. At most one sum a level waits, so the
// whole takes 6 times 32 registers. Vectors come to shared memory eight lanes of the dot order at a time (an octet: 8 times 8
// elements of a block of 256).
#pragma once
#include "base.cuh"

constexpr u32 TILE_THREADS = 128;
constexpr u32 TILE_SIDE = 64;
constexpr u32 TILE_LEFT = 8, TILE_RIGHT = 4;  // of a thread
constexpr u32 OCTET = 8;                      // lanes whose elements are in shared memory at once
constexpr u32 OCTETS = WARP / OCTET;
// Lanes of a turn of the loop: 2, 4 or 8. With 8 the loop is 40 KB of code, more than the caches next to the cores hold.
constexpr u32 PART_LANES = 4;
constexpr u32 OCTET_PARTS = OCTET / PART_LANES;
constexpr u32 TILE_LEVELS = PART_LANES == 8 ? 2 : PART_LANES == 4 ? 3 : 4;  // of the tree, above a part's
// Bytes of one element of all 64 vectors. Sixteen more than 256, for eight elements of four vectors to be written to 32 banks.
constexpr u32 TILE_ROW = (TILE_SIDE + 4) * 4;

typedef float TileSums[TILE_LEFT][TILE_RIGHT];

// Where a thread is in the tile: of eight groups of left vectors and 16 of right ones. Neighbouring lanes share a group of right
// vectors, lanes two apart one of left vectors: then a read is one pass over the banks for each half of a warp.
DEV u32 tile_left(u32 tid) { return (tid & 1) | (tid >> 3 & 2) | (tid >> 3 & 4); }
DEV u32 tile_right(u32 tid) { return (tid >> 1 & 7) | (tid >> 3 & 8); }

// to = a + b.
DEV void tile_add(TileSums& to, const TileSums& a, const TileSums& b) {
#pragma unroll
    for (u32 i = 0; i < TILE_LEFT; i++) {
#pragma unroll
        for (u32 j = 0; j < TILE_RIGHT; j++) to[i][j] = a[i][j] + b[i][j];
    }
}

DEV float4 four_at(const u8* place) { return *reinterpret_cast<const float4*>(place); }

// Sums over LANES neighbouring lanes of an octet, added as the tree adds them. Elements lie in shared memory as
// [step of 32 elements][lane][vector]; the thread's left vectors are four and, SECOND bytes behind them, four more.
template <u32 STEPS, u32 SECOND, u32 LANES>
DEV void tile_lanes(const u8* left, const u8* right, TileSums& sum) {
    if constexpr (LANES == 1) {
#pragma unroll
        for (u32 s = 0; s < STEPS; s++) {
            const u32 at = s * OCTET * TILE_ROW;
            const float4 a = four_at(left + at), b = four_at(left + at + SECOND), x = four_at(right + at);
            const float q[TILE_LEFT] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, k[TILE_RIGHT] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (u32 i = 0; i < TILE_LEFT; i++) {
#pragma unroll
                for (u32 j = 0; j < TILE_RIGHT; j++) sum[i][j] = fmaf(q[i], k[j], s == 0 ? 0.0f : sum[i][j]);
            }
        }
    } else {
        constexpr u32 HALF = LANES / 2;
        TileSums other;
        tile_lanes<STEPS, SECOND, HALF>(left, right, sum);
        tile_lanes<STEPS, SECOND, HALF>(left + HALF * TILE_ROW, right + HALF * TILE_ROW, other);
        tile_add(sum, sum, other);
    }
}

// The upper levels of a block's tree, which a loop over parts carries: bit L of a part's number says whether a sum of that level
// waits for its neighbour or has one waiting. Every sum is added to where it waits, for a copy of registers would take as long as
// an addition; the branches name the operands in different orders, or the compiler would add before it branches, and copy.
template <u32 LEVEL, typename Finish>
DEV void tile_carry(u32 part, const TileSums& x, TileSums& y, TileSums (&waiting)[TILE_LEVELS], Finish finish) {
    if constexpr (LEVEL == TILE_LEVELS) {
        tile_add(y, x, y);
        finish(y);
    } else if ((part >> LEVEL & 1) == 0) {
        tile_add(waiting[LEVEL], y, x);
    } else {
        tile_add(y, x, y);
        tile_carry<LEVEL + 1>(part, waiting[LEVEL], y, waiting, finish);
    }
}

// One part; they are numbered through a block, octet by octet. After the last one `finish(sum)` gets the block's sums.
template <u32 STEPS, u32 SECOND, typename Finish>
DEV void tile_part(u32 part, const u8* left, const u8* right, TileSums (&waiting)[TILE_LEVELS], Finish finish) {
    constexpr u32 HALF = PART_LANES / 2;
    TileSums sum, other;
    tile_lanes<STEPS, SECOND, HALF>(left, right, sum);
    tile_lanes<STEPS, SECOND, HALF>(left + HALF * TILE_ROW, right + HALF * TILE_ROW, other);
    tile_carry<0>(part, sum, other, waiting, finish);
}
