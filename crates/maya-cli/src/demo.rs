//! The demo model inside the binary, and its copy on disk for whoever needs a path.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::output::AtomicFile;

/// The alignment a mapped file would have at least; weights are then aligned as in a map.
#[repr(C, align(64))]
struct Aligned<const N: usize>([u8; N]);

static FILE: Aligned<{ include_bytes!("../demo/maya-nano.gguf").len() }> =
    Aligned(*include_bytes!("../demo/maya-nano.gguf"));

/// Names the model in messages.
pub const NAME: &str = "maya-nano (bundled demo)";

/// sha256 of the file.
pub const SHA256: &str = "7269e9f32270221f494db4ff7fbc45a355ba516104b4a97ef31a00fcea0e8471";

/// The GGUF file, aligned to 64 bytes.
pub fn bytes() -> &'static [u8] {
    &FILE.0
}

/// Where the copy on disk is or would be: `$XDG_CACHE_HOME/maya/<sha256>.gguf`, with `~/.cache` as the default cache.
pub fn cached_path() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let Some(cache) = cache else {
        bail!("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set to an absolute path");
    };
    Ok(cache.join("maya").join(format!("{SHA256}.gguf")))
}

/// The path of a verified copy of the demo model on disk. Written once; written again if it is not what it should be.
pub fn on_disk() -> Result<PathBuf> {
    let path = cached_path()?;
    if is_intact(&path) {
        return Ok(path);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let say = || {
        format!(
            "the demo model cannot be written to the cache folder {}; set XDG_CACHE_HOME to a folder that can be \
             written, or give a file with --model",
            folder.display()
        )
    };
    fs::create_dir_all(folder).with_context(say)?;
    let mut file = AtomicFile::create(&path).with_context(say)?;
    file.write_all(bytes()).with_context(say)?;
    file.commit().with_context(say)?;
    if !is_intact(&path) {
        bail!(
            "{} was written but reads back differently: the drive or its filesystem is at fault",
            path.display()
        );
    }
    Ok(path)
}

/// Whether the copy is there and whole.
pub fn is_intact(path: &Path) -> bool {
    let same_size = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == bytes().len() as u64);
    same_size && File::open(path).and_then(sha256).is_ok_and(|sum| sum == SHA256)
}

fn sha256(mut from: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_file_is_the_one_that_is_named_and_aligned() {
        assert_eq!(sha256(bytes()).unwrap(), SHA256);
        assert_eq!(bytes().as_ptr().addr() % 64, 0);
    }
}
