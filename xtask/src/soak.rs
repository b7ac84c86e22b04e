//! `cargo xtask soak`: runs too long for every change; each leaves a dated report under bench-results/.

mod requests;
mod sanitizer;
mod tiers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::process::{describe, output};
use crate::workspace::Workspace;
use crate::{fuzz, parity, results};

#[derive(Args)]
pub struct Arguments {
    /// What to run
    name: Name,
    /// For `eval`, `requests` and `sanitizer`: what computes, as `maya serve --device` takes it
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// For `requests`: how many
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(200..))]
    requests: u32,
    /// For these: a program that was built elsewhere, of the commit that it names [default: a release build]
    #[arg(long, value_name = "FILE")]
    maya: Option<PathBuf>,
    /// For `eval` on a device and `sanitizer`: a folder that `golden unpack` made [default: it is made]
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
    #[command(flatten)]
    result: results::Arguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Each fuzz target for five minutes
    Fuzz,
    /// Experts on two tiers: random lives, kills, instruments, every budget's logits
    Tiers,
    /// The demo model's answers to all evaluation rows, fast and exact, and the distance between the two; on a device only the
    /// answers
    Eval,
    /// Request after request at one server: memory does not grow
    Requests,
    /// A device's kernels under compute-sanitizer
    Sanitizer,
}

impl Arguments {
    fn binary(&self, workspace: &Workspace) -> Result<PathBuf> {
        self.maya.clone().map_or_else(|| workspace.release_maya(), Ok)
    }

    fn unpacked(&self, workspace: &Workspace) -> Result<PathBuf> {
        self.fixtures.clone().map_or_else(|| parity::unpack(workspace), Ok)
    }
}

/// Runs it and writes the report, also of a run that misses its bounds; that one is an error after it is written.
pub fn run_named(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let suite = match arguments.name {
        Name::Fuzz => "soak-fuzz",
        Name::Eval => "soak-eval",
        Name::Tiers => "soak-tiers",
        Name::Requests => "soak-requests",
        Name::Sanitizer => "soak-sanitizer",
    };
    let takes_a_program = match arguments.name {
        Name::Fuzz | Name::Tiers => false,
        Name::Eval => arguments.device != "cpu",
        Name::Requests | Name::Sanitizer => true,
    };
    let origin = match &arguments.maya {
        Some(_) if !takes_a_program => {
            bail!("--maya: this one is run with the workspace's own build");
        }
        Some(maya) => {
            let commit = workspace.commit_of(maya)?;
            results::Origin::of_commit(workspace, suite, &arguments.result, commit)?
        }
        None => results::Origin::new(workspace, suite, &arguments.result)?,
    };
    let begin = Instant::now();
    let body = match arguments.name {
        Name::Fuzz => json!({ "targets": fuzz::fuzz(workspace, Duration::from_secs(300))? }),
        Name::Eval if arguments.device != "cpu" => {
            let rows = arguments.unpacked(workspace)?.join("models/eval.jsonl");
            answers(workspace, &arguments.binary(workspace)?, &arguments.device, &rows)?
        }
        Name::Eval => eval(workspace)?,
        Name::Tiers => tiers::soak(workspace)?,
        Name::Requests => {
            let maya = arguments.binary(workspace)?;
            requests::soak(workspace, &maya, &arguments.device, arguments.requests)?
        }
        Name::Sanitizer => {
            let (maya, fixtures) = (arguments.binary(workspace)?, arguments.unpacked(workspace)?);
            sanitizer::soak(workspace, &maya, &arguments.device, &fixtures)?
        }
    };
    let mut body = body;
    body["seconds"] = json!(begin.elapsed().as_secs_f64().round());
    let reached = body["reached"].as_object().cloned().unwrap_or_default();
    println!("{}", origin.write(body)?.display());
    let skipped = with(&reached, |v| *v == json!(SKIPPED));
    if !skipped.is_empty() {
        println!("SKIPPED, so neither reached nor missed: {}", skipped.join(", "));
    }
    let missed = with(&reached, |v| *v != json!(true) && *v != json!(SKIPPED));
    if !missed.is_empty() {
        bail!("bounds not reached: {}", missed.join(", "));
    }
    Ok(())
}

/// What stands in the place of a bound that could not be tried on this machine.
const SKIPPED: &str = "skipped";

/// Names of the bounds of which that is true.
fn with(reached: &serde_json::Map<String, Value>, is: impl Fn(&Value) -> bool) -> Vec<&str> {
    reached.iter().filter(|(_, value)| is(value)).map(|(name, _)| name.as_str()).collect()
}

/// What the demo model must reach on the evaluation rows, and why that number.
struct Bounds {
    /// llama.cpp answers 291 of 306 right.
    right: u64,
    /// Rows on which the two precisions give the same text.
    same_text: u64,
    /// Nats, of `fast` from `exact`, teacher-forced.
    kl: f64,
    /// Seconds for all rows in `exact`, on two cores.
    exact_seconds: f64,
}

const BOUNDS: Bounds = Bounds { right: 286, same_text: 300, kl: 0.005, exact_seconds: 1200.0 };

/// Answers and distances, each as `maya eval` gives them, and whether they are within [`BOUNDS`].
fn eval(workspace: &Workspace) -> Result<Value> {
    let fixtures = parity::unpack(workspace)?;
    let rows = fixtures.join("models/eval.jsonl");
    let base = fixtures.join("models/maya-nano-f16.gguf");
    for path in [&rows, &base] {
        if !path.is_file() {
            bail!(
                "{} is not here: the evaluation rows and the F16 model are not part of the repository",
                path.display()
            );
        }
    }
    let maya = workspace.release_maya()?;
    let run = |flags: &[&str]| -> Result<Run> {
        let mut command = workspace.command(&maya.to_string_lossy());
        command.env_remove("MAYA_MODEL").arg("eval").arg(&rows).args(flags);
        println!("{}", describe(&command));
        let begin = Instant::now();
        let text = output(&mut command)?;
        Run::parse(&text, begin.elapsed().as_secs_f64())
    };
    let fast = run(&["--precision", "fast"])?;
    let exact = run(&["--precision", "exact"])?;
    let kl = run(&["--kl", "--precision", "fast"])?;
    let mix = run(&["--kl", "--precision", "exact", "--base", &base.to_string_lossy()])?;
    let differing = differing(&fast.rows, &exact.rows)?;
    let same_text = fast.rows.len() as u64 - differing.len() as u64;
    let reached = [
        ("right", fast.sums["right"].as_u64().is_some_and(|n| n >= BOUNDS.right)),
        ("same_text", same_text >= BOUNDS.same_text),
        ("kl", kl.sums["kl_mean"].as_f64().is_some_and(|kl| kl < BOUNDS.kl)),
        ("exact_seconds", exact.seconds < BOUNDS.exact_seconds),
    ];
    let reached: serde_json::Map<String, Value> =
        reached.into_iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
    Ok(json!({
        "reached": reached,
        "fast": fast.summary(),
        "exact": exact.summary(),
        "same_text": same_text,
        "differing_rows": differing,
        "kl_fast_from_exact": kl.summary(),
        "kl_mix_from_f16": mix.summary(),
    }))
}

/// A device's answers to the evaluation rows.
fn answers(workspace: &Workspace, maya: &Path, device: &str, rows: &Path) -> Result<Value> {
    if !rows.is_file() {
        bail!("{} is not here: the evaluation rows are not part of the repository", rows.display());
    }
    let mut command = workspace.command(&maya.to_string_lossy());
    command.env_remove("MAYA_MODEL").arg("eval").arg(rows).args(["--device", device]);
    println!("{}", describe(&command));
    let begin = Instant::now();
    let run = Run::parse(&output(&mut command)?, begin.elapsed().as_secs_f64())?;
    let right = run.sums["right"].as_u64().is_some_and(|n| n >= BOUNDS.right);
    Ok(json!({ "reached": { "right": right }, "device": device, "answers": run.summary() }))
}

/// What one `maya eval` printed.
struct Run {
    rows: Vec<Value>,
    sums: Value,
    seconds: f64,
}

impl Run {
    /// JSON lines, the last of which holds the sums.
    fn parse(text: &str, seconds: f64) -> Result<Self> {
        let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
        let mut rows = lines.context("maya eval did not print JSON lines")?;
        let sums = rows.pop().context("maya eval printed nothing")?;
        if rows.is_empty() || sums["rows"].as_u64() != Some(rows.len() as u64) {
            bail!("maya eval printed {} rows and counted {}", rows.len(), sums["rows"]);
        }
        Ok(Self { rows, sums, seconds })
    }

    fn summary(&self) -> Value {
        let mut sums = self.sums.clone();
        sums["seconds"] = json!((self.seconds * 10.0).round() / 10.0);
        sums
    }
}

/// Numbers of the rows whose answers differ.
fn differing(a: &[Value], b: &[Value]) -> Result<Vec<Value>> {
    if a.len() != b.len() {
        bail!("one run has {} rows, the other {}", a.len(), b.len());
    }
    let differ = a.iter().zip(b).filter(|(a, b)| a["answer"] != b["answer"] || !a["answer"].is_string());
    Ok(differ.map(|(a, _)| a["row"].clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_their_sum_must_agree() {
        let run =
            Run::parse("{\"row\":0,\"answer\":\"a\"}\n{\"rows\":1,\"right\":1}\n", 1.0).expect("complete");
        assert_eq!(run.summary()["right"], 1);
        assert!(Run::parse("{\"row\":0}\n{\"rows\":2}\n", 1.0).is_err());
        assert!(Run::parse("", 1.0).is_err() && Run::parse("{\"rows\":0}\n", 1.0).is_err());
    }

    #[test]
    fn skipped_is_neither_reached_nor_missed() {
        let reached = json!({"loom": true, "miri": SKIPPED, "asan": false, "kills": null});
        let reached = reached.as_object().expect("an object");
        assert_eq!(with(reached, |v| *v == json!(SKIPPED)), ["miri"]);
        assert_eq!(with(reached, |v| *v != json!(true) && *v != json!(SKIPPED)), ["asan", "kills"]);
    }

    #[test]
    fn a_missing_answer_is_a_difference() {
        let rows =
            |answers: &[Value]| answers.iter().map(|a| json!({ "row": 7, "answer": a })).collect::<Vec<_>>();
        let (a, b) =
            (rows(&[json!("x"), json!("y"), json!(null)]), rows(&[json!("x"), json!("z"), json!(null)]));
        assert_eq!(differing(&a, &b).expect("same length").len(), 2);
        assert!(differing(&a, &b[..1]).is_err());
    }
}
