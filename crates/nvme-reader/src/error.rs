//! What can go wrong, in sentences.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::read::{MAX_PARTS, Read};
pub use crate::why::{WhyBuffered, WhyUnregistered};

/// Why a reader cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file set names no path, or more than a set may have.
    #[error("file set {set} has {count} paths; 1 to {max} are allowed")]
    PathCount {
        /// Index of the set among those given.
        set: usize,
        /// Paths that it names.
        count: usize,
        /// Paths that a set may name.
        max: usize,
    },
    /// More file sets than a reader can have.
    #[error("there are {count} file sets; at most {max} are allowed")]
    SetCount {
        /// Sets given.
        count: usize,
        /// Sets that a reader can have.
        max: usize,
    },
    /// The system does not open a file, or does not say how long it is.
    #[error("{}: cannot be opened: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A path leads to a folder, a pipe or a device.
    #[error("{}: is not a file", .0.display())]
    NotAFile(PathBuf),
    /// Two mirrors have different lengths.
    #[error("{}: has {len} bytes, but its mirror {} has {first_len}: they are not the same file", path.display(), first.display())]
    Lengths {
        /// The later of the two.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The set's first file.
        first: PathBuf,
        /// The length in bytes of that one.
        first_len: u64,
    },
    /// Two mirrors have different bytes in a block that was compared.
    #[error("{}: differs from its mirror {} in the {len} bytes at offset {offset}: they are not the same file", path.display(), first.display())]
    Differ {
        /// The later of the two.
        path: PathBuf,
        /// The set's first file.
        first: PathBuf,
        /// Where the block begins, in bytes.
        offset: u64,
        /// The block's length in bytes.
        len: usize,
    },
    /// A block of a mirror cannot be read to be compared.
    #[error("{}: {len} bytes at offset {offset} cannot be read to compare it with its mirror: {error}", path.display())]
    Compare {
        /// The file.
        path: PathBuf,
        /// Where the block begins, in bytes.
        offset: u64,
        /// The block's length in bytes.
        len: usize,
        /// The system's reason.
        error: io::Error,
    },
    /// An option lies outside of its range.
    #[error("option {name} is {value}; {min} to {max} are allowed")]
    Option {
        /// The field of the options.
        name: &'static str,
        /// What it was set to, in the unit of that field.
        value: u64,
        /// The least that is allowed.
        min: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// `io_uring` was insisted on and does not work here.
    #[error("io_uring was asked for, but {0}")]
    Uring(UringFault),
    /// The system starts no more threads.
    #[error("a thread that reads cannot be started: {0}")]
    Thread(io::Error),
}

/// Why `io_uring` is not used: the rest of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UringFault {
    /// The system is not Linux.
    #[error("io_uring does not exist on this system")]
    Platform,
    /// The call is not there.
    #[error("io_uring does not exist in this kernel or is hidden by its sandbox (ENOSYS)")]
    Missing,
    /// A sandbox or a setting forbids it, with this error number.
    #[error(
        "io_uring is forbidden here ({}): a container's seccomp profile (allow io_uring_setup, io_uring_enter and io_uring_register, or run with seccomp=unconfined) or the setting kernel.io_uring_disabled (sysctl kernel.io_uring_disabled=0 allows it)",
        Errno(*.0)
    )]
    Forbidden(i32),
    /// The kernel gives no memory for the ring's queues.
    #[error(
        "the ring's memory was refused (ENOMEM): raise the limit on locked memory (ulimit -l) or the container's memory"
    )]
    Memory,
    /// The kernel lacks something that this crate needs.
    #[error("this kernel's io_uring is too old: Linux 5.11 or later is needed")]
    Old,
    /// The ring was made and its first call failed, with this error number.
    #[error("its first call failed: {}", Errno(*.0))]
    FirstCall(i32),
    /// The ring could not be made for another reason, with this error number.
    #[error("the ring cannot be made: {}", Errno(*.0))]
    Setup(i32),
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not an error but back-pressure: try again when something has completed.
    #[error("the reader is full: {capacity} requests are in flight")]
    Full {
        /// Requests that may be in flight at once.
        capacity: usize,
    },
    /// Another request in flight has this tag.
    #[error("tag {0} is in use by a request in flight")]
    TagInUse(u64),
    /// A part names a file set that the reader was not opened with.
    #[error("there is no file set {set}: the reader has {count}")]
    NoSuchSet {
        /// The set that is named.
        set: u32,
        /// Sets that there are.
        count: usize,
    },
    /// A request of no parts, or of more than fit: this many.
    #[error("a request has 1 to {MAX_PARTS} parts, not {0}")]
    PartCount(usize),
    /// A part ends beyond the largest offset of a file.
    #[error("part {part} ({len} bytes at offset {offset}) ends beyond what a file can have")]
    TooFar {
        /// Index of the part.
        part: usize,
        /// Where it begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u32,
    },
    /// The memory is shorter than the widened parts.
    #[error("the memory has {len} bytes, and the request needs {need}")]
    TooSmall {
        /// Its length in bytes.
        len: usize,
        /// Bytes that the parts need.
        need: usize,
    },
    /// The memory begins where direct reads cannot.
    #[error("the memory begins at address {address:#x}, which is not a multiple of {alignment}")]
    Misaligned {
        /// Its first address.
        address: usize,
        /// Bytes of which the address must be a multiple.
        alignment: usize,
    },
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

/// An error number, in the system's words.
pub(crate) struct Errno(pub(crate) i32);

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
