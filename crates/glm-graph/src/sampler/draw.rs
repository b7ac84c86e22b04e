//! The draw: cuts, masses, and the number that is drawn.

use quant_kernels::Cpu;

use super::SamplerParams;
use crate::choice::rank_of;
use crate::executor::Token;

/// Masses are counted in this part of the largest one, so that their sums are the same in any order.
const UNIT: f32 = 1.0 / (1u64 << 40) as f32;
/// What is further below the largest logit has no probability at any temperature.
const LOWEST: f32 = -745.0;
/// Candidates sorted at first: usually the nucleus is far smaller, and the vocabulary far larger.
const FIRST: usize = 64;

/// A token that may be drawn.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: Token,
    logit: f32,
    /// At temperature 1.
    mass: u64,
}

/// Buffers of a draw.
#[derive(Debug, Default)]
pub(super) struct Draw {
    candidates: Vec<Candidate>,
    below: Vec<f32>,
}

impl Draw {
    /// The token at `uniform` of 2^53 of the probability at the temperature, best first.
    pub(super) fn token(&mut self, cpu: Cpu, logits: &[f32], params: &SamplerParams, uniform: u64) -> Token {
        let kept = self.cut(cpu, logits, params);
        let (kept, below) = (&self.candidates[..kept], &mut self.below);
        let largest = kept[0].logit;
        below.clear();
        below.extend(kept.iter().map(|c| (c.logit - largest) / params.temperature));
        cpu.exp(below);
        let total: u64 = below.iter().map(|mass| whole(*mass)).sum();
        let target = ((u128::from(uniform) * u128::from(total)) >> 53) as u64;
        let mut sum = 0;
        let drawn = below.iter().position(|mass| {
            sum += whole(*mass);
            sum > target
        });
        kept[drawn.unwrap_or(0)].id
    }

    /// What may be drawn, best first.
    #[cfg(test)]
    pub(super) fn kept(&mut self, cpu: Cpu, logits: &[f32], params: &SamplerParams) -> Vec<Token> {
        let kept = self.cut(cpu, logits, params);
        self.candidates[..kept].iter().map(|c| c.id).collect()
    }

    /// How many candidates top-k, top-p and min-p leave, at least one: they stand first, best first, ties to the lower id.
    fn cut(&mut self, cpu: Cpu, logits: &[f32], params: &SamplerParams) -> usize {
        let Self { candidates, below } = self;
        let n = logits.len();
        candidates.clear();
        candidates.extend(logits.iter().enumerate().map(|(id, logit)| Candidate {
            id: id as Token,
            logit: if logit.is_nan() { f32::NEG_INFINITY } else { finite_above(*logit) },
            mass: 0,
        }));
        let limit = if params.top_k == 0 { n } else { params.top_k.min(n) };
        if limit < n {
            sort_first(candidates, limit);
            candidates.truncate(limit);
        }
        let largest = candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max);
        if largest == f32::NEG_INFINITY {
            // Everything was banned: the lowest id is as good as any, and the only reproducible one.
            sort_first(candidates, 1);
            return 1;
        }
        below.clear();
        below.extend(candidates.iter().map(|c| c.logit - largest));
        cpu.exp(below);
        candidates.iter_mut().zip(below).for_each(|(c, mass)| c.mass = whole(*mass));
        let wanted = if params.top_p >= 1.0 {
            u64::MAX
        } else {
            let total: u64 = candidates.iter().map(|c| c.mass).sum();
            (f64::from(params.top_p) * total as f64).ceil() as u64
        };
        let lowest = lowest(params.min_p);
        let (mut sorted, mut kept, mut sum) = (limit.min(FIRST), 0, 0);
        if limit < n {
            sorted = limit;
        } else {
            sort_first(candidates, sorted);
        }
        loop {
            while kept < sorted && sum < wanted && candidates[kept].logit - largest >= lowest {
                sum += candidates[kept].mass;
                kept += 1;
            }
            if kept < sorted || sorted == limit {
                return kept;
            }
            let next = (4 * sorted).min(limit);
            sort_first(&mut candidates[sorted..], next - sorted);
            sorted = next;
        }
    }
}

/// How far below the largest logit min-p lets a logit be, as a number that is not positive.
pub(crate) fn lowest(min_p: f32) -> f32 {
    (f64::from(min_p).ln() as f32).max(LOWEST)
}

/// An adjusted logit, with +infinity brought back to the largest number: the probabilities of an infinite logit have no
/// meaning.
pub(crate) fn finite_above(logit: f32) -> f32 {
    if logit == f32::INFINITY { f32::MAX } else { logit }
}

fn whole(mass: f32) -> u64 {
    (mass / UNIT) as u64
}

/// Brings the best `n` to the front, best first, ties to the lower id.
fn sort_first(candidates: &mut [Candidate], n: usize) {
    let order = |a: &Candidate, b: &Candidate| rank_of(b.logit).cmp(&rank_of(a.logit)).then(a.id.cmp(&b.id));
    if n == 0 {
        return;
    }
    if n < candidates.len() {
        candidates.select_nth_unstable_by(n - 1, order);
    }
    candidates[..n].sort_unstable_by(order);
}

/// A number of 53 bits from a seed and a counter: two rounds of the SplitMix64 finaliser.
pub(crate) fn uniform(seed: u64, counter: u64) -> u64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = mix(seed.wrapping_add(GOLDEN));
    mix(key ^ counter.wrapping_add(1).wrapping_mul(GOLDEN)) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_numbers_are_spread() {
        let mut buckets = [0; 10];
        for counter in 0..10_000 {
            let u = uniform(42, counter) as f64 / (1u64 << 53) as f64;
            assert!((0.0..1.0).contains(&u));
            buckets[(u * 10.0) as usize] += 1;
        }
        assert!(buckets.iter().all(|n| (850..1150).contains(n)), "{buckets:?}");
    }

    /// The largest candidate has the whole unit, and what is 2^40 times less likely nothing.
    #[test]
    fn masses_are_whole() {
        assert_eq!(whole(1.0), 1 << 40);
        assert_eq!(whole(UNIT), 1);
        assert_eq!(whole(UNIT * 0.999), 0);
        assert_eq!((lowest(1.0), lowest(0.0)), (0.0, LOWEST));
    }
}
