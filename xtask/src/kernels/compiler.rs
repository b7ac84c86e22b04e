//! The pinned compiler: a wheel, checked by its SHA-256, of which two libraries are kept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::run;
use crate::workspace::Workspace;

/// Whether there is a wheel for this platform.
pub const IS_HERE: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

const LIBRARIES: [&str; 2] = ["libnvrtc.so.12", "libnvrtc-builtins.so.12.9"];
/// Part of the folder's name, so that another pin fetches anew.
const VERSION: &str = "12.9.86";

/// The folder with the libraries; downloads 90 MB if it is not there.
pub fn fetch(workspace: &Workspace) -> Result<PathBuf> {
    let tools = workspace.target().join("tools");
    let folder = tools.join(format!("nvrtc-{VERSION}"));
    if LIBRARIES.iter().all(|name| folder.join(name).is_file()) {
        return Ok(folder);
    }
    if !IS_HERE {
        bail!("the pinned compiler is for x86-64 Linux; elsewhere set MAYA_NVRTC and call `maya kernels`");
    }
    println!("fetching NVRTC {VERSION} into {}", folder.display());
    let wheels = tools.join("nvrtc-wheel");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    }
    let mut download = workspace.command("python3");
    download.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    download.args(["--only-binary", ":all:", "--require-hashes", "-r", "xtask/python/nvrtc.txt", "--dest"]);
    run(download.arg(&wheels))?;
    let wheel = only_file(&wheels)?;
    let unpacked = wheels.join("unpacked");
    run(workspace.command("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for name in LIBRARIES {
        let from = unpacked.join("nvidia").join("cuda_nvrtc").join("lib").join(name);
        // The last step of each, so that an interrupted fetch is begun anew.
        fs::rename(&from, folder.join(name)).with_context(|| from.display().to_string())?;
    }
    fs::remove_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    Ok(folder)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let files = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    match files.as_slice() {
        [file] => Ok(file.clone()),
        _ => bail!("{} holds {} files, not one wheel", folder.display(), files.len()),
    }
}
