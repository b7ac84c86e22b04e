//! Rings of fixed-size records between one producer and one consumer, over memory that the caller maps for both.
//!
//! Memory is words of 64 bits. A ring is [`RING_HEAD_WORDS`] words, of which the first is the number of records that
//! the consumer has taken, and then `capacity` records of `N` words. [`Replies`](ReplyWriter) are `capacity` records
//! without a head. Record number `s` (from 1) is at `(s - 1) % capacity`. All words are 0 at first.
//!
//! The first word of a record and the last are its number. The producer writes the last word, then the others, and then
//! the first with release, which is `st.release.sys` on a device; the consumer reads the first with acquire, and then
//! the rest. So a record that is seen is whole. `tests/loom_ring.rs` runs both ends in every order the memory model
//! allows.
//!
//! The last word is there for a producer that breaks the rules: if it is another number, the producer wrote into a ring
//! that was full, or published before its words were there. The first is always found if the producer has a release
//! fence after the last word, as [`Producer`] has; what a device without fences does is found where it shows.
//!
//! Every wait ends: at a deadline or after a number of attempts, with an error that says what did not come.

use std::time::Instant;

use crate::ring_error::RingError;

#[cfg(loom)]
use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// A word of shared memory: `std`'s atomic, or loom's where the crate is built with `--cfg loom`.
pub type Word = AtomicU64;

/// Words before a ring's records: a cache line of any device, so that the consumer's word is not in one with a record.
pub const RING_HEAD_WORDS: usize = 16;

/// Attempts that do not give up the processor: a few microseconds, about what a device's answer takes.
const SPINS: u64 = 200;

/// How long a wait may last.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// This many attempts; at least one is made.
    Attempts(u64),
    /// Until this moment; at least one attempt is made.
    Until(Instant),
}

/// The words that a ring of this shape needs. None if there is no such number.
pub fn ring_words(capacity: usize, record_words: usize) -> Option<usize> {
    reply_words(capacity, record_words)?.checked_add(RING_HEAD_WORDS)
}

/// The words that the replies to a ring of this shape need. None if there is no such number.
pub fn reply_words(capacity: usize, record_words: usize) -> Option<usize> {
    capacity.checked_mul(record_words)
}

/// Records in memory.
#[derive(Clone, Copy, Debug)]
struct Records<'m, const N: usize> {
    words: &'m [Word],
    capacity: u64,
}

impl<'m, const N: usize> Records<'m, N> {
    fn new(words: &'m [Word], capacity: usize) -> Result<Self, RingError> {
        if capacity == 0 || N < 2 {
            return Err(RingError::Shape { capacity, record_words: N });
        }
        let needed = reply_words(capacity, N).and_then(|needed| words.get(..needed));
        let words = needed.ok_or(RingError::Memory { capacity, record_words: N, words: words.len() })?;
        Ok(Self { words, capacity: capacity as u64 })
    }

    /// The words of record `sequence`, which is at least 1.
    fn record(&self, sequence: u64) -> &'m [Word] {
        // Less than the capacity, which is a usize.
        let place = ((sequence - 1) % self.capacity) as usize;
        &self.words[place * N..][..N]
    }

    fn write(&self, sequence: u64, words: &[u64; N]) {
        let record = self.record(sequence);
        record[N - 1].store(sequence, Ordering::Relaxed);
        // Whoever sees one of the new words sees the new last word, so a reader that is overrun finds out.
        fence(Ordering::Release);
        for (word, value) in record[1..N - 1].iter().zip(&words[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        record[0].store(sequence, Ordering::Release);
    }

    /// Record `sequence`, if it is there; otherwise the number of what is in its place.
    fn read(&self, sequence: u64) -> Result<Result<[u64; N], u64>, RingError> {
        let record = self.record(sequence);
        let found = record[0].load(Ordering::Acquire);
        if found != sequence {
            return Ok(Err(found));
        }
        let mut words = [sequence; N];
        for (value, word) in words.iter_mut().zip(&record[..N - 1]).skip(1) {
            *value = word.load(Ordering::Relaxed);
        }
        // The last word after all others: the other half of the fence in `write`.
        fence(Ordering::Acquire);
        let closing = record[N - 1].load(Ordering::Relaxed);
        if closing == sequence { Ok(Ok(words)) } else { Err(RingError::Torn { sequence, closing }) }
    }
}

/// The end of a ring that writes. There is one; a second would be found by the consumer as an error.
#[derive(Debug)]
pub struct Producer<'m, const N: usize> {
    head: &'m Word,
    records: Records<'m, N>,
    next: u64,
    /// What the head's word said when it was last read.
    taken: u64,
}

impl<'m, const N: usize> Producer<'m, N> {
    /// The producer of a new ring of `capacity` records in `memory`, whose words are all 0.
    ///
    /// # Errors
    /// Memory that is too small (see [`ring_words`]), no capacity, or records without room for two numbers.
    pub fn new(memory: &'m [Word], capacity: usize) -> Result<Self, RingError> {
        let (head, records) = split(memory, capacity)?;
        Ok(Self { head, records, next: 1, taken: 0 })
    }

    /// Writes a record and gives its number. The first and the last of `words` are not used: the number stands there.
    ///
    /// # Errors
    /// [`RingError::Full`] if the consumer is a whole ring behind; nothing is written then. [`RingError::Taken`] if its
    /// word makes no sense.
    pub fn push(&mut self, words: &[u64; N]) -> Result<u64, RingError> {
        let (sequence, capacity) = (self.next, self.records.capacity);
        let written = sequence - 1;
        if written - self.taken >= capacity {
            // Acquire: what the consumer read before it moved its word must not see what is written now.
            let (taken, before) = (self.head.load(Ordering::Acquire), self.taken);
            if taken < before || taken > written {
                return Err(RingError::Taken { taken, before, written });
            }
            self.taken = taken;
            if written - taken >= capacity {
                return Err(RingError::Full { sequence, taken, capacity });
            }
        }
        self.records.write(sequence, words);
        self.next += 1;
        Ok(sequence)
    }

    /// Writes a record as soon as there is room.
    ///
    /// # Errors
    /// As [`push`](Self::push); [`RingError::Full`] if there was none in time.
    pub fn push_within(&mut self, words: &[u64; N], patience: Patience) -> Result<u64, RingError> {
        let mut full = None;
        let pushed = wait(patience, || match self.push(words) {
            Err(error @ RingError::Full { .. }) => {
                full = Some(error);
                Ok(None)
            }
            done => done.map(Some),
        })?;
        match (pushed, full) {
            (Ok(sequence), _) => Ok(sequence),
            (Err(_), Some(error)) => Err(error),
            (Err(attempts), None) => Err(RingError::NoRecord { sequence: self.next, attempts }),
        }
    }
}

/// The end of a ring that reads. There is one.
#[derive(Debug)]
pub struct Consumer<'m, const N: usize> {
    head: &'m Word,
    records: Records<'m, N>,
    next: u64,
}

impl<'m, const N: usize> Consumer<'m, N> {
    /// The consumer of a new ring of `capacity` records in `memory`. The producer may have begun.
    ///
    /// # Errors
    /// As [`Producer::new`].
    pub fn new(memory: &'m [Word], capacity: usize) -> Result<Self, RingError> {
        let (head, records) = split(memory, capacity)?;
        Ok(Self { head, records, next: 1 })
    }

    /// Takes the next record, if it is there. Its first word is its number.
    ///
    /// # Errors
    /// [`RingError::Skipped`] and [`RingError::Torn`]: the producer broke the rules, and the ring stays where it is.
    pub fn pop(&mut self) -> Result<Option<[u64; N]>, RingError> {
        let sequence = self.next;
        match self.records.read(sequence)? {
            Ok(words) => {
                // Release: the words were read before the producer, which acquires this, writes over them. No loom
                // test can fail without it (see there); a processor that delays loads, as ARM's do, can.
                self.head.store(sequence, Ordering::Release);
                self.next += 1;
                Ok(Some(words))
            }
            // The record of a round before, or of none.
            Err(found) if found == sequence.saturating_sub(self.records.capacity) => Ok(None),
            Err(found) => Err(RingError::Skipped { expected: sequence, found }),
        }
    }

    /// Takes the next record as soon as it is there.
    ///
    /// # Errors
    /// As [`pop`](Self::pop), and [`RingError::NoRecord`] if there was none in time.
    pub fn pop_within(&mut self, patience: Patience) -> Result<[u64; N], RingError> {
        let sequence = self.next;
        wait(patience, || self.pop())?.map_err(|attempts| RingError::NoRecord { sequence, attempts })
    }
}

/// The end that answers.
///
/// A reply has the number of the record it answers, and not every record has one that anybody reads: a reader may look
/// only for those it needs. There is no head, because the ring of records bounds replies too: with the same capacity, a
/// reply is written over only when a record a whole round later came, and its sender has by then read the replies it
/// wanted of the round before.
#[derive(Debug)]
pub struct ReplyWriter<'m, const N: usize> {
    records: Records<'m, N>,
    last: u64,
}

impl<'m, const N: usize> ReplyWriter<'m, N> {
    /// Replies to a ring of this capacity in `memory`, whose words are all 0.
    ///
    /// # Errors
    /// Memory that is too small (see [`reply_words`]), no capacity, or records without room for two numbers.
    pub fn new(memory: &'m [Word], capacity: usize) -> Result<Self, RingError> {
        Ok(Self { records: Records::new(memory, capacity)?, last: 0 })
    }

    /// Answers record `sequence`. The first and the last of `words` are not used. What was written to other memory
    /// before this call is seen by whoever sees the reply.
    ///
    /// # Errors
    /// [`RingError::Order`] for a number that is not larger than the one before.
    pub fn answer(&mut self, sequence: u64, words: &[u64; N]) -> Result<(), RingError> {
        if sequence <= self.last {
            return Err(RingError::Order { sequence, last: self.last });
        }
        self.records.write(sequence, words);
        self.last = sequence;
        Ok(())
    }
}

/// The end that is answered.
#[derive(Debug)]
pub struct ReplyReader<'m, const N: usize> {
    records: Records<'m, N>,
}

impl<'m, const N: usize> ReplyReader<'m, N> {
    /// As [`ReplyWriter::new`], for the other end.
    ///
    /// # Errors
    /// As [`ReplyWriter::new`].
    pub fn new(memory: &'m [Word], capacity: usize) -> Result<Self, RingError> {
        Ok(Self { records: Records::new(memory, capacity)? })
    }

    /// The reply to record `sequence` (from 1), if it is there. Its first word is the number.
    ///
    /// # Errors
    /// [`RingError::Skipped`] if a later reply is in its place, or one that does not belong there;
    /// [`RingError::Torn`] if its words did not all arrive.
    pub fn poll(&self, sequence: u64) -> Result<Option<[u64; N]>, RingError> {
        if sequence == 0 {
            return Err(RingError::Skipped { expected: 1, found: 0 });
        }
        match self.records.read(sequence)? {
            Ok(words) => Ok(Some(words)),
            Err(0) => Ok(None),
            Err(found) if found < sequence && (sequence - found).is_multiple_of(self.records.capacity) => {
                Ok(None)
            }
            Err(found) => Err(RingError::Skipped { expected: sequence, found }),
        }
    }

    /// The reply as soon as it is there.
    ///
    /// # Errors
    /// As [`poll`](Self::poll), and [`RingError::NoReply`] if there was none in time.
    pub fn poll_within(&self, sequence: u64, patience: Patience) -> Result<[u64; N], RingError> {
        wait(patience, || self.poll(sequence))?.map_err(|attempts| RingError::NoReply { sequence, attempts })
    }
}

fn split<const N: usize>(memory: &[Word], capacity: usize) -> Result<(&Word, Records<'_, N>), RingError> {
    let short = RingError::Memory { capacity, record_words: N, words: memory.len() };
    let (head, rest) = memory.split_at_checked(RING_HEAD_WORDS).ok_or(short)?;
    let records = Records::new(rest, capacity).map_err(|error| match error {
        RingError::Memory { .. } => short,
        other => other,
    })?;
    Ok((&head[0], records))
}

/// Tries until there is something, or the number of attempts that were made in vain.
fn wait<T>(
    patience: Patience,
    mut attempt: impl FnMut() -> Result<Option<T>, RingError>,
) -> Result<Result<T, u64>, RingError> {
    let mut attempts = 0_u64;
    loop {
        if let Some(done) = attempt()? {
            return Ok(Ok(done));
        }
        attempts += 1;
        let over = match patience {
            Patience::Attempts(limit) => attempts >= limit,
            Patience::Until(deadline) => Instant::now() >= deadline,
        };
        if over {
            return Ok(Err(attempts));
        }
        if cfg!(loom) || attempts > SPINS {
            yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
