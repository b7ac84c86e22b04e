//! The back-end for Linux: one `io_uring`.
//!
//! Flags that are left out on purpose: `SQPOLL` takes a core; `SINGLE_ISSUER` ties the ring to the thread that made it,
//! and a reader may move between threads; `COOP_TASKRUN` posts completions only when the thread that submitted enters the
//! kernel, so that a reader which was handed to another thread would wait for the first one.

mod buffers;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};

use self::buffers::Buffers;
use crate::backend::{Done, Io};
use crate::error::{UringFault, WhyUnregistered};
use crate::files::Files;
use crate::report::Registered;

/// How long to sleep where the ring cannot wait.
const NAP: Duration = Duration::from_millis(1);

/// A ring, and what is in it.
pub struct Uring {
    ring: IoUring,
    files: Arc<Files>,
    /// Whether the kernel knows the files by number.
    files_registered: Result<(), WhyUnregistered>,
    /// Registered memory.
    buffers: Buffers,
    /// What registration came to.
    memory: Registered,
    /// I/Os by their id, with whether they went to registered memory.
    ios: Vec<Option<(Io, bool)>>,
    /// I/Os that were pushed and not yet taken by the kernel, oldest first.
    pushed: VecDeque<u32>,
    /// I/Os the kernel took.
    at_kernel: usize,
    /// I/Os that never got there.
    lost: Vec<u32>,
    /// Why the kernel takes nothing any more.
    broken: Option<i32>,
    /// I/Os into registered memory.
    n_fixed: u64,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("at_kernel", &self.at_kernel)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// A ring for `entries` I/Os at once, which was seen to work.
    pub fn open(files: Arc<Files>, entries: u32) -> Result<Self, UringFault> {
        let mut ring =
            IoUring::builder().dontfork().build(entries.next_power_of_two()).map_err(|e| fault(errno(&e)))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(UringFault::Old);
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|e| fault(errno(&e)))?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::ReadFixed::CODE) {
            return Err(UringFault::Old);
        }
        // A sandbox may let rings be made and refuse to let them run.
        // SAFETY: a no-op names no memory.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(|_| UringFault::Old)?;
        first_enter(&ring)?;
        if let Some(errno) = ring.completion().next().map(|c| -c.result()).filter(|e| *e > 0) {
            return Err(UringFault::FirstCall(errno));
        }
        let fds: Vec<i32> =
            files.files.iter().flat_map(|f| [f.fd(false).as_raw_fd(), f.fd(true).as_raw_fd()]).collect();
        let files_registered = match ring.submitter().register_files(&fds) {
            Ok(()) => Ok(()),
            Err(error) => Err(WhyUnregistered::Refused(errno(&error))),
        };
        Ok(Self {
            ring,
            files,
            files_registered,
            buffers: Buffers::default(),
            memory: Registered { pieces: 0, bytes: 0, why_not: Some(WhyUnregistered::NotAsked) },
            ios: (0..entries).map(|_| None).collect(),
            pushed: VecDeque::new(),
            at_kernel: 0,
            lost: Vec::new(),
            broken: None,
            n_fixed: 0,
        })
    }

    /// Whether the kernel knows the files by number.
    pub fn files_registered(&self) -> Result<(), WhyUnregistered> {
        self.files_registered
    }

    /// What became of registration.
    pub fn memory(&self) -> Registered {
        self.memory
    }

    /// I/Os into registered memory so far.
    pub fn n_fixed(&self) -> u64 {
        self.n_fixed
    }

    /// Why the kernel takes nothing any more, if it does not.
    pub fn broken(&self) -> Option<UringFault> {
        self.broken.map(fault)
    }

    /// I/Os the kernel has. If the ring is broken, they can be reaped but not waited for.
    pub fn at_kernel(&self) -> usize {
        self.at_kernel
    }

    /// Takes the ids of the I/Os that the kernel never got and never will.
    pub fn take_lost(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.lost)
    }

    /// Registers `chunks` (address, length) in place of what was registered before.
    pub fn register(&mut self, chunks: &[(usize, usize)]) -> Registered {
        self.buffers = Buffers::default();
        // It fails if nothing was registered, and then nothing needs to be done.
        let _ = self.ring.submitter().unregister_buffers();
        self.memory = match self.try_register(chunks) {
            Ok(buffers) => {
                self.buffers = buffers;
                let (pieces, bytes) = (self.buffers.pieces().len(), self.buffers.bytes());
                Registered { pieces, bytes, why_not: None }
            }
            Err(why) => Registered { pieces: 0, bytes: 0, why_not: Some(why) },
        };
        self.memory
    }

    fn try_register(&mut self, chunks: &[(usize, usize)]) -> Result<Buffers, WhyUnregistered> {
        let buffers = Buffers::cut(chunks)?;
        // Only addresses: nothing here is read or written through them.
        let iovec = |(address, len): (usize, usize)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address),
            iov_len: len,
        };
        let iovecs: Vec<libc::iovec> = buffers.pieces().map(iovec).collect();
        // SAFETY: registration pins pages and writes nothing; an address that is not mapped is refused. The kernel keeps
        // the pages until they are unregistered or the ring is gone, whatever becomes of the mapping. Only reads write,
        // and each names memory that the reader owns.
        match unsafe { self.ring.submitter().register_buffers(&iovecs) }.map_err(|e| errno(&e)) {
            Ok(()) => Ok(buffers),
            Err(libc::ENOMEM) => Err(WhyUnregistered::Limit { bytes: buffers.bytes() }),
            Err(errno) => Err(WhyUnregistered::Refused(errno)),
        }
    }

    /// Queues one I/O.
    pub fn push(&mut self, io: Io) {
        if self.broken.is_some() {
            return self.lost.push(io.id);
        }
        let buffer = self.buffers.find(io.to.address(), io.to.len());
        let entry = self.entry(&io, buffer);
        // SAFETY: the entry's memory is part of a request in flight, which the reader owns and keeps until this I/O has
        // come back (see `Target`); its file is open as long as `self.files`. Both outlive the kernel's use.
        let mut pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.submit();
            // SAFETY: as above.
            pushed = unsafe { self.ring.submission().push(&entry) };
        }
        match pushed {
            Ok(()) => {
                self.n_fixed += u64::from(buffer.is_some());
                self.ios[io.id as usize] = Some((io, buffer.is_some()));
                self.pushed.push_back(io.id);
            }
            Err(_) => self.lost.push(io.id),
        }
    }

    fn entry(&self, io: &Io, buffer: Option<u16>) -> squeue::Entry {
        let (to, len) = (io.to.pointer(), io.to.len() as u32);
        let fixed = Fixed(io.file * 2 + u32::from(io.direct));
        let fd = Fd(self.files.files[io.file as usize].fd(io.direct).as_raw_fd());
        let entry = match (self.files_registered, buffer) {
            (Ok(()), Some(number)) => {
                opcode::ReadFixed::new(fixed, to, len, number).offset(io.offset).build()
            }
            (Ok(()), None) => opcode::Read::new(fixed, to, len).offset(io.offset).build(),
            (Err(_), Some(number)) => opcode::ReadFixed::new(fd, to, len, number).offset(io.offset).build(),
            (Err(_), None) => opcode::Read::new(fd, to, len).offset(io.offset).build(),
        };
        // A read from the page cache copies inside the call that hands it over, unless the kernel's threads do it.
        let flags = if io.direct { squeue::Flags::empty() } else { squeue::Flags::ASYNC };
        entry.flags(flags).user_data(io.id.into())
    }

    /// Hands over what was queued.
    pub fn submit(&mut self) {
        while !self.pushed.is_empty() && self.broken.is_none() {
            match self.ring.submit() {
                Ok(0) => return,
                Ok(n) => self.taken(n),
                Err(error) if errno(&error) == libc::EINTR => {}
                // Short of memory, or completions must be reaped first: the next call tries again.
                Err(error) if matches!(errno(&error), libc::EAGAIN | libc::EBUSY) => return,
                Err(error) => self.break_down(errno(&error)),
            }
        }
    }

    fn taken(&mut self, n: usize) {
        let n = n.min(self.pushed.len());
        self.pushed.drain(..n);
        self.at_kernel += n;
    }

    /// The kernel refuses the ring, as when a sandbox was closed after it was made. What it has not taken is
    /// lost: the queue is never handed over again, so it never will.
    fn break_down(&mut self, errno: i32) {
        self.broken = Some(errno);
        for id in self.pushed.drain(..) {
            self.ios[id as usize] = None;
            self.lost.push(id);
        }
    }

    /// Takes what came back.
    pub fn reap(&mut self, done: &mut Vec<Done>) {
        let mut plain = Vec::new();
        for entry in self.ring.completion() {
            self.at_kernel = self.at_kernel.saturating_sub(1);
            let entry: cqueue::Entry = entry;
            let id = entry.user_data() as u32;
            let Some((io, fixed)) = self.ios.get_mut(id as usize).and_then(Option::take) else { continue };
            let result = usize::try_from(entry.result()).map_err(|_| entry.result().saturating_neg());
            match result {
                // Some drivers cannot read into pinned memory, and a mapping may have been replaced.
                Err(errno @ (libc::EFAULT | libc::EOPNOTSUPP)) if fixed => plain.push((io, errno)),
                result => done.push(Done { id, result }),
            }
        }
        for (io, errno) in plain {
            self.buffers = Buffers::default();
            self.memory = Registered { pieces: 0, bytes: 0, why_not: Some(WhyUnregistered::Failed(errno)) };
            self.push(io);
        }
        self.submit();
    }

    /// Sleeps until something came back.
    pub fn block(&mut self, timeout: Option<Duration>) {
        self.submit();
        if !self.ring.completion().is_empty() {
            return;
        }
        if self.broken.is_some() || self.at_kernel == 0 {
            return std::thread::sleep(timeout.map_or(NAP, |t| t.min(NAP)));
        }
        let waited = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(time) => {
                let time = Timespec::from(time);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        match waited {
            Ok(n) => self.taken(n),
            Err(error) if matches!(errno(&error), libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => {
            }
            Err(error) => self.break_down(errno(&error)),
        }
    }
}

fn first_enter(ring: &IoUring) -> Result<(), UringFault> {
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => return Ok(()),
            Err(error) if errno(&error) == libc::EINTR => {}
            Err(error) => {
                return Err(match fault(errno(&error)) {
                    UringFault::Setup(errno) => UringFault::FirstCall(errno),
                    other => other,
                });
            }
        }
    }
}

fn fault(errno: i32) -> UringFault {
    match errno {
        libc::ENOSYS => UringFault::Missing,
        libc::EPERM | libc::EACCES => UringFault::Forbidden(errno),
        libc::ENOMEM => UringFault::Memory,
        _ => UringFault::Setup(errno),
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
