//! Runs the real binary in a clean environment.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// What a run left.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts the exit code and gives standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stderr: {}", self.stderr);
        self.stdout
    }
}

/// `maya` with these arguments, nothing of ours in the environment, and an empty cache folder.
pub fn maya<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maya"));
    command
        .args(args)
        .env_remove("MAYA_MODEL")
        .env_remove("RUST_LOG")
        .env("XDG_CACHE_HOME", "/nonexistent/cache");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to the end.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Ran {
    Ran::from(maya(args).output().unwrap())
}

/// Runs it with this standard input.
#[track_caller]
pub fn run_with<S: AsRef<OsStr>>(args: &[S], stdin: &[u8]) -> Ran {
    feed(maya(args), stdin)
}

/// Runs a prepared command with this standard input.
#[track_caller]
pub fn feed(mut command: Command, stdin: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let bytes = stdin.to_vec();
    // A thread, since the program may answer before it has read everything. A program that refuses early closes the pipe.
    let writer = std::thread::spawn(move || {
        let _ = pipe.write_all(&bytes);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran::from(output)
}

/// Sends a signal by its name (`INT`, `TERM`) with the system's own tool.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

/// Flags of a model small enough for every test: 5 layers (K K K M K), 2 of them dense, and NextN; 7 MB.
pub const SMALL: &str = "--layers 5 --dense 2 --experts 8 --hidden 256 --ff 512 --moe-ff 256 --heads 2 --head-dim 256 \
    --kda-dim 128 --q-lora 256 --kv-lora 256 --index-heads 2 --index-dim 32 --kpool 2 --topk 64 --topk-experts 2 --vocab 512";

/// Writes a synthetic model into `folder` and gives its path.
#[track_caller]
pub fn synth(folder: &Path, flags: &str) -> PathBuf {
    let path = folder.join("synth.gguf");
    let mut command = maya(&["synth"]);
    command.arg(&path).args(flags.split_whitespace());
    Ran::from(command.output().unwrap()).ok();
    path
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
