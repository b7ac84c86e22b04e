// What a kernel calls: collectives, single instructions, copies, and CUDA's own names for them. Included by emu.h.
#pragma once

namespace emu {

// ---- collectives of a warp

inline void done_nothing(Warp&, u32) {}

inline void done_shuffle(Warp& w, u32 lanes) {
    for (u32 m = lanes; m; m &= m - 1) {
        const u32 l = u32(__builtin_ctz(m)), s = w.source[l];
        if (lanes >> s & 1) {
            w.result[l] = w.value[s];
        } else {
            w.result[l] = 0xcbcbcbcbcbcbcbcbull;
            undefined_reads++;
        }
    }
}

EMU_NOINLINE u64 shuffle(u32 mask, u64 value, u32 source, const char* what) {
    Warp& w = block.warp[cur->warp];
    const u32 lane = cur->lane;
    w.value[lane] = value;
    w.source[lane] = source;
    meet(mask, done_shuffle, what, __builtin_return_address(0));
    return w.result[lane];
}

template <typename T>
inline u64 word_of(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles have 4 or 8 bytes");
    u64 word = 0;
    memcpy(&word, &value, sizeof value);
    return word;
}
template <typename T>
inline T value_of(u64 word) {
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

inline void check_width(int width) {
    if (width < 1 || width > 32 || (width & (width - 1))) EMU_DIE("a shuffle's width is a power of two");
}

template <int OP>
inline void done_vote(Warp& w, u32 lanes) {
    u32 votes = 0;
    for (u32 m = lanes; m; m &= m - 1) {
        const u32 l = u32(__builtin_ctz(m));
        if (w.value[l]) votes |= 1u << l;
    }
    const u32 result = OP == 0 ? votes : OP == 1 ? votes != 0 : votes == lanes;
    for (u32 m = lanes; m; m &= m - 1) w.result[__builtin_ctz(m)] = result;
}

template <int OP>
EMU_NOINLINE u32 vote(u32 mask, bool value) {
    Warp& w = block.warp[cur->warp];
    const u32 lane = cur->lane;
    w.value[lane] = value;
    meet(mask, done_vote<OP>, OP == 0 ? "__ballot_sync" : OP == 1 ? "__any_sync" : "__all_sync", __builtin_return_address(0));
    return u32(w.result[lane]);
}

inline void done_match(Warp& w, u32 lanes) {
    for (u32 m = lanes; m; m &= m - 1) {
        u32 same = 0;
        for (u32 o = lanes; o; o &= o - 1) {
            if (w.value[__builtin_ctz(o)] == w.value[__builtin_ctz(m)]) same |= o & -o;
        }
        w.result[__builtin_ctz(m)] = same;
    }
}
EMU_NOINLINE u32 match(u32 mask, u64 value) {
    Warp& w = block.warp[cur->warp];
    const u32 lane = cur->lane;
    w.value[lane] = value;
    meet(mask, done_match, "__match_any_sync", __builtin_return_address(0));
    return u32(w.result[lane]);
}

// 0 add, 1 min, 2 max (signed), 3 min, 4 max (unsigned), 5 and, 6 or, 7 xor
template <int OP>
inline void done_reduce(Warp& w, u32 lanes) {
    u32 all = u32(w.value[__builtin_ctz(lanes)]);
    for (u32 m = lanes & (lanes - 1); m; m &= m - 1) {
        const u32 v = u32(w.value[__builtin_ctz(m)]);
        if (OP == 0) all += v;
        if (OP == 1) all = i32(v) < i32(all) ? v : all;
        if (OP == 2) all = i32(v) > i32(all) ? v : all;
        if (OP == 3) all = v < all ? v : all;
        if (OP == 4) all = v > all ? v : all;
        if (OP == 5) all &= v;
        if (OP == 6) all |= v;
        if (OP == 7) all ^= v;
    }
    for (u32 m = lanes; m; m &= m - 1) w.result[__builtin_ctz(m)] = all;
}
template <int OP>
EMU_NOINLINE u32 reduce(u32 mask, u32 value) {
    Warp& w = block.warp[cur->warp];
    const u32 lane = cur->lane;
    w.value[lane] = value;
    meet(mask, done_reduce<OP>, "__reduce_sync", __builtin_return_address(0));
    return u32(w.result[lane]);
}

EMU_NOINLINE void sync_warp(u32 mask) { meet(mask, done_nothing, "__syncwarp", __builtin_return_address(0)); }
EMU_NOINLINE void sync_threads() { barrier(0, 0, false, true, "__syncthreads", __builtin_return_address(0)); }
EMU_NOINLINE u32 sync_threads_count(bool vote) {
    barrier(0, 0, vote, true, "__syncthreads_count/or/and", __builtin_return_address(0));
    return block.barrier[0].result_count;
}
// bar.sync and bar.arrive
EMU_NOINLINE void bar_sync(u32 number, u32 n) { barrier(number, n, false, true, "bar.sync", __builtin_return_address(0)); }
EMU_NOINLINE void bar_arrive(u32 number, u32 n) { barrier(number, n, false, false, "bar.arrive", __builtin_return_address(0)); }

// ---- mma, signed bytes: D = A (row) x B (column) + C

struct Mma {
    i32* c;
    u32 a[4], b[2];
};

// M 16 or 8, N 8, K 16 or 32: PTX ISA, "Matrix fragments". A row's words: lane = row % 8 * 4 + k % 16 / 4, word = row / 8 + k / 16 * (M / 8).
template <u32 M, u32 K, bool UNSIGNED>
inline void done_mma(Warp& w, u32 lanes) {
    if (lanes != 0xffffffffu) die("mma without all lanes", fibers[w.number * 32].where);
    // Words of two halves: a's of a row, b's of all eight columns, so that one instruction multiplies and adds four columns' pairs.
    alignas(16) u32 a[M][K / 2], b[K / 2][8];
    for (u32 l = 0; l < 32; l++) {
        const Mma& own = *(const Mma*)w.value[l];
        for (u32 half = 0; half < K / 16; half++) {
            const u32 pair = half * 8 + l % 4 * 2;
            for (u32 up = 0; up < M / 8; up++) {
                const __m128i bytes = _mm_cvtsi32_si128(i32(own.a[up + half * (M / 8)]));
                _mm_storel_epi64((__m128i*)&a[up * 8 + l / 4][pair], UNSIGNED ? _mm_cvtepu8_epi16(bytes) : _mm_cvtepi8_epi16(bytes));
            }
            const u64 halves = u64(_mm_cvtsi128_si64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(i32(own.b[half])))));
            b[pair][l / 4] = u32(halves), b[pair + 1][l / 4] = u32(halves >> 32);
        }
    }
    for (u32 row = 0; row < M; row++) {
        __m128i left = _mm_setzero_si128(), right = left;
        for (u32 pair = 0; pair < K / 2; pair++) {
            const __m128i both = _mm_set1_epi32(i32(a[row][pair]));
            left = _mm_add_epi32(left, _mm_madd_epi16(both, *(const __m128i*)&b[pair][0]));
            right = _mm_add_epi32(right, _mm_madd_epi16(both, *(const __m128i*)&b[pair][4]));
        }
        alignas(16) u32 sums[8];
        _mm_store_si128((__m128i*)sums, left), _mm_store_si128((__m128i*)(sums + 4), right);
        for (u32 t = 0; t < 4; t++) {
            i32* const c = ((const Mma*)w.value[row % 8 * 4 + t])->c + row / 8 * 2;
            c[0] = i32(u32(c[0]) + sums[2 * t]), c[1] = i32(u32(c[1]) + sums[2 * t + 1]);
        }
    }
}
// All read `a` and `b` only, each writes its own `c`: so in place is fine.
template <u32 M, u32 K, bool UNSIGNED = false>
inline void mma(Mma& own, void* where) {
    block.warp[cur->warp].value[cur->lane] = u64(&own);
    meet(0xffffffffu, done_mma<M, K, UNSIGNED>, "mma.sync", where);
}
EMU_NOINLINE void mma_s8_16816(i32* c, u32 a0, u32 a1, u32 b) {
    Mma own = {c, {a0, a1}, {b}};
    mma<16, 16>(own, __builtin_return_address(0));
}
EMU_NOINLINE void mma_s8_16832(i32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    Mma own = {c, {a0, a1, a2, a3}, {b0, b1}};
    mma<16, 32>(own, __builtin_return_address(0));
}
EMU_NOINLINE void mma_s8_8816(i32* c, u32 a, u32 b) {
    Mma own = {c, {a}, {b}};
    mma<8, 16>(own, __builtin_return_address(0));
}
// Two of 8 by 8, 16 deep, as kernels/include/mma.cuh has it for chips before sm_80.
template <bool UNSIGNED>
EMU_NOINLINE void add_product_16(i32* c, u32 a0, u32 a1, u32 b) {
    Mma low = {c, {a0}, {b}}, high = {c + 2, {a1}, {b}};
    mma<8, 16, UNSIGNED>(low, __builtin_return_address(0));
    mma<8, 16, UNSIGNED>(high, __builtin_return_address(0));
}
template <bool UNSIGNED>
EMU_NOINLINE void add_product_32(i32* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    Mma own = {c, {a0, a1, a2, a3}, {b0, b1}};
    mma<16, 32, UNSIGNED>(own, __builtin_return_address(0));
}

// ldmatrix: rows of 16 bytes at the addresses that lanes give; N 1, 2 or 4.
struct Ldmatrix {
    const u8* row;
    u32* out;
};
template <u32 N, bool TRANSPOSED>
inline void done_ldmatrix(Warp& w, u32 lanes) {
    if (lanes != 0xffffffffu) die("ldmatrix without all lanes", fibers[w.number * 32].where);
    for (u32 m = 0; m < N; m++) {
        for (u32 l = 0; l < 32; l++) {
            u32 word;
            if (!TRANSPOSED) {
                memcpy(&word, ((Ldmatrix*)w.value[m * 8 + l / 4])->row + l % 4 * 4, 4);
            } else {
                u16 two[2];
                for (u32 i = 0; i < 2; i++) memcpy(&two[i], ((Ldmatrix*)w.value[m * 8 + l % 4 * 2 + i])->row + l / 4 * 2, 2);
                word = two[0] | u32(two[1]) << 16;
            }
            ((Ldmatrix*)w.value[l])->out[m] = word;
        }
    }
}
template <u32 N, bool TRANSPOSED = false>
EMU_NOINLINE void ldmatrix(u32* out, u32 address) {
    if (cur->lane < N * 8 && (address % 16 || address + 16 > block.shared)) EMU_DIE("ldmatrix: address");
    Ldmatrix own = {shared_area + address, out};
    block.warp[cur->warp].value[cur->lane] = u64(&own);
    meet(0xffffffffu, done_ldmatrix<N, TRANSPOSED>, "ldmatrix", __builtin_return_address(0));
}

// ---- instructions

inline i32 dp4a(u32 a, u32 b, i32 c) {
    for (u32 i = 0; i < 4; i++) c += i8(a >> (8 * i)) * i8(b >> (8 * i));
    return c;
}
inline i32 dp4a_us(u32 a, u32 b, i32 c) {
    for (u32 i = 0; i < 4; i++) c += u8(a >> (8 * i)) * i8(b >> (8 * i));
    return c;
}
inline u32 dp4a_uu(u32 a, u32 b, u32 c) {
    for (u32 i = 0; i < 4; i++) c += u8(a >> (8 * i)) * u8(b >> (8 * i));
    return c;
}
// Halves of `a` with the bytes 0, 1 (lo) or 2, 3 (hi) of `b`.
template <bool SIGNED, bool HIGH>
inline i32 dp2a(u32 a, u32 b, i32 c) {
    for (u32 i = 0; i < 2; i++) {
        const u32 byte = b >> (8 * (i + (HIGH ? 2 : 0)));
        c += int16_t(a >> (16 * i)) * (SIGNED ? i32(i8(byte)) : i32(u8(byte)));
    }
    return c;
}
inline u32 prmt(u32 a, u32 b, u32 selector) {
    const u64 both = u64(b) << 32 | a;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) {
        const u32 s = selector >> (4 * i) & 15;
        u32 byte = u32(both >> (8 * (s & 7))) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}
inline float half_value(u16 bits) {
    _Float16 h;
    memcpy(&h, &bits, 2);
    return float(h);
}
inline u16 nearest_half(float x) {
    const _Float16 h = _Float16(x);
    u16 bits;
    memcpy(&bits, &h, 2);
    return bits;
}
inline float2 halves_of(u32 word) { return {half_value(u16(word)), half_value(u16(word >> 16))}; }

// ---- copies

EMU_NOINLINE void check_copy(const u8* to, const u8* from, u32 bytes, u32 multiple, const void* where) {
    if (size_t(to) % multiple || size_t(from) % multiple || bytes % multiple) {
        fprintf(stderr, "copy of %u bytes from %p to shared + %td\n", bytes, from, to - shared_area);
        die("a copy's addresses and length are no multiples of its unit", where);
    }
    if (to < shared_area || to + bytes > shared_area + block.shared) {
        fprintf(stderr, "copy of %u bytes to shared + %td of %zu\n", bytes, to - shared_area, block.shared);
        die("a copy that does not end in shared memory", where);
    }
}
inline void do_copy(const Copy& c) { memcpy(c.to, c.from, c.bytes); }

inline u32 own_number() { return u32(cur - fibers); }

template <u32 BYTES>
EMU_NOINLINE void copy_async(void* to_, const void* from_) {
    u8* const to = (u8*)to_;
    const u8* const from = (const u8*)from_;
    check_copy(to, from, BYTES, BYTES, __builtin_return_address(0));
    if (late) {
        open_copies[own_number()].push_back({to, from, BYTES, nullptr});
    } else {
        memcpy(to, from, BYTES);
    }
}
inline void copies_end() {
    if (!late) return;
    const u32 own = own_number();
    open_groups[own].push_back(std::move(open_copies[own]));
    open_copies[own].clear();
}
inline void copies_wait(u32 n) {
    if (!late) return;
    auto& groups = open_groups[own_number()];
    while (groups.size() > n) {
        for (const Copy& c : groups.front()) do_copy(c);
        groups.erase(groups.begin());
    }
}

// mbarrier with one arrival a phase: bit 0 the phase's parity, bit 1 whether it has arrived, from bit 32 the bytes that are missing.
inline void barrier_moved(u64* barrier) {
    if ((*barrier & 2) && (*barrier >> 32) == 0) {
        *barrier = (*barrier ^ 1) & 1;
        for (u32 t = 0; t < block.threads; t++) {
            Fiber& f = fibers[t];
            if (!f.exited && f.which == u64(barrier) && f.what && !strcmp(f.what, "arrivals_wait")) wake(block.warp[f.warp], 1u << f.lane);
        }
    }
}
constexpr u64 BARRIER_MARK = 0x5a5a00;  // it was begun
inline bool barrier_begun(u64* b) { return (*b & 0xfffffff8u) == 0 && (*b & 4) == 0; }
EMU_NOINLINE void arrivals_begin(u64* barrier) {
    if ((u8*)barrier < shared_area || (u8*)(barrier + 1) > shared_area + block.shared || size_t(barrier) % 8) EMU_DIE("no place for a barrier");
    *barrier = 0;
}
EMU_NOINLINE void arrivals_expect(u64* barrier, u32 bytes) {
    if (!barrier_begun(barrier)) EMU_DIE("arrivals_expect: a barrier that was not begun");
    if (*barrier & 2) EMU_DIE("arrivals_expect: a second arrival in one phase");
    *barrier = (*barrier & 0xffffffffu) | 2 | u64(u32(u32(*barrier >> 32) + bytes)) << 32;
    barrier_moved(barrier);
}
inline void bytes_came(u64* barrier, u32 bytes) {
    *barrier = (*barrier & 0xffffffffu) | u64(u32(u32(*barrier >> 32) - bytes)) << 32;
    barrier_moved(barrier);
}
EMU_NOINLINE void copy_stretch(u8* to, const u8* from, u32 bytes, u64* barrier) {
    if (!barrier_begun(barrier)) EMU_DIE("copy_stretch: a barrier that was not begun");
    check_copy(to, from, bytes, 16, __builtin_return_address(0));
    if (late) {
        bulk_copies.push_back({to, from, bytes, barrier});
    } else {
        memcpy(to, from, bytes);
        bytes_came(barrier, bytes);
    }
}
EMU_NOINLINE void arrivals_wait(u64* barrier, u32 phase) {
    if (!barrier_begun(barrier)) EMU_DIE("arrivals_wait: a barrier that was not begun");
    while ((*barrier & 1) == (phase & 1)) {
        if (late) {
            // The oldest copy that belongs to it.
            size_t i = 0;
            while (i < bulk_copies.size() && bulk_copies[i].barrier != barrier) i++;
            if (i < bulk_copies.size()) {
                const Copy c = bulk_copies[i];
                bulk_copies.erase(bulk_copies.begin() + i);
                do_copy(c);
                bytes_came(barrier, c.bytes);
                continue;
            }
        }
        sleep("arrivals_wait", u64(barrier), __builtin_return_address(0));
    }
}

inline float max_f(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? b : a;
    return a > b ? a : b;
}
inline float min_f(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? a : b;
    return a < b ? a : b;
}
template <typename I>
inline I to_int(double x) {  // already rounded
    if (x != x) return 0;
    if (x <= double(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    if (x >= double(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
    return I(x);
}
}  // namespace emu

// ---- CUDA's names

#define __syncthreads() emu::sync_threads()
inline int __syncthreads_count(int v) { return int(emu::sync_threads_count(v != 0)); }
inline int __syncthreads_or(int v) { return emu::sync_threads_count(v != 0) != 0; }
inline int __syncthreads_and(int v) { return emu::sync_threads_count(v == 0) == 0; }
__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) { emu::sync_warp(mask); }

template <typename T>
__forceinline__ T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    emu::check_width(width);
    const unsigned l = emu::cur->lane;
    return emu::value_of<T>(emu::shuffle(mask, emu::word_of(v), (l & ~unsigned(width - 1)) | (unsigned(source) & unsigned(width - 1)), "__shfl_sync"));
}
template <typename T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32) {
    emu::check_width(width);
    const unsigned l = emu::cur->lane, from = (l ^ unsigned(with)) & 31;
    return emu::value_of<T>(emu::shuffle(mask, emu::word_of(v), from <= (l | unsigned(width - 1)) ? from : l, "__shfl_xor_sync"));
}
template <typename T>
__forceinline__ T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    emu::check_width(width);
    const unsigned l = emu::cur->lane, first = l & ~unsigned(width - 1);
    return emu::value_of<T>(emu::shuffle(mask, emu::word_of(v), delta <= l - first ? l - delta : l, "__shfl_up_sync"));
}
template <typename T>
__forceinline__ T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    emu::check_width(width);
    const unsigned l = emu::cur->lane, last = l | unsigned(width - 1);
    return emu::value_of<T>(emu::shuffle(mask, emu::word_of(v), delta <= last - l ? l + delta : l, "__shfl_down_sync"));
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int v) { return emu::vote<0>(mask, v != 0); }
__forceinline__ int __any_sync(unsigned mask, int v) { return int(emu::vote<1>(mask, v != 0)); }
__forceinline__ int __all_sync(unsigned mask, int v) { return int(emu::vote<2>(mask, v != 0)); }
template <typename T>
__forceinline__ unsigned __match_any_sync(unsigned mask, T v) { return emu::match(mask, emu::word_of(v)); }
__forceinline__ unsigned __reduce_add_sync(unsigned mask, unsigned v) { return emu::reduce<0>(mask, v); }
__forceinline__ int __reduce_add_sync(unsigned mask, int v) { return int(emu::reduce<0>(mask, unsigned(v))); }
__forceinline__ int __reduce_min_sync(unsigned mask, int v) { return int(emu::reduce<1>(mask, unsigned(v))); }
__forceinline__ int __reduce_max_sync(unsigned mask, int v) { return int(emu::reduce<2>(mask, unsigned(v))); }
__forceinline__ unsigned __reduce_min_sync(unsigned mask, unsigned v) { return emu::reduce<3>(mask, v); }
__forceinline__ unsigned __reduce_max_sync(unsigned mask, unsigned v) { return emu::reduce<4>(mask, v); }
__forceinline__ unsigned __reduce_and_sync(unsigned mask, unsigned v) { return emu::reduce<5>(mask, v); }
__forceinline__ unsigned __reduce_or_sync(unsigned mask, unsigned v) { return emu::reduce<6>(mask, v); }
__forceinline__ unsigned __reduce_xor_sync(unsigned mask, unsigned v) { return emu::reduce<7>(mask, v); }
inline unsigned __activemask() { return ~emu::block.warp[emu::cur->warp].exited; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline unsigned __brev(unsigned x) {
    unsigned out = 0;
    for (int i = 0; i < 32; i++) out |= (x >> i & 1) << (31 - i);
    return out;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) { return emu::prmt(a, b, s & 0x7777u); }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return unsigned(((unsigned long long)hi << 32 | lo) >> (s & 31)); }
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return unsigned(((unsigned long long)hi << 32 | lo) << (s & 31) >> 32); }
inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned s) { return unsigned(((unsigned long long)hi << 32 | lo) >> (s > 32 ? 32 : s)); }
inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned s) { return s >= 32 ? lo : __funnelshift_l(lo, hi, s); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline int __dp4a(int a, int b, int c) { return emu::dp4a(unsigned(a), unsigned(b), c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return emu::dp4a_uu(a, b, c); }

inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline int __float2int_rn(float x) { return emu::to_int<int>(rint(double(x))); }
inline int __float2int_rz(float x) { return emu::to_int<int>(trunc(double(x))); }
inline int __float2int_rd(float x) { return emu::to_int<int>(floor(double(x))); }
inline int __float2int_ru(float x) { return emu::to_int<int>(ceil(double(x))); }
inline unsigned __float2uint_rn(float x) { return emu::to_int<unsigned>(rint(double(x))); }
inline unsigned __float2uint_rz(float x) { return emu::to_int<unsigned>(trunc(double(x))); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
#define fmaxf emu::max_f
#define fminf emu::min_f

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
#define EMU_MINMAX(T) \
    inline T min(T a, T b) { return a < b ? a : b; } \
    inline T max(T a, T b) { return a > b ? a : b; }
EMU_MINMAX(long) EMU_MINMAX(unsigned long) EMU_MINMAX(long long) EMU_MINMAX(unsigned long long)
inline float min(float a, float b) { return emu::min_f(a, b); }
inline float max(float a, float b) { return emu::max_f(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

template <typename T> inline T __ldg(const T* p) { return *p; }
template <typename T> inline T __ldcg(const T* p) { return *p; }
template <typename T> inline T __ldca(const T* p) { return *p; }
template <typename T> inline T __ldcs(const T* p) { return *p; }
template <typename T> inline T __ldcv(const T* p) { return *p; }
template <typename T> inline void __stcg(T* p, std::type_identity_t<T> v) { *p = v; }
template <typename T> inline void __stcs(T* p, std::type_identity_t<T> v) { *p = v; }
template <typename T> inline void __stwt(T* p, std::type_identity_t<T> v) { *p = v; }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { asm volatile("" ::: "memory"); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) {}
[[noreturn]] EMU_NOINLINE void __trap() { EMU_DIE("__trap"); }
inline size_t __cvta_generic_to_shared(const void* p) {
    const unsigned char* at = (const unsigned char*)p;
    if (at >= emu::shared_area && at <= emu::shared_area + emu::MOST_SHARED) return size_t(at - emu::shared_area);
    EMU_DIE("__cvta_generic_to_shared: not dynamic shared memory");
}
inline void* __cvta_shared_to_generic(size_t p) { return emu::shared_area + p; }

// Blocks of the emulated device run side by side, so its atomics are the processor's.
template <typename T, typename New>
inline T emu_atomic(T* p, New new_value) {
    T old;
#if defined(EMU_DEVICE)
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    for (T v = new_value(old); !__atomic_compare_exchange(p, &old, &v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);) v = new_value(old);
#else
    old = *p;
    *p = new_value(old);
#endif
    return old;
}
#define EMU_ATOMIC(NAME, EXPRESSION)                                  \
    template <typename T>                                             \
    inline T NAME(T* p, std::type_identity_t<T> v) {                  \
        return emu_atomic(p, [v](T old) -> T { (void)old; return EXPRESSION; }); \
    }
EMU_ATOMIC(atomicAdd, T(old + v)) EMU_ATOMIC(atomicSub, T(old - v)) EMU_ATOMIC(atomicOr, T(old | v)) EMU_ATOMIC(atomicAnd, T(old & v))
EMU_ATOMIC(atomicXor, T(old ^ v)) EMU_ATOMIC(atomicMin, (old < v ? old : v)) EMU_ATOMIC(atomicMax, (old > v ? old : v))
EMU_ATOMIC(atomicExch, v) EMU_ATOMIC(atomicInc, (old >= v ? T(0) : T(old + 1))) EMU_ATOMIC(atomicDec, (old == 0 || old > v ? v : T(old - 1)))
template <typename T>
inline T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> v) {
    return emu_atomic(p, [compare, v](T old) -> T { return old == compare ? v : old; });
}
