//! Flags of commands that open or run a model.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::budget::Amount;

/// Which file.
#[derive(Clone, Debug, Default, Args)]
pub struct ModelArgs {
    /// A GGUF file, any shard of a split one, or its folder [default: the bundled demo model]
    #[arg(long, env = "MAYA_MODEL", value_name = "PATH", value_parser = path(), help_heading = "Model")]
    pub model: Option<PathBuf>,
}

/// How the model is run.
#[derive(Clone, Debug, Args)]
pub struct EngineArgs {
    /// Which file.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Where to compute: auto, cpu, or cuda[:N,…]
    #[arg(long, default_value = "auto", value_name = "DEVICE", help_heading = "Engine")]
    pub device: Device,
    /// Longest sequence in tokens [default: what the model allows, at most 32768]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Engine")]
    pub ctx: Option<u32>,
    /// Arithmetic: fast (integer dot products) or exact (dequantised weights, f32 throughout)
    #[arg(long, value_enum, default_value = "fast", help_heading = "Engine")]
    pub precision: Precision,
    /// Threads [default: all that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Engine")]
    pub threads: Option<u16>,
    /// Storage of the attention latents [default: f16 in fast, f32 in exact]
    #[arg(long, value_enum, help_heading = "Engine")]
    pub kv: Option<Kv>,
    /// The same seed, prompt and settings give the same text, where one is drawn [default: another one each time]
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub seed: Option<u64>,
    /// Memory for routed experts, and the drive they come from.
    #[command(flatten)]
    pub tiers: TierArgs,
    /// Most memory of the device to take: 40GB, 8GiB, or auto [default: auto, what is free]
    #[arg(long, value_name = "BYTES", help_heading = "Memory")]
    pub vram: Option<Amount>,
}

/// Memory for routed experts, and the drive they come from.
#[derive(Clone, Debug, Default, Args)]
pub struct TierArgs {
    /// Memory for routed experts: 1.5GB, 300MiB, 20% (of all of them) or auto; the rest is read from the drive as it is
    /// needed. The answers do not depend on it [default: auto, which keeps the whole file in memory where it fits]
    #[arg(long, value_name = "BYTES", help_heading = "Memory")]
    pub ram: Option<Amount>,
    /// Keep counts of expert use here from run to run: a later one starts with the memory divided as this one needed it
    #[arg(long, value_name = "FILE", value_parser = path(), help_heading = "Memory")]
    pub usage: Option<PathBuf>,
    /// A copy of the model on another drive, to read from both; may be given several times
    #[arg(long, value_name = "PATH", value_parser = path(), help_heading = "Memory")]
    pub mirror: Vec<PathBuf>,
    /// Do not ask the next layer's router early for what the drive will have to bring
    #[arg(long, help_heading = "Memory")]
    pub no_look_ahead: bool,
    /// What reads the drive
    #[arg(long, value_enum, default_value = "auto", help_heading = "Memory")]
    pub drive: DriveChoice,
    /// Read through the page cache even where the drive can be read around it
    #[arg(long, help_heading = "Memory")]
    pub page_cache: bool,
}

/// What reads the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DriveChoice {
    /// io_uring where it works, threads elsewhere.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    Threads,
}

/// Where to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// The best there is.
    Auto,
    /// The CPU.
    Cpu,
    /// CUDA devices, as the user wrote them.
    Cuda(String),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cuda =
            |list: &str| list.split(',').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(text.to_owned())),
            _ if text.strip_prefix("cuda:").is_some_and(cuda) => Ok(Self::Cuda(text.to_owned())),
            _ => Err("it must be auto, cpu, cuda, or cuda:N,… with device numbers".to_owned()),
        }
    }
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// Dequantised weights, f32 activations.
    Exact,
    /// Integer dot products.
    Fast,
}

/// Storage of latents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kv {
    /// Four bytes a value.
    F32,
    /// Two bytes a value.
    F16,
}

/// How tokens are drawn.
#[derive(Clone, Debug, Args)]
pub struct SamplingArgs {
    /// 0 takes the likeliest token; above, the spread of the draw [default: the file's recommendation, else 1.0]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = finite_at_least_zero, help_heading = "Sampling")]
    pub temperature: Option<f32>,
    /// Keep the likeliest tokens that together have this probability [default: the file's recommendation, else 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = fraction, help_heading = "Sampling")]
    pub top_p: Option<f32>,
    /// Keep the K likeliest tokens; 0 keeps all [default: the file's recommendation, else 0]
    #[arg(long, value_name = "K", help_heading = "Sampling")]
    pub top_k: Option<u32>,
    /// Keep tokens at least this likely relative to the likeliest
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = fraction, default_value = "0", help_heading = "Sampling")]
    pub min_p: f32,
    /// Divide the logits of tokens already there by this; 1 is off
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = positive, default_value = "1", help_heading = "Sampling")]
    pub repetition_penalty: f32,
    /// Subtract this from the logits of tokens already there
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite, default_value = "0", help_heading = "Sampling")]
    pub presence_penalty: f32,
    /// Subtract this for each time a token was there
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite, default_value = "0", help_heading = "Sampling")]
    pub frequency_penalty: f32,
}

/// Any path, the empty one too: an empty `MAYA_MODEL` counts as unset, and clap's own parser would refuse it.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn finite(text: &str) -> Result<f32, String> {
    text.parse::<f32>().ok().filter(|v| v.is_finite()).ok_or_else(|| "it must be a number".to_owned())
}

fn finite_at_least_zero(text: &str) -> Result<f32, String> {
    finite(text).ok().filter(|v| *v >= 0.0).ok_or_else(|| "it must be a number of at least 0".to_owned())
}

fn positive(text: &str) -> Result<f32, String> {
    finite(text).ok().filter(|v| *v > 0.0).ok_or_else(|| "it must be a number above 0".to_owned())
}

fn fraction(text: &str) -> Result<f32, String> {
    finite(text)
        .ok()
        .filter(|v| (0.0..=1.0).contains(v))
        .ok_or_else(|| "it must lie between 0 and 1".to_owned())
}

/// Token ids on the command line, separated by blanks or commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<u32>);

impl FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pieces = text.split(|c: char| c.is_whitespace() || c == ',').filter(|p| !p.is_empty());
        let ids = pieces
            .map(|p| {
                p.parse::<u32>()
                    .map_err(|_| format!("{p:?} is not a token id (a whole number of at least 0)"))
            })
            .collect::<Result<Vec<u32>, String>>()?;
        Ok(Self(ids))
    }
}
