//! `maya synth --trace`: the file is NumPy's, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;

use sha2::{Digest, Sha256};
use support::{run, text};

/// Hashes of files that a script wrote with NumPy 2 (`default_rng`, `normal`, `gumbel`, `argsort`).
#[test]
fn traces_are_numpys() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("r.safetensors"));
    let small = "--tokens 20 --layers 2 --experts 16 --k 4";
    let cases = [
        ("", "55425806dac86f540304704a1386d4cf8edfce0fd0939bcf84ee600968c1b769"),
        ("--topic 7 --seed 3", "21164d8e7049c08d8b595f831dbad4a61f5ab171254b9397ee49d52096877c2d"),
        ("--skip 10 --topic 7", "74a70300618b53043046705472603e7cd492591827ffa73fa326c4445b13d03d"),
        ("--k 16 --sigma 0", "d0a3abf1a2d6199c59dcfa5402e4e0fecfd84117a5d620c353f117837e61e94a"),
        (
            "--topic 5 --topic-sigma 2.5 --seed 12345678901 --tokens 50 --layers 42 --experts 288 --k 8 --sigma 1",
            "a673c4e2895c873004e0e051da07fc64009b1cae1a4907dcc822aaae1803f6de",
        ),
    ];
    for (flags, wanted) in cases {
        let mut args = vec!["synth", "--trace", &path];
        // What a case says itself is not said twice.
        let said = |flag: &str| flags.split_whitespace().any(|f| f == flag);
        let words: Vec<&str> = small.split_whitespace().collect();
        for pair in words.chunks_exact(2).filter(|pair| !said(pair[0])) {
            args.extend(pair);
        }
        args.extend(flags.split_whitespace());
        run(&args).ok();
        let sum: String =
            Sha256::digest(fs::read(&path).unwrap()).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(sum, wanted, "{flags}");
    }
}

#[test]
fn flags_that_make_no_trace_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("r.safetensors"));
    let cases = [
        ("--k 9 --experts 8", 1, "--k 9 is more than --experts 8"),
        ("--experts 65536 --layers 1", 1, "--experts 65536 is more than the 65535 that a replay can take"),
        ("--experts 65535 --layers 1000", 1, "--layers 1000 of --experts 65535"),
        ("--sigma nan", 1, "--sigma NaN"),
        ("--topic-sigma inf", 1, "--topic-sigma inf"),
        ("--sigma -1", 1, "--sigma -1 is not a deviation"),
        ("--tokens 0", 2, "--tokens"),
        ("--hidden 256", 2, "--hidden"),
        ("out.gguf", 2, "cannot be used with"),
    ];
    for (flags, code, wanted) in cases {
        let args: Vec<&str> =
            ["synth", "--trace", &path].into_iter().chain(flags.split_whitespace()).collect();
        let ran = run(&args);
        assert_eq!(ran.code, Some(code), "{flags}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{flags}: {}", ran.stderr);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{flags}");
    }
    // A file of weights has no tokens: it is refused, not written.
    let out = text(&folder.path().join("x.gguf"));
    for (args, wanted) in
        [(&["synth", &out, "--tokens", "5"][..], "--tokens"), (&["synth", "--k", "5"], "<OUT>")]
    {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
    }
}

/// What misses and finds no spare is read for every token and thrown away: it counted as nothing to move.
#[test]
fn everything_that_was_read_counts_as_moved() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("r.safetensors"));
    run(&["synth", "--trace", &path, "--tokens", "50", "--layers", "2", "--experts", "64", "--k", "4"]).ok();
    let args = ["replay", &path, "--slots", "2,8,64", "--spares", "9", "--expert-bytes", "1MB"];
    let ran = run(&[&args[..], &["--json"]].concat());
    assert!(ran.stderr.contains("--slots 2 have room for 0 of the 9 spares"), "{}", ran.stderr);
    assert!(ran.stderr.contains("read and not kept"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--slots 8 have room for 7 of the 9 spares"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("--slots 64"), "{}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&ran.ok()).unwrap();
    for row in report["results"].as_array().unwrap() {
        let of = |field: &str| row[field].as_f64().unwrap();
        // 2 layers of 4 experts.
        let missed = 8.0 * (1.0 - of("hit_rate"));
        assert!((of("moves_per_token") - missed).abs() < 1e-9, "{row}");
        assert!((of("bytes_per_token") - missed * 1e6).abs() < 1e-3, "{row}");
        assert!(of("kept_per_token") <= of("moves_per_token"), "{row}");
        if row["slots"] == 2 && row["policy"] != "belady" {
            assert_eq!(of("kept_per_token"), 0.0, "{row}");
        }
    }
    let shown = run(&args).ok();
    assert!(shown.contains("moves a token") && shown.contains("of them kept"), "{shown}");
}
