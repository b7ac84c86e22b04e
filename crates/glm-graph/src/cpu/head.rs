//! From streams to logits (model-spec 2.5).

use std::ops::Range;

use super::batch::Batch;
use super::lanes::{Faults, Lanes};
use super::layout::{fit, transpose};
use super::scratch::{HeadScratch, Scratch};
use crate::config::Config;
use crate::model::Model;
use crate::weights::{Tensor, Weights};

/// Logits that a call holds at once: 16 MiB twice, 27 rows of the real vocabulary.
const LOGITS: usize = 1 << 22;

/// Rows whose logits are made at once.
pub(crate) fn rows_at_once(vocab: usize) -> usize {
    (LOGITS / vocab).clamp(1, 256)
}

/// Hidden vectors and logits of batch rows `rows` into `scratch.head`.
pub(crate) fn run(
    lanes: &Lanes,
    model: &Model,
    rows: Range<usize>,
    batch: &mut Batch<'_>,
    scratch: &mut Scratch,
) {
    let first = rows.start;
    hidden(lanes, model.config(), model.weights(), rows, scratch);
    logits(lanes, model.gguf(), &model.weights().output, &mut scratch.head, &scratch.faults);
    let mut notes = scratch.faults.take();
    notes.iter_mut().for_each(|note| note.row += first);
    batch.settle(&notes, model.config().trunk);
}

/// The post-norm hidden vectors of batch rows `rows` into `scratch.head.hidden`: the mean of the streams, normed.
fn hidden(lanes: &Lanes, config: &Config, weights: &Weights, rows: Range<usize>, scratch: &mut Scratch) {
    let Scratch { hyper, head, .. } = scratch;
    let mean = fit(&mut head.mean, config.hidden);
    let out = head.hidden.reset(rows.len(), config.hidden);
    for (row, out) in rows.zip(out.chunks_exact_mut(config.hidden)) {
        collapse_mean(hyper.residual.row(row), mean);
        lanes.cpu.rms_norm(mean, &weights.output_norm, config.rms_eps, out);
    }
}

/// The unweighted mean of the streams, summed in their order.
fn collapse_mean(residual: &[f32], mean: &mut [f32]) {
    let n = residual.len() / mean.len();
    mean.fill(0.0);
    for stream in residual.chunks_exact(mean.len()) {
        mean.iter_mut().zip(stream).for_each(|(mean, value)| *mean += value);
    }
    mean.iter_mut().for_each(|mean| *mean /= n as f32);
}

/// Logits of the rows of `scratch.head.hidden` into `scratch.head.logits`, `[n][vocab]`.
pub(crate) fn logits(
    lanes: &Lanes,
    file: &gguf::Model,
    output: &Tensor,
    head: &mut HeadScratch,
    faults: &Faults,
) {
    let HeadScratch { hidden, wide, logits, .. } = head;
    let n = hidden.n();
    lanes.prepare(hidden, &[output.quant], "the hidden vector", faults);
    let wide = fit(wide, output.rows * n);
    lanes.matmuls(&[lanes.job(output.matrix(file), hidden, "the logits")], wide, faults);
    transpose(wide, n, fit(logits, output.rows * n));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trap 9: an unweighted mean, not a sum and not a learned mixture.
    #[test]
    fn the_head_takes_the_mean() {
        let mut mean = [0.0; 2];
        collapse_mean(&[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 6.0, 0.0], &mut mean);
        assert_eq!(mean, [3.0, 15.0]);
    }
}
