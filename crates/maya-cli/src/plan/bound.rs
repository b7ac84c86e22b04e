//! The least time that tokens can take. Layers follow each other: a layer's mixer, router and shared expert, then the widest of
//! its lanes. Every sampled token is counted with its own whole numbers of hits and misses, since the mean of a maximum is
//! more than the maximum of the means.

use super::machine::Machine;
use super::place::{Placement, Tiers};
use super::popularity::Popularity;
use super::sizes::Sizes;

/// What lanes do for a token, on average over the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// Layer after layer, in milliseconds.
    pub serial_ms: f64,
    /// The widest lane alone, as if layers could overlap: looser.
    pub widest_ms: f64,
    /// Look-ups in VRAM, RAM and on the drive.
    pub lookups: [f64; 3],
    /// How long each lane works.
    pub busy: Busy,
}

/// Milliseconds of work of each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Everything but routed experts.
    pub dense: f64,
    /// Experts in VRAM.
    pub hit: f64,
    /// Experts over the bus.
    pub pull: f64,
    /// Experts on the CPU.
    pub cpu: f64,
    /// Experts from the drive.
    pub drive: f64,
}

impl Bound {
    /// Over the sampled tokens.
    pub fn new(
        machine: &Machine,
        sizes: &Sizes,
        popularity: &Popularity,
        placement: &Placement,
        tiers: Tiers,
    ) -> Self {
        let costs = Costs::of(machine);
        let mean = sizes.mean_expert_bytes();
        let mut sum = Self::default();
        let n = popularity.tokens().len().max(1) as f64;
        for token in popularity.tokens() {
            let mut busy = Busy { dense: machine.dense_ms.value, ..Busy::default() };
            let (mut serial, mut missed) = (busy.dense, 0.0);
            for (layer, route) in token.chunks_exact(sizes.k).enumerate() {
                let mut counts = [0usize; 3];
                for &expert in route {
                    counts[placement.tier(tiers, layer, usize::from(expert))] += 1;
                }
                let size = sizes.expert_bytes[layer] as f64 / mean;
                let work = costs.layer(counts, size);
                missed += (counts[1] + counts[2]) as f64 * size;
                serial += work.hit.max(work.pull).max(work.cpu).max(work.drive);
                busy.hit += work.hit;
                busy.pull += work.pull;
                busy.cpu += work.cpu;
                busy.drive += work.drive;
                for (sum, n) in sum.lookups.iter_mut().zip(counts) {
                    *sum += n as f64 / popularity.tokens().len().max(1) as f64;
                }
            }
            sum.serial_ms += serial / n;
            sum.widest_ms += costs.widest(busy, missed) / n;
            sum.busy.dense += busy.dense / n;
            sum.busy.hit += busy.hit / n;
            sum.busy.pull += busy.pull / n;
            sum.busy.cpu += busy.cpu / n;
            sum.busy.drive += busy.drive / n;
        }
        sum
    }
}

/// Milliseconds an expert of average size.
struct Costs {
    hit: f64,
    pull: Option<f64>,
    cpu: Option<f64>,
    drive: f64,
}

impl Costs {
    fn of(machine: &Machine) -> Self {
        Self {
            hit: machine.gpu.as_ref().map_or(0.0, |gpu| gpu.hit_ms.value),
            pull: machine.gpu.as_ref().map(|gpu| gpu.pull_ms.value),
            cpu: machine.cpu_ms.as_ref().map(|cpu| cpu.value),
            drive: machine.drive_ms.value,
        }
    }

    /// Lanes of a layer whose experts are `size` times the average. What comes from the drive lands in RAM and goes on over
    /// the bus or through the CPU like everything else there, so more RAM is never slower.
    fn layer(&self, [hits, ram, drive]: [usize; 3], size: f64) -> Busy {
        let missed = ram + drive;
        let (pull, cpu) = match (self.pull, self.cpu) {
            (Some(pull), Some(cpu)) => split(missed, pull, cpu),
            (Some(pull), None) => (pull * missed as f64, 0.0),
            (None, cpu) => (0.0, cpu.unwrap_or(0.0) * missed as f64),
        };
        Busy {
            dense: 0.0,
            hit: self.hit * hits as f64 * size,
            pull: pull * size,
            cpu: cpu * size,
            drive: self.drive * drive as f64 * size,
        }
    }

    /// The lane with the most work in a token, its `missed` experts (of average size) shared between bus and CPU without
    /// regard to layers. What is dense runs on the GPU, or on the CPU where there is none.
    fn widest(&self, busy: Busy, missed: f64) -> f64 {
        let (first, shared) = match (self.pull, self.cpu) {
            (Some(pull), Some(cpu)) => (busy.dense + busy.hit, missed / (1.0 / pull + 1.0 / cpu)),
            (Some(pull), None) => (busy.dense + busy.hit, missed * pull),
            (None, _) => (busy.dense + busy.cpu, 0.0),
        };
        first.max(shared).max(busy.drive)
    }
}

/// Times of the bus and of the CPU where `n` experts are shared so that the slower of them ends soonest.
fn split(n: usize, pull: f64, cpu: f64) -> (f64, f64) {
    let times = (0..=n).map(|on_cpu| (pull * (n - on_cpu) as f64, cpu * on_cpu as f64));
    times.min_by(|a, b| a.0.max(a.1).total_cmp(&b.0.max(b.1))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_shared_in_whole_experts() {
        assert_eq!(split(0, 0.6, 0.3), (0.0, 0.0));
        assert_eq!(split(3, 0.6, 0.3), (0.6, 0.6));
        // One of one goes to the faster lane; the other has nothing to do.
        assert_eq!(split(1, 0.6, 0.3), (0.0, 0.3));
        assert_eq!(split(1, 0.3, 0.6), (0.3, 0.0));
    }

    #[test]
    fn a_layer_is_its_widest_lane() {
        let costs = Costs { hit: 0.02, pull: Some(0.6), cpu: Some(0.3), drive: 3.0 };
        // Five hits, two in RAM, one from the drive, experts twice the average: three misses, two of them on the CPU.
        let busy = costs.layer([5, 2, 1], 2.0);
        assert_eq!((busy.hit, busy.pull, busy.cpu, busy.drive), (0.2, 1.2, 1.2, 6.0));
        // Without a GPU everything is computed in place.
        let costs = Costs { hit: 0.0, pull: None, cpu: Some(0.3), drive: 3.0 };
        let busy = costs.layer([0, 7, 1], 1.0);
        assert_eq!((busy.hit, busy.pull, busy.drive), (0.0, 0.0, 3.0));
        assert!((busy.cpu - 2.4).abs() < 1e-12);
        assert_eq!(costs.widest(Busy { dense: 1.0, cpu: 2.0, drive: 2.5, ..Busy::default() }, 8.0), 3.0);
    }
}
