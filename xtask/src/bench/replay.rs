//! Cache policies on routing traces: every policy on the default trace and on one whose topics
//! change.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::process::{describe, output, run};
use crate::workspace::Workspace;

/// What `maya synth --trace` gets beside the name.
const TRACES: [(&str, &[&str]); 2] = [("default", &[]), ("topics", &["--topic", "300"])];

/// Replays each trace, which is written anew.
pub fn measure(workspace: &Workspace, maya: &Path) -> Result<Value> {
    let folder = workspace.target().join("bench");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut runs = Vec::new();
    for (name, words) in TRACES {
        let trace = folder.join(format!("routes-{name}.safetensors"));
        run(workspace.command(&maya.to_string_lossy()).args(["synth", "--trace"]).arg(&trace).args(words))?;
        let mut command = workspace.command(&maya.to_string_lossy());
        command.args(["replay", "--json"]).arg(&trace);
        println!("{}", describe(&command));
        let text = output(&mut command)?;
        let replayed: Value = serde_json::from_str(&text).context("maya replay did not print JSON")?;
        runs.push(json!({ "trace": name, "arguments": words, "replayed": replayed }));
    }
    Ok(json!({ "runs": runs }))
}
