//! Routed experts and the shared one (model-spec 5.3, 5.4).
//!
//! Experts are computed in waves, as the store has their weights: all at once from a mapped file, residents first and then
//! what the drive brings otherwise. Every expert's unweighted result lands in a row of its own, in the order of the waves;
//! one pass adds them in rank order: `y = +0`, then `y = y + (w * e)` with both roundings, then `y = y + shared`. So a row's
//! bits depend neither on which rows met at an expert nor on when its weights came.

use std::ops::Range;
use std::time::Instant;

use quant_kernels::{Matrix, Precision, Rows};
use rayon::prelude::*;

use super::batch::Batch;
use super::ffn::{Buffers, Names, swiglu};
use super::lanes::{Faults, Job, Lanes};
use super::layout::{column, fit, transpose};
use super::observer::Watch;
use super::scratch::{FfnScratch, Scratch, Worker, Workers};
use super::store::{Served, Store};
use crate::config::Config;
use crate::router::route;
use crate::weights::Moe;

/// The place of a result that has not come.
const NOT_COMPUTED: u32 = u32::MAX;

/// What the pass is of: everything that does not change from layer to layer.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) lanes: &'a Lanes,
    pub(crate) file: &'a gguf::Model,
    pub(crate) config: &'a Config,
    /// The layer's block number.
    pub(crate) block: usize,
    pub(crate) weights: &'a Moe,
    /// The next layer's weights, for a guess at its route.
    pub(crate) next: Option<(usize, &'a Moe)>,
}

/// From `scratch.x` to `scratch.y`.
pub(crate) fn mix(
    site: Site<'_>,
    store: &mut Store,
    batch: &mut Batch<'_>,
    scratch: &mut Scratch,
    watch: &mut Watch<'_>,
) {
    let Site { lanes, file, config, block, weights: w, .. } = site;
    let Scratch { x, y, ffn, faults, workers, .. } = scratch;
    let (t, hidden, k) = (x.n(), config.hidden, config.experts_used);
    choose(site, x, ffn, faults);
    watch.routes(block, batch, &ffn.ids[..t * k], &ffn.weights[..t * k]);
    group(ffn, t, k, config.experts);
    store.route(block, &ffn.active, w);
    if let Some((next, weights)) = site.next.filter(|(next, _)| store.wants_guess(*next)) {
        guess(lanes, file, config, weights, x, ffn);
        store.look_ahead(next, &ffn.guess, weights);
    }

    let quants = [w.gate.quant(), w.up.quant(), w.shared.gate.quant, w.shared.up.quant];
    lanes.prepare(x, &quants, "the input of the experts", faults);
    let (limit, shared_limit) = (config.clamp_exp[block], config.clamp_shared[block]);
    let mut first = true;
    let mut base = 0;
    let mut wave = Vec::new();
    fit(&mut ffn.experts, (t * k + 1) * hidden);
    fit(&mut ffn.places, t * k).fill(NOT_COMPUTED);
    // One row's products are split over the threads; of many rows each thread computes an expert.
    let together = if t == 1 { 1 } else { lanes.threads };
    while store.wave(&mut wave, together) || first {
        let started = Instant::now();
        if t == 1 {
            base += one(site, store, &wave, first, base, x, ffn, faults);
        } else {
            if first {
                let (wide, hidden, out) = (&mut ffn.wide, &mut ffn.hidden, &mut ffn.out);
                let buffers = Buffers { names: Names::SHARED, wide, hidden, out };
                swiglu(lanes, file, &w.shared, shared_limit, x, buffers, faults);
            }
            let pairs = &ffn.pairs[..t * k];
            let experts = Experts { site, limit, x, k, pairs, faults, workers };
            let matrices: Vec<_> = wave.iter().map(|it| store.matrices(file, w, it)).collect();
            let rows: usize = wave.iter().map(|it| it.pairs.len()).sum();
            experts.run(&wave, &matrices, &mut ffn.experts[base * hidden..][..rows * hidden]);
            let places = (base..).zip(wave.iter().flat_map(|it| &ffn.pairs[it.pairs.clone()]));
            places.for_each(|(place, pair)| ffn.places[*pair as usize] = place as u32);
            base += rows;
        }
        store.done(&wave, started.elapsed());
        first = false;
    }
    for (expert, why) in store.take_failures() {
        let row = |pair: &u32| *pair as usize / k;
        let pairs = ffn.active.iter().find(|(id, _)| *id == expert).map(|(_, pairs)| pairs.clone());
        let rows = pairs.into_iter().flat_map(|pairs| ffn.pairs[pairs].iter().map(row));
        batch.fail(rows, &why);
    }
    let pairs = ffn.places[..t * k].iter().zip(&ffn.weights[..t * k]);
    store.weigh(pairs.map(|(place, weight)| (*place != NOT_COMPUTED, *weight)));
    combine(lanes, x, y, ffn, workers, k, hidden);
}

/// Adds every row's experts in rank order, then the shared one.
fn combine(
    lanes: &Lanes,
    x: &Rows,
    y: &mut Vec<f32>,
    ffn: &FfnScratch,
    workers: &Workers,
    k: usize,
    hidden: usize,
) {
    let t = x.n();
    let y = fit(y, t * hidden);
    let (shared, results) = (&ffn.out[..t * hidden], &ffn.experts);
    let (places, ranks) = (&ffn.places[..t * k], &ffn.weights[..t * k]);
    let add = |row: usize, y: &mut [f32]| {
        y.fill(0.0);
        let pairs = places[row * k..][..k].iter().zip(&ranks[row * k..][..k]);
        // A row that lacks an expert has failed, and is not looked at.
        for (place, weight) in pairs.filter(|(place, _)| **place != NOT_COMPUTED) {
            lanes.cpu.scale_add(*weight, &results[*place as usize * hidden..][..hidden], y);
        }
    };
    if t == 1 {
        add(0, y);
        return lanes.cpu.add(shared, y);
    }
    y.par_chunks_exact_mut(hidden).enumerate().with_min_len(8).for_each(|(row, y)| {
        let mut worker = workers.mine();
        add(row, y);
        let own = fit(&mut worker.a, hidden);
        column(shared, t, row, own);
        lanes.cpu.add(own, y);
    });
}

/// Routes every row into `ffn.ids` and `ffn.weights`.
fn choose(site: Site<'_>, x: &Rows, ffn: &mut FfnScratch, faults: &Faults) {
    let Site { lanes, file, config, weights, .. } = site;
    let (t, k) = (x.n(), config.experts_used);
    let logits = fit(&mut ffn.logits, config.experts * t);
    // f32 activations in both precisions: rounding them would change which experts are taken.
    let job =
        Job { w: weights.router.matrix(file), x, precision: Precision::Exact, what: "the router's logits" };
    lanes.matmuls(&[job], logits, faults);
    let scores = fit(&mut ffn.scores, config.experts);
    let ids = fit(&mut ffn.ids, t * k);
    let ranks = fit(&mut ffn.weights, t * k);
    for (row, (ids, ranks)) in ids.chunks_exact_mut(k).zip(ranks.chunks_exact_mut(k)).enumerate() {
        column(logits, t, row, scores);
        route(lanes.cpu, scores, &weights.bias, config.expert_scale, ids, ranks);
    }
}

/// The next layer's router on this layer's input, into `ffn.guess`: what the drive may fetch ahead, the experts of most rows
/// first. It touches nothing that the pass computes with.
fn guess(lanes: &Lanes, file: &gguf::Model, config: &Config, next: &Moe, x: &Rows, ffn: &mut FfnScratch) {
    let t = x.n();
    let logits = fit(&mut ffn.logits, config.experts * t);
    let job = Job { w: next.router.matrix(file), x, precision: Precision::Exact, what: "" };
    lanes.matmuls(&[job], logits, &Faults::default());
    let scores = fit(&mut ffn.scores, config.experts);
    let (mut ids, mut weights) = (vec![0; config.experts_used], vec![0.0; config.experts_used]);
    let mut rows = vec![0u32; config.experts];
    for row in 0..t {
        column(logits, t, row, scores);
        route(lanes.cpu, scores, &next.bias, config.expert_scale, &mut ids, &mut weights);
        ids.iter().for_each(|id| rows[*id as usize] += 1);
    }
    ffn.guess.clear();
    ffn.guess.extend((0..config.experts as u32).filter(|id| rows[*id as usize] > 0));
    ffn.guess.sort_by_key(|id| (std::cmp::Reverse(rows[*id as usize]), *id));
}

/// One row: all gates and ups of a wave in one fork, all downs in another, the shared expert among them in the first wave.
/// Appends the results to `ffn.experts` from row `base` on, and returns how many there are; the shared one goes to
/// `ffn.out`.
#[allow(clippy::too_many_arguments)]
fn one(
    site: Site<'_>,
    store: &Store,
    wave: &[Served],
    with_shared: bool,
    base: usize,
    x: &Rows,
    ffn: &mut FfnScratch,
    faults: &Faults,
) -> usize {
    let Site { lanes, file, config, block, weights: w, .. } = site;
    let FfnScratch { wide, ranks: inputs, hidden: shared_input, experts, pairs, places, out, .. } = ffn;
    let (width, shared_width, n) = (w.gate.rows(), w.shared.gate.rows, wave.len());
    let hidden = w.down.rows();
    let matrices: Vec<_> = wave.iter().map(|it| store.matrices(file, w, it)).collect();

    let mut jobs = Vec::with_capacity(2 * n + 2);
    for [gate, up, _] in &matrices {
        jobs.push(lanes.job(*gate, x, "ffn_gate_exps"));
        jobs.push(lanes.job(*up, x, "ffn_up_exps"));
    }
    if with_shared {
        jobs.push(lanes.job(w.shared.gate.matrix(file), x, "ffn_gate_shexp"));
        jobs.push(lanes.job(w.shared.up.matrix(file), x, "ffn_up_shexp"));
    }
    let wide = fit(wide, 2 * (n * width + if with_shared { shared_width } else { 0 }));
    lanes.matmuls(&jobs, wide, faults);

    let (routed, shared) = wide.split_at_mut(2 * n * width);
    inputs.resize_with(inputs.len().max(n), Rows::new);
    for (pair, input) in routed.chunks_exact_mut(2 * width).zip(&mut *inputs) {
        let (gate, up) = pair.split_at_mut(width);
        lanes.cpu.swiglu(gate, up, config.clamp_exp[block]);
        input.reset(1, width).copy_from_slice(gate);
        lanes.prepare(input, &[w.down.quant()], "the input of ffn_down_exps", faults);
    }
    let mut jobs = Vec::with_capacity(n + 1);
    for ([_, _, down], input) in matrices.iter().zip(&*inputs) {
        jobs.push(lanes.job(*down, input, "ffn_down_exps"));
    }
    if with_shared {
        let (gate, up) = shared.split_at_mut(shared_width);
        lanes.cpu.swiglu(gate, up, config.clamp_shared[block]);
        shared_input.reset(1, shared_width).copy_from_slice(gate);
        lanes.prepare(shared_input, &[w.shared.down.quant], "the input of ffn_down_shexp", faults);
        jobs.push(lanes.job(w.shared.down.matrix(file), shared_input, "ffn_down_shexp"));
    }
    let results = &mut experts[base * hidden..][..jobs.len() * hidden];
    lanes.matmuls(&jobs, results, faults);
    if with_shared {
        fit(out, hidden).copy_from_slice(&results[n * hidden..]);
    }
    let done = (base..).zip(wave.iter().flat_map(|it| &pairs[it.pairs.clone()]));
    done.for_each(|(place, rank)| places[*rank as usize] = place as u32);
    n
}

/// Sorts the `(row, rank)` pairs by expert, stably.
fn group(ffn: &mut FfnScratch, t: usize, k: usize, experts: usize) {
    let FfnScratch { ids, pairs, active, .. } = ffn;
    let ids = &ids[..t * k];
    let pairs = fit(pairs, t * k);
    let mut starts = vec![0; experts + 1];
    ids.iter().for_each(|id| starts[*id as usize + 1] += 1);
    active.clear();
    for expert in 0..experts {
        starts[expert + 1] += starts[expert];
        let range: Range<usize> = starts[expert]..starts[expert + 1];
        if !range.is_empty() {
            active.push((expert as u32, range));
        }
    }
    for (pair, id) in ids.iter().enumerate() {
        let place = &mut starts[*id as usize];
        pairs[*place] = pair as u32;
        *place += 1;
    }
}

/// Many rows: an expert's rows are gathered and multiplied together, experts in parallel.
struct Experts<'a> {
    site: Site<'a>,
    limit: f32,
    x: &'a Rows,
    k: usize,
    /// `row * k + rank`, sorted by expert.
    pairs: &'a [u32],
    faults: &'a Faults,
    workers: &'a Workers,
}

impl Experts<'_> {
    /// `matrices` are those of `wave`, `out` is `[pair][hidden]` for its pairs, both in its order.
    fn run(&self, wave: &[Served], matrices: &[[Matrix<'_>; 3]], out: &mut [f32]) {
        match wave {
            [] => {}
            [served] => self.expert(matrices[0], &self.pairs[served.pairs.clone()], out),
            _ => {
                let (left, right) = wave.split_at(wave.len() / 2);
                let (left_matrices, right_matrices) = matrices.split_at(left.len());
                let pairs: usize = left.iter().map(|it| it.pairs.len()).sum();
                let (left_out, right_out) = out.split_at_mut(pairs * self.site.weights.down.rows());
                rayon::join(
                    || self.run(left, left_matrices, left_out),
                    || self.run(right, right_matrices, right_out),
                );
            }
        }
    }

    fn expert(&self, [gate_matrix, up_matrix, down_matrix]: [Matrix<'_>; 3], pairs: &[u32], out: &mut [f32]) {
        let (w, lanes, n) = (self.site.weights, self.site.lanes, pairs.len());
        let (width, hidden) = (w.gate.rows(), w.down.rows());
        let row_of = |i: usize| pairs[i] as usize / self.k;
        let mut worker = self.workers.mine();
        let Worker { a, b, c, rows, hidden: input, .. } = &mut *worker;
        for (row, pair) in rows.reset(n, self.x.cols()).chunks_exact_mut(self.x.cols()).zip(pairs) {
            row.copy_from_slice(self.x.row(*pair as usize / self.k));
        }
        // The batch's own preparation has noted rows that are not finite.
        lanes.prepare(rows, &[w.gate.quant(), w.up.quant()], "", &Faults::default());
        let (gate, up) = (fit(a, width * n), fit(b, width * n));
        let job = lanes.job(gate_matrix, rows, "ffn_gate_exps");
        lanes.serial(&job, gate, (self.faults, 0), row_of);
        let job = lanes.job(up_matrix, rows, "ffn_up_exps");
        lanes.serial(&job, up, (self.faults, 1), row_of);
        lanes.cpu.swiglu(gate, up, self.limit);
        transpose(gate, n, input.reset(n, width));
        let quants = [w.down.quant()];
        lanes.prepare_within(input, &quants, "the input of ffn_down_exps", (self.faults, 2), row_of);
        let product = fit(c, hidden * n);
        let job = lanes.job(down_matrix, input, "ffn_down_exps");
        lanes.serial(&job, product, (self.faults, 3), row_of);
        transpose(product, n, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_sorted_by_expert() {
        let mut ffn = FfnScratch { ids: vec![3, 1, 1, 0, 3, 0], ..FfnScratch::default() };
        group(&mut ffn, 3, 2, 5);
        assert_eq!(ffn.pairs, [3, 5, 1, 2, 0, 4]);
        assert_eq!(ffn.active, [(0, 0..2), (1, 2..4), (3, 4..6)]);
    }
}
