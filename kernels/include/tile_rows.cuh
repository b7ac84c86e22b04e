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
DEV float4 four_at(u32 offset) { return shared_at<float4>(offset); }

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

// ---- eight by eight
//
// Where a block may have 227 KB of shared memory, a thread has eight left by eight right vectors and four neighbouring lanes of
// the dot order: a 16-byte read for 16 multiply-adds instead of 10.7, half of what shared memory delivers instead of three
// quarters. Two levels of the lanes' tree stay in the thread, for which three times 64 registers are enough, and the other three
// go over the eight threads that share a tile: each gives away half of its sums a level and is left with one right vector's. A
// warp has two by two tiles, a block 64 by 32 vectors.
//
// Element 32 s + 4 g + l of a block of 256 is row (4 s + l) * 8 + g of shared memory; group g of threads reads no other rows. A
// place is four vectors. Row g's places are changed by 2 (g % 4), for half a warp's reads to be in all banks. Right vector j of a
// tile is where j with g's bits in reverse changed would be: what a thread keeps is then always in the same registers.

// What the device's multiprocessors have room for; the host launches EIGHT_THREADS only where they do.
constexpr bool MAY_EIGHT = __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200;
constexpr u32 EIGHT_THREADS = 256;
constexpr u32 EIGHT_RIGHT = 32;                  // right vectors of a block
constexpr u32 LEFT_ROW = TILE_SIDE * 4, RIGHT_ROW = EIGHT_RIGHT * 4;

typedef float Eights[8][8];

// Of eight tiles of left vectors, four of right ones, and eight groups of lanes: neighbouring threads share right vectors, those
// two apart left ones.
DEV u32 eight_left(u32 tid) { return (tid & 1) | (tid >> 4 & 6); }
DEV u32 eight_right(u32 tid) { return (tid >> 1 & 1) | (tid >> 6 & 2); }
DEV u32 eight_group(u32 tid) { return tid >> 2 & 7; }

// The right vector of its tile that a thread is left with.
DEV u32 eight_kept(u32 group) { return (group >> 2) | (group & 2) | (group & 1) << 2; }

// Where the thread's four left vectors are in its first row; four more are 128 bytes on. And its right ones: four more at the
// address with bit 64 changed.
DEV u32 eight_left_at(u32 tid) {
    const u32 group = eight_group(tid);
    return group * LEFT_ROW + (eight_left(tid) ^ 2 * (group % 4)) * 16;
}
DEV u32 eight_right_at(u32 tid) {
    const u32 group = eight_group(tid);
    return group * RIGHT_ROW + (eight_right(tid) ^ 2 * (group % 4)) * 16;
}

template <u32 STEPS>
DEV void eight_lane(const u8* left, const u8* first, const u8* second, Eights& sum) {
#pragma unroll
    for (u32 s = 0; s < STEPS; s++) {
        const u32 at = s * WARP;
        const float4 a = four_at(left + at * LEFT_ROW), b = four_at(left + at * LEFT_ROW + 128);
        const float4 x = four_at(first + at * RIGHT_ROW), y = four_at(second + at * RIGHT_ROW);
        const float q[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, k[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) sum[i][j] = fmaf(q[i], k[j], s == 0 ? 0.0f : sum[i][j]);
        }
    }
}

DEV void eights_add(Eights& to, const Eights& a, const Eights& b) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
#pragma unroll
        for (u32 j = 0; j < 8; j++) to[i][j] = a[i][j] + b[i][j];
    }
}

// Products of STEPS * 32 elements, at most 256: sum[i] is left vector i's with right vector eight_kept(group).
template <u32 STEPS>
DEV void eight_sums(u32 left, u32 right, float (&sum)[8]) {
    Eights waiting;
#pragma unroll 1
    for (u32 pair = 0; pair < 2; pair++) {
        Eights x, y;
        // Pointers and not offsets, whose constant parts would be additions.
        const u8* const l = smem + left + pair * 2 * OCTET * LEFT_ROW;
        const u8* const r = smem + right + pair * 2 * OCTET * RIGHT_ROW;
        const u8* const second = smem + (right ^ 64) + pair * 2 * OCTET * RIGHT_ROW;
        eight_lane<STEPS>(l, r, second, x);
        eight_lane<STEPS>(l + OCTET * LEFT_ROW, r + OCTET * RIGHT_ROW, second + OCTET * RIGHT_ROW, y);
        // The branches add in different places and orders, or there would be copies of 64 registers.
        if (pair == 0) {
            eights_add(waiting, y, x);
        } else {
            eights_add(x, x, y);
            eights_add(waiting, waiting, x);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) waiting[i][j] = waiting[i][j] + lane_xor(waiting[i][j + 4], 4);
#pragma unroll
        for (u32 j = 0; j < 2; j++) waiting[i][j] = waiting[i][j] + lane_xor(waiting[i][j + 2], 8);
        sum[i] = waiting[i][0] + lane_xor(waiting[i][1], 16);
    }
}

// Four left vectors' elements 4 g to 4 g + 3 of step s into their rows: the upper or lower `half` of tile `tile`.
DEV void eight_put_left(u32 block, u32 s, u32 g, u32 tile, u32 half, const float4 (&v)[4]) {
    const u32 to = block + (s * WARP + g) * LEFT_ROW + (tile ^ 2 * (g % 4)) * 16 + half * 128;
    shared_at<float4>(to) = make_float4(v[0].x, v[1].x, v[2].x, v[3].x);
    shared_at<float4>(to + OCTET * LEFT_ROW) = make_float4(v[0].y, v[1].y, v[2].y, v[3].y);
    shared_at<float4>(to + 2 * OCTET * LEFT_ROW) = make_float4(v[0].z, v[1].z, v[2].z, v[3].z);
    shared_at<float4>(to + 3 * OCTET * LEFT_ROW) = make_float4(v[0].w, v[1].w, v[2].w, v[3].w);
}

// Right vectors come by fours: those of the upper or lower half of a tile, in the order in which group g's rows want them. The
// order is the same for groups 2 n and 2 n + 1, so a thread may fill both: its m-th is vector m ^ eight_order(g) of the four.
DEV u32 eight_order(u32 g) { return (g & 2) | g >> 2; }

DEV void eight_put_right(u32 block, u32 s, u32 g, u32 tile, u32 half, const float4 (&v)[4]) {
    const u32 to = block + (s * WARP + g) * RIGHT_ROW + ((tile | (half ^ (g & 1)) << 2) ^ 2 * (g % 4)) * 16;
    shared_at<float4>(to) = make_float4(v[0].x, v[1].x, v[2].x, v[3].x);
    shared_at<float4>(to + OCTET * RIGHT_ROW) = make_float4(v[0].y, v[1].y, v[2].y, v[3].y);
    shared_at<float4>(to + 2 * OCTET * RIGHT_ROW) = make_float4(v[0].z, v[1].z, v[2].z, v[3].z);
    shared_at<float4>(to + 3 * OCTET * RIGHT_ROW) = make_float4(v[0].w, v[1].w, v[2].w, v[3].w);
}
