//! How fast `maya synth` writes, where no drive is in the way.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{describe, run};
use crate::workspace::Workspace;

/// Memory as a file system.
const FOLDER: &str = "/dev/shm";
/// The real shape at five layers without the draft block: most of it experts, as in the whole file.
const SIZES: [&str; 3] = ["--layers", "5", "--no-nextn"];

/// Writes the file `repeat` times, each time anew.
pub fn measure(workspace: &Workspace, maya: &Path, repeat: u32) -> Result<Value> {
    if !Path::new(FOLDER).is_dir() {
        bail!("{FOLDER} is not here: this is measured in memory");
    }
    let folder = Path::new(FOLDER).join(format!("maya-synth-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let runs = write_files(workspace, maya, repeat, &folder);
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    runs
}

fn write_files(workspace: &Workspace, maya: &Path, repeat: u32, folder: &Path) -> Result<Value> {
    let file = folder.join("model.gguf");
    let (mut seconds, mut bytes) = (Vec::new(), 0);
    for _ in 0..repeat {
        let mut command = workspace.command(&maya.to_string_lossy());
        command.arg("synth").arg(&file).args(SIZES);
        println!("{}", describe(&command));
        let begin = Instant::now();
        run(&mut command)?;
        seconds.push(begin.elapsed().as_secs_f64());
        bytes = file.metadata()?.len();
        std::fs::remove_file(&file)?;
    }
    let speeds: Vec<f64> = seconds.iter().map(|s| bytes as f64 / s / 1e9).collect();
    Ok(json!({ "arguments": SIZES, "bytes": bytes, "seconds": seconds, "gb_s": speeds }))
}
