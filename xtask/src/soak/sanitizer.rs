//! A device's kernels under compute-sanitizer: memory, races, values that nobody wrote. For a machine with an NVIDIA GPU and the
//! CUDA toolkit.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::SKIPPED;
use crate::process::describe;
use crate::workspace::Workspace;

const TOOLS: [&str; 3] = ["memcheck", "racecheck", "initcheck"];
const MODELS: [&str; 2] = ["tiny-a.maya.gguf", "tiny-b.maya-00001-of-00003.gguf"];
/// Sequences that decode together: one is a pass of its own kernels, several are rows of a span.
const SEQUENCES: [u32; 2] = [1, 3];
/// Tokens of each prompt, a span, and those decoded after it.
const PREFILL: u32 = 100;
const DECODE: u32 = 16;
/// The same where races are looked for: every launch of a token's products, whose blocks have 200 KB of shared memory, leaves that
/// tool with half a gigabyte of the host's memory more.
const FEWER: [u32; 2] = [12, 4];
/// So of a sequence alone it looks at so many launches, more than one token's, of a prompt that is short enough to go token by token.
const LAUNCHES: &str = "150";
const ALONE: [u32; 2] = [1, 2];
/// What compute-sanitizer ends with where it found something.
const FOUND: i32 = 87;
/// Lines of a run's end that the report keeps.
const KEPT: usize = 12;

/// Every tool on every model.
pub fn soak(workspace: &Workspace, maya: &Path, device: &str, fixtures: &Path) -> Result<Value> {
    if let Err(error) = Command::new("compute-sanitizer").arg("--version").output() {
        bail!("compute-sanitizer cannot be started: {error}");
    }
    let (mut runs, mut reached) = (Vec::new(), serde_json::Map::new());
    for tool in TOOLS {
        let mut clean = json!(true);
        for model in MODELS {
            for sequences in SEQUENCES {
                let mut command = workspace.command("compute-sanitizer");
                command.args(["--tool", tool, "--error-exitcode", &FOUND.to_string()]);
                let races = tool == "racecheck";
                if races && sequences == 1 {
                    command.args(["--launch-count", LAUNCHES]);
                }
                let [prefill, decode] = match (races, sequences) {
                    (true, 1) => ALONE,
                    (true, _) => FEWER,
                    _ => [PREFILL, DECODE],
                };
                command.arg(maya);
                command.args(["bench", "--device", device, "--repeat", "1"]);
                command.args(["--prefill", &prefill.to_string(), "--decode", &decode.to_string()]);
                command.args(["--ctx", "256", "--sequences", &sequences.to_string(), "--model"]);
                command.arg(fixtures.join(model));
                println!("{}", describe(&command));
                let output = command.output()?;
                let text =
                    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                let summary: Vec<String> = text
                    .iter()
                    .flat_map(|text| text.lines())
                    .filter(|line| line.starts_with("=========") || line.starts_with("maya:"))
                    .map(str::to_owned)
                    .collect();
                let kept = &summary[summary.len().saturating_sub(KEPT)..];
                kept.iter().for_each(|line| println!("  {line}"));
                // A tool that the host refuses says so, and is neither.
                let verdict = match output.status.code() {
                    Some(0) => json!(true),
                    Some(FOUND) => json!(false),
                    _ => json!(SKIPPED),
                };
                if verdict != json!(true) && clean != json!(false) {
                    clean = verdict.clone();
                }
                runs.push(json!({
                    "tool": tool,
                    "model": model,
                    "sequences": sequences,
                    "status": output.status.code(),
                    "clean": verdict,
                    "says": kept,
                }));
            }
        }
        reached.insert(tool.to_owned(), clean);
    }
    Ok(json!({ "reached": reached, "device": device, "runs": runs }))
}
