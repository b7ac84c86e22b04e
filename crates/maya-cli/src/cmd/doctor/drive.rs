//! The drive below the model: what it is, how the reader reads it, and how fast.

use std::path::PathBuf;
use std::time::Duration;

use nvme_reader::{Aligned, BackendName, Choice, FileSet, Reader, Report};
use serde_json::{Value as Json, json};

use super::Finding;
use crate::drive::{Job, Latency, Measured, Rate, Raw, measure, raw};
use crate::engine::fresh_seed;
use crate::machine::{Mount, System};
use crate::output::bytes;

/// Bytes of a model that is not worth measuring: its first reading brings it into memory.
const SMALL: u64 = 256 << 20;
/// Bounds of one of the five measurements, the reader's and the plain reads' alike: time, and bytes.
type Bounds = (Duration, u64);
/// All five take about a second and read less than 1 GB.
const SHORT: Bounds = (Duration::from_millis(180), 160_000_000);
/// For numbers that others are computed from: a drive's caches and its first moments no longer decide.
const LONG: Bounds = (Duration::from_millis(1500), 20_000_000_000);
/// Bytes a second below which 32 reads of 1 MiB at once would take seconds to come back.
const SLOW: f64 = 20e6;
/// Threads of the plain reads, as many as the reader has I/Os at the drive at its full depth. Each reads as much at once as
/// one of those.
const RAW_THREADS: usize = 32;
/// The depths that are measured: one read waits for the other, and a full drive.
const DEPTHS: [u32; 2] = [1, 32];

/// What the model is read from.
pub(super) struct Read<'a> {
    /// Its files; none for the model inside the program, or where there are none.
    pub(super) paths: &'a [PathBuf],
    /// Bytes of them.
    pub(super) bytes: u64,
    /// Bytes of a routed expert.
    pub(super) blob: u32,
    /// Whether the model is inside the program.
    pub(super) is_embedded: bool,
    /// Whether to measure longer.
    pub(super) thorough: bool,
}

/// The findings, and the bytes a second that the reader brings.
pub(super) fn findings(system: &System, read: &Read<'_>) -> (Vec<Finding>, Option<f64>) {
    let mut mounts: Vec<Mount> = Vec::new();
    for mount in read.paths.iter().filter_map(|path| Mount::of(system, path)) {
        if !mounts.contains(&mount) {
            mounts.push(mount);
        }
    }
    let report = report(read.paths);
    let speed = speed(read, &mounts);
    let rate = speed.best();
    let mut list = Vec::new();
    if !read.paths.is_empty() {
        list.push(drive(&mounts));
        list.push(direct(report.as_ref()));
    }
    list.push(io_uring(system, report.as_ref()));
    list.push(speed.finding(read));
    (list, rate)
}

/// What a reader of these files would be; of the program itself where there are none.
fn report(paths: &[PathBuf]) -> Result<Report, String> {
    let own: Vec<PathBuf> = std::env::current_exe().into_iter().collect();
    let sets: Vec<FileSet> = if paths.is_empty() { &own } else { paths }.iter().map(FileSet::from).collect();
    match Reader::<Aligned>::open(&sets) {
        Ok(reader) => Ok(reader.report()),
        Err(error) => Err(error.to_string()),
    }
}

fn drive(mounts: &[Mount]) -> Finding {
    let describe = |m: &Mount| {
        let mut text = format!("{} on {} ({})", m.kind, m.at.display(), m.source);
        if let Some(model) = &m.model {
            text.push_str(&format!(", {model}"));
        }
        match m.rotational {
            Some(true) => {
                text.push_str(", which says that it is a spinning disk: if so, routed experts come slowly")
            }
            Some(false) => text.push_str(", solid state"),
            None if m.is_memory() => text.push_str(", which is memory"),
            None if m.is_network() => text.push_str(", over a network"),
            None => {}
        }
        text
    };
    let found = match mounts {
        [] => "what holds the model is not known".to_owned(),
        [one] => describe(one),
        many => format!(
            "the model's files lie on {} file systems: {}",
            many.len(),
            many.iter().map(describe).collect::<Vec<_>>().join("; ")
        ),
    };
    let facts: Vec<Json> = mounts
        .iter()
        .map(|m| {
            json!({
                "mount": m.at.display().to_string(),
                "type": m.kind,
                "source": m.source,
                "model": m.model,
                "rotational": m.rotational,
                "memory": m.is_memory(),
                "network": m.is_network(),
                "virtual": m.is_virtual(),
            })
        })
        .collect();
    Finding::new("drive", found, json!({"mounts": facts}))
}

fn direct(report: Result<&Report, &String>) -> Finding {
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            return Finding::new("direct reads", format!("not known: {error}"), json!({"direct": null}));
        }
    };
    let whys: Vec<String> = report
        .files
        .iter()
        .filter_map(|f| Some(format!("{} {}", f.path.display(), f.why_buffered?)))
        .collect();
    let alignment = report.files.iter().map(|f| f.alignment).max().unwrap_or(1);
    let found = match whys.as_slice() {
        [] => format!("reads go around the page cache, in multiples of {alignment} bytes"),
        [why] => why.clone(),
        [why, ..] => format!("{why}; {} of {} files are read so", whys.len(), report.files.len()),
    };
    Finding::new(
        "direct reads",
        found,
        json!({"direct": whys.is_empty(), "alignment": alignment, "why_not": whys.first()}),
    )
}

fn io_uring(system: &System, report: Result<&Report, &String>) -> Finding {
    let disabled = system.number("proc/sys/kernel/io_uring_disabled");
    let (found, used) = match report {
        Ok(report) => {
            let used = report.backend == BackendName::Uring;
            (format!("reads go through {}: {}", report.backend, report.reason), Some(used))
        }
        Err(error) => (format!("not known: {error}"), None),
    };
    Finding::new("io_uring", found, json!({"used": used, "io_uring_disabled": disabled}))
}

/// What was measured, or why not.
#[derive(Default)]
struct Speed {
    runs: Vec<(u32, Measured)>,
    raw: Option<Raw>,
    /// Why there is nothing, or not all.
    why: Option<String>,
}

fn speed(read: &Read<'_>, mounts: &[Mount]) -> Speed {
    let skipped = |why: &str| Speed { why: Some(why.to_owned()), ..Speed::default() };
    if read.is_embedded {
        return skipped("not measured: the model is inside the program, and no drive is read for it");
    }
    if read.paths.is_empty() {
        return skipped("not measured: there is no file to read");
    }
    if mounts.iter().any(Mount::is_memory) {
        return skipped(
            "not measured: the model's files are in memory (a tmpfs), and no drive is read for them",
        );
    }
    if read.bytes < SMALL {
        return skipped(&format!(
            "not measured: the model has {}, and its first reading brings it into memory",
            bytes(read.bytes)
        ));
    }
    let mut speed = Speed::default();
    for backend in [Choice::Uring, Choice::Threads] {
        for depth in DEPTHS {
            let job = job(read, backend, depth);
            match measure(&job) {
                Ok(measured) => {
                    let is_slow = measured.rate.bytes_per_second < SLOW;
                    speed.runs.push((depth, measured));
                    if is_slow {
                        speed.why = Some("no more was measured, since it would take too long".to_owned());
                        return speed;
                    }
                }
                // The line about io_uring says why.
                Err(_) if backend == Choice::Uring => break,
                Err(error) => {
                    speed.why = Some(format!("{error:#}"));
                    return speed;
                }
            }
        }
    }
    match raw(&job(read, Choice::Auto, 1), RAW_THREADS) {
        Ok(raw) => speed.raw = Some(raw),
        Err(error) => speed.why = Some(format!("{error:#}")),
    }
    speed
}

fn job<'a>(read: &Read<'a>, backend: Choice, depth: u32) -> Job<'a> {
    let (time, bytes) = if read.thorough { LONG } else { SHORT };
    Job {
        paths: read.paths,
        blob: read.blob,
        depth,
        backend,
        register: backend == Choice::Uring,
        time,
        bytes,
        seed: fresh_seed(),
    }
}

impl Speed {
    /// Bytes a second of the back-end that the engine takes, which is the first that was measured, with a full drive.
    fn best(&self) -> Option<f64> {
        let chosen = self.runs.first()?.1.report.backend;
        let runs = self.runs.iter().filter(|(_, m)| m.report.backend == chosen);
        runs.map(|(_, m)| m.rate.bytes_per_second).reduce(f64::max)
    }

    fn ratio(&self) -> Option<f64> {
        self.over_raw(self.best()?)
    }

    fn over_raw(&self, rate: f64) -> Option<f64> {
        Some(rate / self.raw.as_ref()?.rate.bytes_per_second)
    }

    fn is_cached(&self) -> bool {
        self.runs.iter().any(|(_, m)| m.report.files.iter().any(|f| !f.is_direct()))
    }

    fn finding(&self, read: &Read<'_>) -> Finding {
        let mut said = Vec::new();
        for backend in [BackendName::Uring, BackendName::Threads] {
            let runs: Vec<String> = self
                .runs
                .iter()
                .filter(|(_, m)| m.report.backend == backend)
                .map(|(depth, m)| {
                    format!("{} at depth {depth} ({})", per_second(&m.rate), waits(&m.rate.latency))
                })
                .collect();
            if !runs.is_empty() {
                said.push(format!("{backend} {}", runs.join(", ")));
            }
        }
        if let Some(raw) = &self.raw {
            let ratio = self
                .ratio()
                .map_or(String::new(), |r| format!(", of which the reader gives {:.0} %", 100.0 * r));
            let cached = if raw.is_direct { "" } else { " through the page cache" };
            said.push(format!(
                "plain reads of {} threads{cached} {}{ratio}",
                raw.threads,
                per_second(&raw.rate)
            ));
        }
        if !said.is_empty() && self.is_cached() {
            said.push("what was in the page cache counts as fast, so the drive may be slower".to_owned());
        }
        said.extend(self.why.clone());
        let mut found = said.join("; ");
        if !self.runs.is_empty() {
            found = format!("random reads of {}: {found}", bytes(read.blob.into()));
        }
        let runs: Vec<Json> = self.runs.iter().map(|(depth, m)| self.run_facts(*depth, m)).collect();
        let raw = self.raw.as_ref().map(|r| {
            let mut facts = rate_facts(&r.rate);
            facts["threads"] = json!(r.threads);
            facts["direct"] = json!(r.is_direct);
            facts
        });
        let facts = json!({
            "read_bytes_per_second": self.best(),
            "blob_bytes": read.blob,
            "through_page_cache": if self.runs.is_empty() { None } else { Some(self.is_cached()) },
            "runs": runs,
            "raw": raw,
            "reader_over_raw": self.ratio(),
            "why_not": self.why,
        });
        Finding::new("read speed", found, facts)
    }

    fn run_facts(&self, depth: u32, measured: &Measured) -> Json {
        let mut facts = rate_facts(&measured.rate);
        facts["backend"] = json!(measured.report.backend.to_string());
        facts["depth"] = json!(depth);
        facts["reader_over_raw"] = json!(self.over_raw(measured.rate.bytes_per_second));
        facts["registered_bytes"] = json!(measured.report.memory.bytes);
        facts["not_registered"] = json!(measured.report.memory.why_not.map(|why| why.to_string()));
        facts
    }
}

fn per_second(rate: &Rate) -> String {
    format!("{:.2} GB/s", rate.gbps())
}

fn waits(latency: &Latency) -> String {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    format!("{:.1} ms each, at most {:.1}", ms(latency.p50), ms(latency.max))
}

fn rate_facts(rate: &Rate) -> Json {
    let us = |d: Duration| d.as_micros() as u64;
    let l = &rate.latency;
    json!({
        "bytes_per_second": rate.bytes_per_second,
        "bytes": rate.bytes,
        "seconds": rate.elapsed.as_secs_f64(),
        "p50_us": us(l.p50),
        "p90_us": us(l.p90),
        "p99_us": us(l.p99),
        "max_us": us(l.max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(paths: &[PathBuf], bytes: u64) -> Read<'_> {
        Read { paths, bytes, blob: 1 << 20, is_embedded: false, thorough: false }
    }

    #[test]
    fn what_is_not_measured_says_why() {
        let memory = Mount {
            at: "/dev/shm".into(),
            kind: "tmpfs".into(),
            source: "shm".into(),
            rotational: None,
            model: None,
        };
        let disk = Mount { kind: "ext4".into(), rotational: Some(true), ..memory.clone() };
        let paths = [PathBuf::from("/nonexistent/m.gguf")];
        for (read, mounts, says) in [
            (Read { is_embedded: true, ..read(&[], 0) }, vec![], "inside the program"),
            (read(&[], 0), vec![], "no file to read"),
            (read(&paths, 1 << 40), vec![memory.clone()], "in memory (a tmpfs)"),
            (read(&paths, 1000), vec![disk.clone()], "the model has 1.00 kB"),
            (read(&paths, 1 << 40), vec![disk.clone()], "/nonexistent/m.gguf"),
        ] {
            let speed = speed(&read, &mounts);
            assert_eq!(speed.best(), None);
            let finding = speed.finding(&read);
            assert!(finding.found.contains(says), "{finding:?}");
            assert!(finding.facts["why_not"].as_str().unwrap().contains(says), "{finding:?}");
        }
        assert!(drive(std::slice::from_ref(&disk)).found.contains("spinning"));
        assert!(drive(&[disk, memory]).found.starts_with("the model's files lie on 2 file systems: "));
        assert!(direct(Err(&"why".to_owned())).found.contains("why"));
    }

    #[test]
    fn a_measurement_has_both_back_ends_and_a_limit_to_compare_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        std::fs::write(&path, vec![5; 16 << 20]).unwrap();
        let paths = [path];
        let (list, rate) = findings(&System::here(), &read(&paths, SMALL));
        let speed = list.iter().find(|f| f.what == "read speed").unwrap();
        if speed.facts["why_not"].is_string() {
            golden::skipped(format_args!("a_measurement_has_both_back_ends: {}", speed.found));
            return;
        }
        assert!(rate.is_some_and(|r| r > 0.0), "{speed:?}");
        assert!(speed.found.contains("threads") && speed.found.contains("at depth 32"), "{speed:?}");
        assert!(speed.facts["reader_over_raw"].as_f64().is_some_and(|r| r > 0.0), "{speed:?}");
        let runs = speed.facts["runs"].as_array().unwrap();
        assert!(matches!(runs.len(), 2 | 4), "{runs:?}");
        for run in runs {
            assert!(run["bytes"].as_u64().unwrap() <= SHORT.1 && run["p50_us"].is_u64(), "{run}");
            let raw = speed.facts["raw"]["bytes_per_second"].as_f64().unwrap();
            let ratio = run["bytes_per_second"].as_f64().unwrap() / raw;
            assert!((run["reader_over_raw"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9, "{run}");
        }
        assert!(speed.facts["raw"]["bytes"].as_u64().unwrap() <= SHORT.1, "the same bounds");
    }
}
