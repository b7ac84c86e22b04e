//! Which positions a row attends to (model-spec 4.3, 4.4): pooled keys, and the choice of pools.

use quant_kernels::Cpu;

use crate::choice::rank_of;

/// One pooled key: for each channel a softmax over the members of `gates + ape` weighs their keys.
///
/// `keys`, `gates` and `ape` are `[kpool][out.len()]`. Sums run over the members in order.
pub fn pool(cpu: Cpu, keys: &[f32], gates: &[f32], ape: &[f32], out: &mut [f32]) {
    /// Channels at a time: four arrays of them stay in the first-level cache.
    const CHANNELS: usize = 64;
    let width = out.len();
    for (part, out) in out.chunks_mut(CHANNELS).enumerate() {
        let place = |row: usize| row * width + part * CHANNELS;
        let members = keys.len() / width;
        let (mut max, mut sum) = ([f32::NEG_INFINITY; CHANNELS], [0.0; CHANNELS]);
        let mut weights = [0.0; CHANNELS];
        let logits = |j: usize| gates[place(j)..].iter().zip(&ape[place(j)..]).map(|(gate, ape)| gate + ape);
        for j in 0..members {
            max.iter_mut().zip(out.iter()).zip(logits(j)).for_each(|((max, _), logit)| *max = max.max(logit));
        }
        out.fill(0.0);
        for j in 0..members {
            let weights = &mut weights[..out.len()];
            weights.iter_mut().zip(logits(j)).zip(&max).for_each(|((w, logit), max)| *w = logit - max);
            cpu.exp(weights);
            let keys = &keys[place(j)..];
            for (((out, sum), weight), key) in out.iter_mut().zip(&mut sum).zip(&*weights).zip(keys) {
                *sum += weight;
                *out += weight * key;
            }
        }
        out.iter_mut().zip(&sum).for_each(|(out, sum)| *out /= sum);
    }
}

/// Layer norm with weight and bias; the variance is the biased one.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
    let factor = 1.0 / (variance + eps).sqrt();
    for (((out, x), weight), bias) in out.iter_mut().zip(x).zip(weight).zip(bias) {
        *out = (x - mean) * factor * weight + bias;
    }
}

/// How many pools and tail positions the row with `visible` positions (its own included) attends to.
///
/// A pool is visible once its last member is. Returns `(complete pools, tail positions)`.
#[must_use]
pub fn visible_pools(visible: usize, kpool: usize) -> (usize, usize) {
    (visible / kpool, visible % kpool)
}

/// The `out.len()` pools with the largest scores, ties to the lower index, ascending. `order` is scratch.
///
/// # Panics
/// If there are fewer scores than places in `out`.
pub fn top_pools(scores: &[f32], order: &mut Vec<u32>, out: &mut [u32]) {
    let k = out.len();
    order.clear();
    order.extend(0..scores.len() as u32);
    if k < order.len() && k > 0 {
        let by_score =
            |a: &u32, b: &u32| rank_of(scores[*b as usize]).cmp(&rank_of(scores[*a as usize])).then(a.cmp(b));
        order.select_nth_unstable_by(k - 1, by_score);
    }
    out.copy_from_slice(&order[..k]);
    out.sort_unstable();
}

/// The positions of `pools` (ascending) and the tail of the row with `visible` positions, ascending.
pub fn positions(pools: &[u32], visible: usize, kpool: usize) -> impl Iterator<Item = usize> {
    let (complete, _) = visible_pools(visible, kpool);
    let members = pools.iter().flat_map(move |pool| (0..kpool).map(move |j| *pool as usize * kpool + j));
    members.chain(complete * kpool..visible)
}

#[cfg(test)]
#[allow(clippy::excessive_precision)] // The specification's digits.
mod tests {
    use super::*;

    /// Appendix A.4; trap 34.
    #[test]
    fn appendix_a4_is_met() {
        let keys = [1.0, 2.0, 3.0, -1.0, 0.0, 0.5, -2.0, 4.0];
        let gates = [0.1, 0.0, 0.2, 1.0, -1.0, 2.0, 3.0, 0.0];
        let ape = [0.0, 0.5, 1.0, 0.0, 0.0, 0.0, -2.0, 1.0];
        let mut out = [0.0; 2];
        pool(Cpu::scalar(), &keys, &gates, &ape, &mut out);
        assert!((out[0] - 0.749_383_77).abs() < 1e-6 && (out[1] - 1.046_459_8).abs() < 1e-6, "{out:?}");
    }

    /// Channels do not see each other, on either side of a part's border.
    #[test]
    fn channels_are_pooled_alone() {
        let wave = |n: usize, step: f32| (0..n).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
        let (members, width) = (4, 150);
        let (keys, gates, ape) = (wave(600, 0.7), wave(600, 1.1), wave(600, 0.3));
        let mut whole = vec![0.0; width];
        pool(Cpu::detect(), &keys, &gates, &ape, &mut whole);
        for c in 0..width {
            let one = |values: &[f32]| (0..members).map(|j| values[j * width + c]).collect::<Vec<f32>>();
            let mut out = [0.0];
            pool(Cpu::scalar(), &one(&keys), &one(&gates), &one(&ape), &mut out);
            assert_eq!(out[0].to_bits(), whole[c].to_bits());
        }
    }

    /// Trap 36: a constant input has variance 0, so exactly the bias comes out, and no NaN. Trap 35: it is a layer norm
    /// with a bias, not an RMS norm.
    #[test]
    fn a_constant_gives_the_bias() {
        let bias = [0.25, -1.5, 3.0, 0.0];
        let mut out = [9.0; 4];
        layer_norm(&[2.5; 4], &[7.0, 1.0, -2.0, 0.5], &bias, 1e-6, &mut out);
        assert_eq!(out, bias);
    }

    #[test]
    fn layer_norm_subtracts_the_mean() {
        let mut out = [0.0; 4];
        layer_norm(&[1.0, 2.0, 3.0, 4.0], &[1.0; 4], &[0.5; 4], 1e-6, &mut out);
        let unit = 1.0 / 1.25f32.sqrt();
        for (value, expected) in out.iter().zip([-1.5 * unit, -0.5 * unit, 0.5 * unit, 1.5 * unit]) {
            assert!((value - expected - 0.5).abs() < 1e-5);
        }
    }

    /// The positions that a row selects when pool p scores `score(p)`.
    fn selected(visible: usize, kpool: usize, budget: usize, score: impl Fn(usize) -> f32) -> Vec<usize> {
        let (complete, _) = visible_pools(visible, kpool);
        let scores: Vec<f32> = (0..complete).map(score).collect();
        let mut pools = vec![0; budget.min(complete)];
        top_pools(&scores, &mut Vec::new(), &mut pools);
        positions(&pools, visible, kpool).collect()
    }

    /// Appendix A.7; traps 33, 38, 42, 45.
    #[test]
    fn appendix_a7_is_met() {
        let set = |n| selected(n, 4, 512, |p| (p as f32 * 0.37).sin());
        assert_eq!(set(3), [0, 1, 2]);
        assert_eq!(set(4), [0, 1, 2, 3]);
        assert_eq!(set(7), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(set(2048), (0..2048).collect::<Vec<_>>());
        assert_eq!(set(2051), (0..2051).collect::<Vec<_>>());
        assert_eq!(set(2052).len(), 2048);
        let n2053 = set(2053);
        assert_eq!((n2053.len(), n2053.last()), (2049, Some(&2052)));
        assert_eq!(set(4096).len(), 2048);
        for n in [2052, 2053, 2056, 4096, 4097] {
            assert!(set(n).is_sorted_by(|a, b| a < b), "ascending, no duplicates");
        }
    }

    /// Trap 39: the query's own token is attended only if its pool wins.
    #[test]
    fn the_current_token_can_lose() {
        let set = selected(2052, 4, 512, |p| if p == 512 { -1.0 } else { 1.0 });
        assert_eq!(set, (0..2048).collect::<Vec<_>>());
    }

    /// Trap 38: with pos = 4k + 2 the last three positions are the tail; with 4k + 3 none is forced.
    #[test]
    fn the_tail_is_always_there() {
        assert_eq!(selected(11, 4, 1, |p| -(p as f32)), [0, 1, 2, 3, 8, 9, 10]);
        assert_eq!(selected(12, 4, 1, |p| -(p as f32)), [0, 1, 2, 3]);
    }

    /// Trap 40: the row at pos = 4p + 2 does not see pool p as a pool.
    #[test]
    fn a_pool_is_seen_when_complete() {
        assert_eq!(visible_pools(4 * 5 + 3, 4), (5, 3));
        assert_eq!(visible_pools(4 * 5 + 4, 4), (6, 0));
    }

    /// Trap 46: many exact zeros; the lower pools win, every time, and -0 is no less than +0.
    #[test]
    fn ties_go_to_the_lower_pool() {
        let zeros = selected(64, 4, 5, |p| if p % 2 == 0 { -0.0 } else { 0.0 });
        assert_eq!(zeros, (0..20).collect::<Vec<_>>());
        let some = selected(64, 4, 3, |p| if p == 9 { 1.0 } else { 0.0 });
        assert_eq!(some, [0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 39]);
    }

    /// NaN scores lose instead of upsetting the order.
    #[test]
    fn nan_loses() {
        let set = selected(16, 4, 2, |p| if p == 0 { f32::NAN } else { p as f32 });
        assert_eq!(set, [8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
