//! What can be chosen when a reader is opened.

use std::path::PathBuf;

use crate::faults::Faults;

/// One logical file: the same bytes at one or several paths, ideally on different drives.
///
/// Reads of a set are spread over its paths, and a path that fails is made up for by the others. The paths must have
/// the same length. When the reader is opened, files of up to 16 MiB are compared whole; of larger ones 4 KiB in every
/// 4 MiB (every 1/16,384 of the file beyond 64 GiB), both ends, and what the first path has where another has holes. That
/// finds a copy that was not finished, and not one with flipped bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSet {
    /// Where the bytes are, 1 to 32 paths.
    pub paths: Vec<PathBuf>,
}

impl<P: Into<PathBuf>> From<P> for FileSet {
    /// A set of one path.
    fn from(path: P) -> Self {
        Self { paths: vec![path.into()] }
    }
}

/// Which back-end reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// `io_uring` where it works, threads elsewhere; [`Report::reason`](crate::Report::reason) says why.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    Uring,
    /// Threads that call `pread`.
    Threads,
}

/// Whether reads go around the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file's alignment is known or guessed and a probe read works.
    #[default]
    Auto,
    /// As `Auto`, but not for a file that the page cache holds most of: memory is faster than a drive. For whoever reads
    /// a file once and from one end to the other.
    IfCold,
    /// Never: every file is read through the page cache.
    Never,
}

/// How a [`Reader`](crate::Reader) works. The defaults are for one NVMe drive and reads of some megabytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which back-end reads.
    pub backend: Choice,
    /// Whether reads go around the page cache.
    pub direct: Direct,
    /// I/Os at one drive at once, 1 to 1,024. Two paths are on one drive if their file systems are the same, except that
    /// the paths of one set always count as different drives.
    pub depth: u32,
    /// How many of [`depth`](Self::depth) may be [`LookAhead`](crate::Priority::LookAhead), so that a demand read does
    /// not wait behind a full drive. At least one is always allowed.
    pub look_ahead_depth: u32,
    /// Bytes of one I/O, 1 to 2^30; rounded up to the alignment of the file.
    pub piece: u32,
    /// Threads per drive if threads read, 1 to 256.
    pub threads: usize,
    /// Requests accepted at once, 1 to 65,536: one more is refused with [`Refusal::Full`](crate::Refusal::Full).
    pub capacity: usize,
    /// Whether what was read through the page cache is dropped from it, so that the cache is no hidden tier of memory.
    /// Nothing changes for files that are read around it.
    pub drop_cache: bool,
    /// Changes the results of I/Os, for tests. No promise is made about this field.
    #[doc(hidden)]
    pub faults: Option<Faults>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: Choice::Auto,
            direct: Direct::Auto,
            depth: 32,
            look_ahead_depth: 8,
            piece: 1 << 20,
            threads: 8,
            capacity: 4096,
            drop_cache: false,
            faults: None,
        }
    }
}
