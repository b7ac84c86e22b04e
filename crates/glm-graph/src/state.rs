//! What a sequence remembers (model-spec 3.2, 4.2, 4.3, 8), and copies of it.

use quant_kernels::Cpu;

use crate::config::{Config, MixerKind};
use crate::error::ExecError;
use crate::executor::Token;

/// How latents are stored. A row attends to the stored values, its own included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kv {
    /// As computed.
    F32,
    /// Rounded to half precision.
    F16,
}

impl Kv {
    /// Bytes of one value.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// Rows that a cache grows by at least, so that decoding reallocates rarely: 1,024 f16 latents of 512 are 1 MiB a layer.
const GROWTH_ROWS: usize = 1024;

/// State of a KDA layer.
#[derive(Debug, PartialEq)]
pub(crate) struct KdaState {
    /// `[3 * inner][taps - 1]`: the last raw projections of each channel of q, k and v, oldest first.
    pub(crate) conv: Vec<f32>,
    /// `[heads][key][value]`.
    pub(crate) matrix: Vec<f32>,
}

/// The cached latents, `[len][latent]`.
#[derive(Debug, PartialEq)]
pub(crate) enum Latents {
    F32(Vec<f32>),
    F16(Vec<u16>),
}

impl Latents {
    /// Appends a row, rounding it to the stored type. Room was made by [`DsaState::reserve`].
    pub(crate) fn push(&mut self, cpu: Cpu, row: &[f32]) {
        match self {
            Self::F32(values) => values.extend_from_slice(row),
            Self::F16(values) => {
                let start = values.len();
                values.resize(start + row.len(), 0);
                cpu.narrow_f16(row, &mut values[start..]);
            }
        }
    }

    fn values(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }
}

/// State of a DSA layer.
#[derive(Debug, PartialEq)]
pub(crate) struct DsaState {
    /// Rows cached.
    pub(crate) len: usize,
    pub(crate) latents: Latents,
    /// `[len / kpool][index width]`: one key a complete pool.
    pub(crate) pooled: Vec<f32>,
    /// `[kpool][index width]`: keys of the open pool's members, by place; places from `len % kpool` on are stale.
    pub(crate) open_keys: Vec<f32>,
    /// `[kpool][index width]`: their gates.
    pub(crate) open_gates: Vec<f32>,
}

impl DsaState {
    /// Makes room for `extra` more rows.
    pub(crate) fn reserve(&mut self, config: &Config, extra: usize) -> Result<(), ExecError> {
        let len = self.len + extra;
        match &mut self.latents {
            Latents::F32(values) => grow(values, len * config.latent, config.latent)?,
            Latents::F16(values) => grow(values, len * config.latent, config.latent)?,
        }
        grow(&mut self.pooled, len / config.kpool * config.index_dim, config.index_dim)
    }
}

fn grow<T>(values: &mut Vec<T>, wanted: usize, row: usize) -> Result<(), ExecError> {
    if wanted <= values.capacity() {
        return Ok(());
    }
    let target = wanted.saturating_add((values.len() / 4).max(GROWTH_ROWS * row));
    values.try_reserve_exact(target - values.len()).map_err(|_| ExecError::Memory {
        what: "the caches of a sequence",
        bytes: (target * size_of::<T>()) as u64,
    })
}

#[derive(Debug, PartialEq)]
pub(crate) enum LayerState {
    Kda(KdaState),
    Dsa(DsaState),
}

impl LayerState {
    fn try_clone(&self) -> Result<Self, ExecError> {
        Ok(match self {
            Self::Kda(state) => {
                Self::Kda(KdaState { conv: copy(&state.conv)?, matrix: copy(&state.matrix)? })
            }
            Self::Dsa(state) => Self::Dsa(DsaState {
                len: state.len,
                latents: match &state.latents {
                    Latents::F32(values) => Latents::F32(copy(values)?),
                    Latents::F16(values) => Latents::F16(copy(values)?),
                },
                pooled: copy(&state.pooled)?,
                open_keys: copy(&state.open_keys)?,
                open_gates: copy(&state.open_gates)?,
            }),
        })
    }
}

/// All that a sequence remembers.
#[derive(Debug, PartialEq)]
pub(crate) struct Sequence {
    /// Every token fed, for penalties and for counting.
    pub(crate) tokens: Vec<Token>,
    /// The last token sampled and not yet fed.
    pub(crate) sampled: Option<Token>,
    /// One a block, NextN's draft cache last.
    pub(crate) layers: Vec<LayerState>,
    /// Set when a call failed half way.
    pub(crate) broken: bool,
}

impl Sequence {
    pub(crate) fn new(config: &Config, kv: Kv) -> Result<Self, ExecError> {
        let layers =
            config.mixers.iter().map(|kind| layer(config, kv, *kind)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { tokens: Vec::new(), sampled: None, layers, broken: false })
    }

    /// A copy.
    ///
    /// # Errors
    /// Memory for it was refused.
    pub(crate) fn try_clone(&self) -> Result<Self, ExecError> {
        let layers = self.layers.iter().map(LayerState::try_clone).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { tokens: copy(&self.tokens)?, sampled: self.sampled, layers, broken: self.broken })
    }

    /// The KDA state of block `block`.
    pub(crate) fn kda(&mut self, block: usize) -> &mut KdaState {
        match &mut self.layers[block] {
            LayerState::Kda(state) => state,
            LayerState::Dsa(_) => unreachable!("states are made by the mixer kinds of the configuration"),
        }
    }

    /// The DSA state of block `block`.
    pub(crate) fn dsa(&mut self, block: usize) -> &mut DsaState {
        match &mut self.layers[block] {
            LayerState::Dsa(state) => state,
            LayerState::Kda(_) => unreachable!("states are made by the mixer kinds of the configuration"),
        }
    }

    /// Rows in the cache of the NextN block `block`.
    pub(crate) fn draft_len(&self, block: usize) -> usize {
        match self.layers.get(block) {
            Some(LayerState::Dsa(state)) => state.len,
            _ => 0,
        }
    }

    /// Makes room for `extra` more tokens in the trunk's caches.
    pub(crate) fn reserve(&mut self, config: &Config, extra: usize) -> Result<(), ExecError> {
        for state in &mut self.layers[..config.trunk] {
            if let LayerState::Dsa(state) = state {
                state.reserve(config, extra)?;
            }
        }
        Ok(())
    }
}

fn layer(config: &Config, kv: Kv, kind: MixerKind) -> Result<LayerState, ExecError> {
    Ok(match kind {
        MixerKind::Kda => LayerState::Kda(KdaState {
            conv: zeros(3 * config.kda_inner() * (config.conv_taps - 1))?,
            matrix: zeros(config.kda_inner() * config.kda_dim)?,
        }),
        MixerKind::Dsa => LayerState::Dsa(DsaState {
            len: 0,
            latents: match kv {
                Kv::F32 => Latents::F32(Vec::new()),
                Kv::F16 => Latents::F16(Vec::new()),
            },
            pooled: Vec::new(),
            open_keys: zeros(config.kpool * config.index_dim)?,
            open_gates: zeros(config.kpool * config.index_dim)?,
        }),
    })
}

fn copy<T: Copy>(values: &[T]) -> Result<Vec<T>, ExecError> {
    let mut copied = Vec::new();
    copied.try_reserve_exact(values.len()).map_err(|_| ExecError::Memory {
        what: "a copy of a sequence's state",
        bytes: size_of_val(values) as u64,
    })?;
    copied.extend_from_slice(values);
    Ok(copied)
}

fn zeros(len: usize) -> Result<Vec<f32>, ExecError> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| ExecError::Memory {
        what: "the recurrent state of a sequence",
        bytes: len as u64 * 4,
    })?;
    values.resize(len, 0.0);
    Ok(values)
}

/// A copy of a sequence's state: owned, self-contained, restorable into any sequence over the same model.
#[derive(Debug, PartialEq)]
pub struct Checkpoint {
    /// [`Model::fingerprint`](crate::Model::fingerprint) of the weights it belongs to.
    pub(crate) fingerprint: u64,
    pub(crate) kv: Kv,
    pub(crate) sequence: Sequence,
}

impl Checkpoint {
    /// Tokens that the sequence had.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sequence.tokens.len()
    }

    /// Whether the sequence had no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sequence.tokens.is_empty()
    }

    /// The tokens that the sequence had.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.sequence.tokens
    }

    /// Bytes of state.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let layer = |state: &LayerState| match state {
            LayerState::Kda(state) => 4 * (state.conv.len() + state.matrix.len()),
            LayerState::Dsa(state) => {
                state.latents.values() * self.kv.bytes()
                    + 4 * (state.pooled.len() + state.open_keys.len() + state.open_gates.len())
            }
        };
        self.sequence.layers.iter().map(layer).sum::<usize>() + 4 * self.sequence.tokens.len()
    }
}
