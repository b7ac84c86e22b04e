//! The two ways to read, behind one enum: the set is closed, and both must pass the same tests.

use std::time::Duration;

use crate::memory::Target;
use crate::threads::Threads;
#[cfg(target_os = "linux")]
use crate::uring::Uring;

/// One I/O for a back-end.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Comes back with the result.
    pub id: u32,
    /// Which file.
    pub file: u32,
    /// The file's drive.
    pub drive: u32,
    /// Which of its two descriptors.
    pub direct: bool,
    /// Whether it may wait for others.
    pub look_ahead: bool,
    /// Where in the file.
    pub offset: u64,
    /// Where to and how many bytes.
    pub to: Target,
}

/// An I/O that came back.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Of the I/O.
    pub id: u32,
    /// Bytes, or the system's error number.
    pub result: Result<usize, i32>,
}

/// Who reads.
#[derive(Debug)]
pub enum Backend {
    /// The kernel, through a ring.
    #[cfg(target_os = "linux")]
    Uring(Box<Uring>),
    /// Threads that wait in `pread`.
    Threads(Threads),
}

impl Backend {
    /// Takes one I/O. Its memory is written to until it has come back from [`reap`](Self::reap).
    pub fn push(&mut self, io: Io) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.push(io),
            Self::Threads(threads) => threads.push(io),
        }
    }

    /// Makes sure that everything pushed is on its way. Does not block.
    pub fn submit(&mut self) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.submit(),
            Self::Threads(_) => {}
        }
    }

    /// Appends what came back. Does not block.
    pub fn reap(&mut self, done: &mut Vec<Done>) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.reap(done),
            Self::Threads(threads) => threads.reap(done),
        }
    }

    /// Blocks until something has come back or the time is over. Something must be out. It may return early.
    pub fn block(&mut self, timeout: Option<Duration>) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.block(timeout),
            Self::Threads(threads) => threads.block(timeout),
        }
    }
}
