//! What a reader is and what it did.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{UringFault, WhyBuffered, WhyUnregistered};

/// Which back-end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendName {
    /// `io_uring`.
    Uring,
    /// Threads that call `pread`.
    Threads,
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "io_uring",
            Self::Threads => "threads",
        })
    }
}

/// Why this back-end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The options name it.
    #[error("the options ask for it")]
    Asked,
    /// `io_uring` was tried at open, and it read.
    #[error("it works here")]
    Works,
    /// `io_uring` cannot be used.
    #[error("{0}")]
    NoUring(UringFault),
}

/// What became of memory that was to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// Pieces of memory the kernel knows; chunks are cut at 1 GiB.
    pub pieces: usize,
    /// Bytes in them.
    pub bytes: u64,
    /// Why there are none. Reads work without.
    pub why_not: Option<WhyUnregistered>,
}

/// One path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileReport {
    /// Number of its set.
    pub set: u32,
    /// The path.
    pub path: Arc<Path>,
    /// Which drive the reader takes it to be on, from 0.
    pub drive: usize,
    /// `None` if it is read around the page cache; why it is not.
    pub why_buffered: Option<WhyBuffered>,
    /// What its reads are widened to, in bytes.
    pub alignment: usize,
    /// Bytes that I/Os brought, widening included.
    pub bytes: u64,
    /// I/Os that brought any.
    pub reads: u64,
    /// I/Os that failed, those that were made up for by a mirror included.
    pub errors: u64,
    /// Mean time from handing an I/O over until the reader saw its result. A caller that polls late sees it late.
    pub mean_latency: Duration,
}

impl FileReport {
    /// Whether it is read around the page cache.
    pub fn is_direct(&self) -> bool {
        self.why_buffered.is_none()
    }
}

/// Counts since the reader was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests accepted.
    pub started: u64,
    /// Requests that were read.
    pub read: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Bytes of the parts that were read, without widening.
    pub bytes: u64,
    /// I/Os handed to a drive.
    pub ios: u64,
    /// Those into registered memory.
    pub fixed: u64,
    /// I/Os that brought less than they should and were continued.
    pub short: u64,
    /// I/Os that were interrupted or refused for the moment (`EINTR`, `EAGAIN`, `ECANCELED`) and repeated.
    pub repeated: u64,
    /// I/Os that came back.
    pub returned: u64,
    /// Pieces that were read from another mirror after an error.
    pub moved: u64,
}

/// What a reader is and what it did. Its `Display` is some lines for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Which back-end reads.
    pub backend: BackendName,
    /// Why.
    pub reason: Reason,
    /// Whether the kernel knows the files by number; why not.
    pub files_unregistered: Option<WhyUnregistered>,
    /// What [`Reader::register`](crate::Reader::register) did.
    pub memory: Registered,
    /// Every path, set after set.
    pub files: Vec<FileReport>,
    /// Counts.
    pub counters: Counters,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "reads by {}: {}", self.backend, self.reason)?;
        match self.memory.why_not {
            None => writeln!(f, "memory: {} bytes registered", self.memory.bytes)?,
            Some(why) => writeln!(f, "memory: not registered: {why}")?,
        }
        if let Some(why) = self.files_unregistered {
            writeln!(f, "files: not registered: {why}")?;
        }
        for file in &self.files {
            write!(f, "{}: ", file.path.display())?;
            match file.why_buffered {
                None => write!(f, "direct, alignment {}", file.alignment)?,
                Some(why) => write!(f, "{why}")?,
            }
            let (bytes, reads, errors) = (file.bytes, file.reads, file.errors);
            writeln!(f, "; {reads} reads, {bytes} bytes, {:.1?} each, {errors} errors", file.mean_latency)?;
        }
        Ok(())
    }
}
