//! The command line: names, defaults and help texts. No behaviour.

mod budget;
mod command;
mod engine;
mod plan;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use budget::{Amount, Budget};
pub use command::{
    BenchArgs, ChatArgs, CompletionsArgs, DoctorArgs, EvalArgs, GenerateArgs, InspectArgs, LogitsArgs,
    PerplexityArgs, ServeArgs, SynthArgs, TextArgs, Think,
};
pub use engine::{Device, DriveChoice, EngineArgs, Kv, Precision, SamplingArgs, TierArgs};
pub use plan::{MachineArgs, ModelOf, PlanArgs, PopularityArgs, ReplayArgs, Tier};

const ABOUT: &str = "maya runs GLM-5.3-Flash from GGUF files: chat in the terminal, or serve it over HTTP.";
const AFTER: &str = "Without --model, commands use the small demo model inside this binary.\n\n\
    Examples:\n  maya chat\n  maya serve --model /models/GLM-5.3-Flash-00001-of-00003.gguf\n\n\
    Exit codes: 0 done; 1 a failure, with one sentence on standard error; 2 a command line that cannot be understood; 130 \
    ended at once by another Ctrl-C after the first had asked to finish.";
/// `--version`: the version, the commit, and what is compiled in.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("MAYA_COMMIT"),
    ", features: ",
    env!("MAYA_FEATURES"),
    ")"
);

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
    /// Write a file of the real shape with random weights, at any depth, or a routing trace
    #[command(
        after_help = "Examples:\n  maya synth /dev/shm/full.gguf                 (45 layers + NextN: 96 GB)\n  \
        maya synth /dev/shm/nine.gguf --layers 9      (3 dense + 6 MoE layers: 18 GB)\n  maya synth \
        --trace routes.safetensors --tokens 2000      (which experts 2,000 tokens take, for maya replay and maya plan)\n\n\
        The text of a random model is noise: use it to measure, not to chat. A trace is the same for the same seed on every \
        machine, and the same as NumPy's generator gives."
    )]
    Synth(SynthArgs),
    /// Predict tokens a second on a machine, lane by lane, and what to buy next
    #[command(
        after_help = "Examples:\n  maya plan --box v100-64\n  maya plan --box rtx3090-16 --ram 32GB --json\n  maya \
        plan --vram 16GB --ram 64GB --vram-gbps 900 --pcie-gbps 25 --cpu-gbps 50 --drive-gbps 6\n  maya plan --measure \
        --model /models/GLM-5.3-Flash-00001-of-00003.gguf\n  maya plan --box maya-launch --model-of article --plot ram.svg\n\n\
        It is a bound, not a promise: no engine is faster, and a good one is near it."
    )]
    Plan(PlanArgs),
    /// Run cache policies over a routing trace: hit rates and what has to move
    #[command(
        after_help = "Examples:\n  maya replay routes.safetensors\n  maya replay routes.safetensors --policy \
        belady --slots 17,61 --plot hits.svg"
    )]
    Replay(ReplayArgs),
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
    /// Compile the device code, or run a little of it
    #[cfg(feature = "cuda")]
    #[command(hide = true, after_help = "Example:\n  maya kernels check --arch sm_70,sm_90")]
    Kernels(crate::cmd::kernels::KernelsArgs),
    /// Print the path of the demo model on disk, writing it to the cache folder first
    #[command(hide = true, after_help = "Example:\n  llama-cli -m \"$(maya demo-path)\"")]
    DemoPath,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::engine::Ids;
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
