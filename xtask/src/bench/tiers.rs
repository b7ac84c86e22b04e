//! Experts on two tiers: the drive against its limit, decode against the layer-serial bound, cold starts.
//!
//! The bound of a token is the sum over layers of (time beside the experts + max(computing the layer's experts, bytes that
//! the layer misses / the drive's rate)), with that token's own counts and the costs of a run in which every expert has a
//! slot. With look-ahead a drive may work during the layer before too, so a run can beat it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process::{describe, output, run};
use crate::workspace::Workspace;

/// A synthetic model and what is asked of it.
struct Model {
    name: &'static str,
    sizes: &'static str,
    /// Memory for routed experts, as shares of all of them.
    budgets: [&'static str; 3],
    decode: u32,
}

const MODELS: [Model; 2] = [
    Model {
        name: "synth-2GB",
        sizes: "--layers 8 --experts 144 --hidden 2048 --moe-ff 1024 --ff 6144 --heads 32 --vocab 32768",
        budgets: ["50%", "20%", "5%"],
        decode: 48,
    },
    Model {
        name: "synth-16GB",
        sizes: "--layers 11 --experts 288 --hidden 4096 --moe-ff 1536 --ff 8192 --heads 32 --vocab 65536",
        budgets: ["50%", "20%", "5%"],
        decode: 32,
    },
];

/// Prompts of the cold starts.
const PROMPTS: [usize; 3] = [1, 16, 256];

/// Measures everything on the drive that holds the target folder.
pub fn measure(workspace: &Workspace, maya: &Path, repeat: u32) -> Result<Value> {
    let mut models = Vec::new();
    for model in &MODELS {
        let path = file(workspace, maya, model)?;
        let bench = Bench { workspace, maya, path, repeat };
        models.push(bench.model(model)?);
    }
    Ok(json!({ "models": models }))
}

/// The model's file, made once.
fn file(workspace: &Workspace, maya: &Path, model: &Model) -> Result<PathBuf> {
    let path = workspace.target().join("bench").join(format!("{}.gguf", model.name));
    if !path.is_file() {
        let folder = path.parent().context("the target folder has no parent")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut command = workspace.command(&maya.to_string_lossy());
        run(command.arg("synth").arg(&path).args(model.sizes.split_whitespace()))?;
    }
    Ok(path)
}

/// The smaller of the models.
pub fn two_gigabytes(workspace: &Workspace, maya: &Path) -> Result<PathBuf> {
    file(workspace, maya, &MODELS[0])
}

struct Bench<'a> {
    workspace: &'a Workspace,
    maya: &'a Path,
    path: PathBuf,
    repeat: u32,
}

impl Bench<'_> {
    fn model(&self, model: &Model) -> Result<Value> {
        let drive = self.json(&["doctor", "--json", "--thorough"])?;
        let drive = drive["findings"]["read_speed"]["facts"].clone();
        let whole = self.decode("100%", model.decode, true)?;
        let costs = Costs::of(&whole, rate(&drive)?)?;
        let mut decodes = Vec::new();
        for budget in model.budgets {
            for look_ahead in [true, false, false, true] {
                let run = self.decode(budget, model.decode, look_ahead)?;
                let (measured, bound, loose) = costs.compare(&run)?;
                let misses = misses(&run)?;
                println!(
                    "{} {budget} look-ahead {look_ahead}: {measured:.1} ms a token, bound {bound:.1} ms ({:.0} %), {misses:.1} misses a token",
                    model.name,
                    100.0 * bound / measured
                );
                decodes.push(json!({
                    "ram": budget,
                    "look_ahead": look_ahead,
                    "ms_a_token": measured,
                    "layer_serial_bound_ms": bound,
                    "max_of_lanes_ms": loose,
                    "of_bound": bound / measured,
                    "misses_a_token": misses,
                    "run": run,
                }));
            }
        }
        let sizes = tokens(&whole)?[0]["expert_bytes"].as_array().context("no expert has a size")?;
        let expert = sizes.iter().filter_map(Value::as_f64).sum::<f64>() / sizes.len() as f64;
        let mut starts = Vec::new();
        for prompt in PROMPTS {
            for ram in [None, Some("50%")] {
                starts.push(self.cold_start(prompt, ram, expert, rate(&drive)?)?);
            }
        }
        Ok(json!({
            "model": model.name,
            "sizes": model.sizes,
            "file_bytes": self.path.metadata().map(|m| m.len()).ok(),
            "drive": drive,
            "costs": { "beside_experts_ms": costs.beside, "experts_ms": costs.experts, "drive_bytes_per_second": costs.rate },
            "whole": whole,
            "decode": decodes,
            "cold_starts": starts,
        }))
    }

    fn decode(&self, ram: &str, tokens: u32, look_ahead: bool) -> Result<Value> {
        let (tokens, repeat) = (tokens.to_string(), self.repeat.to_string());
        let mut arguments = vec![
            "bench",
            "--device",
            "cpu",
            "--prefill",
            "16",
            "--decode",
            &tokens,
            "--repeat",
            &repeat,
            "--ram",
            ram,
        ];
        if !look_ahead {
            arguments.push("--no-look-ahead");
        }
        self.json(&arguments)
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.workspace.command(&self.maya.to_string_lossy());
        command.args(arguments).arg("--model").arg(&self.path);
        println!("{}", describe(&command));
        serde_json::from_str(&output(&mut command)?).context("maya did not print JSON")
    }

    /// From nothing in memory to the first token, the program's start included.
    fn cold_start(&self, prompt: usize, ram: Option<&str>, expert: f64, rate: f64) -> Result<Value> {
        let ids: Vec<String> = (0..prompt).map(|i| (7 + 131 * i % 32_000).to_string()).collect();
        let ids = ids.join(" ");
        let routes = self.path.with_extension("routes.safetensors");
        let mut arguments = vec![
            "generate",
            "--device",
            "cpu",
            "--ids",
            &ids,
            "--max-tokens",
            "1",
            "--temperature",
            "0",
            "--json",
        ];
        arguments.extend(ram.iter().flat_map(|ram| ["--ram", ram]));
        let cached = self.drop_cache()?;
        // A start from a warm cache is another measurement, and a fast one.
        if let Some(left) = cached.as_u64().filter(|left| *left > 0) {
            bail!(
                "{left} bytes of {} stay in the page cache: no cold start can be measured",
                self.path.display()
            );
        }
        let started = Instant::now();
        let answer = self.json(&arguments)?;
        let seconds = started.elapsed().as_secs_f64();
        // Once more, untimed, for the experts that it took.
        let path = routes.to_string_lossy().into_owned();
        arguments.extend(["--dump-routes", &path]);
        self.json(&arguments)?;
        let distinct = distinct_experts(&routes)?;
        let families = self.json(&["inspect", "--json"])?["families"].clone();
        let bytes = |family: &str| families[family]["bytes"].as_f64().unwrap_or(0.0);
        let total: f64 =
            families.as_object().context("maya inspect names no families")?.keys().map(|f| bytes(f)).sum();
        let dense = total - bytes("experts") - bytes("nextn");
        let aim = (dense + expert * distinct as f64) / rate + 2.0;
        println!(
            "cold start, prompt of {prompt}, --ram {}: {seconds:.2} s, aim {aim:.2} s, {distinct} distinct experts",
            ram.unwrap_or("auto")
        );
        Ok(json!({
            "prompt": prompt,
            "ram": ram.unwrap_or("auto"),
            "seconds": seconds,
            "aim_seconds": aim,
            "dense_bytes": dense,
            "distinct_experts": distinct,
            "expert_bytes": expert,
            "cached_bytes_before": cached,
            "timings": answer["timings"],
            "tiers": answer["tiers"],
        }))
    }

    /// Drops the file from the page cache, and says how much of it is still there; null where nobody can tell. What the
    /// last program had asked for may still be on its way, so it is dropped until it stays away.
    fn drop_cache(&self) -> Result<Value> {
        let mut left = self.drop_once()?;
        for _ in 0..10 {
            if left.as_u64().is_none_or(|bytes| bytes == 0) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
            left = self.drop_once()?;
        }
        Ok(left)
    }

    fn drop_once(&self) -> Result<Value> {
        let mut drop = self.workspace.command("dd");
        let of = format!("of={}", self.path.display());
        drop.args([of.as_str(), "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]);
        run(&mut drop)?;
        let mut core = self.workspace.command("fincore");
        core.args(["--bytes", "--noheadings", "--output", "RES"]).arg(&self.path);
        let mut python = self.workspace.command("python3");
        python.args(["-c", MINCORE]).arg(&self.path);
        match output(&mut core).or_else(|_| output(&mut python)) {
            Ok(text) => {
                let bytes: u64 = text.trim().parse().with_context(|| format!("fincore printed {text:?}"))?;
                Ok(json!(bytes))
            }
            Err(error) => {
                println!("what is left in the page cache is not known: {error:#}");
                Ok(Value::Null)
            }
        }
    }
}

/// What `fincore` does, for systems without it.
const MINCORE: &str = "
import ctypes, mmap, os, sys
n = os.path.getsize(sys.argv[1])
f = open(sys.argv[1], 'rb')
c = ctypes.CDLL(None, use_errno=True)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
a = c.mmap(None, n, 1, 1, f.fileno(), 0)
pages = (n + 4095) // 4096
seen = (ctypes.c_ubyte * pages)()
assert c.mincore(ctypes.c_void_p(a), ctypes.c_size_t(n), seen) == 0
print(4096 * sum(b & 1 for b in seen))
";

/// Milliseconds of a token in which every expert has a slot, by layer.
struct Costs {
    /// Of a layer, beside its experts.
    beside: f64,
    /// Of a layer's experts.
    experts: f64,
    rate: f64,
}

impl Costs {
    fn of(run: &Value, rate: f64) -> Result<Self> {
        let tokens = tokens(run)?;
        let layers = tokens[0]["misses"].as_array().context("no layers")?.len() as f64;
        let (ms, compute) = (median(tokens, "ms")?, median(tokens, "compute_ms")?);
        Ok(Self { beside: (ms - compute) / layers, experts: compute / layers, rate })
    }

    /// Medians over the tokens of a run: measured, layer-serial bound, the longer of the lanes.
    fn compare(&self, run: &Value) -> Result<(f64, f64, f64)> {
        let (mut bounds, mut loose) = (Vec::new(), Vec::new());
        for token in tokens(run)? {
            let row = |name: &str| token[name].as_array().with_context(|| format!("no {name}"));
            let (misses, guessed, bytes) = (row("misses")?, row("guessed")?, row("expert_bytes")?);
            let drive: Vec<f64> = misses
                .iter()
                .zip(guessed)
                .zip(bytes)
                .map(|((missed, guessed), bytes)| {
                    let number = |v: &Value| v.as_f64().unwrap_or(0.0);
                    (number(missed) + number(guessed)) * number(bytes) / self.rate * 1e3
                })
                .collect();
            bounds.push(drive.iter().map(|ms| self.beside + ms.max(self.experts)).sum());
            let compute = drive.len() as f64 * (self.beside + self.experts);
            loose.push(compute.max(drive.iter().sum()));
        }
        Ok((median(tokens(run)?, "ms")?, middle(bounds), middle(loose)))
    }
}

fn tokens(run: &Value) -> Result<&Vec<Value>> {
    let tokens = run["last_decode"].as_array().filter(|list| !list.is_empty());
    tokens.context("maya bench names no tokens: were there no tiers?")
}

fn median(tokens: &[Value], name: &str) -> Result<f64> {
    let values: Option<Vec<f64>> = tokens.iter().map(|token| token[name].as_f64()).collect();
    values.map(middle).with_context(|| format!("a token without {name}"))
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The most that the drive gave: to the reader by either back-end, or to plain reads. A bound from less is no bound.
fn rate(drive: &Value) -> Result<f64> {
    let runs = drive["runs"].as_array().into_iter().flatten();
    let rates = runs.chain([&drive["raw"]]).filter_map(|run| run["bytes_per_second"].as_f64());
    rates.filter(|rate| *rate > 0.0).reduce(f64::max).context("maya doctor measured no drive")
}

/// Misses of a token over all layers, what look-ahead had guessed right among them: the mean.
fn misses(run: &Value) -> Result<f64> {
    let tokens = tokens(run)?;
    let of = |token: &Value, name: &str| {
        let layers = token[name].as_array().with_context(|| format!("no {name}"))?;
        Ok::<f64, anyhow::Error>(layers.iter().filter_map(Value::as_f64).sum())
    };
    let each: Result<Vec<f64>> =
        tokens.iter().map(|token| Ok(of(token, "misses")? + of(token, "guessed")?)).collect();
    Ok(each?.iter().sum::<f64>() / tokens.len() as f64)
}

/// Pairs of layer and expert in a trace.
fn distinct_experts(path: &Path) -> Result<usize> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let head = bytes.first_chunk::<8>().map(|len| u64::from_le_bytes(*len) as usize);
    let end = head.and_then(|len| len.checked_add(8)).filter(|end| *end <= bytes.len());
    let Some(end) = end else { bail!("{} is no safetensors file", path.display()) };
    let header: Value = serde_json::from_slice(&bytes[8..end]).context("the header of the routes")?;
    let size = |axis: usize| header["routes"]["shape"][axis].as_u64().context("no shape").map(|n| n as usize);
    let (layers, k) = (size(1)?, size(2)?);
    let ids = bytes[end..].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let pairs = ids.enumerate().map(|(at, id)| (at / k % layers, id));
    Ok(pairs.collect::<std::collections::BTreeSet<_>>().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_longer_of_drive_and_processor_layer_by_layer() {
        let token = |ms: f64, misses: [u32; 2]| json!({"ms": ms, "compute_ms": 4.0, "misses": misses, "guessed": [0, 0], "expert_bytes": [1_000_000, 1_000_000]});
        let whole = json!({"last_decode": [token(10.0, [0, 0])]});
        // 1 GB/s: a miss is a millisecond.
        let costs = Costs::of(&whole, 1e9).unwrap();
        assert_eq!((costs.beside, costs.experts), (3.0, 2.0));
        let run = json!({"last_decode": [token(20.0, [5, 1])]});
        let (measured, bound, loose) = costs.compare(&run).unwrap();
        assert_eq!((measured, bound, loose), (20.0, 3.0 + 5.0 + 3.0 + 2.0, 10.0));
        assert_eq!(misses(&run).unwrap(), 6.0);
    }

    #[test]
    fn the_bound_takes_the_best_that_the_drive_gave() {
        let run = |rate: f64| json!({ "bytes_per_second": rate });
        let drive = |raw: Value| json!({"read_bytes_per_second": 2.0, "runs": [run(1.0), run(2.0), run(3.0)], "raw": raw});
        assert_eq!(rate(&drive(run(4.0))).unwrap(), 4.0);
        assert_eq!(rate(&drive(run(0.5))).unwrap(), 3.0);
        assert_eq!(rate(&drive(Value::Null)).unwrap(), 3.0);
        assert!(rate(&json!({"runs": [], "raw": null})).is_err());
    }
}
