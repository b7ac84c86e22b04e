//! Runs the real binary in a clean environment.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use gguf::{GgmlType, Layout, Model, Value};

/// What a run left.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Runs a prepared command to the end.
    #[track_caller]
    pub fn of(mut command: Command) -> Self {
        Self::from(command.output().unwrap())
    }

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

/// Where the demo model lies in the source tree.
fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/maya-nano.gguf")
}

/// A chat template that would run for days.
pub const LOOPING: &str = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}\
    {% endfor %}{% endfor %}";

/// The demo model with some metadata changed and some tensors under another name or type.
pub fn changed(
    folder: &Path,
    metadata: &[(&str, Value)],
    tensor: &dyn Fn(&str) -> (String, Option<GgmlType>),
) -> PathBuf {
    rewritten(folder, metadata, tensor, &|_, _| {})
}

/// As [`changed`], and the bytes of tensors that keep their type go through `bytes`.
pub fn rewritten(
    folder: &Path,
    metadata: &[(&str, Value)],
    tensor: &dyn Fn(&str) -> (String, Option<GgmlType>),
    bytes: &dyn Fn(&str, &mut [u8]),
) -> PathBuf {
    let model = Model::open(&demo()).unwrap();
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
        if ty == info.ty {
            let mut data = model.bytes(info.extent).unwrap().to_vec();
            bytes(&name, &mut data);
            writer.tensor(&name, &data).unwrap();
        } else {
            writer.tensor(&name, &vec![0; ty.bytes_for(info.n_elements()).unwrap() as usize]).unwrap();
        }
    }
    writer.finish().unwrap();
    path
}

/// A copy of the demo model whose bytes of `tensor` went through `change`.
pub fn patched(folder: &Path, tensor: &str, change: impl FnOnce(&Model, &mut [u8])) -> PathBuf {
    let model = Model::open(&demo()).unwrap();
    let extent = model.tensor(tensor).unwrap().extent;
    let mut bytes = fs::read(demo()).unwrap();
    change(&model, &mut bytes[extent.offset as usize..][..extent.len as usize]);
    let path = folder.join("patched.gguf");
    fs::write(&path, bytes).unwrap();
    path
}

/// The demo model with NaN as the first scale of every routed expert's `ffn_down` in block 3: whichever a token meets.
pub fn poisoned(folder: &Path) -> PathBuf {
    patched(folder, "blk.3.ffn_down_exps.weight", |model, bytes| {
        let info = model.tensor("blk.3.ffn_down_exps.weight").unwrap();
        // Both formats begin a block with its f16 scale.
        assert!(matches!(info.ty, GgmlType::Iq2S | GgmlType::Iq3Xxs), "{:?}", info.ty);
        for expert in bytes.chunks_exact_mut(bytes.len() / info.dims[2] as usize) {
            expert[..2].copy_from_slice(&[0x00, 0x7e]);
        }
    })
}

/// The demo model with zeros where the output matrix has the rows of special tokens: their logits are 0, the likeliest
/// token's is above, and a greedy text never ends.
pub fn endless(folder: &Path) -> PathBuf {
    patched(folder, "output.weight", |model, bytes| {
        let types = model.u32s("tokenizer.ggml.token_type").unwrap().unwrap();
        const NORMAL: u32 = 1;
        for (row, ty) in bytes.chunks_exact_mut(bytes.len() / types.len()).zip(types) {
            if ty != NORMAL {
                row.fill(0);
            }
        }
    })
}
