//! `cargo xtask bench`: builds the release binary, runs `maya bench`, and keeps every sample in one dated file.

mod cuda;
mod matvec;
mod replay;
mod synth;
mod tiers;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::process::{describe, output, run};
use crate::results;
use crate::workspace::Workspace;

#[derive(Args)]
pub struct Arguments {
    /// What to measure
    suite: Suite,
    /// Threads of the engine [default: all]
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// Samples of each measurement
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeat: u32,
    /// Another maya binary to compare with; the two alternate A B B A in this run
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
    /// A maya binary built elsewhere, for a machine without cargo; the result names its commit
    #[arg(long, value_name = "BINARY")]
    maya: Option<PathBuf>,
    /// A folder that `golden unpack` made, to compare a device's bits with the CPU's first
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
    #[command(flatten)]
    result: results::Arguments,
}

impl Arguments {
    fn binary(&self, workspace: &Workspace) -> Result<PathBuf> {
        self.maya.clone().map_or_else(|| workspace.release_maya(), Ok)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// Prefill and decode of the demo model and of a synthetic model of 1.45 GB on the CPU
    Cpu,
    /// A model of the published sizes in a device's memory: bits, decode, the time of every kind of launch
    Cuda,
    /// Matrix times one vector, per format and instruction set, beside one core's read bandwidth
    Matvec,
    /// Hit rates of cache policies on routing traces
    Replay,
    /// How fast `maya synth` writes to memory
    Synth,
    /// Experts on two tiers: the drive, decode at several budgets against the layer-serial bound, cold starts
    Tiers,
}

pub use tiers::two_gigabytes;

/// A model and the lengths it is measured at.
struct Workload {
    name: &'static str,
    /// Sizes for `maya synth`; none for the demo model inside the binary.
    synth: Option<&'static [&'static str]>,
    prefill: u32,
    decode: u32,
}

/// The synthetic one exceeds every cache: its decode is bound by memory, the demo model's by instructions.
const CPU: &[Workload] = &[
    Workload { name: "maya-nano", synth: None, prefill: 512, decode: 128 },
    Workload {
        name: "synth-1.45GB",
        synth: Some(&[
            "--layers",
            "9",
            "--experts",
            "64",
            "--hidden",
            "2048",
            "--moe-ff",
            "1024",
            "--ff",
            "6144",
            "--heads",
            "32",
            "--vocab",
            "32768",
        ]),
        prefill: 256,
        decode: 32,
    },
];

/// Runs the suite and prints the name of its result.
pub fn run_suite(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let suite = match arguments.suite {
        Suite::Cpu => "cpu",
        Suite::Cuda => "cuda",
        Suite::Matvec => "matvec",
        Suite::Replay => "replay",
        Suite::Synth => "synth",
        Suite::Tiers => "tiers",
    };
    let origin = match &arguments.maya {
        None => results::Origin::new(workspace, suite, &arguments.result)?,
        Some(maya) => {
            let commit = workspace.commit_of(maya)?;
            results::Origin::of_commit(workspace, suite, &arguments.result, commit)?
        }
    };
    let body = match arguments.suite {
        Suite::Cpu => cpu(workspace, arguments)?,
        Suite::Cuda => {
            let maya = arguments.binary(workspace)?;
            cuda::measure(workspace, &maya, arguments.repeat, arguments.fixtures.as_deref())?
        }
        Suite::Matvec => matvec::measure(workspace)?,
        Suite::Replay => replay::measure(workspace, &arguments.binary(workspace)?)?,
        Suite::Synth => synth::measure(workspace, &arguments.binary(workspace)?, arguments.repeat)?,
        Suite::Tiers => tiers::measure(workspace, &arguments.binary(workspace)?, arguments.repeat)?,
    };
    println!("{}", origin.write(body)?.display());
    Ok(())
}

fn cpu(workspace: &Workspace, arguments: &Arguments) -> Result<Value> {
    let ours = arguments.binary(workspace)?;
    let mut runs = Vec::new();
    for workload in CPU {
        let model = model(workspace, &ours, workload)?;
        for (side, binary) in order(&ours, arguments.against.as_deref()) {
            runs.push(measure(workspace, workload, model.as_deref(), side, binary, arguments)?);
        }
    }
    Ok(json!({ "runs": runs }))
}

/// A alone, or A B B A: drift over minutes then falls on both sides alike.
fn order<'a>(ours: &'a Path, against: Option<&'a Path>) -> Vec<(&'static str, &'a Path)> {
    match against {
        None => vec![("a", ours)],
        Some(other) => vec![("a", ours), ("b", other), ("b", other), ("a", ours)],
    }
}

/// The workload's file under the target folder, made once; none for the bundled model.
fn model(workspace: &Workspace, maya: &Path, workload: &Workload) -> Result<Option<PathBuf>> {
    let Some(sizes) = workload.synth else { return Ok(None) };
    let path = workspace.target().join("bench").join(format!("{}.gguf", workload.name));
    if !path.is_file() {
        let folder = path.parent().context("the target folder has no parent")?;
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        run(workspace.command(&maya.to_string_lossy()).arg("synth").arg(&path).args(sizes))?;
    }
    // Programs run in the workspace's root, so that a result need not say where that was.
    Ok(Some(path.strip_prefix(&workspace.root).map(Path::to_owned).unwrap_or(path)))
}

fn measure(
    workspace: &Workspace,
    workload: &Workload,
    model: Option<&Path>,
    side: &str,
    binary: &Path,
    arguments: &Arguments,
) -> Result<Value> {
    let mut command = workspace.command(&binary.to_string_lossy());
    // A model chosen by the user's environment must not replace the bundled one unseen.
    command.env_remove("MAYA_MODEL").arg("bench");
    let number = |n: u32| n.to_string();
    command.args(["--prefill", &number(workload.prefill), "--decode", &number(workload.decode)]);
    command.args(["--repeat", &number(arguments.repeat)]);
    if let Some(threads) = arguments.threads {
        command.args(["--threads", &threads.to_string()]);
    }
    if let Some(model) = model {
        command.arg("--model").arg(model);
    }
    println!("{side}: {}", describe(&command));
    let text = output(&mut command)?;
    let measured: Value = serde_json::from_str(&text).context("maya bench did not print JSON")?;
    if !measured.is_object() {
        bail!("maya bench printed no JSON object");
    }
    let file = model.and_then(|m| m.file_name()).map(|n| n.to_string_lossy().into_owned());
    let bytes = model.and_then(|m| m.metadata().ok()).map(|m| m.len());
    Ok(json!({
        "workload": workload.name,
        "side": side,
        "file": file.unwrap_or_else(|| "bundled".to_owned()),
        "file_bytes": bytes,
        "measured": measured,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_alternate() {
        let (a, b) = (Path::new("a"), Path::new("b"));
        let sides = |against| order(a, against).into_iter().map(|(side, _)| side).collect::<Vec<_>>();
        assert_eq!(sides(None), ["a"]);
        assert_eq!(sides(Some(b)), ["a", "b", "b", "a"]);
    }

    #[test]
    fn a_result_needs_a_clean_tree_and_a_free_name() {
        let root = std::env::temp_dir().join(format!("xtask-bench-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bench-results")).expect("folder");
        let workspace = Workspace { root: root.clone() };
        let git = |arguments: &[&str]| {
            let identity =
                ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
            output(workspace.command("git").args(identity).args(arguments)).expect("git")
        };
        git(&["init", "-q"]);
        std::fs::write(root.join("a"), "1").expect("write");
        git(&["add", "a"]);
        git(&["commit", "-q", "-m", "a"]);
        let strict = results::Arguments::new(false, Some("h"));
        let first = results::Origin::new(&workspace, "cpu", &strict).expect("clean");
        let second = results::Origin::new(&workspace, "cpu", &strict).expect("clean");
        let path = first.write(json!({ "runs": [] })).expect("written");
        let text = std::fs::read_to_string(path).expect("read");
        assert!(text.contains("\"dirty\": false") && text.contains("\"machine\""), "{text}");
        assert!(second.write(json!({})).is_err(), "a name that was taken meanwhile is not overwritten");
        assert!(results::Origin::new(&workspace, "cpu", &strict).is_err(), "a taken name is refused");
        std::fs::write(root.join("a"), "2").expect("write");
        assert!(results::Origin::new(&workspace, "other", &strict).is_err(), "a dirty tree is refused");
        let lenient = results::Arguments::new(true, Some("h"));
        assert!(results::Origin::new(&workspace, "other", &lenient).is_ok());
        std::fs::remove_dir_all(&root).expect("folder of this test");
    }
}
