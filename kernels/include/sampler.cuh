// What the kernels of a draw share (docs/ARITHMETIC.md, "Draws"; crates/glm-graph/src/sampler/draw.rs): masses are whole numbers,
// so their sums are the same in any order, and every cut and the draw itself are places in one order of all candidates: larger
// logits first, of equal ones the lower token.
#pragma once
#include "canon.cuh"

constexpr u32 SAMPLE_THREADS = 1024;
constexpr u32 BINS = 1024;        // a bin is 1/32 of a logit wide, below the largest; the last one takes the rest
constexpr float BINS_EACH = 32.0f;

constexpr u32 NO_DRAW = 0;  // only faults are told
constexpr u32 GREEDY = 1;
constexpr u32 DRAW = 2;
constexpr u32 NO_TOKEN = ALL;

// How a step draws.
struct Drawing {
    u32* sampled;       // where the next step finds the token
    u32* answer;        // token and fault, in the host's memory
    const float* bias;  // [vocab]: added to logits, a NaN bans; null where there is none
    const u32* counts;  // [vocab]: how often a token was seen; null without penalties
    u64 draw;           // 53 bits
    u32 mode, top_k;    // top_k is at most the vocabulary
    float temperature, top_p;
    float lowest;       // of logits less the largest one, of what may be drawn; at most 0
    float repetition, presence, frequency;
};
static_assert(sizeof(Drawing) == 72, "crates/glm-graph/src/cuda/abi.rs");

// What a draw needs beside the logits. `begin` sets all of it.
struct Choice {
    Drawing drawing;
    u64 best;           // the largest of the keys below
    u32 ended, reserved;
    u32 counts[BINS];   // candidates of a bin
    u32 listed[BINS];   // of these, how many were listed
    u64 masses[BINS];   // sums of them at temperature 1
    u64 weights[BINS];  // and at the temperature
};
static_assert(sizeof(Choice) == 88 + 24 * BINS, "crates/glm-graph/src/cuda/abi.rs");

// A candidate's place is its `key_of` (canon.cuh).
DEV u32 token_of(u64 key) { return ALL - u32(key); }

// The logit of a key that is no NaN's; that of -0 is +0.
DEV float logit_of(u64 key) {
    const i32 rank = i32(u32(key >> 32) ^ 0x80000000u);
    return bits(u32(rank ^ i32(u32(rank >> 31) >> 1)));
}

// Adjusted logits end here: a draw has no use for infinity.
DEV float finite_above(float logit) { return logit == bits(0x7f800000u) ? bits(0x7f7fffffu) : logit; }

// A probability's share of the largest one, in units of 2^-40; `below` is how much smaller the logit is, at most 0.
DEV u64 mass_of(float below) { return u64(canon_exp(below) * 1099511627776.0f); }

DEV u32 bin_of(float below) {
    const float down = -below * BINS_EACH;
    return down < float(BINS - 1) ? u32(down) : BINS - 1;
}

// What another block of this kernel wrote: past the first-level cache.
DEV u64 fresh_key(const u64* from) {
    u64 value;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

// ---- sums over a block of SAMPLE_THREADS threads; places in shared memory

constexpr u32 AT_TOTALS = 0;                // of 32 warps
constexpr u32 AT_FOUND = AT_TOTALS + 32 * 8;
constexpr u32 AT_COUNTS = AT_FOUND + 64;    // what lies before each bin
constexpr u32 AT_MASSES = AT_COUNTS + BINS * 4;
constexpr u32 AT_WEIGHTS = AT_MASSES + BINS * 8;
constexpr u32 AT_SUMS = AT_WEIGHTS + BINS * 8;  // of digits
constexpr u32 AT_TALLY = AT_SUMS + BINS * 8;
constexpr u32 FEW = 256;                    // keys that are compared with each other
constexpr u32 AT_KEYS = AT_TALLY + BINS * 4;
constexpr u32 AT_OWN = AT_KEYS + FEW * 8;
constexpr u32 SAMPLE_SHARED = AT_OWN + FEW * 8;

// What lies before this thread's value in the sum over all threads, and the whole sum. Ends with a barrier.
template <typename T>
DEV T sum_before(T value, T& all) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    T sum = value;
    for (u32 step = 1; step < WARP; step *= 2) {
        const T left = __shfl_up_sync(ALL, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == WARP - 1) shared_at<T>(AT_TOTALS + warp * 8) = sum;
    __syncthreads();
    const T own = shared_at<T>(AT_TOTALS + lane * 8);
    T totals = own;
    for (u32 step = 1; step < WARP; step *= 2) {
        const T left = __shfl_up_sync(ALL, totals, step);
        if (lane >= step) totals += left;
    }
    all = __shfl_sync(ALL, totals, WARP - 1);
    const T before = __shfl_sync(ALL, totals - own, warp);
    __syncthreads();
    return before + sum - value;
}

// The one thread whose values hold place `target` of the sum tells its index; the sum is larger than `target`. What lies before
// it is left in `before`. Begins after a barrier and ends with one.
template <typename T>
DEV u32 find_place(T own, T own_before, u64 target, u64& before) {
    if (own_before <= target && target < u64(own_before) + own) {
        shared_at<u64>(AT_FOUND) = own_before;
        shared_at<u32>(AT_FOUND + 8) = threadIdx.x;
    }
    __syncthreads();
    before = shared_at<u64>(AT_FOUND);
    const u32 found = shared_at<u32>(AT_FOUND + 8);
    __syncthreads();
    return found;
}

// ---- selection in a list of keys

DEV u64 upper_bits(u64 key, u32 shift) { return shift < 64 ? key >> shift : 0; }

// The sum of `weigh(key)` over a list, known to every thread.
template <typename Weigh>
DEV u64 sum_over(const u64* list, u32 n, Weigh weigh) {
    u64 sum = 0, all;
    for (u32 i = threadIdx.x; i < n; i += SAMPLE_THREADS) sum += weigh(fresh_key(list + i));
    sum_before(sum, all);
    return all;
}

// How many low bits the keys of a list differ in, at most.
DEV u32 differing_bits(const u64* list, u32 n) {
    const u64 first = fresh_key(list);
    u64 differ = 0;
    for (u32 i = threadIdx.x; i < n; i += SAMPLE_THREADS) differ |= fresh_key(list + i) ^ first;
    for (u32 mask = 1; mask < WARP; mask *= 2) differ |= lane_xor(differ, mask);
    if (threadIdx.x % WARP == 0) shared_at<u64>(AT_TOTALS + threadIdx.x / WARP * 8) = differ;
    __syncthreads();
    differ = shared_at<u64>(AT_TOTALS + threadIdx.x % WARP * 8);
    for (u32 mask = 1; mask < WARP; mask *= 2) differ |= lane_xor(differ, mask);
    __syncthreads();
    return 64 - __clzll((long long)differ);
}

// The key that place `target` of the sum of `weigh(key)` falls on, keys taken from the largest to the smallest; the sum over the
// `n` keys is larger than `target`. Digits of ten bits narrow the list down until each key can be compared with each other.
template <typename Weigh>
DEV u64 select(const u64* list, u32 n, u64 target, Weigh weigh) {
    u32 shift = 64, left = n;
    u64 upper = 0;
    while (left > FEW) {
        if (shift == 64) {
            shift = differing_bits(list, n);
            upper = upper_bits(fresh_key(list), shift);
        }
        const u32 next = shift > 10 ? shift - 10 : 0;
        const u32 digits = 1u << (shift - next);
        shared_at<u64>(AT_SUMS + threadIdx.x * 8) = 0;
        shared_at<u32>(AT_TALLY + threadIdx.x * 4) = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
            const u64 key = fresh_key(list + i);
            if (upper_bits(key, shift) != upper) continue;
            // Larger keys come first.
            const u32 digit = digits - 1 - (u32(key >> next) & (digits - 1));
            atomicAdd(&shared_at<u64>(AT_SUMS + digit * 8), weigh(key));
            atomicAdd(&shared_at<u32>(AT_TALLY + digit * 4), 1u);
        }
        __syncthreads();
        const u64 own = shared_at<u64>(AT_SUMS + threadIdx.x * 8);
        u64 all, before;
        const u64 own_before = sum_before(own, all);
        const u32 digit = find_place(own, own_before, target, before);
        left = shared_at<u32>(AT_TALLY + digit * 4);
        target -= before;
        upper = upper << (shift - next) | (digits - 1 - digit);
        shift = next;
        __syncthreads();
    }
    if (threadIdx.x == 0) shared_at<u32>(AT_FOUND + 16) = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
        const u64 key = fresh_key(list + i);
        if (upper_bits(key, shift) != upper) continue;
        const u32 at = atomicAdd(&shared_at<u32>(AT_FOUND + 16), 1u);
        shared_at<u64>(AT_KEYS + at * 8) = key;
        shared_at<u64>(AT_OWN + at * 8) = weigh(key);
    }
    __syncthreads();
    if (threadIdx.x < left) {
        const u64 key = shared_at<u64>(AT_KEYS + threadIdx.x * 8), own = shared_at<u64>(AT_OWN + threadIdx.x * 8);
        u64 before = 0;
        for (u32 i = 0; i < left; i++) {
            if (shared_at<u64>(AT_KEYS + i * 8) > key) before += shared_at<u64>(AT_OWN + i * 8);
        }
        if (before <= target && target < before + own) shared_at<u64>(AT_FOUND) = key;
    }
    __syncthreads();
    const u64 key = shared_at<u64>(AT_FOUND);
    __syncthreads();
    return key;
}
