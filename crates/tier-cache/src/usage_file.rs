//! Usage on the drive. A save is a new file, synchronised and then renamed, so that whenever the program dies the file
//! is the old one or the new one.
//!
//! The new file's name has the process's id in it, and the file is locked while it is written. A file of that kind that
//! nobody holds a lock on was left behind by a process that died, and the next save removes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::FlockOperation;
use rustix::process::Pid;

use crate::usage::{Ignored, MAX_FILE_BYTES, Usage};

/// What loading found.
#[derive(Debug)]
pub enum Loaded {
    /// A file of this model.
    Usage(Usage),
    /// No file: a first run.
    Absent,
    /// A file that is of no use, and why. The next save replaces it.
    Ignored(Ignored),
}

/// Why usage was not saved. The file at its path is whole: the old one, or the new one if only the folder could not be
/// synchronised.
#[derive(Debug, thiserror::Error)]
#[error("usage was not saved: {} could not be {step}: {source}", path.display())]
pub struct SaveError {
    /// The file or folder that the step was about.
    pub path: Box<Path>,
    /// What the system said.
    pub source: io::Error,
    step: &'static str,
}

impl Usage {
    /// Loads the file at `path`, if it is of the model that `identity` names (see [`Usage::encode`]).
    pub fn load(path: &Path, identity: &[u8]) -> Loaded {
        match read(path) {
            Ok(bytes) => Self::decode(&bytes, identity).map_or_else(Loaded::Ignored, Loaded::Usage),
            Err(Ignored::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => Loaded::Absent,
            Err(why) => Loaded::Ignored(why),
        }
    }

    /// Replaces the file at `path`, and removes what processes that died while they saved left beside it. Returns when
    /// the drive has it.
    ///
    /// # Errors
    /// What the system refuses, with the path and the step.
    pub fn save(&self, path: &Path, identity: &[u8]) -> Result<(), SaveError> {
        // One save at a time, so that a file with this process's id that is not locked is not about to be.
        static SAVING: Mutex<()> = Mutex::new(());
        let _saving = SAVING.lock().unwrap_or_else(PoisonError::into_inner);

        let (folder, prefix) = neighbourhood(path);
        remove_stale(&folder, &prefix);
        let bytes = self.encode(identity);
        let (new, file) = create(&folder, &prefix)?;
        let written = write(&new, file, &bytes, path);
        if written.is_err() {
            // If this fails too the next save removes it.
            let _ = std::fs::remove_file(&new);
        }
        written?;
        sync_folder(&folder).map_err(failed("synchronised", &folder))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Ignored> {
    // Before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Ignored::NotAFile);
    }
    let mut bytes = Vec::new();
    // One more than allowed, since the file may have grown meanwhile.
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Ignored::TooLarge { bytes: std::fs::metadata(path)?.len() });
    }
    Ok(bytes)
}

/// The folder of `path`, and what names of new files in it begin with.
fn neighbourhood(path: &Path) -> (PathBuf, String) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    (folder.to_owned(), format!(".{name}."))
}

fn create(folder: &Path, prefix: &str) -> Result<(PathBuf, File), SaveError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = folder.join(format!("{prefix}{}-{number}.tmp", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&new).map_err(failed("created", &new))?;
    // Where there are no locks (some network drives) a file left behind stays; nothing else depends on it.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    Ok((new, file))
}

/// The file stays open, and so locked, until it has its final name.
fn write(new: &Path, mut file: File, bytes: &[u8], path: &Path) -> Result<(), SaveError> {
    file.write_all(bytes).map_err(failed("written", new))?;
    file.sync_all().map_err(failed("synchronised", new))?;
    std::fs::rename(new, path).map_err(failed("replaced", path))
}

/// Makes the rename last. Not every file system can synchronise a folder; those that cannot say so.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        done => done,
    }
}

/// Removes new files of processes that died. What cannot be looked at or removed stays: tidying is no reason not to
/// save.
fn remove_stale(folder: &Path, prefix: &str) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| writer_of(name, prefix)) else { continue };
        if is_stale(&entry.path(), pid) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The process id in the name of a new file.
fn writer_of(name: &str, prefix: &str) -> Option<i32> {
    let (pid, number) = name.strip_prefix(prefix)?.strip_suffix(".tmp")?.split_once('-')?;
    number.parse::<u64>().ok()?;
    pid.parse().ok()
}

/// A writer that is alive may not have locked its file yet. One whose id seems dead may be in another container, which
/// has its own ids; there the lock tells.
fn is_stale(path: &Path, pid: i32) -> bool {
    let ours = u32::try_from(pid) == Ok(std::process::id());
    let alive = Pid::from_raw(pid)
        .is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH)));
    if alive && !ours {
        return false;
    }
    // Not followed if it is a link, nor waited for if it is a pipe.
    let regular = std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file());
    regular
        && File::open(path)
            .is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SaveError {
    let path = path.into();
    move |source| SaveError { path, source, step }
}
