//! A model that lies in a device's memory as a whole: bits against the CPU, then prompts of some lengths and decode after them, of one
//! sequence and of several together, with the time of every kind of launch.
//!
//! The file has the published model's sizes and random weights, 96 GB in a file system in memory. A token moves its weights, the
//! recurrent state both ways and the latents: these bytes over the device's bandwidth are its bound.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{describe, output, run};
use crate::workspace::Workspace;

/// Memory as a file system.
const FOLDER: &str = "/dev/shm";
/// What is measured in one process.
struct Run {
    /// Made-up tokens before the prompt.
    depth: usize,
    prefill: usize,
    sequences: usize,
}

const fn run_of(depth: usize, prefill: usize, sequences: usize) -> Run {
    Run { depth, prefill, sequences }
}

/// Prompts of some lengths, sequences that decode together, and depths that are not worth the time of getting there.
const RUNS: [Run; 8] = [
    run_of(0, 512, 1),
    run_of(0, 512, 2),
    run_of(0, 512, 8),
    run_of(0, 2048, 1),
    run_of(0, 8192, 1),
    run_of(0, 32_768, 1),
    run_of(65_536, 512, 1),
    run_of(262_144, 512, 1),
];
/// Sequences together again, in a file whose routers prefer no expert: eight tokens of the published model take 58 different ones in a
/// layer (7.3 a token, docs/BENCHMARKING.md), those of this file 57, those of the file with a preference 29.
const FLAT_RUNS: [Run; 1] = [run_of(0, 512, 8)];
/// Tokens that are decoded after each prompt.
const DECODED: usize = 64;

/// Compares, writes the file, measures.
pub fn measure(workspace: &Workspace, maya: &Path, repeat: u32, fixtures: Option<&Path>) -> Result<Value> {
    let parity = match fixtures {
        Some(fixtures) => parity(workspace, maya, fixtures)?,
        None => Value::Null,
    };
    if !Path::new(FOLDER).is_dir() {
        bail!("{FOLDER} is not here: the file is measured in memory");
    }
    let file = Path::new(FOLDER).join(format!("maya-cuda-{}.gguf", std::process::id()));
    let of_file = |runs: &[Run], options: &[&str]| {
        let measured = lengths(workspace, maya, repeat, &file, runs, options);
        if file.exists() {
            std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
        }
        measured
    };
    let (runs, flat) = (of_file(&RUNS, &[])?, of_file(&FLAT_RUNS, &["--skew", "0"])?);
    Ok(json!({ "parity": parity, "runs": runs, "runs_without_preferred_experts": flat }))
}

/// Every comparison of the level, whether it was passed.
fn parity(workspace: &Workspace, maya: &Path, fixtures: &Path) -> Result<Value> {
    let mut command = workspace.command(&maya.to_string_lossy());
    command.args(["parity", "--level", "cuda", "--json", "--fixtures"]).arg(fixtures);
    println!("{}", describe(&command));
    serde_json::from_str(&output(&mut command)?).context("maya parity did not print JSON")
}

/// Writes the file and does the runs on it.
fn lengths(
    workspace: &Workspace,
    maya: &Path,
    repeat: u32,
    file: &Path,
    runs: &[Run],
    options: &[&str],
) -> Result<Vec<Value>> {
    run(workspace.command(&maya.to_string_lossy()).arg("synth").args(options).arg(file))?;
    runs.iter()
        .map(|Run { depth, prefill, sequences }| {
            let mut command = workspace.command(&maya.to_string_lossy());
            command.args([
                "bench",
                "--device",
                "cuda",
                "--profile",
                "--ctx",
                &(depth + prefill + DECODED).to_string(),
            ]);
            command.args(["--fill-depth", &depth.to_string(), "--sequences", &sequences.to_string()]);
            command.args(["--repeat", &repeat.to_string(), "--prefill", &prefill.to_string()]);
            command.args(["--decode", &DECODED.to_string(), "--model"]).arg(file);
            println!("{}", describe(&command));
            let measured: Value =
                serde_json::from_str(&output(&mut command)?).context("maya bench did not print JSON")?;
            println!(
                "{sequences} times {prefill} tokens behind {depth}: prefill {}, decode {} tok/s",
                measured["prefill"]["median_tok_s"], measured["decode"]["median_tok_s"]
            );
            Ok(measured)
        })
        .collect()
}
