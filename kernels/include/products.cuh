// Matrices times many vectors: what a launch is told.
#pragma once
#include "base.cuh"

// rows x k weights times vectors that were rounded to bytes (rows/quantize.cu). A row of the launch is a column here: it has `parts`
// vectors, of which matrix rows p * part_rows and up meet vector first_part + p.
struct RowsTask {
    const u8* w;       // where the weights are; unless
    const u64* table;  // an expert's address stands here: then its entry, without the low four bits, + offset
    const u8* q;       // [vectors][pitch]: bytes, in the order of tile.cuh
    const float* scale;  // [vectors][scales]
    float* y;          // [columns][stride]
    const u32* book;   // the codebook, if the format has one
    u64 offset;
    u32 rows, k, row_bytes, format;
    u32 part_rows, parts, first_part;
    u32 pitch, scales, stride;
    u32 share;  // columns that share their vectors: an expert's columns are pairs of a row and a rank
    u32 x_stride;
    // Where not null, the vectors as they are, vector v of column c at c * x_stride + v * k, to be rounded by the product itself, if these
    // are columns (rows_few.cuh).
    const float* x;
};

constexpr u32 MOST_ROWS_TASKS = 8;

// Block (x, y): x counts tiles of matrix rows, task after task; y tiles of columns. With `tiles`, these are an expert's:
// {expert, first, count} each, and `order` says which columns.
struct RowsTasks {
    RowsTask task[MOST_ROWS_TASKS];
    u32 first_block[MOST_ROWS_TASKS + 1];
    u32 n, columns;
    // Of rows_few.cuh: tiles of sixteen rows that a warp has, warps that share a row, stages of a warp that are under way, steps of a
    // stage; and whether what is read was complete before the predecessor let this kernel begin.
    u32 tall, split, stages, deep, apart;
    u32* faults;  // of the launch's rows; what is not finite leaves 1 where 0 was
    const u32* order;
    const u32* tiles;
    const u32* n_tiles;
};

// The columns of a block.
struct Columns {
    u32 first, count, expert;
    const u32* order;

    __device__ __forceinline__ u32 column(u32 i) const { return order ? order[first + i] : first + i; }
};

// False where a block has nothing to do.
DEV bool find_columns(const RowsTasks& tasks, u32 width, Columns& columns) {
    columns.order = tasks.order;
    if (tasks.tiles) {
        if (blockIdx.y >= *tasks.n_tiles) return false;
        const u32* tile = tasks.tiles + 3 * blockIdx.y;
        columns.expert = tile[0], columns.first = tile[1], columns.count = tile[2];
    } else {
        columns.expert = 0, columns.first = blockIdx.y * width, columns.count = min(width, tasks.columns - columns.first);
    }
    return true;
}

// This block's task, its matrix rows and the vector of a column that they meet.
struct Place {
    u32 task, first, end, vector;
};

DEV Place find_rows(const RowsTasks& tasks, u32 height) {
    u32 t = 0;
    while (t + 1 < tasks.n && blockIdx.x >= tasks.first_block[t + 1]) t++;
    const RowsTask& task = tasks.task[t];
    const u32 block = blockIdx.x - tasks.first_block[t], across = (task.part_rows + height - 1) / height;
    const u32 part = block / across, first = part * task.part_rows + block % across * height;
    return {t, first, min(first + height, (part + 1) * task.part_rows), task.first_part + part};
}

DEV const u8* weights_of(const RowsTask& task, u32 expert) {
    return task.table ? reinterpret_cast<const u8*>(task.table[expert] & ~15ull) + task.offset : task.w;
}

// Kilobytes of shared memory that a block can have (Volta's 96 are too few for most formats, so it counts as Turing's 64). An entry
// that needs more is never launched there (crates/quant-kernels/src/cuda/rows.rs) and has no body but a
// trap: it would take the compiler as long as any other.
#if __CUDA_ARCH__ <= 750
constexpr u32 MOST_SHARED = 64;
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
constexpr u32 MOST_SHARED = 99;
#elif __CUDA_ARCH__ < 900
constexpr u32 MOST_SHARED = 163;
#else
constexpr u32 MOST_SHARED = 227;
#endif
