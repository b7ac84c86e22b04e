//! `maya replay`: its table, its JSON, its chart, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;

use support::{run, text};

fn trace(folder: &Path, tokens: &str) -> String {
    let path = text(&folder.join("r.safetensors"));
    run(&["synth", "--trace", &path, "--tokens", tokens, "--layers", "3", "--experts", "64", "--k", "4"])
        .ok();
    path
}

#[test]
fn the_bound_rises_with_slots() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), "200");
    let svg = folder.path().join("hits.svg");
    let args = ["replay", &path, "--policy", "belady", "--slots", "4,8,16,64,500", "--expert-bytes", "1MB"];
    let json = run(&[&args[..], &["--json", "--plot", &text(&svg)]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((report["tokens"].as_u64(), report["experts"].as_u64()), (Some(200), Some(64)));
    let results = report["results"].as_array().unwrap();
    let of = |field: &str| -> Vec<f64> { results.iter().map(|r| r[field].as_f64().unwrap()).collect() };
    let rates = of("hit_rate");
    assert!(rates.is_sorted() && rates[0] > 0.2 && rates[2] < 1.0, "{rates:?}");
    assert_eq!(rates[3..], [1.0, 1.0]);
    for (moves, bytes) in of("moves_per_token").into_iter().zip(of("bytes_per_token")) {
        assert!((moves * 1e6 - bytes).abs() < 1e-3);
    }
    let layers = results[0]["layers"].as_array().unwrap();
    let mean: f64 = layers.iter().map(|l| l["hit_rate"].as_f64().unwrap()).sum::<f64>() / 3.0;
    assert!(layers.len() == 3 && (mean - rates[0]).abs() < 1e-12);
    let drawn = fs::read_to_string(svg).unwrap();
    assert!(drawn.contains(">belady<") && drawn.contains("hit rate, %"), "{drawn}");
    let shown = run(&args).ok();
    assert!(shown.contains("belady") && shown.contains("100.0 %"), "{shown}");
}

#[test]
fn bad_traces_and_flags_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), "3");
    let short = text(&folder.path().join("short"));
    fs::write(&short, {
        let whole = fs::read(&path).unwrap();
        whole[..whole.len() - 2].to_vec()
    })
    .unwrap();
    let nothing = text(&folder.path().join("none"));
    let cases: [(&[&str], i32, &str); 9] = [
        (&["replay"], 2, "<TRACE>"),
        (&["replay", &nothing], 1, "none cannot be opened"),
        (&["replay", &text(folder.path())], 1, "is not a safetensors file"),
        (&["replay", &short], 1, "do not fit"),
        (&["replay", &path, "--policy", "best"], 2, "belady"),
        (&["replay", &path, "--slots", "0"], 2, "--slots"),
        (&["replay", &path, "--half-life", "0"], 2, "--half-life"),
        (&["replay", &path, "--expert-bytes", "5%"], 1, "--expert-bytes"),
        (&["replay", &path, "--policy", "belady", "--plot", "/nonexistent/x.svg"], 1, "/nonexistent/x.svg"),
    ];
    for (args, code, wanted) in cases {
        let ran = run(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{args:?}: {}", ran.stderr);
    }
}
