// Weights of `TM` rows, 256 of each, as bytes in shared memory, and the activations they meet.
//
// 256 bytes are four chunks of 64. A chunk has four groups of sixteen, each with a scale of its own at most; a group has four words, of
// which lane t of a product (mma.cuh) takes word t.
//
// Activations: word t of group j of a column lies at word 4t + j of its chunk, so one read of sixteen bytes gives a lane its words of all
// groups.
//
// Weights that have integer scales come multiplied by them, sixteen bits in two digits: the low byte, without a sign, in one plane,
// the high byte in another. Two products of bytes with all weights then give the sum, and no product of a group has to be
// multiplied by itself, which took more time than the tensor cores do. Weights: rows g and g + 8 of sixteen belong to one lane, so they lie together: sixteen bytes are words t of two groups of
// both rows, {g, g + 8, g, g + 8}, which are neighbouring registers as the tensor cores want them.
#pragma once
#include "mma.cuh"

constexpr u32 CHUNK = 64;

// Where sixteen `t` of a column's chunk lies; `columns` columns a tile. Sixteens of neighbouring columns are exchanged so that eight
// lanes meet all banks.
DEV u32 x_sixteen(u32 columns, u32 chunk, u32 column, u32 t) {
    return (chunk * columns + column) * CHUNK + ((t ^ (column >> 1 & 3)) << 4);
}

// Places of a tile of weights relative to its beginning. DIGITS planes of bytes; FACTORS floats a row: one for 256 weights, or one for
// each 32.
template <u32 TM, u32 DIGITS, u32 FACTORS>
struct Tile {
    static constexpr u32 PLANE = TM * 256, PAD = TM + 8;   // PAD: four lanes of a row write to different banks
    static constexpr u32 MINS = DIGITS * PLANE;            // [chunk][PAD] words: a byte a group
    static constexpr u32 D = MINS + 16 * PAD;              // [FACTORS][PAD] floats
    static constexpr u32 M = D + 4 * FACTORS * PAD;        // the same, of minima
    static constexpr u32 BYTES = M + 4 * FACTORS * PAD;

    // Sixteen `t` of a run of 32 (two groups) of rows g and g + 8 of sixteen rows. Those of four runs are exchanged, so that four
    // lanes that write a run each meet different banks.
    DEV u32 sixteen(u32 run, u32 rows16, u32 g, u32 t) {
        return ((run / 2 * (TM / 16) + rows16) * 2 + run % 2) * 512 + (g * 4 + (t ^ run % 4)) * 16;
    }
};
