// Which positions a row attends to, and attention over them (crates/glm-graph/src/cpu/dsa.rs, pools.rs; docs/ARITHMETIC.md).
//
// Three kernels: scores, softmax, weighted sum. The fast path is latents of 512 values and heads in multiples of 8. On it the
// scores' kernel, which has every attended row in shared memory anyway, also writes the rows out again in the order in which
// the weighted sum reads them:
//
//     gathered[block of 32 columns][four positions][pair of columns][position of the four][column of the pair]
//
// so that one 16-byte read gives a thread its two columns of four positions (f16), or of two (f32: the four positions are two
// runs of 16 pairs each). Without that the weighted sum would be bound by reads of shared memory and not by its chain of
// multiply-adds.
#pragma once
#include "canon.cuh"
#include "dots.cuh"

constexpr u32 FAST_LATENT = 512;
constexpr u32 COLUMNS = 32;  // of a block of the weighted sum
constexpr u32 PAIRS = COLUMNS / 2;
constexpr u32 MIX_HEADS = 8;
constexpr u32 GROUP = 4;  // positions that lie together in `gathered`

DEV bool fast_attention(u32 heads, u32 latent) { return latent == FAST_LATENT && heads % MIX_HEADS == 0; }

// What the row at `position` attends to: `whole` positions from chosen pools, then those from `tail` on; n in all.
struct Attended {
    u32 n, whole, tail;
};

// While fewer than top + 1 pools are complete a row sees everything.
DEV bool sees_everything(u32 position, u32 kpool, u32 top) { return position < (top + 1) * kpool - 1; }

DEV Attended attended(u32 position, u32 kpool, u32 top) {
    if (sees_everything(position, kpool, top)) return {position + 1, 0, 0};
    const u32 rest = (position + 1) % kpool;
    return {top * kpool + rest, top * kpool, position + 1 - rest};
}

// The j-th attended position, ascending.
DEV u32 attended_position(const Attended& a, const u32* pools, u32 kpool, u32 j) {
    if (j >= a.whole) return a.tail + (j - a.whole);
    return pools[j / kpool] * kpool + j % kpool;
}

// Latents as they are stored.
struct HalfRow {
    typedef u16 Value;
    static constexpr u32 BYTES = 2;
    static constexpr u32 STAGES = 5;  // of the weighted sum
    DEV float value(const u8* row, size_t i) { return half_value(reinterpret_cast<const u16*>(row)[i]); }
    // Values 2i and 2i + 1 of the row at a place in shared memory.
    DEV float2 pair(u32 row, u32 i) { return halves_of(shared_at<u32>(row + i * 4)); }
};

struct FloatRow {
    typedef float Value;
    static constexpr u32 BYTES = 4;
    static constexpr u32 STAGES = 3;
    DEV float value(const u8* row, size_t i) { return reinterpret_cast<const float*>(row)[i]; }
    DEV float2 pair(u32 row, u32 i) { return shared_at<float2>(row + i * 8); }
};

// ---- scores

constexpr u32 SCORE_THREADS = 512;
constexpr u32 SCORE_HEADS = 4;        // of a warp
constexpr u32 SCORE_GROUPS = 8;       // warps that share rows: 32 heads of a block
constexpr u32 SCORE_SIDES = SCORE_THREADS / WARP / SCORE_GROUPS;
constexpr u32 TILE_UNITS = 8;         // of four rows, in shared memory at once
constexpr u32 TILE_ROWS = TILE_UNITS * GROUP;

// A block of blockIdx.y's 32 heads takes its share of the rows. A warp keeps four heads' queries in registers. Lanes 0 to 15
// have the first 256 elements of a row, 16 to 31 the rest; a lane does two neighbouring lanes of the dot order, 2i and 2i + 1,
// so that values are read in pairs and the first level of the tree needs no shuffle; the last level adds the two blocks.
template <typename Row>
DEV void scores_512(const float* queries, const u8* rows, const u32* pools, const Attended& a, float* scores, u8* gathered,
                    u32 heads, u32 kpool, u32 stride, float scale) {
    constexpr u32 ROW = FAST_LATENT * Row::BYTES;
    const u32 tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const u32 head = blockIdx.y * SCORE_HEADS * SCORE_GROUPS + warp % SCORE_GROUPS * SCORE_HEADS, side = warp / SCORE_GROUPS;
    const u32 column = lane / 16 * DOT_BLOCK + lane % 16 * 2;
    const bool works = head < heads;
    float q[SCORE_HEADS][16];
#pragma unroll
    for (u32 h = 0; h < SCORE_HEADS; h++) {
#pragma unroll
        for (u32 s = 0; s < 8; s++) {
            float2 two = make_float2(0.0f, 0.0f);
            if (works) two = *reinterpret_cast<const float2*>(queries + (head + h) * FAST_LATENT + column + s * WARP);
            q[h][2 * s] = two.x;
            q[h][2 * s + 1] = two.y;
        }
    }
    const u32 units = (a.n + GROUP - 1) / GROUP, share = (units + gridDim.x - 1) / gridDim.x;
    const u32 first = blockIdx.x * share, end = min(first + share, units);
    for (u32 unit = first; unit < end; unit += TILE_UNITS) {
        const u32 count = min(TILE_UNITS, end - unit);
        if (unit != first) __syncthreads();
        constexpr u32 PIECES = ROW / 16;
        for (u32 i = tid; i < count * GROUP * PIECES; i += SCORE_THREADS) {
            const u32 row = i / PIECES, j = unit * GROUP + row;
            if (j < a.n) {
                const size_t from = size_t(attended_position(a, pools, kpool, j)) * ROW;
                copy16(smem + row * ROW + i % PIECES * 16, rows + from + i % PIECES * 16);
            }
        }
        copies_end();
        copies_wait<0>();
        __syncthreads();

        // Column blocks are dealt out among the blocks of other heads, which have the same rows.
        constexpr u32 CELL = GROUP * 2 * Row::BYTES;  // four positions of a pair of columns
        const u32 column_blocks = FAST_LATENT / COLUMNS, groups = stride / GROUP;
        for (u32 i = tid; i < column_blocks * count * PAIRS; i += SCORE_THREADS) {
            const u32 pair = i % PAIRS, g = i / PAIRS % count, block = i / PAIRS / count * gridDim.y + blockIdx.y;
            if (block >= column_blocks) break;
            const u32 from = g * GROUP * ROW + (block * PAIRS + pair) * 2 * Row::BYTES;
            u8* to = gathered + (size_t(block) * groups + unit + g) * (PAIRS * CELL) + pair * 16;
            if constexpr (Row::BYTES == 2) {
                *reinterpret_cast<uint4*>(to) = make_uint4(shared_at<u32>(from), shared_at<u32>(from + ROW),
                                                           shared_at<u32>(from + 2 * ROW), shared_at<u32>(from + 3 * ROW));
            } else {
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    const uint2 x = shared_at<uint2>(from + 2 * half * ROW), y = shared_at<uint2>(from + (2 * half + 1) * ROW);
                    *reinterpret_cast<uint4*>(to + half * PAIRS * 16) = make_uint4(x.x, x.y, y.x, y.y);
                }
            }
        }

        if (!works) continue;
        for (u32 k = side; k < count; k += SCORE_SIDES) {
            float sums[SCORE_HEADS * GROUP];
#pragma unroll
            for (u32 r = 0; r < GROUP; r++) {
                const u32 row = (k * GROUP + r) * ROW;
                float even[SCORE_HEADS] = {}, odd[SCORE_HEADS] = {};
#pragma unroll
                for (u32 s = 0; s < 8; s++) {
                    const float2 x = Row::pair(row, (column + s * WARP) / 2);
#pragma unroll
                    for (u32 h = 0; h < SCORE_HEADS; h++) {
                        even[h] = fmaf(q[h][2 * s], x.x, even[h]);
                        odd[h] = fmaf(q[h][2 * s + 1], x.y, odd[h]);
                    }
                }
#pragma unroll
                for (u32 h = 0; h < SCORE_HEADS; h++) sums[h * GROUP + r] = even[h] + odd[h];
            }
            const float sum = join_lanes<SCORE_HEADS * GROUP, WARP>(sums);
            const u32 index = joined_index<SCORE_HEADS * GROUP>(lane), j = (unit + k) * GROUP + index % GROUP;
            if (lane < 16 && j < a.n) scores[size_t(head + index / GROUP) * stride + j] = sum * scale;
        }
    }
}

// Any sizes: a warp a product.
template <typename Row>
DEV void scores_any(const float* queries, const u8* rows, const u32* pools, const Attended& a, float* scores, u32 heads,
                    u32 latent, u32 kpool, u32 stride, float scale) {
    const u32 warps = blockDim.x / WARP, all = gridDim.x * gridDim.y * warps;
    const u32 own = (blockIdx.y * gridDim.x + blockIdx.x) * warps + threadIdx.x / WARP;
#pragma unroll 1
    for (size_t i = own; i < size_t(a.n) * heads; i += all) {
        const u32 j = u32(i / heads), h = u32(i % heads);
        const u8* row = rows + size_t(attended_position(a, pools, kpool, j)) * latent * Row::BYTES;
        const float* query = queries + size_t(h) * latent;
        const float sum = warp_sum(latent, [&](u32 c, float s) { return fmaf(query[c], Row::value(row, c), s); });
        if (threadIdx.x % WARP == 0) scores[size_t(h) * stride + j] = sum * scale;
    }
}

// ---- softmax

// The softmax of n scores in place, by the whole block. `partials` is a place in shared memory for padded blocks and 32 floats
// before them.
DEV void softmax_in_place(float* x, u32 n) {
    const u32 tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, warps = blockDim.x / WARP;
    const u32 blocks = (n + DOT_BLOCK - 1) / DOT_BLOCK;
    constexpr u32 STEPS = DOT_BLOCK / WARP;
    const float minus_infinity = bits(0xff800000u);
    // A thread meets the same elements in each pass. Those of its first block stay in registers, the others (more than 16
    // blocks) go through memory.
    float held[STEPS];
    float largest = minus_infinity;
#pragma unroll
    for (u32 s = 0; s < STEPS; s++) {
        const u32 i = warp * DOT_BLOCK + s * WARP + lane;
        held[s] = i < n ? x[i] : minus_infinity;
        largest = held[s] > largest ? held[s] : largest;
    }
#pragma unroll 1
    for (u32 b = warp + warps; b < blocks; b += warps) {
        for (u32 i = b * DOT_BLOCK + lane; i < min((b + 1) * DOT_BLOCK, n); i += WARP) largest = x[i] > largest ? x[i] : largest;
    }
    for (u32 mask = 1; mask < WARP; mask *= 2) {
        const float other = lane_xor(largest, mask);
        largest = other > largest ? other : largest;
    }
    if (lane == 0) shared_at<float>(warp * 4) = largest;
    __syncthreads();
    largest = lane < warps ? shared_at<float>(lane * 4) : minus_infinity;
    for (u32 mask = 1; mask < WARP; mask *= 2) {
        const float other = lane_xor(largest, mask);
        largest = other > largest ? other : largest;
    }

    constexpr u32 PARTIALS = WARP * 4;
    auto exponential = [&](float v) {
        const float e = canon_exp(v - largest);
        return v == minus_infinity ? 0.0f : e;
    };
    float sum = 0.0f;
#pragma unroll
    for (u32 s = 0; s < STEPS; s++) {
        const u32 i = warp * DOT_BLOCK + s * WARP + lane;
        held[s] = exponential(held[s]);
        if (i < n) sum = sum + held[s];
    }
    sum = lane_tree(sum, WARP);
    if (lane == 0 && warp < blocks) shared_at<float>(PARTIALS + warp * 4) = sum;
#pragma unroll 1
    for (u32 b = warp + warps; b < blocks; b += warps) {
        const u32 first = b * DOT_BLOCK;
        sum = warp_block(min(n - first, DOT_BLOCK), [&](u32 i, float s) {
            const float e = exponential(x[first + i]);
            x[first + i] = e;
            return s + e;
        });
        if (lane == 0) shared_at<float>(PARTIALS + b * 4) = sum;
    }
    __syncthreads();
    sum = partial_tree(blocks, [&](u32 b) { return shared_at<float>(PARTIALS + b * 4); });
#pragma unroll
    for (u32 s = 0; s < STEPS; s++) {
        const u32 i = warp * DOT_BLOCK + s * WARP + lane;
        if (i < n) x[i] = held[s] / sum;
    }
#pragma unroll 1
    for (u32 b = warp + warps; b < blocks; b += warps) {
        for (u32 i = b * DOT_BLOCK + lane; i < min((b + 1) * DOT_BLOCK, n); i += WARP) x[i] = x[i] / sum;
    }
}

// ---- weighted sum

constexpr u32 MIX_THREADS = 128;
constexpr u32 MIX_TILE = 128;                       // positions of a stage
constexpr u32 BATCH = 4;                            // groups of positions in registers at once
constexpr u32 WEIGHT_ROW = (MIX_TILE + GROUP) * 4;  // bytes; 16 more than a power of two, for two heads' reads to differ in banks

// A block has 32 columns and 8 heads, a thread two columns of one head. The chain of multiply-adds over the positions is what
// takes the time, four cycles a position; two columns a thread make the number of warps that of the processors' quarters, and
// what is read a position and thread small enough to hide behind it. Neighbouring lanes share a pair of columns.
template <typename Row>
DEV void mix_512(const float* weights, const u8* gathered, u32 n, float* out, u32 stride) {
    constexpr u32 CELL = GROUP * 2 * Row::BYTES, GROUP_BYTES = PAIRS * CELL, STAGES = Row::STAGES;
    constexpr u32 ROWS = MIX_TILE / GROUP * GROUP_BYTES, STAGE = ROWS + MIX_HEADS * WEIGHT_ROW;
    constexpr u32 BATCHES = MIX_TILE / GROUP / BATCH;
    const u32 tid = threadIdx.x, lane = tid % WARP, head = tid / WARP * 2 + lane % 2, pair = lane / 2;
    const u32 block = blockIdx.x % (FAST_LATENT / COLUMNS), first_head = blockIdx.x / (FAST_LATENT / COLUMNS) * MIX_HEADS;
    const u32 groups = (n + GROUP - 1) / GROUP, tiles = (n + MIX_TILE - 1) / MIX_TILE, batches = (groups + BATCH - 1) / BATCH;
    const u8* source = gathered + size_t(block) * (stride / GROUP) * GROUP_BYTES;
    const float* own_weights = weights + size_t(first_head) * stride;

    auto fetch = [&](u32 tile) {
        if (tile < tiles) {
            u8* stage = smem + tile % STAGES * STAGE;
            const u32 here = min(MIX_TILE / GROUP, groups - tile * (MIX_TILE / GROUP));
            const u8* from = source + size_t(tile) * ROWS;
            for (u32 i = tid; i < here * (GROUP_BYTES / 16); i += MIX_THREADS) copy16(stage + i * 16, from + i * 16);
#pragma unroll
            for (u32 i = tid; i < MIX_HEADS * (MIX_TILE / GROUP); i += MIX_THREADS) {
                const u32 h = i / (MIX_TILE / GROUP), g = i % (MIX_TILE / GROUP);
                const float* p = own_weights + size_t(h) * stride + tile * MIX_TILE + g * GROUP;
                if (g < here) copy16(stage + ROWS + h * WEIGHT_ROW + g * 16, reinterpret_cast<const u8*>(p));
            }
        }
        copies_end();
    };
    // Tile `tile` is there, and the one before is in registers, so that its stage is free.
    auto arrive = [&](u32 tile) {
        copies_wait<int(STAGES) - 2>();
        __syncthreads();
        fetch(tile + STAGES - 1);
    };
    constexpr u32 WORDS = CELL / 4;
    struct Held {
        u32 row[BATCH][WORDS];
        float weight[BATCH][GROUP];
    };
    auto read = [&](u32 batch, Held& held) {
        const u32 stage = batch / BATCHES % STAGES * STAGE, g0 = batch % BATCHES * BATCH;
#pragma unroll
        for (u32 g = 0; g < BATCH; g++) {
#pragma unroll
            for (u32 w = 0; w < WORDS / 4; w++) {
                const uint4 x = shared_at<uint4>(stage + (g0 + g) * GROUP_BYTES + w * PAIRS * 16 + pair * 16);
                held.row[g][4 * w] = x.x, held.row[g][4 * w + 1] = x.y;
                held.row[g][4 * w + 2] = x.z, held.row[g][4 * w + 3] = x.w;
            }
            const float4 p = shared_at<float4>(stage + ROWS + head * WEIGHT_ROW + (g0 + g) * 16);
            held.weight[g][0] = p.x, held.weight[g][1] = p.y, held.weight[g][2] = p.z, held.weight[g][3] = p.w;
        }
    };
    float2 sum = make_float2(0.0f, 0.0f);
    // What lies behind position n is no weight of 0: a sum of -0 would become +0.
    auto add = [&](const Held& held, u32 count) {
#pragma unroll
        for (u32 g = 0; g < BATCH; g++) {
#pragma unroll
            for (u32 j = 0; j < GROUP; j++) {
                if (g * GROUP + j < count) {
                    float2 x;
                    if constexpr (Row::BYTES == 2) {
                        x = halves_of(held.row[g][j]);
                    } else {
                        x = make_float2(bits(held.row[g][2 * j]), bits(held.row[g][2 * j + 1]));
                    }
                    sum.x = fmaf(held.weight[g][j], x.x, sum.x);
                    sum.y = fmaf(held.weight[g][j], x.y, sum.y);
                }
            }
        }
    };

#pragma unroll
    for (u32 tile = 0; tile < STAGES - 1; tile++) fetch(tile);
    Held now, next;
    arrive(0);
    read(0, now);
    const u32 whole = n / (GROUP * BATCH);
    u32 batch = 0;
#pragma unroll 2
    for (; batch < whole; batch++) {
        // The next batch is on its way while this one is added. Behind the last one nothing that is used is read.
        if ((batch + 1) % BATCHES == 0 && batch + 1 < batches) arrive((batch + 1) / BATCHES);
        read(batch + 1, next);
        add(now, GROUP * BATCH);
        now = next;
    }
    if (batch < batches) add(now, n - batch * GROUP * BATCH);
    *reinterpret_cast<float2*>(out + size_t(first_head + head) * FAST_LATENT + block * COLUMNS + 2 * pair) = sum;
}

// Any sizes: a thread a sum.
template <typename Row>
DEV void mix_any(const float* weights, const u8* rows, const u32* pools, const Attended& a, float* out, u32 heads, u32 latent,
                 u32 kpool, u32 stride) {
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size_t(heads) * latent; i += size_t(gridDim.x) * blockDim.x) {
        const u32 h = u32(i / latent), c = u32(i % latent);
        float sum = 0.0f;
#pragma unroll 4
        for (u32 j = 0; j < a.n; j++) {
            const size_t at = size_t(attended_position(a, pools, kpool, j)) * latent + c;
            sum = fmaf(weights[size_t(h) * stride + j], Row::value(rows, at), sum);
        }
        out[i] = sum;
    }
}
