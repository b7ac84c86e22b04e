// From a block's bytes to signed bytes: formats with a codebook, whose entries are eight weights or four.
#pragma once
#include "unpack.cuh"

template <typename F>
struct UnpackBook : Unpacked<F> {
    static constexpr bool BOOK = true;

    // Bytes of a chunk's four groups from what its two runs have, two groups each.
    template <typename Run>
    DEV u32 of_runs(u32 t, Run of_run) {
        return of_run(2 * t) | of_run(2 * t + 1) << 16;
    }
};

// Eight weights that an entry's nibbles choose among the eight bytes of (a, b).
DEV void chosen_weights(u32 a, u32 b, u32 selector, u32* out) {
    out[0] = choose(a, b, selector);
    out[1] = choose(a, b, selector >> 16);
}

// Four magnitudes with a minus where a mask has ones. No magnitude is 0, so that nothing is carried over.
DEV u32 negated(u32 magnitudes, u32 minus) { return (magnitudes ^ minus) + (minus & 0x01010101u); }

DEV u32 odd_byte(u32 word, u32 low) { return u32(odd(word, low)); }

struct UnpackIq1S : UnpackBook<Iq1S> {
    static constexpr bool PAIRED = true;

    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        const u32 index = Raw(raw + 2 + 4 * r).word(0), head = shared_at<u16>(raw + 34 + 2 * r);
        const u32 down = head & 0x8000u ? THIRD_BITS : 0;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = byte_of(index, j) | ((head >> (3 * j)) & 7) << 8;
            chosen_weights(UP1, DOWN1, book.template entry<2047>(at, 0) | down, out + 2 * j);
        }
    }
    DEV u32 scales(u32 raw, u32 t) {
        return of_runs(t, [raw](u32 r) { return twice(((shared_at<u16>(raw + 34 + 2 * r) >> 12) & 7) * 2 + 1); });
    }
};

struct UnpackIq1M : UnpackBook<Iq1M> {
    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        const u32 index = shared_at<u32>(raw + 4 * r), high = shared_at<u16>(raw + 32 + 2 * r);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 head = high >> (4 * j), at = byte_of(index, j) | (head & 7) << 8;
            chosen_weights(UP1, DOWN1, book.template entry<2047>(at, 0) | (head & 8 ? THIRD_BITS : 0), out + 2 * j);
        }
    }
    // Four times three bits.
    DEV u32 scales(u32 raw, u32 t) {
        const u32 s = shared_at<u16>(raw + 48 + 2 * t);
        const u32 four = (s & 7) | (s >> 3 & 7) << 8 | (s >> 6 & 7) << 16 | (s >> 9 & 7) << 24;
        return four * 2 + 0x01010101u;
    }
};

struct UnpackIq2Xxs : UnpackBook<Iq2Xxs> {
    static constexpr bool PAIRED = true;

    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        u32 code[2];
        words(raw + 2 + 8 * r, code);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 selector = book.template entry<255>(code[0], 8 * j) | book.template sign<127>(code[1], 7 * j);
            chosen_weights(MAGNITUDES2, NEGATIVES2, selector, out + 2 * j);
        }
    }
    DEV u32 scales(u32 raw, u32 t) {
        return of_runs(t, [raw](u32 r) { return twice(odd_byte(shared_at<u8>(raw + 9 + 8 * r), 4)); });
    }
};

struct UnpackIq2Xs : UnpackBook<Iq2Xs> {
    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        u32 code[2];
        words(raw + 2 + 8 * r, code);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = 16 * (j % 2), word = code[j / 2];
            const u32 selector = book.template entry<511>(word, at) | book.template sign<127>(word, at + 9);
            chosen_weights(MAGNITUDES2, NEGATIVES2, selector, out + 2 * j);
        }
    }
    DEV u32 scales(u32 raw, u32 t) {
        return of_runs(t, [raw](u32 r) {
            const u32 two = shared_at<u8>(raw + 66 + r);
            return odd_byte(two, 0) | odd_byte(two, 4) << 8;
        });
    }
};

struct UnpackIq2S : UnpackBook<Iq2S> {
    template <typename Book>
    DEV void run(u32 raw, u32 r, const Book& book, u32 (&out)[8]) {
        const Raw in(raw + 2 + 4 * r);
        const u32 index = in.word(0), signs = in.word(32), high = shared_at<u8>(raw + 66 + r);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const u32 at = byte_of(index, j) | ((high >> (2 * j)) & 3) << 8;
            const u32 selector = book.template entry<1023>(at, 0) | book.template sign<255>(signs, 8 * j);
            chosen_weights(MAGNITUDES2, NEGATIVES2, selector, out + 2 * j);
        }
    }
    DEV u32 scales(u32 raw, u32 t) {
        return of_runs(t, [raw](u32 r) {
            const u32 two = shared_at<u8>(raw + 74 + r);
            return odd_byte(two, 0) | odd_byte(two, 4) << 8;
        });
    }
};

struct UnpackIq3Xxs : UnpackBook<Iq3Xxs> {
    static constexpr bool PAIRED = true;

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
    DEV u32 scales(u32 raw, u32 t) {
        return of_runs(t, [raw](u32 r) { return twice(odd_byte(shared_at<u8>(raw + 69 + 4 * r), 4)); });
    }
};

struct UnpackIq3S : UnpackBook<Iq3S> {
    static constexpr bool PAIRED = true;

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
    DEV u32 scales(u32 raw, u32 t) {
        const u32 two = shared_at<u8>(raw + 106 + t);
        return twice(odd_byte(two, 0)) | twice(odd_byte(two, 4)) << 16;
    }
};
