// How the bytes of 256 weights and activations are shared out among the lanes of a product.
//
// 256 bytes are four chunks of 64. A chunk has four groups of sixteen, each with a scale of its own at most; a group has four words.
// Lane t of a product (mma.cuh) takes word t of every group, or all words of a run of 32: sums of integers have no order, so any
// words will do as long as weights and activations agree. Word t of group j of a column's activations lies at word 4t + j of its
// chunk: one read of sixteen bytes gives a lane its words of all groups, one of eight bytes those of a run.
//
// A lane unpacks the very words that it multiplies, of rows g and g + 8; they never leave its registers. Weights that have integer scales
// are multiplied by them, sixteen bits in two digits: the low byte, without a sign, and the high byte. Two products of bytes
// then give a sum, and no product of a group has to be multiplied by itself, which took more time than the tensor cores do.
#pragma once
#include "mma.cuh"

constexpr u32 CHUNK = 64;

// `shared_at` with a distance that the compiler knows, which then goes into the instruction: a sum of two u32 may wrap, so it would
// be made first, one instruction for each read.
template <typename T>
DEV T& shared_beyond(u32 offset, u32 distance) {
    return *reinterpret_cast<T*>(smem + offset + distance);
}

// Where sixteen `t` of a column's chunk lies; `columns` columns a tile. Sixteens of neighbouring columns are exchanged so that eight
// lanes meet all banks, those of chunks so that sixteen lanes do that read eight bytes each, of two chunks (runs t, t = 0..3): without
// it such a read took twice as long.
DEV u32 exchange_of(u32 chunk) { return chunk % 2 * 2 + chunk / 2; }
DEV u32 x_sixteen(u32 columns, u32 chunk, u32 column, u32 t) {
    return (chunk * columns + column) * CHUNK + ((t ^ (column >> 1 & 3) ^ exchange_of(chunk)) << 4);
}
