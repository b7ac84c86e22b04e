//! How often each expert is looked up, and tokens drawn from that.

use anyhow::{Result, bail};

use super::sizes::Sizes;
use crate::random::Distributions;
use crate::routes::Trace;
use crate::synth::trace::best;

/// A law of popularity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// The r-th expert of each layer has a weight of r^-s.
    Zipf(f64),
    /// Weights whose logarithms are normal with this deviation.
    LogNormal(f64),
}

/// Expected look-ups and sampled tokens.
pub struct Popularity {
    /// In words.
    pub what: String,
    /// Expected look-ups a token, `[layers][experts]`; a layer's add up to k.
    pub shares: Vec<Vec<f64>>,
    /// Experts of sampled tokens, `[tokens][layers][k]`.
    routes: Vec<u16>,
    row: usize,
}

impl Popularity {
    /// By a law: a share is k times the weight over the layer's sum (so the most popular expert of a steep law has more than
    /// one look-up a token, as if a token might draw it twice). The sampled tokens draw k different ones by adding Gumbel
    /// noise to the logarithms, as the router's top-k does, so they look up popular experts a little less often.
    pub fn by_law(law: Law, sizes: &Sizes, samples: usize, seed: u64) -> Self {
        let mut numbers = Distributions::new(seed);
        let (layers, experts, k) = (sizes.layers(), sizes.experts, sizes.k);
        let logs: Vec<Vec<f64>> = (0..layers)
            .map(|_| match law {
                Law::Zipf(s) => (1..=experts).map(|rank| -s * (rank as f64).ln()).collect(),
                Law::LogNormal(sigma) => (0..experts).map(|_| sigma * numbers.normal()).collect(),
            })
            .collect();
        let shares = logs
            .iter()
            .map(|logs| {
                let top = logs.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = logs.iter().map(|log| (log - top).exp()).collect();
                let sum: f64 = weights.iter().sum();
                weights.iter().map(|w| w / sum * k as f64).collect()
            })
            .collect();
        let mut routes = Vec::with_capacity(samples * layers * k);
        let (mut perturbed, mut order) = (vec![0.0; experts], Vec::new());
        for _ in 0..samples {
            for logs in &logs {
                for (value, log) in perturbed.iter_mut().zip(logs) {
                    *value = log + numbers.gumbel();
                }
                best(&perturbed, k, &mut order);
                routes.extend_from_slice(&order);
            }
        }
        let what = match law {
            Law::Zipf(s) => format!("Zipf with exponent {s} in each layer"),
            Law::LogNormal(sigma) => format!("log-normal with deviation {sigma} in each layer"),
        };
        Self { what, shares, routes, row: layers * k }
    }

    /// By the counts of a trace, and up to `samples` of its own tokens, evenly spread.
    ///
    /// # Errors
    /// A trace of another shape than the model.
    pub fn by_trace(name: &str, trace: &Trace, sizes: &Sizes, samples: usize) -> Result<Self> {
        let of_trace = (trace.layers, trace.experts, trace.k);
        if of_trace != (sizes.layers(), sizes.experts, sizes.k) {
            bail!(
                "{name}: the trace has {} layers, {} experts a layer and {} a token, the model {}, {} and {}",
                trace.layers,
                trace.experts,
                trace.k,
                sizes.layers(),
                sizes.experts,
                sizes.k
            );
        }
        let tokens = trace.tokens as f64;
        let shares =
            trace.counts().iter().map(|layer| layer.iter().map(|&n| n as f64 / tokens).collect()).collect();
        let n = samples.min(trace.tokens);
        let mut routes = Vec::with_capacity(n * trace.layers * trace.k);
        for i in 0..n {
            let token = i * trace.tokens / n;
            for layer in 0..trace.layers {
                routes.extend_from_slice(trace.route(token, layer));
            }
        }
        Ok(Self { what: format!("counts of {name}"), shares, routes, row: trace.layers * trace.k })
    }

    /// The sampled tokens, each `[layers][k]`.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &[u16]> {
        self.routes.chunks_exact(self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::sizes::Preset;

    #[test]
    fn shares_add_up_and_tokens_take_different_experts() {
        let sizes = Sizes::of_preset(Preset::MayaS).unwrap();
        for law in [Law::Zipf(0.0), Law::Zipf(1.25), Law::LogNormal(1.55), Law::LogNormal(100.0)] {
            let popularity = Popularity::by_law(law, &sizes, 3, 1);
            for layer in &popularity.shares {
                assert!((layer.iter().sum::<f64>() - 8.0).abs() < 1e-9, "{law:?}");
            }
            assert_eq!(popularity.tokens().len(), 3);
            for token in popularity.tokens() {
                for route in token.chunks_exact(8) {
                    let mut ids = route.to_vec();
                    ids.sort_unstable();
                    ids.dedup();
                    assert_eq!(ids.len(), 8, "{law:?}");
                }
            }
        }
    }
}
