//! `--dump-routes`: the trace holds every token that was fed, whichever way it was fed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;

use serde_json::Value;
use support::{SMALL, run, synth, text};

/// Ids [tokens][row] of a trace, its shape and its number of experts.
fn routes(path: &str) -> (Vec<usize>, Vec<u8>, String) {
    let bytes = fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let experts = header.metadata().as_ref().unwrap()["experts"].clone();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor("routes").unwrap();
    assert_eq!(tensor.dtype(), safetensors::Dtype::U16);
    (tensor.shape().to_vec(), tensor.data().to_vec(), experts)
}

/// Prompt and answer in order, the last token not fed; the same rows from scoring the whole text at once, and from windows.
#[test]
fn prompt_and_answer_are_there_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&synth(folder.path(), SMALL));
    let [one, all, logits] = ["one", "all", "logits"].map(|name| text(&folder.path().join(name)));
    let prompt: Vec<String> = (1..=150).map(|i| (i * 7 % 500).to_string()).collect();
    let prompt = prompt.join(" ");
    let generate = [
        "generate",
        "--model",
        &model,
        "--ids",
        &prompt,
        "--max-tokens",
        "6",
        "--temperature",
        "0",
        "--json",
    ];
    let plain: Value = serde_json::from_str(&run(&generate).ok()).unwrap();
    let watched = run(&[&generate[..], &["--dump-routes", &one]].concat()).ok();
    let watched: Value = serde_json::from_str(&watched).unwrap();
    assert_eq!(plain["ids"], watched["ids"]);
    let (shape, fed, experts) = routes(&one);
    let answer = watched["ids"].as_array().unwrap();
    assert_eq!((shape[0], &shape[1..], experts.as_str()), (150 + answer.len() - 1, &[3, 2][..], "8"));
    let answer: Vec<String> = answer.iter().map(Value::to_string).collect();
    let whole = format!("{prompt} {}", answer[..answer.len() - 1].join(" "));
    run(&["logits", "--model", &model, "--ids", &whole, "--out", &logits, "--dump-routes", &all]).ok();
    let (scored_shape, scored, _) = routes(&all);
    assert_eq!((shape, fed), (scored_shape, scored));
    // What was dumped can be replayed.
    assert!(run(&["replay", &one, "--slots", "4"]).ok().contains("2 of 8 experts"));
}

#[test]
fn windows_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let [book, trace] = ["book", "trace"].map(|name| text(&folder.path().join(name)));
    fs::write(&book, "The cat sat on the mat. The dog sat on the cat. Then they were friends.").unwrap();
    let json = run(&["perplexity", "--text", &book, "--window", "5", "--json", "--dump-routes", &trace]).ok();
    let report: Value = serde_json::from_str(&json).unwrap();
    let (shape, ..) = routes(&trace);
    assert_eq!(shape[0] as u64, report["tokens"].as_u64().unwrap(), "{report}");
}

#[test]
fn what_cannot_be_written_is_said_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let dense = text(&synth(folder.path(), &SMALL.replace("--dense 2", "--dense 5")));
    let target = text(&folder.path().join("t"));
    for (args, wanted) in [
        (&["--dump-routes", "/nonexistent/t"][..], "/nonexistent/t cannot be written"),
        (&["--dump-routes", "/dev/null"], "/dev/null cannot be written"),
        (&["--dump-routes", &target, "--model", &dense], "has 0 layers"),
    ] {
        let ran = run(&[&["generate", "--ids", "1 2", "--max-tokens", "2"], args].concat());
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted) && ran.stdout.is_empty(), "{args:?}: {}", ran.stderr);
    }
    assert!(!folder.path().join("t").exists());
}
