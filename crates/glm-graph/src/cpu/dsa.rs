//! Latent attention over a batch (model-spec 4.1), in absorbed form.

use std::ops::Range;

use quant_kernels::Rows;
use rayon::prelude::*;

use super::batch::{Batch, Segment};
use super::kda::join_heads;
use super::lanes::{Faults, Lanes};
use super::layout::{column, fit, transpose};
use super::observer::Watch;
use super::pools::{Pools, Selection};
use super::scratch::{MixerScratch, Scratch, Worker, Workers};
use crate::config::Config;
use crate::indexer::positions;
use crate::state::{DsaState, Latents};
use crate::weights::Dsa;

/// From `scratch.x` to `scratch.y`; the caches of block `block` grow by the batch's rows.
#[allow(clippy::too_many_arguments)]
pub(crate) fn mix(
    lanes: &Lanes,
    file: &gguf::Model,
    config: &Config,
    weights: &Dsa,
    block: usize,
    batch: &mut Batch<'_>,
    scratch: &mut Scratch,
    watch: &mut Watch<'_>,
) {
    let Scratch { x, y, mixer, faults, workers, .. } = scratch;
    let MixerScratch {
        first, second, low, heads, mixed, rows: gathered, selected, scores, joined, out, ..
    } = mixer;
    let (t, rank, latent) = (batch.rows, config.q_rank, config.latent);
    let (w, ix) = (weights, &weights.indexer);

    let quants = [w.q_a.quant, w.kv_a.quant, ix.k.quant, ix.gate.quant, ix.proj.quant];
    lanes.prepare(x, &quants, "the input of DSA", faults);
    let first = fit(first, (rank + latent + 2 * config.index_dim + config.index_heads) * t);
    let jobs = [
        lanes.job(w.q_a.matrix(file), x, "attn_q_a"),
        lanes.job(w.kv_a.matrix(file), x, "attn_kv_a_mqa"),
        lanes.job(ix.k.matrix(file), x, "indexer.attn_k"),
        lanes.job(ix.gate.matrix(file), x, "indexer_compressor_gate"),
        lanes.job(ix.proj.matrix(file), x, "indexer.proj"),
    ];
    lanes.matmuls(&jobs, first, faults);
    let (q_a, rest) = first.split_at(rank * t);
    let (kv_a, rest) = rest.split_at(latent * t);
    let (keys, rest) = rest.split_at(config.index_dim * t);
    let (gates, head_weights) = rest.split_at(config.index_dim * t);

    norm_columns(lanes, q_a, t, &w.q_a_norm, config.rms_eps, low.reset(t, rank), workers);
    lanes.prepare(low, &[w.q_b.quant, ix.q_b.quant], "attn_q_a", faults);
    let width = config.heads * config.key_dim;
    let second = fit(second, (width + config.index_heads * config.index_dim) * t);
    let jobs = [
        lanes.job(w.q_b.matrix(file), low, "attn_q_b"),
        lanes.job(ix.q_b.matrix(file), low, "indexer.attn_q_b"),
    ];
    lanes.matmuls(&jobs, second, faults);
    let (queries, index_queries) = second.split_at(width * t);

    let pools = Pools { lanes, config, weights: ix, keys, gates, head_weights, index_queries, t };
    let attention = Attention { lanes, file, config, weights, queries, t, faults, workers };
    let inner = config.heads * config.value_dim;
    let rows = joined.reset(t, inner);
    for segment in batch.segments.iter_mut() {
        let (start, n, position) = (segment.start, segment.n, segment.position);
        let state = segment.sequence.dsa(block);
        append_latents(lanes, kv_a, t, start, n, &w.kv_a_norm, config.rms_eps, state, workers);
        pools.append(state, start, n, workers);
        let selection = pools.select(state, start, n, selected, scores, workers);
        watch.selection(block, position, n, &selection, config);
        let rows = &mut rows[start * inner..][..n * inner];
        if n == 1 {
            attention.one(segment, block, &selection, gathered, mixed, rows);
        } else {
            attention.many(segment, block, &selection, gathered, heads, mixed, rows);
        }
    }

    lanes.prepare(joined, &[w.out.quant], "the input of attn_output", faults);
    let out = fit(out, config.hidden * t);
    lanes.matmuls(&[lanes.job(w.out.matrix(file), joined, "attn_output")], out, faults);
    transpose(out, t, fit(y, config.hidden * t));
}

/// `out[row] = rms(column row of values)` for every row.
fn norm_columns(
    lanes: &Lanes,
    values: &[f32],
    t: usize,
    weight: &[f32],
    eps: f32,
    out: &mut [f32],
    workers: &Workers,
) {
    let width = weight.len();
    if t == 1 {
        return lanes.cpu.rms_norm(values, weight, eps, out);
    }
    out.par_chunks_exact_mut(width).enumerate().with_min_len(16).for_each(|(row, out)| {
        let mut worker = workers.mine();
        let raw = fit(&mut worker.a, width);
        column(values, t, row, raw);
        lanes.cpu.rms_norm(raw, weight, eps, out);
    });
}

/// Norms the latents of rows `start..start + n` and stores them.
#[allow(clippy::too_many_arguments)]
fn append_latents(
    lanes: &Lanes,
    kv_a: &[f32],
    t: usize,
    start: usize,
    n: usize,
    weight: &[f32],
    eps: f32,
    state: &mut DsaState,
    workers: &Workers,
) {
    let mut worker = workers.mine();
    let Worker { a, b, .. } = &mut *worker;
    let (raw, normed) = (fit(a, weight.len()), fit(b, weight.len()));
    for row in start..start + n {
        column(kv_a, t, row, raw);
        lanes.cpu.rms_norm(raw, weight, eps, normed);
        state.latents.push(lanes.cpu, normed);
    }
    state.len += n;
}

struct Attention<'a> {
    lanes: &'a Lanes,
    file: &'a gguf::Model,
    config: &'a Config,
    weights: &'a Dsa,
    /// `[heads * key width][t]`.
    queries: &'a [f32],
    t: usize,
    faults: &'a Faults,
    workers: &'a Workers,
}

impl Attention<'_> {
    fn scale(&self) -> f32 {
        (self.config.key_dim as f32).sqrt().recip()
    }

    /// One row: everything a head does happens on one thread.
    fn one(
        &self,
        segment: &mut Segment,
        block: usize,
        selection: &Selection<'_>,
        gathered: &mut Vec<f32>,
        mixed: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        let c = self.config;
        let start = segment.start;
        let state = &*segment.sequence.dsa(block);
        let rows = latent_rows(self.lanes, c, state, selection, 0, state.len, gathered);
        let visible = rows.len() / c.latent;
        let head_cost = c.latent * (c.key_dim + c.value_dim + 2 * visible);
        let heads_per_task = c.heads.div_ceil(self.lanes.parts((c.heads * head_cost) as u64));
        let absorbed_and_mixed = fit(mixed, 2 * c.heads * c.latent);
        let (absorbed, mixed) = absorbed_and_mixed.split_at_mut(c.heads * c.latent);
        let task = |first: usize, absorbed: &mut [f32], mixed: &mut [f32], out: &mut [f32]| {
            let mut worker = self.workers.mine();
            let Worker { scores, rows: queries, hidden: values, .. } = &mut *worker;
            let heads = first..first + absorbed.len() / c.latent;
            for (head, absorbed) in heads.clone().zip(absorbed.chunks_exact_mut(c.latent)) {
                self.absorb(head, start, 1, queries, absorbed);
            }
            self.lanes.cpu.attend(absorbed, heads.len(), rows, c.latent, self.scale(), scores, mixed);
            for ((head, mixed), out) in
                heads.zip(mixed.chunks_exact(c.latent)).zip(out.chunks_exact_mut(c.value_dim))
            {
                values.reset(1, c.latent).copy_from_slice(mixed);
                self.expand(head, start, values, out);
            }
        };
        if heads_per_task >= c.heads {
            return task(0, absorbed, mixed, out);
        }
        absorbed
            .par_chunks_mut(heads_per_task * c.latent)
            .zip(mixed.par_chunks_mut(heads_per_task * c.latent))
            .zip(out.par_chunks_mut(heads_per_task * c.value_dim))
            .enumerate()
            .for_each(|(i, ((absorbed, mixed), out))| task(i * heads_per_task, absorbed, mixed, out));
    }

    /// Many rows of one sequence: heads, then rows, then heads again.
    #[allow(clippy::too_many_arguments)]
    fn many(
        &self,
        segment: &mut Segment,
        block: usize,
        selection: &Selection<'_>,
        gathered: &mut Vec<f32>,
        heads: &mut Vec<f32>,
        mixed: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        let c = self.config;
        let (start, n) = (segment.start, segment.n);
        let state = &*segment.sequence.dsa(block);
        let absorbed = fit(heads, c.heads * n * c.latent.max(c.value_dim));
        let absorbed_len = c.heads * n * c.latent;
        absorbed[..absorbed_len].par_chunks_exact_mut(n * c.latent).enumerate().for_each(
            |(head, absorbed)| {
                let mut worker = self.workers.mine();
                let Worker { a, rows, .. } = &mut *worker;
                let product = fit(a, n * c.latent);
                self.absorb(head, start, n, rows, product);
                transpose(product, n, absorbed);
            },
        );

        // Rows that see everything read one widened copy of the cache (or the cache itself).
        let before = state.len - n;
        let dense = selection.dense_rows();
        let shared = latent_rows(self.lanes, c, state, selection, 0, before + dense, gathered);
        let mixed = fit(mixed, n * c.heads * c.latent);
        let absorbed_rows = &absorbed[..absorbed_len];
        mixed.par_chunks_exact_mut(c.heads * c.latent).enumerate().for_each(|(row, mixed)| {
            let mut worker = self.workers.mine();
            let Worker { a, b, scores, .. } = &mut *worker;
            let queries = fit(a, c.heads * c.latent);
            for (query, head) in
                queries.chunks_exact_mut(c.latent).zip(absorbed_rows.chunks_exact(n * c.latent))
            {
                query.copy_from_slice(&head[row * c.latent..][..c.latent]);
            }
            let visible = before + row + 1;
            let rows = if row < dense {
                &shared[..visible * c.latent]
            } else {
                latent_rows(self.lanes, c, state, selection, row, visible, b)
            };
            self.lanes.cpu.attend(queries, c.heads, rows, c.latent, self.scale(), scores, mixed);
        });

        let values = &mut absorbed[..c.heads * n * c.value_dim];
        let mixed = &*mixed;
        values.par_chunks_exact_mut(n * c.value_dim).enumerate().for_each(|(head, out)| {
            let mut worker = self.workers.mine();
            let Worker { a, rows, .. } = &mut *worker;
            let input = rows.reset(n, c.latent);
            for (row, mixed) in input.chunks_exact_mut(c.latent).zip(mixed.chunks_exact(c.heads * c.latent)) {
                row.copy_from_slice(&mixed[head * c.latent..][..c.latent]);
            }
            let product = fit(a, n * c.value_dim);
            self.expand(head, start, rows, product);
            transpose(product, n, out);
        });
        join_heads(values, n, c.value_dim, out);
    }

    /// `k_b` of a head times its queries of `n` rows: `out` is `[latent][n]`.
    fn absorb(&self, head: usize, start: usize, n: usize, queries: &mut Rows, out: &mut [f32]) {
        let d = self.config.key_dim;
        let rows = queries.reset(n, d);
        for i in 0..d {
            let values = &self.queries[(head * d + i) * self.t + start..];
            for (row, value) in rows.iter_mut().skip(i).step_by(d).zip(values) {
                *row = *value;
            }
        }
        let stack = &self.weights.k_b;
        self.prepare(queries, stack.quant(), start, "attn_q_b", 0);
        let job = self.lanes.job(stack.matrix(self.file, head), queries, "attn_k_b");
        self.lanes.serial(&job, out, (self.faults, 1), |row| start + row);
    }

    /// `v_b` of a head times mixed latents: `out` is `[value width][n]`.
    fn expand(&self, head: usize, start: usize, mixed: &mut Rows, out: &mut [f32]) {
        let stack = &self.weights.v_b;
        self.prepare(mixed, stack.quant(), start, "attention's output", 2);
        let job = self.lanes.job(stack.matrix(self.file, head), mixed, "attn_v_b");
        self.lanes.serial(&job, out, (self.faults, 3), |row| start + row);
    }

    fn prepare(
        &self,
        rows: &mut Rows,
        quant: quant_kernels::Quant,
        start: usize,
        what: &'static str,
        step: u32,
    ) {
        self.lanes.prepare_within(rows, &[quant], what, (self.faults, step), |row| start + row);
    }
}

/// The latents that `row` of the segment attends to, `[positions][latent]` in ascending order, where `visible` counts the
/// positions it sees.
fn latent_rows<'a>(
    lanes: &Lanes,
    config: &Config,
    state: &'a DsaState,
    selection: &Selection<'_>,
    row: usize,
    visible: usize,
    buffer: &'a mut Vec<f32>,
) -> &'a [f32] {
    let width = config.latent;
    let copy = |range: Range<usize>, out: &mut [f32]| match &state.latents {
        Latents::F32(values) => out.copy_from_slice(&values[range]),
        Latents::F16(values) => lanes.cpu.widen_f16(&values[range], out),
    };
    let Some(pools) = selection.pools(row) else {
        return match &state.latents {
            Latents::F32(values) => &values[..visible * width],
            Latents::F16(_) => {
                let out = fit(buffer, visible * width);
                copy(0..visible * width, out);
                out
            }
        };
    };
    let count = positions(pools, visible, config.kpool).count();
    let out = fit(buffer, count * width);
    for (position, out) in positions(pools, visible, config.kpool).zip(out.chunks_exact_mut(width)) {
        copy(position * width..(position + 1) * width, out);
    }
    out
}
