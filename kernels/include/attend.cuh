// Which positions a row attends to, and attention over them (crates/glm-graph/src/cpu/dsa.rs, pools.rs; docs/ARITHMETIC.md).
//
// Three kernels: scores, softmax, weighted sum. The fast path is latents of 512 values and heads in multiples of 8. On it the
// scores' kernel, which has every attended row in shared memory anyway, also writes the rows out again in the order in which
// the weighted sum reads them:
//
//     gathered[block of 16 columns][four positions][column][position of the four]
//
// so that one read gives a thread its column at four positions: 8 bytes (f16) or 16 (f32).
#pragma once
#include "canon.cuh"
#include "dots.cuh"

constexpr u32 FAST_LATENT = 512;
constexpr u32 FAST_HEADS = 8;
constexpr u32 COLUMNS = 16;  // of a block of the weighted sum
constexpr u32 PAIRS = COLUMNS / 2;
constexpr u32 GROUP = 4;  // positions that lie together in `gathered`

DEV bool fast_attention(u32 heads, u32 latent) { return latent == FAST_LATENT && heads % FAST_HEADS == 0; }

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
    // A column of `gathered` at four positions, as it lies in shared memory, and its values.
    typedef uint2 Four;
    DEV void values(const Four& four, float (&out)[4]) {
        const float2 a = halves_of(four.x), b = halves_of(four.y);
        out[0] = a.x, out[1] = a.y, out[2] = b.x, out[3] = b.y;
    }
    // Columns 2i and 2i + 1 of four rows that follow each other in shared memory, turned.
    DEV void turned(u32 rows, u32 i, u8* to) {
        u32 row[4];
#pragma unroll
        for (u32 r = 0; r < 4; r++) row[r] = shared_at<u32>(rows + r * FAST_LATENT * BYTES + i * 4);
        *reinterpret_cast<uint4*>(to) = make_uint4(choose(row[0], row[1], 0x5410), choose(row[2], row[3], 0x5410),
                                                   choose(row[0], row[1], 0x7632), choose(row[2], row[3], 0x7632));
    }
};

struct FloatRow {
    typedef float Value;
    static constexpr u32 BYTES = 4;
    static constexpr u32 STAGES = 3;
    DEV float value(const u8* row, size_t i) { return reinterpret_cast<const float*>(row)[i]; }
    DEV float2 pair(u32 row, u32 i) { return shared_at<float2>(row + i * 8); }
    typedef float4 Four;
    DEV void values(const Four& four, float (&out)[4]) {
        out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
    }
    DEV void turned(u32 rows, u32 i, u8* to) {
        uint2 row[4];
#pragma unroll
        for (u32 r = 0; r < 4; r++) row[r] = shared_at<uint2>(rows + r * FAST_LATENT * BYTES + i * 8);
        reinterpret_cast<uint4*>(to)[0] = make_uint4(row[0].x, row[1].x, row[2].x, row[3].x);
        reinterpret_cast<uint4*>(to)[1] = make_uint4(row[0].y, row[1].y, row[2].y, row[3].y);
    }
};

// ---- scores

constexpr u32 SCORE_THREADS = 512;
constexpr u32 SCORE_HEADS = 4;        // of a warp
constexpr u32 SCORE_GROUPS = 8;       // warps that share rows: 32 heads of a block
constexpr u32 SCORE_SIDES = SCORE_THREADS / WARP / SCORE_GROUPS;
constexpr u32 TILE_UNITS = 8;         // of four rows, in shared memory at once
constexpr u32 TILE_ROWS = TILE_UNITS * GROUP;
static_assert(TILE_ROWS == WARP, "a lane finds out where a row is");

// The tile of `count` units from `unit` on, to the beginning of shared memory. Each warp's lanes find out where the rows are: one
// division and one wait for pools, instead of one for each sixteen bytes that a thread copies.
template <u32 ROW>
DEV void tile_arrives(const u8* rows, const u32* pools, const Attended& a, u32 kpool, u32 unit, u32 count) {
    constexpr u32 PIECES = ROW / 16, NONE = ~0u;
    const u32 lane = threadIdx.x % WARP, j = unit * GROUP + lane;
    const u32 own = lane < count * GROUP && j < a.n ? attended_position(a, pools, kpool, j) : NONE;
#pragma unroll
    for (u32 e = 0; e < TILE_ROWS * PIECES / SCORE_THREADS; e++) {
        const u32 i = e * SCORE_THREADS + threadIdx.x;
        const u32 position = __shfl_sync(ALL, own, i / PIECES);
        if (position != NONE) copy16(smem + i * 16, rows + size_t(position) * ROW + i % PIECES * 16);
    }
    copies_end();
    copies_wait<0>();
    __syncthreads();
}

// Writes the tile to `gathered`. A warp takes the 64 columns of four blocks at four positions: neighbouring lanes read
// neighbouring words, and eight of them write 128 bytes in a row. Sets of columns are dealt out among the blocks of other heads,
// which have the same rows.
template <typename Row>
DEV void tile_turned(u8* gathered, u32 unit, u32 count, u32 stride) {
    constexpr u32 CELL = GROUP * 2 * Row::BYTES, SETS = FAST_LATENT / 2 / WARP;
    const u32 lane = threadIdx.x % WARP, groups = stride / GROUP;
#pragma unroll 1
    for (u32 i = threadIdx.x / WARP;; i += SCORE_THREADS / WARP) {
        const u32 g = i % TILE_UNITS, set = i / TILE_UNITS * gridDim.y + blockIdx.y;
        if (set >= SETS) break;
        const u32 pair = set * WARP + lane;
        u8* to = gathered + ((size_t(pair / PAIRS) * groups + unit + g) * PAIRS + pair % PAIRS) * CELL;
        if (g < count) Row::turned(g * GROUP * FAST_LATENT * Row::BYTES, pair, to);
    }
}

// A block of blockIdx.y's 32 heads takes its share of the rows. A warp keeps four heads' queries in registers. Lanes 0 to 15
// have the first 256 elements of a row, 16 to 31 the rest; a lane does two neighbouring lanes of the dot order, 2i and 2i + 1,
// so that values are read in pairs and the first level of the tree needs no shuffle; the last level adds the two blocks.
// `positions()` waits for what says which these are; the queries are on their way before that.
template <typename Row, typename Positions>
DEV void scores_512(const float* queries, const u8* rows, const u32* pools, Positions positions, float* scores, u8* gathered,
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
    const Attended a = positions();
    const u32 units = (a.n + GROUP - 1) / GROUP, share = (units + gridDim.x - 1) / gridDim.x;
    const u32 first = blockIdx.x * share, end = min(first + share, units);
    for (u32 unit = first; unit < end; unit += TILE_UNITS) {
        const u32 count = min(TILE_UNITS, end - unit);
        if (unit != first) __syncthreads();
        tile_arrives<ROW>(rows, pools, a, kpool, unit, count);
        tile_turned<Row>(gathered, unit, count, stride);
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

constexpr u32 MIX_HEADS = 16;   // of a block
constexpr u32 ADDERS = 128;     // threads that add; the others copy
constexpr u32 COPIERS = 128;
constexpr u32 MIX_THREADS = ADDERS + COPIERS;
constexpr u32 MIX_TILE = 128;   // positions of a stage
constexpr u32 BATCH = 4;        // groups of positions that are read to registers together
constexpr u32 WEIGHT_ROW = (MIX_TILE + GROUP) * 4;  // bytes; 16 more than a power of two, for two heads' reads to differ in banks

// A block has 16 columns and 16 heads: with halves that is 96 bytes a position, as with 32 columns and 8 heads, but with half the
// values to be converted. The chain of multiply-adds takes four cycles a position, and what else a position costs must fit beside
// it in each quarter of a processor, which has one warp that adds:
//
// - Reads of shared memory return 32 words a cycle, or 64 where lanes i and i ^ 1 (or i and i ^ 2) have the same address. So
//   neighbouring lanes share a column, and lanes two apart the heads. Four positions are 10 words a thread (halves), five cycles
//   a warp, 20 for all four warps: five cycles a position. What arrives there adds 0.75.
// - A thread has two heads of one column, so that two sums share the conversion of a half, which takes two cycles. With loads
//   that is 3.75 instructions a position.
// - Addresses of copies are left to other warps.
//
// Four warps copy tiles to a ring of stages; when all meet, the next tile is there, and the one before has been read.
template <typename Row>
struct TokenMix {
    static constexpr u32 FOUR = sizeof(typename Row::Four), GROUP_BYTES = COLUMNS * FOUR, STAGES = Row::STAGES;
    static constexpr u32 TILE_GROUPS = MIX_TILE / GROUP, ROWS = TILE_GROUPS * GROUP_BYTES, STAGE = ROWS + MIX_HEADS * WEIGHT_ROW;

    // One thread's share of a tile. `source` is the block's part of `gathered`, `weights` the block's first head's.
    DEV void copy(u32 tile, u32 me, const u8* source, const float* weights, u32 heads, u32 stride) {
        const u32 first = tile * TILE_GROUPS, groups = stride / GROUP;
        if (first < groups) {
            u8* stage = smem + tile % STAGES * STAGE;
            const u32 here = min(TILE_GROUPS, groups - first);
            const u8* from = source + size_t(first) * GROUP_BYTES + me * 16;
#pragma unroll
            for (u32 i = 0; i < ROWS / 16; i += COPIERS) {
                if (me + i < here * (GROUP_BYTES / 16)) copy16(stage + (me + i) * 16, from + i * 16);
            }
            static_assert(TILE_GROUPS == WARP, "a warp copies a head's weights");
            const u32 g = me % WARP, h = me / WARP;
            const float* p = weights + size_t(h) * stride + (first + g) * GROUP;
#pragma unroll
            for (u32 i = 0; i < MIX_HEADS; i += COPIERS / WARP) {
                if (g < here && h + i < heads) {
                    copy16(stage + ROWS + (h + i) * WEIGHT_ROW + g * 16, reinterpret_cast<const u8*>(p + size_t(i) * stride));
                }
            }
        }
        copies_end();
    }

    // Positions of a batch in registers.
    struct Held {
        typename Row::Four row[BATCH];
        float4 weight[2][BATCH];
    };

    // Two addresses and constant distances: offsets, which may wrap, would each need an addition.
    DEV void read(const u8* rows, const u8* weights, Held& held) {
#pragma unroll
        for (u32 g = 0; g < BATCH; g++) {
            held.row[g] = reinterpret_cast<const typename Row::Four*>(rows)[g * COLUMNS];
#pragma unroll
            for (u32 h = 0; h < 2; h++) held.weight[h][g] = *reinterpret_cast<const float4*>(weights + h * WEIGHT_ROW + g * 16);
        }
    }

    // Groups FROM to TO of a batch. What lies behind position n is no weight of 0: a sum of -0 would become +0.
    template <u32 FROM, u32 TO>
    DEV void add(const Held& held, u32 count, float (&sum)[2]) {
#pragma unroll
        for (u32 g = FROM; g < TO; g++) {
            float x[GROUP];
            Row::values(held.row[g], x);
            const float4 a = held.weight[0][g], b = held.weight[1][g];
            const float w[2][GROUP] = {{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}};
#pragma unroll
            for (u32 j = 0; j < GROUP; j++) {
                if (g * GROUP + j < count) {
                    sum[0] = fmaf(w[0][j], x[j], sum[0]);
                    sum[1] = fmaf(w[1][j], x[j], sum[1]);
                }
            }
        }
    }

    // Adds a batch while another is on its way.
    DEV void add_and_read(const Held& held, float (&sum)[2], const u8* rows, const u8* weights, Held& other) {
        read(rows, weights, other);
        add<0, BATCH / 2>(held, BATCH * GROUP, sum);
        // Here the reads have begun. Left to itself the compiler begins some of them at the batch's end and waits for them then.
        __syncwarp();
        add<BATCH / 2, BATCH>(held, BATCH * GROUP, sum);
    }

    // The sums of one column and of heads `head` and `head + 1` of the block.
    DEV void sums(u32 n, u32 column, u32 head, float (&sum)[2]) {
        constexpr u32 POSITIONS = BATCH * GROUP, TURN = 2 * POSITIONS, TURN_ROWS = 2 * BATCH * GROUP_BYTES;
        static_assert(MIX_TILE % TURN == 0);
        const u8* rows = smem + column * FOUR;
        const u8* weights = smem + ROWS + head * WEIGHT_ROW;
        Held now, next;
        __syncthreads();
        read(rows, weights, now);
        // Two batches a turn. Behind the last one nothing that is used is read.
        u32 stage = 0, left = n, in_tile = MIX_TILE;
#pragma unroll 1
        for (; left >= TURN; left -= TURN) {
            add_and_read(now, sum, rows + TURN_ROWS / 2, weights + TURN * 2, next);
            rows += TURN_ROWS, weights += TURN * 4, in_tile -= TURN;
            if (in_tile == 0) {
                in_tile = MIX_TILE;
                i32 skip = STAGE;
                if (++stage == STAGES) stage = 0, skip -= i32(STAGES * STAGE);
                rows += skip - i32(ROWS), weights += skip - i32(MIX_TILE * 4);
                if (left > TURN) __syncthreads();
            }
            add_and_read(next, sum, rows, weights, now);
        }
        if (left > POSITIONS) {
            add_and_read(now, sum, rows + TURN_ROWS / 2, weights + TURN * 2, next);
            now = next;
            left -= POSITIONS;
        }
        add<0, BATCH>(now, left, sum);
    }
};

// `n()` waits for what says how many positions there are; copies begin before that.
template <typename Row, typename Count>
DEV void mix_512(const float* weights, const u8* gathered, Count n, float* out, u32 heads, u32 stride) {
    typedef TokenMix<Row> M;
    const u32 tid = threadIdx.x, block = blockIdx.x % (FAST_LATENT / COLUMNS);
    const u32 first_head = blockIdx.x / (FAST_LATENT / COLUMNS) * MIX_HEADS;
    if (tid >= ADDERS) {
        const u8* source = gathered + size_t(block) * (stride / GROUP) * M::GROUP_BYTES;
        auto copy = [&](u32 tile) {
            M::copy(tile, tid - ADDERS, source, weights + size_t(first_head) * stride, heads - first_head, stride);
        };
#pragma unroll 1
        for (u32 tile = 0; tile < M::STAGES - 1; tile++) copy(tile);
        const u32 tiles = (n() + MIX_TILE - 1) / MIX_TILE;
#pragma unroll 1
        for (u32 tile = 0; tile < tiles; tile++) {
            copies_wait<int(M::STAGES) - 2>();
            __syncthreads();
            if (tile + M::STAGES - 1 < tiles) {
                copy(tile + M::STAGES - 1);
            } else {
                copies_end();
            }
        }
        copies_wait<0>();
        return;
    }
    const u32 lane = tid % WARP, column = lane / 2, head = tid / WARP * 4 + lane % 2 * 2;
    float sum[2] = {0.0f, 0.0f};
    M::sums(n(), column, head, sum);
    if (first_head + head >= heads) return;
    float* to = out + size_t(first_head + head) * FAST_LATENT + block * COLUMNS + column;
    to[0] = sum[0], to[FAST_LATENT] = sum[1];
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
