// Products with many vectors: formats with 32 weights a block.
#include "rows_few.cuh"

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

    template <typename G, typename Take>
    DEV void values(u32 format, const u32 (&raw)[2], const Lane<G>& own, const Rooms<G, 8>& rooms, u32 step, u32 runs,
                    float (&v)[G::OUTPUTS], Take take) {
        choose_format(format, [&](auto unpack) { run_values<decltype(unpack)>(raw, own, rooms, step, runs, v, take); });
    }
};

// 128 rows and 32 columns a block.
extern "C" __global__ void __launch_bounds__(256, 1) rows_narrow(const __grid_constant__ RowsTasks tasks) {
    rows_product<Geometry<8, 4>, NarrowFormats>(tasks);
}

// For chips with less shared memory: 64 and 32.
extern "C" __global__ void __launch_bounds__(128, 1) rows_narrow_small(const __grid_constant__ RowsTasks tasks) {
    rows_product<Geometry<4, 4>, NarrowFormats>(tasks);
}

// Up to eight vectors.
extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1) rows_narrow_few(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 64) {
        rows_few<NarrowFormats>(tasks);
    } else {
        __trap();
    }
}

// Of each of several experts.
extern "C" __global__ void __launch_bounds__(EXPERT_THREADS, 1) rows_narrow_experts(const __grid_constant__ RowsTasks tasks) {
    if constexpr (MOST_SHARED > 64) {
        rows_few_of_experts<NarrowFormats>(tasks);
    } else {
        __trap();
    }
}
