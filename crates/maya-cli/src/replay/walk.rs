//! Walking a trace token by token, layer by layer, and counting.

use anyhow::Result;

use crate::routes::Trace;

/// What a layer's look-ups of one token met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Experts that were there.
    pub hits: u64,
    /// Experts that the drive had to bring, kept afterwards or not.
    pub moves: u64,
    /// Of those, the ones that were kept in a slot.
    pub kept: u64,
}

impl Step {
    fn add(&mut self, step: Self) {
        self.hits += step.hits;
        self.moves += step.moves;
        self.kept += step.kept;
    }
}

/// A cache under a policy, for all layers.
pub trait Simulated {
    /// `layer` looks up different experts `ids` for the running token.
    ///
    /// # Errors
    /// What a cache that is driven wrongly says.
    fn route(&mut self, layer: usize, ids: &[u16]) -> Result<Step>;

    /// The token is over: the time for evictions.
    ///
    /// # Errors
    /// As there.
    fn end_token(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Counts of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Tokens walked.
    pub tokens: u64,
    /// Look-ups of a layer.
    pub lookups: u64,
    /// Counts by layer.
    pub layers: Vec<Step>,
}

impl Outcome {
    /// Part of all look-ups that hit.
    pub fn hit_rate(&self) -> f64 {
        self.sum().hits as f64 / (self.lookups * self.layers.len() as u64) as f64
    }

    /// Moves a token, over all layers.
    pub fn moves_per_token(&self) -> f64 {
        self.sum().moves as f64 / self.tokens as f64
    }

    /// Of the moves a token, those that were kept in a slot.
    pub fn kept_per_token(&self) -> f64 {
        self.sum().kept as f64 / self.tokens as f64
    }

    /// All layers together.
    pub fn sum(&self) -> Step {
        self.layers.iter().fold(Step::default(), |mut sum, step| {
            sum.add(*step);
            sum
        })
    }
}

/// Walks the whole trace. `on` hears the tokens done, before each layer, and answers whether to go on; `None` if it said no.
///
/// # Errors
/// What the cache says.
pub fn walk(
    trace: &Trace,
    cache: &mut dyn Simulated,
    on: &mut dyn FnMut(usize) -> bool,
) -> Result<Option<Outcome>> {
    let mut layers = vec![Step::default(); trace.layers];
    for token in 0..trace.tokens {
        for (layer, sum) in layers.iter_mut().enumerate() {
            // One token of a hundred thousand layers takes long, too.
            if !on(token) {
                return Ok(None);
            }
            sum.add(cache.route(layer, trace.route(token, layer))?);
        }
        cache.end_token()?;
    }
    let tokens = trace.tokens as u64;
    Ok(Some(Outcome { tokens, lookups: tokens * trace.k as u64, layers }))
}
