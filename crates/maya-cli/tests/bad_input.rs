//! What bad input gets: one clear sentence, the right exit code, nothing lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use support::{Ran, SMALL, feed, maya, poisoned, run, run_with, synth, text};

struct Case<'a> {
    args: &'a [&'a str],
    stdin: &'a [u8],
    code: i32,
    /// Parts of the sentence on standard error.
    says: &'a [&'a str],
}

#[track_caller]
fn check(case: &Case<'_>) {
    let ran = run_with(case.args, case.stdin);
    assert_eq!(ran.code, Some(case.code), "{:?}: {}", case.args, ran.stderr);
    for part in case.says {
        assert!(ran.stderr.contains(part), "{:?}: {:?} is not in: {}", case.args, part, ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{:?}: {}", case.args, ran.stderr);
    if case.code == 1 {
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("maya: "), "{:?}: {}", case.args, ran.stderr);
    }
}

/// A device that is asked for by name and is not there is a failure; an amount of its memory is not, and has no use.
#[test]
fn no_device() {
    let cache = tempfile::tempdir().unwrap();
    let without = |args: &[&str]| {
        let words = [&["generate", "--ids", "1", "--max-tokens", "1"], args].concat();
        let mut command = maya(&words);
        // Hides the devices of a machine that has some.
        command.env("CUDA_VISIBLE_DEVICES", "").env("XDG_CACHE_HOME", cache.path());
        Ran::of(command)
    };
    for (args, says) in [
        (&["--device", "cuda"][..], "--device cuda"),
        (&["--device", "cuda:3", "--vram", "1GB"], "--device cuda:3"),
        (&["--device", "cuda", "--ram", "1GB"], "--device cuda"),
        (&["--device", "cuda", "--precision", "exact"], "--device cuda"),
    ] {
        let ran = without(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("maya: ") && last.contains(says), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{args:?}: {}", ran.stderr);
    }
    for args in [&["--vram", "1GB"][..], &["--device", "cpu", "--vram", "1GB"]] {
        let ran = without(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("--vram is not used"), "{args:?}: {}", ran.stderr);
    }
    assert!(!without(&["--vram", "auto"]).stderr.contains("--vram"));
}

/// Commands and flags, with the demo model.
#[test]
fn flags_and_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let inside_a_file = text(&folder.path().join("f/x"));
    fs::write(folder.path().join("f"), "").unwrap();
    let folder_path = text(folder.path());
    let cases = [
        Case { args: &[], stdin: b"", code: 2, says: &["Usage: maya"] },
        Case { args: &["run"], stdin: b"", code: 2, says: &["unrecognized subcommand 'run'"] },
        Case { args: &["generate"], stdin: b"", code: 2, says: &["--prompt", "--ids"] },
        Case {
            args: &["generate", "--prompt", "a", "--ids", "1"],
            stdin: b"",
            code: 2,
            says: &["cannot be used with"],
        },
        // The preset won, and the file that was named was not looked at.
        Case {
            args: &["plan", "--preset", "maya-s", "--model", "/m.gguf", "--box", "v100-64"],
            stdin: b"",
            code: 2,
            says: &["'--preset <NAME>' cannot be used with '--model <PATH>'"],
        },
        Case { args: &["plan", "--samples", "20001"], stdin: b"", code: 2, says: &["1..=20000"] },
        Case { args: &["inspect", ""], stdin: b"", code: 1, says: &["the path of the model is empty"] },
        Case {
            args: &["generate", "--ids", "1", "--model", ""],
            stdin: b"",
            code: 1,
            says: &["the path of the model is empty"],
        },
        Case {
            args: &["perplexity", "--text", "/dev/zero"],
            stdin: b"",
            code: 1,
            says: &["/dev/zero cannot be read", "more than 268,435,456 bytes"],
        },
        Case { args: &["generate", "--ids", "1 x"], stdin: b"", code: 2, says: &["\"x\" is not a token id"] },
        Case { args: &["generate", "--ids", "-1"], stdin: b"", code: 2, says: &["-1"] },
        Case { args: &["generate", "--ids", "4294967296"], stdin: b"", code: 2, says: &["4294967296"] },
        Case {
            args: &["generate", "--ids", "1", "--temperature", "-1"],
            stdin: b"",
            code: 2,
            says: &["at least 0"],
        },
        Case {
            args: &["generate", "--ids", "1", "--top-p", "2"],
            stdin: b"",
            code: 2,
            says: &["between 0 and 1"],
        },
        Case { args: &["generate", "--ids", "1", "--ctx", "0"], stdin: b"", code: 2, says: &["--ctx"] },
        Case {
            args: &["generate", "--ids", "1", "--threads", "0"],
            stdin: b"",
            code: 2,
            says: &["--threads"],
        },
        Case {
            args: &["generate", "--ids", "1", "--vram", "lots"],
            stdin: b"",
            code: 2,
            says: &["it must be an amount such as 1.5GB"],
        },
        Case {
            args: &["serve", "--port", "0", "--ram=lots"],
            stdin: b"",
            code: 2,
            says: &["it must be an amount such as 1.5GB, 300MiB, 20% or auto"],
        },
        Case {
            args: &["generate", "--ids", "1", "--ram", "120%"],
            stdin: b"",
            code: 2,
            says: &["it is more than 100%"],
        },
        Case {
            args: &["chat", "--repetition-penalty", "1000"],
            stdin: b"a\nb\n",
            code: 1,
            says: &["repetition_penalty is 1000"],
        },
        Case {
            args: &["generate", "--ids", "1", "--device", "tpu"],
            stdin: b"",
            code: 2,
            says: &["auto, cpu, cuda"],
        },
        Case {
            args: &["generate", "--ids", "1", "--precision", "half"],
            stdin: b"",
            code: 2,
            says: &["exact, fast"],
        },
        Case {
            args: &["generate", "--ids", "1", "--log-level", "a=b=c"],
            stdin: b"",
            code: 1,
            says: &["--log-level"],
        },
        Case {
            args: &["generate", "--ids", "1", "--device", "cuda:0,1"],
            stdin: b"",
            code: 1,
            says: &["cuda:0,1"],
        },
        Case { args: &["generate", "--prompt", ""], stdin: b"", code: 1, says: &["the prompt is empty"] },
        Case { args: &["generate", "--ids", ""], stdin: b"", code: 1, says: &["the prompt is empty"] },
        Case {
            args: &["generate", "--ids", "1 2 2048"],
            stdin: b"",
            code: 1,
            says: &["token id 2048", "number 3", "ids 0 to 2047"],
        },
        Case {
            args: &["generate", "--ids", "1 2 3 4 5", "--ctx", "4"],
            stdin: b"",
            code: 1,
            says: &["5 tokens", "context is 4", "16,384"],
        },
        Case {
            args: &["generate", "--ids", "1", "--ctx", "99999999"],
            stdin: b"",
            code: 1,
            says: &["99,999,999", "16,384"],
        },
        Case {
            args: &["logits", "--ids", "1", "--out", "/nonexistent/x"],
            stdin: b"",
            code: 1,
            says: &["/nonexistent/x cannot be written"],
        },
        Case {
            args: &["logits", "--ids", "1", "--out", &inside_a_file],
            stdin: b"",
            code: 1,
            says: &["cannot be written"],
        },
        Case {
            args: &["logits", "--ids", "1", "--out", &folder_path],
            stdin: b"",
            code: 1,
            says: &["it is a folder"],
        },
        Case {
            args: &["perplexity", "--text", "/nonexistent/t"],
            stdin: b"",
            code: 1,
            says: &["/nonexistent/t cannot be read"],
        },
        Case {
            args: &["perplexity", "--text", &folder_path],
            stdin: b"",
            code: 1,
            says: &["cannot be read"],
        },
        Case {
            args: &["bench", "--prefill", "16000", "--decode", "1000"],
            stdin: b"",
            code: 1,
            says: &["17000", "16384"],
        },
        Case { args: &["completions", "tcsh"], stdin: b"", code: 2, says: &["bash"] },
        Case { args: &["serve", "--host", "nowhere"], stdin: b"", code: 2, says: &["--host"] },
        Case { args: &["serve", "--port", "70000"], stdin: b"", code: 2, says: &["--port"] },
    ];
    for case in &cases {
        check(case);
    }
}

/// Prompts on the command line: no UTF-8, and a word longer than the context. (The system lets no NUL and no megabyte
/// through there.)
#[test]
fn prompts_that_are_no_text() {
    let ran =
        Ran::of(maya(&[OsStr::new("generate"), OsStr::new("--prompt"), OsStr::from_bytes(b"bad \xff text")]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("UTF-8") && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    let word = "z".repeat(100_000);
    check(&Case {
        args: &["generate", "--prompt", &word],
        stdin: b"",
        code: 1,
        says: &["the prompt has ", "the context is 16,384"],
    });
}

/// Files that are no model, or a broken one: every command that opens a model says the same.
#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).unwrap();
        at(name)
    };
    let whole = synth(folder.path(), SMALL);
    let bytes = fs::read(&whole).unwrap();
    let empty = write("empty.gguf", b"");
    let words = write("words.gguf", b"this is no model at all, whatever its name says");
    let short = write("short.gguf", &bytes[..bytes.len() - 4096]);
    let foreign = write("foreign.gguf", &replaced(&bytes, b"glm5-next", b"llama-mod"));
    let bare = folder.path().join("bare");
    fs::create_dir(&bare).unwrap();
    let bare = text(&bare);
    // A tensor with a zero dimension, in a file of a few bytes.
    let mut zero = b"GGUF".to_vec();
    zero.extend(3u32.to_le_bytes());
    zero.extend(1u64.to_le_bytes());
    zero.extend(0u64.to_le_bytes());
    zero.extend(1u64.to_le_bytes());
    zero.extend(b"X");
    zero.extend(2u32.to_le_bytes());
    zero.extend(4u64.to_le_bytes());
    zero.extend(0u64.to_le_bytes());
    zero.extend(0u32.to_le_bytes());
    zero.extend(0u64.to_le_bytes());
    let zero = write("zero.gguf", &zero);
    let cases: [(&str, &[&str]); 7] = [
        ("/nonexistent/m.gguf", &["/nonexistent/m.gguf", "no such file"]),
        (&empty, &["empty.gguf"]),
        (&words, &["words.gguf", "GGUF"]),
        (&short, &["short.gguf", "tensor"]),
        (&bare, &["bare"]),
        (&zero, &["X", "zero"]),
        (&foreign, &["llama-mod", "glm5-next"]),
    ];
    for (path, says) in cases {
        let commands: [&[&str]; 3] = [
            &["generate", "--ids", "1", "--model", path],
            &["bench", "--model", path],
            &["logits", "--ids", "1", "--out", "/dev/null", "--model", path],
        ];
        for args in commands {
            check(&Case { args, stdin: b"", code: 1, says });
        }
        // inspect reports on a foreign file, and fails on one that cannot be opened.
        let inspected = run(&["inspect", path]);
        if path.ends_with("foreign.gguf") {
            let shown = inspected.ok();
            assert!(shown.contains("llama-mod") && shown.contains("the engine refuses this file"), "{shown}");
        } else {
            assert_eq!(inspected.code, Some(1), "{path}: {}", inspected.stderr);
        }
        // doctor reports on anything.
        let report = run(&["doctor", "--model", path]).ok();
        assert!(report.contains("cannot be opened") || report.contains("refuses"), "{path}: {report}");
    }
}

/// The same length, another text, everywhere.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut out = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = out[at..].windows(from.len()).position(|w| w == from) {
        out[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + to.len();
    }
    out
}

/// A file without a tokenizer: ids work, text says why it cannot.
#[test]
fn without_a_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&synth(folder.path(), SMALL));
    for args in [
        &["tokenize", "--model", &model][..],
        &["render", "--model", &model][..],
        &["chat", "--model", &model][..],
        &["serve", "--port", "0", "--model", &model][..],
        &["generate", "--prompt", "a", "--model", &model][..],
    ] {
        check(&Case { args, stdin: b"\"a\"\n", code: 1, says: &["has no tokenizer", "generate --ids"] });
    }
    let ids =
        run(&["generate", "--ids", "1 2 3", "--max-tokens", "4", "--temperature", "0", "--model", &model])
            .ok();
    assert_eq!(ids.split_whitespace().count(), 4, "{ids}");
    let json = run(&[
        "generate",
        "--ids",
        "1 2 3",
        "--max-tokens",
        "4",
        "--temperature",
        "0",
        "--json",
        "--model",
        &model,
    ])
    .ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["text"].as_str(), json["finish"].as_str()), (Some(""), Some("length")));
    let out = folder.path().join("l.safetensors");
    let ran = run(&["logits", "--ids", "1 2 3", "--model", &model, "--out", &text(&out)]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("logits [3, 512]"), "{}", ran.stderr);
    assert!(fs::metadata(&out).unwrap().len() > 3 * 512 * 4);
    let measured =
        run(&["bench", "--prefill", "8", "--decode", "2", "--repeat", "1", "--model", &model]).ok();
    assert!(measured.contains("\"median_tok_s\""), "{measured}");
}

/// NaN in weights or scales: the command fails with a sentence, and writes no file.
#[test]
fn nan_in_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&synth(folder.path(), SMALL));
    let report: serde_json::Value = serde_json::from_str(&run(&["inspect", "--json", &model]).ok()).unwrap();
    assert_eq!(report["runs"], true);
    // The last block's f16 scale of a Q6_K row, and an F32 norm: found by their offset through the Python-free way, by
    // writing NaN over every byte of the tensor data: F32 0xFFFFFFFF and f16 0xFFFF are both NaN.
    let header = 13_152u64;
    let file = OpenOptions::new().write(true).open(&model).unwrap();
    file.write_all_at(&vec![0xff; 65_536], header).unwrap();
    drop(file);
    let out = folder.path().join("l.safetensors");
    for args in [
        &["generate", "--ids", "1 2 3", "--max-tokens", "2", "--model", &model][..],
        &["logits", "--ids", "1 2 3", "--model", &model, "--out", &text(&out)][..],
    ] {
        check(&Case { args, stdin: b"", code: 1, says: &["NaN"] });
    }
    assert!(!out.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The first token a process ever computes meets NaN in a routed expert: the sentence names it, with layer and position.
#[test]
fn nan_on_the_first_token_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&poisoned(folder.path()));
    for precision in ["fast", "exact"] {
        for ids in ["5", "5 6 7"] {
            let args = ["generate", "--ids", ids, "--precision", precision, "--model", &model];
            let says = ["NaN or infinity in ffn_down_exps of layer 3, at position 0"];
            check(&Case { args: &args, stdin: b"", code: 1, says: &says });
        }
    }
    // A chat says it for the line, answers no later one, and does not take a failed line for a part of the conversation.
    let ran = run_with(&["chat", "--model", &model], b"one\ntwo\n");
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.stderr.matches("ffn_down_exps of layer 3").count(), 2, "{}", ran.stderr);
    assert!(ran.stderr.ends_with("2 lines could not be answered\n"), "{}", ran.stderr);
}

/// More caches than any machine has: refused with the numbers, before anything is allocated.
#[test]
fn too_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    // 256 layers with latents of 8192 values each: at a million tokens of context 1 TB of caches, in a file of 0.2 GB.
    let flags = "--layers 256 --dense 256 --hidden 256 --ff 256 --moe-ff 256 --experts 8 --heads 1 --q-lora 256 \
        --kv-lora 8192 --index-heads 1 --index-dim 32 --kda-dim 256 --vocab 256 --no-nextn";
    let model = text(&synth(folder.path(), flags));
    let args = ["generate", "--ids", "1", "--model", &model, "--ctx", "1048576"];
    check(&Case {
        args: &args,
        stdin: b"",
        code: 1,
        says: &["too little memory", "1,048,576 tokens", " TB are needed", "--ctx"],
    });
    // Beside what is needed, what there is: of the machine, or under a limit that is tighter.
    let stderr = run(&args).stderr;
    let (_, there) = stderr.split_once("of buffers), and ").unwrap_or_else(|| panic!("{stderr}"));
    let mut words = there.split(' ');
    let (number, unit) = (words.next().unwrap(), words.next().unwrap());
    assert!(number.parse::<f64>().is_ok_and(|n| n > 0.0), "{stderr}");
    assert!(["kB", "MB", "GB", "TB"].contains(&unit), "{stderr}");
    let rest = words.collect::<Vec<_>>().join(" ");
    assert!(
        rest.starts_with("of memory are available; ") || rest.starts_with("are left under the limit of "),
        "{stderr}"
    );
    let fits = run(&["generate", "--ids", "1", "--max-tokens", "1", "--model", &model, "--ctx", "64"]);
    assert_eq!(fits.code, Some(0), "{}", fits.stderr);
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&Case {
        args: &["serve", "--port", &port],
        stdin: b"",
        code: 1,
        says: &[&format!("127.0.0.1:{port}"), "in use", "another port"],
    });
}

/// A cache folder that cannot be written: a sentence where a path is needed, and no trouble where none is.
#[test]
fn a_read_only_cache_folder() {
    let folder = tempfile::tempdir().unwrap();
    // A file in the way works for every user, root included, whom permissions do not stop.
    fs::write(folder.path().join("maya"), "").unwrap();
    let with = |args: &[&str], cache: &Path| -> Ran {
        let mut command = maya(args);
        command.env("XDG_CACHE_HOME", cache);
        feed(command, b"")
    };
    for cache in [folder.path(), Path::new("/proc")] {
        let ran = with(&["demo-path"], cache);
        assert_eq!(ran.code, Some(1));
        assert!(
            ran.stderr.contains("cache folder") && ran.stderr.contains("XDG_CACHE_HOME"),
            "{}",
            ran.stderr
        );
        with(&["generate", "--prompt", "a", "--max-tokens", "1"], cache).ok();
    }
    let mut nowhere = maya(&["demo-path"]);
    nowhere.env_remove("XDG_CACHE_HOME").env_remove("HOME");
    let ran = feed(nowhere, b"");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("neither XDG_CACHE_HOME nor HOME"), "{}", ran.stderr);
}

/// Saved logits that belong to another text or are no logits.
#[test]
fn foreign_saved_logits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    fs::write(at("a"), "The cat sat on the mat. It was a sunny day.").unwrap();
    fs::write(at("b"), "The dog sat on the mat. It was a sunny day.").unwrap();
    fs::write(at("c"), "Short.").unwrap();
    fs::write(at("d"), b"not UTF-8: \xff").unwrap();
    fs::write(at("e"), "").unwrap();
    run(&["perplexity", "--text", &at("a"), "--save", &at("base")]).ok();
    for (name, against, says) in [
        ("b", "base", "saved for other tokens"),
        ("c", "base", "positions"),
        ("a", "b", "not a safetensors file"),
        ("a", "nothing", "cannot be opened"),
        ("d", "base", "is not UTF-8: byte 11"),
        ("e", "base", "has 0 tokens"),
        ("a", "pipe", "a folder, pipe or device is there"),
        ("a", ".", "a folder, pipe or device is there"),
    ] {
        // Nobody writes into the pipe: waiting for its first byte would never end.
        if against == "pipe" && !Command::new("mkfifo").arg(at("pipe")).status().is_ok_and(|s| s.success()) {
            golden::skipped(format_args!("saved logits in a pipe: mkfifo is not here"));
            continue;
        }
        let args = ["perplexity", "--text", &at(name), "--against", &at(against)];
        check(&Case { args: &args, stdin: b"", code: 1, says: &[says] });
    }
}
