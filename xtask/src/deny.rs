//! `cargo deny`: licences, bans and sources of what is linked; installs the pinned tool once under the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::process::{output, run};
use crate::workspace::Workspace;

/// The version whose rules deny.toml is written for.
const VERSION: &str = "0.20.2";

/// Checks the dependency graph against deny.toml.
pub fn check(workspace: &Workspace) -> Result<()> {
    let tool = tool(workspace)?;
    let mut command = workspace.command(&tool.to_string_lossy());
    // Duplicate versions are warnings and would fill the screen; `cargo deny check bans` by hand lists them.
    command.args(["--log-level", "error", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]);
    run(&mut command)
}

/// The installed tool, or the one built now: 75 s on two cores without its features and optimisation, which its run of
/// two seconds would not win back.
fn tool(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("tools");
    let ours = folder.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if let Some(found) = [Path::new("cargo-deny"), &ours].into_iter().find(|p| is_pinned(p)) {
        return Ok(found.to_path_buf());
    }
    println!("installing cargo-deny {VERSION} into {}", folder.display());
    let mut install = workspace.command("cargo");
    install.args([
        "install",
        "cargo-deny",
        "--version",
        VERSION,
        "--locked",
        "--no-default-features",
        "--debug",
    ]);
    install.arg("--quiet").arg("--root").arg(&folder).arg("--target-dir").arg(folder.join("build"));
    run(&mut install)?;
    // 700 MB that nobody needs again.
    std::fs::remove_dir_all(folder.join("build"))?;
    Ok(ours)
}

fn is_pinned(tool: &Path) -> bool {
    // Asked without a shell: a program that is not there is an answer, not an error.
    let version = output(Command::new(tool).arg("--version"));
    version.is_ok_and(|v| v.split_whitespace().nth(1) == Some(VERSION))
}
