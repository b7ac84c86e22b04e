//! `cargo xtask parity`: unpacks the golden data, runs `maya parity` on it level by level, prints one table.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::process::output;
use crate::workspace::Workspace;

/// Cheapest first: a wrong block format explains everything after it.
const LEVELS: [&str; 7] = ["op", "isa", "layer", "text", "model", "greedy", "cuda"];
/// Needs a device: only on request, so not where all levels are run.
const ON_REQUEST: &str = "cuda";

#[derive(Args, Default)]
pub struct Arguments {
    /// Only these levels: op, isa, layer, text, model, greedy, cuda (comma-separated) [default: all but cuda, which needs a
    /// GPU and which `ci` therefore leaves out]
    #[arg(long, value_delimiter = ',', value_name = "LEVELS", value_parser = LEVELS)]
    level: Vec<String>,
}

/// All levels that need no device, as `ci` runs them.
pub fn run_all(workspace: &Workspace) -> Result<()> {
    compare(workspace, &Arguments::default())
}

/// Runs the levels; a missed comparison of any is an error.
pub fn compare(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let fixtures = unpack(workspace)?;
    let maya = workspace.release_maya()?;

    let wanted = |level: &&str| match arguments.level.as_slice() {
        [] => *level != ON_REQUEST,
        named => named.iter().any(|l| l == level),
    };
    let (mut totals, mut excused) = (Totals::default(), BTreeSet::new());
    for level in LEVELS.into_iter().filter(wanted) {
        let begin = Instant::now();
        let mut command = workspace.command(&maya.to_string_lossy());
        command.args(["parity", "--level", level, "--json", "--fixtures"]).arg(&fixtures);
        // Not `process::output`: a missed comparison exits with 1 and still prints its table.
        let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot start maya")?;
        let result = serde_json::from_slice(&output.stdout);
        let result: Value = result.with_context(|| format!("maya parity --level {level} printed no JSON"))?;
        let found = print(&result).with_context(|| format!("the table of level {level} is not complete"))?;
        println!("        {level}: {found} in {:.1} s", begin.elapsed().as_secs_f64());
        if output.status.success() != (found.missed == 0) {
            bail!("maya parity --level {level} ended with {} after {found}", output.status);
        }
        if found.passed + found.missed == 0 {
            bail!("level {level} compared nothing");
        }
        totals.add(&found);
        excused.extend(result["excused"].as_array().into_iter().flatten().map(Value::to_string));
    }
    println!("parity: {totals}");
    // Each level allows one; so does the run.
    if excused.len() > 1 {
        bail!("{} prompts were excused by close selections: {excused:?}", excused.len());
    }
    if totals.missed > 0 {
        bail!("{} comparisons missed", totals.missed);
    }
    Ok(())
}

/// A `maya parity` that compares a device: nothing may be missed, and the device has to be there.
pub fn compare_device(command: &mut std::process::Command) -> Result<()> {
    let begin = Instant::now();
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot start maya")?;
    let result: Value = serde_json::from_slice(&output.stdout).context("maya parity printed no JSON")?;
    let found = print(&result)?;
    println!("parity: {found} in {:.1} s", begin.elapsed().as_secs_f64());
    if !output.status.success() || found.missed > 0 || found.passed == 0 {
        bail!("maya parity ended with {} after {found}", output.status);
    }
    Ok(())
}

/// Puts all golden data and models that are here into one folder.
pub fn unpack(workspace: &Workspace) -> Result<PathBuf> {
    let fixtures = workspace.target().join("fixtures");
    let golden = ["run", "--quiet", "--package", "golden", "--", "unpack"];
    println!("unpacking golden data into {}", fixtures.display());
    let listed = output(workspace.command("cargo").args(golden).arg(&fixtures))?;
    for line in listed.lines().filter(|l| l.starts_with("SKIPPED")) {
        println!("{line}");
    }
    Ok(fixtures)
}

/// Rows by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    missed: u64,
    skipped: u64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.missed += other.missed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, missed, skipped } = self;
        write!(f, "{passed} comparisons passed, {missed} missed, {skipped} skipped")
    }
}

/// Prints the rows and counts them; the counts are ours, not the ones that the other program states.
fn print(result: &Value) -> Result<Totals> {
    let mut totals = Totals::default();
    for row in result["rows"].as_array().context("no rows")? {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let number = |key: &str| row[key].as_f64().map(|v| format!("{v:.2e}")).unwrap_or_default();
        let outcome = match text("outcome") {
            "passed" => {
                totals.passed += 1;
                "passed"
            }
            "skipped" => {
                totals.skipped += 1;
                "skipped"
            }
            "missed" => {
                totals.missed += 1;
                "MISSED"
            }
            other => bail!("a row ended with {other:?}"),
        };
        let (subject, what, note) = (text("subject"), text("what"), text("note"));
        let (worst, limit) = (number("worst"), number("limit"));
        let line =
            format!("{outcome:7} {:6} {subject:20} {what:34} {worst:>9} {limit:>9}  {note}", text("level"));
        println!("{}", line.trim_end());
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_their_own_outcome() {
        let row = |outcome: &str| serde_json::json!({ "level": "op", "subject": "F16", "outcome": outcome });
        let table = serde_json::json!({ "rows": [row("passed"), row("missed"), row("skipped"), row("passed")], "missed": 0 });
        assert_eq!(print(&table).expect("rows"), Totals { passed: 2, missed: 1, skipped: 1 });
        assert!(print(&serde_json::json!({ "rows": [row("fine")] })).is_err());
        assert!(print(&serde_json::json!({})).is_err());
    }
}
