//! Routed experts and the shared one (model-spec 5.3, 5.4).
//!
//! Every expert's unweighted result lands in its own row; one pass adds them in rank order: `y = +0`, then `y = y + (w *
//! e)` with both roundings, then `y = y + shared`. So a row's bits do not depend on which rows met at an expert.

use std::ops::Range;

use quant_kernels::{Precision, Rows};
use rayon::prelude::*;

use super::batch::Batch;
use super::ffn::{Buffers, Names, swiglu};
use super::lanes::{Faults, Job, Lanes};
use super::layout::{column, fit, transpose};
use super::observer::Watch;
use super::scratch::{FfnScratch, Scratch, Worker, Workers};
use crate::config::Config;
use crate::router::route;
use crate::weights::Moe;

/// From `scratch.x` to `scratch.y`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn mix(
    lanes: &Lanes,
    file: &gguf::Model,
    config: &Config,
    weights: &Moe,
    block: usize,
    batch: &Batch<'_>,
    scratch: &mut Scratch,
    watch: &mut Watch<'_>,
) {
    let Scratch { x, y, ffn, faults, workers, .. } = scratch;
    let (t, hidden, k) = (x.n(), config.hidden, config.experts_used);
    choose(lanes, file, config, weights, x, ffn, faults);
    watch.routes(block, batch, &ffn.ids[..t * k], &ffn.weights[..t * k]);

    let w = weights;
    let quants = [w.gate.quant(), w.up.quant(), w.shared.gate.quant, w.shared.up.quant];
    lanes.prepare(x, &quants, "the input of the experts", faults);
    let (limit, shared_limit) = (config.clamp_exp[block], config.clamp_shared[block]);
    if t == 1 {
        one(lanes, file, weights, k, [limit, shared_limit], x, ffn, faults);
        let (experts, shared) = ffn.experts[..(k + 1) * hidden].split_at(k * hidden);
        let y = fit(y, hidden);
        y.fill(0.0);
        for (weight, expert) in ffn.weights[..k].iter().zip(experts.chunks_exact(hidden)) {
            lanes.cpu.scale_add(*weight, expert, y);
        }
        return lanes.cpu.add(shared, y);
    }
    group(ffn, t, k, config.experts);
    let buffers =
        Buffers { names: Names::SHARED, wide: &mut ffn.wide, hidden: &mut ffn.hidden, out: &mut ffn.out };
    swiglu(lanes, file, &w.shared, shared_limit, x, buffers, faults);
    let experts = Experts { lanes, file, weights, limit, x, k, pairs: &ffn.pairs[..t * k], faults, workers };
    let results = fit(&mut ffn.experts, t * k * hidden);
    experts.run(&ffn.active, results);

    let y = fit(y, t * hidden);
    let (shared, results) = (&ffn.out[..t * hidden], &*results);
    let (places, ranks) = (&ffn.places[..t * k], &ffn.weights[..t * k]);
    y.par_chunks_exact_mut(hidden).enumerate().with_min_len(8).for_each(|(row, y)| {
        let mut worker = workers.mine();
        y.fill(0.0);
        for (place, weight) in places[row * k..][..k].iter().zip(&ranks[row * k..][..k]) {
            lanes.cpu.scale_add(*weight, &results[*place as usize * hidden..][..hidden], y);
        }
        let own = fit(&mut worker.a, hidden);
        column(shared, t, row, own);
        lanes.cpu.add(own, y);
    });
}

/// Routes every row into `ffn.ids` and `ffn.weights`.
fn choose(
    lanes: &Lanes,
    file: &gguf::Model,
    config: &Config,
    weights: &Moe,
    x: &Rows,
    ffn: &mut FfnScratch,
    faults: &Faults,
) {
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

/// One row: all gates and ups in one fork, all downs in another. Leaves `[k + 1][hidden]` in `ffn.experts`, the shared
/// expert last.
#[allow(clippy::too_many_arguments)]
fn one(
    lanes: &Lanes,
    file: &gguf::Model,
    weights: &Moe,
    k: usize,
    limits: [f32; 2],
    x: &Rows,
    ffn: &mut FfnScratch,
    faults: &Faults,
) {
    let FfnScratch { wide, ids, ranks: inputs, hidden: shared_input, experts, .. } = ffn;
    let w = weights;
    let (width, shared_width) = (w.gate.rows(), w.shared.gate.rows);
    let hidden = w.down.rows();
    let ids = &ids[..k];

    let mut jobs = Vec::with_capacity(2 * k + 2);
    for id in ids {
        jobs.push(lanes.job(w.gate.matrix(file, *id as usize), x, "ffn_gate_exps"));
        jobs.push(lanes.job(w.up.matrix(file, *id as usize), x, "ffn_up_exps"));
    }
    jobs.push(lanes.job(w.shared.gate.matrix(file), x, "ffn_gate_shexp"));
    jobs.push(lanes.job(w.shared.up.matrix(file), x, "ffn_up_shexp"));
    let wide = fit(wide, 2 * (k * width + shared_width));
    lanes.matmuls(&jobs, wide, faults);

    let (routed, shared) = wide.split_at_mut(2 * k * width);
    inputs.resize_with(inputs.len().max(k), Rows::new);
    for (pair, input) in routed.chunks_exact_mut(2 * width).zip(&mut *inputs) {
        let (gate, up) = pair.split_at_mut(width);
        lanes.cpu.swiglu(gate, up, limits[0]);
        input.reset(1, width).copy_from_slice(gate);
        lanes.prepare(input, &[w.down.quant()], "the input of ffn_down_exps", faults);
    }
    let (gate, up) = shared.split_at_mut(shared_width);
    lanes.cpu.swiglu(gate, up, limits[1]);
    shared_input.reset(1, shared_width).copy_from_slice(gate);
    lanes.prepare(shared_input, &[w.shared.down.quant], "the input of ffn_down_shexp", faults);

    let mut jobs = Vec::with_capacity(k + 1);
    for (id, input) in ids.iter().zip(&*inputs) {
        jobs.push(lanes.job(w.down.matrix(file, *id as usize), input, "ffn_down_exps"));
    }
    jobs.push(lanes.job(w.shared.down.matrix(file), shared_input, "ffn_down_shexp"));
    lanes.matmuls(&jobs, fit(experts, (k + 1) * hidden), faults);
}

/// Sorts the `(row, rank)` pairs by expert, stably.
fn group(ffn: &mut FfnScratch, t: usize, k: usize, experts: usize) {
    let FfnScratch { ids, pairs, places, active, .. } = ffn;
    let ids = &ids[..t * k];
    let pairs = fit(pairs, t * k);
    let places = fit(places, t * k);
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
        places[pair] = *place as u32;
        *place += 1;
    }
}

/// Many rows: an expert's rows are gathered and multiplied together, experts in parallel.
struct Experts<'a> {
    lanes: &'a Lanes,
    file: &'a gguf::Model,
    weights: &'a Moe,
    limit: f32,
    x: &'a Rows,
    k: usize,
    /// `row * k + rank`, sorted by expert.
    pairs: &'a [u32],
    faults: &'a Faults,
    workers: &'a Workers,
}

impl Experts<'_> {
    /// `out` is `[pair][hidden]` for the pairs of `active`, which is a run of neighbours.
    fn run(&self, active: &[(u32, Range<usize>)], out: &mut [f32]) {
        match active {
            [] => {}
            [(expert, pairs)] => self.expert(*expert as usize, &self.pairs[pairs.clone()], out),
            [first, ..] => {
                let middle = active.len() / 2;
                let (left, right) = active.split_at(middle);
                let pairs = right[0].1.start - first.1.start;
                let (left_out, right_out) = out.split_at_mut(pairs * self.weights.down.rows());
                rayon::join(|| self.run(left, left_out), || self.run(right, right_out));
            }
        }
    }

    fn expert(&self, expert: usize, pairs: &[u32], out: &mut [f32]) {
        let (w, lanes, n) = (self.weights, self.lanes, pairs.len());
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
        let job = lanes.job(w.gate.matrix(self.file, expert), rows, "ffn_gate_exps");
        lanes.serial(&job, gate, (self.faults, 0), row_of);
        let job = lanes.job(w.up.matrix(self.file, expert), rows, "ffn_up_exps");
        lanes.serial(&job, up, (self.faults, 1), row_of);
        lanes.cpu.swiglu(gate, up, self.limit);
        transpose(gate, n, input.reset(n, width));
        let quants = [w.down.quant()];
        lanes.prepare_within(input, &quants, "the input of ffn_down_exps", (self.faults, 2), row_of);
        let product = fit(c, hidden * n);
        let job = lanes.job(w.down.matrix(self.file, expert), input, "ffn_down_exps");
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
        for (pair, place) in ffn.places.iter().enumerate() {
            assert_eq!(ffn.pairs[*place as usize] as usize, pair);
        }
    }
}
