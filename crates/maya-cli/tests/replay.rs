//! `maya replay`: its table, its JSON, its chart, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
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

/// Hit rates of every policy at these slots, in percent.
fn hit_rates(trace: &str) -> Vec<(String, Vec<f64>)> {
    let args = ["replay", trace, "--slots", "17,31,61,89,201", "--json"];
    let report: Value = serde_json::from_str(&run(&args).ok()).unwrap();
    let mut policies: Vec<(String, Vec<f64>)> = Vec::new();
    for row in report["results"].as_array().unwrap() {
        let (name, rate) =
            (row["policy"].as_str().unwrap().to_owned(), 100.0 * row["hit_rate"].as_f64().unwrap());
        match policies.iter_mut().find(|(policy, _)| *policy == name) {
            Some((_, rates)) => rates.push(rate),
            None => policies.push((name, vec![rate])),
        }
    }
    policies
}

/// The yardstick: a decayed LFU of 17 to 201 slots a layer on traces that follow the hit rates measured on the real model.
/// With empty spares the directory fell short of it by 3.6 points at 17 slots.
#[test]
fn policies_stand_where_the_yardstick_says() {
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [("default", &[][..]), ("topics", &["--topic", "300"][..])] {
        let path = folder.path().join(format!("{name}.safetensors"));
        let path = path.to_str().unwrap().to_owned();
        let mut args = vec!["synth", "--trace", &path, "--tokens", "2000"];
        args.extend(flags);
        run(&args).ok();
        let policies = hit_rates(&path);
        let of = |name: &str| &policies.iter().find(|(policy, _)| policy == name).unwrap().1;
        assert_eq!(policies.len(), 6, "every policy is replayed");
        if name == "default" {
            let yardstick = [40.0, 55.0, 72.0, 81.4, 96.4];
            for (found, wanted) in of("decayed").iter().zip(yardstick) {
                assert!((found - wanted).abs() <= 1.5, "decayed: {:?}", of("decayed"));
            }
        }
        for (policy, rates) in &policies {
            assert!(rates.is_sorted(), "{name} {policy}: more slots never hit less: {rates:?}");
            let bound = rates.iter().zip(of("belady")).all(|(rate, bound)| rate <= bound);
            assert!(bound, "{name}: {policy} {rates:?} exceeds what the future allows: {:?}", of("belady"));
        }
    }
}
