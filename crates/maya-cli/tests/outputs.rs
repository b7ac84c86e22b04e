//! What a command writes never takes the place of what it reads, of another of its outputs, or of something that is not its
//! kind of file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{Ran, SMALL, run, synth, text};

/// Runs, and asserts the sentence, the exit code, and that every file of the folder is as it was.
#[track_caller]
fn refused(folder: &Path, args: &[&str], says: &[&str]) {
    let files = |folder: &Path| {
        let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all.into_iter()
            .map(|path| (path.is_file().then(|| fs::read(&path).unwrap()), path))
            .collect::<Vec<_>>()
    };
    let before = files(folder);
    let ran = run(args);
    assert_eq!(ran.code, Some(1), "{args:?}: {}{}", ran.stdout, ran.stderr);
    for says in says {
        assert!(ran.stderr.contains(says), "{args:?}: {says:?} is not in {}", ran.stderr);
    }
    assert!(files(folder) == before, "{args:?} changed a file");
}

/// The counts of a run were renamed over whatever `--usage` named: the model, notes, a pipe.
#[test]
fn counts_of_use_replace_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let model = text(&synth(folder.path(), SMALL));
    fs::write(at("notes"), "a thought").unwrap();
    std::os::unix::fs::symlink("notes", at("link")).unwrap();
    let mut names = vec!["notes", "link", "synth.gguf"];
    let mkfifo = Command::new("mkfifo").arg(at("pipe")).status();
    if mkfifo.is_ok_and(|status| status.success()) {
        names.push("pipe");
    }
    let generate = ["generate", "--ids", "1 2", "--max-tokens", "2", "--model", &model];
    for name in names {
        // Whether or not experts are tiered: a script learns it at its first run.
        for ram in [&["--ram", "40%"][..], &[]] {
            let path = at(name);
            let says = if name == "pipe" { "a folder, pipe or device" } else { "a file that is not usage" };
            let args = [&generate[..], ram, &["--usage", &path]].concat();
            refused(folder.path(), &args, &[&format!("--usage {path}: "), says]);
        }
    }
    refused(folder.path(), &[&generate[..], &["--usage", ""]].concat(), &["--usage: the path is empty"]);
    // Through a link the counts go to where it leads, and an empty file is as good as none.
    fs::write(at("counts"), "").unwrap();
    std::os::unix::fs::symlink("counts", at("to-counts")).unwrap();
    let path = at("to-counts");
    run(&[&generate[..], &["--ram", "40%", "--usage", &path]].concat()).ok();
    assert!(Path::new(&path).is_symlink());
    assert!(fs::read(at("counts")).unwrap().starts_with(b"TIERUSE\0"));
}

#[test]
fn flags_without_effect_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("counts"));
    let ran = run(&["generate", "--ids", "1", "--max-tokens", "1", "--usage", &path, "--page-cache"]);
    assert!(ran.stderr.contains("--usage, --page-cache have no effect"), "{}", ran.stderr);
    ran.ok();
    assert!(!Path::new(&path).exists());
}

#[test]
fn outputs_do_not_take_the_place_of_inputs_or_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let model = text(&synth(folder.path(), SMALL));
    let trace = at("trace");
    run(&["synth", "--trace", &trace, "--tokens", "9", "--layers", "2", "--experts", "8", "--k", "2"]).ok();
    fs::write(at("book"), "The cat sat on the mat. The dog sat on the cat.").unwrap();
    let (book, base, new) = (at("book"), at("base"), at("new"));
    run(&["perplexity", "--text", &book, "--save", &base]).ok();
    fs::create_dir(at("sub")).unwrap();
    std::os::unix::fs::symlink("../synth.gguf", at("sub/link")).unwrap();
    let logits = ["logits", "--ids", "1 2 3", "--model", &model, "--out"];
    let link = at("sub/link");
    let lost = "and would be replaced";
    let cases: [(Vec<&str>, &[&str]); 12] = [
        ([&logits[..], &[&model]].concat(), &["--out", "this is a file of the model", lost]),
        ([&logits[..], &[&link]].concat(), &["this is a file of the model"]),
        ([&logits[..], &[&new, "--dump-routes", &model]].concat(), &["--dump-routes", "a file of the model"]),
        // Both wrote to one temporary file, and what came was a mixture.
        (
            [&logits[..], &[&new, "--dump-routes", &new]].concat(),
            &["--out and --dump-routes name the same file"],
        ),
        ([&logits[..], &[&new, "--usage", &new]].concat(), &["--usage and --out name the same file"]),
        (
            vec!["generate", "--ids", "1", "--usage", &new, "--dump-routes", &new],
            &["--usage and --dump-routes name the same file"],
        ),
        (vec!["perplexity", "--text", &book, "--save", &book], &["--save", "this is the text"]),
        (
            vec!["perplexity", "--text", &book, "--against", &base, "--save", &base],
            &["this is what --against reads"],
        ),
        (
            vec!["perplexity", "--text", &book, "--save", &new, "--dump-routes", &new],
            &["--save and --dump-routes name the same file"],
        ),
        (vec!["replay", &trace, "--plot", &trace], &["--plot", "this is the trace"]),
        (vec!["plan", "--box", "v100-64", "--trace", &trace, "--plot", &trace], &["this is the trace"]),
        (vec!["plan", "--box", "v100-64", "--model", &model, "--plot", &model], &["a file of the model"]),
    ];
    for (args, says) in cases {
        refused(folder.path(), &args, says);
    }
}

/// `kill -9` left its half-written file for ever.
#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("x.gguf"));
    // 18 GB: no machine writes that before the signal.
    let mut child = support::maya(&["synth", &path, "--layers", "9"]).spawn().unwrap();
    while fs::read_dir(folder.path()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "half a file is there");
    run(&[&["synth", &path], &SMALL.split_whitespace().collect::<Vec<_>>()[..]].concat()).ok();
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["x.gguf"]);
}

/// The model itself under `--mirror` passed, and so did one copy given twice.
#[test]
fn a_mirror_is_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let model = text(&synth(folder.path(), SMALL));
    let (copy, link, hard) = (at("copy.gguf"), at("link.gguf"), at("hard.gguf"));
    fs::copy(&model, &copy).unwrap();
    std::os::unix::fs::symlink(&model, &link).unwrap();
    fs::hard_link(&model, &hard).unwrap();
    let generate =
        ["generate", "--ids", "1 2", "--max-tokens", "2", "--ram", "40%", "--json", "--model", &model];
    for mirrors in [
        &["--mirror", &*model][..],
        &["--mirror", &link],
        &["--mirror", &hard],
        &["--mirror", &copy, "--mirror", &copy],
    ] {
        refused(
            folder.path(),
            &[&generate[..], mirrors].concat(),
            &["--mirror", "is the same file as", "not a copy"],
        );
    }
    let ids = |ran: Ran| serde_json::from_str::<serde_json::Value>(&ran.ok()).unwrap()["ids"].clone();
    let alone = ids(run(&[&generate[..], &["--temperature", "0"]].concat()));
    let mirrored = ids(run(&[&generate[..], &["--temperature", "0", "--mirror", &copy]].concat()));
    assert_eq!(alone, mirrored);
}
