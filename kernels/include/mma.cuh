// Products of small matrices of signed bytes by a warp, exact in i32. What a chip lacks is put together from what it has.
//
// A lane is (g, t): g = lane / 4, t = lane % 4. Of `a` it has bytes 4t to 4t + 3 of rows g (a0) and g + 8 (a1), of `b` the same
// bytes of column g, and of the result rows g and g + 8, columns 2t and 2t + 1: c[0], c[1] and c[2], c[3]. Since sums of integers
// have no order, "bytes 4t to 4t + 3" may be any bytes as long as `a` and `b` agree.
#pragma once
#include "packed.cuh"

// c += a * b, 16 deep, on Volta, whose tensor cores have no integers: every lane gathers its two rows and two columns. It is called
// and not copied: hundreds of copies took the compiler minutes and gigabytes.
template <bool UNSIGNED>
static __device__ __noinline__ int4 gathered_product(int4 c, u32 a0, u32 a1, u32 b) {
    const u32 lane = threadIdx.x % WARP, row = lane & ~3u, column = lane % 4 * 8;
    auto dot = [](u32 w, u32 x, i32 sum) { return UNSIGNED ? dp4a_unsigned(w, x, sum) : dp4a(w, x, sum); };
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 top = __shfl_sync(ALL, a0, row + i), low = __shfl_sync(ALL, a1, row + i);
        const u32 left = __shfl_sync(ALL, b, column + i), right = __shfl_sync(ALL, b, column + 4 + i);
        c.x = dot(top, left, c.x), c.y = dot(top, right, c.y);
        c.z = dot(low, left, c.z), c.w = dot(low, right, c.w);
    }
    return c;
}

// c += a * b, 16 deep, on chips before sm_80.
template <bool UNSIGNED>
DEV void add_product_16(i32 (&c)[4], u32 a0, u32 a1, u32 b) {
#if __CUDA_ARCH__ >= 750
    if constexpr (UNSIGNED) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(b));
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[2]), "+r"(c[3]) : "r"(a1), "r"(b));
    } else {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(b));
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[2]), "+r"(c[3]) : "r"(a1), "r"(b));
    }
#else
    const int4 sum = gathered_product<UNSIGNED>(make_int4(c[0], c[1], c[2], c[3]), a0, a1, b);
    c[0] = sum.x, c[1] = sum.y, c[2] = sum.z, c[3] = sum.w;
#endif
}

// c += a * b, 32 deep: a0, a1, b0 for the first sixteen, a2, a3, b1 for the others. UNSIGNED: the bytes of `a` have no sign.
template <bool UNSIGNED>
DEV void add_product_32(i32 (&c)[4], const uint4& a, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (UNSIGNED) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
    }
#else
    add_product_16<UNSIGNED>(c, a.x, a.y, b0);
    add_product_16<UNSIGNED>(c, a.z, a.w, b1);
#endif
}

// c = a * b, 32 deep, with signs.
DEV void product_32(i32 (&c)[4], const uint4& a, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(0));
#else
    c[0] = c[1] = c[2] = c[3] = 0;
    add_product_16<false>(c, a.x, a.y, b0);
    add_product_16<false>(c, a.z, a.w, b1);
#endif
}

// c = a * b, 16 deep, with signs.
DEV void product_16(i32 (&c)[4], u32 a0, u32 a1, u32 b) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
#else
    c[0] = c[1] = c[2] = c[3] = 0;
    add_product_16<false>(c, a0, a1, b);
#endif
}
