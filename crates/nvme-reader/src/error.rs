//! What can go wrong, in sentences.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::read::{MAX_PARTS, Read};

/// Why a reader cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OpenError {
    #[error("file set {set} has {count} paths; 1 to {max} are allowed")]
    PathCount { set: usize, count: usize, max: usize },
    #[error("there are {count} file sets; at most {max} are allowed")]
    SetCount { count: usize, max: usize },
    #[error("{}: cannot be opened: {error}", path.display())]
    Open { path: PathBuf, error: io::Error },
    #[error("{}: is not a file", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: has {len} bytes, but its mirror {} has {first_len}: they are not the same file", path.display(), first.display())]
    Lengths { path: PathBuf, len: u64, first: PathBuf, first_len: u64 },
    #[error("{}: differs from its mirror {} in the {len} bytes at offset {offset}: they are not the same file", path.display(), first.display())]
    Differ { path: PathBuf, first: PathBuf, offset: u64, len: usize },
    #[error("{}: {len} bytes at offset {offset} cannot be read to compare it with its mirror: {error}", path.display())]
    Compare { path: PathBuf, offset: u64, len: usize, error: io::Error },
    #[error("option {name} is {value}; {min} to {max} are allowed")]
    Option { name: &'static str, value: u64, min: u64, max: u64 },
    #[error("io_uring was asked for, but {0}")]
    Uring(UringFault),
    #[error("a thread that reads cannot be started: {0}")]
    Thread(io::Error),
}

/// Why `io_uring` is not used: the rest of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum UringFault {
    #[error("io_uring does not exist on this system")]
    Platform,
    #[error("io_uring does not exist in this kernel or is hidden by its sandbox (ENOSYS)")]
    Missing,
    #[error(
        "io_uring is forbidden here ({}): a container's seccomp profile (allow io_uring_setup, io_uring_enter and io_uring_register, or run with seccomp=unconfined) or the setting kernel.io_uring_disabled (sysctl kernel.io_uring_disabled=0 allows it)",
        Errno(*.0)
    )]
    Forbidden(i32),
    #[error(
        "the ring's memory was refused (ENOMEM): raise the limit on locked memory (ulimit -l) or the container's memory"
    )]
    Memory,
    #[error("this kernel's io_uring is too old: Linux 5.11 or later is needed")]
    Old,
    #[error("its first call failed: {}", Errno(*.0))]
    FirstCall(i32),
    #[error("the ring cannot be made: {}", Errno(*.0))]
    Setup(i32),
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Refusal {
    /// Not an error but back-pressure: try again when something has completed.
    #[error("the reader is full: {capacity} requests are in flight")]
    Full { capacity: usize },
    #[error("tag {0} is in use by a request in flight")]
    TagInUse(u64),
    #[error("there is no file set {set}: the reader has {count}")]
    NoSuchSet { set: u32, count: usize },
    #[error("a request has 1 to {MAX_PARTS} parts, not {0}")]
    PartCount(usize),
    #[error("part {part} ({len} bytes at offset {offset}) ends beyond what a file can have")]
    TooFar { part: usize, offset: u64, len: u32 },
    #[error("the memory has {len} bytes, and the request needs {need}")]
    TooSmall { len: usize, need: usize },
    #[error("the memory begins at address {address:#x}, which is not a multiple of {alignment}")]
    Misaligned { address: usize, alignment: usize },
}

/// A request that was not accepted, memory and all.
pub struct Refused<M> {
    /// The request as it was given.
    pub read: Read<M>,
    /// Why.
    pub why: Refusal,
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("tag", &self.read.tag).field("why", &self.why).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} was not accepted: {}", self.read.tag, self.why)
    }
}

impl<M> std::error::Error for Refused<M> {}

/// Why a part was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {len} bytes at offset {offset} cannot be read: {fault}{}", path.display(), Mirrors(*mirrors))]
pub struct ReadError {
    /// The file; of mirrors, the one that was tried last.
    pub path: Arc<Path>,
    /// Where the failed I/O began.
    pub offset: u64,
    /// Bytes of the failed I/O that were needed.
    pub len: u64,
    /// What happened.
    pub fault: ReadFault,
    /// Paths that were tried.
    pub mirrors: u32,
}

/// What happened to an I/O that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFault {
    /// The system said so, with this error number.
    #[error("{}", Errno(*.0))]
    System(i32),
    /// The file ends before the last byte that was asked for.
    #[error("the file ends at byte {file_len}")]
    End {
        /// Length of the file now, in bytes.
        file_len: u64,
    },
    /// The system returned nothing new, again and again.
    #[error("{tries} tries brought no more bytes, the last with: {}", Errno(*errno))]
    Stuck {
        /// How often it was tried.
        tries: u32,
        /// The last error number; 0 for a read that returned without an error.
        errno: i32,
    },
}

/// Why a file is read through the page cache: the rest of a sentence that begins with its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WhyBuffered {
    #[error("is read through the page cache, as the options ask")]
    Asked,
    #[error("is read through the page cache: this system has no O_DIRECT")]
    Platform,
    #[error("is in memory already (a tmpfs), so there is no drive to go to directly")]
    InMemory,
    #[error("is read through the page cache: its file system has no direct I/O for it")]
    Unsupported,
    #[error("is read through the page cache: its file system wants an alignment of {0} bytes for direct I/O")]
    Alignment(u32),
    #[error("is read through the page cache: it cannot be opened for direct I/O: {}", Errno(*.0))]
    Open(i32),
    #[error("is read through the page cache: a direct read of {len} bytes at offset {offset} failed when it was tried at open: {}", Errno(*errno))]
    Probe { offset: u64, len: usize, errno: i32 },
    #[error("is read through the page cache since a direct read of {len} bytes at offset {offset} failed: {}", Errno(*errno))]
    Failed { offset: u64, len: usize, errno: i32 },
}

/// Why memory or files are not registered with the kernel: a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WhyUnregistered {
    #[error("nothing was registered")]
    NotAsked,
    #[error("threads read, and registration is of use for io_uring only")]
    Threads,
    #[error(
        "the limit on locked memory is too low for {bytes} bytes (ENOMEM): raise it (ulimit -l) or give CAP_IPC_LOCK; reads work without, at some cost per page"
    )]
    Limit { bytes: u64 },
    #[error("{pieces} pieces of memory are more than the {max} that can be registered")]
    TooMany { pieces: usize, max: usize },
    #[error("an address range wraps around")]
    Wraps,
    #[error("the kernel refused: {}", Errno(*.0))]
    Refused(i32),
    #[error("a read into registered memory failed ({}), so registration is no longer used", Errno(*.0))]
    Failed(i32),
}

/// An error number, in the system's words.
struct Errno(i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no error"),
            n => io::Error::from_raw_os_error(n).fmt(f),
        }
    }
}

/// How many mirrors were tried, if more than one.
struct Mirrors(u32);

impl fmt::Display for Mirrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 1 { write!(f, " (the last of {} mirrors)", self.0) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_error_names_path_offset_and_length() {
        let path: Arc<Path> = Path::new("a/b.gguf").into();
        let mut error = ReadError { path, offset: 77, len: 5, fault: ReadFault::System(5), mirrors: 1 };
        let system = io::Error::from_raw_os_error(5);
        let text = format!("a/b.gguf: 5 bytes at offset 77 cannot be read: {system}");
        assert_eq!(error.to_string(), text);
        error.mirrors = 2;
        assert_eq!(error.to_string(), format!("{text} (the last of 2 mirrors)"));
        error.fault = ReadFault::End { file_len: 80 };
        error.mirrors = 1;
        let text = "a/b.gguf: 5 bytes at offset 77 cannot be read: the file ends at byte 80";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_forbidden_ring_says_what_to_change() {
        let text = UringFault::Forbidden(1).to_string();
        assert!(text.contains("os error 1") && text.contains("seccomp"), "{text}");
        assert!(text.contains("kernel.io_uring_disabled"), "{text}");
    }
}
