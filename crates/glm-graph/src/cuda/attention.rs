//! Latent attention of one token, or of one of each of several sequences: products, what it adds to the caches, which positions it
//! attends to, and attention.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::scratch::{capacity, choice_words, dsa_width, row_stride};
use super::token::{Pass, StepBuffers};
use super::weights::DsaPlaces;
use crate::state::Kv;

// Of kernels/include/indexer.cuh and attend.cuh.
const INDEX_THREADS: u32 = 128;
const INDEX_SMEM: u32 = 2 * 32 * 128 * 4 + 2 * 32 * 33 * 4;
const CHOICE_THREADS: u32 = 1024;
const CHOICE_BLOCKS: u32 = 32;
const CHOICE_SMEM: u32 = 2048 * 4 + 32 * 4 + 16 + 2 * (16 * 1024 / 32) * 4;
const SCORE_THREADS: u32 = 512;
/// Heads that a block of scores takes at most.
const SCORE_HEADS: u32 = 32;
const TILE_ROWS: u32 = 32;
const FAST_LATENT: u32 = 512;
const FAST_HEADS: u32 = 8;
const MIX_THREADS: u32 = 256;
/// Of a block of the fast weighted sum, as are the columns.
const MIX_HEADS: u32 = 16;
const MIX_COLUMNS: u32 = 16;
const MIX_TILE: u32 = 128;
const WEIGHT_ROW: u32 = (MIX_TILE + 4) * 4;

impl Pass<'_> {
    pub(super) fn dsa(&self, w: &DsaPlaces, gates: u64) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        self.side_by_side("dsa in", &w.first)?;
        let buffers = self.buffers();
        self.prepare(w, &buffers, gates)?;
        let queries = c.heads * c.key_dim;
        self.products(
            "dsa queries",
            &[
                self.product(&w.q_b, self.at(s.low), self.at(s.second)),
                self.product(&w.index_q_b, self.at(s.low), self.behind(s.second, queries)),
            ],
        )?;
        self.index_scores(w, &buffers)?;
        // Each head's queries meet its own matrix.
        let mut absorb = self.product(&w.k_b, self.at(s.second), self.at(s.absorbed));
        absorb.task.x_rows = c.latent as u32;
        self.products("absorb", &[absorb])?;
        self.choose(&buffers)?;
        self.attend(w, &buffers)?;
        let mut expand = self.product(&w.v_b, self.at(s.mixed), self.at(s.joined));
        expand.task.x_rows = c.value_dim as u32;
        self.products("expand", &[expand])?;
        self.products("dsa out", &[self.product(&w.out, self.at(s.joined), self.at(s.y))])
    }

    fn is_half(&self) -> u32 {
        u32::from(self.kv == Kv::F16)
    }

    /// What the rows add to their sequences' caches, and the normed inputs of their queries. `gates` as of `kda_step`.
    pub(super) fn prepare(&self, w: &DsaPlaces, rows: &StepBuffers, gates: u64) -> Result<(), DriverError> {
        let (c, s, cache) = (self.config, self.scratch, &self.slot.caches[w.nth]);
        let part = |at: usize| rows.first + 4 * at as u64;
        let keys = c.q_rank + c.latent;
        let args = Args::new()
            .pointer(part(0))
            .pointer(part(c.q_rank))
            .pointer(part(keys))
            .pointer(part(keys + c.index_dim))
            .pointer(self.at(w.q_a_norm))
            .pointer(self.at(w.kv_a_norm))
            .pointer(self.at(w.k_norm))
            .pointer(self.at(w.k_bias))
            .pointer(self.at(w.ape))
            .pointer(self.at(s.turns))
            .pointer(rows.low)
            .pointer(self.at(cache.latents))
            .pointer(self.at(cache.open_keys))
            .pointer(self.at(cache.open_gates))
            .pointer(self.at(cache.pooled))
            .u32(dsa_width(c) as u32)
            .u32(c.q_rank as u32)
            .u32(c.latent as u32)
            .u32(c.index_dim as u32)
            .u32(c.kpool as u32)
            .u32(self.is_half())
            .f32(c.rms_eps)
            .f32(c.ln_eps)
            .pointer(gates)
            .u32(c.sinkhorn as u32)
            .f32(c.hc_eps);
        let longest = c.q_rank.div_ceil(256).max(c.latent.div_ceil(256)).max(c.index_dim) as u32;
        let grid =
            Grid::of([3 + u32::from(gates != 0), 1, rows.n], [256, 1, 1]).with_smem(4 * longest).early();
        self.put("dsa prepare", &self.kernels.dsa.prepare, grid, args)
    }

    /// Scores of the pools.
    pub(super) fn index_scores(&self, w: &DsaPlaces, rows: &StepBuffers) -> Result<(), DriverError> {
        let (c, s, cache) = (self.config, self.scratch, &self.slot.caches[w.nth]);
        let (kpool, top, capacity) = (c.kpool as u32, c.top_pools() as u32, capacity(c, self.ctx));
        let words = choice_words(capacity) as u32;
        let (queries, capacity) = (c.heads * c.key_dim, capacity as u32);
        let weights = dsa_width(c) - c.index_heads;
        let scale = ((c.index_heads * c.index_dim) as f32).sqrt().recip();
        let args = Args::new()
            .pointer(rows.second + 4 * queries as u64)
            .pointer(rows.first + 4 * weights as u64)
            .pointer(self.at(cache.pooled))
            .pointer(self.at(s.turns))
            .pointer(self.at(s.pool_scores))
            .pointer(self.at(s.counts))
            .u32(words)
            .u32((queries + c.index_heads * c.index_dim) as u32)
            .u32(dsa_width(c) as u32)
            .u32(capacity)
            .u32(c.index_heads as u32)
            .u32(c.index_dim as u32)
            .u32(kpool)
            .u32(top)
            .f32(scale);
        // Blocks for one row fill the device.
        let blocks = (3 * self.room.processors).div_ceil(rows.n);
        let grid = Grid::of([blocks, 1, rows.n], [INDEX_THREADS, 1, 1]).with_smem(INDEX_SMEM).early();
        self.put("index scores", &self.kernels.dsa.scores, grid, args)
    }

    /// The best pools, after their scores and one launch of products more: the kernel begins when these have seen the scores' end, and
    /// runs beside them, since it takes a few blocks and they take longer to begin.
    pub(super) fn choose(&self, rows: &StepBuffers) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        // No context needs a choice that has no more pools than are chosen.
        if self.ctx < (c.top_pools() + 1) * c.kpool {
            return Ok(());
        }
        let capacity = capacity(c, self.ctx);
        let args = Args::new()
            .pointer(self.at(s.pool_scores))
            .pointer(self.at(s.turns))
            .pointer(self.at(s.pools))
            .pointer(self.at(s.counts))
            .u32(c.kpool as u32)
            .u32(c.top_pools() as u32)
            .u32(capacity as u32)
            .u32(choice_words(capacity) as u32);
        let grid = Grid::of([CHOICE_BLOCKS, 1, rows.n], [CHOICE_THREADS, 1, 1]);
        self.put("top choose", &self.kernels.dsa.choose, grid.with_smem(CHOICE_SMEM).early(), args)
    }

    /// From queries to mixed latents.
    pub(super) fn attend(&self, w: &DsaPlaces, rows: &StepBuffers) -> Result<(), DriverError> {
        let (c, s, cache) = (self.config, self.scratch, &self.slot.caches[w.nth]);
        let (heads, latent) = (c.heads as u32, c.latent as u32);
        let (kpool, top, stride) = (c.kpool as u32, c.top_pools() as u32, row_stride(c, self.ctx) as u32);
        let bytes = self.kv.bytes() as u32;
        let (latents, pools, turns) = (self.at(cache.latents), self.at(s.pools), self.at(s.turns));
        let args = Args::new()
            .pointer(rows.absorbed)
            .pointer(latents)
            .pointer(pools)
            .pointer(turns)
            .pointer(self.at(s.attention))
            .pointer(self.at(s.gathered))
            .u32(heads)
            .u32(latent)
            .u32(kpool)
            .u32(top)
            .u32(stride)
            .u32(self.is_half())
            .f32((c.key_dim as f32).sqrt().recip());
        let parts = heads.div_ceil(SCORE_HEADS);
        let blocks = (self.room.processors / parts / rows.n).max(1);
        let grid = Grid::of([blocks, parts, rows.n], [SCORE_THREADS, 1, 1]);
        let grid = grid.with_smem(TILE_ROWS * FAST_LATENT * bytes).early();
        self.put("attend scores", &self.kernels.dsa.attend, grid, args)?;
        let args = Args::new().pointer(self.at(s.attention)).pointer(turns).u32(kpool).u32(top).u32(stride);
        let grid = Grid::of([heads, 1, rows.n], [SCORE_THREADS, 1, 1]);
        let grid = grid.with_smem(4 * (32 + stride.div_ceil(256))).early();
        self.put("attend softmax", &self.kernels.dsa.softmax, grid, args)?;
        let args = Args::new()
            .pointer(self.at(s.attention))
            .pointer(latents)
            .pointer(pools)
            .pointer(turns)
            .pointer(self.at(s.gathered))
            .pointer(rows.mixed)
            .u32(heads)
            .u32(latent)
            .u32(kpool)
            .u32(top)
            .u32(stride)
            .u32(self.is_half());
        let is_fast = latent == FAST_LATENT && heads % FAST_HEADS == 0;
        let blocks = if is_fast {
            heads.div_ceil(MIX_HEADS) * (FAST_LATENT / MIX_COLUMNS)
        } else {
            (heads * latent).div_ceil(MIX_THREADS)
        };
        let stages = if self.kv == Kv::F16 { 5 } else { 3 };
        let stage = MIX_TILE * MIX_COLUMNS * bytes + MIX_HEADS * WEIGHT_ROW;
        // Two blocks on one multiprocessor would take twice the time while others have none.
        let alone = if is_fast && rows.n == 1 { self.room.smem / 2 + 1024 } else { 0 };
        let grid = Grid::of([blocks, 1, rows.n], [MIX_THREADS, 1, 1]);
        let grid = grid.with_smem((stages * stage).max(alone)).early();
        self.put("attend mix", &self.kernels.dsa.mix, grid, args)
    }
}
