//! A model that lies in a device's memory as a whole: bits against the CPU, then prompts of some lengths and decode after them, with
//! the time of every kind of launch.
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
/// Tokens of a prompt, and those decoded after it.
const LENGTHS: [(usize, usize); 4] = [(512, 64), (2048, 64), (8192, 64), (32_768, 64)];

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
    let measured = lengths(workspace, maya, repeat, &file);
    if file.exists() {
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    Ok(json!({ "parity": parity, "runs": measured? }))
}

/// Every comparison of the level, whether it was passed.
fn parity(workspace: &Workspace, maya: &Path, fixtures: &Path) -> Result<Value> {
    let mut command = workspace.command(&maya.to_string_lossy());
    command.args(["parity", "--level", "cuda", "--json", "--fixtures"]).arg(fixtures);
    println!("{}", describe(&command));
    serde_json::from_str(&output(&mut command)?).context("maya parity did not print JSON")
}

/// A run for each length.
fn lengths(workspace: &Workspace, maya: &Path, repeat: u32, file: &Path) -> Result<Vec<Value>> {
    run(workspace.command(&maya.to_string_lossy()).arg("synth").arg(file))?;
    LENGTHS
        .iter()
        .map(|(prefill, decode)| {
            let mut command = workspace.command(&maya.to_string_lossy());
            command.args([
                "bench",
                "--device",
                "cuda",
                "--profile",
                "--ctx",
                &(prefill + decode).to_string(),
            ]);
            command.args(["--repeat", &repeat.to_string(), "--prefill", &prefill.to_string()]);
            command.args(["--decode", &decode.to_string(), "--model"]).arg(file);
            println!("{}", describe(&command));
            let measured: Value =
                serde_json::from_str(&output(&mut command)?).context("maya bench did not print JSON")?;
            println!(
                "{prefill} tokens: prefill {}, decode {} tok/s",
                measured["prefill"]["median_tok_s"], measured["decode"]["median_tok_s"]
            );
            Ok(measured)
        })
        .collect()
}
