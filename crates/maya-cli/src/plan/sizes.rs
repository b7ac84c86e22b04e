//! What a token moves, by the header of a file or by the tensor table of a mix that is known.

use std::path::Path;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use crate::group::{Group, Layers};
use crate::survey::Survey;
use crate::synth::{plan, shape::Shape};

/// A model whose sizes need no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// GLM-5.3-Flash in the Maya-S mix: 96.5 GB, 12,096 experts of 7.11 MB on average.
    MayaS,
}

/// Sizes of a model.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// What it is called and where the sizes come from.
    pub source: String,
    /// Bytes of one expert, by MoE layer.
    pub expert_bytes: Vec<u64>,
    /// Experts of a layer.
    pub experts: usize,
    /// Experts that a layer takes for a token.
    pub k: usize,
    /// Bytes of weights that every token reads.
    pub always_bytes: u64,
    /// Bytes of delta-attention state that a token reads and writes.
    pub state_bytes: u64,
    /// Bytes of all weights.
    pub total_bytes: u64,
}

/// Largest number of experts of all layers that is believed: tables of this size are kept.
const EXPERTS_LIMIT: usize = 1 << 18;

impl Sizes {
    /// From the header of a file.
    ///
    /// # Errors
    /// What opening it says, or a file without routed experts or with sizes that contradict each other.
    pub fn of_file(path: &Path) -> Result<Self> {
        let model = gguf::Model::open(path)?;
        let name = path.display();
        let survey = Survey::of(&model);
        let Some(layers) = &survey.layers else {
            bail!(
                "{name}: block_count is missing or not believed, so its experts cannot be assigned to layers"
            )
        };
        let field = |field: &str| match survey.size(field).and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n > 0 => Ok(n),
            _ => bail!("{name}: {field} is missing or 0, so this is no mixture of experts"),
        };
        let (experts, k) = (field("expert_count")?, field("expert_used_count")?);
        let tensors = model.tensors().iter().map(|t| (t.name.to_string(), t.extent.len));
        let mut sizes = Self::sum(format!("the header of {name}"), layers, experts, k, tensors)?;
        sizes.always_bytes = survey.token.always;
        sizes.state_bytes = survey.token.state;
        Ok(sizes)
    }

    /// From a table that this program knows.
    ///
    /// # Errors
    /// None for the presets there are.
    pub fn of_preset(preset: Preset) -> Result<Self> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            shape: Shape,
        }
        let Preset::MayaS = preset;
        let shape = Line::parse_from(["synth"]).shape;
        let trunk = shape.layers as usize;
        let kda: Vec<bool> = (0..trunk).map(|layer| layer % 4 != 3).collect();
        // A head's state is dim x dim values of 4 bytes, read and written.
        let state = kda.iter().filter(|&&kda| kda).count() as u64
            * u64::from(shape.heads)
            * u64::from(shape.kda_dim).pow(2)
            * 8;
        let layers = Layers { kda, dense: shape.dense as usize, nextn: 1 };
        let tensors = plan::tensors(&shape)
            .into_iter()
            .map(|t| plan::bytes(&t).map(|bytes| (t.name, bytes)))
            .collect::<Result<Vec<_>>>()?;
        let source = "Maya-S, the tensor table that `maya synth` writes by default".to_owned();
        let mut sizes = Self::sum(
            source,
            &layers,
            shape.experts as usize,
            shape.topk_experts as usize,
            tensors.into_iter(),
        )?;
        sizes.state_bytes = state;
        Ok(sizes)
    }

    fn sum(
        source: String,
        layers: &Layers,
        experts: usize,
        k: usize,
        tensors: impl Iterator<Item = (String, u64)>,
    ) -> Result<Self> {
        let trunk = layers.kda.len();
        let (mut by_layer, mut always, mut total) = (vec![0u64; trunk], 0u64, 0u64);
        for (name, bytes) in tensors {
            total = total.saturating_add(bytes);
            match layers.group(&name) {
                Group::Experts => {
                    if let Some(sum) = crate::group::block(&name).and_then(|(at, _)| by_layer.get_mut(at)) {
                        *sum = sum.saturating_add(bytes);
                    }
                }
                Group::Embedding | Group::NextN | Group::Other => {}
                _ => always = always.saturating_add(bytes),
            }
        }
        by_layer.retain(|&bytes| bytes > 0);
        let expert_bytes: Vec<u64> = by_layer.iter().map(|bytes| bytes / experts as u64).collect();
        if expert_bytes.is_empty() || expert_bytes.contains(&0) {
            bail!("{source}: no layer has routed experts of any size");
        }
        if k > experts {
            bail!("{source}: expert_used_count {k} is more than expert_count {experts}");
        }
        if experts.saturating_mul(expert_bytes.len()) > EXPERTS_LIMIT {
            bail!(
                "{source}: {} layers of {experts} experts are more than the {EXPERTS_LIMIT} that are believed",
                expert_bytes.len()
            );
        }
        Ok(Self {
            source,
            expert_bytes,
            experts,
            k,
            always_bytes: always,
            state_bytes: 0,
            total_bytes: total,
        })
    }

    /// MoE layers.
    pub fn layers(&self) -> usize {
        self.expert_bytes.len()
    }

    /// Experts of all layers.
    pub fn n_experts(&self) -> usize {
        self.layers() * self.experts
    }

    /// Look-ups of a token.
    pub fn lookups(&self) -> usize {
        self.layers() * self.k
    }

    /// Bytes of all routed experts.
    pub fn routed_bytes(&self) -> u64 {
        self.expert_bytes.iter().fold(0, |n, &b| n.saturating_add(b.saturating_mul(self.experts as u64)))
    }

    /// Bytes of an expert, averaged over layers.
    pub fn mean_expert_bytes(&self) -> f64 {
        self.expert_bytes.iter().map(|&b| b as f64).sum::<f64>() / self.layers() as f64
    }

    /// Bytes that a token reads where every expert is at hand, the state both ways among them.
    pub fn token_bytes(&self) -> f64 {
        (self.always_bytes as f64)
            + (self.state_bytes as f64)
            + self.mean_expert_bytes() * self.lookups() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published figures of Maya-S: 96.47 GB, 12,096 experts of 7.11 MB, 7.13 GB that every token reads.
    #[test]
    fn the_preset_has_the_published_sizes() {
        let sizes = Sizes::of_preset(Preset::MayaS).unwrap();
        assert_eq!((sizes.layers(), sizes.experts, sizes.k, sizes.n_experts()), (42, 288, 8, 12_096));
        let gb = |bytes: f64| format!("{:.2}", bytes / 1e9);
        assert_eq!(gb(sizes.total_bytes as f64), "96.46");
        assert_eq!(gb(sizes.always_bytes as f64), "7.13");
        assert_eq!(gb(sizes.mean_expert_bytes() * 1e3), "7.11");
        assert_eq!(gb(sizes.token_bytes()), "9.80");
    }
}
