// Products with many vectors: formats with 256 weights a block.
#include "formats.cuh"
#include "rows_product.cuh"

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
