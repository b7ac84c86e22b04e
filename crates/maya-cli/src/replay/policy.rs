//! The policies by name, and the table that makes them.

use anyhow::Result;
use clap::ValueEnum;
use tier_cache::{Admission, Clock, Geometry, Lfu, Lru};

use super::belady::Belady;
use super::cached::Cached;
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

impl Setup {
    /// Spares that a layer of a trace with `experts` experts keeps: the engine's own rule, which leaves a slot to hold
    /// something, and has none where slots are very few or enough for all.
    pub fn spares_kept(&self, experts: usize) -> usize {
        let mut geometry = Geometry::two_tiers(experts as u16, Vec::new(), 1);
        geometry.spares = self.spares as u32;
        geometry.spares_of(self.slots as u32) as usize
    }
}

impl Policy {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }
}

/// Routes of a layer within which an expert must miss twice to be admitted (peers measured 4 on real traces).
const SECOND_TOUCH: u64 = 4;

/// A cache for this trace.
///
/// Policies other than [`Policy::Belady`] are those of the engine's own expert directory, driven by a software claimer: a
/// copy of them would be measured in place of what runs.
///
/// # Errors
/// A trace or a setup that no directory can be made for.
pub fn simulated(policy: Policy, trace: &Trace, setup: Setup) -> Result<Box<dyn Simulated + '_>> {
    let all = Admission::All;
    Ok(match policy {
        Policy::Belady => Box::new(Belady::new(trace, setup.slots)),
        Policy::Lru => Box::new(Cached::new(trace, setup, false, all, Lru)?),
        Policy::Lfu => Box::new(Cached::new(trace, setup, false, all, Lfu)?),
        Policy::Decayed => Box::new(Cached::new(trace, setup, true, all, Lfu)?),
        Policy::Clock => Box::new(Cached::new(trace, setup, false, all, Clock::default())?),
        Policy::SecondTouch => {
            Box::new(Cached::new(trace, setup, true, Admission::SecondTouch(SECOND_TOUCH), Lfu)?)
        }
    })
}
