//! The model's sizes and constants, from metadata (model-spec 1.1, 9.1, 9.5).

mod read;

use crate::error::LoadError;

/// How a block mixes positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixerKind {
    /// Kimi-style delta attention: a recurrent state per head (model-spec 3).
    Kda,
    /// Latent attention over the positions that the indexer selects (model-spec 4).
    Dsa,
}

/// Everything the forward pass needs to know about the model besides its weights.
///
/// Counts are checked against each other here and against every tensor's shape when the weights are claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture` as the file spells it.
    pub architecture: Box<str>,
    /// Blocks in the file, NextN included.
    pub blocks: usize,
    /// Blocks of the trunk; the NextN block, where there is one, is block `trunk`.
    pub trunk: usize,
    /// Longest sequence the model was made for.
    pub context_length: usize,
    /// Width of a hidden vector.
    pub hidden: usize,
    /// Token ids are below this; `None` where the file leaves it to the embedding's shape.
    pub vocab: Option<usize>,
    /// Mixer of each block. Blocks from `trunk` on are always [`MixerKind::Dsa`].
    pub mixers: Vec<MixerKind>,
    /// Trunk layers with a dense FFN, from the first on.
    pub dense_layers: usize,
    /// Width of the dense FFN.
    pub dense_ff: usize,
    /// Heads, of KDA and of latent attention alike.
    pub heads: usize,
    /// Rank of the query projection.
    pub q_rank: usize,
    /// Width of a cached latent.
    pub latent: usize,
    /// Width of a head's query and key.
    pub key_dim: usize,
    /// Width of a head's value.
    pub value_dim: usize,
    /// Heads of the indexer.
    pub index_heads: usize,
    /// Width of an indexer head.
    pub index_dim: usize,
    /// Positions that a row may select, besides the tail. A multiple of `kpool`.
    pub index_topk: usize,
    /// Positions in a pool.
    pub kpool: usize,
    /// Width of a KDA head.
    pub kda_dim: usize,
    /// Taps of the KDA convolution.
    pub conv_taps: usize,
    /// Lower bound of the KDA log-decay; negative.
    pub gate_bound: f32,
    /// Residual streams.
    pub streams: usize,
    /// Sinkhorn iterations: one column pass, then this many less one (row pass, column pass).
    pub sinkhorn: usize,
    /// Epsilon of the hyper-connections, added to `pre`, to the softmax and in every division of Sinkhorn.
    pub hc_eps: f32,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Routed experts of a token.
    pub experts_used: usize,
    /// Width of a routed expert.
    pub expert_ff: usize,
    /// Width of the shared expert (all shared experts stacked).
    pub shared_ff: usize,
    /// Factor on the normalised routing weights.
    pub expert_scale: f32,
    /// Clamp of the routed experts' SwiGLU, one a block.
    pub clamp_exp: Vec<f32>,
    /// Clamp of the shared expert's and the dense FFN's SwiGLU, one a block.
    pub clamp_shared: Vec<f32>,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
    /// Epsilon of the indexer's layer norm.
    pub ln_eps: f32,
}

#[cfg(test)]
impl Config {
    /// A small model for unit tests: three streams of 16, two KDA heads of 8.
    pub(crate) fn small() -> Self {
        Self {
            architecture: "glm5-next".into(),
            blocks: 2,
            trunk: 2,
            context_length: 64,
            hidden: 16,
            vocab: Some(32),
            mixers: vec![MixerKind::Kda, MixerKind::Dsa],
            dense_layers: 1,
            dense_ff: 32,
            heads: 2,
            q_rank: 16,
            latent: 16,
            key_dim: 8,
            value_dim: 8,
            index_heads: 2,
            index_dim: 8,
            index_topk: 8,
            kpool: 4,
            kda_dim: 8,
            conv_taps: 4,
            gate_bound: -5.0,
            streams: 3,
            sinkhorn: 20,
            hc_eps: 1e-6,
            experts: 4,
            experts_used: 2,
            expert_ff: 16,
            shared_ff: 16,
            expert_scale: 2.5,
            clamp_exp: vec![10.0; 2],
            clamp_shared: vec![10.0; 2],
            rms_eps: 1e-5,
            ln_eps: 1e-6,
        }
    }
}

impl Config {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    /// A sentence naming the key: missing, of the wrong kind, impossible, or asking for a variant of the model that does
    /// not exist.
    pub fn from_gguf(model: &gguf::Model) -> Result<Self, LoadError> {
        read::config(model)
    }

    /// Whether the file has a NextN block.
    #[must_use]
    pub fn has_nextn(&self) -> bool {
        self.blocks > self.trunk
    }

    /// Width of all KDA heads together.
    #[must_use]
    pub fn kda_inner(&self) -> usize {
        self.heads * self.kda_dim
    }

    /// Values of the residual state of one position: `streams` vectors of `hidden`, stream-major.
    #[must_use]
    pub fn residual(&self) -> usize {
        self.streams * self.hidden
    }

    /// Mixing logits of a hyper-connection site: pre, post and the comb matrix.
    #[must_use]
    pub fn hc_rows(&self) -> usize {
        2 * self.streams + self.streams * self.streams
    }

    /// Pools that a row may select.
    #[must_use]
    pub fn top_pools(&self) -> usize {
        self.index_topk / self.kpool
    }

    /// Whether block `block` mixes experts.
    #[must_use]
    pub fn is_moe(&self, block: usize) -> bool {
        block >= self.dense_layers
    }
}
