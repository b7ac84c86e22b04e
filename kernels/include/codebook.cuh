// The formats with a codebook: IQ1, IQ2 and IQ3.
//
// The host gives one array of words, `tables`: GRID codebook entries, then SIGNS sign entries. `codes` are those of
// crates/quant-kernels/src/grid/codes.rs, signs(i) is grid.rs's, and i itself in IQ2_S and IQ3_S:
//
//   format   GRID  entry                                       SIGNS  entry
//   IQ1_S    2048  nibble j (0..8): codes[i] >> 2j & 3             0
//   IQ1_M    2048  the same                                        0
//   IQ2_XXS   256  nibble j (0..8): codes[i] >> 2j & 3           128  bit 4j + 2: bit j of signs(i)
//   IQ2_XS    512  the same                                      128  the same
//   IQ2_S    1024  the same                                      256  bit 4j + 2: bit j of i
//   IQ3_XXS   256  grid.rs's entry: byte j (0..4) is weight j    128  for j in 0..4, bit 8j + 7: bit j of signs(i),
//                                                                     bit 8j + 6: bit 4 + j of signs(i)
//   IQ3_S     512  the same                                      256  the same of i
#pragma once
#include "wide.cuh"

// Whether a block may have 227 KB of shared memory, and tables the space that makes look-ups cheap.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
constexpr bool ROOMY = true;
#else
constexpr bool ROOMY = false;
#endif

// Tables at the start of shared memory, `COPIES` of each entry side by side: lanes that share no copy do not wait for
// each other. `copy` is the lane's copy in bytes.
template <u32 GRID, u32 COPIES>
struct Codebook {
    u32 copy;

    // The entry whose index is bits `low` and up of `word`; `MASK` is one less than a power of two.
    template <u32 MASK>
    __device__ __forceinline__ u32 entry(u32 word, u32 low) const {
        return shared_at<u32>(offset<MASK>(word, low));
    }
    template <u32 MASK>
    __device__ __forceinline__ u32 sign(u32 word, u32 low) const {
        return shared_at<u32>(offset<MASK>(word, low) + GRID * COPIES * 4);
    }
    // One shift and one three-way operation.
    template <u32 MASK>
    __device__ __forceinline__ u32 offset(u32 word, u32 low) const {
        constexpr u32 SHIFT = COPIES >= 32 ? 7 : COPIES >= 16 ? 6 : COPIES >= 8 ? 5 : COPIES >= 4 ? 4 : 3;
        static_assert(GRID == 0 || COPIES == 1u << (SHIFT - 2), "2, 4, 8, 16 or 32");
        const u32 moved = low >= SHIFT ? word >> (low - SHIFT) : word << (SHIFT - low);
        return (moved & (MASK << SHIFT)) | copy;
    }
};

// `COPIES` copies of `n` words, entry i's at `place(i)`: sixteen bytes a thread and time, eight words under way.
template <u32 COPIES, typename Word, typename Place>
DEV void fill_table(u32 n, Word word, Place place) {
    constexpr u32 PIECES = COPIES / 4, BATCH = 8;
#pragma unroll 1
    for (u32 from = threadIdx.x; from < n * PIECES; from += BATCH * blockDim.x) {
        u32 value[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            const u32 i = from + b * blockDim.x;
            value[b] = i < n * PIECES ? word(i / PIECES) : 0;
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            const u32 i = from + b * blockDim.x, v = value[b];
            if (i < n * PIECES) shared_at<uint4>(place(i / PIECES) + i % PIECES * 16) = make_uint4(v, v, v, v);
        }
    }
}

// What a product of one vector looks up: a table's place and form, by format.
struct Same {
    __device__ __forceinline__ u32 operator()(u32 word) const { return word; }
};

template <u32 GRID, u32 SIGNS, u32 COPIES>
struct CopiesBook : Codebook<GRID, COPIES> {
    static constexpr u32 TABLES = (GRID + SIGNS) * COPIES * 4;

    template <typename Sign = Same>
    DEV void fill(const u32* tables, Sign sign = Sign()) {
        fill_table<COPIES>(
            GRID + SIGNS, [&](u32 i) { return i < GRID ? tables[i] : sign(tables[i]); }, [](u32 i) { return i * COPIES * 4; });
    }
    __device__ __forceinline__ CopiesBook(u32 lane, const u32 (&)[32]) : Codebook<GRID, COPIES>{lane % COPIES * 4} {}

    // Of 256 entries by byte j of a word; a sign by the seven bits from 7j, or by byte j.
    __device__ __forceinline__ u32 by_byte(u32 word, u32 j) const { return this->template entry<255>(word, 8 * j); }
    __device__ __forceinline__ u32 sign_by_seven(u32 word, u32 j) const { return this->template sign<127>(word, 7 * j); }
    __device__ __forceinline__ u32 sign_by_byte(u32 word, u32 j) const { return this->template sign<255>(word, 8 * j); }
    // Of 1024 by byte j of `word` and the two bits of `high` from 8i + 2j.
    __device__ __forceinline__ u32 by_ten(u32 word, u32 high, u32 i, u32 j) const {
        return this->template entry<1023>(byte_of(word, j) | ((high >> (8 * i + 2 * j)) & 3) << 8, 0);
    }
};

// A row of 256 bytes for each value of a byte: the byte goes above the lane's own place in one `prmt`, no shift, no mask.
DEV u32 row_place(u32 word, u32 j, u32 own) { return choose(word, own, 0x5504 | j << 4); }
// The word `BEHIND` bytes behind a place: the distance stands in the instruction.
template <u32 BEHIND>
DEV u32 word_behind(u32 place) {
    return (&shared_at<u32>(place))[BEHIND / 4];
}

// The lane's own place in the row that byte j of `word` names, rows of 128 bytes. It is made by a product: with a `prmt` for rows of 256
// bytes the unit for logic, shifts and `prmt` is busy for 70 % of the time, so 51, and that for products 58.
DEV u32 row_of_byte(u32 word, u32 j, u32 own) { return dp4a_of_bytes(word, 128u << (8 * j), own); }

// 32 copies of each of 256 entries, then of the 128 signs, twice: a byte's highest bit is the next sign's, and need not be taken off.
struct RowsBook {
    static constexpr u32 SIGNS_AT = 256 * 128, TABLES = 2 * SIGNS_AT;
    u32 own;

    template <typename Sign = Same>
    DEV void fill(const u32* tables, Sign sign = Sign()) {
        fill_table<32>(256, [&](u32 i) { return tables[i]; }, [](u32 i) { return i * 128; });
        fill_table<32>(256, [&](u32 i) { return sign(tables[256 + i % 128]); }, [](u32 i) { return SIGNS_AT + i * 128; });
    }
    __device__ __forceinline__ RowsBook(u32 lane, const u32 (&)[32]) : own(lane * 4) { keep_as_is(own); }

    __device__ __forceinline__ u32 by_byte(u32 word, u32 j) const { return shared_at<u32>(row_of_byte(word, j, own)); }
    __device__ __forceinline__ u32 sign_by_seven(u32 word, u32 j) const { return word_behind<SIGNS_AT>(row_of_byte(word << j, j, own)); }
};

// 1024 entries, 16 copies of each four with the same low byte a row, and 256 signs in rows of their own, half used.
struct TenBook {
    static constexpr u32 SIGNS_AT = 256 * 256, TABLES = 2 * SIGNS_AT;
    u32 own, own16;  // the second in the three lowest bytes

    DEV void fill(const u32* tables) {
        // Four of a row one after the other: a quarter of a warp meets all banks.
        fill_table<16>(1024, [&](u32 i) { return tables[i % 4 * 256 + i / 4]; }, [](u32 i) { return i * 64; });
        fill_table<32>(256, [&](u32 i) { return tables[1024 + i]; }, [](u32 i) { return SIGNS_AT + i * 256; });
    }
    __device__ __forceinline__ TenBook(u32 lane, const u32 (&)[32]) : own(lane * 4), own16(kept(lane % 16 * 0x040404u)) {}

    // The two bits go above the lane's place, in three bytes at once for the words 0 to 2: byte 3 is zero.
    __device__ __forceinline__ u32 by_ten(u32 word, u32 high, u32 i, u32 j) const {
        const u32 word_i = i == 3 ? (high >> (18 + 2 * j)) & 0xc0u : (high << (6 - 2 * j)) & 0x00c0c0c0u;
        const u32 places = i == 3 ? word_i | (own16 & 0xffu) : word_i | own16;
        return shared_at<u32>(choose(word, places, 0x7704 | i % 3 | j << 4));
    }
    __device__ __forceinline__ u32 sign_by_byte(u32 word, u32 j) const { return word_behind<SIGNS_AT>(row_place(word, j, own)); }
};

template <bool YES, typename A, typename B>
struct Either {
    typedef A Type;
};
template <typename A, typename B>
struct Either<false, A, B> {
    typedef B Type;
};

// Eight weights of an entry of two-bit values: its nibbles choose among the eight bytes of (a, b).
DEV i32 eight_of(u32 a, u32 b, u32 selector, u32 x0, u32 x1, i32 sum) {
    sum = dp4a(choose(a, b, selector), x0, sum);
    return dp4a(choose(a, b, selector >> 16), x1, sum);
}

// Twice a nibble, plus one.
DEV i32 odd(u32 word, u32 low) { return i32(((word >> low) & 15) * 2 + 1); }

// IQ1: -8, 0, 8 shifted up by 1; with a nibble's third bit, down by 1.
constexpr u32 UP1 = four_bytes(-7, 1, 9, 1), DOWN1 = four_bytes(-9, -1, 7, -1);
constexpr u32 THIRD_BITS = 0x44444444u;

struct Iq1S : WideFormat {
    static constexpr u32 BYTES = 50, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 2048, COPIES = 4;
    typedef CopiesBook<GRID, SIGNS, COPIES> Book;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[4], high[2];
        words(block + 2 + 16 * half, index);
        words(block + 34 + 8 * half, high);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 head = high[i / 2] >> (16 * (i % 2));
            const u32 down = head & 0x8000u ? THIRD_BITS : 0;
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 at = byte_of(index[i], j) | ((head >> (3 * j)) & 7) << 8;
                const u32 selector = book.template entry<2047>(at, 0) | down;
                part = eight_of(UP1, DOWN1, selector, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], part);
            }
            sum += i32(((head >> 12) & 7) * 2 + 1) * part;
        }
        return sum;
    }
};

struct Iq1M : WideFormat {
    static constexpr u32 BYTES = 56, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 2048, COPIES = 4;
    typedef CopiesBook<GRID, SIGNS, COPIES> Book;

    // The half lies in the top nibbles of the four words of scales.
    DEV float d(u32 block) {
        u32 s[2];
        words_aligned<8>(block + 48, s);
        const u32 low = ((s[0] >> 12) & 0xfu) | ((s[0] >> 24) & 0xf0u);
        const u32 high = ((s[1] >> 12) & 0xfu) | ((s[1] >> 24) & 0xf0u);
        return half_value(u16(low | high << 8)) * 0.125f;
    }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[4], high[2];
        words_aligned<8>(block + 16 * half, index);
        words_aligned<8>(block + 32 + 8 * half, high);
        const u32 scales = shared_at<u32>(block + 48 + 4 * half);
        i32 sum = 0;
#pragma unroll
        for (int s = 0; s < 8; s++) {
            i32 part = 0;
#pragma unroll
            for (int c = 2 * s; c < 2 * s + 2; c++) {
                const u32 head = high[c / 8] >> (4 * (c % 8));
                const u32 at = byte_of(index[c / 4], c % 4) | (head & 7) << 8;
                const u32 selector = book.template entry<2047>(at, 0) | (head & 8 ? THIRD_BITS : 0);
                part = eight_of(UP1, DOWN1, selector, x[2 * c], x[2 * c + 1], part);
            }
            sum += i32(((scales >> (16 * (s / 4) + 3 * (s % 4))) & 7) * 2 + 1) * part;
        }
        return sum;
    }
};

// IQ2: magnitudes 8, 25, 43 and their negatives: an entry's nibble chooses the magnitude, its third bit the sign.
constexpr u32 MAGNITUDES2 = four_bytes(8, 25, 43, 0), NEGATIVES2 = four_bytes(-8, -25, -43, 0);

// Both in registers: `prmt` takes one constant, and the other would be moved to a register for each. An entry joins its
// signs by a multiply-add with `one`, since the units for and, or and shifts have the most to do.
template <typename Places>
struct Magnitudes : Places {
    u32 plus, minus, one;
    __device__ __forceinline__ Magnitudes(u32 lane, const u32 (&x)[32])
        : Places(lane, x), plus(MAGNITUDES2 + lane / WARP), minus(NEGATIVES2 + lane / WARP), one(1 + lane / WARP) {
        keep_as_is(plus), keep_as_is(minus), keep_as_is(one);
    }

    __device__ __forceinline__ u32 joined(u32 entry, u32 signs) const { return entry * one + signs; }
};

struct Iq2Xxs : WideFormat {
    static constexpr u32 BYTES = 66, TILES = 4, ABREAST = 2, TOGETHER = 8;
    static constexpr u32 GRID = 256, SIGNS = 128, COPIES = 32;
    typedef Magnitudes<Either<ROOMY, RowsBook, CopiesBook<GRID, SIGNS, COPIES>>::Type> Book;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 code[8];
        words(block + 2 + 32 * half, code);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 index = code[2 * i], signs = code[2 * i + 1];
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 selector = book.joined(book.by_byte(index, j), book.sign_by_seven(signs, j));
                part = eight_of(book.plus, book.minus, selector, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], part);
            }
            sum += odd(signs, 28) * part;
        }
        return sum;
    }
};

struct Iq2Xs : WideFormat {
    static constexpr u32 BYTES = 74, TILES = 4, ABREAST = 2;
    static constexpr u32 GRID = 512, SIGNS = 128, COPIES = 16;
    typedef Magnitudes<CopiesBook<GRID, SIGNS, COPIES>> Book;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 code[8], scales[1];
        words(block + 2 + 32 * half, code);
        words(block + 66 + 4 * half, scales);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 selector =
                    book.joined(book.template entry<511>(code[i], 16 * j), book.template sign<127>(code[i], 16 * j + 9));
                part = eight_of(book.plus, book.minus, selector, x[4 * i + 2 * j], x[4 * i + 2 * j + 1], part);
            }
            sum += odd(scales[0], 4 * i) * part;
        }
        return sum;
    }
};

struct Iq2S : WideFormat {
    static constexpr u32 BYTES = 82, TILES = ROOMY ? 2 : 4, ABREAST = 2;  // its large tables leave less to the stages
    static constexpr u32 GRID = 1024, SIGNS = 256, COPIES = 8;
    typedef Magnitudes<Either<ROOMY, TenBook, CopiesBook<GRID, SIGNS, COPIES>>::Type> Book;

    DEV float d(u32 block) { return half_at(block) * 0.125f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[4], signs[4], high[1], scales[1];
        words(block + 2 + 16 * half, index);
        words(block + 34 + 16 * half, signs);
        words(block + 66 + 4 * half, high);
        words(block + 74 + 4 * half, scales);
        // Twice a nibble, plus one, in each byte: of the first and of the second sixteen weights.
        const u32 odds[2] = {((scales[0] << 1) & 0x1e1e1e1eu) | 0x01010101u, ((scales[0] >> 3) & 0x1e1e1e1eu) | 0x01010101u};
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i32 part[2] = {0, 0};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 selector = book.joined(book.by_ten(index[i], high[0], i, j), book.sign_by_byte(signs[i], j));
                i32& sum8 = part[j / 2];
                sum8 = eight_of(book.plus, book.minus, selector, x[8 * i + 2 * j], x[8 * i + 2 * j + 1], sum8);
            }
            sum += i32(choose(odds[0], 0, 0x4440 | i)) * part[0];
            sum += i32(choose(odds[1], 0, 0x4440 | i)) * part[1];
        }
        return sum;
    }
};

// IQ3: an entry is four magnitudes. A complement is the negative minus 1, so that activations under a minus are missing
// once: `short_of` gathers them, negated, since a mask's bytes are -1.
DEV void eight_signed(u32 m0, u32 m1, u32 signs, u32 x0, u32 x1, i32& sum, i32& short_of) {
    const u32 minus0 = byte_masks(signs), minus1 = byte_masks(signs + signs);
    sum = dp4a(m0 ^ minus0, x0, sum);
    short_of = dp4a(minus0, x0, short_of);
    sum = dp4a(m1 ^ minus1, x1, sum);
    short_of = dp4a(minus1, x1, short_of);
}

// Signs that go to the activations: each byte is chosen from x and from its negative. The table's signs become selectors.
template <typename Places>
struct Turned : Places {
    u32 minus[32];

    DEV u32 turned(u32 tops) {
        u32 selector = 0x32103210u;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            selector |= ((tops >> (8 * j + 7)) & 1) << (4 * j + 2) | ((tops >> (8 * j + 6)) & 1) << (4 * j + 18);
        }
        return selector;
    }
    DEV void fill(const u32* tables) { Places::fill(tables, turned); }
    __device__ __forceinline__ Turned(u32 lane, const u32 (&x)[32]) : Places(lane, x) {
        // 0 - x in each byte; -128 does not occur.
#pragma unroll
        for (u32 i = 0; i < 32; i++) minus[i] = kept((0x80808080u - (x[i] & 0x7f7f7f7fu)) ^ (~x[i] & 0x80808080u));
    }
};

struct Iq3Xxs : WideFormat {
    static constexpr u32 BYTES = 98, TILES = 2, ABREAST = 2;
    static constexpr u32 GRID = 256, SIGNS = 128, COPIES = 32;
    typedef Turned<Either<ROOMY, RowsBook, CopiesBook<GRID, SIGNS, COPIES>>::Type> Book;

    DEV float d(u32 block) { return half_at(block) * 0.25f; }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[8], signs[4];
        words(block + 2 + 32 * half, index);
        words(block + 66 + 16 * half, signs);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i32 part = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 word = index[2 * i + j / 2], at = 2 * (j % 2), first = 8 * i + 2 * j;
                const u32 selector = book.sign_by_seven(signs[i], j);
                part = dp4a(book.by_byte(word, at), choose(x[first], book.minus[first], selector), part);
                part = dp4a(book.by_byte(word, at + 1), choose(x[first + 1], book.minus[first + 1], selector >> 16), part);
            }
            sum += odd(signs[i], 28) * part;
        }
        return sum;
    }
};

struct Iq3S : WideFormat {
    static constexpr u32 BYTES = 110, TILES = 2, ABREAST = 2;
    static constexpr u32 GRID = 512, SIGNS = 256, COPIES = 16;
    typedef CopiesBook<GRID, SIGNS, COPIES> Book;

    DEV float d(u32 block) { return half_at(block); }

    template <typename Book>
    DEV i32 dot(u32 block, u32 half, const u32 (&x)[32], const u32 (&)[4], const Book& book) {
        u32 index[8], high[1], signs[4];
        words(block + 2 + 32 * half, index);
        words(block + 66 + 4 * half, high);
        words(block + 74 + 16 * half, signs);
        const u32 scales = shared_at<u16>(block + 106 + 2 * half);
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            i32 part = 0, short_of = 0;
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const int w = 2 * i + t;
                // Four ninth bits to four bytes, then behind their indices: two indices a word.
                const u32 ninth = (((high[0] >> (4 * w)) & 15) * 0x00204081u) & 0x01010101u;
                const u32 pair[2] = {choose(index[w], ninth, 0x5140), choose(index[w], ninth, 0x7362)};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const u32 m0 = book.template entry<511>(pair[j], 0), m1 = book.template entry<511>(pair[j], 16);
                    const u32 sign = book.template sign<255>(signs[i], 8 * (2 * t + j));
                    eight_signed(m0, m1, sign, x[4 * w + 2 * j], x[4 * w + 2 * j + 1], part, short_of);
                }
            }
            sum += odd(scales, 4 * i) * (part - short_of);
        }
        return sum;
    }
};
