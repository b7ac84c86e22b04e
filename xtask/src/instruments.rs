//! Crates with `unsafe` or atomics under instruments: a model checker, an interpreter, a sanitizer. Each has a target
//! folder of its own, because its flags would rebuild everything.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::process::{output, run_within};
use crate::workspace::Workspace;

/// The only platform for which the sanitizer's run-time comes with every toolchain.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Whether something that is not there on every machine ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// All of it.
    Whole,
    /// None of it, and why was printed.
    Skipped,
}

/// Every order of the rings' loads and stores.
pub fn loom(workspace: &Workspace) -> Result<()> {
    let mut command = cargo(workspace, "loom", &[]);
    command.args(["test", "-p", "tier-cache", "--test", "loom_ring", "--release"]);
    // One small crate: what a release's link would win back is less than it costs.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    run_within(command.env("RUSTFLAGS", "--cfg loom"), Duration::from_secs(600))
}

/// What an interpreter can run of the two crates: leases of an arena, rings, the directory, blobs of aligned memory, the
/// queue of requests. It has no drive, no `io_uring` and no advice about pages.
pub fn miri(workspace: &Workspace) -> Result<Ran> {
    let Some(toolchain) = [&[][..], &["+nightly"][..]].into_iter().find(|words| has_miri(words)) else {
        println!("SKIPPED: miri: no toolchain here has `cargo miri`");
        return Ok(Ran::Skipped);
    };
    let runs: &[&[&str]] = &[
        &["-p", "tier-cache", "--test", "ring"],
        &[
            "-p",
            "tier-cache",
            "--test",
            "host_arena",
            "--",
            "a_slot_is_lent",
            "only_the_lease",
            "a_lease_outlives",
        ],
        &["-p", "tier-cache", "--test", "failures", "--", "nothing_is_resident", "a_guess"],
        &["-p", "nvme-reader", "--lib", "--", "align::", "cancel_before", "demand_overtakes", "empty_parts"],
    ];
    for words in runs {
        let mut command = cargo(workspace, "miri", toolchain);
        command.args(["miri", "test"]).args(*words);
        // An arena that is dropped with a lease out leaks its mapping, and says so. Property tests look for a file with
        // earlier failures.
        command.env("MIRIFLAGS", "-Zmiri-ignore-leaks -Zmiri-disable-isolation");
        run_within(command.env("RUSTFLAGS", "--cfg rustix_use_libc"), Duration::from_secs(600))?;
    }
    Ok(Ran::Whole)
}

/// Every read of the drive with an eye on each byte of memory that it lands in.
pub fn asan(workspace: &Workspace) -> Result<Ran> {
    let host = output(workspace.command("rustc").arg("-vV"))?;
    if !host.lines().any(|line| line == format!("host: {PLATFORM}")) {
        println!("SKIPPED: asan: the address sanitizer is run on {PLATFORM} only");
        return Ok(Ran::Skipped);
    }
    let mut command = cargo(workspace, "asan", &[]);
    command.args(["test", "-p", "nvme-reader", "--lib", "--tests", "--target", PLATFORM]);
    // The flag is unstable and the toolchain stable; naming the platform keeps it away from build scripts.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    // Tests lease memory for ever, which is what `Aligned::leak` is for.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    run_within(&command, Duration::from_secs(600))?;
    Ok(Ran::Whole)
}

fn cargo(workspace: &Workspace, folder: &str, toolchain: &[&str]) -> Command {
    let mut command = workspace.command("cargo");
    command.env("CARGO_TARGET_DIR", workspace.target().join(folder)).args(toolchain);
    command
}

fn has_miri(toolchain: &[&str]) -> bool {
    let mut command = Command::new("cargo");
    command.args(toolchain).args(["miri", "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
