// Products with up to eight vectors (rows_few.cuh): formats with 256 weights a block.
#include "formats.cuh"
#include "rows_few.cuh"

// Formats without a codebook.
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

// Vectors of each of several experts: every format.
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
