//! The engine's own expert directory under a policy, driven by a software claimer: what is replayed is what runs.

use anyhow::{Result, anyhow};
use tier_cache::{
    Admission, Boundary, Claim, Claimer, Directory, Geometry, Lane, Plan, Policy, Routed, Target, half_life,
};

use super::policy::Setup;
use super::walk::{Simulated, Step};
use crate::routes::Trace;

/// A directory of one tier over the drive, in which every transfer takes no time.
pub struct Cached<P: Policy> {
    directory: Directory<P>,
    claimer: Claimer,
    plan: Plan,
    boundary: Boundary,
    routed: Vec<Routed>,
}

impl<P: Policy> Cached<P> {
    /// Slots begin with the layer's first experts, as many as leave the spares empty.
    pub fn new(trace: &Trace, setup: Setup, decays: bool, admission: Admission, policy: P) -> Result<Self> {
        let slots = setup.slots.min(trace.experts) as u32;
        let (experts, k) = (trace.experts as u16, trace.k as u16);
        let mut geometry = Geometry::two_tiers(experts, vec![slots; trace.layers], k);
        geometry.spares = setup.spares as u32;
        geometry.half_life = if decays { half_life(u64::from(setup.half_life), k) } else { 0 };
        let claimer = Claimer::new(&geometry, admission);
        let directory = Directory::new(geometry, policy)?;
        let (plan, boundary) = (Plan::default(), Boundary::default());
        let mut cached = Self { directory, claimer, plan, boundary, routed: Vec::new() };
        cached.fill(trace)?;
        Ok(cached)
    }

    fn fill(&mut self, trace: &Trace) -> Result<()> {
        let first: Vec<u32> = (0..trace.layers).flat_map(|_| (1..=trace.experts as u32).rev()).collect();
        self.directory.seed(&first);
        while let Some(transfer) = self.directory.fill() {
            self.directory.complete(transfer.ticket)?;
        }
        self.directory.seed(&vec![0; first.len()]);
        self.directory.publish(&mut self.boundary);
        self.apply()
    }

    fn apply(&mut self) -> Result<()> {
        self.claimer.apply(&self.boundary.edits);
        if let Some(batch) = self.boundary.batch {
            self.directory.acknowledge(batch, &mut self.plan.transfers)?;
        }
        Ok(())
    }
}

impl<P: Policy> Simulated for Cached<P> {
    fn route(&mut self, layer: usize, ids: &[u16]) -> Result<Step> {
        let layer =
            u16::try_from(layer).map_err(|_| anyhow!("layer {layer} is beyond a directory's numbers"))?;
        self.routed.clear();
        self.claimer.decide(layer, ids, &mut self.routed);
        self.plan.clear();
        self.directory.route(layer, &self.routed, &mut self.plan)?;
        for transfer in self.plan.transfers.drain(..) {
            self.directory.complete(transfer.ticket)?;
            if let Target::Scratch(n) = transfer.to {
                self.claimer.release(n);
            }
        }
        let count = |lane: fn(&Lane) -> bool| self.routed.iter().filter(|it| lane(&it.lane)).count() as u64;
        Ok(Step {
            hits: count(|lane| *lane == Lane::Hit),
            moves: count(|lane| matches!(lane, Lane::Disk(_))),
            kept: count(|lane| matches!(lane, Lane::Disk(Claim::Spare(_)))),
        })
    }

    fn end_token(&mut self) -> Result<()> {
        self.directory.token_boundary(&mut self.boundary);
        self.apply()
    }
}
