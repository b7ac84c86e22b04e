//! A seam for tests: changes the result of one I/O, in the same place for both back-ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One I/O that has come back, before anybody looked at its result.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Counts the I/Os of the reader from 0.
    pub nth: u64,
    /// Set of files.
    pub set: u32,
    /// Path within the set.
    pub path: usize,
    /// Whether it went around the page cache.
    pub direct: bool,
    /// Where it began in the file.
    pub offset: u64,
    /// Bytes that were asked for.
    pub len: usize,
    /// Bytes that came, or the system's error number.
    pub result: Result<usize, i32>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// The real result.
    Real,
    /// At most so many bytes; the memory behind them is overwritten.
    Short(usize),
    /// This error number; the whole memory of the I/O is overwritten.
    Error(i32),
    /// The real result, as if it had taken so much longer.
    Slow(Duration),
}

/// The function that decides.
#[derive(Clone)]
pub struct Faults(Arc<dyn Fn(&Attempt) -> Injected + Send + Sync>);

impl Faults {
    /// Calls `decide` for every I/O that comes back.
    pub fn new(decide: impl Fn(&Attempt) -> Injected + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    pub(crate) fn decide(&self, attempt: &Attempt) -> Injected {
        (self.0)(attempt)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}
