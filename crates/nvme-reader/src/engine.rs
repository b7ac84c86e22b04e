//! What both back-ends share: hands pieces to drives and judges what comes back. Short reads are continued, interrupted
//! ones repeated, failed ones read from a mirror, and a file whose direct reads are refused goes through the page cache.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::backend::{Backend, Done, Io};
use crate::error::{OpenError, ReadError, ReadFault, UringFault, WhyBuffered, WhyUnregistered};
use crate::faults::{Attempt, Faults, Injected};
use crate::files::{Files, drop_cache};
use crate::memory::Target;
use crate::mirrors::{Drive, choose, pass_over};
use crate::options::{Choice, Options};
use crate::queue::{Piece, Queue};
use crate::read::Priority;
use crate::report::{BackendName, Counters, FileReport, Reason, Registered, Report};
use crate::threads::Threads;

/// Most I/Os at all drives together.
const MAX_FLIGHTS: u32 = 4096;
/// Tries of a piece without a new byte before it fails.
const MAX_STUCK: u32 = 100;
/// Direct tries without a new byte before the piece goes through the page cache: a short read that ends within the block
/// where it began cannot be continued directly.
const MAX_STUCK_DIRECT: u32 = 8;
/// How long to wait for a ring that broke, at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A piece at a drive.
#[derive(Debug)]
struct Flight {
    piece: Piece,
    set: u32,
    file: usize,
    direct: bool,
    /// First byte that is read.
    from: u64,
    to: Target,
    begun: Instant,
    /// I/Os at the drive then, with this one.
    queue: u32,
}

/// What is known about a file beyond its descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct FileState {
    why_buffered: Option<WhyBuffered>,
    bytes: u64,
    reads: u64,
    errors: u64,
    latency: Duration,
}

/// Queue, drives, back-end.
#[derive(Debug)]
pub struct Engine {
    /// The requests.
    pub queue: Queue,
    /// The counts.
    pub counters: Counters,
    files: Arc<Files>,
    states: Vec<FileState>,
    drives: Vec<Drive>,
    /// Memory of the request in each slot.
    targets: Vec<Option<Target>>,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    backend: Backend,
    reason: Reason,
    options: Options,
    done: Vec<Done>,
}

impl Engine {
    /// Chooses the back-end and starts it.
    pub fn start(files: Files, options: &Options) -> Result<Self, OpenError> {
        let files = Arc::new(files);
        let n_drives = u32::try_from(files.n_drives).unwrap_or(u32::MAX).max(1);
        let n_flights = options.depth.saturating_mul(n_drives).min(MAX_FLIGHTS);
        let (backend, reason) = backend(&files, options, n_flights)?;
        let why_buffered = |f: &crate::files::OpenFile| f.direct.as_ref().err().copied();
        let state = |f| FileState { why_buffered: why_buffered(f), ..FileState::default() };
        Ok(Self {
            queue: Queue::new(options.capacity),
            counters: Counters::default(),
            states: files.files.iter().map(state).collect(),
            drives: vec![Drive::default(); files.n_drives],
            targets: vec![None; options.capacity],
            flights: (0..n_flights).map(|_| None).collect(),
            free: (0..n_flights).rev().collect(),
            files,
            backend,
            reason,
            options: options.clone(),
            done: Vec::new(),
        })
    }

    /// The files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Names the memory of a request that was added to the queue. It must stay until the request is collected.
    pub fn aim(&mut self, slot: u32, target: Target) {
        self.targets[slot as usize] = Some(target);
    }

    /// I/Os that are out.
    pub fn n_out(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Hands out as many pieces as the drives take.
    pub fn pump(&mut self) {
        let (depth, look_ahead_depth) = (self.options.depth, self.options.look_ahead_depth.max(1));
        while !self.free.is_empty() && self.drives.iter().any(|d| d.at_drive < depth) {
            let (files, drives) = (&self.files, &self.drives);
            let turn = self.counters.ios as usize;
            let fits = |set: u32, failed_on: u32, priority: Priority| {
                let best = choose(drives, mirrors(files, set, failed_on), turn);
                let look_ahead = priority == Priority::LookAhead;
                best.is_some_and(|(_, d)| drives[d].has_room(look_ahead, depth, look_ahead_depth))
            };
            let bytes = |set: u32| files.sets[set as usize].piece;
            let Some((piece, set)) = self.queue.take(fits, bytes) else { break };
            self.issue(piece, set);
        }
        self.backend.submit();
    }

    fn issue(&mut self, piece: Piece, set_number: u32) {
        let set = &self.files.sets[set_number as usize];
        let look_ahead = piece.priority == Priority::LookAhead;
        let candidates = mirrors(&self.files, set_number, piece.failed_on);
        let turn = self.counters.ios as usize;
        let best = choose(&self.drives, candidates.clone(), turn);
        let (mirror, drive) = best.unwrap_or((0, self.files.files[set.first].drive));
        pass_over(&mut self.drives, candidates, drive);
        let file = set.first + mirror;
        let direct = !piece.buffered && self.states[file].why_buffered.is_none();
        let block = set.alignment as u64;
        // A direct read begins at a block: the bytes from there to where the last one ended are read again.
        let from = if direct { piece.reached / block * block } else { piece.reached };
        let placed = self.queue.layout(piece.slot).map(|l| l.parts[usize::from(piece.part)]);
        let target = self.targets[piece.slot as usize];
        let (Some(placed), Some(target), Some(id)) = (placed, target, self.free.pop()) else {
            unreachable!("a piece in the queue has a request with memory, and the caller saw a free flight");
        };
        let to = target.part(placed.at(from), (piece.end - from) as usize);
        self.drives[drive].begin(look_ahead);
        self.counters.ios += 1;
        let queue = self.drives[drive].at_drive;
        let begun = Instant::now();
        self.flights[id as usize] =
            Some(Flight { piece, set: set_number, file, direct, from, to, begun, queue });
        let (file, drive) = (file as u32, drive as u32);
        self.backend.push(Io { id, file, drive, direct, look_ahead, offset: from, to });
    }

    /// Judges what came back. Does not block.
    pub fn reap(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.backend.reap(&mut done);
        for one in done.drain(..) {
            self.judge(one);
        }
        self.done = done;
        #[cfg(target_os = "linux")]
        self.leave_broken_ring();
    }

    /// A ring that stopped working, as when a sandbox was closed after it was made, is left for threads as soon as the
    /// kernel has given back what it took. What it did not take is handed out again.
    #[cfg(target_os = "linux")]
    fn leave_broken_ring(&mut self) {
        let Backend::Uring(ring) = &mut self.backend else { return };
        for id in ring.take_lost() {
            let Some(flight) = self.flights.get_mut(id as usize).and_then(Option::take) else { continue };
            self.free.push(id);
            let look_ahead = flight.piece.priority == Priority::LookAhead;
            self.drives[self.files.files[flight.file].drive].end(look_ahead, None, flight.queue);
            self.queue.again(flight.piece);
        }
        if let (Some(fault), 0) = (ring.broken(), ring.at_kernel()) {
            // If they cannot be started now, the next call tries again.
            if let Ok(threads) = Threads::start(Arc::clone(&self.files), self.options.threads) {
                self.backend = Backend::Threads(threads);
                self.reason = Reason::NoUring(fault);
            }
        }
    }

    /// Sleeps until something came back.
    pub fn block(&mut self, timeout: Option<Duration>) {
        self.backend.block(timeout);
    }

    /// Stops every request and waits for what is at the drives. False if something is left that may still write.
    pub fn drain(&mut self) -> bool {
        self.queue.cancel_all();
        let begun = Instant::now();
        loop {
            self.reap();
            match &self.backend {
                _ if self.n_out() == 0 => return true,
                #[cfg(target_os = "linux")]
                Backend::Uring(ring) if ring.broken().is_some() && begun.elapsed() > PATIENCE => {
                    return false;
                }
                _ => self.backend.block(Some(PATIENCE)),
            }
        }
    }

    fn judge(&mut self, done: Done) {
        let Some(flight) = self.flights.get_mut(done.id as usize).and_then(Option::take) else { return };
        self.free.push(done.id);
        let mut took = flight.begun.elapsed();
        let mut result = done.result.map(|n| n.min(flight.to.len()));
        if let Some(faults) = &self.options.faults {
            inject(faults, &flight, &self.files, self.counters.judged, &mut result, &mut took);
        }
        self.counters.judged += 1;
        let look_ahead = flight.piece.priority == Priority::LookAhead;
        let measured = result.is_ok().then_some(took.as_secs_f64());
        self.drives[self.files.files[flight.file].drive].end(look_ahead, measured, flight.queue);
        match result {
            Ok(n) => self.came(&flight, n, took),
            Err(errno) => self.refused(&flight, errno),
        }
    }

    /// `n` bytes came.
    fn came(&mut self, flight: &Flight, n: usize, took: Duration) {
        let state = &mut self.states[flight.file];
        state.bytes += n as u64;
        state.reads += u64::from(n > 0);
        state.latency += took;
        let file = &self.files.files[flight.file];
        if self.options.drop_cache && !flight.direct {
            drop_cache(file.fd(false), flight.from, n);
        }
        let mut piece = flight.piece;
        let reached = flight.from + n as u64;
        if reached >= piece.need {
            return self.queue.landed(&piece);
        }
        if reached > piece.reached {
            self.counters.short += 1;
            piece.reached = reached;
            piece.stuck = 0;
            return self.queue.again(piece);
        }
        // Nothing new: the file ends here, or the next try will bring more.
        match file.len() {
            Some(len) if len > piece.reached => self.stuck(flight, 0),
            len => self.fail(flight, ReadFault::End { file_len: len.unwrap_or(piece.reached) }),
        }
    }

    /// An error came.
    fn refused(&mut self, flight: &Flight, errno: i32) {
        match Errno::from_raw_os_error(errno) {
            Errno::INTR | Errno::AGAIN => {
                self.counters.repeated += 1;
                self.stuck(flight, errno);
            }
            Errno::INVAL | Errno::OPNOTSUPP if flight.direct => {
                let why = WhyBuffered::Failed { offset: flight.from, len: flight.to.len(), errno };
                self.states[flight.file].why_buffered.get_or_insert(why);
                self.queue.again(flight.piece);
            }
            _ => self.fail(flight, ReadFault::System(errno)),
        }
    }

    /// Nothing new came, and that may change.
    fn stuck(&mut self, flight: &Flight, errno: i32) {
        let mut piece = flight.piece;
        piece.stuck += 1;
        if piece.stuck >= MAX_STUCK {
            return self.fail(flight, ReadFault::Stuck { tries: piece.stuck, errno });
        }
        piece.buffered |= errno == 0 && flight.direct && piece.stuck >= MAX_STUCK_DIRECT;
        self.queue.again(piece);
    }

    /// This mirror cannot read the piece: another may.
    fn fail(&mut self, flight: &Flight, fault: ReadFault) {
        self.states[flight.file].errors += 1;
        let set = &self.files.sets[flight.set as usize];
        let mut piece = flight.piece;
        piece.failed_on |= 1 << (flight.file - set.first);
        if (piece.failed_on.count_ones() as usize) < set.n {
            self.counters.moved += 1;
            piece.stuck = 0;
            piece.buffered = false;
            return self.queue.again(piece);
        }
        // Bytes that only widening added are nobody's loss.
        let placed = self.queue.layout(piece.slot).map(|l| l.parts[usize::from(piece.part)]);
        let offset = piece.reached.max(placed.map_or(0, |p| p.asked.offset));
        let error = ReadError {
            path: Arc::clone(&self.files.files[flight.file].path),
            offset,
            len: piece.need.saturating_sub(offset),
            fault,
            mirrors: piece.failed_on.count_ones(),
        };
        self.queue.failed(&piece, error);
    }

    /// Registers memory, if the back-end has a use for it.
    pub fn register(&mut self, chunks: &[(usize, usize)]) -> Registered {
        match &mut self.backend {
            #[cfg(target_os = "linux")]
            Backend::Uring(ring) => ring.register(chunks),
            Backend::Threads(_) => THREADS_REGISTER,
        }
    }

    /// What it is and did.
    pub fn report(&self) -> Report {
        let mut counters = self.counters;
        let (backend, files_unregistered, memory) = match &self.backend {
            #[cfg(target_os = "linux")]
            Backend::Uring(ring) => {
                counters.fixed = ring.n_fixed();
                (BackendName::Uring, ring.files_registered().err(), ring.memory())
            }
            Backend::Threads(_) => (BackendName::Threads, THREADS_REGISTER.why_not, THREADS_REGISTER),
        };
        let mut files = Vec::with_capacity(self.states.len());
        for (set, number) in self.files.sets.iter().zip(0..) {
            for i in set.first..set.first + set.n {
                let (file, state) = (&self.files.files[i], &self.states[i]);
                let calls = u32::try_from(state.reads).unwrap_or(u32::MAX).max(1);
                files.push(FileReport {
                    set: number,
                    path: Arc::clone(&file.path),
                    drive: file.drive,
                    why_buffered: state.why_buffered,
                    alignment: set.alignment,
                    bytes: state.bytes,
                    reads: state.reads,
                    errors: state.errors,
                    mean_latency: state.latency / calls,
                });
            }
        }
        Report { backend, reason: self.reason, files_unregistered, memory, files, counters }
    }
}

/// The mirrors of a set that did not fail, with their drives.
fn mirrors(files: &Files, set: u32, failed_on: u32) -> impl Iterator<Item = (usize, usize)> + Clone {
    let set = &files.sets[set as usize];
    let drive = |m: usize| files.files[set.first + m].drive;
    (0..set.n).filter(move |m| failed_on & (1 << m) == 0).map(move |m| (m, drive(m)))
}

/// Threads have no use for registration.
const THREADS_REGISTER: Registered =
    Registered { pieces: 0, bytes: 0, why_not: Some(WhyUnregistered::Threads) };

fn backend(files: &Arc<Files>, options: &Options, entries: u32) -> Result<(Backend, Reason), OpenError> {
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
    Ok((Backend::Threads(threads), reason))
}

#[cfg(target_os = "linux")]
fn ring(files: &Arc<Files>, entries: u32) -> Result<Backend, UringFault> {
    crate::uring::Uring::open(Arc::clone(files), entries).map(|ring| Backend::Uring(Box::new(ring)))
}

#[cfg(not(target_os = "linux"))]
fn ring(_: &Arc<Files>, _: u32) -> Result<Backend, UringFault> {
    Err(UringFault::Platform)
}

/// Lets a test change what came back.
fn inject(
    faults: &Faults,
    flight: &Flight,
    files: &Files,
    nth: u64,
    result: &mut Result<usize, i32>,
    took: &mut Duration,
) {
    let attempt = Attempt {
        nth,
        set: flight.set,
        path: flight.file - files.sets[flight.set as usize].first,
        direct: flight.direct,
        offset: flight.from,
        len: flight.to.len(),
        result: *result,
    };
    match faults.decide(&attempt) {
        Injected::Real => {}
        Injected::Short(n) => {
            if let Ok(came) = result {
                *came = n.min(*came);
                flight.to.spoil(*came);
            }
        }
        Injected::Error(errno) => {
            *result = Err(errno);
            flight.to.spoil(0);
        }
        Injected::Slow(more) => *took += more,
    }
}
