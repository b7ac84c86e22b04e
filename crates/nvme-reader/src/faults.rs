//! A seam for tests: changes the result of one I/O, in the same place for both back-ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::Target;

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

    /// The result and the time that the engine gets to see of an I/O into `to` that took `took`.
    pub(crate) fn apply(
        &self,
        attempt: &Attempt,
        to: Target,
        took: Duration,
    ) -> (Result<usize, i32>, Duration) {
        match ((self.0)(attempt), attempt.result) {
            (Injected::Short(n), Ok(came)) => {
                let n = n.min(came);
                to.spoil(n);
                (Ok(n), took)
            }
            (Injected::Error(errno), _) => {
                to.spoil(0);
                (Err(errno), took)
            }
            (Injected::Slow(more), result) => (result, took.saturating_add(more)),
            (Injected::Real | Injected::Short(_), result) => (result, took),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}
