// Which formats with 256 weights a block there are.
#pragma once
#include "unpack_book.cuh"

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
