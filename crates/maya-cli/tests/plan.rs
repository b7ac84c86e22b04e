//! `maya plan`: figures that others published, and what must hold for any machine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;

use serde_json::Value;
use support::{SMALL, run, synth, text};

#[track_caller]
fn plan(flags: &str) -> Value {
    let args: Vec<&str> = ["plan", "--json"].into_iter().chain(flags.split_whitespace()).collect();
    serde_json::from_str(&run(&args).ok()).unwrap()
}

fn number(json: &Value, path: &str) -> f64 {
    json.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is no number in {json}"))
}

#[track_caller]
fn near(found: f64, wanted: f64, part: f64) {
    assert!((found / wanted - 1.0).abs() <= part, "{found} is not within {part} of {wanted}");
}

/// The first word of a source says what kind of number it is.
#[track_caller]
fn says_whence(input: &Value, words: &[&str]) {
    let source = input["source"].as_str().unwrap();
    let is_said = |word: &&str| source.strip_prefix(word).is_some_and(|rest| rest.starts_with([':', ' ']));
    assert!(words.iter().any(is_said), "{source:?} begins with none of {words:?}");
}

/// The launch article's own sums: 25 look-ups in RAM and 9.4 on the drive make 24 tokens a second at Zipf 0.88, 64 GB of RAM
/// 34.6, a skew of 1.25 makes 40.
#[test]
fn the_article_comes_out() {
    let article = "--box maya-launch --model-of article";
    let base = plan(&format!("{article} --zipf 0.88"));
    near(number(&base, "/lookups/ram"), 25.0, 0.02);
    near(number(&base, "/lookups/drive"), 9.4, 0.02);
    near(number(&base, "/decode_tok_s"), 24.0, 0.08);
    near(number(&plan(&format!("{article} --ram 64GB")), "/decode_tok_s"), 34.6, 0.08);
    near(number(&plan(&format!("{article} --zipf 1.25")), "/decode_tok_s"), 40.0, 0.08);
}

/// Whatever the machine and the popularity: every look-up is in one tier, every expert too, no lane alone takes longer than
/// the token, and inputs name their sources.
#[test]
fn every_plan_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let trace = text(&folder.path().join("r.safetensors"));
    run(&["synth", "--trace", &trace, "--tokens", "30"]).ok();
    let cpu = "--cpu-gbps 20 --drive-gbps 2 --ram 10GB";
    let machines = [
        "--box maya-launch",
        "--box v100-64",
        "--box rtx3090-16",
        "--box rtx4090-90",
        "--box rtx4090-48-128",
        "--box rtx3090-16 --vram 0 --ram 0",
        "--box v100-64 --vram 200GB",
        "--vram-slots 1000 --ram-slots 500 --vram-gbps 900 --pcie-gbps 12 --drive-ms 3",
        cpu,
    ];
    for machine in machines {
        for popularity in ["", "--zipf 0", "--zipf 1.2", "--lognormal 3", &format!("--trace {trace}")] {
            let json = plan(&format!("{machine} {popularity} --samples 20"));
            let at = |path: &str| number(&json, path);
            near(at("/lookups/vram") + at("/lookups/ram") + at("/lookups/drive"), 336.0, 1e-9);
            near(at("/experts/vram") + at("/experts/ram") + at("/experts/drive"), 12_096.0, 1e-9);
            near(at("/decode_tok_s"), 1e3 / at("/token_ms"), 1e-9);
            assert!(at("/widest_lane_ms") <= at("/token_ms") * (1.0 + 1e-9), "{machine} {popularity}");
            for input in json["inputs"].as_object().unwrap().values() {
                assert!(input["value"].is_number());
                says_whence(input, &["given", "derived", "assumed"]);
            }
        }
    }
    let json = plan(machines[7]);
    assert_eq!((number(&json, "/experts/vram"), number(&json, "/experts/ram")), (1000.0, 500.0));
    let json = plan(cpu);
    assert_eq!(number(&json, "/lookups/vram"), 0.0);
    assert!(json["inputs"].get("pull_ms").is_none() && json["inputs"].get("vram_bytes").is_none());
}

/// More memory or a faster lane is never slower. The article's sum counts the drive alone for what comes from it, so it is
/// asked only where the drive is slower than the bus.
#[test]
fn more_is_never_slower() {
    for (name, how) in
        [("v100-64", "maya"), ("rtx3090-16", "maya"), ("maya-launch", "maya"), ("maya-launch", "article")]
    {
        let base = format!("--box {name} --model-of {how} --samples 50");
        let drives = if how == "maya" { ["1", "3", "10", "30"] } else { ["1", "2", "3", "4"] };
        for (flag, values) in [
            ("--ram", ["0", "10GB", "30GB", "90GB"]),
            ("--vram", ["0", "10GB", "30GB", "90GB"]),
            ("--drive-gbps", drives),
            ("--pcie-gbps", ["6", "12", "25", "50"]),
        ] {
            let speeds =
                values.map(|value| number(&plan(&format!("{base} {flag} {value}")), "/decode_tok_s"));
            assert!(speeds.is_sorted(), "{base} {flag}: {speeds:?}");
        }
        let json = plan(&base);
        for next in json["next"].as_array().unwrap() {
            assert!(next["gain_tok_s"].as_f64().unwrap() >= -1e-9, "{base}: {next}");
        }
    }
}

/// A file's sizes, a chart, and text that says what it assumes.
#[test]
fn a_file_a_chart_and_text() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&synth(folder.path(), SMALL));
    let json = plan(&format!("--model {model} --cpu-gbps 10 --drive-gbps 1 --ram 50% --samples 5"));
    assert_eq!((number(&json, "/model/moe_layers"), number(&json, "/model/experts")), (3.0, 8.0));
    near(number(&json, "/lookups/ram") + number(&json, "/lookups/drive"), 6.0, 1e-9);
    near(number(&json, "/experts/ram"), 12.0, 1e-9);
    // Measured here, drive and all.
    let json = plan(&format!("--model {model} --measure --samples 5"));
    assert!(json["inputs"]["drive_ms"]["source"].as_str().unwrap().contains("synth.gguf"), "{json}");
    for input in json["inputs"].as_object().unwrap().values() {
        says_whence(input, &["measured", "derived", "assumed"]);
    }
    let svg = folder.path().join("c.svg");
    let shown = run(&["plan", "--box", "rtx4090-48-128", "--plot", &text(&svg), "--plot-over", "vram"]).ok();
    for part in ["assumed: 48 GiB", "given: Strata-GLM", "what to buy next", "16 GB of VRAM", "tok/s at most"]
    {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let drawn = fs::read_to_string(svg).unwrap();
    assert!(
        drawn.starts_with("<svg") && drawn.contains("VRAM for experts, GB") && drawn.contains("widest lane")
    );
}

#[test]
fn bad_flags_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let trace = text(&folder.path().join("r.safetensors"));
    run(&["synth", "--trace", &trace, "--tokens", "3", "--layers", "2"]).ok();
    let other = format!("--box v100-64 --trace {trace}");
    let cases = [
        ("--box nobody", 2, "maya-launch"),
        ("--box v100-64 --measure", 2, "cannot be used with"),
        ("--box v100-64 --ram lots", 2, "--ram"),
        ("--box v100-64 --ram 200%", 2, "more than 100%"),
        ("--box v100-64 --vram 1GB --vram-slots 3", 2, "cannot be used with"),
        ("--box v100-64 --zipf 1 --lognormal 1", 2, "cannot be used with"),
        ("--box v100-64 --zipf -1", 2, "between 0 and 100"),
        ("--box v100-64 --zipf nan", 2, "between 0 and 100"),
        ("--box v100-64 --drive-gbps 0", 2, "--drive-gbps"),
        ("--box v100-64 --pull-ms inf", 2, "--pull-ms"),
        ("--box v100-64 --samples 0", 2, "--samples"),
        ("--box v100-64 --plot-over vram", 2, "--plot"),
        ("--box v100-64 --trace /nonexistent/t", 1, "/nonexistent/t cannot be opened"),
        (&other, 1, "the trace has 2 layers"),
        ("--box v100-64 --model /nonexistent/m", 1, "/nonexistent/m"),
        ("--box v100-64 --hit-ms 1", 1, "take longer than the whole token"),
        ("--gpu-ms 20 --drive-ms 1", 1, "--pcie-gbps"),
        ("--gpu-ms 20 --pcie-gbps 20", 1, "--drive-gbps"),
        ("--cpu-gbps 20 --drive-ms 1 --vram 8GB", 1, "--vram needs a GPU"),
        ("--cpu-gbps 20 --drive-ms 1 --model-of article", 1, "--model-of article"),
        ("--box v100-64 --plot /nonexistent/p.svg", 1, "/nonexistent/p.svg cannot be written"),
    ];
    for (flags, code, wanted) in cases {
        let args: Vec<&str> = ["plan"].into_iter().chain(flags.split_whitespace()).collect();
        let ran = run(&args);
        assert_eq!(ran.code, Some(code), "{flags}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{flags}: {}", ran.stderr);
    }
}
