// Types and single instructions. No toolkit header: the run-time compiler has none.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define DEV static __device__ __forceinline__

constexpr u32 WARP = 32;
constexpr u32 ALL = 0xffffffffu;

// The exact value of an IEEE half.
DEV float half_value(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// To the nearest half, ties to even; too large becomes infinity.
DEV u16 nearest_half(float x) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

// c + the four products of signed bytes.
DEV i32 dp4a(u32 a, u32 b, i32 c) {
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
    return c;
}

// Four bytes of the eight of (a, b), chosen by nibbles of `selector`.
DEV u32 choose(u32 a, u32 b, u32 selector) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
    return out;
}

template <typename T>
DEV T lane_xor(T value, u32 mask) {
    return __shfl_xor_sync(ALL, value, mask);
}

DEV u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Sixteen bytes from device memory to shared memory, both aligned to 16. Without the copy instruction (before sm_80) through a
// register.
DEV void copy16(u8* to, const u8* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
#endif
}

// Four bytes.
DEV void copy4(u8* to, const float* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
    *reinterpret_cast<float*>(to) = *from;
#endif
}

// Ends a group of copies of this thread.
DEV void copies_end() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `N` of this thread's groups are under way.
template <int N>
DEV void copies_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// Waits for what the kernel before wrote, where the launch lets this one begin early.
DEV void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel begin; it waits for this one's end before it reads what this one wrote.
DEV void let_successor_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// All of the block's shared memory. Places in it are byte offsets, so that the compiler knows which memory is meant.
extern __shared__ __align__(16) u8 smem[];

template <typename T>
DEV T& shared_at(u32 offset) {
    return *reinterpret_cast<T*>(smem + offset);
}

// `N` words from any offset; up to 3 bytes behind them are read.
template <int N>
DEV void words(u32 from, u32 (&out)[N]) {
    // One address and constant distances: offsets, which may wrap, would each need an addition.
    const u32* const aligned = &shared_at<u32>(from & ~3u);
    const u32 shift = (from & 3) * 8;
    u32 low = aligned[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const u32 high = aligned[i + 1];
        out[i] = __funnelshift_r(low, high, shift);
        low = high;
    }
}

// Half at an even offset.
DEV float half_at(u32 offset) { return half_value(shared_at<u16>(offset)); }

DEV u32 byte_of(u32 word, u32 at) { return (word >> (8 * at)) & 255; }

DEV i32 signed_byte_of(u32 word, u32 at) { return i32(word << (24 - 8 * at)) >> 24; }

// A barrier on which copies of whole stretches count their bytes; on chips without them nothing.
DEV void arrivals_begin(u64* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
#endif
}

DEV void arrivals_are_visible() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

DEV void arrivals_expect(u64* barrier, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
#endif
}

DEV void copy_stretch(u8* to, const u8* from, u32 bytes, u64* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
#endif
}

DEV void arrivals_wait(u64* barrier, u32 phase) {
#if __CUDA_ARCH__ >= 900
    u32 done = 0;
    while (!done) {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(phase)
            : "memory");
    }
#endif
}
