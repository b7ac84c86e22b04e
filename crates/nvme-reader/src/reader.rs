//! The reader: what the caller holds.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::align::{Layout, layout};
use crate::engine::Engine;
use crate::error::{OpenError, Refusal, Refused};
use crate::files::Files;
use crate::memory::{Memory, Target};
use crate::options::{FileSet, Options};
use crate::queue::Finished;
use crate::read::{Cancel, Completion, Failed, MAX_PARTS, Outcome, Part, Parts, Places, Read};
use crate::report::{Registered, Report};

/// Memory to be registered: an address and a length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first byte.
    pub address: usize,
    /// Bytes.
    pub len: usize,
}

impl From<&[u8]> for Chunk {
    fn from(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().addr(), len: bytes.len() }
    }
}

/// Reads byte ranges of files into memory that it owns meanwhile.
///
/// One thread at a time drives it; it may move between threads. Nothing happens behind the caller's back: I/Os that are
/// at the drive run on, but what waits is handed over by [`start`](Self::start), [`poll`](Self::poll) and
/// [`wait`](Self::wait) only.
///
/// Dropping it waits for the I/Os at the drives, then frees the memory of all requests.
pub struct Reader<M: Memory> {
    engine: Engine,
    /// Tag and memory of the request in each slot. The list never grows, so memory stays where it is stored.
    owned: Vec<Option<(u64, M)>>,
    slots: HashMap<u64, u32>,
    alignment: usize,
}

impl<M: Memory> Reader<M> {
    /// Opens `sets` with the default [`Options`].
    ///
    /// # Errors
    ///
    /// See [`open_with`](Self::open_with).
    pub fn open(sets: &[FileSet]) -> Result<Self, OpenError> {
        Self::open_with(sets, &Options::default())
    }

    /// Opens `sets`. Requests name a set by its position.
    ///
    /// # Errors
    ///
    /// A path that cannot be opened or is not a file; mirrors that are not the same file; an option out of its range;
    /// `io_uring` that was insisted on and does not work; threads that cannot be started. That `io_uring` or direct reads
    /// do not work is no error but in the [`report`](Self::report).
    pub fn open_with(sets: &[FileSet], options: &Options) -> Result<Self, OpenError> {
        check(options)?;
        let files = Files::open(sets, options)?;
        let alignment = files.sets.iter().map(|s| s.alignment).max().unwrap_or(1);
        let engine = Engine::start(files, options)?;
        let owned = (0..options.capacity).map(|_| None).collect();
        Ok(Self { engine, owned, slots: HashMap::with_capacity(options.capacity), alignment })
    }

    /// Tells the kernel about memory that reads will land in, in place of what it was told before. It then need not look
    /// up the pages for each read. `chunks` are cut at 1 GiB each; an I/O gains if its memory lies in one piece.
    ///
    /// Refusal is normal (the limit on locked memory, threads that read): reads work without, and the answer says why.
    ///
    /// The memory must stay mapped until the reader is dropped or told about other memory: the kernel would write to the
    /// pages that were there, and a read into a new mapping at the same address would bring nothing.
    pub fn register(&mut self, chunks: &[Chunk]) -> Registered {
        let chunks: Vec<(usize, usize)> = chunks.iter().map(|c| (c.address, c.len)).collect();
        self.engine.register(&chunks)
    }

    /// Bytes of memory that a request for `parts` of `set` needs: each part widened to the alignment. `None` if there is
    /// no such set, there are more than [`MAX_PARTS`], or a part ends beyond what a file can have.
    pub fn room(&self, set: u32, parts: impl Into<Parts>) -> Option<usize> {
        let parts = parts.into();
        let within = parts.given() <= MAX_PARTS;
        let alignment = self.alignment_of(set, &parts).ok().filter(|_| within)?;
        layout(&parts, alignment).map(|l| l.room)
    }

    /// The largest alignment of the files that hold `parts`; the set that there is none of otherwise.
    fn alignment_of(&self, set: u32, parts: &Parts) -> Result<usize, u32> {
        let sets = &self.engine.files().sets;
        let mut alignment = 1;
        for set in &parts.sets(set)[..parts.len().max(1)] {
            alignment = alignment.max(sets.get(*set as usize).ok_or(*set)?.alignment);
        }
        Ok(alignment)
    }

    /// What a request's memory must begin at a multiple of, in bytes: a power of two, 1 if every file is read through
    /// the page cache. It never changes.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Accepts a request, and with it its memory, which comes back in the request's one [`Completion`]. Hands its I/Os
    /// over as far as the drives take them. Does not block.
    ///
    /// # Errors
    ///
    /// The request comes back with the reason if it cannot be accepted; [`Refusal::Full`] passes when something
    /// completes.
    #[allow(
        clippy::result_large_err,
        reason = "the request goes back as it came: a box would be an allocation a refusal"
    )]
    pub fn start(&mut self, mut read: Read<M>) -> Result<(), Refused<M>> {
        let layout = match self.accept(&mut read) {
            Ok(layout) => layout,
            Err(why) => return Err(Refused { read, why }),
        };
        let Some(slot) = self.engine.queue.add(read.parts.sets(read.set), read.priority, layout) else {
            let why = Refusal::Full { capacity: self.engine.queue.capacity() };
            return Err(Refused { read, why });
        };
        self.slots.insert(read.tag, slot);
        // Stored first and looked at then, so that nothing moves it after its address was taken.
        let (_, memory) = self.owned[slot as usize].insert((read.tag, read.into));
        let target = Target::new(memory);
        self.engine.aim(slot, target);
        self.engine.counters.started += 1;
        self.engine.pump();
        Ok(())
    }

    fn accept(&self, read: &mut Read<M>) -> Result<Layout, Refusal> {
        let files = self.engine.files();
        let count = files.sets.len();
        let alignment =
            self.alignment_of(read.set, &read.parts).map_err(|set| Refusal::NoSuchSet { set, count })?;
        if !(1..=MAX_PARTS).contains(&read.parts.given()) {
            return Err(Refusal::PartCount(read.parts.given()));
        }
        let layout = layout(&read.parts, alignment).ok_or_else(|| {
            let far = read.parts.iter().position(|p| layout(&[*p], alignment).is_none());
            let part = far.unwrap_or(read.parts.len() - 1);
            let Part { offset, len } = read.parts[part];
            Refusal::TooFar { part, offset, len }
        })?;
        let bytes = read.into.bytes();
        if bytes.len() < layout.room {
            return Err(Refusal::TooSmall { len: bytes.len(), need: layout.room });
        }
        let address = bytes.as_ptr().addr();
        if layout.room > 0 && !address.is_multiple_of(alignment) {
            return Err(Refusal::Misaligned { address, alignment });
        }
        if self.slots.contains_key(&read.tag) {
            return Err(Refusal::TagInUse(read.tag));
        }
        if self.engine.queue.len() == self.engine.queue.capacity() {
            return Err(Refusal::Full { capacity: self.engine.queue.capacity() });
        }
        Ok(layout)
    }

    /// Stops the request `tag` if some of its I/Os were not handed to a drive yet: those never are, and the request
    /// completes as [`Outcome::Cancelled`], at once if none of its I/Os is at a drive and else when those have come back.
    /// I/Os at a drive cannot be called back. Asked again, it answers the same.
    ///
    /// A request that is all at the drive or done, and an unknown tag, are [`Cancel::TooLate`]. The completion comes with
    /// [`poll`](Self::poll) or [`wait`](Self::wait), as every other.
    pub fn cancel(&mut self, tag: u64) -> Cancel {
        match self.slots.get(&tag) {
            Some(slot) => self.engine.queue.cancel(*slot),
            None => Cancel::TooLate,
        }
    }

    /// Makes a [`LookAhead`](crate::Priority::LookAhead) request one that is waited for, from where it is: its I/Os that
    /// are not at a drive queue behind the demand that is there. False if there is no such request.
    pub fn urge(&mut self, tag: u64) -> bool {
        let urged = self.slots.get(&tag).is_some_and(|slot| self.engine.queue.urge(*slot));
        if urged {
            self.engine.pump();
        }
        urged
    }

    /// Appends what has completed to `done`, and hands over what waits. Never blocks.
    pub fn poll(&mut self, done: &mut Vec<Completion<M>>) {
        self.engine.reap();
        self.engine.pump();
        self.collect(done);
    }

    /// Like [`poll`](Self::poll), but blocks until `at_least` completions were appended or nothing is in flight.
    pub fn wait(&mut self, at_least: usize, done: &mut Vec<Completion<M>>) {
        self.wait_until(at_least, None, done);
    }

    /// Like [`wait`](Self::wait), for no longer than about `timeout`. Says whether `at_least` completions were appended.
    pub fn wait_timeout(
        &mut self,
        at_least: usize,
        timeout: Duration,
        done: &mut Vec<Completion<M>>,
    ) -> bool {
        // A time too far to be told is no limit.
        self.wait_until(at_least, Instant::now().checked_add(timeout), done)
    }

    fn wait_until(
        &mut self,
        at_least: usize,
        deadline: Option<Instant>,
        done: &mut Vec<Completion<M>>,
    ) -> bool {
        let enough = done.len().saturating_add(at_least);
        loop {
            self.poll(done);
            if done.len() >= enough || self.in_flight() == 0 {
                return done.len() >= enough;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            assert!(self.engine.n_out() > 0, "requests are in flight, and none has an I/O out");
            self.engine.block(left);
        }
    }

    fn collect(&mut self, done: &mut Vec<Completion<M>>) {
        while let Some(finished) = self.engine.queue.collect() {
            let Some((tag, memory)) = self.owned[finished.slot as usize].take() else { continue };
            self.slots.remove(&tag);
            let outcome = outcome(finished);
            let counters = &mut self.engine.counters;
            match &outcome {
                Outcome::Read(places) => {
                    counters.read += 1;
                    counters.bytes += places.iter().map(|p| p.len() as u64).sum::<u64>();
                }
                Outcome::Failed(_) => counters.failed += 1,
                Outcome::Cancelled => counters.cancelled += 1,
            }
            done.push(Completion { tag, memory, outcome });
        }
    }

    /// Requests that were accepted and whose completion was not handed out.
    pub fn in_flight(&self) -> usize {
        self.engine.queue.len()
    }

    /// What the reader is and what it did so far.
    pub fn report(&self) -> Report {
        self.engine.report()
    }
}

impl<M: Memory> fmt::Debug for Reader<M> {
    /// Without the memory of requests: a drive may be writing to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl<M: Memory> Drop for Reader<M> {
    fn drop(&mut self) {
        if !self.engine.drain() {
            // The kernel still has I/Os that cannot be waited for. Memory that is never freed is the lesser evil.
            std::mem::forget(std::mem::take(&mut self.owned));
        }
    }
}

fn outcome(finished: Finished) -> Outcome {
    let Finished { layout, mut errors, cancelled, .. } = finished;
    let place = |i: usize| layout.parts[i].place();
    if cancelled {
        Outcome::Cancelled
    } else if errors.iter().all(Option::is_none) {
        let places = std::array::from_fn(|i| if i < layout.n { place(i) } else { 0..0 });
        Outcome::Read(Places::new(layout.n, places))
    } else {
        let parts = (0..layout.n).map(|i| errors[i].take().map_or_else(|| Ok(place(i)), Err));
        Outcome::Failed(Failed { parts: parts.collect() })
    }
}

fn check(options: &Options) -> Result<(), OpenError> {
    let ranges = [
        ("depth", u64::from(options.depth), 1, 1024),
        ("piece", u64::from(options.piece), 1, 1 << 30),
        ("threads", options.threads as u64, 1, 256),
        ("capacity", options.capacity as u64, 1, 1 << 16),
    ];
    for (name, value, min, max) in ranges {
        if !(min..=max).contains(&value) {
            return Err(OpenError::Option { name, value, min, max });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_and_what_it_gives_back_may_change_threads() {
        fn is_send<T: Send>() {}
        is_send::<Reader<&'static mut [u8]>>();
        is_send::<Completion<&'static mut [u8]>>();
        is_send::<OpenError>();
    }

    #[test]
    fn options_out_of_range_are_named() {
        let open = |options: &Options| Reader::<Vec<u8>>::open_with(&[], options).map(drop);
        let base = Options::default();
        for (options, text) in [
            (Options { depth: 0, ..base.clone() }, "option depth is 0; 1 to 1024 are allowed"),
            (Options { piece: 0, ..base.clone() }, "option piece is 0; 1 to 1073741824 are allowed"),
            (Options { threads: 257, ..base.clone() }, "option threads is 257; 1 to 256 are allowed"),
            (Options { capacity: 0, ..base.clone() }, "option capacity is 0; 1 to 65536 are allowed"),
        ] {
            assert_eq!(open(&options).unwrap_err().to_string(), text);
        }
        open(&base).unwrap();
    }
}
