//! `maya chat` by lines: answers, commands, Ctrl-C, and lines that are no message.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use support::{endless, maya, run_with, signal, text};

/// Ctrl-C in an answer that would not end: the answer stops, the next line is answered, and the end is a good one.
#[test]
fn control_c_stops_an_answer_and_not_the_chat() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&endless(folder.path()));
    let args = ["chat", "--temperature", "0", "--max-tokens", "100000", "--model", &model];
    let mut child = maya(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut shown = Vec::new();
    for line in ["Tell me a story.", "And another one."] {
        writeln!(stdin, "{line}").unwrap();
        // Half a kilobyte of the answer, so that it is under way.
        let before = shown.len();
        while shown.len() < before + 512 {
            let mut some = [0; 256];
            let n = stdout.read(&mut some).unwrap();
            assert!(n > 0, "it ended: {}", String::from_utf8_lossy(&shown));
            shown.extend_from_slice(&some[..n]);
        }
        signal(&child, "INT");
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        assert_eq!(said, "maya: stopped\n");
    }
    drop(stdin);
    let rest = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    rest.join().unwrap().unwrap();
}

/// `/system` puts its text ahead of the conversation, and takes it away again: seen by what fits the context.
#[test]
fn chat_instructions() {
    let text = "be brief and kind ".repeat(20);
    let input = format!("/system {text}\nHi\n/system\nHi\n");
    let args = ["chat", "--temperature", "0", "--ctx", "64", "--max-tokens", "8"];
    let ran = run_with(&args, input.as_bytes());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let notes: Vec<&str> = ran.stderr.lines().filter(|l| !l.contains("demo model")).collect();
    let wanted = ["instructions are set", "the context is 64", "no instructions"];
    for (note, part) in notes.iter().zip(wanted) {
        assert!(note.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(ran.stderr.ends_with("1 line could not be answered\n"), "{}", ran.stderr);
    assert!(!ran.stdout.trim().is_empty(), "the second one is answered");
    // The flag is the same text.
    let ran = run_with(&[&args[..], &["--system", &text]].concat(), b"Hi\n/system\nHi\n");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("the context is 64") && !ran.stdout.trim().is_empty(), "{}", ran.stderr);
}

/// NUL is a character, and a word of a megabyte is a message that does not fit.
#[test]
fn odd_lines_in_a_chat() {
    let word = "a".repeat(1 << 20);
    let input = format!("What is\0 this?\n{word}\nWhat is the capital of France?\n");
    let ran = run_with(&["chat", "--temperature", "0", "--max-tokens", "40"], input.as_bytes());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("the context is 16,384"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("1 line could not be answered\n"), "{}", ran.stderr);
    assert!(ran.stdout.contains("Paris"), "{}", ran.stdout);
}

/// A chat by lines: answers, commands, and a failure in a script's exit code.
#[test]
fn chat_by_lines() {
    let input = b"What is the capital of France?\n/think low\n/help\n/clear\nWhat is the capital of Japan?\n/exit\nnever read\n";
    let ran = run_with(&["chat", "--temperature", "0"], input);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("Paris") && ran.stdout.contains("/system"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("Tokyo") && ran.stderr.contains("thinking: low"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    // What was said before is known: the second answer needs the first message.
    let ran = run_with(
        &["chat", "--temperature", "0"],
        b"My name is Karim. My favorite color is red.\nWhat is my favorite color?\n",
    );
    assert!(ran.stdout.lines().last().unwrap().contains("red"), "{}", ran.stdout);
    let ran = run_with(&["chat"], b"/dance\n\xff\n/think hard\n/exit\n");
    assert_eq!(ran.code, Some(1));
    for part in [
        "/dance is no command",
        "line 2: byte 1 is not UTF-8",
        "/think hard",
        "3 lines could not be answered",
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let ran = run_with(
        &["chat", "--ctx", "16"],
        b"one two three four five six seven eight nine ten eleven twelve\n",
    );
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("context is 16") && ran.stderr.contains("/clear"), "{}", ran.stderr);
}
