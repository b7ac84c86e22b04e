//! `maya doctor` on models of all kinds: exit code 0, a sentence for each finding, and field names that stay.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use support::{Ran, SMALL, maya, run, synth, text};

/// The report on `model`; without one on the demo model.
#[track_caller]
fn report(model: Option<&Path>) -> Value {
    let mut command = maya(&["doctor", "--json"]);
    command.args(model.iter().flat_map(|path| ["--model".as_ref(), path.as_os_str()]));
    let ran = Ran::of(command);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.ok()).unwrap();
    for (what, finding) in report["findings"].as_object().unwrap() {
        let found = finding["found"].as_str().unwrap_or_default();
        assert!(!found.is_empty() && finding["facts"].is_object(), "{what}: {finding}");
    }
    report["findings"].clone()
}

#[track_caller]
fn says(finding: &Value, parts: &[&str]) {
    let found = finding["found"].as_str().unwrap_or_default();
    for part in parts {
        assert!(found.contains(part), "{part:?} is not in {finding}");
    }
}

fn names(value: &Value) -> String {
    let keys = value.as_object().map(|map| map.keys().map(String::as_str).collect::<Vec<_>>());
    keys.unwrap_or_default().join(" ")
}

/// Names that programs may rely on.
#[test]
fn field_names() {
    let folder = tempfile::tempdir().unwrap();
    let findings = report(Some(&synth(folder.path(), SMALL)));
    let wanted = BTreeMap::from([
        ("system", "name release virtual_machine container"),
        ("processor", "name architecture packages cores threads"),
        ("instructions", "used not_there"),
        ("threads", "available online"),
        ("memory", "total available page_cache tmpfs room"),
        ("swap", "total free group_limit"),
        ("memory_limit", "limit used room path"),
        ("locked_memory", "limit ceiling exempt"),
        ("huge_pages", "transparent reserved"),
        ("gpu", "driver driver_version gpus on_bus device_files cuda_built_in"),
        ("cuda_library", "path"),
        ("cuda", "devices driver_version why_not"),
        ("files", "whole shards missing unfinished_downloads file_systems"),
        ("model", "name bytes shards runs error"),
        ("cache", "folder demo"),
        ("drive", "mounts"),
        ("direct_reads", "direct alignment why_not"),
        ("io_uring", "used io_uring_disabled"),
        (
            "read_speed",
            "read_bytes_per_second blob_bytes through_page_cache runs raw reader_over_raw why_not",
        ),
        ("weights", "dense experts nextn n_experts experts_per_token"),
        ("experts", "room beside reserve ctx all_fit ram_auto slots"),
        ("per_token", "drive_bytes tokens_per_second_bound cold_start_bytes first_token_seconds"),
        ("suggestion", "command"),
    ]);
    let found = findings.as_object().unwrap();
    for (what, facts) in &wanted {
        assert_eq!(names(&findings[what]["facts"]), *facts, "{what}");
    }
    let more: Vec<&String> = found.keys().filter(|what| !wanted.contains_key(what.as_str())).collect();
    assert!(more.iter().all(|what| *what == "memory_nodes"), "{more:?}");
    assert_eq!(names(&findings["files"]["facts"]["shards"][0]), "path bytes needed tensors trouble");
    let mount = &findings["drive"]["facts"]["mounts"][0];
    assert_eq!(names(mount), "mount type source model rotational memory network virtual");
}

#[test]
fn the_demo_is_in_order() {
    let findings = report(None);
    assert_eq!(findings["model"]["facts"]["runs"], true);
    assert_eq!(findings["gpu"]["facts"]["cuda_built_in"], cfg!(feature = "cuda"));
    let cuda = &findings["cuda"]["facts"];
    assert_eq!(cuda["devices"].as_array().unwrap().is_empty(), cuda["why_not"].is_string(), "{cuda}");
    assert!(findings["instructions"]["facts"]["used"].is_string());
    assert!(findings["memory"]["facts"]["total"].is_u64());
    assert_eq!(findings["cache"]["facts"]["demo"], "absent");
    assert_eq!(findings["suggestion"]["facts"]["command"], "maya chat");
    assert!(findings["io_uring"]["facts"]["used"].is_boolean(), "{}", findings["io_uring"]);
    says(&findings["read_speed"], &["inside the program"]);
    assert!(findings.get("files").is_none() && findings.get("drive").is_none());
}

/// Paragraphs of aligned lines, each with its sentence, and nothing that steers a terminal.
#[test]
fn text_for_people() {
    let text = run(&["doctor"]).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"") && !text.contains("\n\n\n") && text.ends_with('\n'), "{text}");
    let columns: Vec<usize> = lines
        .iter()
        .filter(|l| !l.is_empty())
        .map(|l| {
            let (what, sentence) = l.split_once(": ").unwrap();
            what.len() + 2 + (sentence.len() - sentence.trim_start().len())
        })
        .collect();
    assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{columns:?}\n{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_as_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = synth(folder.path(), SMALL);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let findings = report(Some(&path));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(findings["model"]["facts"]["runs"], true);
    assert_eq!(findings["files"]["facts"]["whole"], true);
    says(&findings["files"], &["whole: as long as its header needs"]);
    says(&findings["read_speed"], &["not measured: the model has"]);
    says(&findings["suggestion"], &["maya chat --model", &text(&path)]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A tmpfs is memory: there is no drive to measure, whatever it answers to direct reads.
#[test]
fn a_model_in_memory() {
    let shm = Path::new("/dev/shm");
    let Ok(folder) = tempfile::tempdir_in(shm) else {
        golden::skipped(format_args!("a_model_in_memory: there is no /dev/shm to write to"));
        return;
    };
    let path = synth(folder.path(), SMALL);
    let findings = report(Some(&path));
    if findings["drive"]["facts"]["mounts"][0]["type"] != "tmpfs" {
        golden::skipped(format_args!("a_model_in_memory: /dev/shm is no tmpfs"));
        return;
    }
    assert_eq!(findings["drive"]["facts"]["mounts"][0]["memory"], true);
    says(&findings["direct_reads"], &["is in memory already"]);
    says(&findings["read_speed"], &["in memory (a tmpfs)"]);
}

/// Two shards of a made-up set, the first with a header that needs more bytes than there are.
#[test]
fn damaged_sets() {
    let folder = tempfile::tempdir().unwrap();
    let whole = synth(folder.path(), SMALL);
    let shard = |no: u32| folder.path().join(format!("m-{no:05}-of-00003.gguf"));
    fs::rename(&whole, shard(1)).unwrap();
    let findings = report(Some(&shard(1)));
    says(&findings["files"], &["m-00002-of-00003.gguf, m-00003-of-00003.gguf are missing"]);
    says(&findings["model"], &["shard 2 of 3 is missing"]);
    assert_eq!(findings["model"]["facts"]["runs"], false);
    assert_eq!(findings["suggestion"]["facts"]["command"], Value::Null);
    // What is there is measured or not with a reason, all the same.
    says(&findings["direct_reads"], &[""]);
    assert!(findings["read_speed"]["facts"]["why_not"].is_string());

    let len = fs::metadata(shard(1)).unwrap().len();
    File::options().write(true).open(shard(1)).unwrap().set_len(len - 100_000).unwrap();
    fs::write(folder.path().join("m-00002-of-00003.gguf.part"), "half").unwrap();
    for path in [shard(1), folder.path().to_owned()] {
        let findings = report(Some(&path));
        says(
            &findings["files"],
            &[
                "m-00001-of-00003.gguf ends at byte",
                "100 kB are missing",
                "from tensor",
                "m-00002-of-00003.gguf.part",
            ],
        );
        says(&findings["model"], &["cannot be opened", "m-00001-of-00003.gguf"]);
        assert_eq!(findings["files"]["facts"]["missing"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn what_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let findings = report(Some(folder.path()));
    says(&findings["files"], &["no GGUF file is here"]);
    says(&findings["model"], &["there is no .gguf file in this folder"]);
    says(&findings["read_speed"], &["there is no file to read"]);
    let findings = report(Some(&folder.path().join("absent.gguf")));
    says(&findings["files"], &["absent.gguf cannot be read"]);
    says(&findings["model"], &["there is no such file or folder"]);
    let other = folder.path().join("other.gguf");
    fs::write(&other, "something else").unwrap();
    says(&report(Some(&other))["files"], &["other.gguf has no usable header"]);
    for device in ["/dev/null", "/dev/zero"] {
        says(&report(Some(Path::new(device)))["model"], &["is neither a file nor a folder"]);
    }
    let fifo = folder.path().join("pipe.gguf");
    if Command::new("mkfifo").arg(&fifo).status().is_ok_and(|s| s.success()) {
        let findings = report(Some(&fifo));
        says(&findings["files"], &["pipe.gguf is no regular file"]);
        says(&findings["model"], &["is neither a file nor a folder"]);
    }
}

/// A model of another family is whole, and the engine refuses it with the reason.
#[test]
fn a_model_that_the_engine_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let path = synth(folder.path(), &format!("{SMALL} --arch llama"));
    let findings = report(Some(&path));
    assert_eq!(findings["files"]["facts"]["whole"], true);
    says(&findings["model"], &["the engine refuses it", "llama"]);
    says(&findings["suggestion"], &["none: the engine refuses this model"]);
}
