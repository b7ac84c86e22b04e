//! `maya`: the composition root. Reads the command line and wires the crates together.

#![forbid(unsafe_code)]

mod args;
mod cmd;
mod demo;
mod device;
mod drive;
mod dump;
mod engine;
mod exec;
mod group;
mod interrupt;
mod logs;
mod machine;
mod output;
mod outputs;
mod parity;
mod plan;
mod plot;
mod progress;
mod random;
mod replay;
mod routes;
mod safetensors;
mod served;
mod source;
mod survey;
mod synth;
mod text;
mod tiers;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // A closed pipe is no reason to fail: there is nobody left to tell.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.is::<output::StdoutClosed>() => ExitCode::SUCCESS,
        Err(e) => {
            output::failure(format_args!("{e:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let level = if matches!(cli.command, Command::Serve(_)) { "info" } else { "warn" };
    logs::install(&cli.log, level)?;
    if handles_interrupt(&cli.command) {
        interrupt::install()?;
    }
    match cli.command {
        Command::Serve(args) => cmd::serve::run(&args),
        Command::Chat(args) => cmd::chat::run(&args),
        Command::Generate(args) => cmd::generate::run(&args),
        Command::Logits(args) => cmd::logits::run(&args),
        Command::Perplexity(args) => cmd::perplexity::run(&args),
        Command::Tokenize(args) => cmd::lines::tokenize(&args),
        Command::Render(args) => cmd::lines::render(&args),
        Command::Inspect(args) => cmd::inspect::run(&args),
        Command::Synth(args) => cmd::synth::run(&args),
        Command::Plan(args) => cmd::plan::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Completions(args) => cmd::completions::run(&args),
        Command::Parity(args) => parity::run(&args),
        Command::Eval(args) => cmd::eval::run(&args),
        #[cfg(feature = "cuda")]
        Command::Kernels(args) => cmd::kernels::run(&args),
        Command::DemoPath => output::Out::new().line(demo::on_disk()?.display()),
    }
}

/// Commands that have something to finish on Ctrl-C. The others leave it to the system: they end at once.
fn handles_interrupt(command: &Command) -> bool {
    !matches!(
        command,
        Command::Tokenize(_)
            | Command::Render(_)
            | Command::Inspect(_)
            | Command::Plan(_)
            | Command::Doctor(_)
            | Command::Completions(_)
    )
}
