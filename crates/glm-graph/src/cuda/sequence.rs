//! What a sequence remembers on the device, and copies of it in host memory, in the layout that the CPU executor has.

use super::weights::MixerPlaces;
use super::{CudaExecutor, launch};
use crate::error::ExecError;
use crate::executor::Token;
use crate::state::{DsaState, KdaState, Latents, LayerState, Sequence};
use crate::steps::{RowPlace, Sampled};

/// A sequence and the memory that it has.
#[derive(Debug)]
pub(super) struct DeviceSequence {
    pub(super) slot: usize,
    /// Those fed. One that a step takes from the step before is known when that one's answer is there.
    pub(super) tokens: Vec<Token>,
    /// How many of them, from the first on, the device has.
    pub(super) stored: usize,
    pub(super) sampled: Sampled,
    pub(super) broken: bool,
    /// Its last step, and how the sequence was before.
    pub(super) last: Option<RowPlace>,
    pub(super) sampled_before: Sampled,
    pub(super) broken_before: bool,
}

impl DeviceSequence {
    pub(super) fn new(slot: usize) -> Self {
        Self {
            slot,
            tokens: Vec::new(),
            stored: 0,
            sampled: Sampled::Nothing,
            broken: false,
            last: None,
            sampled_before: Sampled::Nothing,
            broken_before: false,
        }
    }

    /// What a copy becomes.
    pub(super) fn restored(slot: usize, from: &Sequence) -> Self {
        Self { tokens: from.tokens.clone(), sampled: from.sampled.into(), ..Self::new(slot) }
    }
}

impl CudaExecutor {
    /// Sets a slot's recurrent state to zero before its first pass. Caches need not be: nothing behind a sequence's length
    /// is read.
    pub(super) fn clear(&mut self, slot: usize) -> Result<(), ExecError> {
        // The first token reads the first copy.
        let first = self.memory.at(self.slots[slot].states);
        Ok(launch::clear(&self.stream, first, 4 * self.weights.state_values)?)
    }

    /// Where the copy of the state begins that the next token reads.
    fn current_copy(&self, slot: usize, len: usize) -> u64 {
        self.slots[slot].states.0
            + if len.is_multiple_of(2) { 0 } else { 4 * self.weights.state_values as u64 }
    }

    pub(super) fn read<T: bytemuck::Pod>(&self, at: u64, len: usize) -> Result<Vec<T>, ExecError> {
        let mut values = vec![T::zeroed(); len];
        self.memory.buffer.read(at as usize, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// A copy of a sequence.
    pub(super) fn download(&self, sequence: &DeviceSequence) -> Result<Sequence, ExecError> {
        self.stream.synchronize()?;
        let c = self.model.config();
        let (slot, len) = (&self.slots[sequence.slot], sequence.tokens.len());
        let state = self.current_copy(sequence.slot, len);
        let mut empty = Sequence::new(c, self.kv)?;
        for (block, layer) in self.weights.blocks.iter().zip(&mut empty.layers) {
            *layer = match &block.mixer {
                MixerPlaces::Kda(w) => LayerState::Kda(KdaState {
                    conv: self.read(state + 4 * w.history as u64, 3 * c.kda_inner() * (c.conv_taps - 1))?,
                    matrix: self.read(state + 4 * w.matrix as u64, c.kda_inner() * c.kda_dim)?,
                }),
                MixerPlaces::Dsa(w) => {
                    let cache = &slot.caches[w.nth];
                    let values = len * c.latent;
                    LayerState::Dsa(DsaState {
                        len,
                        latents: match layer {
                            LayerState::Dsa(DsaState { latents: Latents::F32(_), .. }) => {
                                Latents::F32(self.read(cache.latents.0, values)?)
                            }
                            _ => Latents::F16(self.read(cache.latents.0, values)?),
                        },
                        pooled: self.read(cache.pooled.0, len / c.kpool * c.index_dim)?,
                        open_keys: self.read(cache.open_keys.0, c.kpool * c.index_dim)?,
                        open_gates: self.read(cache.open_gates.0, c.kpool * c.index_dim)?,
                    })
                }
            };
        }
        empty.tokens.clone_from(&sequence.tokens);
        if let Sampled::Token(token) = sequence.sampled {
            empty.sampled = Some(token);
        }
        Ok(empty)
    }

    /// Puts a copy into a slot.
    pub(super) fn upload(&mut self, slot: usize, from: &Sequence) -> Result<(), ExecError> {
        self.stream.synchronize()?;
        let state = self.current_copy(slot, from.tokens.len());
        for (block, layer) in self.weights.blocks.iter().zip(&from.layers) {
            let buffer = &mut self.memory.buffer;
            match (&block.mixer, layer) {
                (MixerPlaces::Kda(w), LayerState::Kda(from)) => {
                    let at = |values: usize| (state + 4 * values as u64) as usize;
                    buffer.write(at(w.history), bytemuck::cast_slice(&from.conv))?;
                    buffer.write(at(w.matrix), bytemuck::cast_slice(&from.matrix))?;
                }
                (MixerPlaces::Dsa(w), LayerState::Dsa(from)) => {
                    let cache = &self.slots[slot].caches[w.nth];
                    match &from.latents {
                        Latents::F32(values) => {
                            buffer.write(cache.latents.0 as usize, bytemuck::cast_slice(values))?
                        }
                        Latents::F16(values) => {
                            buffer.write(cache.latents.0 as usize, bytemuck::cast_slice(values))?
                        }
                    }
                    for (place, values) in [
                        (cache.pooled, &from.pooled),
                        (cache.open_keys, &from.open_keys),
                        (cache.open_gates, &from.open_gates),
                    ] {
                        buffer.write(place.0 as usize, bytemuck::cast_slice(values))?;
                    }
                }
                _ => return Err(ExecError::ForeignCheckpoint),
            }
        }
        Ok(())
    }
}
