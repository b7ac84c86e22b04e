//! `maya parity`: this engine against golden values, level by level. `cargo xtask parity` runs it on the fixtures.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod cuda_batch;
#[cfg(feature = "cuda")]
mod cuda_deep;
#[cfg(feature = "cuda")]
mod cuda_draw;
#[cfg(feature = "cuda")]
mod cuda_forced;
mod excuse;
mod golden;
mod greedy;
mod isa;
mod layer;
mod model;
mod op;
mod q8;
mod subject;
mod table;
mod tolerance;
mod words;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::interrupt;
use crate::output::Out;
use golden::Fixtures;
use table::{Outcome, Table};
use tolerance::limit;

/// `maya parity`
#[derive(Debug, Args)]
pub struct ParityArgs {
    /// What to compare; several are separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LEVEL")]
    level: Vec<Level>,
    /// A folder that `golden unpack` made
    #[arg(long, value_name = "DIR")]
    fixtures: PathBuf,
    /// Another model, of which a device and the CPU go on from made-up state far into a context
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "FILE")]
    deep: Option<PathBuf>,
    /// Tokens of that state
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "deep")]
    depth: u32,
    /// Level cuda only: prompts of at most 64 tokens and few draws, for a device that is slow
    #[cfg(feature = "cuda")]
    #[arg(long)]
    brief: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Block formats: values and products.
    Op,
    /// Instruction sets: bits.
    Isa,
    /// Single layers: streams.
    Layer,
    /// Tokens of strings, renderings of conversations.
    Text,
    /// Whole prompts: logits.
    Model,
    /// Continuations: tokens.
    Greedy,
    /// A device: bits.
    #[cfg(feature = "cuda")]
    Cuda,
}

/// A selection closer than f32 rounding excuses a prompt; two such prompts in a run are a pattern.
fn judge_excuses(table: &mut Table) -> Result<()> {
    if table.excused().is_empty() {
        return Ok(());
    }
    let (count, names) = (table.excused().len() as f64, table.excused().join(", "));
    table.at_most("all", "all", "excused prompts", count, limit("model.excused-prompts")?, names);
    Ok(())
}

/// Compares, and fails if any comparison missed.
pub fn run(args: &ParityArgs) -> Result<()> {
    let fixtures = Fixtures::open(&args.fixtures)?;
    let mut out = Out::new();
    let mut table = Table::default();
    for level in Level::value_variants() {
        if !args.level.is_empty() && !args.level.contains(level) {
            continue;
        }
        if interrupt::pressed() {
            bail!("interrupted");
        }
        let printed = table.len();
        match level {
            Level::Op => op::run(&fixtures, &mut table)?,
            Level::Isa => isa::run(&fixtures, &mut table)?,
            Level::Layer => layer::run(&fixtures, &mut table)?,
            Level::Text => words::run(&fixtures, &mut table)?,
            Level::Model => model::run(&fixtures, &mut table)?,
            Level::Greedy => greedy::run(&fixtures, &mut table)?,
            #[cfg(feature = "cuda")]
            Level::Cuda => {
                let deep = args.deep.as_deref().map(|file| (file, args.depth as usize));
                cuda::run(&fixtures, args.brief, deep, &mut table)?;
            }
        }
        if !args.json {
            table.print(printed, &mut out)?;
        }
    }
    let printed = table.len();
    judge_excuses(&mut table)?;
    if args.json {
        out.line(table.json())?;
    } else {
        table.print(printed, &mut out)?;
    }
    let missed = table.count(Outcome::Missed);
    if missed > 0 {
        bail!("{missed} of {} comparisons missed their limit", table.len());
    }
    if table.count(Outcome::Passed) == 0 {
        bail!("nothing could be compared: {} holds no golden data", args.fixtures.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_excused_prompt_fails() {
        let missed = |prompts: &[usize]| {
            let mut table = Table::default();
            prompts.iter().for_each(|p| table.excuse("a", *p));
            judge_excuses(&mut table).unwrap();
            table.count(Outcome::Missed)
        };
        assert_eq!((missed(&[]), missed(&[7, 7]), missed(&[7, 64])), (0, 0, 1));
    }
}
