//! Flags of single commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::engine::{EngineArgs, Ids, ModelArgs, SamplingArgs, path};
use crate::synth::shape::Shape;
use crate::synth::trace::TraceArgs;

/// `maya serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Address to listen on; 0.0.0.0 opens it to the network
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    pub port: u16,
}

/// `maya chat`
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Instructions ahead of the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// How much the model thinks before it answers
    #[arg(long, value_enum, default_value = "off")]
    pub think: Think,
    /// Most tokens of an answer, thinking included
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
}

/// Amount of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Think {
    /// None.
    Off,
    /// A little.
    Low,
    /// More.
    High,
    /// As much as it wants.
    Max,
}

/// `maya generate`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true))]
pub struct GenerateArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// The prompt as text; nothing is added to it
    #[arg(long, value_name = "TEXT", group = "input")]
    pub prompt: Option<String>,
    /// The prompt as token ids, separated by blanks or commas
    #[arg(long, value_name = "IDS", group = "input")]
    pub ids: Option<Ids>,
    /// Most tokens to add
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub max_tokens: u32,
    /// Whether special tokens written in --prompt count as such
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 1, value_name = "BOOL")]
    pub parse_special: bool,
    /// Write which experts every token took to this file, prompt and answer in order: a routing trace
    #[arg(long, value_name = "FILE")]
    pub dump_routes: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// `maya logits`
#[derive(Debug, Args)]
pub struct LogitsArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The prompt as token ids, separated by blanks or commas
    #[arg(long, value_name = "IDS")]
    pub ids: Ids,
    /// The safetensors file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write which experts every token took to this file: a routing trace
    #[arg(long, value_name = "FILE")]
    pub dump_routes: Option<PathBuf>,
}

/// `maya perplexity`
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// The text, UTF-8
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// Compare with the logits that --save wrote for the same text and window
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Save the logits as the base of a later comparison
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Write which experts every token took to this file: a routing trace
    #[arg(long, value_name = "FILE")]
    pub dump_routes: Option<PathBuf>,
    /// The text is cut into sequences of this many tokens [default: 512, or --ctx if that is smaller]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(2..))]
    pub window: Option<u32>,
    /// Whether special tokens written in the text count as such
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 1, value_name = "BOOL")]
    pub parse_special: bool,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// `maya tokenize`, `maya render`
#[derive(Debug, Args)]
pub struct TextArgs {
    /// Which file.
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `maya inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A GGUF file, any shard of a split one, or its folder [default: the bundled demo model]
    #[arg(env = "MAYA_MODEL", value_parser = path())]
    pub path: Option<PathBuf>,
    /// The same by the name that other commands have for it.
    #[arg(long, value_name = "PATH", value_parser = path(), hide = true)]
    pub model: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// `maya synth`
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// The file to write; one of this name is replaced once the new one is whole
    #[arg(required_unless_present = "trace", conflicts_with = "trace")]
    pub out: Option<PathBuf>,
    /// Sizes.
    #[command(flatten)]
    pub shape: Shape,
    /// Instead of weights.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// `maya doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Which file.
    #[command(flatten)]
    pub model: ModelArgs,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Read the drive for seconds: numbers to compute with, where a second's are there to tell slow from fast
    #[arg(long, hide = true)]
    pub thorough: bool,
}

/// `maya bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill: u32,
    /// Tokens to decode after it
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub decode: u32,
    /// Samples of each
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Sequences that are fed one after the other and decode together; rates are those of all of them
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub sequences: u32,
    /// Tokens before the prompt, made up from a seed: a depth without the time that it takes to get there
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub fill_depth: u32,
    /// Tell also where the time of a device's token goes, launch by launch
    #[arg(long)]
    pub profile: bool,
}

/// `maya completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `maya eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// JSON lines with prompt_ids, expected and skill
    pub file: PathBuf,
    /// Most tokens of an answer
    #[arg(long, default_value_t = 140, value_name = "N")]
    pub max_tokens: u32,
    /// Only the first N rows
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Instead of answering: mean KL from the exact arithmetic over prompt and expected answer
    #[arg(long)]
    pub kl: bool,
    /// With --kl: the exact arithmetic runs this file instead of the model itself
    #[arg(long, value_name = "PATH", requires = "kl")]
    pub base: Option<PathBuf>,
}
