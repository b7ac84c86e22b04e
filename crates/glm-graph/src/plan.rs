//! What a model will need of memory, before anything is allocated.

use std::fmt;

use crate::config::{Config, MixerKind};
use crate::state::Kv;

/// Bytes of everything, for one sequence of a full context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Tensors in the file's map: reclaimable by the system, and read in place.
    pub weights: u64,
    /// Those of them that are routed experts of the trunk: what tiers can keep a part of.
    pub routed: u64,
    /// Small vectors that are copied out of the file.
    pub vectors: u64,
    /// Recurrent state and convolution histories of one sequence.
    pub state: u64,
    /// Latents of one token, NextN's included.
    pub latents_per_token: u64,
    /// Pooled keys of one token, NextN's included (a pool's key shared by its tokens).
    pub pooled_per_token: u64,
    /// Latents and pooled keys of a whole context of the trunk: caches grow with the sequence up to this.
    pub caches: u64,
    /// Buffers of a forward pass.
    pub scratch: u64,
    /// Tokens of context the plan is for.
    pub ctx: usize,
}

impl MemoryPlan {
    /// Memory beside the file's map, with one sequence of a full context.
    #[must_use]
    pub fn anonymous(&self) -> u64 {
        self.vectors + self.state + self.caches + self.scratch
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "weights {:.1} MB mapped; per sequence {:.1} MB state and up to {:.1} MB caches at {} tokens; scratch {:.1} MB",
            mb(self.weights),
            mb(self.state),
            mb(self.caches),
            self.ctx,
            mb(self.scratch)
        )
    }
}

/// Rows that go through a layer together: as many as this much scratch allows, from 8 to 256. Weights are read once for
/// all of them.
const SCRATCH: usize = 96 << 20;
const MAX_ROWS: usize = 256;
const MIN_ROWS: usize = 8;

/// f32 values of scratch that one row of a batch takes.
fn scratch_row(c: &Config) -> usize {
    let inner = c.kda_inner();
    let kda = 3 * inner + 2 * c.kda_dim + c.heads + 2 * inner + inner + inner;
    let heads = c.heads * (c.key_dim.max(c.value_dim) + 2 * c.latent + c.value_dim);
    let dsa =
        c.q_rank * 2 + c.latent + 2 * c.index_dim + c.index_heads * (1 + c.index_dim) + heads + c.top_pools();
    let dense = 3 * c.dense_ff.max(c.shared_ff);
    let moe = c.experts_used * (c.hidden + 2) + c.experts;
    2 * c.residual() + 4 * c.hidden + c.hc_rows() * 2 + kda.max(dsa) + dense + moe
}

/// Rows of a batch at most.
pub(crate) fn batch_rows(config: &Config) -> usize {
    (SCRATCH / (4 * scratch_row(config))).clamp(MIN_ROWS, MAX_ROWS)
}

pub(crate) fn plan(model: &crate::Model, kv: Kv, ctx: usize, threads: usize) -> MemoryPlan {
    let c = model.config();
    let count = |kind| c.mixers.iter().filter(|mixer| **mixer == kind).count() as u64;
    let (n_kda, n_dsa) = (count(MixerKind::Kda), count(MixerKind::Dsa));
    let latent = (c.latent * kv.bytes()) as u64;
    let pooled = (4 * c.index_dim).div_ceil(c.kpool) as u64;
    let trunk_dsa = c.mixers[..c.trunk].iter().filter(|mixer| **mixer == MixerKind::Dsa).count() as u64;
    let kda_state = c.kda_inner() * (c.kda_dim + 3 * (c.conv_taps - 1));
    let rows = batch_rows(c);
    // A thread's buffers hold a head or an expert of a whole batch, or one row's selected latents.
    let worker = (c.index_topk + c.kpool) * (c.latent + c.heads)
        + rows * (6 * c.kda_dim + 3 * c.expert_ff + 2 * c.hidden + 2 * c.latent);
    let head = crate::cpu::logit_rows(model.vocab()) * model.vocab() * 2;
    MemoryPlan {
        weights: model.gguf().tensors().iter().map(|tensor| tensor.extent.len).sum(),
        routed: model.weights().routed(c.trunk),
        vectors: model.weights().vectors() as u64 * 4,
        state: n_kda * kda_state as u64 * 4 + n_dsa * (2 * c.kpool * c.index_dim) as u64 * 4,
        latents_per_token: n_dsa * latent,
        pooled_per_token: n_dsa * pooled,
        caches: ctx as u64 * trunk_dsa * (latent + pooled),
        scratch: 4 * (rows * scratch_row(c) + threads * worker + head) as u64,
        ctx,
    }
}
