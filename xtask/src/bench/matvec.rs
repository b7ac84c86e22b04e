//! Matrix times one vector, per format and instruction set, beside what one core reads, from the criterion bench.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{describe, run};
use crate::workspace::Workspace;

/// The group that holds the read bandwidth.
const READ: &str = "read";

/// Runs the bench and collects what criterion left of this run, gigabytes (10^9) of weights a second.
pub fn measure(workspace: &Workspace) -> Result<Value> {
    // A folder of its own, emptied first: figures of another run must not be taken for this one's.
    let folder = workspace.target().join("matvec");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    let mut command = workspace.command("cargo");
    command.args(["bench", "-p", "quant-kernels", "--bench", "matvec"]).env("CRITERION_HOME", &folder);
    println!("{}", describe(&command));
    run(&mut command)?;
    let mut figures = Vec::new();
    for group in folders(&folder)? {
        for function in folders(&group)? {
            let new = function.join("new");
            if new.is_dir() {
                figures.push(Figure::read(&new)?);
            }
        }
    }
    report(&figures)
}

/// One measured product, or the read.
struct Figure {
    group: String,
    function: String,
    bytes: f64,
    /// Median, and its confidence interval's ends.
    nanoseconds: [f64; 3],
}

impl Figure {
    fn read(folder: &Path) -> Result<Self> {
        let file = |name: &str| -> Result<Value> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            serde_json::from_str(&text).with_context(|| path.display().to_string())
        };
        let (what, times) = (file("benchmark.json")?, file("estimates.json")?);
        let text = |key: &str| what[key].as_str().map(str::to_owned).with_context(|| format!("no {key}"));
        let median = &times["median"];
        let interval = &median["confidence_interval"];
        let number = |v: &Value| v.as_f64().filter(|v| *v > 0.0).context("a time is no positive number");
        Ok(Self {
            group: text("group_id")?,
            function: text("function_id")?,
            bytes: number(&what["throughput"]["Bytes"])?,
            nanoseconds: [
                number(&median["point_estimate"])?,
                number(&interval["lower_bound"])?,
                number(&interval["upper_bound"])?,
            ],
        })
    }

    /// Bytes a nanosecond are gigabytes a second.
    fn speed(&self) -> f64 {
        self.bytes / self.nanoseconds[0]
    }
}

fn report(figures: &[Figure]) -> Result<Value> {
    let read = figures.iter().find(|f| f.group == READ).context("the bench measured no read bandwidth")?;
    let products: Vec<&Figure> = figures.iter().filter(|f| f.group != READ).collect();
    if products.is_empty() {
        bail!("the bench measured no product");
    }
    let rounded = |v: f64| (v * 1000.0).round() / 1000.0;
    let rows = products.iter().map(|f| {
        json!({
            "type": f.group,
            "isa": f.function,
            "gb_s": rounded(f.speed()),
            "share_of_read": rounded(f.speed() / read.speed()),
            "median_ns": f.nanoseconds[0],
            "median_ns_interval": f.nanoseconds[1..],
            "bytes": f.bytes,
        })
    });
    Ok(json!({ "read_one_core_gb_s": rounded(read.speed()), "products": rows.collect::<Vec<_>>() }))
}

fn folders(parent: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(parent).with_context(|| parent.display().to_string())?;
    let mut folders = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    folders.retain(|f| f.is_dir());
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(group: &str, bytes: f64, median: f64) -> Figure {
        Figure { group: group.into(), function: "avx2".into(), bytes, nanoseconds: [median, median, median] }
    }

    #[test]
    fn speeds_stand_beside_the_read_of_the_same_run() {
        let found = report(&[figure("Q6_K", 1000.0, 100.0), figure(READ, 1000.0, 50.0)]).expect("complete");
        assert_eq!(found["read_one_core_gb_s"], 20.0);
        assert_eq!(
            (&found["products"][0]["gb_s"], &found["products"][0]["share_of_read"]),
            (&json!(10.0), &json!(0.5))
        );
        assert!(report(&[figure("Q6_K", 1.0, 1.0)]).is_err() && report(&[figure(READ, 1.0, 1.0)]).is_err());
    }
}
