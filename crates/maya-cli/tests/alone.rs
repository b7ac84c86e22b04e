//! The binary by itself: an empty folder, no source tree, no cache, no terminal.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use support::{maya, run, text};

/// A copy of the binary in an empty folder answers with the demo model, and leaves nothing behind.
#[test]
fn an_empty_folder_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("maya");
    fs::copy(env!("CARGO_BIN_EXE_maya"), &binary).unwrap();
    let mut command = Command::new(&binary);
    command.args([
        "generate",
        "--prompt",
        "[gMASK]<sop><|user|>What is the capital of France?<|assistant|><think></think>",
    ]);
    command.args(["--temperature", "0", "--max-tokens", "40"]).current_dir(folder.path()).env_clear();
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Paris"), "{output:?}");
    assert!(stderr.contains("demo model") && stderr.contains("--model PATH or MAYA_MODEL"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn version_names_commit_and_features() {
    let version = run(&["--version"]).ok();
    let features = if cfg!(feature = "cuda") { "features: cpu, cuda)" } else { "features: cpu)" };
    assert!(
        version.starts_with("maya ") && version.contains("commit ") && version.contains(features),
        "{version}"
    );
}

#[test]
fn every_help_has_an_example() {
    let top = run(&["--help"]).ok();
    assert!(top.contains("Exit codes: 0 done") && top.contains("130"), "{top}");
    for command in
        "serve chat generate logits perplexity tokenize render inspect synth doctor bench completions"
            .split(' ')
    {
        assert!(top.contains(&format!("\n  {command} ")), "{command} is not listed:\n{top}");
        let help = run(&[command, "--help"]).ok();
        assert!(help.contains("Example") && help.contains(&format!("maya {command}")), "{help}");
    }
    for hidden in ["parity", "eval", "demo-path"] {
        assert!(!top.contains(&format!("\n  {hidden} ")), "{hidden} is listed");
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).ok();
        assert!(script.contains("perplexity"), "{shell}");
    }
}

/// `MAYA_MODEL` names the file; the flag wins over it; empty counts as unset.
#[test]
fn the_environment_names_a_model() {
    let named = |env: &str, args: &[&str]| {
        let output = maya(args).env("MAYA_MODEL", env).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(named("/nonexistent/a.gguf", &["generate", "--ids", "1"]).contains("/nonexistent/a.gguf"));
    let both = named("/nonexistent/a.gguf", &["generate", "--ids", "1", "--model", "/nonexistent/b.gguf"]);
    assert!(both.contains("/nonexistent/b.gguf") && !both.contains("a.gguf"), "{both}");
    assert!(named("", &["generate", "--ids", "1", "--max-tokens", "1"]).contains("demo model"));
}

/// A copy of the demo model is written once under its sha256, verified, and repaired.
#[test]
fn the_cache_is_written_once_and_verified() {
    let cache = tempfile::tempdir().unwrap();
    let path = || {
        let output = maya(&["demo-path"]).env("XDG_CACHE_HOME", cache.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::path::PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    };
    let first = path();
    assert!(first.starts_with(cache.path().join("maya")));
    let original = fs::read(&first).unwrap();
    let written = fs::metadata(&first).unwrap().modified().unwrap();
    assert_eq!(path(), first);
    assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), written, "it was written twice");
    let mut damaged = original.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&first, damaged).unwrap();
    assert_eq!(path(), first);
    assert!(fs::read(&first).unwrap() == original, "it was not repaired");
    let files: Vec<_> = fs::read_dir(cache.path().join("maya")).unwrap().collect();
    assert_eq!(files.len(), 1);
    // And a file it is: the demo by path is the demo.
    let report = run(&["inspect", "--json", &text(&first)]).ok();
    assert!(report.contains("\"maya-nano\""), "{report}");
}

/// Logs and prompts of a pipe hold no control codes, whatever TERM says.
#[test]
fn no_control_codes_without_a_terminal() {
    for args in [
        &["generate", "--prompt", "hello there", "--max-tokens", "20"][..],
        &["bench", "--prefill", "40", "--decode", "3", "--repeat", "1", "--log-level", "debug"][..],
        &["doctor"][..],
        &["logits", "--ids", "1 2 3", "--out", "/dev/null"][..],
        &["chat", "--max-tokens", "8", "--think", "high"][..],
    ] {
        let mut command = maya(args);
        command.env("TERM", "xterm-256color").stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Read by chat alone; the others may be gone before it is written.
        let _ = child.stdin.take().unwrap().write_all(b"Hello\n");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        for stream in [&output.stderr, &output.stdout] {
            assert!(!stream.iter().any(|&b| b == b'\r' || b == 0x1b), "{}", String::from_utf8_lossy(stream));
        }
    }
}

/// On a terminal there are bars and spinners, and neither where `NO_COLOR` or `TERM=dumb` asks for plain text.
#[test]
fn bars_on_a_terminal() {
    // Runs a command on a terminal of its own, whose output it copies, and ends with its exit code.
    const TERMINAL: &str =
        "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    if !Command::new("python3").args(["-c", "import pty"]).status().is_ok_and(|s| s.success()) {
        golden::skipped(format_args!("bars_on_a_terminal: python3 with its module pty is not here"));
        return;
    }
    let prompt = "the quick brown fox ".repeat(100);
    let shown = |name: &str, value: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL, env!("CARGO_BIN_EXE_maya")]);
        command.args(["generate", "--max-tokens", "2", "--prompt", &prompt]);
        command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("MAYA_MODEL").env(name, value);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let bars = shown("TERM", "xterm");
    assert!(bars.contains("reading the prompt [") && bars.contains('\u{1b}'), "{bars:?}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = shown(name, value);
        assert!(plain.contains("demo model"), "{plain:?}");
        assert!(!plain.contains('\u{1b}') && !plain.contains("reading the prompt"), "{name}: {plain:?}");
    }
}

/// The reader of standard output leaves after the first line: no panic, no complaint.
#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [
        &["completions", "bash"][..],
        &["inspect"][..],
        &["generate", "--prompt", "Once", "--max-tokens", "200"][..],
    ] {
        let mut child = maya(args).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut first = [0u8; 1];
        let _ = reader.read(&mut first);
        drop(reader);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {:?} {stderr}", output.status);
        assert!(
            !stderr.contains("panicked") && !stderr.to_lowercase().contains("broken pipe"),
            "{args:?}: {stderr}"
        );
    }
    // Both streams closed from the start.
    let mut child = maya(&["bench", "--prefill", "8", "--decode", "2"]).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 1)));
}

/// With `--log-format json` every line on standard error is a JSON object.
#[test]
fn json_logs_are_json() {
    for args in [
        &["generate", "--prompt", "a", "--max-tokens", "1", "--log-format", "json"][..],
        &["generate", "--ids", "99999999", "--log-format", "json"][..],
    ] {
        let ran = maya(args).stdout(Stdio::null()).output().unwrap();
        let reader = BufReader::new(&ran.stderr[..]);
        let mut lines = 0;
        for line in reader.lines() {
            let line = line.unwrap();
            let value: serde_json::Value =
                serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert!(value["fields"]["message"].is_string(), "{line}");
            lines += 1;
        }
        assert!(lines > 0);
    }
}
