// Products with many vectors: formats with 32 weights a block.
#include "rows_product.cuh"

struct NarrowFormats {
    static constexpr bool RUNS = true;

    // Calls `with` for the format of a number; crates/quant-kernels/src/cuda/rows.rs has the same numbers.
    template <typename With>
    DEV void choose_format(u32 format, With with) {
        switch (format) {
            case 0: return with(UnpackQ8_0());
            case 1: return with(UnpackQ4_0());
            case 2: return with(UnpackQ4_1());
            case 3: return with(UnpackQ5_0());
            case 4: return with(UnpackQ5_1());
            case 5: return with(UnpackIq4Nl());
            default: return with(UnpackMxfp4());
        }
    }

    DEV Traits traits(u32 format) {
        Traits out;
        choose_format(format, [&](auto unpack) { out = traits_of<decltype(unpack), true>(); });
        return out;
    }

    DEV void tables(u32, const u32*) {}

    template <typename T>
    DEV void unpack(u32 format, const u32 (&raw)[2], u32 tile, u32 rows16, u32 g, u32 t, u32 half) {
        choose_format(format, [&](auto unpack) { unpack_two<decltype(unpack), true, true, T>(raw, tile, rows16, g, t, half); });
    }
};

// 128 rows and 64 columns a block.
extern "C" __global__ void __launch_bounds__(512, 1) rows_narrow(const __grid_constant__ RowsTasks tasks) {
    rows_product<Geometry<2, 2, 4, 4, true>, NarrowFormats>(tasks);
}

// For chips with less shared memory: 32 and 32.
extern "C" __global__ void __launch_bounds__(128, 1) rows_narrow_small(const __grid_constant__ RowsTasks tasks) {
    rows_product<Geometry<1, 2, 2, 2, false>, NarrowFormats>(tasks);
}
