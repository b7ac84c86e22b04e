// Attention of many new rows over the latents (attend.cuh). Where latents have 512 values a row is two matrix products, heads by
// positions and heads by columns (mix_rows.cuh), in tiles that keep the orders of docs/ARITHMETIC.md. A row has blocks of its own,
// for rows choose their positions: only its heads share latents.
#pragma once
#include "attend.cuh"
#include "tile_rows.cuh"

// Pools are then found by shifts: a division for every position would be a tenth of the weighted sum's time.
DEV bool fast_rows(u32 latent, u32 kpool) { return latent == FAST_LATENT && (kpool & (kpool - 1)) == 0; }

// attended_position where pools have 2^shift members.
DEV u32 row_position(const Attended& a, const u32* pools, u32 shift, u32 j) {
    if (j >= a.whole) return a.tail + (j - a.whole);
    return (pools[j >> shift] << shift) + (j & ((1u << shift) - 1));
}

// ---- scores

constexpr u32 STRETCH = 8 * OCTET * TILE_ROW;  // an octet of a block of 256 elements of 64 vectors
constexpr u32 STRETCHES = FAST_LATENT / DOT_BLOCK * OCTETS;
constexpr u32 RAW_STEP = TILE_SIDE * 16 + 16;  // eight halves of 64 rows; 16 bytes more, for other banks
constexpr u32 AT_LEFT = 0;                     // twice
constexpr u32 AT_RIGHT = 2 * STRETCH;
constexpr u32 AT_RAW = AT_RIGHT + STRETCH;
constexpr u32 AT_PLACES = AT_RAW + 8 * RAW_STEP;
constexpr u32 SCORES_SHARED = AT_PLACES + TILE_SIDE * 4;
constexpr u32 FEW = 4;

// At most FEW positions, those from `first` on: a whole tile would take eight times as long. Warps share the heads; a lane has
// its elements of the rows in registers.
template <typename Row>
DEV void few_scores(const float* queries, const u8* rows, const u32* pools, const Attended& a, u32 first, float* scores, u32 heads,
                    u32 shift, u32 stride, float scale) {
    constexpr u32 EACH = FAST_LATENT / WARP;
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, share = TILE_SIDE / (blockDim.x / WARP);
    const u32 begin = blockIdx.z * TILE_SIDE + warp * share;
    float x[FEW][EACH];
#pragma unroll
    for (u32 r = 0; r < FEW; r++) {
        const u8* row = rows + size_t(row_position(a, pools, shift, min(first + r, a.n - 1))) * FAST_LATENT * Row::BYTES;
#pragma unroll
        for (u32 s = 0; s < EACH; s++) x[r][s] = Row::value(row, s * WARP + lane);
    }
#pragma unroll 2
    for (u32 h = begin; h < min(begin + share, heads); h++) {
        const float* query = queries + size_t(h) * FAST_LATENT + lane;
        float sums[2 * FEW] = {};
#pragma unroll
        for (u32 s = 0; s < EACH; s++) {
            const float q = query[s * WARP];
#pragma unroll
            for (u32 r = 0; r < FEW; r++) {
                float& sum = sums[s / (DOT_BLOCK / WARP) * FEW + r];
                sum = fmaf(q, x[r][s], sum);
            }
        }
        // The first level of the join leaves the two blocks in neighbouring lanes.
        float sum = join_lanes<2 * FEW, WARP>(sums);
        sum = sum + lane_xor(sum, 1);
        const u32 j = first + joined_index<2 * FEW>(lane) % FEW;
        if (lane < 2 * FEW && lane % 2 == 0 && j < a.n) scores[size_t(h) * stride + j] = sum * scale;
    }
}

// A thread's sums of the first block of 256 elements wait in the scores' own place for those of the second.
template <bool LAST>
DEV void put_scores(const TileSums& sum, float* scores, u32 heads, u32 stride, u32 n, float scale) {
    const u32 j = blockIdx.x * TILE_SIDE + tile_right(threadIdx.x) * TILE_RIGHT;
    const u32 first = blockIdx.z * TILE_SIDE + tile_left(threadIdx.x) * (TILE_LEFT / 2);
    if (j >= n) return;
#pragma unroll
    for (u32 i = 0; i < TILE_LEFT; i++) {
        const u32 head = first + i / 4 * (TILE_SIDE / 2) + i % 4;
        if (head >= heads) continue;
        float4& to = *reinterpret_cast<float4*>(scores + size_t(head) * stride + j);
        float4 s = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        if constexpr (LAST) {
            const float4 f = to;
            s = make_float4((f.x + s.x) * scale, (f.y + s.y) * scale, (f.z + s.z) * scale, (f.w + s.w) * scale);
        }
        to = s;
    }
}

// 64 heads (of blockIdx.z) by 64 positions (of blockIdx.x) of a row. Elements come octet by octet, both blocks of 256 one after
// the other. Queries come straight to their places a stretch ahead; latents of 16 bits come ahead as they lie and are widened when
// the stretch before is done, those of 32 bits come then.
DEV void scores_rows_512(const float* queries, const u8* rows, const u32* pools, const Attended& a, float* scores, u32 heads,
                         u32 shift, u32 stride, bool half, float scale) {
    const u32 tid = threadIdx.x, tile = blockIdx.x * TILE_SIDE, first_head = blockIdx.z * TILE_SIDE;
    if (tile >= a.n) return;
    if (a.n - tile <= FEW) {
        if (half) {
            few_scores<HalfRow>(queries, rows, pools, a, tile, scores, heads, shift, stride, scale);
        } else {
            few_scores<FloatRow>(queries, rows, pools, a, tile, scores, heads, shift, stride, scale);
        }
        return;
    }
    if (tid < TILE_SIDE) {
        shared_at<u32>(AT_PLACES + tid * 4) = row_position(a, pools, shift, min(tile + tid, a.n - 1));
    }
    __syncthreads();

    // Copies by eight threads a vector and step: element `own` of the octet, or step `own` of the row.
    const u32 own = tid % OCTET, vector = tid / OCTET;
    auto fetch_left = [&](u32 stretch) {
        const u32 at = stretch / OCTETS * DOT_BLOCK + stretch % OCTETS * OCTET + own;
        const float* from = queries + size_t(first_head + vector) * FAST_LATENT + at;
        u8* to = smem + AT_LEFT + stretch % 2 * STRETCH + own * TILE_ROW + vector * 4;
#pragma unroll
        for (u32 v = 0; v < TILE_SIDE; v += TILE_THREADS / OCTET) {
            if (first_head + vector + v >= heads) break;
#pragma unroll
            for (u32 s = 0; s < 8; s++) {
                copy4(to + s * OCTET * TILE_ROW + v * 4, from + v * FAST_LATENT + s * WARP);
            }
        }
    };
    auto row_at = [&](u32 v, u32 bytes) {
        return rows + size_t(shared_at<u32>(AT_PLACES + (vector + v) * 4)) * FAST_LATENT * bytes;
    };
    auto fetch_half = [&](u32 stretch) {
        const u32 at = stretch / OCTETS * DOT_BLOCK * 2 + own * WARP * 2 + stretch % OCTETS * 16;
        u8* to = smem + AT_RAW + own * RAW_STEP + vector % 4 * (TILE_SIDE / 4 * 16) + vector / 4 * 16;
        const u8* from[4];
#pragma unroll
        for (u32 m = 0; m < 4; m++) from[m] = row_at(m * (TILE_SIDE / 4), HalfRow::BYTES);
#pragma unroll
        for (u32 m = 0; m < 4; m++) copy16(to + m * (TILE_SIDE / 4 * 4), from[m] + at);
    };
    auto fetch_float = [&](u32 stretch) {
        const u32 at = stretch / OCTETS * DOT_BLOCK + stretch % OCTETS * OCTET + own;
        u8* to = smem + AT_RIGHT + own * TILE_ROW + vector * 4;
#pragma unroll
        for (u32 v = 0; v < TILE_SIDE; v += TILE_THREADS / OCTET) {
            const float* from = reinterpret_cast<const float*>(row_at(v, FloatRow::BYTES)) + at;
#pragma unroll
            for (u32 s = 0; s < 8; s++) copy4(to + s * OCTET * TILE_ROW + v * 4, from + s * WARP);
        }
    };
    auto widen = [&] {
        const u32 step = tid / 16, four = tid % 16;
        const u32 from = AT_RAW + step * RAW_STEP + four * 16, to = AT_RIGHT + step * OCTET * TILE_ROW + four * 16;
        u32 raw[4][4];
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            const uint4 x = shared_at<uint4>(from + r * (TILE_SIDE / 4 * 16));
            raw[r][0] = x.x, raw[r][1] = x.y, raw[r][2] = x.z, raw[r][3] = x.w;
        }
#pragma unroll
        for (u32 w = 0; w < 4; w++) {
            const float2 a = halves_of(raw[0][w]), b = halves_of(raw[1][w]);
            const float2 c = halves_of(raw[2][w]), d = halves_of(raw[3][w]);
            shared_at<float4>(to + 2 * w * TILE_ROW) = make_float4(a.x, b.x, c.x, d.x);
            shared_at<float4>(to + (2 * w + 1) * TILE_ROW) = make_float4(a.y, b.y, c.y, d.y);
        }
    };
    auto fetch = [&](u32 stretch) {
        if (stretch < STRETCHES) {
            fetch_left(stretch);
            if (half) fetch_half(stretch);
        }
        copies_end();
    };

    const u32 left_at = AT_LEFT + tile_left(tid) * 16, right_at = AT_RIGHT + tile_right(tid) * 16;
    const bool works = tile + tid / (TILE_THREADS / 2) * (TILE_SIDE / 2) < a.n;
    TileSums waiting[TILE_LEVELS];
    fetch(0);
#pragma unroll 1
    for (u32 stretch = 0; stretch < STRETCHES; stretch++) {
        copies_wait<0>();
        __syncthreads();
        if (half) {
            widen();
        } else {
            fetch_float(stretch);
            copies_end();
            copies_wait<0>();
        }
        __syncthreads();
        fetch(stretch + 1);
        if (!works) continue;
#pragma unroll 1
        for (u32 part = 0; part < OCTET_PARTS; part++) {
            const u32 at = part * PART_LANES * TILE_ROW;
            auto finish = [&](const TileSums& sum) {
                if (stretch < OCTETS) {
                    put_scores<false>(sum, scores, heads, stride, a.n, scale);
                } else {
                    put_scores<true>(sum, scores, heads, stride, a.n, scale);
                }
            };
            const u8 *left = smem + left_at + stretch % 2 * STRETCH + at, *right = smem + right_at + at;
            tile_part<8, TILE_SIDE / 2 * 4>(stretch * OCTET_PARTS + part, left, right, waiting, finish);
        }
    }
}

constexpr u32 AT_QUERIES = 0;                                             // both blocks of 256 elements
constexpr u32 QUERIES_BLOCK = DOT_BLOCK * LEFT_ROW;
constexpr u32 AT_LATENTS = 2 * QUERIES_BLOCK;                             // of one such block, twice
constexpr u32 LATENTS_BLOCK = DOT_BLOCK * RIGHT_ROW;
constexpr u32 AT_COMING = AT_LATENTS + 2 * LATENTS_BLOCK;                 // as they lie: 16 bytes of a thread behind each other's
constexpr u32 AT_WHERE = AT_COMING + EIGHT_RIGHT * DOT_BLOCK * 4;
constexpr u32 MOST_TURNS = 24;                                            // whose positions are known
constexpr u32 EIGHT_SCORES_SHARED = AT_WHERE + MOST_TURNS * EIGHT_RIGHT * 4;  // 227 KB

// Turns `from` to `end` of a row, with `last` its last positions, too, if they are few. The queries are there unless they are
// `fresh`.
template <typename Row>
DEV void scores_eight_row(const float* queries, const u8* rows, const u32* pools, const Attended& a, float* scores, u32 heads,
                          u32 shift, u32 stride, float scale, u32 from, u32 end, bool last, bool fresh) {
    constexpr u32 ROW = FAST_LATENT * Row::BYTES;
    constexpr bool HALF = Row::BYTES == 2;
    const u32 tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, first_head = blockIdx.z * TILE_SIDE;
    const u32 rest = a.n % EIGHT_RIGHT, turns = a.n / EIGHT_RIGHT + (rest > FEW);
    if (last && rest != 0 && rest <= FEW) {
        few_scores<Row>(queries, rows, pools, a, a.n - rest, scores, heads, shift, stride, scale);
    }
    const u32 count = from < turns ? min(end, turns) - from : 0;
    if (count == 0) return;
    for (u32 i = tid; i < count * EIGHT_RIGHT; i += EIGHT_THREADS) {
        shared_at<u32>(AT_WHERE + i * 4) = row_position(a, pools, shift, min(from * EIGHT_RIGHT + i, a.n - 1));
    }
    __syncthreads();

    // A thread copies and widens eight elements of four positions: places of fours are neighbours, then come groups of lanes.
    const u32 four = lane % 8, octet = lane / 8, group = 2 * octet, order = eight_order(group);
    const u32 coming = AT_COMING + tid * 16;
    auto fetch = [&](u32 turn, u32 block) {
        const u8 *const at = rows + (block * DOT_BLOCK + warp * WARP + octet * 8) * Row::BYTES, *own[4];
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            const u32 position = shared_at<u32>(AT_WHERE + (turn * EIGHT_RIGHT + four * 4 + (m ^ order)) * 4);
            own[m] = at + size_t(position) * ROW;
        }
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            copy16(smem + coming + m * EIGHT_THREADS * 16, own[m]);
            if (!HALF) copy16(smem + coming + (4 + m) * EIGHT_THREADS * 16, own[m] + 16);
        }
        copies_end();
    };
    auto widen = [&](u32 block) {
        const u32 to = AT_LATENTS + block * LATENTS_BLOCK;
        float4 low[4], high[4];
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            const uint4 x = shared_at<uint4>(coming + m * EIGHT_THREADS * 16);
            if constexpr (HALF) {
                const float2 p = halves_of(x.x), q = halves_of(x.y), r = halves_of(x.z), s = halves_of(x.w);
                low[m] = make_float4(p.x, p.y, q.x, q.y), high[m] = make_float4(r.x, r.y, s.x, s.y);
            } else {
                low[m] = make_float4(bits(x.x), bits(x.y), bits(x.z), bits(x.w));
                high[m] = shared_at<float4>(coming + (4 + m) * EIGHT_THREADS * 16);
            }
        }
        eight_put_right(to, warp, group, four / 2, four % 2, low);
        eight_put_right(to, warp, group + 1, four / 2, four % 2, high);
    };
    fetch(0, 0);
    // Queries of four heads and four lanes a time.
    if (fresh) {
        const u32 g = (lane & 3) | (lane >> 1 & 4), tile = (lane >> 2 & 1) | (lane >> 3 & 2) | (warp & 1) << 2;
        const u32 upper = warp >> 1 & 1, block = warp >> 2;
        const float* own[4];
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            const u32 head = min(first_head + tile * 8 + upper * 4 + m, heads - 1);
            own[m] = queries + size_t(head) * FAST_LATENT + block * DOT_BLOCK + g * 4;
        }
#pragma unroll 4
        for (u32 s = 0; s < DOT_BLOCK / WARP; s++) {
            float4 v[4];
#pragma unroll
            for (u32 m = 0; m < 4; m++) v[m] = *reinterpret_cast<const float4*>(own[m] + s * WARP);
            eight_put_left(AT_QUERIES + block * QUERIES_BLOCK, s, g, tile, upper, v);
        }
    }

    const u32 left = AT_QUERIES + eight_left_at(tid), right = AT_LATENTS + eight_right_at(tid);
    // The first position that the thread is left with, and the first head.
    const u32 head = first_head + eight_left(tid) * 8;
    const u32 first_own = from * EIGHT_RIGHT + eight_right(tid) * 8 + eight_kept(eight_group(tid));
    float *const to = scores + size_t(head) * stride + first_own, first[8];
    const u32 own_heads = heads > head ? heads - head : 0, own_end = a.n > first_own ? a.n - first_own : 0;
#pragma unroll 1
    for (u32 turn = 0; turn < count; turn++) {
#pragma unroll 1
        for (u32 block = 0; block < 2; block++) {
            copies_wait<0>();
            widen(block);
            if (turn + block < count) fetch(turn + block, block ^ 1);
            __syncthreads();
            float sum[8];
            eight_sums<DOT_BLOCK / WARP>(left + block * QUERIES_BLOCK, right + block * LATENTS_BLOCK, sum);
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                if (block == 0) {
                    first[i] = sum[i];
                } else if (turn * EIGHT_RIGHT < own_end && i < own_heads) {
                    to[i * stride + turn * EIGHT_RIGHT] = (first[i] + sum[i]) * scale;
                }
            }
        }
    }
}

// 64 heads (of blockIdx.z) by 32 positions are a turn; the turns of all n rows are one row that the blocks share evenly, so that a
// block may end with another row than it began with. A row's queries come once, widened and turned for all its turns: with tiles
// of 64 positions that was a quarter of shared memory's work. Latents come half a turn ahead, a thread widens those that it
// copied, and threads meet once in half a turn (5,000 cycles).
template <typename Row>
DEV void scores_eight_512(const float* queries, const u8* rows, const u32* pools, float* scores, u32 first, u32 n, u32 heads,
                          u32 kpool, u32 top, u32 stride, float scale) {
    const u32 all = (min(first + n, (top + 1) * kpool - 1) + EIGHT_RIGHT - 1) / EIGHT_RIGHT, shift = __ffs(kpool) - 1;
    const u32 last = u32(u64(n) * all * (blockIdx.x + 1) / gridDim.x);
    u32 before = n;
#pragma unroll 1
    for (u32 at = u32(u64(n) * all * blockIdx.x / gridDim.x); at < last;) {
        const u32 row = at / all, from = at % all, end = min(min(all, from + MOST_TURNS), from + last - at);
        scores_eight_row<Row>(queries + size_t(row) * heads * FAST_LATENT, rows, pools + size_t(row) * top,
                              attended(first + row, kpool, top), scores + size_t(row) * heads * stride, heads, shift, stride, scale,
                              from, end, end == all, row != before);
        at += end - from, before = row;
        // Nobody reads what comes next over it.
        __syncthreads();
    }
}

// Any sizes: a warp a product.
template <typename Row>
DEV void scores_rows_any(const float* queries, const u8* rows, const u32* pools, const Attended& a, float* scores, u32 heads,
                         u32 latent, u32 kpool, u32 stride, float scale) {
    const u32 warps = blockDim.x / WARP, end = min(a.n, (blockIdx.x + 1) * TILE_SIDE);
    const u32 last = min(heads, (blockIdx.z + 1) * TILE_SIDE);
    for (u32 j = blockIdx.x * TILE_SIDE + threadIdx.x / WARP; j < end; j += warps) {
        const u8* row = rows + size_t(attended_position(a, pools, kpool, j)) * latent * Row::BYTES;
#pragma unroll 1
        for (u32 h = blockIdx.z * TILE_SIDE; h < last; h++) {
            const float* query = queries + size_t(h) * latent;
            const float sum = warp_sum(latent, [&](u32 c, float s) { return fmaf(query[c], Row::value(row, c), s); });
            if (threadIdx.x % WARP == 0) scores[size_t(h) * stride + j] = sum * scale;
        }
    }
}
