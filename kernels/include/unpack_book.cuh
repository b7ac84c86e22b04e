// From a block's bytes to the bytes that are multiplied: formats with a codebook, whose entries are eight weights or four. A format
// has
//   CHOSEN          entries choose among eight values
// and either
//   UP, DOWN  the eight values that entries choose from; selectors(raw, r, book, sel): four entries
// or
//   run(raw, r, book, words)  the eight words, weights plus BIAS
// which return the scales of the run's two groups: the first, the second << 8, each (value - 1) / 2.
#pragma once
#include "unpack.cuh"

// `Codebook` (codebook.cuh) with the distance to the signs in the instruction.
template <u32 GRID, u32 COPIES>
struct NearBook : Codebook<GRID, COPIES> {
    template <u32 MASK>
    __device__ __forceinline__ u32 entry(u32 word, u32 low) const {
        return shared_at<u32>(this->template offset<MASK>(word, low));
    }
    template <u32 MASK>
    __device__ __forceinline__ u32 sign(u32 word, u32 low) const {
        return shared_beyond<u32>(this->template offset<MASK>(word, low), GRID * COPIES * 4);
    }
};

template <typename F>
struct UnpackBook : Unpacked<F> {
    static constexpr bool BOOK = true;
};

// ---- entries that choose among eight values

// Four values times a scale above 0: low and high bytes. Two halves a multiplication; a negative lower one has taken 1 from the upper.
template <u32 FOUR>
DEV void four_times(u32 scale, u32& low, u32& high) {
    constexpr i32 v[4] = {i8(FOUR), i8(FOUR >> 8), i8(FOUR >> 16), i8(FOUR >> 24)};
    const u32 even = scale * (u32(v[0]) + (u32(v[2]) << 16)) + (v[0] < 0 ? 0x10000u : 0u);
    const u32 odd = scale * (u32(v[1]) + (u32(v[3]) << 16)) + (v[1] < 0 ? 0x10000u : 0u);
    low = choose(even, odd, 0x6240), high = choose(even, odd, 0x7351);
}

// All eight: low bytes of UP and DOWN, then high bytes. Eight instructions; a table in shared memory took ten cycles of the whole
// multiprocessor, since lanes with other scales met in its banks.
template <typename U>
DEV uint4 eight_times(u32 scale) {
    uint4 out;
    four_times<U::UP>(scale, out.x, out.z);
    four_times<U::DOWN>(scale, out.y, out.w);
    return out;
}

template <typename F>
struct UnpackIq1 : UnpackBook<F> {
    static constexpr u32 UP = UP1, DOWN = DOWN1;
    static constexpr bool CHOSEN = true;
};

struct UnpackIq1S : UnpackIq1<Iq1S> {
    static constexpr bool ONE = true;

    template <typename Book>
    DEV u32 selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const u32 index = Raw(raw, 4 * r, 2).word(0), head = shared_beyond<u16>(raw + 2 * r, 34);
        const u32 down = head & 0x8000u ? THIRD_BITS : 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            out[j] = book.template entry<2047>(byte_of(index, j) | ((head >> (3 * j)) & 7) << 8, 0) | down;
        }
        return (head >> 12) & 7;
    }
};

struct UnpackIq1M : UnpackIq1<Iq1M> {
    template <typename Book>
    DEV u32 selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const u32 index = shared_at<u32>(raw + 4 * r), high = shared_beyond<u16>(raw + 2 * r, 32);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 head = high >> (4 * j), at = byte_of(index, j) | (head & 7) << 8;
            out[j] = book.template entry<2047>(at, 0) | (head & 8 ? THIRD_BITS : 0);
        }
        const u32 s = u32(shared_beyond<u16>(raw + r / 2 * 2, 48)) >> (6 * (r % 2));
        return (s & 7) | (s >> 3 & 7) << 8;
    }
};

template <typename F>
struct UnpackIq2 : UnpackBook<F> {
    static constexpr u32 UP = MAGNITUDES2, DOWN = NEGATIVES2;
    static constexpr bool CHOSEN = true;
};

struct UnpackIq2Xxs : UnpackIq2<Iq2Xxs> {
    static constexpr bool ONE = true;

    template <typename Book>
    DEV u32 selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const uint2 code = Raw(raw, 8 * r, 2).two(0);
#pragma unroll
        for (u32 j = 0; j < 4; j++) out[j] = book.template entry<255>(code.x, 8 * j) | book.template sign<127>(code.y, 7 * j);
        return code.y >> 28;
    }
};

// Nibbles of a byte as two bytes.
DEV u32 two_nibbles(u32 byte) { return (byte & 15) | (byte & 0xf0u) << 4; }

struct UnpackIq2Xs : UnpackIq2<Iq2Xs> {
    template <typename Book>
    DEV u32 selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const uint2 code = Raw(raw, 8 * r, 2).two(0);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = 16 * (j % 2), word = j / 2 ? code.y : code.x;
            out[j] = book.template entry<511>(word, at) | book.template sign<127>(word, at + 9);
        }
        return two_nibbles(shared_beyond<u8>(raw + r, 66));
    }
};

// Signs of eight weights, byte j of a word: bit i to bit 4i + 2. Every second bit is multiplied to its place; carries of the others end
// between places. Seven instructions where a look-up takes four, but its lanes met in the banks.
DEV u32 eight_signs(u32 signs, u32 j) {
    const u32 byte = signs >> (8 * j);
    return ((byte & 0x55) * 0x00104104u & 0x04040404u) | ((byte & 0xaa) * 0x00820820u & 0x40404040u);
}

struct UnpackIq2S : UnpackIq2<Iq2S> {
    static constexpr bool SIGN_TABLE = false;

    template <typename Book>
    DEV u32 selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const Raw in(raw, 4 * r, 2);
        const u32 index = in.word(0), signs = in.word(32), high = shared_beyond<u8>(raw + r, 66);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = byte_of(index, j) | ((high >> (2 * j)) & 3) << 8;
            out[j] = book.template entry<1023>(at, 0) | eight_signs(signs, j);
        }
        return two_nibbles(shared_beyond<u8>(raw + r, 74));
    }
};

// ---- entries of four magnitudes

// Four magnitudes with a minus where a mask has ones, plus 128. No magnitude is 0, so that nothing is carried over.
DEV u32 negated(u32 magnitudes, u32 minus) { return ((magnitudes ^ minus) + (minus & 0x01010101u)) ^ 0x80808080u; }

template <typename F>
struct UnpackIq3 : UnpackBook<F> {
    static constexpr u32 BIAS = 128;
    static constexpr bool SIGNED = true, CHOSEN = false, ONE = true;
};

struct UnpackIq3Xxs : UnpackIq3<Iq3Xxs> {
    template <typename Book>
    DEV u32 run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        const uint2 index = Raw(raw, 8 * r, 2).two(0);
        const u32 signs = Raw(raw, 4 * r, 2).word(64);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = 16 * (j % 2), word = j / 2 ? index.y : index.x, sign = book.template sign<127>(signs, 7 * j);
            out[2 * j] = negated(book.template entry<255>(word, at), byte_masks(sign));
            out[2 * j + 1] = negated(book.template entry<255>(word, at + 8), byte_masks(sign + sign));
        }
        return signs >> 28;
    }
};

struct UnpackIq3S : UnpackIq3<Iq3S> {
    template <typename Book>
    DEV u32 run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        const uint2 index = Raw(raw, 8 * r, 2).two(0);
        const u32 high = shared_beyond<u8>(raw + r, 66), signs = Raw(raw, 4 * r, 2).word(72);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 word = (j / 2 ? index.y : index.x) >> (16 * (j % 2)), ninth = high >> (2 * j);
            const u32 sign = book.template sign<255>(signs, 8 * j);
            out[2 * j] = negated(book.template entry<511>((word & 255) | (ninth & 1) << 8, 0), byte_masks(sign));
            out[2 * j + 1] =
                negated(book.template entry<511>((word >> 8 & 255) | (ninth >> 1 & 1) << 8, 0), byte_masks(sign + sign));
        }
        return (shared_beyond<u8>(raw + r / 2, 106) >> (4 * (r % 2))) & 15;
    }
};
