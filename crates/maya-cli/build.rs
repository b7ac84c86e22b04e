//! Puts the commit into the binary for `maya --version`. Without git, or outside a checkout, it says "unknown".

use std::process::Command;

fn main() {
    let git = |args: &[&str]| -> Option<String> {
        let out = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(out.stdout).ok()?;
        out.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=MAYA_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // The reflog is appended on every commit and checkout, so the value is never older than the tree it was built from.
    match git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        Some(path) if std::path::Path::new(&path).exists() => println!("cargo::rerun-if-changed={path}"),
        _ => {}
    }
}
