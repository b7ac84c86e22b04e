//! `cargo install --path crates/maya-cli`, and the installed binary in an empty folder without any environment.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::process::{output, run};
use crate::workspace::Workspace;

/// Installs under the target folder, then runs what was installed where there is nothing else.
pub fn check(workspace: &Workspace) -> Result<()> {
    let root = workspace.target().join("install");
    let mut install = workspace.command("cargo");
    install.args(["install", "--path", "crates/maya-cli", "--locked", "--force", "--quiet", "--root"]);
    run(install.arg(&root))?;
    let binary = root.join("bin").join(format!("maya{}", std::env::consts::EXE_SUFFIX));
    let empty = root.join("empty");
    if empty.exists() {
        fs::remove_dir_all(&empty).with_context(|| empty.display().to_string())?;
    }
    fs::create_dir(&empty).with_context(|| empty.display().to_string())?;
    let alone = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&binary);
        output(command.args(arguments).current_dir(&empty).env_clear())
    };
    let version = alone(&["--version"])?;
    let answer = alone(&[
        "generate",
        "--prompt",
        "The capital of France is",
        "--max-tokens",
        "8",
        "--temperature",
        "0",
    ])?;
    println!("{}: {}", version.trim(), answer.trim());
    if !version.starts_with("maya ") || answer.trim().is_empty() {
        bail!("the installed binary printed {version:?} and {answer:?}");
    }
    let left: Vec<_> = fs::read_dir(&empty)?.collect();
    if !left.is_empty() {
        bail!("the installed binary left {left:?} in the folder it ran in");
    }
    Ok(())
}
