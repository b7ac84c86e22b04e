//! Latent attention of a span: what its rows add to the caches, which pools each row chooses, and attention, so many rows at
//! once as there is room for scores.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::Span;
use crate::cuda::scratch::{capacity, dsa_width, row_stride};
use crate::cuda::weights::DsaPlaces;
use crate::state::Kv;

const PREPARE_THREADS: u32 = 256;
const POOL_THREADS: u32 = 128;
// Of kernels/include/tile_rows.cuh.
const TILE_THREADS: u32 = 128;
const TILE_SIDE: usize = 64;
const TILE_ROW: u32 = (TILE_SIDE as u32 + 4) * 4;
// Of kernels/include/index_rows.cuh and indexer.cuh.
const INDEX_ROWS: usize = 8;
const INDEX_SMEM: u32 = 6 * 4 * 8 * TILE_ROW;
const CHOICE_THREADS: u32 = 1024;
const CHOICE_SMEM: u32 = 2048 * 4 + 32 * 4 + 16 + 2 * (16 * 1024 / 32) * 4;
// Of kernels/include/attend_rows.cuh and mix_rows.cuh.
const FAST_LATENT: usize = 512;
const SCORES_SMEM: u32 = 3 * 64 * TILE_ROW + 8 * (TILE_SIDE as u32 * 16 + 16) + TILE_SIDE as u32 * 4;
/// Where a block may have so much, scores are made by blocks with 32 positions, or pools, a turn.
const EIGHT_THREADS: u32 = 256;
const EIGHT_SCORES_SMEM: u32 = 227 << 10;
const EIGHT_INDEX_SMEM: u32 = 4 * 128 * 256 + 3 * 128 * 128 + 8 * 32 * 4;
const EIGHT_INDEX_HEADS: usize = 32;
const FAST_INDEX_DIM: usize = 128;
const TURN: usize = 32;
const MIX_SMEM: u32 = 2 * 16 * (TILE_ROW + 128 * 4);
const WIDE_MIX_THREADS: u32 = 256;
const WIDE_MIX_SMEM: u32 = 2 * 16 * (TILE_ROW + 512 * 4);
/// Warps of a block of the softmax at most.
const SOFTMAX_WARPS: usize = 16;

/// Rows of a span that are attended to at once.
#[derive(Clone, Copy)]
struct Chunk {
    /// The first of them, of the span's.
    from: usize,
    rows: usize,
    /// Its position.
    first: usize,
}

impl Span<'_> {
    /// The normed inputs of the queries; latents, pooled keys and open members in the caches.
    pub(super) fn dsa_prepare(&self, w: &DsaPlaces, first: usize) -> Result<(), DriverError> {
        let (pass, p) = (&self.pass, self.places);
        let (c, cache) = (pass.config, &pass.slot.caches[w.nth]);
        let part = |at: usize| pass.behind(p.first, at);
        let keys = c.q_rank + c.latent;
        let args = Args::new()
            .pointer(part(0))
            .pointer(part(c.q_rank))
            .pointer(part(keys))
            .pointer(part(keys + c.index_dim))
            .pointer(pass.at(w.q_a_norm))
            .pointer(pass.at(w.kv_a_norm))
            .pointer(pass.at(w.k_norm))
            .pointer(pass.at(w.k_bias))
            .pointer(pass.at(p.low))
            .pointer(pass.at(cache.latents))
            .pointer(pass.at(p.index_rows))
            .u32(dsa_width(c) as u32)
            .u32(first as u32)
            .u32(c.q_rank as u32)
            .u32(c.latent as u32)
            .u32(c.index_dim as u32)
            .u32(self.is_half())
            .f32(c.rms_eps)
            .f32(c.ln_eps);
        let longest = c.q_rank.div_ceil(256).max(c.latent.div_ceil(256)).max(c.index_dim) as u32;
        let grid = Grid::of([self.rows as u32, 3, 1], [PREPARE_THREADS, 1, 1]).with_smem(4 * longest);
        pass.put("dsa prepare", &pass.kernels.rows.dsa_prepare, grid, args)?;
        let args = Args::new()
            .pointer(pass.at(p.index_rows))
            .pointer(pass.at(w.ape))
            .pointer(pass.at(cache.open_keys))
            .pointer(pass.at(cache.open_gates))
            .pointer(pass.at(cache.pooled))
            .u32(first as u32)
            .u32(self.rows as u32)
            .u32(c.index_dim as u32)
            .u32(c.kpool as u32);
        let completed = (first + self.rows) / c.kpool - first / c.kpool;
        let grid = Grid::new(completed.max(1) as u32, POOL_THREADS);
        pass.put("dsa pool", &pass.kernels.rows.dsa_pool, grid, args)
    }

    /// From queries to mixed latents.
    pub(super) fn dsa_choose_and_attend(&self, w: &DsaPlaces, first: usize) -> Result<(), DriverError> {
        for from in (0..self.rows).step_by(self.places.chunk) {
            let rows = self.places.chunk.min(self.rows - from);
            let chunk = Chunk { from, rows, first: first + from };
            self.choose(w, chunk)?;
            self.attend(w, chunk)?;
        }
        Ok(())
    }

    fn is_half(&self) -> u32 {
        u32::from(self.pass.kv == Kv::F16)
    }

    /// Positions that a row attends to at most.
    fn most_attended(&self) -> usize {
        (self.pass.config.top_pools() + 1) * self.pass.config.kpool - 1
    }

    /// Scores of the pools and the best of them, for the rows that do not see everything.
    fn choose(&self, w: &DsaPlaces, chunk: Chunk) -> Result<(), DriverError> {
        let (pass, p) = (&self.pass, self.places);
        let (c, cache) = (pass.config, &pass.slot.caches[w.nth]);
        let end = chunk.first + chunk.rows;
        if end <= self.most_attended() {
            return Ok(());
        }
        let (heads_queries, stride) = (c.heads * c.key_dim, capacity(c, pass.ctx));
        let query_row = heads_queries + c.index_heads * c.index_dim;
        let weights = dsa_width(c) - c.index_heads;
        let args = Args::new()
            .pointer(pass.behind(p.second, chunk.from * query_row + heads_queries))
            .pointer(pass.behind(p.first, chunk.from * dsa_width(c) + weights))
            .pointer(pass.at(cache.pooled))
            .pointer(pass.at(p.pool_scores))
            .u32(query_row as u32)
            .u32(dsa_width(c) as u32)
            .u32(stride as u32)
            .u32(chunk.first as u32)
            .u32(chunk.rows as u32)
            .u32(c.index_heads as u32)
            .u32(c.index_dim as u32)
            .u32(c.kpool as u32)
            .u32(c.top_pools() as u32)
            .f32(((c.index_heads * c.index_dim) as f32).sqrt().recip());
        let (pools, groups) = (end / c.kpool, chunk.rows.div_ceil(INDEX_ROWS) as u32);
        let is_fast = c.index_dim == FAST_INDEX_DIM
            && c.index_heads.is_multiple_of(8)
            && c.index_heads <= EIGHT_INDEX_HEADS;
        let grid = if is_fast && EIGHT_INDEX_SMEM <= pass.room.smem {
            // At least two turns a block.
            let blocks = (groups * pools.div_ceil(TURN) as u32).div_ceil(2).clamp(1, pass.room.processors);
            Grid::of([blocks, 1, 1], [EIGHT_THREADS, 1, 1]).with_smem(EIGHT_INDEX_SMEM)
        } else {
            let tiles = pools.div_ceil(TILE_SIDE) as u32;
            Grid::of([tiles, groups, 1], [TILE_THREADS, 1, 1]).with_smem(INDEX_SMEM)
        };
        pass.put("index scores", &pass.kernels.rows.index_scores, grid, args)?;
        let args = Args::new()
            .pointer(pass.at(p.pool_scores))
            .pointer(pass.at(p.pools))
            .u32(stride as u32)
            .u32(chunk.first as u32)
            .u32(c.kpool as u32)
            .u32(c.top_pools() as u32);
        let grid = Grid::new(chunk.rows as u32, CHOICE_THREADS).with_smem(CHOICE_SMEM);
        pass.put("top choose", &pass.kernels.rows.top_choose, grid, args)
    }

    fn attend(&self, w: &DsaPlaces, chunk: Chunk) -> Result<(), DriverError> {
        let (pass, p) = (&self.pass, self.places);
        let (c, cache) = (pass.config, &pass.slot.caches[w.nth]);
        let (heads, latent, first) = (c.heads as u32, c.latent as u32, chunk.first as u32);
        let (kpool, top, stride) = (c.kpool as u32, c.top_pools() as u32, row_stride(c, pass.ctx) as u32);
        let (latents, pools, scores) = (pass.at(cache.latents), pass.at(p.pools), pass.at(p.attention));
        let is_fast = c.latent == FAST_LATENT && c.kpool.is_power_of_two();
        let (rows, head_blocks) = (chunk.rows as u32, c.heads.div_ceil(TILE_SIDE) as u32);
        // What the last row attends to at most.
        let attended = (chunk.first + chunk.rows).min(self.most_attended());

        let args = Args::new()
            .pointer(pass.behind(p.absorbed, chunk.from * c.heads * c.latent))
            .pointer(latents)
            .pointer(pools)
            .pointer(scores)
            .u32(first)
            .u32(rows)
            .u32(heads)
            .u32(latent)
            .u32(kpool)
            .u32(top)
            .u32(stride)
            .u32(self.is_half())
            .f32((c.key_dim as f32).sqrt().recip());
        let grid = if is_fast && EIGHT_SCORES_SMEM <= pass.room.smem {
            // At least two turns a block, and all of them at once.
            let turns = rows * attended.div_ceil(TURN) as u32;
            let blocks = turns.div_ceil(2).min(pass.room.processors.div_ceil(head_blocks));
            Grid::of([blocks, 1, head_blocks], [EIGHT_THREADS, 1, 1]).with_smem(EIGHT_SCORES_SMEM)
        } else {
            let tiles = attended.div_ceil(TILE_SIDE) as u32;
            let grid = Grid::of([tiles, rows, head_blocks], [TILE_THREADS, 1, 1]);
            grid.with_smem(if is_fast { SCORES_SMEM } else { 0 })
        };
        pass.put("attend scores", &pass.kernels.rows.attend_scores, grid, args)?;

        let args = Args::new().pointer(scores).u32(first).u32(heads).u32(kpool).u32(top).u32(stride);
        let parts = attended.div_ceil(256);
        let threads = 32 * parts.min(SOFTMAX_WARPS) as u32;
        let grid = Grid::of([heads, rows, 1], [threads, 1, 1]).with_smem(4 * (32 + parts as u32));
        pass.put("attend softmax", &pass.kernels.rows.attend_softmax, grid, args)?;

        let args = Args::new()
            .pointer(scores)
            .pointer(latents)
            .pointer(pools)
            .pointer(pass.behind(p.mixed, chunk.from * c.heads * c.latent))
            .u32(first)
            .u32(heads)
            .u32(latent)
            .u32(kpool)
            .u32(top)
            .u32(stride)
            .u32(self.is_half());
        let kernels = &pass.kernels.rows;
        if is_fast && WIDE_MIX_SMEM <= pass.room.smem && self.mixes_wide(rows * head_blocks) {
            let grid = Grid::of([head_blocks, rows, 1], [WIDE_MIX_THREADS, 1, 1]).with_smem(WIDE_MIX_SMEM);
            return pass.put("attend mix", &kernels.attend_mix_wide, grid, args);
        }
        let blocks = if is_fast { 4 * head_blocks } else { (heads * latent).div_ceil(TILE_THREADS) };
        let grid = Grid::of([blocks, rows, 1], [TILE_THREADS, 1, 1]);
        let grid = grid.with_smem(if is_fast { MIX_SMEM } else { 0 });
        pass.put("attend mix", &kernels.attend_mix, grid, args)
    }

    /// Whether `n` blocks of all columns, one a multiprocessor, come to an end before 4 n of 128, three a multiprocessor. A column
    /// costs seven eighths (instructions for as many multiply-adds: 233 to 243; cycles of shared memory: 43 % to 61 %).
    fn mixes_wide(&self, n: u32) -> bool {
        let processors = self.pass.room.processors;
        n.div_ceil(processors) * 4 * 7 < (4 * n).div_ceil(3 * processors) * 3 * 8
    }
}
