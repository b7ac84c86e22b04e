//! The command line: names, defaults and help texts. No behaviour.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::synth::shape::Shape;

const ABOUT: &str = "maya runs GLM-5.3-Flash from GGUF files: chat in the terminal, or serve it over HTTP.";
const AFTER: &str = "Without --model, commands use the small demo model inside this binary.\n\n\
    Examples:\n  maya chat\n  maya serve --model /models/GLM-5.3-Flash-00001-of-00003.gguf";
/// `--version`: the version, the commit, and what is compiled in.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("MAYA_COMMIT"), ", features: cpu)");

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "maya", version = VERSION, about = ABOUT, after_help = AFTER, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Logging flags of every command.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Log level (off, error, warn, info, debug, trace) or a filter such as "server=debug" [default: warn; serve: info]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Logging")]
    pub log_level: Option<String>,
    /// Form of the lines on standard error
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        value_name = "FORMAT",
        help_heading = "Logging"
    )]
    pub log_format: LogFormat,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer chat requests over HTTP
    #[command(after_help = "Example:\n  maya serve\n  curl http://127.0.0.1:8080/v1/chat/completions -H \
        'content-type: application/json' \\\n    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital \
        of France?\"}]}'")]
    Serve(ServeArgs),
    /// Talk to the model in the terminal
    #[command(
        after_help = "Example:\n  maya chat --think low\n\nInside: /help, /clear, /think, /system, /exit. Ctrl-C \
        stops the answer, not the program."
    )]
    Chat(ChatArgs),
    /// Complete one prompt
    #[command(
        after_help = "Examples:\n  maya generate --prompt \"Once upon a time\" --max-tokens 64\n  maya generate \
        --ids \"1 2 3\" --max-tokens 8 --temperature 0 --json"
    )]
    Generate(GenerateArgs),
    /// Write the logits of every position of a prompt to a safetensors file
    #[command(
        after_help = "Example:\n  maya logits --ids \"1 2 3\" --out logits.safetensors\n\nThe file holds tensor \
        `logits`, F32 [positions, vocabulary]."
    )]
    Logits(LogitsArgs),
    /// Measure perplexity on a text, and the distance from saved logits
    #[command(
        after_help = "Examples:\n  maya perplexity --text book.txt --precision exact --save base.safetensors\n  \
        maya perplexity --text book.txt --against base.safetensors"
    )]
    Perplexity(PerplexityArgs),
    /// Turn strings into token ids (JSON lines on standard input)
    #[command(
        after_help = "Example:\n  echo '\"Hello world\"' | maya tokenize\n\nA line is a JSON string, or \
        {\"text\": \"…\", \"parse_special\": false}. Each gives an array of ids."
    )]
    Tokenize(TextArgs),
    /// Turn chat requests into prompts (JSON lines on standard input)
    #[command(
        after_help = "Example:\n  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | maya \
        render\n\nEach line gives {\"prompt\": \"…\", \"ids\": […]}."
    )]
    Render(TextArgs),
    /// Say what is in a GGUF file, what a token reads from it, and what fits where
    #[command(
        after_help = "Examples:\n  maya inspect /models/GLM-5.3-Flash-00001-of-00003.gguf\n  maya inspect --json \
        model.gguf"
    )]
    Inspect(InspectArgs),
    /// Write a file of the real shape with random weights, at any depth
    #[command(
        after_help = "Examples:\n  maya synth /dev/shm/full.gguf                 (45 layers + NextN: 96 GB)\n  \
        maya synth /dev/shm/nine.gguf --layers 9      (3 dense + 6 MoE layers: 18 GB)\n\nIts text is noise: use it to \
        measure, not to chat."
    )]
    Synth(SynthArgs),
    /// Say what was found on this machine, what was not, and why
    #[command(after_help = "Example:\n  maya doctor --model /models/GLM-5.3-Flash-00001-of-00003.gguf")]
    Doctor(DoctorArgs),
    /// Measure loading, prefill and decode; the result is JSON on standard output
    #[command(after_help = "Example:\n  maya bench --prefill 512 --decode 128 --repeat 3 > bench.json")]
    Bench(BenchArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  maya completions bash > ~/.local/share/bash-completion/completions/maya"
    )]
    Completions(CompletionsArgs),
    /// Answer the rows of an evaluation file and say how many are right
    #[command(hide = true, after_help = "Example:\n  maya eval eval.jsonl --precision exact")]
    Eval(EvalArgs),
    /// Compare with golden values, level by level
    #[command(hide = true, after_help = "Example:\n  maya parity --level op,isa --fixtures DIR")]
    Parity(crate::parity::ParityArgs),
    /// Print the path of the demo model on disk, writing it to the cache folder first
    #[command(hide = true, after_help = "Example:\n  llama-cli -m \"$(maya demo-path)\"")]
    DemoPath,
}

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
    /// The same seed, prompt and settings give the same text [default: another one each time]
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub seed: Option<u64>,
}

/// Any path, the empty one too: an empty `MAYA_MODEL` counts as unset, and clap's own parser would refuse it.
fn path() -> impl TypedValueParser<Value = PathBuf> {
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
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// `maya synth`
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// The file to write
    pub out: PathBuf,
    /// Sizes.
    #[command(flatten)]
    pub shape: Shape,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_schema_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("maya "), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn devices_and_ids() {
        assert_eq!("cuda:0,1".parse(), Ok(Device::Cuda("cuda:0,1".to_owned())));
        assert!("cuda:".parse::<Device>().is_err());
        assert!("tpu".parse::<Device>().is_err());
        assert_eq!("1 2,3\n4".parse(), Ok(Ids(vec![1, 2, 3, 4])));
        assert!("1 -2".parse::<Ids>().unwrap_err().contains("\"-2\""));
    }
}
