// Kernels of two phases: the block that ends last goes on with what all have written. Nobody waits for it.
#pragma once
#include "base.cuh"

// Adds a block to those that have ended; returns how many had. Releases what the block wrote, and acquires what the others did: one
// thread's barriers order what the whole block did before and does after.
DEV u32 count_ended(u32* ended) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(ended) : "memory");
    return before;
}

// Whether the block is the last of `blocks`; `ended` is 0 before the first and after the last. All threads call it. A fence of
// every thread, and a second one behind the count, would be two more waits for the second level cache, of about 700 cycles each.
DEV bool is_last(u32* ended, u32 blocks) {
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        last = count_ended(ended) + 1 == blocks;
        if (last) *ended = 0;
    }
    return __syncthreads_or(last);
}

// What other blocks of the launch wrote: not from the first level cache, which may have older values.
DEV float load_fresh(const float* from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}

DEV float4 load_fresh4(const float* from) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    return v;
}

// Has a line brought to the second level cache.
DEV void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
