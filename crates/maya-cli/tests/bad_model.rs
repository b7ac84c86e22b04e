//! Whole files with one thing wrong in them: metadata, tensors, template, shards.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use gguf::{GgmlType, Value};
use support::{LOOPING, changed, rewritten, run, run_with, text};

fn same(name: &str) -> (String, Option<GgmlType>) {
    (name.to_owned(), None)
}

#[track_caller]
fn refused(path: &Path, says: &[&str]) {
    let ran = run(&["generate", "--prompt", "a", "--max-tokens", "1", "--model", &text(path)]);
    assert_eq!(ran.code, Some(1), "{says:?}: {}", ran.stderr);
    for part in says {
        assert!(ran.stderr.contains(part), "{part:?} is not in: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
}

#[test]
fn impossible_metadata_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // The helper itself must make a good file, or the cases below prove nothing.
    let good = changed(folder.path(), &[], &same);
    run(&["generate", "--prompt", "a", "--max-tokens", "1", "--model", &text(&good)]).ok();
    let cases: [(&str, Value); 12] = [
        ("glm5-next.expert_used_count", 17u32.into()),
        ("glm5-next.expert_used_count", 0u32.into()),
        ("glm5-next.attention.indexer.top_k", 0u32.into()),
        ("glm5-next.attention.indexer.kpool", 0u32.into()),
        ("glm5-next.attention.head_count", 3u32.into()),
        ("glm5-next.attention.head_count", 0u32.into()),
        ("glm5-next.block_count", 0u32.into()),
        ("glm5-next.block_count", 4_000_000_000u32.into()),
        ("glm5-next.embedding_length", 255u32.into()),
        ("glm5-next.rope.dimension_count", 64u32.into()),
        ("glm5-next.expert_gating_func", 1u32.into()),
        ("general.architecture", "mamba".into()),
    ];
    for (key, value) in cases {
        let path = changed(folder.path(), &[(key, value)], &same);
        let ran = run(&["generate", "--prompt", "a", "--max-tokens", "1", "--model", &text(&path)]);
        assert_eq!(ran.code, Some(1), "{key}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("maya: ") && ran.stderr.lines().count() == 1, "{key}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("changed.gguf") && !ran.stderr.contains("panicked"),
            "{key}: {}",
            ran.stderr
        );
        // inspect still reports what there is.
        let report = run(&["inspect", "--json", &text(&path)]).ok();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["runs"], false, "{key}");
        assert!(report["refused"].is_string(), "{key}");
    }
}

/// The engine and `inspect` believe the same number of blocks, and say which tensors or which number is at fault.
#[test]
fn block_counts_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let reports = |blocks: u32| {
        let path = changed(folder.path(), &[("glm5-next.block_count", blocks.into())], &same);
        let report = run(&["inspect", "--json", &text(&path)]).ok();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["runs"], false, "{blocks}");
        report
    };
    let at = reports(1024);
    assert!(at["missing"].as_array().unwrap().len() > 10_000, "{}", at["remarks"]);
    assert!(!at["refused"].as_str().unwrap().contains("not believed"), "{}", at["refused"]);
    let above = reports(1025);
    assert_eq!(above["missing"].as_array().unwrap().len(), 0);
    assert!(above["remarks"].to_string().contains("block_count is 1025"), "{}", above["remarks"]);
    let refused = above["refused"].as_str().unwrap();
    assert!(
        refused.contains("block_count") && refused.contains("more than 1024 is not believed"),
        "{refused}"
    );
}

/// Recommendations for sampling that no sampler can follow: told when the file is loaded, by the file's own key.
#[test]
fn impossible_sampling_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, Value, &str); 4] = [
        ("general.sampling.temp", (-1.0f32).into(), "key general.sampling.temp cannot be followed"),
        ("general.sampling.temp", f32::NAN.into(), "key general.sampling.temp is NaN"),
        ("general.sampling.top_p", 2.0f32.into(), "top_p is 2: it must be above 0 and at most 1"),
        ("general.sampling.top_k", "many".into(), "key general.sampling.top_k is"),
    ];
    for (key, value, says) in cases {
        let path = changed(folder.path(), &[(key, value)], &same);
        refused(&path, &["changed.gguf: key general.sampling.", says]);
        let ran = run(&["serve", "--port", "0", "--model", &text(&path)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
        // inspect does not sample.
        run(&["inspect", &text(&path)]).ok();
    }
}

/// A padding row of the vocabulary has no text. However likely its logit makes it, it is never drawn.
#[test]
fn padding_is_never_drawn() {
    const PADDING: usize = 2047;
    const UNUSED: i32 = 5;
    let folder = tempfile::tempdir().unwrap();
    let first = |path: Option<&Path>, flags: &[&str]| -> u64 {
        let model = path.map(text);
        let file: Vec<&str> = model.iter().flat_map(|path| ["--model", path]).collect();
        let base = ["generate", "--prompt", "The capital of France is", "--max-tokens", "1", "--json"];
        let out = run(&[&base[..], &file, flags].concat()).ok();
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["ids"][0].as_u64().unwrap()
    };
    let greedy = ["--temperature", "0"];
    let likeliest = first(None, &greedy);
    // Its row becomes twice the likeliest token's: Q6_K keeps a block's scale as f16 in the last 2 of 210 bytes, and one
    // more in the exponent doubles it.
    let double = |name: &str, data: &mut [u8]| {
        if name == "output.weight" {
            let row = data.len() / 2048;
            let (from, to) = (likeliest as usize * row, PADDING * row);
            data.copy_within(from..from + row, to);
            for block in data[to..].chunks_exact_mut(210) {
                let scale = u16::from_le_bytes([block[208], block[209]]) + (1 << 10);
                block[208..].copy_from_slice(&scale.to_le_bytes());
            }
        }
    };
    let spoken = rewritten(folder.path(), &[], &same, &double);
    assert_eq!(first(Some(&spoken), &greedy), PADDING as u64, "as a token with a text it would be drawn");
    let model = gguf::Model::open(&spoken).unwrap();
    let mut types: Vec<i32> =
        model.u32s("tokenizer.ggml.token_type").unwrap().unwrap().into_iter().map(|t| t as i32).collect();
    drop(model);
    types[PADDING] = UNUSED;
    let padded = rewritten(folder.path(), &[("tokenizer.ggml.token_type", types.into())], &same, &double);
    assert_eq!(first(Some(&padded), &greedy), likeliest);
    assert_ne!(first(Some(&padded), &["--temperature", "0.1", "--seed", "1"]), PADDING as u64);
}

/// A vocabulary longer than the embedding: its surplus token is named wherever in a text it stands, before anything is
/// computed or saved.
#[test]
fn a_token_without_a_row_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = gguf::Model::open(&changed(folder.path(), &[], &same)).unwrap();
    let mut tokens = good.strs("tokenizer.ggml.tokens").unwrap().unwrap().to_vec();
    let mut types: Vec<i32> =
        good.u32s("tokenizer.ggml.token_type").unwrap().unwrap().into_iter().map(|t| t as i32).collect();
    tokens.push("<|surplus|>".into());
    types.push(4);
    drop(good);
    let metadata = [("tokenizer.ggml.tokens", tokens.into()), ("tokenizer.ggml.token_type", types.into())];
    let path = changed(folder.path(), &metadata, &same);
    let at = |name: &str| text(&folder.path().join(name));
    fs::write(at("t"), "The cat sat on the mat. The dog ran to the <|surplus|>").unwrap();
    let args =
        ["perplexity", "--window", "4", "--text", &at("t"), "--save", &at("s"), "--model", &text(&path)];
    let ran = run(&args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("token id 2048") && ran.stderr.contains("ids 0 to 2047"), "{}", ran.stderr);
    assert!(!Path::new(&at("s")).exists());
}

#[test]
fn missing_unknown_and_unsupported_tensors_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let renamed = |from: &'static str, to: &'static str| {
        move |name: &str| if name == from { (to.to_owned(), None) } else { same(name) }
    };
    let path = changed(folder.path(), &[], &renamed("blk.4.ssm_beta.weight", "blk.4.ssm_gamma.weight"));
    refused(&path, &["blk.4.ssm_beta.weight"]);
    let shown = run(&["inspect", &text(&path)]).ok();
    assert!(shown.contains("1 tensors are missing: blk.4.ssm_beta.weight"), "{shown}");
    assert!(shown.contains("1 tensors are not known: blk.4.ssm_gamma.weight"), "{shown}");
    let retyped = |name: &str| {
        if name == "blk.1.ffn_up.weight" { (name.to_owned(), Some(GgmlType::Tq1_0)) } else { same(name) }
    };
    refused(&changed(folder.path(), &[], &retyped), &["blk.1.ffn_up.weight", "TQ1_0"]);
}

#[test]
fn broken_tokenizers_and_templates_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = changed(folder.path(), &[("tokenizer.ggml.pre", "llama-bpe".into())], &same);
    refused(&path, &["tokenizer.ggml.pre", "llama-bpe", "glm4"]);
    let line = b"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n";
    for (template, says) in [
        ("{% for", "chat template"),
        (LOOPING, "line 1: tokenizer.chat_template does not come to an end"),
        ("{{ nothing.here.at.all }}", "line 1"),
        ("{{ raise_exception('no such luck') }}", "no such luck"),
    ] {
        let path = changed(folder.path(), &[("tokenizer.chat_template", template.into())], &same);
        let ran = run_with(&["render", "--model", &text(&path)], line);
        assert_eq!(ran.code, Some(1), "{template}: {}", ran.stderr);
        assert!(ran.stderr.contains(says) && !ran.stderr.contains("panicked"), "{template}: {}", ran.stderr);
    }
}

/// A split set: any part and the folder give the same model; a part that is missing or short is named with its tensor.
#[test]
fn split_sets() {
    let parts: Option<Vec<PathBuf>> =
        (1..=3).map(|n| golden::gguf(&format!("tiny-b.maya-0000{n}-of-00003.gguf"))).collect();
    let Some(parts) = parts else { return };
    let folder = tempfile::tempdir().unwrap();
    let copies: Vec<PathBuf> = parts
        .iter()
        .map(|part| {
            let to = folder.path().join(part.file_name().unwrap());
            fs::copy(part, &to).unwrap();
            to
        })
        .collect();
    let tokens = |path: &Path| {
        run(&[
            "generate",
            "--ids",
            "1 2 3",
            "--max-tokens",
            "8",
            "--temperature",
            "0",
            "--json",
            "--model",
            &text(path),
        ])
        .ok()
        .split("\"timings\"")
        .next()
        .unwrap()
        .to_owned()
    };
    let first = tokens(&copies[0]);
    assert!(first.contains("\"ids\":["), "{first}");
    assert_eq!(tokens(&copies[1]), first);
    assert_eq!(tokens(&copies[2]), first);
    assert_eq!(tokens(folder.path()), first);
    let inspected = run(&["inspect", &text(&copies[1])]).ok();
    assert!(inspected.contains("in 3 files") && inspected.contains("00003-of-00003"), "{inspected}");

    let refused = |whole: &[&Path], says: &[&str]| {
        for path in whole {
            for args in [&["generate", "--ids", "1", "--model"][..], &["inspect"][..]] {
                let ran = run(&[args, &[&text(path)]].concat());
                assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{says:?}: {}", ran.stderr);
                assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
                for part in says {
                    assert!(ran.stderr.contains(part), "{part:?} is not in: {}", ran.stderr);
                }
            }
        }
    };
    let whole = [copies[0].as_path(), &copies[1], &copies[2], folder.path()];
    // Missing.
    fs::remove_file(&copies[1]).unwrap();
    refused(&[&copies[0], &copies[2], folder.path()], &["00002-of-00003"]);
    fs::copy(&parts[1], &copies[1]).unwrap();
    // Twice.
    fs::copy(&copies[1], &copies[2]).unwrap();
    refused(&whole, &["00003-of-00003", "second copy of shard 2", "00002-of-00003", "tensor "]);
    // Of another model: the demo as if it were a part.
    let elsewhere = tempfile::tempdir().unwrap();
    let split = [("split.no", 2u16.into()), ("split.count", 3u16.into())];
    fs::copy(changed(elsewhere.path(), &split, &same), &copies[2]).unwrap();
    refused(&whole, &["00003-of-00003", "another model"]);
    // Short.
    fs::copy(&parts[2], &copies[2]).unwrap();
    let len = fs::metadata(&copies[2]).unwrap().len();
    OpenOptions::new().write(true).open(&copies[2]).unwrap().set_len(len - 4096).unwrap();
    refused(&whole, &["00003-of-00003", "tensor", "4096 bytes are missing"]);
}
