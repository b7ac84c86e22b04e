//! The trunk over a batch (model-spec 2, 11).

use rayon::prelude::*;

use super::batch::Batch;
use super::lanes::Lanes;
use super::moe::Site;
use super::observer::Watch;
use super::scratch::Scratch;
use super::store::Store;
use super::{dsa, ffn, kda, moe, site};
use crate::executor::Token;
use crate::model::Model;
use crate::weights::{Ffn, Mixer};

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// States only: the last layer's feed-forward is left out, for nothing reads it.
    States,
    /// The streams after the last layer are wanted too.
    Streams,
}

/// Starts every stream with the token's embedding (model-spec 2.1).
pub(crate) fn embed(model: &Model, tokens: &[Token], scratch: &mut Scratch) {
    let (hidden, width) = (model.config().hidden, model.config().residual());
    let residual = scratch.hyper.residual.reset(tokens.len(), width);
    residual.par_chunks_exact_mut(width).zip(tokens).with_min_len(8).for_each(|(streams, token)| {
        let (first, others) = streams.split_at_mut(hidden);
        model.weights().embed.row(model.gguf(), *token as usize, first);
        others.chunks_exact_mut(hidden).for_each(|stream| stream.copy_from_slice(first));
    });
    scratch.faults.check_rows(scratch.hyper.residual.f32(), width, "token_embd");
}

/// All layers, from embedded tokens to the streams after the last layer. Stops early once every segment has failed.
pub(crate) fn trunk(
    lanes: &Lanes,
    model: &Model,
    batch: &mut Batch<'_>,
    store: &mut Store,
    scratch: &mut Scratch,
    purpose: Purpose,
    watch: &mut Watch<'_>,
) {
    let last = model.config().trunk - 1;
    batch.settle(&scratch.faults.take(), 0);
    for block in 0..=last {
        if batch.all_failed() {
            return;
        }
        mix_positions(lanes, model, block, batch, scratch, watch);
        if purpose == Purpose::Streams || block < last {
            mix_features(lanes, model, block, batch, store, scratch, watch);
            watch.streams(block, batch, scratch.hyper.residual.f32());
        }
        batch.settle(&scratch.faults.take(), block);
    }
}

/// One layer of the trunk on the streams in `scratch`.
pub(crate) fn layer(
    lanes: &Lanes,
    model: &Model,
    block: usize,
    batch: &mut Batch<'_>,
    store: &mut Store,
    scratch: &mut Scratch,
) {
    let watch = &mut Watch(None);
    mix_positions(lanes, model, block, batch, scratch, watch);
    mix_features(lanes, model, block, batch, store, scratch, watch);
    batch.settle(&scratch.faults.take(), block);
}

/// The first half of a layer (model-spec 2.2).
fn mix_positions(
    lanes: &Lanes,
    model: &Model,
    block: usize,
    batch: &mut Batch<'_>,
    scratch: &mut Scratch,
    watch: &mut Watch<'_>,
) {
    let (file, config, weights) = (model.gguf(), model.config(), &model.weights().blocks[block]);
    let Some(hyper) = &weights.hyper else { return };
    site::read(lanes, file, config, &hyper[0], &weights.attn_norm, scratch);
    match &weights.mixer {
        Mixer::Kda(weights) => kda::mix(lanes, file, config, weights, block, batch, scratch),
        Mixer::Dsa(weights) => dsa::mix(lanes, file, config, weights, block, batch, scratch, watch),
    }
    site::write(lanes, config, scratch);
}

/// The second half of a layer.
fn mix_features(
    lanes: &Lanes,
    model: &Model,
    block: usize,
    batch: &mut Batch<'_>,
    store: &mut Store,
    scratch: &mut Scratch,
    watch: &mut Watch<'_>,
) {
    let (file, config, weights) = (model.gguf(), model.config(), &model.weights().blocks[block]);
    let Some(hyper) = &weights.hyper else { return };
    site::read(lanes, file, config, &hyper[1], &weights.ffn_norm, scratch);
    match &weights.ffn {
        Ffn::Dense(weights) => ffn::dense(lanes, file, weights, config.clamp_shared[block], scratch),
        Ffn::Moe(weights) => {
            let next = match model.weights().blocks.get(block + 1).map(|block| &block.ffn) {
                Some(Ffn::Moe(weights)) if block + 1 < config.trunk => Some((block + 1, &**weights)),
                _ => None,
            };
            let site = Site { lanes, file, config, block, weights, next };
            moe::mix(site, store, batch, scratch, watch);
        }
    }
    site::write(lanes, config, scratch);
}
