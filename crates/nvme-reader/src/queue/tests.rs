//! The scheduler, against a plain model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::align::layout;
use crate::error::ReadFault;
use crate::read::Part;

const DEMAND: Priority = Priority::Demand;
const LATER: Priority = Priority::LookAhead;

fn add(queue: &mut Queue, priority: Priority, parts: &[(u64, u32)]) -> u32 {
    let parts: Vec<Part> = parts.iter().map(|(offset, len)| Part { offset: *offset, len: *len }).collect();
    queue.add([0; MAX_PARTS], priority, layout(&parts, 4).unwrap()).unwrap()
}

fn take(queue: &mut Queue) -> Option<Piece> {
    queue.take(|_, _, _| true, |_| 8).map(|(piece, _)| piece)
}

fn error() -> ReadError {
    ReadError { path: Path::new("x").into(), offset: 0, len: 1, fault: ReadFault::System(5), mirrors: 1 }
}

#[test]
fn demand_overtakes_between_pieces_and_age_decides_among_equals() {
    let mut queue = Queue::new(8);
    let a = add(&mut queue, LATER, &[(0, 24)]);
    assert_eq!(take(&mut queue).map(|p| p.slot), Some(a));
    let b = add(&mut queue, DEMAND, &[(0, 16)]);
    let c = add(&mut queue, DEMAND, &[(0, 8)]);
    let order: Vec<u32> = std::iter::from_fn(|| take(&mut queue)).map(|p| p.slot).collect();
    assert_eq!(order, [b, b, c, a, a]);
}

#[test]
fn what_does_not_fit_is_passed_over() {
    let mut queue = Queue::new(8);
    let parts = layout(&[Part { offset: 0, len: 8 }], 4).unwrap();
    let _busy = queue.add([0; MAX_PARTS], DEMAND, parts).unwrap();
    let idle = queue.add([1; MAX_PARTS], LATER, parts).unwrap();
    let (piece, set) = queue.take(|set, _, _| set == 1, |_| 8).unwrap();
    assert_eq!((piece.slot, set), (idle, 1));
    assert!(queue.take(|set, _, _| set == 1, |_| 8).is_none());
}

#[test]
fn pieces_need_only_what_was_asked() {
    let mut queue = Queue::new(1);
    add(&mut queue, DEMAND, &[(6, 11)]);
    let pieces: Vec<_> = std::iter::from_fn(|| take(&mut queue)).map(|p| (p.from, p.end, p.need)).collect();
    assert_eq!(pieces, [(4, 12, 12), (12, 20, 17)]);
}

#[test]
fn cancel_before_during_and_after() {
    let mut queue = Queue::new(4);
    // None at a drive: over at once.
    let a = add(&mut queue, DEMAND, &[(0, 16)]);
    assert_eq!(queue.cancel(a), Cancel::Cancelled);
    assert!(queue.collect().is_some_and(|f| f.slot == a && f.cancelled));
    // One at the drive: over when it is back.
    let b = add(&mut queue, DEMAND, &[(0, 16)]);
    let piece = take(&mut queue).unwrap();
    assert_eq!((queue.cancel(b), queue.cancel(b)), (Cancel::Cancelled, Cancel::Cancelled));
    assert!(take(&mut queue).is_none() && queue.collect().is_none());
    queue.again(piece);
    assert!(queue.collect().is_some_and(|f| f.cancelled));
    // All at the drive: too late, also if some must be read again.
    let c = add(&mut queue, DEMAND, &[(0, 8)]);
    let piece = take(&mut queue).unwrap();
    assert_eq!(queue.cancel(c), Cancel::TooLate);
    queue.landed(&piece);
    assert_eq!(queue.cancel(c), Cancel::TooLate);
    assert!(queue.collect().is_some_and(|f| !f.cancelled));
    // Unknown.
    assert_eq!((queue.cancel(c), queue.cancel(99)), (Cancel::TooLate, Cancel::TooLate));
}

#[test]
fn a_failed_part_stops_and_the_others_go_on() {
    let mut queue = Queue::new(1);
    add(&mut queue, DEMAND, &[(0, 24), (100, 8)]);
    let first = take(&mut queue).unwrap();
    queue.failed(&first, error());
    let second = take(&mut queue).unwrap();
    assert_eq!((second.part, second.from), (1, 100));
    assert!(take(&mut queue).is_none());
    queue.landed(&second);
    let finished = queue.collect().unwrap();
    assert!(finished.errors[0].is_some() && finished.errors[1].is_none() && !finished.cancelled);
}

#[test]
fn empty_parts_are_over_at_once() {
    let mut queue = Queue::new(1);
    add(&mut queue, DEMAND, &[(5, 0), (9, 0)]);
    assert!(take(&mut queue).is_none());
    assert!(queue.collect().is_some_and(|f| f.errors.iter().all(Option::is_none)));
}

/// What a random caller and a random drive do.
#[derive(Clone, Debug)]
enum Step {
    Add(bool, Vec<(u64, u32)>),
    Take,
    Land(usize),
    Again(usize, u64),
    Fail(usize),
    Cancel(u32),
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let parts = prop::collection::vec((0..40_u64, 0..40_u32), 1..=MAX_PARTS);
    prop_oneof![
        3 => (any::<bool>(), parts).prop_map(|(demand, parts)| Step::Add(demand, parts)),
        8 => Just(Step::Take),
        5 => any::<usize>().prop_map(Step::Land),
        3 => (any::<usize>(), 0..8_u64).prop_map(|(i, n)| Step::Again(i, n)),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => (0..4_u32).prop_map(Step::Cancel),
        3 => Just(Step::Collect),
    ]
}

/// What the model knows of a request.
#[derive(Default)]
struct Known {
    parts: Vec<(u64, u32)>,
    read: Vec<BTreeSet<u64>>,
    failed: BTreeSet<usize>,
    cancelled: bool,
}

impl Known {
    /// A request that completed has every byte of every part that did not fail.
    fn check(&self, finished: &Finished) {
        assert_eq!(finished.cancelled, self.cancelled);
        for (i, (offset, len)) in self.parts.iter().enumerate() {
            assert_eq!(finished.errors[i].is_some(), self.failed.contains(&i));
            if !self.cancelled && !self.failed.contains(&i) {
                assert!((*offset..offset + u64::from(*len)).all(|b| self.read[i].contains(&b)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

    #[test]
    fn every_request_completes_once_with_all_its_bytes(steps in prop::collection::vec(step(), 0..120)) {
        let mut queue = Queue::new(4);
        let mut known: BTreeMap<u32, Known> = BTreeMap::new();
        let mut out: Vec<Piece> = Vec::new();
        let land = |queue: &mut Queue, known: &mut BTreeMap<u32, Known>, piece: Piece| {
            let read = &mut known.get_mut(&piece.slot).unwrap().read[usize::from(piece.part)];
            // No byte is read by two pieces.
            for byte in piece.from..piece.end {
                assert!(read.insert(byte));
            }
            queue.landed(&piece);
        };
        for step in steps {
            match step {
                Step::Add(demand, parts) => {
                    if queue.len() == queue.capacity() {
                        continue;
                    }
                    let slot = add(&mut queue, if demand { DEMAND } else { LATER }, &parts);
                    let read = vec![BTreeSet::new(); parts.len()];
                    let old = known.insert(slot, Known { parts, read, ..Known::default() });
                    assert!(old.is_none(), "a slot is given out twice");
                }
                Step::Take => out.extend(take(&mut queue)),
                Step::Land(i) if !out.is_empty() => {
                    let piece = out.swap_remove(i % out.len());
                    land(&mut queue, &mut known, piece);
                }
                Step::Again(i, n) if !out.is_empty() => {
                    let i = i % out.len();
                    let mut piece = out.swap_remove(i);
                    piece.reached = (piece.reached + n).min(piece.end);
                    queue.again(piece);
                }
                Step::Fail(i) if !out.is_empty() => {
                    let i = i % out.len();
                    let piece = out.swap_remove(i);
                    known.get_mut(&piece.slot).unwrap().failed.insert(piece.part.into());
                    queue.failed(&piece, error());
                }
                Step::Cancel(slot) => {
                    let cancelled = queue.cancel(slot) == Cancel::Cancelled;
                    if let Some(known) = known.get_mut(&slot) {
                        known.cancelled |= cancelled;
                    }
                }
                Step::Collect => {
                    if let Some(finished) = queue.collect() {
                        known.remove(&finished.slot).unwrap().check(&finished);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(queue.len(), known.len());
        }
        // Everything comes to an end.
        loop {
            while let Some(piece) = take(&mut queue) {
                out.push(piece);
            }
            let Some(piece) = out.pop() else { break };
            land(&mut queue, &mut known, piece);
        }
        while let Some(finished) = queue.collect() {
            known.remove(&finished.slot).unwrap().check(&finished);
        }
        prop_assert!(known.is_empty() && queue.len() == 0);
    }
}

/// A guess that came true must not wait behind every demand read that was asked for later.
#[test]
fn an_urged_request_queues_with_demand() {
    let mut queue = Queue::new(4);
    let guess = add(&mut queue, LATER, &[(0, 24)]);
    let first = add(&mut queue, DEMAND, &[(0, 8)]);
    assert!(queue.urge(guess) && !queue.urge(guess) && !queue.urge(first));
    let later = add(&mut queue, DEMAND, &[(0, 8)]);
    let all = |_: u32, _: u32, _: Priority| true;
    let order: Vec<u32> =
        std::iter::from_fn(|| queue.take(all, |_| 8)).map(|(piece, _)| piece.slot).collect();
    assert_eq!(order, [first, guess, guess, guess, later]);
}

/// What came back of a guess to be tried again is demand too once it is urged.
#[test]
fn pieces_that_came_back_are_urged_too() {
    let mut queue = Queue::new(4);
    let guess = add(&mut queue, LATER, &[(0, 8)]);
    let all = |_: u32, _: u32, _: Priority| true;
    let (piece, _) = queue.take(all, |_| 8).unwrap();
    queue.again(piece);
    assert!(queue.urge(guess));
    let demand_only = |_: u32, _: u32, priority: Priority| priority == DEMAND;
    let (piece, _) = queue.take(demand_only, |_| 8).unwrap();
    assert_eq!((piece.slot, piece.priority), (guess, DEMAND));
    queue.landed(&piece);
    assert_eq!(queue.collect().unwrap().slot, guess);
}
