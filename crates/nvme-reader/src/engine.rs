//! What both back-ends share: hands pieces to drives and takes back what comes.

mod judge;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Done, Io};
use crate::error::{OpenError, WhyBuffered};
use crate::files::{Files, OpenSet};
use crate::memory::Target;
use crate::mirrors::{Drive, choose, pass_over};
use crate::options::Options;
use crate::queue::{Piece, Queue};
use crate::read::Priority;
use crate::report::{Counters, FileReport, Reason, Registered, Report};

/// Most I/Os at all drives together.
const MAX_FLIGHTS: u32 = 4096;
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
        let (backend, reason) = Backend::start(&files, options, n_flights)?;
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

    /// Registers memory, if the back-end has a use for it.
    pub fn register(&mut self, chunks: &[(usize, usize)]) -> Registered {
        self.backend.register(chunks)
    }

    /// What it is and did.
    pub fn report(&self) -> Report {
        let sets = self.files.sets.iter().zip(0..);
        let files = sets.flat_map(|(set, n)| (set.first..set.first + set.n).map(move |i| (n, set, i)));
        let file = |(number, set, i): (u32, &OpenSet, usize)| {
            let (file, state) = (&self.files.files[i], &self.states[i]);
            let calls = u32::try_from(state.reads).unwrap_or(u32::MAX).max(1);
            FileReport {
                set: number,
                path: Arc::clone(&file.path),
                drive: file.drive,
                why_buffered: state.why_buffered,
                alignment: set.alignment,
                bytes: state.bytes,
                reads: state.reads,
                errors: state.errors,
                mean_latency: state.latency / calls,
            }
        };
        Report {
            backend: self.backend.name(),
            reason: self.reason,
            files_unregistered: self.backend.files_registered().err(),
            memory: self.backend.memory(),
            files: files.map(file).collect(),
            counters: Counters { fixed: self.backend.n_fixed(), ..self.counters },
        }
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
        let (Some(placed), Some(target)) = (placed, target) else {
            unreachable!("a piece in the queue has a request with memory");
        };
        let to = target.part(placed.at(from), (piece.end - from) as usize);
        let id = self.free.pop().expect("the caller saw a free flight");
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
            if let Ok(threads) = crate::threads::Threads::start(Arc::clone(&self.files), self.options.threads)
            {
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
            if self.n_out() == 0 {
                return true;
            }
            if self.backend.is_broken() && begun.elapsed() > PATIENCE {
                return false;
            }
            self.backend.block(Some(PATIENCE));
        }
    }
}

/// The mirrors of a set that did not fail, with their drives.
fn mirrors(files: &Files, set: u32, failed_on: u32) -> impl Iterator<Item = (usize, usize)> + Clone {
    let set = &files.sets[set as usize];
    let drive = |m: usize| files.files[set.first + m].drive;
    (0..set.n).filter(move |m| failed_on & (1 << m) == 0).map(move |m| (m, drive(m)))
}
