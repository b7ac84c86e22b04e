//! Both ends of the ring in every order that loom knows: all interleavings, and all values that a load may see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tier-cache --test loom_ring --release`, seconds once it is built.
//!
//! With a weaker order for the first word's store or load, or without either fence, these fail. The order of the head's
//! word they cannot see: it keeps a load from being delayed past a later store, and loom delays none. That one rests on
//! the argument beside it in `ring.rs`.
#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use tier_cache::{
    Consumer, Patience, Producer, RING_HEAD_WORDS, ReplyReader, ReplyWriter, RingError, Word, reply_words,
    ring_words,
};

/// Words of a record: its number, one word to carry, its number.
const N: usize = 3;
/// More than any order needs: loom lets the other thread run at each attempt.
const LONG: Patience = Patience::Attempts(50);

/// Only what the ring uses: of the head, one word, but the layout wants all of them.
fn memory(words: usize) -> Arc<Vec<Word>> {
    Arc::new((0..words).map(|_| Word::new(0)).collect())
}

/// No record is lost, torn, repeated or out of order, though the ring is smaller than their number.
fn records(capacity: usize, count: u64) {
    loom::model(move || {
        let memory = memory(ring_words(capacity, N).unwrap());
        let theirs = Arc::clone(&memory);
        let device = thread::spawn(move || {
            let mut producer = Producer::<N>::new(&theirs, capacity).unwrap();
            for i in 1..=count {
                assert_eq!(producer.push_within(&[0, 10 * i, 0], LONG), Ok(i));
            }
        });
        let mut consumer = Consumer::<N>::new(&memory, capacity).unwrap();
        for i in 1..=count {
            assert_eq!(consumer.pop_within(LONG), Ok([i, 10 * i, i]));
        }
        device.join().unwrap();
        assert_eq!(consumer.pop(), Ok(None));
    });
}

#[test]
fn a_ring_of_one() {
    records(1, 3);
}

#[test]
fn a_ring_of_two() {
    records(2, 3);
}

/// A request, bytes that land for it, a reply: whoever sees the reply sees the bytes. Both rings are of one, so each
/// round writes over the one before.
#[test]
fn a_reply_is_seen_after_what_it_announces() {
    loom::model(|| {
        let requests = memory(ring_words(1, N).unwrap());
        let replies = memory(reply_words(1, N).unwrap());
        let landing = Arc::new(Word::new(0));
        let (their_requests, their_replies) = (Arc::clone(&requests), Arc::clone(&replies));
        let their_landing = Arc::clone(&landing);
        let device = thread::spawn(move || {
            let mut producer = Producer::<N>::new(&their_requests, 1).unwrap();
            let reader = ReplyReader::<N>::new(&their_replies, 1).unwrap();
            for i in 1..=2 {
                let sequence = producer.push_within(&[0, i, 0], LONG).unwrap();
                assert_eq!(reader.poll_within(sequence, LONG), Ok([i, 100 + i, i]));
                assert_eq!(their_landing.load(Ordering::Relaxed), 1000 + i);
            }
        });
        let mut consumer = Consumer::<N>::new(&requests, 1).unwrap();
        let mut writer = ReplyWriter::<N>::new(&replies, 1).unwrap();
        for i in 1..=2 {
            assert_eq!(consumer.pop_within(LONG), Ok([i, i, i]));
            landing.store(1000 + i, Ordering::Relaxed);
            writer.answer(i, &[0, 100 + i, 0]).unwrap();
        }
        device.join().unwrap();
    });
}

/// A device that waits for none of its replies may send a round ahead of them, and then reads one that is whole.
#[test]
fn a_reply_may_be_passed_over() {
    loom::model(|| {
        let requests = memory(ring_words(2, N).unwrap());
        let replies = memory(reply_words(2, N).unwrap());
        let (their_requests, their_replies) = (Arc::clone(&requests), Arc::clone(&replies));
        let device = thread::spawn(move || {
            let mut producer = Producer::<N>::new(&their_requests, 2).unwrap();
            let reader = ReplyReader::<N>::new(&their_replies, 2).unwrap();
            for i in 1..=3 {
                producer.push_within(&[0, i, 0], LONG).unwrap();
            }
            assert_eq!(reader.poll_within(3, LONG), Ok([3, 103, 3]));
        });
        let mut consumer = Consumer::<N>::new(&requests, 2).unwrap();
        let mut writer = ReplyWriter::<N>::new(&replies, 2).unwrap();
        for i in 1..=3 {
            assert_eq!(consumer.pop_within(LONG), Ok([i, i, i]));
            writer.answer(i, &[0, 100 + i, 0]).unwrap();
        }
        device.join().unwrap();
    });
}

/// Waits end, however the threads run.
#[test]
fn a_wait_for_nothing_ends() {
    loom::model(|| {
        let memory = memory(ring_words(1, N).unwrap());
        let theirs = Arc::clone(&memory);
        let device = thread::spawn(move || {
            let mut producer = Producer::<N>::new(&theirs, 1).unwrap();
            producer.push(&[0, 7, 0]).unwrap();
            let full = producer.push_within(&[0, 8, 0], Patience::Attempts(2));
            assert!(matches!(full, Err(RingError::Full { sequence: 2, .. }) | Ok(2)), "{full:?}");
        });
        let mut consumer = Consumer::<N>::new(&memory, 1).unwrap();
        let first = consumer.pop_within(Patience::Attempts(2));
        assert!(
            matches!(first, Err(RingError::NoRecord { sequence: 1, attempts: 2 }) | Ok([1, 7, 1])),
            "{first:?}"
        );
        device.join().unwrap();
    });
}

/// The model can see what it is there for: a producer without the fence is caught, by the record's last word, in at
/// least one order; and where it is not caught the record is whole.
#[test]
fn a_missing_fence_is_torn() {
    static TORN: AtomicUsize = AtomicUsize::new(0);
    static WHOLE: AtomicUsize = AtomicUsize::new(0);
    loom::model(|| {
        let memory = memory(ring_words(1, 2).unwrap());
        let theirs = Arc::clone(&memory);
        let device = thread::spawn(move || {
            theirs[RING_HEAD_WORDS + 1].store(1, Ordering::Relaxed);
            theirs[RING_HEAD_WORDS].store(1, Ordering::Relaxed);
        });
        let mut consumer = Consumer::<2>::new(&memory, 1).unwrap();
        match consumer.pop_within(LONG) {
            Ok(words) => {
                assert_eq!(words, [1, 1]);
                WHOLE.fetch_add(1, StdOrdering::Relaxed);
            }
            Err(error) => {
                assert_eq!(error, RingError::Torn { sequence: 1, closing: 0 });
                TORN.fetch_add(1, StdOrdering::Relaxed);
            }
        }
        device.join().unwrap();
    });
    assert!(TORN.load(StdOrdering::Relaxed) > 0 && WHOLE.load(StdOrdering::Relaxed) > 0);
}

/// A producer that does not ask whether there is room writes over a record that is being read: never a record that is
/// half one and half the other.
#[test]
fn an_overrun_is_never_a_record() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    loom::model(|| {
        let memory = memory(ring_words(1, N).unwrap());
        let theirs = Arc::clone(&memory);
        let device = thread::spawn(move || {
            // The same memory without its head, so that nothing bounds it.
            let mut writer = ReplyWriter::<N>::new(&theirs[RING_HEAD_WORDS..], 1).unwrap();
            writer.answer(1, &[0, 10, 0]).unwrap();
            writer.answer(2, &[0, 20, 0]).unwrap();
        });
        let mut consumer = Consumer::<N>::new(&memory, 1).unwrap();
        match consumer.pop_within(LONG) {
            Ok(words) => assert_eq!(words, [1, 10, 1]),
            Err(RingError::Torn { .. } | RingError::Skipped { .. }) => {
                FOUND.fetch_add(1, StdOrdering::Relaxed);
            }
            Err(other) => panic!("{other}"),
        }
        device.join().unwrap();
    });
    assert!(FOUND.load(StdOrdering::Relaxed) > 0);
}
