//! The scheduler: requests become pieces, pieces go out by priority, come back, and make their request complete. Nothing
//! here does I/O or looks at a clock.
//!
//! Every request is in exactly one place: it waits (some of its bytes have not been handed out), or all of it is out, or
//! it is finished and waits to be collected. It finishes when none of its pieces is out and none is left to hand out.

use std::collections::VecDeque;

use crate::align::Layout;
use crate::error::ReadError;
use crate::read::{Cancel, MAX_PARTS, Priority};

/// One I/O, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The request.
    pub slot: u32,
    /// The request's part.
    pub part: u8,
    /// How urgent it is.
    pub priority: Priority,
    /// First byte of the file to read.
    pub from: u64,
    /// Byte after the last to read.
    pub end: u64,
    /// Byte after the last that must come. What is beyond it was widened, or is beyond the file.
    pub need: u64,
    /// Byte after the last that came and is good; `from` is at most this.
    pub reached: u64,
    /// The highest that `reached` was: what counts as progress.
    pub furthest: u64,
    /// Mirrors that failed, one bit each.
    pub failed_on: u32,
    /// Tries since the last progress.
    pub stuck: u32,
    /// Whether it goes through the page cache whatever the file does.
    pub buffered: bool,
}

#[derive(Debug)]
struct Request {
    sets: [u32; MAX_PARTS],
    priority: Priority,
    layout: Layout,
    errors: [Option<ReadError>; MAX_PARTS],
    /// Next part and byte to cut a piece from; the part is `layout.n` when nothing is left.
    next: (usize, u64),
    /// Pieces handed out.
    out: u32,
    /// Pieces that came back to be handed out again.
    again: u32,
    cancelled: bool,
}

impl Request {
    fn is_cut(&self) -> bool {
        self.next.0 >= self.layout.n
    }

    /// The file set of a part.
    fn set(&self, part: usize) -> u32 {
        self.sets.get(part).copied().unwrap_or(0)
    }

    /// Moves the cursor over parts that need nothing more: empty, cut to the end, or failed.
    fn skip(&mut self) {
        while let Some(placed) = self.layout.parts[..self.layout.n].get(self.next.0) {
            if self.next.1 < placed.end && self.errors[self.next.0].is_none() {
                return;
            }
            let part = self.next.0 + 1;
            self.next = (part, self.layout.parts.get(part).map_or(0, |p| p.begin));
        }
    }

    fn cut(&mut self, slot: u32, bytes: u64) -> Option<Piece> {
        let placed = self.layout.parts[..self.layout.n].get(self.next.0)?;
        let from = self.next.1;
        let end = from.saturating_add(bytes).min(placed.end);
        let piece = Piece {
            slot,
            part: self.next.0 as u8,
            priority: self.priority,
            from,
            end,
            need: end.min(placed.asked_end()),
            reached: from,
            furthest: from,
            failed_on: 0,
            stuck: 0,
            buffered: false,
        };
        self.next.1 = end;
        self.skip();
        Some(piece)
    }
}

/// A request that is over.
#[derive(Debug)]
pub struct Finished {
    /// The request.
    pub slot: u32,
    /// Where its parts are.
    pub layout: Layout,
    /// Why they are not.
    pub errors: [Option<ReadError>; MAX_PARTS],
    /// Whether it was stopped.
    pub cancelled: bool,
}

/// All requests.
#[derive(Debug)]
pub struct Queue {
    requests: Vec<Option<Request>>,
    free: Vec<u32>,
    waiting: [VecDeque<u32>; 2],
    again: [VecDeque<Piece>; 2],
    finished: VecDeque<u32>,
}

const ORDER: [Priority; 2] = [Priority::Demand, Priority::LookAhead];

impl Queue {
    /// A queue of `capacity` requests.
    pub fn new(capacity: usize) -> Self {
        let count = u32::try_from(capacity).unwrap_or(u32::MAX);
        Self {
            requests: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            waiting: Default::default(),
            again: Default::default(),
            finished: VecDeque::new(),
        }
    }

    /// Requests that are not collected.
    pub fn len(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// Requests that fit.
    pub fn capacity(&self) -> usize {
        self.requests.len()
    }

    /// Accepts a request and names its slot, which is free again once the request is collected. `None` if it is full.
    pub fn add(&mut self, sets: [u32; MAX_PARTS], priority: Priority, layout: Layout) -> Option<u32> {
        let slot = self.free.pop()?;
        let next = (0, layout.parts[0].begin);
        let mut request = Request {
            sets,
            priority,
            layout,
            errors: Default::default(),
            next,
            out: 0,
            again: 0,
            cancelled: false,
        };
        request.skip();
        // A request of empty parts only has nothing to wait for.
        if request.is_cut() {
            self.finished.push_back(slot);
        } else {
            self.waiting[priority as usize].push_back(slot);
        }
        self.requests[slot as usize] = Some(request);
        Some(slot)
    }

    /// Hands out the next piece, at most `bytes(set)` long, of those that `fits` takes; it is called with the set, the
    /// mirrors that failed, and the priority. Demand comes before look-ahead, what came back before what is new, and the
    /// older request before the younger.
    pub fn take(
        &mut self,
        fits: impl Fn(u32, u32, Priority) -> bool,
        bytes: impl Fn(u32) -> u64,
    ) -> Option<(Piece, u32)> {
        for priority in ORDER {
            let again = &mut self.again[priority as usize];
            let set = |piece: &Piece| {
                self.requests[piece.slot as usize].as_ref().map_or(0, |r| r.set(piece.part.into()))
            };
            if let Some(i) = again.iter().position(|p| fits(set(p), p.failed_on, priority)) {
                let piece = again.remove(i)?;
                let request = self.requests[piece.slot as usize].as_mut()?;
                request.again -= 1;
                request.out += 1;
                return Some((piece, request.set(piece.part.into())));
            }
            let waiting = &mut self.waiting[priority as usize];
            let set = |slot: u32| self.requests[slot as usize].as_ref().map_or(0, |r| r.set(r.next.0));
            if let Some(i) = waiting.iter().position(|slot| fits(set(*slot), 0, priority)) {
                let slot = waiting[i];
                let request = self.requests[slot as usize].as_mut()?;
                let set = request.set(request.next.0);
                let piece = request.cut(slot, bytes(set).max(1))?;
                request.out += 1;
                if request.is_cut() {
                    waiting.remove(i);
                }
                return Some((piece, set));
            }
        }
        None
    }

    /// A piece came back with all it had to bring.
    pub fn landed(&mut self, piece: &Piece) {
        self.returned(piece);
        self.settle(piece.slot);
    }

    /// A piece came back and is to be handed out as it is given now, before anything new. It is dropped if its request
    /// was cancelled or its part has failed.
    pub fn again(&mut self, mut piece: Piece) {
        let Some(request) = self.returned(&piece) else { return };
        piece.priority = request.priority;
        if !request.cancelled && request.errors[usize::from(piece.part)].is_none() {
            request.again += 1;
            self.again[piece.priority as usize].push_back(piece);
        }
        self.settle(piece.slot);
    }

    /// A piece came back and its part cannot be read: nothing more of that part is handed out.
    pub fn failed(&mut self, piece: &Piece, error: ReadError) {
        let Some(request) = self.returned(piece) else { return };
        // The first error is the one that is told.
        request.errors[usize::from(piece.part)].get_or_insert(error);
        let (was_cut, priority) = (request.is_cut(), request.priority);
        request.skip();
        if !was_cut && request.is_cut() {
            self.waiting[priority as usize].retain(|slot| *slot != piece.slot);
        }
        self.forget(piece.slot, priority, Some(piece.part));
        self.settle(piece.slot);
    }

    /// Stops a request. See [`Cancel`] for what is promised.
    pub fn cancel(&mut self, slot: u32) -> Cancel {
        let Some(request) = self.requests.get_mut(slot as usize).and_then(Option::as_mut) else {
            return Cancel::TooLate;
        };
        if request.cancelled {
            return Cancel::Cancelled;
        }
        if request.is_cut() && request.again == 0 {
            return Cancel::TooLate;
        }
        request.cancelled = true;
        let priority = request.priority;
        if !request.is_cut() {
            request.next = (request.layout.n, 0);
            self.waiting[priority as usize].retain(|other| *other != slot);
        }
        self.forget(slot, priority, None);
        self.settle(slot);
        Cancel::Cancelled
    }

    /// Makes a look-ahead request one that is waited for: what is not at the drive queues behind the demand that is
    /// there. Says whether it was one.
    pub fn urge(&mut self, slot: u32) -> bool {
        let request = self.requests.get_mut(slot as usize).and_then(Option::as_mut);
        let Some(request) = request.filter(|request| request.priority == Priority::LookAhead) else {
            return false;
        };
        request.priority = Priority::Demand;
        let [demand, ahead] = &mut self.waiting;
        let before = ahead.len();
        ahead.retain(|other| *other != slot);
        if ahead.len() < before {
            demand.push_back(slot);
        }
        let [demand, ahead] = &mut self.again;
        let (mine, others): (VecDeque<Piece>, VecDeque<Piece>) =
            ahead.drain(..).partition(|p| p.slot == slot);
        *ahead = others;
        demand.extend(mine.into_iter().map(|piece| Piece { priority: Priority::Demand, ..piece }));
        true
    }

    /// Stops every request.
    pub fn cancel_all(&mut self) {
        for slot in 0..self.requests.len() as u32 {
            self.cancel(slot);
        }
    }

    /// Collects a request that is over, in the order in which they ended.
    pub fn collect(&mut self) -> Option<Finished> {
        let slot = self.finished.pop_front()?;
        let request = self.requests[slot as usize].take()?;
        self.free.push(slot);
        let Request { layout, errors, cancelled, .. } = request;
        Some(Finished { slot, layout, errors, cancelled })
    }

    fn returned(&mut self, piece: &Piece) -> Option<&mut Request> {
        let request = self.requests.get_mut(piece.slot as usize)?.as_mut()?;
        request.out -= 1;
        Some(request)
    }

    /// Drops what came back of a request, or of one part of it.
    fn forget(&mut self, slot: u32, priority: Priority, part: Option<u8>) {
        let Some(request) = self.requests[slot as usize].as_mut() else { return };
        if request.again > 0 {
            let again = &mut self.again[priority as usize];
            let before = again.len();
            again.retain(|p| p.slot != slot || part.is_some_and(|part| p.part != part));
            request.again -= (before - again.len()) as u32;
        }
    }

    fn settle(&mut self, slot: u32) {
        let Some(request) = self.requests[slot as usize].as_ref() else { return };
        if request.out == 0 && request.again == 0 && request.is_cut() {
            self.finished.push_back(slot);
        }
    }

    /// The layout of a request in flight.
    pub fn layout(&self, slot: u32) -> Option<&Layout> {
        Some(&self.requests.get(slot as usize)?.as_ref()?.layout)
    }
}

#[cfg(test)]
mod tests;
