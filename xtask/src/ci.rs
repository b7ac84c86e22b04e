//! `cargo xtask ci`: every check that a change must pass, in order, each timed. `.ci/run` calls it and nothing else.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::process::run_within;
use crate::workspace::Workspace;
use crate::{deny, emulator, fuzz, install, instruments, kernels, outside, parity, python, serve, tidy};

#[derive(Args)]
pub struct Arguments {
    /// Run only these steps (comma-separated)
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    only: Vec<String>,
    /// Leave these steps out (comma-separated)
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    skip: Vec<String>,
    /// Print the steps and what they do
    #[arg(long)]
    list: bool,
}

/// A named check with a limit after which it counts as hanging.
struct Step {
    name: &'static str,
    what: &'static str,
    limit: Duration,
    check: Check,
}

enum Check {
    /// A program, its arguments, and environment variables for it.
    Run(&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]),
    /// A function of this program; its own processes have limits where they can hang.
    Call(fn(&Workspace) -> Result<()>),
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// Cheap steps first, so that a small mistake is told early. Clippy, tests and documentation share the dev profile;
/// what runs the binary shares one release build.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "rustfmt has nothing to change",
        limit: minutes(2),
        check: Check::Run("cargo", &["fmt", "--all", "--", "--check"], &[]),
    },
    Step { name: "tidy", what: "the tree's own rules", limit: minutes(1), check: Check::Call(tidy::run) },
    Step { name: "lock", what: "Cargo.lock fits the manifests", limit: minutes(5), check: Check::Call(lock) },
    Step {
        name: "deny",
        what: "licences, bans, sources",
        limit: minutes(2),
        check: Check::Call(deny::check),
    },
    Step {
        name: "clippy",
        what: "no warning from clippy or rustc",
        limit: minutes(15),
        check: Check::Run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    Step {
        name: "build",
        what: "the tests are built",
        limit: minutes(25),
        check: Check::Run("cargo", &["test", "--workspace", "--no-run"], &[]),
    },
    Step {
        name: "test",
        what: "the README's test command, first build apart",
        limit: minutes(10),
        check: Check::Run("cargo", &["test", "--workspace"], &[]),
    },
    Step {
        name: "python",
        what: "another reader opens what the writer wrote",
        limit: minutes(10),
        check: Check::Call(python::check),
    },
    Step {
        name: "doc",
        what: "rustdoc without warnings",
        limit: minutes(10),
        check: Check::Run("cargo", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]),
    },
    Step {
        name: "kernels",
        what: "device code compiles for every architecture, within its registers",
        limit: minutes(20),
        check: Check::Call(kernels::check),
    },
    Step {
        name: "emulate",
        what: "kernels on the processor, each alone",
        limit: minutes(12),
        check: Check::Call(emulator::kernels),
    },
    Step {
        name: "outside",
        what: "tier-cache and nvme-reader from outside, and alone",
        limit: minutes(20),
        check: Check::Call(outside::check),
    },
    Step {
        name: "loom",
        what: "the rings in every order of their loads and stores",
        limit: minutes(10),
        check: Check::Call(instruments::loom),
    },
    Step {
        name: "serve",
        what: "the README's first command answers a chat request",
        limit: minutes(20),
        check: Check::Call(serve::check),
    },
    Step {
        name: "install",
        what: "cargo install, and the binary alone in an empty folder",
        limit: minutes(20),
        check: Check::Call(install::check),
    },
    Step {
        name: "parity",
        what: "golden data, every level that needs no device",
        limit: minutes(20),
        check: Check::Call(parity::run_all),
    },
    Step {
        name: "device",
        what: "the GPU executor on an emulated device, bit for bit",
        limit: minutes(20),
        check: Check::Call(emulator::device),
    },
    Step {
        name: "fuzz",
        what: "each fuzz target for 30 s",
        limit: minutes(10),
        check: Check::Call(fuzz::run_briefly),
    },
];

/// Runs the chosen steps, all of them even if one fails, and sums up.
pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let chosen = choose(STEPS, arguments)?;
    if arguments.list {
        for step in chosen {
            println!("{:8} {}", step.name, step.what);
        }
        return Ok(());
    }
    let begin = Instant::now();
    let rows = run_steps(workspace, &chosen);
    println!("\n{:8} {:>8}  result", "step", "seconds");
    for row in &rows {
        println!("{:8} {:8.1}  {}", row.name, row.seconds, verdict(row.passed));
    }
    println!("{:8} {:8.1}\n", "all", begin.elapsed().as_secs_f64());
    let failed = rows.iter().filter(|r| !r.passed).count();
    println!("{} passed, {failed} failed", rows.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} steps failed", rows.len());
    }
    Ok(())
}

/// How a step ended.
struct Row {
    name: &'static str,
    passed: bool,
    seconds: f64,
}

fn run_steps(workspace: &Workspace, steps: &[&Step]) -> Vec<Row> {
    let mut rows = Vec::new();
    for step in steps {
        println!("\n=== {}: {}", step.name, step.what);
        let begin = Instant::now();
        let outcome = match &step.check {
            Check::Run(program, words, environment) => {
                let mut command = workspace.command(program);
                command.args(*words).envs(environment.iter().copied());
                run_within(&command, step.limit)
            }
            Check::Call(call) => call(workspace),
        };
        if let Err(e) = &outcome {
            println!("error: {e:#}");
        }
        let row = Row { name: step.name, passed: outcome.is_ok(), seconds: begin.elapsed().as_secs_f64() };
        println!("=== {}: {} in {:.1} s", row.name, verdict(row.passed), row.seconds);
        rows.push(row);
    }
    rows
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

/// The steps that `--only` and `--skip` leave; an unknown name is an error, so that a typing mistake skips no check.
fn choose<'a>(steps: &'a [Step], arguments: &Arguments) -> Result<Vec<&'a Step>> {
    for name in arguments.only.iter().chain(&arguments.skip) {
        if !steps.iter().any(|s| s.name == name) {
            let names: Vec<&str> = steps.iter().map(|s| s.name).collect();
            bail!("there is no step {name}; the steps are {}", names.join(", "));
        }
    }
    let is_in = |list: &[String], step: &Step| list.iter().any(|n| n == step.name);
    let chosen = steps.iter().filter(|s| arguments.only.is_empty() || is_in(&arguments.only, s));
    Ok(chosen.filter(|s| !is_in(&arguments.skip, s)).collect())
}

/// `cargo metadata --locked` refuses a lock file that it would have to change.
fn lock(workspace: &Workspace) -> Result<()> {
    crate::process::output(workspace.command("cargo").args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
    ]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str], skip: &[&str]) -> Result<Vec<&'static str>> {
        let own = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
        let arguments = Arguments { only: own(only), skip: own(skip), list: false };
        Ok(choose(STEPS, &arguments)?.into_iter().map(|s| s.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(names(&[], &[]).expect("all").len(), STEPS.len());
        assert_eq!(names(&["test", "fmt"], &["test"]).expect("some"), ["fmt"]);
        assert!(names(&["tset"], &[]).is_err() && names(&[], &["tset"]).is_err());
    }

    #[test]
    fn every_step_runs_even_after_a_failed_one() {
        let workspace = Workspace { root: std::env::temp_dir() };
        let step = |name, check| Step { name, what: "", limit: minutes(1), check };
        let steps = [
            step("command", Check::Run("sh", &["-c", "exit 1"], &[])),
            step("call", Check::Call(|_| bail!("no"))),
            step("good", Check::Run("sh", &["-c", "test \"$A\" = b"], &[("A", "b")])),
        ];
        let rows = run_steps(&workspace, &steps.each_ref());
        assert_eq!(rows.iter().map(|r| r.passed).collect::<Vec<_>>(), [false, false, true]);
    }
}
