//! Fuzzing of what reads untrusted bytes, with libFuzzer's coverage on the stable toolchain.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{output, run, run_within};
use crate::workspace::Workspace;

/// A fuzz target: its crate outside of the workspace, its binary, and the example that writes its first inputs and can
/// fuzz without libFuzzer.
struct Target {
    name: &'static str,
    folder: &'static str,
    example: &'static str,
}

const TARGETS: &[Target] = &[Target { name: "header", folder: "crates/gguf/fuzz", example: "hammer" }];

/// What `cargo fuzz` passes to rustc, less the address sanitizer, which needs a nightly toolchain and finds nothing in
/// safe code: edge counters, their places, and the operands of comparisons.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Memory at which a run counts as a finding; the targets themselves refuse a single allocation above 64 MB.
const RSS_LIMIT_MB: u32 = 512;

/// Half a minute of each target.
pub fn run_briefly(workspace: &Workspace) -> Result<()> {
    fuzz(workspace, Duration::from_secs(30)).map(drop)
}

/// Runs each target for `time` and describes the runs.
pub fn fuzz(workspace: &Workspace, time: Duration) -> Result<Value> {
    let mut runs = Vec::new();
    for target in TARGETS {
        let corpus = workspace.target().join("fuzz").join(target.name);
        let mut seeds = example(workspace, target)?;
        run(seeds.arg("--write-seeds").arg(&corpus))?;
        let limit = time + Duration::from_secs(60);
        if has_cpp() {
            let binary = build(workspace, target)?;
            let mut command = Command::new(&binary);
            command.current_dir(&corpus).arg(&corpus);
            command.arg(format!("-max_total_time={}", time.as_secs()));
            command
                .arg(format!("-rss_limit_mb={RSS_LIMIT_MB}"))
                .args(["-print_final_stats=1", "-verbosity=0"]);
            run_within(&command, limit).with_context(|| finding(&corpus))?;
        } else {
            println!("no C++ compiler, so no libFuzzer: blind mutation instead of coverage");
            let mut command = example(workspace, target)?;
            run_within(command.arg(time.as_secs().to_string()), limit)?;
        }
        let kept = std::fs::read_dir(&corpus).map(Iterator::count).unwrap_or_default();
        runs.push(json!({ "target": target.name, "seconds": time.as_secs(), "coverage": has_cpp(), "inputs": kept }));
    }
    if runs.is_empty() {
        bail!("there is no fuzz target");
    }
    Ok(Value::Array(runs))
}

/// The dev profile: what reads untrusted bytes is optimised there too, and sums are checked. Of all packages, as the test
/// command does it, so that what the tests built is used again.
fn example(workspace: &Workspace, target: &Target) -> Result<Command> {
    run(workspace.command("cargo").args(["build", "--quiet", "--workspace", "--example", target.example]))?;
    let name = format!("{}{}", target.example, std::env::consts::EXE_SUFFIX);
    let binary = workspace.target().join("debug").join("examples").join(name);
    Ok(workspace.command(&binary.to_string_lossy()))
}

fn build(workspace: &Workspace, target: &Target) -> Result<PathBuf> {
    // Naming the platform keeps the flags away from build scripts and macros.
    let version = output(workspace.command("rustc").arg("-vV"))?;
    let platform =
        version.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc names no host")?.to_owned();
    let folder = workspace.target().join("fuzz-build");
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root.join(target.folder));
    command.args(["build", "--quiet", "--release", "--locked", "--bin", target.name, "--target", &platform]);
    command.arg("--target-dir").arg(&folder).env("RUSTFLAGS", COVERAGE);
    run(&mut command)?;
    Ok(folder.join(platform).join("release").join(target.name))
}

/// libFuzzer is C++.
fn has_cpp() -> bool {
    let version = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|s| s.success())
}

/// Where libFuzzer leaves the input that broke something: in the folder it runs in.
fn finding(corpus: &Path) -> String {
    format!("an input that breaks the target is kept as crash-*, oom-* or timeout-* in {}", corpus.display())
}
