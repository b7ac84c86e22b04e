//! Entry point of `cargo xtask`: checks, parity, benches and results of this workspace.
//!
//! It drives `cargo`, `git` and the `maya` binary as processes and depends on no crate of this workspace, so it cannot
//! break with what it checks.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a tool for a terminal: what it prints is its product")]

mod bench;
mod ci;
mod deny;
mod emulator;
mod fuzz;
mod install;
mod instruments;
mod kernels;
mod machine;
mod outside;
mod parity;
mod process;
mod python;
mod results;
mod serve;
mod soak;
mod source;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, parity, benches and results of the maya workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the tree itself: crate edges, unsafe, file sizes and names, words, links
    Tidy,
    /// Run every check that a change must pass, each step timed
    Ci(ci::Arguments),
    /// Compare maya with the golden data, level by level
    Parity(parity::Arguments),
    /// Measure, and write a dated file under bench-results/
    Bench(bench::Arguments),
    /// Compile the device code for every architecture with a pinned compiler
    Kernels(kernels::Arguments),
    /// Run what is too long for every change, and write a dated file under bench-results/
    Soak(soak::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Tidy => tidy::run(&workspace),
        Command::Ci(arguments) => ci::run(&workspace, &arguments),
        Command::Parity(arguments) => parity::compare(&workspace, &arguments),
        Command::Kernels(arguments) => kernels::run_named(&workspace, &arguments),
        Command::Soak(arguments) => soak::run_named(&workspace, &arguments),
        Command::Bench(arguments) => bench::run_suite(&workspace, &arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// `bench` once flattened a second struct of the same name, and clap refused every call of it.
    #[test]
    fn every_command_has_consistent_flags() {
        Arguments::command().debug_assert();
    }
}
