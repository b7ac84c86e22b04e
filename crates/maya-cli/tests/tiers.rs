//! Experts on two tiers, through the program: the same answers at any budget, and what is learnt is kept.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::Value;
use support::{maya, run, synth};

fn generate(flags: &[&str]) -> Value {
    let mut args =
        vec!["generate", "--ids", "5 6 7 8 9 10 11", "--max-tokens", "12", "--temperature", "0", "--json"];
    args.extend(flags);
    serde_json::from_str(&run(&args).ok()).expect("one JSON object")
}

#[test]
fn the_demo_answers_alike_at_any_budget() {
    let cache = tempfile::tempdir().unwrap();
    let whole = generate(&[]);
    assert_eq!(whole["tiers"], serde_json::json!({}), "what fits is read from the map");
    for ram in ["100%", "20%", "0", "300kB"] {
        let args = [
            "generate",
            "--ids",
            "5 6 7 8 9 10 11",
            "--max-tokens",
            "12",
            "--temperature",
            "0",
            "--json",
            "--ram",
            ram,
        ];
        let mut command = maya(&args);
        command.env("XDG_CACHE_HOME", cache.path());
        let tiered: Value = serde_json::from_str(&support::Ran::of(command).ok()).unwrap();
        assert_eq!(tiered["ids"], whole["ids"], "--ram {ram}");
        let tiers = &tiered["tiers"];
        assert_eq!(tiers["executed_routed_mass"], 1.0);
        assert!(
            tiers["read_bytes"].as_u64().unwrap() > 0 && tiers["misses"].as_u64().unwrap() > 0,
            "{tiers}"
        );
    }
}

#[test]
fn counts_of_use_are_kept_and_a_damaged_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let model = synth(folder.path(), support::SMALL);
    let usage = folder.path().join("usage");
    let (model, usage_flag) = (model.to_str().unwrap().to_owned(), usage.to_str().unwrap().to_owned());
    let flags = ["--model", &model, "--ram", "40%", "--usage", &usage_flag];
    let first = generate(&flags);
    assert!(usage.is_file(), "the counts are saved");
    let second = generate(&flags);
    assert_eq!(first["ids"], second["ids"]);

    std::fs::write(&usage, b"TIERUSE\0 and then something else").unwrap();
    let mut args = vec!["generate", "--ids", "1 2", "--max-tokens", "1", "--json"];
    args.extend(flags);
    let ran = run(&args);
    assert!(ran.stderr.contains("is not used") && ran.stderr.contains("usage"), "{}", ran.stderr);
    ran.ok();
    let again = generate(&flags);
    assert_eq!(first["ids"], again["ids"]);

    // A file of another model is not believed.
    let elsewhere = folder.path().join("other");
    std::fs::create_dir(&elsewhere).unwrap();
    let other = synth(&elsewhere, &support::SMALL.replace("--experts 8", "--experts 16"));
    let other = other.to_str().unwrap().to_owned();
    let ran = run(&[
        "generate",
        "--ids",
        "1",
        "--max-tokens",
        "1",
        "--model",
        &other,
        "--ram",
        "40%",
        "--usage",
        &usage_flag,
    ]);
    assert!(ran.stderr.contains("of another model"), "{}", ran.stderr);
}

#[test]
fn a_copy_that_is_not_there_or_not_a_copy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = support::text(&synth(folder.path(), support::SMALL));
    let elsewhere = folder.path().join("other");
    std::fs::create_dir(&elsewhere).unwrap();
    let other = support::text(&synth(&elsewhere, &support::SMALL.replace("--experts 8", "--experts 16")));
    for (mirror, says) in
        [("/nowhere/copy.gguf", "--mirror /nowhere/copy.gguf"), (&*other, "not the same file")]
    {
        let ran = run(&["generate", "--ids", "1", "--ram", "50%", "--model", &model, "--mirror", mirror]);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}
