// The tree of docs/ARITHMETIC.md over partial sums that come one after the other, for N sums at once.
#pragma once
#include "base.cuh"

// Takes partials 0, 1, ... of `total`, a power of two. A level's left partial waits for its right one: those of the first HELD
// levels in registers, the others, which come once in 2^HELD partials, in `more`.
template <u32 N, u32 HELD, u32 MORE>
struct Partials {
    float held[HELD > 0 ? HELD : 1][N];

    // True once `v` is the sum of all. `more` is no member: an array with an index that varies would take `held` to memory.
    __device__ __forceinline__ bool push(float (&v)[N], u32 index, u32 total, float (&more)[MORE][N]) {
        return from<0>(v, index, total, more);
    }

    // A template a level and no loop: the compiler would not unroll one that is left in three places.
    template <u32 LEVEL>
    __device__ __forceinline__ bool from(float (&v)[N], u32 index, u32 total, float (&more)[MORE][N]) {
        if constexpr (LEVEL < HELD) {
            if (total >> LEVEL == 1) return true;
            if (!(index >> LEVEL & 1)) {
#pragma unroll
                for (u32 i = 0; i < N; i++) held[LEVEL][i] = v[i];
                return false;
            }
#pragma unroll
            for (u32 i = 0; i < N; i++) v[i] = held[LEVEL][i] + v[i];
            return from<LEVEL + 1>(v, index, total, more);
        } else {
            u32 level = HELD;
            for (; total >> level != 1 && (index >> level & 1); level++) {
#pragma unroll
                for (u32 i = 0; i < N; i++) v[i] = more[level - HELD][i] + v[i];
            }
            if (total >> level == 1) return true;
#pragma unroll
            for (u32 i = 0; i < N; i++) more[level - HELD][i] = v[i];
            return false;
        }
    }
};
