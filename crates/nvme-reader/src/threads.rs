//! The back-end for everywhere: threads that call `pread`. Each drive has its own, so that a drive that hangs does not
//! take the others' threads. Nobody spins: idle threads and the reader sleep on condition variables.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::{Errno, pread};

use crate::backend::{Done, Io};
use crate::files::Files;
use crate::memory::Target;

/// Threads and what they work on.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    files: Arc<Files>,
    lists: Mutex<Lists>,
    /// One per drive: there is work for it, or nothing more to come.
    work: Vec<Condvar>,
    /// Something is done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Lists {
    /// Per drive: demand, look-ahead.
    work: Vec<[VecDeque<Io>; 2]>,
    done: Vec<Done>,
    stop: bool,
}

impl Shared {
    // A list is whole after every statement, so a thread that panicked leaves nothing half done.
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, drive: usize) {
        let mut lists = self.lists();
        loop {
            let [demand, look_ahead] = &mut lists.work[drive];
            if let Some(io) = demand.pop_front().or_else(|| look_ahead.pop_front()) {
                drop(lists);
                let fd = self.files.files[io.file as usize].fd(io.direct);
                let result = read(fd, io.to, io.offset);
                lists = self.lists();
                lists.done.push(Done { id: io.id, result });
                self.done.notify_one();
            } else if lists.stop {
                return;
            } else {
                lists = self.work[drive].wait(lists).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Threads {
    /// Starts `per_drive` threads for every drive.
    pub fn start(files: Arc<Files>, per_drive: usize) -> io::Result<Self> {
        let n_drives = files.n_drives;
        let lists = Lists { work: (0..n_drives).map(|_| Default::default()).collect(), ..Lists::default() };
        let work = (0..n_drives).map(|_| Condvar::new()).collect();
        let shared = Arc::new(Shared { files, lists: Mutex::new(lists), work, done: Condvar::new() });
        // Built first and filled then: if a thread cannot be started, dropping it stops the others.
        let mut threads = Self { shared, workers: Vec::new() };
        for drive in 0..n_drives {
            for i in 0..per_drive {
                let shared = Arc::clone(&threads.shared);
                let name = format!("nvme-{drive}.{i}");
                let worker = std::thread::Builder::new().name(name).spawn(move || shared.work(drive))?;
                threads.workers.push(worker);
            }
        }
        Ok(threads)
    }

    /// Queues one I/O.
    pub fn push(&mut self, io: Io) {
        let drive = io.drive as usize;
        self.shared.lists().work[drive][usize::from(io.look_ahead)].push_back(io);
        self.shared.work[drive].notify_one();
    }

    /// Takes what is done.
    pub fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.shared.lists().done);
    }

    /// Sleeps until something is done.
    pub fn block(&mut self, timeout: Option<Duration>) {
        let lists = self.shared.lists();
        let none = |lists: &mut Lists| lists.done.is_empty();
        match timeout {
            Some(time) => drop(self.shared.done.wait_timeout_while(lists, time, none)),
            None => drop(self.shared.done.wait_while(lists, none)),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lists().stop = true;
        self.shared.work.iter().for_each(Condvar::notify_all);
        for worker in self.workers.drain(..) {
            // A thread that panicked has nothing to say here.
            let _ = worker.join();
        }
    }
}

/// One `pread`.
fn read(fd: &std::os::fd::OwnedFd, to: Target, offset: u64) -> Result<usize, i32> {
    // SAFETY: `to` is part of the memory of a request in flight, which the reader owns and keeps until this I/O has come
    // back (see `Target`), and no other I/O is on these bytes: pieces of a request do not overlap. `MaybeUninit` bytes
    // may be anything.
    let bytes = unsafe { std::slice::from_raw_parts_mut(to.pointer().cast::<MaybeUninit<u8>>(), to.len()) };
    match pread(fd, bytes, offset) {
        Ok((read, _)) => Ok(read.len()),
        Err(errno) => Err(Errno::raw_os_error(errno)),
    }
}
