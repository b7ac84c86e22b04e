//! What an I/O brought: short reads are continued, interrupted ones repeated, failed ones read from a mirror, and a file
//! whose direct reads are refused goes through the page cache.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::{Engine, Flight};
use crate::backend::Done;
use crate::error::{ReadError, ReadFault, WhyBuffered};
use crate::faults::Attempt;
use crate::files::drop_cache;
use crate::queue::Piece;
use crate::read::Priority;

/// Tries of a piece without a new byte before it fails.
const MAX_STUCK: u32 = 100;
/// Direct tries without a new byte before the piece goes through the page cache: a short read that ends within the block
/// where it began cannot be continued directly.
const MAX_STUCK_DIRECT: u32 = 8;
impl Engine {
    /// Takes an I/O back.
    pub(super) fn judge(&mut self, done: Done) {
        let Some(flight) = self.flights.get_mut(done.id as usize).and_then(Option::take) else { return };
        self.free.push(done.id);
        let mut took = flight.begun.elapsed();
        let mut result = done.result.map(|n| n.min(flight.to.len()));
        if let Some(faults) = &self.options.faults {
            let attempt = Attempt {
                nth: self.counters.returned,
                set: flight.set,
                path: flight.file - self.files.sets[flight.set as usize].first,
                direct: flight.direct,
                offset: flight.from,
                len: flight.to.len(),
                result,
            };
            (result, took) = faults.apply(&attempt, flight.to, took);
        }
        self.counters.returned += 1;
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
        piece.reached = piece.reached.max(reached);
        if reached > piece.furthest {
            self.counters.short += 1;
            piece.furthest = reached;
            piece.stuck = 0;
            return self.queue.again(piece);
        }
        // Nothing new: the file ends here, or the next try will bring more.
        match file.len() {
            Some(len) if len > reached => self.stuck(flight, piece, 0),
            len => self.fail(flight, piece, ReadFault::End { file_len: len.unwrap_or(reached) }),
        }
    }

    /// An error came.
    fn refused(&mut self, flight: &Flight, errno: i32) {
        let mut piece = flight.piece;
        // A direct read may begin before the last good byte, and a failed one may have overwritten it with anything.
        piece.reached = piece.reached.min(flight.from);
        match Errno::from_raw_os_error(errno) {
            // The kernel cancels what a thread submitted and the kernel's own threads have not begun when that thread
            // ends: the reader moved on, and the read is still wanted.
            Errno::INTR | Errno::AGAIN | Errno::CANCELED => {
                self.counters.repeated += 1;
                self.stuck(flight, piece, errno);
            }
            Errno::INVAL | Errno::OPNOTSUPP if flight.direct => {
                let why = WhyBuffered::Failed { offset: flight.from, len: flight.to.len(), errno };
                self.states[flight.file].why_buffered.get_or_insert(why);
                self.queue.again(piece);
            }
            _ => self.fail(flight, piece, ReadFault::System(errno)),
        }
    }

    /// Nothing new came, and that may change.
    fn stuck(&mut self, flight: &Flight, mut piece: Piece, errno: i32) {
        piece.stuck += 1;
        if piece.stuck >= MAX_STUCK {
            return self.fail(flight, piece, ReadFault::Stuck { tries: piece.stuck, errno });
        }
        piece.buffered |= errno == 0 && flight.direct && piece.stuck >= MAX_STUCK_DIRECT;
        self.queue.again(piece);
    }

    /// This mirror cannot read the piece: another may.
    fn fail(&mut self, flight: &Flight, mut piece: Piece, fault: ReadFault) {
        self.states[flight.file].errors += 1;
        let set = &self.files.sets[flight.set as usize];
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
}
