// The tree of docs/ARITHMETIC.md over partial sums that lie in neighbouring lanes.
#pragma once
#include "base.cuh"

// Adds pairs (2i, 2i + 1) level by level, beginning with lanes `first` apart, as long as they are less than `lanes` apart.
DEV float tree(float sum, u32 first, u32 lanes) {
    for (u32 mask = first; mask < lanes; mask *= 2) sum = sum + lane_xor(sum, mask);
    return sum;
}
