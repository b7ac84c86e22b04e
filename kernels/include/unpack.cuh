// From a block's bytes to the bytes that are multiplied: formats without a codebook.
//
// Four lanes unpack 256 weights of a row, `raw` being where these begin in shared memory; lane t has word t of every group of sixteen.
// A format has
//   Source  the same format's structure for single vectors (wide.cuh, narrow.cuh), whose constants and factors it shares
//   BYTES   of 256 weights
//   MINIMA  whether there is a sum with minima
//   BOOK    whether a lane has run t of half h instead, all its eight words (unpack_book.cuh)
//   half(raw, t, h, words)  words t of the eight groups of half h
// and with an integer scale a group
//   BIAS, SIGNED  its bytes are weights plus BIAS; a product with a scale may be negative
//   scales(raw, c), mins(raw, c)  four bytes: those of the groups of chunk c
//   ONE  a run's two groups have the same
//   SIGN_TABLE  a codebook's signs are in shared memory, too
//   BYTES4  signed_half gives the words as signed bytes, four times the weights (rows_few.cuh)
// or with a float factor for 32 weights
//   SHIFT   its bytes are 2^SHIFT times the weights, because that takes fewer instructions; sums are moved down
#pragma once
#include "codebook.cuh"
#include "digits.cuh"
#include "narrow.cuh"
#include "tile.cuh"

template <typename F>
struct Unpacked {
    typedef F Source;
    static constexpr u32 BYTES = 256 / F::LEN * F::BYTES;
    static constexpr u32 SHIFT = 0, BIAS = 0;
    static constexpr bool SIGNED = false, MINIMA = false, BOOK = false, ONE = false, BYTES4 = false, SIGN_TABLE = true;

    DEV u32 mins(u32, u32) { return 0; }
};

// Words of a row's raw bytes from byte `distance` on, which the compiler knows and which need not be a multiple of four; and `moved`, a
// multiple of four that it does not know. What is not known is made once for all words that agree in the rest. Up to 3 bytes
// behind a word are read.
struct Raw {
    u32 base, shift, distance;

    __device__ __forceinline__ explicit Raw(u32 raw, u32 moved = 0, u32 distance = 0)
        : base(((raw + distance % 4) & ~3u) + moved), shift((raw + distance) % 4 * 8), distance(distance & ~3u) {}

    // The word `at` bytes further on, a multiple of four.
    __device__ __forceinline__ u32 word(u32 at) const {
        return __funnelshift_r(shared_beyond<u32>(base, distance + at), shared_beyond<u32>(base, distance + at + 4), shift);
    }
    // And the one behind it.
    __device__ __forceinline__ uint2 two(u32 at) const {
        const u32 middle = shared_beyond<u32>(base, distance + at + 4);
        return make_uint2(__funnelshift_r(shared_beyond<u32>(base, distance + at), middle, shift),
                          __funnelshift_r(middle, shared_beyond<u32>(base, distance + at + 8), shift));
    }
};

// A byte twice.
DEV u32 twice(u32 byte) { return byte * 0x0101u; }

struct UnpackQ2K : Unpacked<Q2K> {
    static constexpr bool MINIMA = true;

    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        const u32 low = shared_beyond<u32>(raw + 4 * t, 16 + 32 * h), high = shared_beyond<u32>(raw + 4 * t, 32 + 32 * h);
#pragma unroll
        for (u32 run = 0; run < 4; run++) {
            out[2 * run] = (low >> (2 * run)) & 0x03030303u;
            out[2 * run + 1] = (high >> (2 * run)) & 0x03030303u;
        }
    }
    DEV u32 scales(u32 raw, u32 t) { return shared_beyond<u32>(raw, 4 * t) & 0x0f0f0f0fu; }
    DEV u32 mins(u32 raw, u32 t) { return (shared_beyond<u32>(raw, 4 * t) >> 4) & 0x0f0f0f0fu; }
};

struct UnpackQ3K : Unpacked<Q3K> {
    static constexpr u32 BIAS = 4;
    static constexpr bool SIGNED = true;

    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        const Raw in(raw, 4 * t);
        const u32 mask[2] = {in.word(0), in.word(16)}, two[2] = {in.word(32 + 32 * h), in.word(48 + 32 * h)};
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const u32 run = i / 2, top = mask[i % 2] >> (4 * h);
            out[i] = ((two[i % 2] >> (2 * run)) & 0x03030303u) | ((run < 2 ? top << (2 - run) : top >> (run - 2)) & 0x04040404u);
        }
    }
    // Nibbles of the first eight bytes, two bits more from the last four; less 32.
    DEV u32 scales(u32 raw, u32 c) {
        const Raw in(raw);
        const u32 packed = in.word(96 + 4 * (c % 2)), more = in.word(104) >> (2 * c);
        const u32 six = ((packed >> (4 * (c / 2))) & 0x0f0f0f0fu) | ((more << 4) & 0x30303030u);
        const u32 twos = six ^ 0x20202020u, sign = twos & 0x20202020u;
        return twos | sign << 1 | sign << 2;
    }
};

// Scales and minima of Q4_K and Q5_K: chunk t has two runs of 32.
DEV u32 four_scales(u32 raw, u32 t) { return choose(scales_of_four(raw, t / 2) >> (t % 2 * 16), 0, 0x1100); }
DEV u32 four_mins(u32 raw, u32 t) {
    u32 s[3];
    words_aligned<4>(raw + 4, s);
    const u32 min = t < 2 ? s[1] & 0x3f3f3f3fu : ((s[2] >> 4) & 0x0f0f0f0fu) | ((s[1] >> 2) & 0x30303030u);
    return choose(min >> (t % 2 * 16), 0, 0x1100);
}

struct UnpackQ4K : Unpacked<Q4K> {
    static constexpr bool MINIMA = true, ONE = true;

    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 q = shared_beyond<u32>(raw + 4 * t, 16 + 64 * h + 16 * i), at = i / 2 * 4 + i % 2;
            out[at] = q & 0x0f0f0f0fu;
            out[at + 2] = (q >> 4) & 0x0f0f0f0fu;
        }
    }
    DEV u32 scales(u32 raw, u32 t) { return four_scales(raw, t); }
    DEV u32 mins(u32 raw, u32 t) { return four_mins(raw, t); }
};

struct UnpackQ5K : Unpacked<Q5K> {
    static constexpr bool MINIMA = true, ONE = true;

    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        UnpackQ4K::half(raw + 32, t, h, out);
        const u32 fifth[2] = {shared_beyond<u32>(raw + 4 * t, 16) >> (4 * h), shared_beyond<u32>(raw + 4 * t, 32) >> (4 * h)};
#pragma unroll
        for (u32 i = 0; i < 8; i++) out[i] |= (fifth[i % 2] << (4 - i / 2)) & 0x10101010u;
    }
    DEV u32 scales(u32 raw, u32 t) { return four_scales(raw, t); }
    DEV u32 mins(u32 raw, u32 t) { return four_mins(raw, t); }
};

struct UnpackQ6K : Unpacked<Q6K> {
    static constexpr u32 BIAS = 32;
    static constexpr bool SIGNED = true, BYTES4 = true;

    // Moved up by UP bits; by two, the highest bit is inverted as well.
    template <u32 UP>
    DEV void moved(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        const Raw in(raw, 4 * t);
        const u32 low[4] = {in.word(64 * h), in.word(64 * h + 16), in.word(64 * h + 32), in.word(64 * h + 48)};
        constexpr u32 INVERTED = UP == 2 ? 0xaaaaaaaau : 0;
        u32 top[2] = {in.word(128 + 32 * h) ^ INVERTED, in.word(144 + 32 * h) ^ INVERTED};
        // The compiler would invert in each word that is made of one, and not once.
        keep_as_is(top[0]), keep_as_is(top[1]);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const u32 q = low[i % 4], two = i / 2, high = top[i % 2];
            const u32 nibble = i < 4 ? q << UP : q >> (4 - UP);
            const u32 pair = 2 * two <= 4 + UP ? high << (4 + UP - 2 * two) : high >> (2 * two - 4 - UP);
            out[i] = (nibble & 0x0f0f0f0fu << UP) | (pair & 0x30303030u << UP);
        }
    }
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) { moved<0>(raw, t, h, out); }
    DEV void signed_half(u32 raw, u32 t, u32 h, u32 (&out)[8]) { moved<2>(raw, t, h, out); }
    DEV u32 scales(u32 raw, u32 c) { return Raw(raw).word(192 + 4 * c); }
};

// The words of a run whose bytes hold weights i (low nibble) and i + 16: word t of both groups.
DEV void sixteen_values(const Sixteen& table, u32 q, u32& low, u32& high) {
    u32 first, second;
    table.eight(q, first, second);
    low = choose(first, second, 0x6420), high = choose(first, second, 0x7531);
}

// The values of IQ4 plus 128.
DEV Sixteen iq4_biased() {
    const Sixteen v = iq4_values();
    return {v.t0 ^ 0x80808080u, v.t1 ^ 0x80808080u, v.t2 ^ 0x80808080u, v.t3 ^ 0x80808080u};
}

struct UnpackIq4Xs : Unpacked<Iq4Xs> {
    static constexpr u32 BIAS = 128;
    static constexpr bool SIGNED = true, ONE = true;

    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            sixteen_values(iq4_biased(), shared_beyond<u32>(raw + 4 * t, 8 + 64 * h + 16 * i), out[2 * i], out[2 * i + 1]);
        }
    }
    DEV u32 scales(u32 raw, u32 t) {
        const u32 low = shared_at<u32>(raw + 4) >> (8 * t), high = shared_at<u32>(raw) >> (16 + 4 * t);
        const u32 first = ((low & 15) | (high & 3) << 4) - 32, second = (((low >> 4) & 15) | ((high >> 2) & 3) << 4) - 32;
        return twice(first & 255) | twice(second & 255) << 16;
    }
};

// ---- 32 weights with a float factor

template <typename F, u32 UP>
struct UnpackRuns : Unpacked<F> {
    static constexpr u32 SHIFT = UP;
    static constexpr bool MINIMA = F::MINIMUM;

    // `words(from, first, second)` are words t of both groups of a block, `from(c, moved)` its bytes from c on.
    template <typename Words>
    DEV void runs(u32 raw, u32 h, u32 (&out)[8], Words words) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            words([&](u32 c, u32 moved) { return Raw(raw, 4 * h * F::BYTES + moved, i * F::BYTES + c); }, out[2 * i], out[2 * i + 1]);
        }
    }
    // Factors of the block at a distance.
    DEV float d(u32 raw, u32 distance) { return half_value(shared_beyond<u16>(raw, distance)); }
    DEV float m(u32 raw, u32 distance) { return F::MINIMUM ? half_value(shared_beyond<u16>(raw, distance + 2)) : 0.0f; }
};

struct UnpackQ8_0 : UnpackRuns<Q8_0, 0> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            const Raw in = from(2, 4 * t);
            first = in.word(0), second = in.word(16);
        });
    }
};

// A nibble at the top of a byte, its highest bit inverted.
struct UnpackQ4_0 : UnpackRuns<Q4_0, 4> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            const u32 q = from(2, 4 * t).word(0) ^ 0x88888888u;
            first = (q << 4) & 0xf0f0f0f0u, second = q & 0xf0f0f0f0u;
        });
    }
};

struct UnpackQ4_1 : UnpackRuns<Q4_1, 0> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            const u32 q = from(4, 4 * t).word(0);
            first = q & 0x0f0f0f0fu, second = (q >> 4) & 0x0f0f0f0fu;
        });
    }
};

// Five bits at the top of a byte, the highest inverted.
struct UnpackQ5_0 : UnpackRuns<Q5_0, 3> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            const u32 high = ~from(2, 0).word(0), q = from(6, 4 * t).word(0);
            first = ((q << 3) & 0x78787878u) | (fifth_bits<7>(high, t) & 0x80808080u);
            second = ((q >> 1) & 0x78787878u) | (fifth_bits<7>(high, 4 + t) & 0x80808080u);
        });
    }
};

struct UnpackQ5_1 : UnpackRuns<Q5_1, 0> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            const u32 high = from(4, 0).word(0), q = from(8, 4 * t).word(0);
            first = (q & 0x0f0f0f0fu) | (fifth_bits<4>(high, t) & 0x10101010u);
            second = ((q >> 4) & 0x0f0f0f0fu) | (fifth_bits<4>(high, 4 + t) & 0x10101010u);
        });
    }
};

struct UnpackIq4Nl : UnpackRuns<Iq4Nl, 0> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            sixteen_values(iq4_values(), from(2, 4 * t).word(0), first, second);
        });
    }
};

struct UnpackMxfp4 : UnpackRuns<Mxfp4, 0> {
    DEV void half(u32 raw, u32 t, u32 h, u32 (&out)[8]) {
        runs(raw, h, out, [t](auto from, u32& first, u32& second) {
            sixteen_values(fp4_values(), from(1, 4 * t).word(0), first, second);
        });
    }
    DEV float d(u32 raw, u32 distance) { return Mxfp4::d(raw + distance); }
};
