//! The indexer over a batch (model-spec 4.2 to 4.4): pools grow, rows select.

use rayon::prelude::*;

use super::lanes::Lanes;
use super::layout::{column, fit};
use super::scratch::{Worker, Workers};
use crate::config::Config;
use crate::indexer::{layer_norm, pool, top_pools, visible_pools};
use crate::state::DsaState;
use crate::weights::Indexer;

/// Pools that a task scores at least.
const POOLS_PER_TASK: usize = 64;

/// Products of the whole batch of `t` rows, weight-row major.
pub(super) struct Pools<'a> {
    pub(super) lanes: &'a Lanes,
    pub(super) config: &'a Config,
    pub(super) weights: &'a Indexer,
    /// `[index width][t]`: keys before their layer norm.
    pub(super) keys: &'a [f32],
    /// `[index width][t]`.
    pub(super) gates: &'a [f32],
    /// `[index heads][t]`.
    pub(super) head_weights: &'a [f32],
    /// `[index heads * index width][t]`.
    pub(super) index_queries: &'a [f32],
    pub(super) t: usize,
}

/// What the rows of a segment attend to.
pub(super) struct Selection<'a> {
    /// Rows, from the first on, that see everything.
    dense: usize,
    /// Pools a row selects.
    top: usize,
    /// `[rows][top]`, ascending; the dense rows' places are unspecified.
    selected: &'a [u32],
}

impl Selection<'_> {
    /// Rows, from the first on, that attend to every position they see.
    pub(super) fn dense_rows(&self) -> usize {
        self.dense
    }

    /// The pools of a row; `None` if it attends to every position it sees.
    pub(super) fn pools(&self, row: usize) -> Option<&[u32]> {
        (row >= self.dense).then(|| &self.selected[row * self.top..][..self.top])
    }
}

impl Pools<'_> {
    /// Stores keys and gates of rows `start..start + n` (whose latents are stored already) and pools what they complete.
    pub(super) fn append(&self, state: &mut DsaState, start: usize, n: usize, workers: &Workers) {
        let (width, kpool) = (self.config.index_dim, self.config.kpool);
        let before = state.len - n;
        let mut worker = workers.mine();
        let raw = fit(&mut worker.a, width);
        for row in 0..n {
            let member = (before + row) % kpool;
            column(self.keys, self.t, start + row, raw);
            let key = &mut state.open_keys[member * width..][..width];
            layer_norm(raw, &self.weights.k_norm, &self.weights.k_bias, self.config.ln_eps, key);
            column(self.gates, self.t, start + row, &mut state.open_gates[member * width..][..width]);
            if member + 1 == kpool {
                let end = state.pooled.len();
                state.pooled.resize(end + width, 0.0);
                pool(
                    self.lanes.cpu,
                    &state.open_keys,
                    &state.open_gates,
                    &self.weights.ape,
                    &mut state.pooled[end..],
                );
            }
        }
    }

    /// Chooses pools for rows `start..start + n`, the last rows of `state`.
    ///
    /// A row with no more pools than it may select takes all of them, which is what scoring would give.
    pub(super) fn select<'a>(
        &self,
        state: &DsaState,
        start: usize,
        n: usize,
        selected: &'a mut Vec<u32>,
        scores: &mut Vec<f32>,
        workers: &Workers,
    ) -> Selection<'a> {
        let c = self.config;
        let (before, top) = (state.len - n, c.top_pools());
        // Row r sees before + r + 1 positions: everything is selected while that is less than (top + 1) pools.
        let dense = ((top + 1) * c.kpool - 1).saturating_sub(before).min(n);
        let selected = fit(selected, n * top);
        if n == 1 && dense == 0 {
            let (complete, _) = visible_pools(state.len, c.kpool);
            let scores = fit(scores, complete);
            self.score(state, start, scores, workers);
            top_pools(scores, &mut workers.mine().order, selected);
        } else if dense < n {
            selected.par_chunks_exact_mut(top).enumerate().skip(dense).for_each(|(row, selected)| {
                let mut worker = workers.mine();
                let Worker { a, b, scores, order, .. } = &mut *worker;
                let (complete, _) = visible_pools(before + row + 1, c.kpool);
                let scores = fit(scores, complete);
                let (queries, weights) = self.inputs(start + row, a, b);
                let pooled = &state.pooled[..complete * c.index_dim];
                self.lanes.cpu.index_scores(queries, weights, pooled, c.index_dim, self.scale(), scores);
                top_pools(scores, order, selected);
            });
        }
        Selection { dense, top, selected }
    }

    fn scale(&self) -> f32 {
        ((self.config.index_heads * self.config.index_dim) as f32).sqrt().recip()
    }

    /// Query `[index heads][index width]` and head weights of a batch row.
    fn inputs<'a>(&self, row: usize, a: &'a mut Vec<f32>, b: &'a mut Vec<f32>) -> (&'a [f32], &'a [f32]) {
        let queries = fit(a, self.config.index_heads * self.config.index_dim);
        column(self.index_queries, self.t, row, queries);
        let weights = fit(b, self.config.index_heads);
        column(self.head_weights, self.t, row, weights);
        (queries, weights)
    }

    /// Scores all pools of one row, on all threads where there are many.
    fn score(&self, state: &DsaState, row: usize, scores: &mut [f32], workers: &Workers) {
        let c = self.config;
        let cost = scores.len() * c.index_heads * c.index_dim;
        let per_task = scores.len().div_ceil(self.lanes.parts(cost as u64)).max(POOLS_PER_TASK);
        scores.par_chunks_mut(per_task).enumerate().for_each(|(i, scores)| {
            let mut worker = workers.mine();
            let Worker { a, b, .. } = &mut *worker;
            let (queries, weights) = self.inputs(row, a, b);
            let pooled = &state.pooled[i * per_task * c.index_dim..][..scores.len() * c.index_dim];
            self.lanes.cpu.index_scores(queries, weights, pooled, c.index_dim, self.scale(), scores);
        });
    }
}
