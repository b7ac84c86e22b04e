//! What parity checks need to see of a CPU executor: intermediate values of a pass, single layers, recurrent states.

use crate::cpu::{CpuExecutor, HiddenRows, Observer};
#[cfg(feature = "cuda")]
pub use crate::cuda::{DeviceProducts, DeviceSampler};
use crate::error::ExecError;
use crate::executor::{SeqId, Token};
use crate::state::{Checkpoint, Latents, LayerState};

/// As [`CpuExecutor::score_hidden`], with every layer's streams, routes and selections shown to `observer`.
///
/// # Errors
/// As [`Executor::prefill`](crate::Executor::prefill).
pub fn trace(
    executor: &mut CpuExecutor,
    seq: SeqId,
    tokens: &[Token],
    observer: &mut dyn Observer,
    rows: &mut HiddenRows<'_>,
) -> Result<(), ExecError> {
    executor.trace(seq, tokens, observer, rows)
}

/// As [`CpuExecutor::draft_logits`], with the NextN block's routes and selections shown to `observer` under the number of
/// the block, which is the number of trunk layers.
///
/// # Errors
/// As [`CpuExecutor::draft_logits`].
pub fn trace_draft(
    executor: &mut CpuExecutor,
    seq: SeqId,
    hidden: &[f32],
    next: &[Token],
    observer: &mut dyn Observer,
    rows: &mut HiddenRows<'_>,
) -> Result<(), ExecError> {
    executor.trace_draft(seq, hidden, next, observer, rows)
}

/// Runs trunk layer `layer` alone on the first positions of an empty sequence: `streams` and the result are `[n][streams *
/// hidden]`. Layer 0 takes the embedding in every stream ([`embedding`]).
///
/// # Errors
/// `layer` is beyond the trunk, the slice is no whole number of rows, or NaN or infinity was met.
pub fn layer(executor: &mut CpuExecutor, layer: usize, streams: &[f32]) -> Result<Vec<f32>, ExecError> {
    executor.layer_forward(layer, streams)
}

/// The streams before layer 0: `[tokens.len()][streams * hidden]`.
///
/// # Errors
/// A token out of range.
pub fn embedding(executor: &mut CpuExecutor, tokens: &[Token]) -> Result<Vec<f32>, ExecError> {
    executor.embedding(tokens)
}

/// Puts a NaN into a copy of a sequence: into the first layer's recurrent matrix, or its newest latent. The sequence that it is
/// restored into fails with its next token.
pub fn poison(checkpoint: &mut Checkpoint) {
    match checkpoint.sequence.layers.first_mut() {
        Some(LayerState::Kda(state)) => {
            if let Some(value) = state.matrix.last_mut() {
                *value = f32::NAN;
            }
        }
        Some(LayerState::Dsa(state)) => {
            // 0x7e00 is a half that is no number.
            match &mut state.latents {
                Latents::F32(values) => values.iter_mut().rev().take(1).for_each(|value| *value = f32::NAN),
                Latents::F16(values) => values.iter_mut().rev().take(1).for_each(|value| *value = 0x7e00),
            }
        }
        None => {}
    }
}

/// State of a KDA layer.
#[derive(Clone, Copy, Debug)]
pub struct KdaView<'a> {
    /// `[3 * heads * width][taps - 1]`: the last raw projections of each channel of q, k and v, oldest first.
    pub conv: &'a [f32],
    /// `[heads][key][value]`.
    pub matrix: &'a [f32],
}

/// State of a KDA layer of a sequence; `None` for a DSA layer or beyond the trunk.
///
/// # Errors
/// Unknown sequence.
pub fn kda_state(executor: &CpuExecutor, seq: SeqId, layer: usize) -> Result<Option<KdaView<'_>>, ExecError> {
    executor.kda_state(seq, layer)
}
