//! `maya completions`: a script for a shell.

use anyhow::{Result, anyhow};
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::output::Out;

/// Prints the script. It is made in memory first: the generator panics where a write fails.
pub fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "maya", &mut script);
    let script = String::from_utf8(script).map_err(|_| anyhow!("the completion script is not UTF-8"))?;
    let mut out = Out::new();
    out.text(&script)?;
    out.flush()
}
