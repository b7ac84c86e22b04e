//! A hyper-connection site over a batch: streams in, normed input out; then output in, streams out.

use quant_kernels::Precision;
use rayon::prelude::*;

use super::lanes::{Job, Lanes};
use super::layout::{column, fit};
use super::scratch::Scratch;
use crate::config::Config;
use crate::hyper::{MAX_STREAMS, Mixing, collapse, expand};
use crate::weights::HyperSite;

/// Values that one thread should at least move: about 10 us.
const VALUES_PER_TASK: usize = 1 << 15;

/// Rows a task.
fn rows_per_task(width: usize) -> usize {
    (VALUES_PER_TASK / width).max(1)
}

/// Reads the streams (model-spec 2.3) and norms the result into `scratch.x`.
///
/// The mixing product runs on the raw streams and its 24 results are scaled by the streams' inverse RMS, which is the same
/// as scaling 16,384 values first.
pub(crate) fn read(
    lanes: &Lanes,
    file: &gguf::Model,
    config: &Config,
    site: &HyperSite,
    norm: &[f32],
    scratch: &mut Scratch,
) {
    let Scratch { hyper, x, y, faults, .. } = scratch;
    let t = hyper.residual.n();
    let (hidden, n, width) = (config.hidden, config.streams, config.residual());
    let mix = fit(&mut hyper.mix, config.hc_rows() * t);
    // The mixing weights keep f32 activations in both precisions: their sigmoids and Sinkhorn steer every stream.
    let job = Job {
        w: site.mix.matrix(file),
        x: &hyper.residual,
        precision: Precision::Exact,
        what: "the mixing logits",
    };
    lanes.matmuls(&[job], mix, faults);
    let mixing = Mixing {
        streams: n,
        scale: site.scale,
        base: &site.base,
        sinkhorn: config.sinkhorn,
        eps: config.hc_eps,
    };
    let cpu = lanes.cpu;
    let gates_width = n + n * n;
    let mix = &*mix;
    let row = |row: usize, residual: &[f32], gates: &mut [f32], raw: &mut [f32], out: &mut [f32]| {
        let squares = cpu.dot(residual, residual);
        if !squares.is_finite() {
            faults.note(faults.stage(), row, "the residual streams");
        }
        let inverse = 1.0 / (squares / width as f32 + config.rms_eps).sqrt();
        let mut logits = [0.0; 2 * MAX_STREAMS + MAX_STREAMS * MAX_STREAMS];
        let logits = &mut logits[..config.hc_rows()];
        column(mix, t, row, logits);
        logits.iter_mut().for_each(|logit| *logit *= inverse);
        let mut pre = [0.0; MAX_STREAMS];
        let (post, comb) = gates.split_at_mut(n);
        mixing.gates(logits, &mut pre[..n], post, comb);
        collapse(cpu, residual, &pre[..n], raw);
        cpu.rms_norm(raw, norm, config.rms_eps, out);
    };
    let residual = hyper.residual.f32();
    let gates = fit(&mut hyper.gates, gates_width * t);
    let raw = fit(y, hidden * t);
    let out = x.reset(t, hidden);
    if t == 1 {
        return row(0, residual, gates, raw, out);
    }
    residual
        .par_chunks_exact(width)
        .zip(gates.par_chunks_exact_mut(gates_width))
        .zip(raw.par_chunks_exact_mut(hidden))
        .zip(out.par_chunks_exact_mut(hidden))
        .enumerate()
        .with_min_len(rows_per_task(width))
        .for_each(|(i, (((residual, gates), raw), out))| row(i, residual, gates, raw, out));
}

/// Writes the streams (model-spec 2.4) from the output in `scratch.y`, with the gates that [`read`] left.
pub(crate) fn write(lanes: &Lanes, config: &Config, scratch: &mut Scratch) {
    let Scratch { hyper, y, .. } = scratch;
    let t = hyper.residual.n();
    let (hidden, n, width) = (config.hidden, config.streams, config.residual());
    let cpu = lanes.cpu;
    let row = |y: &[f32], residual: &[f32], gates: &[f32], next: &mut [f32]| {
        let (post, comb) = gates.split_at(n);
        expand(cpu, y, residual, post, comb, next);
    };
    let next = hyper.next.reset(t, width);
    let gates_width = n + n * n;
    if t == 1 {
        row(&y[..hidden], hyper.residual.f32(), &hyper.gates[..gates_width], next);
    } else {
        y[..hidden * t]
            .par_chunks_exact(hidden)
            .zip(hyper.residual.f32().par_chunks_exact(width))
            .zip(hyper.gates[..gates_width * t].par_chunks_exact(gates_width))
            .zip(next.par_chunks_exact_mut(width))
            .with_min_len(rows_per_task(width))
            .for_each(|(((y, residual), gates), next)| row(y, residual, gates, next));
    }
    std::mem::swap(&mut hyper.residual, &mut hyper.next);
}
