//! The system's own files, below a root that tests make up.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file that is read: /proc/cpuinfo of a machine with 1,024 threads has less than 2 MB.
const LIMIT: u64 = 16 << 20;

/// `/proc`, `/sys` and the like.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// This machine.
    pub fn here() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// A made-up one: a folder with `proc`, `sys` and what else is needed.
    #[cfg(test)]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where a path of the system is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's text; `None` if it cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        text(&self.path(path))
    }

    /// A file's one number.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// Names in a folder, in order; none if it cannot be read.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Whether there is such a file.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }
}

fn text(path: &Path) -> Option<String> {
    // Opening a pipe would wait for a writer: look before.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
pub mod made_up {
    //! A made-up machine.

    use super::*;

    /// A folder with these files.
    pub fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System::at(folder.path());
        (folder, system)
    }
}
