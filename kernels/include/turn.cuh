// Whose token a row of a pass is. Slots of sequences are laid out alike, so an address in one is that in the first and an offset.
#pragma once
#include "base.cuh"

struct Turn {
    u64 slot;      // bytes from the first slot to the sequence's
    u32 position;  // tokens before this one
    u32 reserved;
};
static_assert(sizeof(Turn) == 16, "crates/glm-graph/src/cuda/abi.rs");

// The turn of a block: rows of a pass are the grid's third dimension.
DEV Turn turn_of(const Turn* turns) {
    const uint4 words = *reinterpret_cast<const uint4*>(turns + blockIdx.z);
    return {u64(words.y) << 32 | words.x, words.z, words.w};
}

template <typename T>
DEV T* in_slot(T* of_first, const Turn& turn) {
    return reinterpret_cast<T*>(reinterpret_cast<size_t>(of_first) + turn.slot);
}

// What a pass has for this block's row; `each` values a row.
template <typename T>
DEV T* of_row(T* of_first, size_t each) {
    return of_first + blockIdx.z * each;
}
