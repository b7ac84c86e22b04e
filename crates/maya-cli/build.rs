//! Puts the commit into the binary for `maya --version`, and a pack of compiled kernels if `MAYA_KERNEL_PACK` names one.
//! Without git, or outside a checkout, the commit is "unknown".

use std::path::Path;
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
    let cuda = std::env::var_os("CARGO_FEATURE_CUDA").is_some();
    println!("cargo::rustc-env=MAYA_FEATURES={}", if cuda { "cpu, cuda" } else { "cpu" });
    println!("cargo::rerun-if-env-changed=MAYA_KERNEL_PACK");
    let pack = std::env::var("MAYA_KERNEL_PACK").ok().filter(|path| !path.is_empty());
    let expression = match &pack {
        Some(path) => {
            // A relative path is seen from the workspace: cargo starts this program in the crate's own folder.
            let path = Path::new("../..").join(path);
            let path =
                path.canonicalize().unwrap_or_else(|e| panic!("MAYA_KERNEL_PACK: {}: {e}", path.display()));
            println!("cargo::rerun-if-changed={}", path.display());
            format!("Some(include_bytes!({:?}))", path.display().to_string())
        }
        None => "None".to_owned(),
    };
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("kernel_pack.rs"), expression).expect("OUT_DIR can be written");
}
