//! `cargo xtask kernels`: compiles the device code for every architecture with a pinned compiler. No GPU is needed.

mod budget;
mod compiler;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::process::{describe, output, run};
use crate::workspace::Workspace;
use budget::{Budgets, Use};

/// Registers and spills that are accepted.
const BUDGETS: &str = "kernels/budgets.toml";
/// Compiles that run side by side: each takes a core and up to a gigabyte.
const AT_ONCE: usize = 2;
/// A unit that takes longer for one architecture should become two.
const LONG_SECONDS: f64 = 3.0;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compile every unit for every architecture; compare registers and spills with kernels/budgets.toml
    Check {
        /// Write what was found to kernels/budgets.toml
        #[arg(long)]
        bless: bool,
    },
    /// Compile everything into one file, for `MAYA_KERNEL_PACK=FILE cargo build --release`
    Pack {
        /// The file [default: kernels.pack in the target folder]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Fetch the compiler, and print where it is
    Fetch,
}

/// Runs one of the commands.
pub fn run_named(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    match &arguments.what {
        What::Check { bless: false } => check(workspace),
        What::Check { bless: true } => bless(workspace),
        What::Pack { out } => pack(workspace, out.clone()),
        What::Fetch => {
            println!("{}", compiler::fetch(workspace)?.display());
            Ok(())
        }
    }
}

/// Every unit compiles without a warning and within its budget.
pub fn check(workspace: &Workspace) -> Result<()> {
    if !compiler::IS_HERE {
        println!("SKIPPED: kernels: the pinned compiler is for x86-64 Linux");
        return Ok(());
    }
    let found = compile_all(workspace)?;
    let path = workspace.root.join(BUDGETS);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let problems = Budgets::parse(&text)?.compare(&found);
    for problem in &problems {
        println!("error: {problem}");
    }
    if !problems.is_empty() {
        bail!(
            "{} entries are not as {BUDGETS} says; `cargo xtask kernels check --bless` accepts them",
            problems.len()
        );
    }
    Ok(())
}

fn bless(workspace: &Workspace) -> Result<()> {
    let found = compile_all(workspace)?;
    let path = workspace.root.join(BUDGETS);
    let old = match std::fs::read_to_string(&path) {
        Ok(text) => Budgets::parse(&text)?,
        Err(_) => Budgets::default(),
    };
    std::fs::write(&path, Budgets::of(&found, &old).to_text()).with_context(|| path.display().to_string())?;
    println!("wrote {BUDGETS}; a spill in it needs a reason");
    Ok(())
}

fn pack(workspace: &Workspace, out: Option<PathBuf>) -> Result<()> {
    let nvrtc = compiler::fetch(workspace)?;
    let maya = maya(workspace)?;
    let out = out.unwrap_or_else(|| workspace.target().join("kernels.pack"));
    let begin = Instant::now();
    let mut command = workspace.command(&maya.to_string_lossy());
    run(command.args(["kernels", "pack", "--nvrtc"]).arg(nvrtc).arg("--out").arg(&out))?;
    println!(
        "{:.1} s; to embed it: MAYA_KERNEL_PACK={} cargo build --release",
        begin.elapsed().as_secs_f64(),
        out.display()
    );
    Ok(())
}

/// The binary of the dev profile: the compiler's own time is the same under any. It is made as a part of a test, because the
/// test command makes it so; `cargo build` would choose other features of dependencies and build most of them again.
fn maya(workspace: &Workspace) -> Result<PathBuf> {
    run(workspace.command("cargo").args(["test", "--quiet", "--workspace", "--no-run", "--test", "alone"]))?;
    Ok(workspace.target().join("debug").join(format!("maya{}", std::env::consts::EXE_SUFFIX)))
}

/// Compiles each unit for all architectures in a process of its own, and prints its times.
fn compile_all(workspace: &Workspace) -> Result<Vec<Use>> {
    let nvrtc = compiler::fetch(workspace)?;
    let maya = maya(workspace)?;
    let list = output(workspace.command(&maya.to_string_lossy()).args(["kernels", "list", "--json"]))?;
    let list: Value = serde_json::from_str(&list).context("`maya kernels list` printed no JSON")?;
    let units: Vec<&str> =
        list["units"].as_array().into_iter().flatten().filter_map(|u| u["unit"].as_str()).collect();
    if units.is_empty() {
        bail!("`maya kernels list` names no unit");
    }
    let begin = Instant::now();
    let rows: Vec<Result<Vec<Value>>> = side_by_side(&units, |unit| {
        let mut command = workspace.command(&maya.to_string_lossy());
        command.args(["kernels", "check", "--json", "--unit", unit, "--nvrtc"]).arg(&nvrtc);
        let rows = compile(&mut command);
        if let Ok(rows) = &rows {
            report(unit, rows);
        }
        rows
    });
    let mut failed = 0;
    let mut found = Vec::new();
    for rows in rows {
        match rows {
            Ok(rows) => found.extend(rows.iter().flat_map(budget::uses)),
            Err(e) => {
                failed += 1;
                println!("error: {e:#}");
            }
        }
    }
    println!(
        "kernels: {} units, {} entries, {:.1} s",
        units.len(),
        found.len(),
        begin.elapsed().as_secs_f64()
    );
    if failed > 0 {
        bail!("{failed} of {} units do not compile cleanly", units.len());
    }
    Ok(found)
}

/// One process; its lines, or what it wrote to stderr.
fn compile(command: &mut Command) -> Result<Vec<Value>> {
    let name = describe(command);
    let output = command.output().with_context(|| format!("cannot start `{name}`"))?;
    if !output.status.success() {
        bail!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).with_context(|| format!("`{name}` printed no UTF-8"))?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("`{name}`: {line}"))).collect()
}

/// A line for each unit, and a warning for each architecture that took long.
fn report(unit: &str, rows: &[Value]) {
    let seconds = |row: &Value| row["seconds"].as_f64().unwrap_or(0.0);
    let bytes: u64 = rows.iter().filter_map(|row| row["cubin_bytes"].as_u64()).sum();
    let all: f64 = rows.iter().map(seconds).sum();
    let longest = rows.iter().map(seconds).fold(0.0, f64::max);
    println!("{unit:20} {all:6.2} s, longest {longest:5.2} s, {:6} kB", bytes / 1000);
    for row in rows.iter().filter(|row| seconds(row) > LONG_SECONDS) {
        let arch = row["arch"].as_str().unwrap_or_default();
        println!("warning: {unit} takes {:.1} s for {arch}; aim for {LONG_SECONDS} s", seconds(row));
    }
}

/// The answers for all of `jobs`, in order, a few at a time.
fn side_by_side<J: Sync, A: Send>(jobs: &[J], work: impl Fn(&J) -> A + Sync) -> Vec<A> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { return };
                    let answer = work(job);
                    done.lock().expect("no thread panics while it holds the lock").push((at, answer));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics while it holds the lock");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order() {
        let jobs: Vec<usize> = (0..100).collect();
        assert_eq!(side_by_side(&jobs, |n| n * 2), (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert!(side_by_side(&[] as &[usize], |n| *n).is_empty());
    }

    #[test]
    fn a_failed_process_says_what_it_wrote() {
        let mut command = Command::new("sh");
        let error = compile(command.args(["-c", "echo no >&2; exit 1"])).expect_err("failed").to_string();
        assert!(error.ends_with("failed: no"), "{error}");
        let rows = compile(Command::new("sh").args(["-c", "echo '{\"unit\":\"a\"}'"])).expect("one line");
        assert_eq!(rows[0]["unit"], "a");
        assert!(compile(Command::new("sh").args(["-c", "echo nonsense"])).is_err());
    }
}
