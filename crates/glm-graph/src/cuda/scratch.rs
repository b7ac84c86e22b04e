//! Buffers of a pass of one row, what passes of a row of each of several sequences have beside a span's, and what a sequence has.

use super::abi::{CHOICE_BYTES, MOST_TURNS};
use super::memory::{DevicePlan, Part, Place};
use super::weights::Weights;
use crate::config::{Config, MixerKind};
use crate::state::Kv;

/// Buffers that a pass writes and reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    /// The streams before and after a site, in turn; these, the gates and the sums that they are made of for every turn.
    pub(super) residual: [Place; 2],
    pub(super) gates: [Place; 2],
    pub(super) partials: Place,
    /// Counters of blocks that ended; zero between launches.
    pub(super) ended: Place,
    /// Not zero once something was not finite.
    pub(super) fault: Place,
    /// Whose tokens a pass's rows are.
    pub(super) turns: Place,
    /// The token's embedding in every stream.
    pub(super) embedding: Place,
    /// A part's normed input.
    pub(super) x: Place,
    /// A part's output; the shared expert's where there are others.
    pub(super) y: Place,
    pub(super) first: Place,
    pub(super) second: Place,
    pub(super) joined: Place,
    pub(super) low: Place,
    /// Gates and ups of all experts, the shared one last.
    pub(super) wide: Place,
    pub(super) experts: Place,
    pub(super) router: Place,
    pub(super) ids: Place,
    pub(super) weights: Place,
    pub(super) slots: Place,
    pub(super) logits: Place,
    /// What a draw needs beside them, for every turn: bins and sums, adjusted logits, candidates.
    pub(super) choice: Place,
    pub(super) adjusted: Place,
    pub(super) candidates: Place,
    pub(super) absorbed: Place,
    pub(super) mixed: Place,
    /// From here on for every turn.
    pub(super) attention: Place,
    /// The attended rows in order.
    pub(super) gathered: Place,
    pub(super) pool_scores: Place,
    pub(super) pools: Place,
    /// What the choice of pools counts in; zero between launches.
    pub(super) counts: Place,
}

/// Pools that a context has at most, with one that is open.
pub(super) fn capacity(c: &Config, ctx: usize) -> usize {
    ctx / c.kpool + 1
}

/// Positions that a row attends to at most, in whole fours.
pub(super) fn row_stride(c: &Config, ctx: usize) -> usize {
    ctx.min((c.top_pools() + 1) * c.kpool - 1).next_multiple_of(4)
}

/// Values of a row's first products in a KDA layer: q, k, v, the low ranks of both gates, write strengths.
pub(super) fn kda_width(c: &Config) -> usize {
    3 * c.kda_inner() + 2 * c.kda_dim + c.heads
}

/// And in a DSA layer: q_a, kv_a, the indexer's key, gate and head weights.
pub(super) fn dsa_width(c: &Config) -> usize {
    c.q_rank + c.latent + 2 * c.index_dim + c.index_heads
}

/// Words that the choice among `pools` pools counts in (kernels/include/indexer.cuh), in whole sixteens of bytes.
pub(super) fn choice_words(pools: usize) -> usize {
    (64 + 2048 + 2 * pools.div_ceil(32) + 2 * pools).next_multiple_of(4)
}

impl Scratch {
    /// For passes of up to `turns` sequences.
    pub(super) fn plan(
        c: &Config,
        vocab: usize,
        kv: Kv,
        ctx: usize,
        turns: usize,
        plan: &mut DevicePlan,
    ) -> Self {
        let mut words = |len: usize| plan.words(Part::Scratch, len);
        let inner = c.kda_inner();
        let queries = c.heads * c.key_dim + c.index_heads * c.index_dim;
        let gates = c.streams + c.streams * c.streams;
        let (pools, most) = (capacity(c, ctx), row_stride(c, ctx));
        Self {
            residual: [words(turns * c.residual()), words(turns * c.residual())],
            gates: [words(turns * gates), words(turns * gates)],
            partials: words(turns * (c.hc_rows() + 1) * c.residual().div_ceil(256)),
            ended: words(64),
            fault: words(1),
            turns: words(4 * MOST_TURNS),
            embedding: words(c.residual()),
            x: words(c.hidden),
            y: words(c.hidden),
            first: words(kda_width(c).max(dsa_width(c))),
            second: words((2 * inner).max(queries)),
            joined: words(inner.max(c.heads * c.value_dim)),
            low: words(c.q_rank),
            wide: words((2 * c.dense_ff).max(2 * (c.experts_used * c.expert_ff + c.shared_ff))),
            experts: words(c.experts_used * c.hidden),
            router: words(c.experts),
            ids: words(c.experts_used),
            weights: words(c.experts_used),
            slots: words(turns * 2 * c.experts_used),
            logits: words(vocab),
            choice: words(turns * (CHOICE_BYTES as usize / 4)),
            adjusted: words(turns * vocab),
            candidates: words(turns * 2 * vocab),
            absorbed: words(c.heads * c.latent),
            mixed: words(c.heads * c.latent),
            attention: words(turns * c.heads * most),
            gathered: words((turns * most * c.latent * kv.bytes()).div_ceil(4)),
            pool_scores: words(turns * pools),
            pools: words(turns * c.top_pools()),
            counts: words(turns * choice_words(pools)),
        }
    }
}

/// What a sequence has in device memory.
#[derive(Clone, Debug)]
pub(super) struct SlotPlaces {
    /// Two copies of the recurrent state.
    pub(super) states: Place,
    pub(super) caches: Vec<CachePlaces>,
    /// The token that was drawn last.
    pub(super) sampled: Place,
    /// All tokens, how often some of them stand there, and what is added to logits.
    pub(super) history: Place,
    pub(super) counts: Place,
    pub(super) bias: Place,
}

/// One DSA layer of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachePlaces {
    pub(super) latents: Place,
    pub(super) pooled: Place,
    pub(super) open_keys: Place,
    pub(super) open_gates: Place,
}

impl SlotPlaces {
    pub(super) fn plan(c: &Config, weights: &Weights, kv: Kv, ctx: usize, plan: &mut DevicePlan) -> Self {
        let (states, vocab) = (plan.words(Part::States, 2 * weights.state_values), weights.output.rows);
        let open = c.kpool * c.index_dim;
        let dsa = c.mixers[..c.trunk].iter().filter(|mixer| **mixer == MixerKind::Dsa);
        let caches = dsa.map(|_| CachePlaces {
            latents: plan.place(Part::Caches, (ctx * c.latent * kv.bytes()) as u64),
            pooled: plan.words(Part::Caches, (ctx / c.kpool) * c.index_dim),
            open_keys: plan.words(Part::Caches, open),
            open_gates: plan.words(Part::Caches, open),
        });
        let caches = caches.collect();
        let mut words = |len: usize| plan.words(Part::Drawing, len);
        let (sampled, history) = (words(1), words(ctx));
        Self { states, caches, sampled, history, counts: words(vocab), bias: words(vocab) }
    }
}
