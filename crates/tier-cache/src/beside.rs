//! A new file beside the one that it is to replace by a rename, so that whenever the program dies the name has the old
//! file or the new one.
//!
//! The new file's name has the process's id in it, and the file is locked while it is written. A file of that kind that
//! nobody holds a lock on was left behind by a process that died, and the next new file of the same name removes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::FlockOperation;
use rustix::process::Pid;

/// Creates a file in the folder of `path`, under a name that nothing has yet: `.NAME.PID-NUMBER.tmp`. What processes that
/// died while they wrote such a file for `path` left there is removed.
///
/// The file is to stay open, and so locked, until it has its final name. Links are not followed: `path` is what a rename
/// will replace.
///
/// # Errors
/// What the system says when it refuses the file.
pub fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    // One at a time, so that a file with this process's id that is not locked is not about to be.
    static CREATING: Mutex<()> = Mutex::new(());
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);

    let folder = folder_of(path);
    let prefix = format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy());
    remove_stale(folder, &prefix);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = folder.join(format!("{prefix}{}-{number}.tmp", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    // Where there are no locks (some network drives) a file left behind stays; nothing else depends on it.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    Ok((new, file))
}

/// The path at the end of links, whether or not anything is there: a rename to the link would replace the link itself. A
/// link to what has no name, such as `/dev/stdout` to a pipe, is its own end.
///
/// # Errors
/// Links that lead in a circle.
pub fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    /// More links than any system follows.
    const MAX_LINKS: usize = 40;
    if let Ok(end) = std::fs::canonicalize(path) {
        return Ok(end);
    }
    if std::fs::metadata(path).is_ok() {
        return Ok(path.to_owned());
    }
    let mut end = path.to_owned();
    for _ in 0..MAX_LINKS {
        match std::fs::read_link(&end) {
            Ok(target) => end = folder_of(&end).join(target),
            // Not a link, or nothing at all.
            Err(_) => return Ok(end),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// The folder that `path` is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes new files of processes that died. What cannot be looked at or removed stays: tidying is no reason not to
/// write.
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
