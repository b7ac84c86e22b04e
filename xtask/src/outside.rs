//! The two leaf crates that stand alone, proved from outside of this workspace: an engine of another kind that uses them,
//! and their own tests in a workspace that has no other crate of ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{run, run_within};
use crate::workspace::Workspace;

/// The project that is no member of the workspace.
const PROJECT: &str = "examples/blob-stream";
/// The crates that it may use, and no more.
const CRATES: &[&str] = &["nvme-reader", "tier-cache"];

/// Builds and runs the project, then builds and tests the crates alone. Everything lies below the target folder.
pub fn check(workspace: &Workspace) -> Result<()> {
    let target = workspace.target().join("outside");
    // What both depend on is built once: one target folder, one profile, and both lock files name the same versions.
    let cargo = |folder: &Path, words: &[&str]| {
        let mut command = Command::new("cargo");
        command.current_dir(folder).args(words).env("CARGO_TARGET_DIR", target.join("build"));
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
        command
    };
    let project = workspace.root.join(PROJECT);
    uses_only_the_crates(&project.join("Cargo.toml"))?;
    let words = ["run", "--quiet", "--locked", "--", "--check"];
    run_within(&cargo(&project, &words), Duration::from_secs(600))?;

    let alone = target.join("alone");
    copy_alone(workspace, &alone)?;
    for name in CRATES {
        run(&mut cargo(&alone.join(name), &["test", "--quiet"]))?;
    }
    Ok(())
}

fn uses_only_the_crates(manifest: &Path) -> Result<()> {
    let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let names = dependencies(&text);
    if names != CRATES {
        bail!("{} depends on {names:?}, and on {CRATES:?} it should", manifest.display());
    }
    Ok(())
}

fn dependencies(manifest: &str) -> Vec<&str> {
    let table = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    let rows = table.take_while(|line| !line.starts_with('['));
    rows.filter_map(|line| line.split_once('=').map(|(name, _)| name.trim())).collect()
}

/// The crates, and of this workspace's manifest what they inherit. Files that are the same are left as they are, so that
/// nothing is built twice.
fn copy_alone(workspace: &Workspace, to: &Path) -> Result<()> {
    let manifest =
        fs::read_to_string(workspace.root.join("Cargo.toml")).context("the workspace's manifest")?;
    let mut wanted = vec![(PathBuf::from("Cargo.toml"), alone(&manifest).into_bytes())];
    for file in workspace.files()? {
        let Some(inside) = file.strip_prefix("crates/") else { continue };
        if CRATES.iter().any(|name| inside.starts_with(&format!("{name}/"))) {
            let bytes = fs::read(workspace.root.join(&file)).with_context(|| file.clone())?;
            wanted.push((PathBuf::from(inside), bytes));
        }
    }
    // The versions that this workspace has; cargo drops what is not needed.
    let lock = to.join("Cargo.lock");
    if !lock.is_file() {
        wanted.push((PathBuf::from("Cargo.lock"), fs::read(workspace.root.join("Cargo.lock"))?));
    }
    for name in CRATES {
        remove_others(&to.join(name), to, &wanted)?;
    }
    for (path, bytes) in wanted {
        let path = to.join(path);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            continue;
        }
        let folder = path.parent().context("a file lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A test that was renamed must not be run from an old copy.
fn remove_others(folder: &Path, root: &Path, wanted: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, root, wanted)?;
        } else if !wanted.iter().any(|(name, _)| root.join(name) == path) {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// This workspace's manifest for the crates alone: other members, paths to them and profiles of packages are gone.
fn alone(manifest: &str) -> String {
    let mut kept = String::new();
    let mut skipped = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            skipped = line.starts_with("[profile.");
        }
        let replaced = match line.split_once('=').map(|(key, _)| key.trim()) {
            Some("members") => format!("members = {CRATES:?}"),
            Some("exclude" | "default-members") => continue,
            _ if skipped || line.contains("{ path = ") => continue,
            _ => line.to_owned(),
        };
        kept.push_str(&replaced);
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"[workspace]
members = ["crates/*"]
exclude = ["x"]
default-members = ["crates/top"]

[workspace.package]
edition = "2024"

[workspace.dependencies]
tier-cache = { path = "crates/tier-cache", version = "0.1.0" }
rustix = { version = "1", features = ["mm"] }

[profile.dev.package.top]
opt-level = 3

[workspace.lints.rust]
missing_docs = "warn"
"#;

    #[test]
    fn what_the_crates_inherit_is_kept_and_nothing_else() {
        let text = alone(MANIFEST);
        for part in ["members = [\"nvme-reader\", \"tier-cache\"]", "edition", "rustix = {", "missing_docs"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in ["crates/", "exclude", "default-members", "opt-level"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn dependencies_are_the_rows_of_their_table() {
        let text =
            "[package]\nname = \"x\"\n[dependencies]\na = { path = \"b\" }\nc = \"1\"\n[workspace]\nd = 1\n";
        assert_eq!(dependencies(text), ["a", "c"]);
        assert!(dependencies(MANIFEST).is_empty());
    }
}
