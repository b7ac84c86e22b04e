//! `maya generate`, `logits`, `perplexity`, `bench`, `eval`: numbers that fit each other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use support::{SMALL, maya, run, signal, synth, text};

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&run(args).ok()).unwrap()
}

/// `logits` of the demo model as (rows, columns, values).
fn logits(path: &std::path::Path) -> (usize, usize, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    let n = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    let names: Vec<&String> = header.as_object().unwrap().keys().collect();
    assert_eq!(names, ["logits"]);
    let tensor = &header["logits"];
    assert_eq!(tensor["dtype"], "F32");
    let shape: Vec<usize> =
        tensor["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
    let values: Vec<f32> = bytes[8 + n..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!(values.len(), shape[0] * shape[1]);
    (shape[0], shape[1], values)
}

/// The JSON of a completion has exactly the promised fields, and greedy tokens are the largest logits.
#[test]
fn a_completion_as_json() {
    let ids = "2014 2016 2019 1650 258 1837 13 2020 2034 2035";
    let it = json(&["generate", "--ids", ids, "--max-tokens", "5", "--temperature", "0", "--json"]);
    let mut fields: Vec<&String> = it.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["finish", "ids", "prompt_ids", "text", "tiers", "timings"]);
    let numbers = |field: &str| -> Vec<u64> {
        it[field].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect()
    };
    let prompt: Vec<u64> = ids.split(' ').map(|id| id.parse().unwrap()).collect();
    assert_eq!(numbers("prompt_ids"), prompt);
    assert!(matches!(it["finish"].as_str(), Some("stop" | "length")));
    assert!(it["timings"]["prefill_ms"].is_f64() && it["tiers"].as_object().unwrap().is_empty());
    let generated = numbers("ids");
    assert!(!generated.is_empty() && generated.len() <= 5);

    // Teacher-forced over prompt and completion: each token is the largest logit of the row before it.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("l.safetensors");
    let all: Vec<String> = prompt.iter().chain(&generated).map(u64::to_string).collect();
    run(&["logits", "--ids", &all.join(","), "--out", &text(&out)]).ok();
    let (rows, cols, values) = logits(&out);
    assert_eq!((rows, cols), (all.len(), 2048));
    for (i, &id) in generated.iter().enumerate() {
        let row = &values[(prompt.len() - 1 + i) * cols..][..cols];
        let best = (0..cols).fold(0, |best, j| if row[j] > row[best] { j } else { best });
        assert_eq!(best as u64, id, "token {i}");
    }
}

/// Text and JSON say the same; a seed reproduces; no token at all is a completion too.
#[test]
fn text_is_the_text_of_the_json() {
    let base = ["generate", "--prompt", "The capital of", "--max-tokens", "12", "--seed", "7"];
    let shown = run(&base).ok();
    let mut args = base.to_vec();
    args.push("--json");
    let it = json(&args);
    assert_eq!(shown, format!("{}\n", it["text"].as_str().unwrap()));
    assert_eq!(it["ids"], json(&args)["ids"]);
    let none = json(&["generate", "--prompt", "a", "--max-tokens", "0", "--json"]);
    assert_eq!((none["ids"].as_array().unwrap().len(), none["finish"].as_str()), (0, Some("length")));
    // Written special tokens count, unless refused.
    let special = |flag: &str| {
        let it = json(&[
            "generate",
            "--prompt",
            "<|user|>",
            "--parse-special",
            flag,
            "--max-tokens",
            "0",
            "--json",
        ]);
        it["prompt_ids"].as_array().unwrap().len()
    };
    assert_eq!(special("true"), 1);
    assert!(special("false") > 1);
}

/// Against itself a model has no distance, and saved logits are what `logits` gives.
#[test]
fn perplexity_against_itself() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    std::fs::write(at("t"), "The cat sat on the mat. The dog ran to the park. ".repeat(8)).unwrap();
    let args = ["perplexity", "--text", &at("t"), "--window", "50", "--json"];
    let saved = json(&[&args[..], &["--save", &at("base")]].concat());
    let again = json(&[&args[..], &["--against", &at("base")]].concat());
    assert_eq!(saved["perplexity"], again["perplexity"]);
    assert_eq!(again["against"]["top1_agreement"], 1.0);
    assert!(again["against"]["kl_mean"].as_f64().unwrap().abs() < 1e-9);
    assert_eq!(again["against"]["perplexity"], again["perplexity"]);
    assert!(saved["perplexity"].as_f64().unwrap() > 1.0);
    // Another latent type is another arithmetic, and close.
    let other = json(&[&args[..], &["--against", &at("base"), "--kv", "f32"]].concat());
    assert!(other["against"]["kl_mean"].as_f64().unwrap() < 0.01, "{other}");
    let shown = run(&["perplexity", "--text", &at("t"), "--against", &at("base"), "--window", "50"]).ok();
    assert!(shown.contains("perplexity") && shown.contains("KL") && shown.contains("top-1"), "{shown}");
}

/// Measurements have their fields, and memory beside the map is state, caches and at most 200 MB.
#[test]
fn bench_fields_and_anonymous_memory() {
    let folder = tempfile::tempdir().unwrap();
    // 0.4 GB of weights: were they copied, or dequantised, the bound would be missed.
    let model = synth(folder.path(), "--layers 5 --experts 32 --hidden 1024 --moe-ff 512 --vocab 4096");
    let model = text(&model);
    // `exact` is slow on a matrix of this size, and 8 positions already meet every tensor and most of the experts.
    for (precision, prefill, decode, repeat) in [("fast", "96", "8", "2"), ("exact", "8", "1", "1")] {
        let sizes = ["--prefill", prefill, "--decode", decode, "--repeat", repeat, "--ctx", "256"];
        let it = json(&[&["bench", "--precision", precision, "--model", &model], &sizes[..]].concat());
        for (part, tokens) in [("prefill", prefill), ("decode", decode)] {
            assert_eq!(it[part]["tokens"].to_string(), tokens);
            assert_eq!(it[part]["tok_s"].as_array().unwrap().len().to_string(), repeat);
            assert!(it[part]["median_tok_s"].as_f64().unwrap() > 0.0);
        }
        assert_eq!(it["precision"], precision);
        for field in ["isa", "threads", "load_s", "commit", "model"] {
            assert!(!it[field].is_null(), "{field}");
        }
        let weights = it["memory_plan"]["weights_mapped"].as_u64().unwrap();
        assert!(weights > 390_000_000);
        let Some(anonymous) = it["rss_anon_bytes"].as_u64() else {
            golden::skipped(format_args!(
                "the bound on anonymous memory: /proc/self/status has no RssAnon here"
            ));
            return;
        };
        let peak = it["held_bytes_peak"].as_u64().unwrap();
        assert!(peak >= anonymous, "{precision}: at most {peak} bytes, and {anonymous} at the end of a run");
        let plan = &it["memory_plan"];
        let allowed = plan["state"].as_u64().unwrap() + plan["caches"].as_u64().unwrap() + 200_000_000;
        assert!(anonymous <= allowed, "{precision}: {anonymous} bytes, {allowed} allowed");
    }
}

/// Ctrl-C once finishes: what is there is printed. Twice ends at once with 130.
#[test]
fn control_c_once_and_twice() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&synth(folder.path(), SMALL));
    let mut child = maya(&[
        "generate",
        "--ids",
        "1 2 3",
        "--max-tokens",
        "100000000",
        "--json",
        "--ctx",
        "1000000",
        "--model",
        &model,
    ])
    .spawn()
    .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let it: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The JSON keeps to its two words; that somebody cut it is said beside it.
    assert_eq!(it["finish"], "length");
    let n = it["ids"].as_array().unwrap().len();
    assert!(n > 0);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&format!("stopped by Ctrl-C after {n} of at most 100000000 tokens")), "{stderr}");

    // Waiting for a line nothing looks at the first one, so the second surely meets a running program.
    let mut child = maya(&["chat"]).stdin(Stdio::piped()).spawn().unwrap();
    // Waiting for the child would close it, and a chat whose input ends is over too.
    let _stdin = child.stdin.take();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut String::new()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first one ended it");
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// The first rows of the evaluation file, answered and compared.
#[test]
fn eval_answers_and_distances() {
    let Some(path) = golden::model("eval.jsonl") else { return };
    let path = text(&path);
    let lines = run(&["eval", &path, "--rows", "6"]).ok();
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[6]["rows"], 6);
    assert!(lines[6]["right"].as_u64().unwrap() >= 5, "{}", lines[6]);
    let lines = run(&["eval", &path, "--rows", "3", "--kl"]).ok();
    let sums: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let kl = sums["kl_mean"].as_f64().unwrap();
    assert!((0.0..0.1).contains(&kl), "{sums}");
}
