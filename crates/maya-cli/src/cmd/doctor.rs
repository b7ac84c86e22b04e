//! `maya doctor`: what was found on this machine, what was not, and why.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use quant_kernels::{Cpu, Isa};
use serde_json::{Value as Json, json};

use crate::args::DoctorArgs;
use crate::demo;
use crate::machine::{Drive, Memory, Processor, drive};
use crate::output::{Out, bytes, printable};
use crate::source::Source;

/// Bytes read to judge how fast the model's file comes: enough to see the difference between memory and a drive.
const READ_BYTES: u64 = 64 << 20;

/// Prints the report. A finding is not a failure: the exit code is 0 whatever was found.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let path = args.model.model.as_deref().filter(|p| !p.as_os_str().is_empty());
    let lines = [processor(), instructions(), threads(), memory(), cgroup(), gpu(), cache()];
    let lines: Vec<Finding> = lines.into_iter().chain(model(path)).collect();
    let mut out = Out::new();
    if args.json {
        let map: serde_json::Map<String, Json> = lines
            .into_iter()
            .map(|l| (l.what.to_owned(), json!({"found": l.found, "facts": l.facts})))
            .collect();
        out.line(Json::Object(map))?;
    } else {
        for line in lines {
            out.line(format_args!("{:<13}{}", line.what, printable(&line.found)))?;
        }
    }
    out.flush()
}

/// One line of the report: a sentence for people and the same for programs.
struct Finding {
    what: &'static str,
    found: String,
    facts: Json,
}

fn processor() -> Finding {
    let cpu = Processor::read();
    Finding {
        what: "processor",
        found: cpu.name.clone().unwrap_or_else(|| "its name is not known".to_owned()),
        facts: json!({"name": cpu.name, "architecture": std::env::consts::ARCH}),
    }
}

/// Feature words, as /proc/cpuinfo spells them, that each set needs.
fn needs(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Scalar => &[],
        Isa::Avx2 => &["avx2", "fma", "f16c"],
        Isa::Avx512 => &[
            "avx2",
            "fma",
            "f16c",
            "avx512f",
            "avx512bw",
            "avx512vl",
            "avx512dq",
            "avx512_vbmi",
            "avx512_vnni",
        ],
    }
}

fn instructions() -> Finding {
    let used = Cpu::detect().isa();
    let features = Processor::read().features;
    let mut found = format!("{used} is used");
    let mut lacking = serde_json::Map::new();
    for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
        let absent: Vec<&str> =
            needs(isa).iter().copied().filter(|need| !features.iter().any(|have| have == need)).collect();
        let why = if cfg!(target_arch = "x86_64") {
            format!("the processor lacks {}", absent.join(", "))
        } else {
            "it belongs to x86-64 processors".to_owned()
        };
        found.push_str(&format!("; {isa} is not there: {why}"));
        lacking.insert(isa.to_string(), json!(why));
    }
    Finding { what: "instructions", found, facts: json!({"used": used.to_string(), "not_there": lacking}) }
}

fn threads() -> Finding {
    let n = Processor::read().threads;
    Finding {
        what: "threads",
        found: format!("{n} may run at once; that many are used without --threads"),
        facts: json!({"available": n}),
    }
}

fn memory() -> Finding {
    let memory = Memory::read();
    let found = match (memory.total, memory.available) {
        (Some(total), Some(available)) => format!(
            "{}, {} available, {} of files in the page cache",
            bytes(total),
            bytes(available),
            bytes(memory.cached.unwrap_or(0))
        ),
        _ => "how much there is is not known: /proc/meminfo cannot be read".to_owned(),
    };
    let facts = json!({"total": memory.total, "available": memory.available, "page_cache": memory.cached});
    Finding { what: "memory", found, facts }
}

fn cgroup() -> Finding {
    match Memory::read().cgroup {
        Some(group) => Finding {
            what: "memory limit",
            found: format!(
                "{} set by {}, {} of it in use",
                bytes(group.limit),
                group.path.display(),
                bytes(group.used)
            ),
            facts: json!({"limit": group.limit, "used": group.used, "path": group.path.display().to_string()}),
        },
        None => Finding {
            what: "memory limit",
            found: "none: no control group limits this process".to_owned(),
            facts: json!({"limit": null}),
        },
    }
}

fn gpu() -> Finding {
    let driver = fs::read_to_string("/proc/driver/nvidia/version").ok();
    let version = driver.as_deref().and_then(|text| text.lines().next()).map(str::to_owned);
    let found = match &version {
        Some(line) => format!(
            "an NVIDIA driver is here ({line}), but this build computes on the CPU only: CUDA comes later"
        ),
        None => {
            "no NVIDIA driver is loaded, and this build computes on the CPU only: CUDA comes later".to_owned()
        }
    };
    Finding { what: "gpu", found, facts: json!({"driver": version, "cuda_built_in": false}) }
}

fn cache() -> Finding {
    let path = match demo::cached_path() {
        Ok(path) => path,
        Err(e) => return Finding { what: "cache", found: e.to_string(), facts: json!({"folder": null}) },
    };
    let folder = path.parent().unwrap_or(&path).to_owned();
    let (state, found) = if demo::is_intact(&path) {
        ("written", "holds the demo model, and it is whole")
    } else if path.exists() {
        ("damaged", "holds a demo model that is not whole; it is written again when a path to it is needed")
    } else {
        ("absent", "does not hold the demo model yet; it is written when a path to it is needed")
    };
    Finding {
        what: "cache",
        found: format!("{} {found}", folder.display()),
        facts: json!({"folder": folder.display().to_string(), "demo": state}),
    }
}

/// The model: its drive and whether the engine accepts it.
fn model(path: Option<&Path>) -> Vec<Finding> {
    let source = match Source::open(path) {
        Ok(source) => source,
        Err(e) => {
            let found = format!("cannot be opened: {e:#}");
            return vec![Finding { what: "model", facts: json!({"runs": false, "error": found}), found }];
        }
    };
    let mut lines = Vec::new();
    let first = source.model.shards().first().map(|s| s.path.clone());
    if let Some(first) = source.path.as_ref().and(first) {
        let drive = drive(&first);
        let rate = read_rate(&first);
        lines.push(Finding {
            what: "drive",
            found: describe(drive.as_ref(), rate),
            facts: json!({
                "mount": drive.as_ref().map(|d| d.mount.display().to_string()),
                "type": drive.as_ref().map(|d| d.kind.clone()),
                "source": drive.as_ref().map(|d| d.source.clone()),
                "rotational": drive.as_ref().and_then(|d| d.rotational),
                "read_bytes_per_second": rate,
            }),
        });
    }
    let (name, size, shards) = (source.name.clone(), source.len(), source.model.shards().len());
    let refused = glm_graph::Model::load(source.model).err().map(|e| e.to_string());
    let verdict = match &refused {
        None => "the engine accepts it".to_owned(),
        Some(why) => format!("the engine refuses it: {why}"),
    };
    lines.push(Finding {
        what: "model",
        found: format!("{name}, {} in {shards} file{}: {verdict}", bytes(size), if shards == 1 { "" } else { "s" }),
        facts: json!({"name": name, "bytes": size, "shards": shards, "runs": refused.is_none(), "error": refused}),
    });
    lines
}

fn describe(drive: Option<&Drive>, rate: Option<f64>) -> String {
    let mut text = match drive {
        Some(d) => format!("{} on {} ({})", d.kind, d.mount.display(), d.source),
        None => "what holds the model is not known".to_owned(),
    };
    match drive.and_then(|d| d.rotational) {
        Some(true) => text.push_str(", a spinning disk: routed experts will come slowly"),
        Some(false) => text.push_str(", solid state"),
        None => {}
    }
    if let Some(rate) = rate {
        text.push_str(&format!(
            "; {} read at {} a second (from the page cache where it was read before)",
            bytes(READ_BYTES),
            bytes(rate as u64)
        ));
    }
    text
}

/// Bytes a second of a plain read from the middle of the file; `None` for a small file or on errors.
fn read_rate(path: &Path) -> Option<f64> {
    use std::io::{Seek, SeekFrom};
    let mut file = fs::File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    if len < 2 * READ_BYTES {
        return None;
    }
    file.seek(SeekFrom::Start(len / 2)).ok()?;
    let mut buffer = vec![0u8; 4 << 20];
    let started = Instant::now();
    let mut done = 0u64;
    while done < READ_BYTES {
        match file.read(&mut buffer).ok()? {
            0 => return None,
            n => done += n as u64,
        }
    }
    Some(done as f64 / started.elapsed().as_secs_f64().max(1e-9))
}
