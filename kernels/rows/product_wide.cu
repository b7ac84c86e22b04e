// Products with many vectors: formats with 256 weights a block.
#include "rows_few.cuh"

// Every format.
struct AllFormats {
    static constexpr bool RUNS = false;

    // Calls `with` for the format of a number; crates/quant-kernels/src/cuda/rows.rs has the same numbers.
    template <typename With>
    DEV void choose_format(u32 format, With with) {
        switch (format) {
            case 0: return with(UnpackQ6K());
            case 1: return with(UnpackIq2Xxs());
            case 2: return with(UnpackIq2S());
            case 3: return with(UnpackIq3Xxs());
            case 4: return with(UnpackQ2K());
            case 5: return with(UnpackQ3K());
            case 6: return with(UnpackQ4K());
            case 7: return with(UnpackQ5K());
            case 8: return with(UnpackIq4Xs());
            case 9: return with(UnpackIq1S());
            case 10: return with(UnpackIq1M());
            case 11: return with(UnpackIq2Xs());
            default: return with(UnpackIq3S());
        }
    }
};

// Products of the formats that `Choice` knows.
template <typename Choice, bool BIG>
struct WideFormats {
    static constexpr bool RUNS = false;

    DEV Traits traits(u32 format) {
        Traits out;
        Choice::choose_format(format, [&](auto unpack) { out = traits_of<decltype(unpack), BIG>(); });
        return out;
    }

    DEV void tables(u32 format, const u32* book) {
        Choice::choose_format(format, [&](auto unpack) { make_tables<decltype(unpack), BIG>(book); });
    }

    template <typename G>
    DEV void values(u32 format, const u32 (&raw)[2], const Lane<G>& own, const Rooms<G, 1>& rooms, u32 step, float (&v)[G::OUTPUTS]) {
        Choice::choose_format(format, [&](auto unpack) { wide_values<decltype(unpack), BIG>(raw, own, rooms, step, v); });
    }
};

// 128 rows and 64 columns a block, and two blocks a multiprocessor: with one, its eight warps did not hide each other's waiting.
extern "C" __global__ void __launch_bounds__(256, 2) rows_wide(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 64) {
        rows_product<Geometry<8, 8, 0>, WideFormats<AllFormats, true>>(tasks);
    } else {
        __trap();
    }
}

// The formats of dense matrices, with the same numbers.
struct DenseFormats {
    template <typename With>
    DEV void choose_format(u32 format, With with) {
        switch (format) {
            case 0: return with(UnpackQ6K());
            case 6: return with(UnpackQ4K());
            default: return with(UnpackQ5K());
        }
    }
};

// 128 and 128: where there are that many columns, they share what unpacking takes.
extern "C" __global__ void __launch_bounds__(256, 1) rows_wide_double(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 99) {
        rows_product<Geometry<8, 16, 0>, WideFormats<DenseFormats, true>>(tasks);
    } else {
        __trap();
    }
}

// For chips with less shared memory: 64 and 32.
extern "C" __global__ void __launch_bounds__(128, 1) rows_wide_small(const __grid_constant__ RowsTasks tasks) {
    rows_product<Geometry<4, 4>, WideFormats<AllFormats, false>>(tasks);
}

// Up to eight vectors (rows_few.cuh): formats without a codebook.
struct FewFormats {
    static constexpr bool RUNS = false;

    template <typename With>
    DEV void choose_format(u32 format, With with) {
        switch (format) {
            case 0: return with(UnpackQ6K());
            case 4: return with(UnpackQ2K());
            case 5: return with(UnpackQ3K());
            case 6: return with(UnpackQ4K());
            case 7: return with(UnpackQ5K());
            default: return with(UnpackIq4Xs());
        }
    }
};

extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1) rows_wide_few(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 64) {
        rows_few<FewFormats>(tasks);
    } else {
        __trap();
    }
}

// Up to eight vectors of each of several experts: every format.
extern "C" __global__ void __launch_bounds__(EXPERT_THREADS, 1) rows_wide_experts(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 64) {
        rows_few_of_experts<AllFormats>(tasks);
    } else {
        __trap();
    }
}

// Dense matrices with a codebook.
struct BookFormats {
    static constexpr bool RUNS = false;

    template <typename With>
    DEV void choose_format(u32 format, With with) {
        switch (format) {
            case 1: return with(UnpackIq2Xxs());
            case 2: return with(UnpackIq2S());
            case 3: return with(UnpackIq3Xxs());
            case 9: return with(UnpackIq1S());
            case 10: return with(UnpackIq1M());
            case 11: return with(UnpackIq2Xs());
            default: return with(UnpackIq3S());
        }
    }
};

extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1) rows_book_few(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 64) {
        rows_few<BookFormats>(tasks);
    } else {
        __trap();
    }
}
