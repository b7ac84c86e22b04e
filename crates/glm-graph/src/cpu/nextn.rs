//! The NextN block over rows of one sequence (model-spec 6): plain residuals, own caches, no hyper-connections.

use super::batch::Batch;
use super::lanes::Lanes;
use super::layout::{fit, transpose};
use super::moe::Site;
use super::observer::Watch;
use super::scratch::Scratch;
use super::store::Store;
use super::{dsa, ffn, head, moe};
use crate::executor::Token;
use crate::model::Model;
use crate::weights::{Ffn, Mixer, NextN};

/// Runs the block on rows (`hidden[t]`, `next[t]`); `hidden` is `[n][hidden]`, post-norm. Leaves h' in
/// `scratch.head.hidden` and the logits in `scratch.head.logits`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn draft(
    lanes: &Lanes,
    model: &Model,
    nextn: &NextN,
    hidden: &[f32],
    next: &[Token],
    batch: &mut Batch<'_>,
    scratch: &mut Scratch,
    watch: &mut Watch<'_>,
) {
    let (config, file) = (model.config(), model.gguf());
    let (cpu, width, eps, block) = (lanes.cpu, config.hidden, config.rms_eps, config.trunk);
    let weights = &model.weights().blocks[block];
    let t = next.len();

    // The embedding's half comes first.
    let embed = nextn.embed.as_ref().unwrap_or(&model.weights().embed);
    let raw = fit(&mut scratch.head.mean, width);
    let joined = scratch.mixer.joined.reset(t, 2 * width);
    for ((row, token), hidden) in joined.chunks_exact_mut(2 * width).zip(next).zip(hidden.chunks_exact(width))
    {
        let (first, second) = row.split_at_mut(width);
        embed.row(file, *token as usize, raw);
        cpu.rms_norm(raw, &nextn.embed_norm, eps, first);
        cpu.rms_norm(hidden, &nextn.hidden_norm, eps, second);
    }
    let Scratch { x, mixer, faults, .. } = &mut *scratch;
    lanes.prepare(&mut mixer.joined, &[nextn.eh.quant], "the input of NextN", faults);
    let out = fit(&mut mixer.out, width * t);
    lanes.matmuls(&[lanes.job(nextn.eh.matrix(file), &mixer.joined, "nextn.eh_proj")], out, faults);
    let mut residual = vec![0.0; width * t];
    transpose(out, t, &mut residual);

    norm_rows(lanes, &residual, &weights.attn_norm, eps, x.reset(t, width));
    if let Mixer::Dsa(weights) = &weights.mixer {
        dsa::mix(lanes, file, config, weights, block, batch, scratch, watch);
    }
    cpu.add(&scratch.y[..width * t], &mut residual);

    norm_rows(lanes, &residual, &weights.ffn_norm, eps, scratch.x.reset(t, width));
    match &weights.ffn {
        Ffn::Moe(weights) => {
            // Drafts are few and their experts few: they stay in the file's map.
            let site = Site { lanes, file, config, block, weights, next: None };
            moe::mix(site, &mut Store::default(), batch, scratch, watch);
        }
        Ffn::Dense(weights) => ffn::dense(lanes, file, weights, config.clamp_shared[block], scratch),
    }
    cpu.add(&scratch.y[..width * t], &mut residual);

    let output = nextn.head.as_ref().unwrap_or(&model.weights().output);
    norm_rows(lanes, &residual, &nextn.head_norm, eps, scratch.head.hidden.reset(t, width));
    head::logits(lanes, file, output, &mut scratch.head, &scratch.faults);
    batch.settle(&scratch.faults.take(), block);
}

fn norm_rows(lanes: &Lanes, values: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    for (values, out) in values.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        lanes.cpu.rms_norm(values, weight, eps, out);
    }
}
