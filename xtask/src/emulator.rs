//! The GPU's side without a GPU: kernels on the processor, thread by thread (kernels/emulator), alone and below the whole
//! executor. Needs g++ and Python 3.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::parity;
use crate::process::{output, run, run_within};
use crate::workspace::Workspace;

/// The architecture whose ways through the kernels are taken.
const ARCH: &str = "sm_90";

/// Tests of single kernels, each in a program of its own.
pub fn kernels(workspace: &Workspace) -> Result<()> {
    run_within(&workspace.command("kernels/emulator/tests/run.sh"), Duration::from_secs(600))
}

/// The driver's tests and level `cuda` of parity on the emulated device.
pub fn device(workspace: &Workspace) -> Result<()> {
    let folder = build(workspace)?;
    let maya = workspace.release_maya()?;
    // All units at once, on all cores; whoever needs one finds it compiled.
    let mut pack = emulated(workspace.command(&maya.to_string_lossy()), &folder);
    pack.args(["kernels", "pack", "--arch", ARCH, "--out"]).arg(folder.join("kernels.pack"));
    run_within(&pack, Duration::from_secs(600))?;

    let listed = output(emulated(workspace.command(&maya.to_string_lossy()), &folder).arg("doctor"))?;
    if !listed.contains("maya can compute on cuda:0 emulated device") {
        bail!("maya does not find the emulated device:\n{listed}");
    }
    // All packages, so that what the other tests built is used again.
    let mut tests = emulated(workspace.command("cargo"), &folder);
    tests.args(["test", "--workspace", "--lib", "--test", "cuda_fault", "--"]);
    tests.args(["driver::tests", "the_probe_compiles", "the_first_fatal_error_stays"]);
    run_within(&tests, Duration::from_secs(900))?;

    let fixtures = parity::unpack(workspace)?;
    let mut command = emulated(workspace.command(&maya.to_string_lossy()), &folder);
    command.args(["parity", "--level", "cuda", "--brief", "--json", "--fixtures"]).arg(fixtures);
    parity::compare_device(&mut command)
}

/// Builds the device's libraries below the target folder.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("emulated");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    run(workspace.command("kernels/emulator/device/build.sh").arg(&folder))?;
    Ok(folder)
}

/// `command` with the emulated device as its only one, and code for that device only.
fn emulated(mut command: Command, folder: &Path) -> Command {
    command.env("LD_LIBRARY_PATH", folder).env("MAYA_KERNELS", "nvrtc").env_remove("MAYA_NVRTC");
    command
}
