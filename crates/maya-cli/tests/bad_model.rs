//! Whole files with one thing wrong in them: metadata, tensors, template, shards.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use gguf::{GgmlType, Layout, Model, Value};
use support::{run, run_with, text};

/// The demo model with some metadata changed and some tensors under another name or type.
fn changed(
    folder: &Path,
    metadata: &[(&str, Value)],
    tensor: &dyn Fn(&str) -> (String, Option<GgmlType>),
) -> PathBuf {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/maya-nano.gguf");
    let model = Model::open(&demo).unwrap();
    let mut layout = Layout::new();
    layout.copy_metadata(&model);
    for (key, value) in metadata {
        layout.set(key, value.clone());
    }
    let mut names = Vec::new();
    for info in model.tensors() {
        let (name, ty) = tensor(&info.name);
        layout.tensor(&name, ty.unwrap_or(info.ty), &info.dims[..usize::from(info.n_dims)]).unwrap();
        names.push((name, ty.unwrap_or(info.ty)));
    }
    let path = folder.join("changed.gguf");
    let mut writer = layout.write_to(File::create(&path).unwrap()).unwrap();
    for (info, (name, ty)) in model.tensors().iter().zip(names) {
        let bytes = model.bytes(info.extent).unwrap();
        if ty == info.ty {
            writer.tensor(&name, bytes).unwrap();
        } else {
            writer.tensor(&name, &vec![0; ty.bytes_for(info.n_elements()).unwrap() as usize]).unwrap();
        }
    }
    writer.finish().unwrap();
    path
}

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
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}",
            "line 1",
        ),
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

    fs::rename(&copies[1], folder.path().join("aside")).unwrap();
    for path in [&copies[0], &copies[2]] {
        let ran = run(&["inspect", &text(path)]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("00002-of-00003"), "{}", ran.stderr);
    }
    fs::rename(folder.path().join("aside"), &copies[1]).unwrap();
    let len = fs::metadata(&copies[2]).unwrap().len();
    OpenOptions::new().write(true).open(&copies[2]).unwrap().set_len(len - 4096).unwrap();
    let ran = run(&["generate", "--ids", "1", "--model", &text(&copies[0])]);
    assert_eq!(ran.code, Some(1));
    for part in ["00003-of-00003", "tensor", "4096 bytes are missing"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}
