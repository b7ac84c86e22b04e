//! The policies by name, and the table that makes them.

use clap::ValueEnum;

use super::belady::Belady;
use super::walk::Simulated;
use crate::routes::Trace;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Evict what was used longest ago
    Lru,
    /// Evict what was used least
    Lfu,
    /// Evict what was used least, old uses counting less: halved every --half-life tokens
    Decayed,
    /// Evict what was not used since the hand last came by
    Clock,
    /// As decayed, and admit only what missed twice within few tokens
    SecondTouch,
    /// Know the future: the bound that no policy exceeds
    Belady,
}

/// What a cache is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Slots of a layer, spares among them; they begin with the layer's first experts.
    pub slots: usize,
    /// Slots that take what missed during a token.
    pub spares: usize,
    /// Tokens after which a use counts half.
    pub half_life: u32,
}

impl Policy {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }
}

/// A cache for this trace; `None` for a policy that this build cannot replay.
///
/// Policies other than [`Policy::Belady`] are those of the engine's own expert directory, driven here by a software
/// claimer: a copy of them would be measured in place of what runs.
pub fn simulated(policy: Policy, trace: &Trace, setup: Setup) -> Option<Box<dyn Simulated + '_>> {
    match policy {
        Policy::Belady => Some(Box::new(Belady::new(trace, setup.slots))),
        Policy::Lru | Policy::Lfu | Policy::Decayed | Policy::Clock | Policy::SecondTouch => None,
    }
}
