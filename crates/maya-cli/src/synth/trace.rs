//! Synthetic routing traces: each MoE layer has a log-normal popularity of its experts, and each token draws its k best by
//! adding Gumbel noise to it, independently of the token before. The numbers are NumPy's, draw by draw.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::shape::Shape;
use crate::random::Distributions;
use crate::routes::{EXPERTS_LIMIT, TABLE_LIMIT};

/// What a trace is like.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Trace")]
pub struct TraceArgs {
    /// Instead of weights, write which experts each token takes: --layers MoE layers of --experts experts
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "dense", "hidden", "ff", "moe_ff", "heads", "head_dim", "kda_dim", "q_lora", "kv_lora", "index_heads", "index_dim",
        "kpool", "topk", "topk_experts", "vocab", "std", "skew", "no_nextn", "arch",
    ])]
    pub trace: Option<PathBuf>,
    /// Tokens of the trace
    #[arg(long, default_value_t = 2000, value_name = "N", conflicts_with = "out", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: u32,
    /// Experts that a layer takes for a token
    #[arg(long, default_value_t = 8, value_name = "N", conflicts_with = "out", value_parser = clap::value_parser!(u32).range(1..))]
    pub k: u32,
    /// Spread of the popularity: deviation of its logarithm, 0 to 100
    #[arg(
        long,
        default_value_t = 1.55,
        value_name = "X",
        conflicts_with = "out",
        allow_negative_numbers = true
    )]
    pub sigma: f64,
    /// Redraw a part of the popularity every so many tokens, a change of subject; 0 is never
    #[arg(long, default_value_t = 0, value_name = "TOKENS", conflicts_with = "out")]
    pub topic: u32,
    /// Spread of the part that a change of subject redraws, 0 to 100
    #[arg(
        long,
        default_value_t = 0.8,
        value_name = "X",
        conflicts_with = "out",
        allow_negative_numbers = true
    )]
    pub topic_sigma: f64,
    /// Draw and drop so many tokens first: another stretch of the same popularity
    #[arg(long, default_value_t = 0, value_name = "TOKENS", conflicts_with = "out")]
    pub skip: u32,
}

/// Draws tokens one after another.
pub struct Drawn {
    numbers: Distributions,
    layers: usize,
    experts: usize,
    k: usize,
    topic: u32,
    topic_sigma: f64,
    /// The next token; those before 0 are dropped.
    token: i64,
    base: Vec<f64>,
    popularity: Vec<f64>,
    perturbed: Vec<f64>,
    order: Vec<u16>,
}

impl Drawn {
    /// Draws the popularity.
    ///
    /// # Errors
    /// Numbers that make no trace, with their flags.
    pub fn new(shape: &Shape, args: &TraceArgs) -> Result<Self> {
        for (flag, sigma) in [("--sigma", args.sigma), ("--topic-sigma", args.topic_sigma)] {
            if !sigma.is_finite() || !(0.0..=100.0).contains(&sigma) {
                bail!("{flag} {sigma} is not a deviation between 0 and 100");
            }
        }
        let (layers, experts, k) = (shape.layers as usize, shape.experts as usize, args.k as usize);
        if experts > EXPERTS_LIMIT {
            bail!("--experts {experts} is more than the {EXPERTS_LIMIT} that a replay can take");
        }
        if k > experts {
            bail!("--k {k} is more than --experts {experts}");
        }
        if layers.saturating_mul(experts) > TABLE_LIMIT {
            bail!("--layers {layers} of --experts {experts} are more than {TABLE_LIMIT} experts in all");
        }
        let mut numbers = Distributions::new(shape.seed);
        let base: Vec<f64> = (0..layers * experts).map(|_| args.sigma * numbers.normal()).collect();
        Ok(Self {
            numbers,
            layers,
            experts,
            k,
            topic: args.topic,
            topic_sigma: args.topic_sigma,
            token: -i64::from(args.skip),
            popularity: base.clone(),
            perturbed: vec![0.0; experts],
            order: Vec::with_capacity(experts),
            base,
        })
    }

    /// MoE layers and experts a token takes in each.
    pub fn shape(&self) -> (usize, usize) {
        (self.layers, self.k)
    }

    /// The next token into `ids`, `[layers][k]`; `false` where it is one of those to drop.
    pub fn next(&mut self, ids: &mut Vec<u16>) -> bool {
        ids.clear();
        if self.topic > 0 && self.token % i64::from(self.topic) == 0 {
            for (now, base) in self.popularity.iter_mut().zip(&self.base) {
                *now = base + self.topic_sigma * self.numbers.normal();
            }
        }
        let kept = self.token >= 0;
        self.token += 1;
        for layer in self.popularity.chunks_exact(self.experts) {
            for (value, popularity) in self.perturbed.iter_mut().zip(layer) {
                *value = popularity + self.numbers.gumbel();
            }
            if kept {
                best(&self.perturbed, self.k, &mut self.order);
                ids.extend_from_slice(&self.order);
            }
        }
        kept
    }
}

/// The `k` largest values' places into `order`, the largest first; of equal ones the earlier.
pub fn best(values: &[f64], k: usize, order: &mut Vec<u16>) {
    order.clear();
    order.extend((0..values.len()).map(|i| i as u16));
    let rank = |a: &u16, b: &u16| values[usize::from(*b)].total_cmp(&values[usize::from(*a)]).then(a.cmp(b));
    if k < order.len() {
        order.select_nth_unstable_by(k, rank);
        order.truncate(k);
    }
    order.sort_unstable_by(rank);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_in_order() {
        let mut order = Vec::new();
        best(&[1.0, 3.0, 2.0, 3.0], 3, &mut order);
        assert_eq!(order, [1, 3, 2]);
        best(&[1.0, 3.0], 2, &mut order);
        assert_eq!(order, [1, 0]);
    }
}
