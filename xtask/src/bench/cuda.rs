//! A model that lies in a device's memory as a whole: bits against the CPU, then decode with the time of every kind of launch.
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
/// Tokens before and in a measurement.
const LENGTHS: [&str; 4] = ["--prefill", "16", "--decode", "64"];

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
    let measured = decode(workspace, maya, repeat, &file);
    if file.exists() {
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    Ok(json!({ "parity": parity, "decode": measured? }))
}

/// Every comparison of the level, whether it was passed.
fn parity(workspace: &Workspace, maya: &Path, fixtures: &Path) -> Result<Value> {
    let mut command = workspace.command(&maya.to_string_lossy());
    command.args(["parity", "--level", "cuda", "--json", "--fixtures"]).arg(fixtures);
    println!("{}", describe(&command));
    serde_json::from_str(&output(&mut command)?).context("maya parity did not print JSON")
}

fn decode(workspace: &Workspace, maya: &Path, repeat: u32, file: &Path) -> Result<Value> {
    run(workspace.command(&maya.to_string_lossy()).arg("synth").arg(file))?;
    let mut command = workspace.command(&maya.to_string_lossy());
    command.args([
        "bench",
        "--device",
        "cuda",
        "--profile",
        "--ctx",
        "4096",
        "--repeat",
        &repeat.to_string(),
    ]);
    command.args(LENGTHS).arg("--model").arg(file);
    println!("{}", describe(&command));
    let measured: Value =
        serde_json::from_str(&output(&mut command)?).context("maya bench did not print JSON")?;
    println!("decode: {} tok/s", measured["decode"]["median_tok_s"]);
    Ok(measured)
}
