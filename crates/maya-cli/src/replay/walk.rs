//! Walking a trace token by token, layer by layer, and counting.

use anyhow::Result;

use crate::routes::Trace;

/// What a layer's look-ups of one token met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Experts that were there.
    pub hits: u64,
    /// Experts that were brought into slots.
    pub moves: u64,
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
    /// Hits and moves, by layer.
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

    /// All layers together.
    pub fn sum(&self) -> Step {
        let add = |a: Step, b: &Step| Step { hits: a.hits + b.hits, moves: a.moves + b.moves };
        self.layers.iter().fold(Step::default(), add)
    }
}

/// Walks the whole trace. `on` hears the tokens done and answers whether to go on; `None` if it said no.
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
        if !on(token) {
            return Ok(None);
        }
        for (layer, sum) in layers.iter_mut().enumerate() {
            let step = cache.route(layer, trace.route(token, layer))?;
            sum.hits += step.hits;
            sum.moves += step.moves;
        }
        cache.end_token()?;
    }
    let tokens = trace.tokens as u64;
    Ok(Some(Outcome { tokens, lookups: tokens * trace.k as u64, layers }))
}
