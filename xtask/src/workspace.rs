//! The workspace: where it lies, its files, its packages, its commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::output;

/// The root folder and questions about what is in it.
#[derive(Debug)]
pub struct Workspace {
    pub root: PathBuf,
}

/// A package of this workspace, as `cargo metadata` knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// Workspace packages it uses in shipped code and build scripts.
    pub normal: Vec<String>,
    /// Workspace packages that only its tests, benches and examples use.
    pub dev: Vec<String>,
    /// Crate roots of its library and binaries, relative to the workspace's root.
    pub roots: Vec<String>,
}

impl Workspace {
    /// The workspace that this binary was built from, or the current folder on a machine that does not have it.
    pub fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in no workspace")?;
        if root.is_dir() {
            return Ok(Self { root: root.to_path_buf() });
        }
        Ok(Self { root: std::env::current_dir().context("there is no current folder")? })
    }

    /// The commit that a `maya` binary names.
    pub fn commit_of(&self, maya: &Path) -> Result<String> {
        let version = output(self.command(&maya.to_string_lossy()).arg("--version"))?;
        let commit = version.split("(commit ").nth(1).and_then(|rest| rest.split([',', ')']).next());
        commit.map(|it| it.trim().to_owned()).with_context(|| format!("{} names no commit", maya.display()))
    }

    /// `program` to be run in the root folder.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// Where cargo puts what it builds.
    pub fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// Tracked files and untracked ones that are not ignored, relative to the root, sorted.
    pub fn files(&self) -> Result<Vec<String>> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let text = output(self.command("git").args(arguments))?;
        let mut files: Vec<String> = text
            .split('\0')
            .filter(|f| !f.is_empty() && self.root.join(f).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The packages of this workspace.
    pub fn packages(&self) -> Result<Vec<Package>> {
        let arguments = ["metadata", "--no-deps", "--format-version", "1"];
        let text = output(self.command("cargo").args(arguments))?;
        let metadata: Value = serde_json::from_str(&text).context("cargo metadata did not print JSON")?;
        packages(&metadata, &self.root)
    }

    /// The commit that is checked out, abbreviated.
    pub fn commit(&self) -> Result<String> {
        Ok(output(self.command("git").args(["rev-parse", "--short=7", "HEAD"]))?.trim().to_owned())
    }

    /// Whether tracked files differ from the commit.
    pub fn is_dirty(&self) -> Result<bool> {
        let status = output(self.command("git").args(["status", "--porcelain", "--untracked-files=no"]))?;
        Ok(!status.trim().is_empty())
    }

    /// Builds the `maya` binary in the release profile and says where it is.
    pub fn release_maya(&self) -> Result<PathBuf> {
        crate::process::run(self.command("cargo").args(["build", "--release", "-p", "maya-cli"]))?;
        let binary = self.target().join("release").join(format!("maya{}", std::env::consts::EXE_SUFFIX));
        if !binary.is_file() {
            bail!("cargo built maya-cli but {} is not there", binary.display());
        }
        Ok(binary)
    }
}

fn packages(metadata: &Value, root: &Path) -> Result<Vec<Package>> {
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let members = list(metadata, "packages");
    let names: Vec<String> = members.iter().map(|p| text(p, "name")).collect();
    if names.is_empty() {
        bail!("cargo metadata lists no packages");
    }
    let mut packages = Vec::new();
    for member in &members {
        let mut package = Package { name: text(member, "name"), ..Package::default() };
        for dependency in list(member, "dependencies") {
            let name = text(&dependency, "name");
            // A package of the same name from a registry is not ours.
            if !names.contains(&name) || dependency.get("path").and_then(Value::as_str).is_none() {
                continue;
            }
            let is_dev = dependency.get("kind").and_then(Value::as_str) == Some("dev");
            let edges = if is_dev { &mut package.dev } else { &mut package.normal };
            if !edges.contains(&name) {
                edges.push(name);
            }
        }
        for target in list(member, "targets") {
            let kinds = list(&target, "kind");
            if kinds.iter().any(|k| k == "lib" || k == "bin") {
                let path = PathBuf::from(text(&target, "src_path"));
                let relative = path.strip_prefix(root).unwrap_or(&path);
                package.roots.push(relative.to_string_lossy().into_owned());
            }
        }
        packages.push(package);
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_tell_shipped_edges_from_dev_edges() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "leaf", "dependencies": [], "targets": [{ "kind": ["lib"], "src_path": "/r/leaf/src/lib.rs" }] },
            { "name": "top", "dependencies": [
                { "name": "leaf", "kind": null, "path": "/r/leaf" },
                { "name": "leaf", "kind": "dev", "path": "/r/leaf" },
                { "name": "serde", "kind": null },
            ], "targets": [{ "kind": ["test"], "src_path": "/r/top/tests/t.rs" }] },
        ] });
        let found = packages(&metadata, Path::new("/r")).expect("packages");
        assert_eq!(found[0].roots, ["leaf/src/lib.rs"]);
        assert_eq!(found[1].normal, ["leaf"]);
        assert_eq!(found[1].dev, ["leaf"]);
        assert!(found[1].roots.is_empty());
    }

    #[test]
    fn this_workspace_is_found() {
        let workspace = Workspace::find().expect("root");
        let names: Vec<String> =
            workspace.packages().expect("packages").into_iter().map(|p| p.name).collect();
        assert!(names.iter().any(|n| n == "xtask") && names.iter().any(|n| n == "golden"), "{names:?}");
        assert!(workspace.files().expect("files").iter().any(|f| f == "docs/ARCHITECTURE.md"));
    }
}
