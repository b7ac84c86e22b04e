//! The size flags of `maya synth` and what a consistent set of them is.

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::ArgPredicate;

/// Sizes of a model of this family. The defaults are GLM-5.3-Flash's.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Shape")]
pub struct Shape {
    /// Layers of the trunk, at most 1000; of a trace: MoE layers [default: 45, of a trace 42]
    #[arg(long, default_value = "45", default_value_if("trace", ArgPredicate::IsPresent, "42"),
        hide_default_value = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub layers: u32,
    /// Leading layers with a dense feed-forward part
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub dense: u32,
    /// Routed experts of a MoE layer
    #[arg(long, default_value_t = 288, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub experts: u32,
    /// Width of a stream
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hidden: u32,
    /// Width of the dense feed-forward part
    #[arg(long, default_value_t = 12288, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ff: u32,
    /// Width of an expert
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub moe_ff: u32,
    /// Heads of both kinds of mixer
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub heads: u32,
    /// Key and value width of an attention head
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub head_dim: u32,
    /// Key and value width of a KDA head
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kda_dim: u32,
    /// Width of the compressed queries
    #[arg(long, default_value_t = 1536, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub q_lora: u32,
    /// Width of the latents
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kv_lora: u32,
    /// Heads of the indexer
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub index_heads: u32,
    /// Width of an indexer head
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub index_dim: u32,
    /// Positions in a pool of the indexer
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub kpool: u32,
    /// Positions that the indexer selects
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub topk: u32,
    /// Routed experts of a token
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub topk_experts: u32,
    /// Vocabulary
    #[arg(long, default_value_t = 154_880, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub vocab: u32,
    /// Seed of the weights, or of the trace
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Standard deviation of a weight, about
    #[arg(long, default_value_t = 0.02, value_name = "X")]
    pub std: f64,
    /// Spread of expert popularity; 0 makes experts equally popular, about
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub skew: f64,
    /// Leave out the NextN block
    #[arg(long)]
    pub no_nextn: bool,
    /// Architecture name and prefix of its metadata keys
    #[arg(long, default_value = "glm5-next", value_name = "NAME")]
    pub arch: String,
}

impl Shape {
    /// Refuses what no reader could use.
    pub fn check(&self) -> Result<()> {
        if !self.std.is_finite() || !(0.0..=100.0).contains(&self.std) {
            bail!("--std {} is not a standard deviation between 0 and 100", self.std);
        }
        if !self.skew.is_finite() || !(0.0..=100.0).contains(&self.skew) {
            bail!("--skew {} is not a number between 0 and 100", self.skew);
        }
        if self.topk_experts > self.experts {
            bail!("--topk-experts {} is more than --experts {}", self.topk_experts, self.experts);
        }
        if self.arch.is_empty() {
            bail!("--arch is empty");
        }
        Ok(())
    }
}
