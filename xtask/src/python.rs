//! Python's `gguf` package reads what `maya synth` writes: the package in an environment of its own under the target
//! folder, pinned by hash, and the test that is skipped where it is not installed.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process::run;
use crate::workspace::Workspace;

/// Set for the test: a reader that cannot be imported is then a failure.
const REQUIRED: &str = "MAYA_TEST_PYTHON_GGUF";

/// Installs the package and runs the test.
pub fn check(workspace: &Workspace) -> Result<()> {
    let bin = environment(workspace)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)))
        .context("the path of the target folder cannot stand in PATH")?;
    // All packages, so that what the other tests built is used again.
    let words = ["test", "--workspace", "--test", "synth", "the_python_reader_opens_it"];
    run(workspace.command("cargo").args(words).env("PATH", path).env(REQUIRED, "1"))
}

/// The folder with the environment's `python3`.
fn environment(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("tools").join("python");
    let (bin, python) = (folder.join("bin"), folder.join("bin").join("python3"));
    if !python.is_file() {
        run(workspace.command("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let mut install = workspace.command(&python.to_string_lossy());
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    install.args(["--only-binary", ":all:", "--require-hashes", "-r", "xtask/python/requirements.txt"]);
    run(&mut install)?;
    Ok(bin)
}
