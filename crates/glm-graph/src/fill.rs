//! Sequences of made-up content, for measurements at depths that would take minutes to reach.

use crate::config::Config;
use crate::error::ExecError;
use crate::executor::Token;
use crate::model::Model;
use crate::sampler::uniform;
use crate::state::{Checkpoint, Kv, Latents, LayerState, Sequence};

/// Values of recurrent state lie in this range on both sides of zero, keys and latents in one of their own: about what normed
/// rows have.
const STATE: f32 = 0.05;
const ROWS: f32 = 1.7;

/// The numbers of a seed, one after the other.
struct Random {
    seed: u64,
    counter: u64,
}

impl Random {
    /// 53 bits.
    fn word(&mut self) -> u64 {
        self.counter += 1;
        uniform(self.seed, self.counter)
    }

    /// From -`most` to `most`.
    fn value(&mut self, most: f32) -> f32 {
        ((self.word() >> 29) as f32 / (1u64 << 23) as f32 - 1.0) * most
    }

    /// `len` more values.
    fn extend(&mut self, values: &mut Vec<f32>, len: usize, most: f32) -> Result<(), ExecError> {
        reserve(values, len)?;
        values.extend((0..len).map(|_| self.value(most)));
        Ok(())
    }

    fn fill(&mut self, values: &mut [f32], most: f32) {
        values.iter_mut().for_each(|value| *value = self.value(most));
    }
}

fn reserve<T>(values: &mut Vec<T>, len: usize) -> Result<(), ExecError> {
    values.try_reserve_exact(len).map_err(|_| ExecError::Memory {
        what: "the caches of a sequence",
        bytes: (len * size_of::<T>()) as u64,
    })
}

impl Checkpoint {
    /// State as if `tokens` tokens had been fed: random, the same for the same seed, finite. It says nothing that a model would
    /// say; what is computed from it takes the time that it takes at that depth.
    ///
    /// # Errors
    /// Memory for it was refused.
    pub fn random(model: &Model, kv: Kv, tokens: usize, seed: u64) -> Result<Self, ExecError> {
        let (c, mut random) = (model.config(), Random { seed, counter: 0 });
        let mut sequence = Sequence::new(c, kv)?;
        reserve(&mut sequence.tokens, tokens)?;
        let vocab = model.vocab() as u64;
        let token = |word: u64| ((u128::from(word) * u128::from(vocab)) >> 53) as Token;
        sequence.tokens.extend((0..tokens).map(|_| token(random.word())));
        for state in &mut sequence.layers[..c.trunk] {
            fill(c, state, tokens, &mut random)?;
        }
        Ok(Self { fingerprint: model.fingerprint(), kv, sequence })
    }
}

fn fill(c: &Config, state: &mut LayerState, tokens: usize, random: &mut Random) -> Result<(), ExecError> {
    match state {
        LayerState::Kda(state) => {
            random.fill(&mut state.conv, ROWS);
            random.fill(&mut state.matrix, STATE);
        }
        LayerState::Dsa(state) => {
            state.len = tokens;
            let values = tokens * c.latent;
            match &mut state.latents {
                Latents::F32(latents) => random.extend(latents, values, ROWS)?,
                Latents::F16(latents) => {
                    reserve(latents, values)?;
                    // Halves of a sign, an exponent from 2^-4 to 2^0 and any fraction.
                    let half = |word: u64| {
                        let exponent = 11 + (word >> 16) % 5;
                        (word & 0x83ff) as u16 | (exponent << 10) as u16
                    };
                    latents.extend((0..values).map(|_| half(random.word())));
                }
            }
            random.extend(&mut state.pooled, tokens / c.kpool * c.index_dim, ROWS)?;
            random.fill(&mut state.open_keys, ROWS);
            random.fill(&mut state.open_gates, ROWS);
        }
    }
    Ok(())
}
