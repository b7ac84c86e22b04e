// From a block's bytes to the bytes that are multiplied: formats with a codebook, whose entries are eight weights or four. A format
// has
//   scales(raw, r)  the scales of the two groups of run r: the first, the second << 8, each (value - 1) / 2
// and either
//   UP, DOWN  the eight values that entries choose from; SCALES scales there are; selectors(raw, r, book, sel): four entries
// or
//   run(raw, r, book, words)  the eight words, weights plus BIAS
#pragma once
#include "unpack.cuh"

template <typename F>
struct UnpackBook : Unpacked<F> {
    static constexpr bool BOOK = true;
};

// ---- entries that choose among eight values
//
// The values times a scale are a table: for each scale four words, low and high bytes of both fours of values.

// The word of a table: part 0 and 1 are low bytes of UP and DOWN, 2 and 3 their high bytes.
template <typename U>
DEV u32 table_word(u32 scale, u32 part) {
    const u32 four = part % 2 ? U::DOWN : U::UP, odd = 2 * scale + 1;
    u32 word = 0;
    for (u32 i = 0; i < 4; i++) word |= ((u32(signed_byte_of(four, i) * i32(odd)) >> (part / 2 * 8)) & 255) << (8 * i);
    return word;
}

template <typename F>
struct UnpackIq1 : UnpackBook<F> {
    static constexpr u32 UP = UP1, DOWN = DOWN1, SCALES = 8;
};

struct UnpackIq1S : UnpackIq1<Iq1S> {
    template <typename Book>
    DEV void selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const u32 index = Raw(raw + 2 + 4 * r).word(0), head = shared_at<u16>(raw + 34 + 2 * r);
        const u32 down = head & 0x8000u ? THIRD_BITS : 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            out[j] = book.template entry<2047>(byte_of(index, j) | ((head >> (3 * j)) & 7) << 8, 0) | down;
        }
    }
    DEV u32 scales(u32 raw, u32 r) { return twice((shared_at<u16>(raw + 34 + 2 * r) >> 12) & 7); }
};

struct UnpackIq1M : UnpackIq1<Iq1M> {
    template <typename Book>
    DEV void selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const u32 index = shared_at<u32>(raw + 4 * r), high = shared_at<u16>(raw + 32 + 2 * r);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 head = high >> (4 * j), at = byte_of(index, j) | (head & 7) << 8;
            out[j] = book.template entry<2047>(at, 0) | (head & 8 ? THIRD_BITS : 0);
        }
    }
    DEV u32 scales(u32 raw, u32 r) {
        const u32 s = u32(shared_at<u16>(raw + 48 + r / 2 * 2)) >> (6 * (r % 2));
        return (s & 7) | (s >> 3 & 7) << 8;
    }
};

template <typename F>
struct UnpackIq2 : UnpackBook<F> {
    static constexpr u32 UP = MAGNITUDES2, DOWN = NEGATIVES2, SCALES = 16;
};

struct UnpackIq2Xxs : UnpackIq2<Iq2Xxs> {
    template <typename Book>
    DEV void selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        u32 code[2];
        words(raw + 2 + 8 * r, code);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            out[j] = book.template entry<255>(code[0], 8 * j) | book.template sign<127>(code[1], 7 * j);
        }
    }
    DEV u32 scales(u32 raw, u32 r) { return twice(shared_at<u8>(raw + 9 + 8 * r) >> 4); }
};

// Nibbles of a byte as two bytes.
DEV u32 two_nibbles(u32 byte) { return (byte & 15) | (byte & 0xf0u) << 4; }

struct UnpackIq2Xs : UnpackIq2<Iq2Xs> {
    template <typename Book>
    DEV void selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        u32 code[2];
        words(raw + 2 + 8 * r, code);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = 16 * (j % 2), word = code[j / 2];
            out[j] = book.template entry<511>(word, at) | book.template sign<127>(word, at + 9);
        }
    }
    DEV u32 scales(u32 raw, u32 r) { return two_nibbles(shared_at<u8>(raw + 66 + r)); }
};

struct UnpackIq2S : UnpackIq2<Iq2S> {
    template <typename Book>
    DEV void selectors(u32 raw, u32 r, const Book& book, u32 (&out)[4]) {
        const Raw in(raw + 2 + 4 * r);
        const u32 index = in.word(0), signs = in.word(32), high = shared_at<u8>(raw + 66 + r);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = byte_of(index, j) | ((high >> (2 * j)) & 3) << 8;
            out[j] = book.template entry<1023>(at, 0) | book.template sign<255>(signs, 8 * j);
        }
    }
    DEV u32 scales(u32 raw, u32 r) { return two_nibbles(shared_at<u8>(raw + 74 + r)); }
};

// ---- entries of four magnitudes

// Four magnitudes with a minus where a mask has ones, plus 128. No magnitude is 0, so that nothing is carried over.
DEV u32 negated(u32 magnitudes, u32 minus) { return ((magnitudes ^ minus) + (minus & 0x01010101u)) ^ 0x80808080u; }

template <typename F>
struct UnpackIq3 : UnpackBook<F> {
    static constexpr u32 BIAS = 128, SCALES = 0;
    static constexpr bool SIGNED = true;
};

struct UnpackIq3Xxs : UnpackIq3<Iq3Xxs> {
    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        u32 index[2];
        words(raw + 2 + 8 * r, index);
        const u32 signs = Raw(raw + 66 + 4 * r).word(0);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = 16 * (j % 2), word = index[j / 2], sign = book.template sign<127>(signs, 7 * j);
            out[2 * j] = negated(book.template entry<255>(word, at), byte_masks(sign));
            out[2 * j + 1] = negated(book.template entry<255>(word, at + 8), byte_masks(sign + sign));
        }
    }
    DEV u32 scales(u32 raw, u32 r) { return twice(shared_at<u8>(raw + 69 + 4 * r) >> 4); }
};

struct UnpackIq3S : UnpackIq3<Iq3S> {
    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        u32 index[2];
        words(raw + 2 + 8 * r, index);
        const u32 high = shared_at<u8>(raw + 66 + r), signs = Raw(raw + 74 + 4 * r).word(0);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 word = index[j / 2] >> (16 * (j % 2)), ninth = high >> (2 * j), sign = book.template sign<255>(signs, 8 * j);
            out[2 * j] = negated(book.template entry<511>((word & 255) | (ninth & 1) << 8, 0), byte_masks(sign));
            out[2 * j + 1] =
                negated(book.template entry<511>((word >> 8 & 255) | (ninth >> 1 & 1) << 8, 0), byte_masks(sign + sign));
        }
    }
    DEV u32 scales(u32 raw, u32 r) { return twice((shared_at<u8>(raw + 106 + r / 2) >> (4 * (r % 2))) & 15); }
};
