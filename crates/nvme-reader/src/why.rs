//! Why something is slower than it could be: no error, a sentence in the report.

use crate::error::Errno;

/// Why a file is read through the page cache: the rest of a sentence that begins with its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyBuffered {
    /// The options say so.
    #[error("is read through the page cache, as the options ask")]
    Asked,
    /// The system cannot read around the page cache.
    #[error("is read through the page cache: this system has no O_DIRECT")]
    Platform,
    /// The file system is memory.
    #[error("is in memory already (a tmpfs), so there is no drive to go to directly")]
    InMemory,
    /// The page cache holds most of the file, and the options prefer it then.
    #[error("is read through the page cache, which held {found} of {of} places of it that were looked at")]
    Cached {
        /// Places that were there when the file was opened.
        found: u32,
        /// Places that were looked at.
        of: u32,
    },
    /// The file system says that this file has no direct reads.
    #[error("is read through the page cache: its file system has no direct I/O for it")]
    Unsupported,
    /// The file system wants multiples of this many bytes, more than the reader goes along with.
    #[error("is read through the page cache: its file system wants an alignment of {0} bytes for direct I/O")]
    Alignment(u32),
    /// Opening for direct reads failed, with this error number.
    #[error("is read through the page cache: it cannot be opened for direct I/O: {}", Errno(*.0))]
    Open(i32),
    /// A read to try it, when the file was opened, failed.
    #[error("is read through the page cache: a direct read of {len} bytes at offset {offset} failed when it was tried at open: {}", Errno(*errno))]
    Probe {
        /// Where it began, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: usize,
        /// The system's error number; 0 for a read that only fell short.
        errno: i32,
    },
    /// A later read was refused, and the file goes through the page cache since.
    #[error("is read through the page cache since a direct read of {len} bytes at offset {offset} failed: {}", Errno(*errno))]
    Failed {
        /// Where it began, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: usize,
        /// The system's error number.
        errno: i32,
    },
}

/// Why memory or files are not registered with the kernel: a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyUnregistered {
    /// Nobody called `register`, or with nothing.
    #[error("nothing was registered")]
    NotAsked,
    /// The back-end has no use for it.
    #[error("threads read, and registration is of use for io_uring only")]
    Threads,
    /// The limit on locked memory does not allow it.
    #[error(
        "the limit on locked memory is too low for {bytes} bytes (ENOMEM): raise it (ulimit -l) or give CAP_IPC_LOCK; reads work without, at some cost per page"
    )]
    Limit {
        /// Bytes that were to be registered.
        bytes: u64,
    },
    /// The memory is more pieces of 1 GiB than a ring takes.
    #[error("{pieces} pieces of memory are more than the {max} that can be registered")]
    TooMany {
        /// Pieces that there are.
        pieces: usize,
        /// Pieces that a ring takes.
        max: usize,
    },
    /// A chunk ends beyond the last address.
    #[error("an address range wraps around")]
    Wraps,
    /// The kernel refused for another reason, with this error number.
    #[error("the kernel refused: {}", Errno(*.0))]
    Refused(i32),
    /// A read into registered memory failed, with this error number, and registration was given up.
    #[error("a read into registered memory failed ({}), so registration is no longer used", Errno(*.0))]
    Failed(i32),
}
