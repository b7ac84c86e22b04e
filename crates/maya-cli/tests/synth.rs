//! `maya synth`: the file, its readers, and what is left when it cannot be written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{SMALL, maya, run, signal, synth, text};

/// The Python `gguf` package opens the file and sees the table that the reference generator writes.
#[test]
fn the_python_reader_opens_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = synth(folder.path(), SMALL);
    let script = "import sys, gguf\n\
        r = gguf.GGUFReader(sys.argv[1])\n\
        assert r.fields['general.architecture'].contents() == 'glm5-next'\n\
        for t in r.tensors: print(t.name, t.tensor_type.name, *[int(d) for d in t.shape])\n";
    let probe = Command::new("python3").args(["-c", "import gguf"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|s| s.success()) {
        assert!(std::env::var_os("MAYA_TEST_PYTHON_GGUF").is_none(), "python3 cannot import gguf");
        golden::skipped(format_args!(
            "the_python_reader_opens_it: python3 with the package gguf is not here"
        ));
        return;
    }
    let output = Command::new("python3").args(["-c", script]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), include_str!("data/synth_small.txt"));
}

#[test]
fn both_spellings_run() {
    let folder = tempfile::tempdir().unwrap();
    for arch in ["glm5-next", "glm5next"] {
        let path = text(&synth(folder.path(), &format!("{SMALL} --arch {arch}")));
        let json = run(&["inspect", "--json", &path]).ok();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["architecture"], "glm5-next");
        assert_eq!(report["architecture_in_file"], arch);
        assert_eq!(report["runs"], true, "{}", report["refused"]);
        assert_eq!(report["missing"].as_array().unwrap().len(), 0);
        let shown = run(&["inspect", &path]).ok();
        assert!(shown.contains("none: this file can only be used with token ids"), "{shown}");
    }
}

#[test]
fn sizes_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = text(&folder.path().join("x.gguf"));
    let cases = [
        ("--hidden 100", 1, "token_embd.weight"),
        ("--topk-experts 9 --experts 8", 1, "--topk-experts 9 is more than --experts 8"),
        ("--std nan", 1, "--std NaN"),
        ("--layers 0", 2, "--layers"),
        ("--layers x", 2, "--layers"),
        ("--layers 1001", 2, "1001 is not in 1..=1000"),
        ("--vocab 4294967295 --hidden 4294967040", 1, "token_embd.weight"),
    ];
    for (flags, code, wanted) in cases {
        let args: Vec<&str> = ["synth", &out].into_iter().chain(flags.split_whitespace()).collect();
        let ran = run(&args);
        assert_eq!(ran.code, Some(code), "{flags}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{flags}: {}", ran.stderr);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{flags}");
    }
}

/// Ctrl-C in the middle: a sentence, exit code 1, and neither the file nor a part of it.
#[test]
fn an_interrupted_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    // 18 GB: no machine writes that before the signal, and nothing of it stays.
    let mut child = maya(&["synth", &text(&path), "--layers", "9"]).spawn().unwrap();
    let started = Instant::now();
    while fs::read_dir(folder.path()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(started.elapsed() < Duration::from_secs(60), "it does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted") && stderr.contains("was not written"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A full disk: the device that always is.
#[test]
fn a_full_disk_is_a_sentence() {
    if !std::path::Path::new("/dev/full").exists() {
        golden::skipped(format_args!("a_full_disk_is_a_sentence: /dev/full is not here"));
        return;
    }
    let mut args = vec!["synth", "/dev/full"];
    args.extend(SMALL.split_whitespace());
    let ran = run(&args);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("/dev/full was not written") && ran.stderr.contains("space"),
        "{}",
        ran.stderr
    );
}
