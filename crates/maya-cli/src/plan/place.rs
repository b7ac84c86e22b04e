//! Where experts lie: the ones looked up most for their size in VRAM, the next in RAM, the rest on the drive. An expert is in
//! one tier only.

use super::sizes::Sizes;

/// Order of all experts, the hottest first.
pub struct Placement {
    experts: usize,
    /// Place in the order, `[layers][experts]`.
    place: Vec<u32>,
    /// Bytes of the experts up to and with each place.
    until: Vec<f64>,
}

/// Experts in the two upper tiers; the rest is on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// In VRAM.
    pub vram: usize,
    /// In RAM.
    pub ram: usize,
    /// On the drive.
    pub drive: usize,
}

impl Placement {
    /// Orders by expected look-ups a byte. Ties go to the lower expert, then to the lower layer, so that layers with the same
    /// popularity share a tier evenly.
    pub fn new(sizes: &Sizes, shares: &[Vec<f64>]) -> Self {
        let experts = sizes.experts;
        let mut order: Vec<(f64, usize, usize)> = Vec::with_capacity(sizes.n_experts());
        for (layer, (shares, &bytes)) in shares.iter().zip(&sizes.expert_bytes).enumerate() {
            order.extend(shares.iter().enumerate().map(|(e, share)| (share / bytes as f64, e, layer)));
        }
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut place = vec![0; order.len()];
        let mut sum = 0.0;
        let mut until = Vec::with_capacity(order.len());
        for (at, &(_, expert, layer)) in order.iter().enumerate() {
            place[layer * experts + expert] = at as u32;
            sum += sizes.expert_bytes[layer] as f64;
            until.push(sum);
        }
        Self { experts, place, until }
    }

    /// Bytes of the `n` experts after the `from` hottest.
    pub fn bytes_of(&self, from: usize, n: usize) -> f64 {
        let until = |n: usize| match n.min(self.until.len()) {
            0 => 0.0,
            n => self.until[n - 1],
        };
        until(from.saturating_add(n)) - until(from)
    }

    /// How many experts the tiers hold.
    pub fn tiers(&self, vram: f64, ram: f64) -> Tiers {
        // Room for all but a rounding error of an expert is room for it.
        let fit = |bytes: f64| self.until.partition_point(|&until| until <= bytes + 0.5);
        let in_vram = fit(vram);
        let used = in_vram.checked_sub(1).map_or(0.0, |last| self.until[last]);
        let both = fit(used + ram).max(in_vram);
        Tiers { vram: in_vram, ram: both - in_vram, drive: self.until.len() - both }
    }

    /// The tier of an expert: 0 VRAM, 1 RAM, 2 drive.
    pub fn tier(&self, tiers: Tiers, layer: usize, expert: usize) -> usize {
        let place = self.place[layer * self.experts + expert] as usize;
        usize::from(place >= tiers.vram) + usize::from(place >= tiers.vram + tiers.ram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(expert_bytes: &[u64], experts: usize) -> Sizes {
        Sizes {
            source: String::new(),
            expert_bytes: expert_bytes.to_vec(),
            experts,
            k: 1,
            always_bytes: 0,
            state_bytes: 0,
            total_bytes: 0,
        }
    }

    #[test]
    fn the_hottest_lie_highest_and_layers_share_evenly() {
        let shares = vec![vec![0.5, 0.3, 0.2]; 2];
        let placement = Placement::new(&sizes(&[10, 10], 3), &shares);
        let tiers = placement.tiers(20.0, 15.0);
        assert_eq!(tiers, Tiers { vram: 2, ram: 1, drive: 3 });
        let found: Vec<usize> = (0..2)
            .flat_map(|l| (0..3).map(move |e| (l, e)))
            .map(|(l, e)| placement.tier(tiers, l, e))
            .collect();
        assert_eq!(found, [0, 1, 2, 0, 2, 2]);
        assert_eq!(placement.tiers(0.0, 0.0), Tiers { vram: 0, ram: 0, drive: 6 });
        assert_eq!(placement.tiers(1e12, 1e12), Tiers { vram: 6, ram: 0, drive: 0 });
        assert_eq!((placement.bytes_of(0, 2), placement.bytes_of(5, 9)), (20.0, 10.0));
    }

    /// An expert twice as large has to be looked up twice as often for the same room.
    #[test]
    fn room_goes_to_look_ups_a_byte() {
        let placement = Placement::new(&sizes(&[20, 10], 2), &[vec![0.6, 0.4], vec![0.5, 0.5]]);
        let tiers = placement.tiers(20.0, 0.0);
        assert_eq!([(1, 0), (1, 1), (0, 0)].map(|(l, e)| placement.tier(tiers, l, e)), [0, 0, 2]);
    }
}
