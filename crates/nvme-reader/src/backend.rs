//! The two ways to read, behind one enum: the set is closed, and both must pass the same tests.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{OpenError, UringFault, WhyUnregistered};
use crate::files::Files;
use crate::memory::Target;
use crate::options::{Choice, Options};
use crate::report::{BackendName, Reason, Registered};
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
    /// Starts the one that the options and the system allow, for `entries` I/Os at once.
    pub fn start(files: &Arc<Files>, options: &Options, entries: u32) -> Result<(Self, Reason), OpenError> {
        let reason = match options.backend {
            Choice::Threads => Reason::Asked,
            choice => match (ring(files, entries), choice) {
                (Ok(ring), Choice::Uring) => return Ok((ring, Reason::Asked)),
                (Ok(ring), _) => return Ok((ring, Reason::Works)),
                (Err(fault), Choice::Uring) => return Err(OpenError::Uring(fault)),
                (Err(fault), _) => Reason::NoUring(fault),
            },
        };
        let threads = Threads::start(Arc::clone(files), options.threads).map_err(OpenError::Thread)?;
        Ok((Self::Threads(threads), reason))
    }

    /// Which one it is.
    pub fn name(&self) -> BackendName {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(_) => BackendName::Uring,
            Self::Threads(_) => BackendName::Threads,
        }
    }

    /// Registers memory, if it is of use.
    pub fn register(&mut self, chunks: &[(usize, usize)]) -> Registered {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.register(chunks),
            Self::Threads(_) => {
                let _ = chunks;
                NO_USE
            }
        }
    }

    /// What became of registration.
    pub fn memory(&self) -> Registered {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.memory(),
            Self::Threads(_) => NO_USE,
        }
    }

    /// Whether the kernel knows the files by number.
    pub fn files_registered(&self) -> Result<(), WhyUnregistered> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.files_registered(),
            Self::Threads(_) => Err(WhyUnregistered::Threads),
        }
    }

    /// Whether I/Os are out that may never come back.
    pub fn is_broken(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.broken().is_some(),
            Self::Threads(_) => false,
        }
    }

    /// I/Os into registered memory.
    pub fn n_fixed(&self) -> u64 {
        match self {
            #[cfg(target_os = "linux")]
            Self::Uring(ring) => ring.n_fixed(),
            Self::Threads(_) => 0,
        }
    }

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

/// Threads have no use for registration.
const NO_USE: Registered = Registered { pieces: 0, bytes: 0, why_not: Some(WhyUnregistered::Threads) };

#[cfg(target_os = "linux")]
fn ring(files: &Arc<Files>, entries: u32) -> Result<Backend, UringFault> {
    crate::uring::Uring::open(Arc::clone(files), entries).map(|ring| Backend::Uring(Box::new(ring)))
}

#[cfg(not(target_os = "linux"))]
fn ring(_: &Arc<Files>, _: u32) -> Result<Backend, UringFault> {
    Err(UringFault::Platform)
}
