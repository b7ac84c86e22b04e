//! Flags of `maya plan` and `maya replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::budget::Budget;
use super::engine::path;
use crate::plan::named::Named;
use crate::plan::sizes::Preset;
use crate::replay::Policy;

/// `maya plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Sizes from the header of this GGUF file [default: those of --preset]
    #[arg(long, env = "MAYA_MODEL", value_name = "PATH", value_parser = path(), help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// Sizes of a known model, without a file [default: maya-s, unless a --model is given]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Model")]
    pub preset: Option<Preset>,
    /// How lanes are added up
    #[arg(long, value_enum, default_value = "maya", value_name = "NAME", help_heading = "Model")]
    pub model_of: ModelOf,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The popularity.
    #[command(flatten)]
    pub popularity: PopularityArgs,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Draw tokens a second against memory into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// The memory that --plot varies
    #[arg(long, value_enum, default_value = "ram", value_name = "TIER", requires = "plot")]
    pub plot_over: Tier,
}

/// How a token's time follows from its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelOf {
    /// The bound of this engine: layer after layer, in each the widest lane
    Maya,
    /// Project Maya's launch article: lanes add up, a draft pipeline hides a third
    Article,
}

/// A tier of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// Of the machine.
    Ram,
    /// Of the GPU.
    Vram,
}

/// The machine of a plan. Flags win over a named or measured machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// A machine that somebody measured [default: this one, measured, unless flags say enough]
    #[arg(long = "box", value_enum, value_name = "NAME")]
    pub named: Option<Named>,
    /// Measure this machine's CPU, memory and, with --model, drive
    #[arg(long, conflicts_with = "named")]
    pub measure: bool,
    /// VRAM for experts: 24GB, 300MiB, or 20% of all experts
    #[arg(long, value_name = "BYTES", conflicts_with = "vram_slots")]
    pub vram: Option<Budget>,
    /// The same as a number of experts
    #[arg(long, value_name = "N")]
    pub vram_slots: Option<u32>,
    /// RAM for experts: 64GB, 300MiB, or 20% of all experts
    #[arg(long, value_name = "BYTES", conflicts_with = "ram_slots")]
    pub ram: Option<Budget>,
    /// The same as a number of experts
    #[arg(long, value_name = "N")]
    pub ram_slots: Option<u32>,
    /// GPU time of a token whose experts are all in VRAM
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = amount, conflicts_with = "vram_gbps")]
    pub gpu_ms: Option<f64>,
    /// The same as the rate at which the GPU reads a token's bytes
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, value_parser = amount)]
    pub vram_gbps: Option<f64>,
    /// Of that, one expert in VRAM [default: by its bytes]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = amount)]
    pub hit_ms: Option<f64>,
    /// An expert in RAM that the GPU takes over the bus
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = amount, conflicts_with = "pcie_gbps")]
    pub pull_ms: Option<f64>,
    /// The same as a rate
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, value_parser = amount)]
    pub pcie_gbps: Option<f64>,
    /// An expert in RAM that the CPU computes
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = amount, conflicts_with = "cpu_gbps")]
    pub cpu_ms_per_expert: Option<f64>,
    /// The same as a rate; without a GPU all other weights are computed at this rate too
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, value_parser = amount)]
    pub cpu_gbps: Option<f64>,
    /// An expert that the drive reads
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = amount, conflicts_with = "drive_gbps")]
    pub drive_ms: Option<f64>,
    /// The same as a rate
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, value_parser = amount)]
    pub drive_gbps: Option<f64>,
}

/// How often experts are used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Popularity")]
pub struct PopularityArgs {
    /// In each layer, the r-th expert has a weight of r^-S [default with --model-of article: 0.88]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = exponent, group = "law")]
    pub zipf: Option<f64>,
    /// In each layer, weights whose logarithms have this deviation [default otherwise: 1.55]
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true, value_parser = exponent, group = "law")]
    pub lognormal: Option<f64>,
    /// Counts and tokens of a routing trace (maya synth --trace, maya generate --dump-routes)
    #[arg(long, value_name = "FILE", group = "law")]
    pub trace: Option<PathBuf>,
    /// Tokens drawn, or taken from the trace; 20,000 take seconds
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub samples: u32,
    /// Seed of the draw
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// `maya replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A routing trace (maya synth --trace, maya generate --dump-routes)
    pub trace: PathBuf,
    /// Policies, more than one separated by commas [default: all]
    #[arg(long = "policy", value_enum, value_name = "NAME", value_delimiter = ',')]
    pub policies: Vec<Policy>,
    /// Slots of a layer, spares among them; more than one separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "17,31,61,89,201",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub slots: Vec<u32>,
    /// Slots of a layer that take what missed during a token; belady has none
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub spares: u32,
    /// Tokens after which decayed counts are halved
    #[arg(long, value_name = "TOKENS", default_value_t = 195, value_parser = clap::value_parser!(u32).range(1..))]
    pub half_life: u32,
    /// Bytes of an expert [default: 7.11 MB, the mean of Maya-S]
    #[arg(long, value_name = "BYTES")]
    pub expert_bytes: Option<Budget>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Draw the hit rate against slots into this SVG file, one line a policy
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// A cost or a rate: beyond these limits it is a slip of the keyboard, and sums stay finite.
fn amount(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| (1e-6..=1e6).contains(v));
    value.ok_or_else(|| "it must be a number between 0.000001 and 1000000".to_owned())
}

fn exponent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| (0.0..=100.0).contains(v));
    value.ok_or_else(|| "it must be a number between 0 and 100".to_owned())
}
