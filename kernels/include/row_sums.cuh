// Sums of a row's lanes, of some tiles at once.
#pragma once
#include "ring.cuh"

// A warp leaves its lanes' values in shared memory until TOGETHER tiles have some. Then each lane adds neighbouring ones, so that the trees
// of all of these tiles take as many shuffles as one tile's would: with a tree by shuffles for each stage, a fifth of a warp's time went
// into what is not a product.
template <typename F>
struct RowSums {
    static constexpr u32 EACH = F::TOGETHER / 2;  // values that a lane adds up
    const Shape<F>& shape;
    float* y;
    u32 lane, held, row;  // `held` tiles have values, from the one on that begins with `row`

    __device__ __forceinline__ RowSums(const Shape<F>& shape, u32 lane, float* y)
        : shape(shape), y(y), lane(lane), held(0), row(shape.first * shape.per_tile) {}

    // The value of tile `t` of those to come in an even lane, of the one after it in an odd lane. A pair of lanes has a value of each.
    __device__ __forceinline__ void put(u32 t, float value) {
        shared_at<float>(shape.row_sums + (held + t + lane % 2) * 64 + lane / 2 * 4) = value;
    }

    // So many more tiles have values; after the last ones, all rows are written.
    __device__ __forceinline__ void add(u32 tiles, bool last) {
        held += tiles;
        if (held < F::TOGETHER && !last) return;
        __syncwarp();
        float v[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; i += 2) {
            const float2 two = shared_at<float2>(shape.row_sums + (lane * EACH + i) * 4);
            v[i] = two.x, v[i + 1] = two.y;
        }
        const u32 of_row = shape.across / 2;  // values
#pragma unroll
        for (u32 left = EACH / 2, of = 1; left > 0; left /= 2, of *= 2) {
            if (of < of_row) {
#pragma unroll
                for (u32 i = 0; i < left; i++) v[i] = v[2 * i] + v[2 * i + 1];
            }
        }
#pragma unroll
        for (u32 mask = 1; mask * EACH < 16; mask *= 2) {
            const float other = lane_xor(v[0], mask);
            if (mask * EACH < of_row) v[0] = v[0] + other;
        }
        // A lane has a part of a row, or whole ones.
        const u32 rows = held * shape.per_tile, own = lane * EACH >> (shape.log_across - 1);
        const bool begins = (lane * EACH & (of_row - 1)) == 0;
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            if (i * of_row < EACH && begins && own + i < rows && row + own + i < shape.rows) {
                if (shape.segments > 1) {
                    shared_at<float>(shape.partials + ((row + own + i) * shape.segments + shape.segment) * 4) = v[i];
                } else {
                    y[row + own + i] = v[i];
                }
            }
        }
        row += rows, held = 0;
        __syncwarp();
    }
};
