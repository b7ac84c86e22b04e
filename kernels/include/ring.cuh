// How rows of blocks are shared out among warps, and how their bytes come through shared memory.
//
// A lane multiplies units of 128 weights. A warp takes 32 units at a time, a tile: some rows, or 4096 weights of a row,
// a segment. Some tiles are a stage; they come as they lie in the file, and STAGES of them have room.
#pragma once
#include "activation.cuh"
#include "packed.cuh"

constexpr u32 STAGES = 2;
constexpr u32 SEGMENT = 32;       // units of a warp's part of a row
constexpr u32 MOST_SEGMENTS = 8;  // so k is at most 32768

// The power of two that is n or the next above: its exponent.
DEV u32 log_up(u32 n) { return n <= 1 ? 0 : 32 - __clz(n - 1); }
DEV u32 pow2(u32 n) { return 1u << log_up(n); }

// From lane 0, so that the compiler knows that a warp's lanes agree: what follows from it needs no code for lanes that part.
DEV u32 warp_index() { return __shfl_sync(ALL, threadIdx.x / WARP, 0); }

// Shared memory, in bytes, for W warps and R rows a block (a launch takes the largest of its tasks; W >= segments):
//
//   units    = ceil(k / 128), segments = ceil(units / 32)
//   tables   = Book::TABLES
//   stage    = TILES * (4096 / LEN * BYTES + 32)
//   joined   = segments > 1 ? R * segments * 4 : 0
//   all      = round_up(tables + units * 144 + round_up(ceil(k / 32), 4) * 4 + joined, 16) + W * (STAGES * (8 + stage) + TOGETHER * 64)
template <typename F>
struct Shape {
    static constexpr u32 TABLES = F::Book::TABLES;
    static constexpr u32 TILE_BYTES = SEGMENT * UNIT / F::LEN * F::BYTES;
    static constexpr u32 TILE = TILE_BYTES + 32;  // room for an odd start and for words read over the end
    static constexpr u32 STAGE = F::TILES * TILE;
    static constexpr u32 ROW_SUMS = F::TOGETHER * 64;

    u32 rows, row_bytes;
    u32 units, segments;         // of a row
    u32 across, log_across;      // lanes of a row, a power of two
    u32 per_tile;                // rows of a tile
    u32 pair_bytes;              // from a pair of tiles to the next where a row is one segment
    u32 tiles, first, last, stages;   // of the block; this warp's first one, the one after its last, its stages
    u32 segment, group, groups;  // this warp's segment; warps with the same one take turns
    u32 q, scales, partials, barriers, ring, row_sums;

    __device__ __forceinline__ Shape(u32 k, u32 rows, u32 row_bytes) : rows(rows), row_bytes(row_bytes) {
        const u32 warp = warp_index(), warps = blockDim.x / WARP;
        units = (k + UNIT - 1) / UNIT;
        segments = (units + SEGMENT - 1) / SEGMENT;
        log_across = segments > 1 ? 5 : log_up(units);
        across = 1u << log_across;
        per_tile = WARP >> log_across;
        pair_bytes = 2 * per_tile * row_bytes;
        tiles = (rows + per_tile - 1) >> (5 - log_across);
        segment = 0, group = warp, groups = warps;
        if (segments > 1) {
            groups = warps / segments, group = warp / segments;
            segment = warp - group * segments;
        }
        // Neighbouring tiles, as many for each warp as for any other, or one more. One division: it takes 40 instructions.
        const u32 each = tiles / groups, more = tiles - each * groups;
        first = group < groups ? group * each + min(group, more) : 0;
        last = group < groups ? first + each + (group < more) : 0;
        stages = (last - first + F::TILES - 1) / F::TILES;
        q = TABLES;
        scales = q + units * UNIT_BYTES;
        partials = scales + (((k + 31) / 32 + 3) & ~3u) * 4;
        barriers = (partials + (segments > 1 ? rows * segments * 4 : 0) + 15) & ~15u;
        ring = barriers + warps * STAGES * 8;
        row_sums = ring + warps * STAGES * STAGE + warp * ROW_SUMS;
    }

    __device__ __forceinline__ u32 first_tile(u32 stage) const { return first + stage * F::TILES; }
};

// One warp's stages.
template <typename F>
struct Ring {
    using S = Shape<F>;
    const S& shape;
    u64* barriers;
    u32 ring;
    const u8* base;         // where copies can begin, `skew` bytes before this warp's part of the first row
    u32 skew, length, end;  // bytes of what is copied at once, and where they end at most
    u32 lane;

    __device__ __forceinline__ explicit Ring(const S& shape) : shape(shape), lane(kept(threadIdx.x % WARP)) {
        const u32 warp = warp_index();
        barriers = reinterpret_cast<u64*>(smem + shape.barriers) + warp * STAGES;
        ring = shape.ring + warp * STAGES * S::STAGE;
        if (lane == 0) {
#pragma unroll
            for (u32 s = 0; s < STAGES; s++) arrivals_begin(barriers + s);
            arrivals_are_visible();
        }
        __syncwarp();
    }

    // Where the block's first row begins; fetches what there is room for.
    __device__ __forceinline__ void begin(const u8* w) {
        const u32 before = shape.segment * S::TILE_BYTES;
        base = w + before;
        skew = u32(reinterpret_cast<size_t>(base) & 15);
        base -= skew;
        length = shape.segments > 1 ? min(S::TILE_BYTES, shape.row_bytes - before) : F::TILES * tile_stride();
        end = skew + min(shape.last * shape.per_tile, shape.rows) * shape.row_bytes - before;
#pragma unroll
        for (u32 stage = 0; stage < STAGES; stage++) fetch(stage);
    }

    __device__ __forceinline__ u32 tile_stride() const { return shape.per_tile * shape.row_bytes; }

    // Whole sixteens around a tile, or around all tiles of a stage, which lie side by side where a row is one segment.
    __device__ __forceinline__ u32 stretch(u32 tile, u32& from) const {
        const u32 start = skew + tile * tile_stride();
        from = start & ~15u;
        return ((min(start + length, end) + 15) & ~15u) - from;
    }

    __device__ __forceinline__ void fetch(u32 stage) const {
        if (stage < shape.stages) {
            const u32 tile = shape.first_tile(stage), to = ring + stage % STAGES * S::STAGE;
            // One stretch is by far the most frequent, and has no loop.
            if (shape.segments == 1) {
                u32 from;
                const u32 bytes = stretch(tile, from);
                expect(stage, bytes);
                copy(stage, to, from, bytes);
            } else {
                const u32 n = min(F::TILES, shape.last - tile);
                u32 total = 0, from;
#pragma unroll 1
                for (u32 t = 0; t < n; t++) total += stretch(tile + t, from);
                expect(stage, total);
#pragma unroll 1
                for (u32 t = 0; t < n; t++) {
                    const u32 bytes = stretch(tile + t, from);
                    copy(stage, to + t * S::TILE, from, bytes);
                }
            }
        }
#if __CUDA_ARCH__ < 900
        copies_end();
#endif
    }

    // How many bytes a stage gets.
    __device__ __forceinline__ void expect(u32 stage, u32 bytes) const {
        if (lane == 0) arrivals_expect(barriers + stage % STAGES, bytes);
    }

    // Whole sixteens from `from` to a place of a stage.
    __device__ __forceinline__ void copy(u32 stage, u32 to, u32 from, u32 bytes) const {
#if __CUDA_ARCH__ >= 900
        if (lane == 0) copy_stretch(smem + to, base + from, bytes, barriers + stage % STAGES);
#else
        for (u32 c = lane * 16; c < bytes; c += WARP * 16) copy16(smem + to + c, base + from + c);
#endif
    }

    // Until a stage is there.
    __device__ __forceinline__ void wait(u32 stage) const {
#if __CUDA_ARCH__ >= 900
        arrivals_wait(barriers + stage % STAGES, stage / STAGES & 1);
#else
        copies_wait<STAGES - 1>();
        __syncwarp();
#endif
    }

    // Place of tile `t` of a stage in shared memory.
    __device__ __forceinline__ u32 tile_at(u32 stage, u32 t) const {
        const u32 first = shape.first_tile(stage), at = ring + stage % STAGES * S::STAGE;
        return shape.segments > 1 ? at + t * S::TILE + ((skew + (first + t) * tile_stride()) & 15)
                                  : at + t * tile_stride() + ((skew + first * tile_stride()) & 15);
    }
};
