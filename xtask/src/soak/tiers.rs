//! Experts on two tiers for hours: random lives of the directory, kills while usage is saved, instruments, and the same
//! logits at every budget.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bench::two_gigabytes;
use crate::instruments::{self, Ran};
use crate::process::{describe, output, run};
use crate::workspace::Workspace;

const OPERATIONS: u64 = 5_000_000;
const KILLS: u32 = 200;
/// Memory beyond the slots in use, the landing area and the state: caches, buffers, threads, the program itself.
const BESIDE: u64 = 250_000_000;

/// Everything; what must hold is in `reached`.
pub fn soak(workspace: &Workspace) -> Result<Value> {
    let directory = timed(|| {
        let mut command = workspace.command("cargo");
        command.args(["test", "-p", "tier-cache", "--release", "--test", "model_based"]);
        command.env("TIER_CACHE_OPERATIONS", OPERATIONS.to_string()).env("TIER_CACHE_SEED", "2026");
        println!("{}", describe(&command));
        run(&mut command)
    });
    let kills = timed(|| {
        let mut command = workspace.command("cargo");
        command.args(["test", "-p", "tier-cache", "--release", "--test", "usage"]);
        println!("{}", describe(&command));
        run(command.env("TIER_CACHE_KILLS", KILLS.to_string()))
    });
    let loom = timed(|| instruments::loom(workspace));
    let timed = |what: fn(&Workspace) -> Result<Ran>| {
        let begin = Instant::now();
        let done = what(workspace);
        if let Err(error) = &done {
            println!("{error:#}");
        }
        done.map(|ran| (ran, begin.elapsed().as_secs_f64().round()))
    };
    let miri = timed(instruments::miri);
    let asan = timed(instruments::asan);

    let maya = workspace.release_maya()?;
    let mut models = Vec::new();
    let demo = demo(workspace, &maya)?;
    let big = two_gigabytes(workspace, &maya)?;
    for path in [&demo, &big] {
        models.push(Model { workspace, maya: &maya, path }.every_setting()?);
    }
    let all = |field: &str| models.iter().all(|model| model[field] == json!(true));
    Ok(json!({
        "reached": {
            "directory": directory.is_ok(),
            "kills": kills.is_ok(),
            "loom": loom.is_ok(),
            "miri": reached(&miri),
            "asan": reached(&asan),
            "same_logits": all("same_logits"),
            "same_tokens": all("same_tokens"),
            "memory": all("memory_within"),
        },
        "directory_operations": OPERATIONS,
        "kills": KILLS,
        "seconds_of": {
            "directory": directory.ok(), "kills": kills.ok(), "loom": loom.ok(), "miri": ran(miri), "asan": ran(asan),
        },
        "models": models,
    }))
}

/// True, false, or the word for neither.
fn reached(done: &Result<(Ran, f64)>) -> Value {
    match done {
        Ok((Ran::Whole, _)) => json!(true),
        Ok((Ran::Skipped, _)) => json!(super::SKIPPED),
        Err(_) => json!(false),
    }
}

/// Seconds of what ran.
fn ran(done: Result<(Ran, f64)>) -> Option<f64> {
    done.ok().filter(|(ran, _)| *ran == Ran::Whole).map(|(_, seconds)| seconds)
}

/// Seconds that it took.
fn timed(what: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    let done = what();
    if let Err(error) = &done {
        println!("{error:#}");
    }
    done.map(|()| begin.elapsed().as_secs_f64().round())
}

/// The demo model as a file.
fn demo(workspace: &Workspace, maya: &Path) -> Result<PathBuf> {
    let mut command = workspace.command(&maya.to_string_lossy());
    Ok(PathBuf::from(output(command.arg("demo-path"))?.trim()))
}

struct Model<'a> {
    workspace: &'a Workspace,
    maya: &'a Path,
    path: &'a Path,
}

impl Model<'_> {
    fn every_setting(&self) -> Result<Value> {
        let folder = self.workspace.target().join("soak");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        // Another file system where there is one: that is what mirrors are for.
        let shm = Path::new("/dev/shm");
        let mirror = if shm.is_dir() { shm } else { &folder }.join("maya-soak-mirror.gguf");
        std::fs::copy(self.path, &mirror).with_context(|| mirror.display().to_string())?;
        let result = self.compare(&folder, &mirror);
        std::fs::remove_file(&mirror).with_context(|| mirror.display().to_string())?;
        result
    }

    fn compare(&self, folder: &Path, mirror: &Path) -> Result<Value> {
        let whole = self.answers(folder, &[])?;
        let (mut runs, mut logits, mut tokens) = (Vec::new(), true, true);
        for ram in ["100%", "50%", "20%", "5%", "0"] {
            for ahead in [true, false] {
                for drive in ["uring", "threads"] {
                    for mirrored in [false, true] {
                        let mut flags = vec!["--ram", ram, "--drive", drive];
                        if !ahead {
                            flags.push("--no-look-ahead");
                        }
                        let path = mirror.to_string_lossy();
                        if mirrored {
                            flags.extend(["--mirror", &path]);
                        }
                        let answers = self.answers(folder, &flags)?;
                        logits &= answers.0 == whole.0;
                        tokens &= answers.1 == whole.1;
                        runs.push(json!({
                            "flags": flags.iter().map(|f| f.replace(&*path, "COPY")).collect::<Vec<_>>(),
                            "same_logits": answers.0 == whole.0,
                            "same_tokens": answers.1 == whole.1,
                            "logits": format!("{:016x}", answers.0),
                        }));
                    }
                }
            }
        }
        let memory = ["100%", "50%", "20%", "5%", "0"].map(|ram| self.memory(ram));
        let memory = memory.into_iter().collect::<Result<Vec<Value>>>()?;
        let within = memory.iter().all(|row| row["within"] == json!(true));
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(json!({
            "model": name,
            "bytes": self.path.metadata().map(|m| m.len()).ok(),
            "same_logits": logits,
            "same_tokens": tokens,
            "memory_within": within,
            "runs": runs,
            "memory": memory,
        }))
    }

    /// A hash of every logit of a prompt, and the tokens that follow it.
    fn answers(&self, folder: &Path, flags: &[&str]) -> Result<(u64, Value)> {
        let ids: Vec<String> = (0..48).map(|i| (3 + 37 * i % 900).to_string()).collect();
        let (ids, out) = (ids.join(" "), folder.join("logits.safetensors"));
        let maya = |words: &[&str]| {
            let mut command = self.workspace.command(&self.maya.to_string_lossy());
            command.args(words).arg("--model").arg(self.path).args(flags);
            println!("{}", describe(&command));
            output(&mut command)
        };
        maya(&["logits", "--ids", &ids, "--out", &out.to_string_lossy()])?;
        let bytes = std::fs::read(&out).with_context(|| out.display().to_string())?;
        // FNV-1a, a word at a time: only equality counts.
        let hash = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325u64, |hash, word| {
            let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            (hash ^ word).wrapping_mul(0x0100_0000_01b3)
        });
        let text = maya(&["generate", "--ids", &ids, "--max-tokens", "24", "--temperature", "0", "--json"])?;
        let answer: Value = serde_json::from_str(&text).context("maya generate did not print JSON")?;
        if answer["ids"].as_array().is_none_or(Vec::is_empty) {
            bail!("maya generate gave no tokens");
        }
        Ok((hash, answer["ids"].clone()))
    }

    /// The most memory that a bench held at this budget while it ran. Random tokens of a random model do not reach every
    /// expert, so it is held against the slots that are in use and not against all that the budget allows.
    fn memory(&self, ram: &str) -> Result<Value> {
        let mut command = self.workspace.command(&self.maya.to_string_lossy());
        command.args(["bench", "--prefill", "256", "--decode", "32", "--repeat", "4", "--ram", ram]);
        command.arg("--model").arg(self.path);
        println!("{}", describe(&command));
        let run: Value =
            serde_json::from_str(&output(&mut command)?).context("maya bench did not print JSON")?;
        let number = |value: &Value, name: &str| value[name].as_u64().with_context(|| format!("no {name}"));
        let tiers = &run["tiers"];
        let (peak, state) = (number(&run, "held_bytes_peak")?, number(&run["memory_plan"], "state")?);
        let (cap, slots) = (number(tiers, "ram_bytes")?, number(tiers, "slot_bytes")?);
        let (resident, landing) = (number(tiers, "resident_bytes")?, number(tiers, "landing_bytes")?);
        let beyond = peak.saturating_sub(state + resident + landing);
        Ok(json!({
            "ram": ram,
            "cap_bytes": cap,
            "slot_bytes": slots,
            "resident_bytes": resident,
            "landing_bytes": landing,
            "state_bytes": state,
            "held_bytes_peak": peak,
            "anonymous_bytes_after_a_run": run["rss_anon_bytes"],
            "beyond_bytes": beyond,
            "direct": tiers["direct"],
            "within": slots <= cap && resident <= slots && beyond <= BESIDE,
        }))
    }
}
