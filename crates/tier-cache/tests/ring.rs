//! Rings with real threads, and with another end that breaks the rules. Every order of the memory model is in
//! `loom_ring.rs`.
#![cfg(not(loom))]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tier_cache::{
    Consumer, Patience, Producer, RING_HEAD_WORDS, ReplyReader, ReplyWriter, RingError, Word, reply_words,
    ring_words,
};

fn memory(words: usize) -> Vec<Word> {
    (0..words).map(|_| Word::new(0)).collect()
}

fn ring(capacity: usize) -> Vec<Word> {
    memory(ring_words(capacity, 4).expect("small"))
}

fn ends(memory: &[Word], capacity: usize) -> (Producer<'_, 4>, Consumer<'_, 4>) {
    (Producer::new(memory, capacity).expect("fits"), Consumer::new(memory, capacity).expect("fits"))
}

fn soon() -> Patience {
    Patience::Until(Instant::now() + Duration::from_secs(20))
}

#[test]
fn records_come_once_and_in_order() {
    let memory = ring(3);
    let (mut producer, mut consumer) = ends(&memory, 3);
    assert_eq!(consumer.pop(), Ok(None));
    for round in 0..5 {
        for i in 1..=3 {
            assert_eq!(producer.push(&[99, i, i * i, 99]), Ok(round * 3 + i));
        }
        let full = producer.push(&[0; 4]).expect_err("full");
        assert_eq!(full, RingError::Full { sequence: round * 3 + 4, taken: round * 3, capacity: 3 });
        for i in 1..=3 {
            let sequence = round * 3 + i;
            assert_eq!(consumer.pop(), Ok(Some([sequence, i, i * i, sequence])));
        }
        assert_eq!(consumer.pop(), Ok(None));
    }
}

#[test]
fn threads_exchange_records_and_replies() {
    const N: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let (memory, replies) = (ring(8), memory(reply_words(8, 4).expect("small")));
    let landing = Word::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut requests = Producer::<4>::new(&memory, 8).expect("fits");
            let answers = ReplyReader::<4>::new(&replies, 8).expect("fits");
            for i in 1..=N {
                let sequence = requests.push_within(&[0, i, !i, 0], soon()).expect("room");
                // Only some replies are waited for, as a device waits only where something is missing.
                if i % 3 == 0 {
                    let reply = answers.poll_within(sequence, soon()).expect("answered");
                    assert_eq!(reply[1], i + 7);
                    assert!(landing.load(Ordering::Relaxed) >= i, "a reply came before what it announces");
                }
            }
        });
        let mut requests = Consumer::<4>::new(&memory, 8).expect("fits");
        let mut answers = ReplyWriter::<4>::new(&replies, 8).expect("fits");
        for i in 1..=N {
            let record = requests.pop_within(soon()).expect("comes");
            assert_eq!(record, [i, i, !i, i]);
            landing.store(i, Ordering::Relaxed);
            answers.answer(i, &[0, i + 7, 0, 0]).expect("in order");
        }
    });
}

#[test]
fn every_wait_ends() {
    let memory = ring(1);
    let (mut producer, mut consumer) = ends(&memory, 1);
    let error = consumer.pop_within(Patience::Attempts(5)).expect_err("nothing");
    assert_eq!(error.to_string(), "record 1 did not come within 5 attempts");
    let start = Instant::now();
    let error = consumer.pop_within(Patience::Until(start + Duration::from_millis(5))).expect_err("nothing");
    assert!(
        matches!(error, RingError::NoRecord { sequence: 1, .. })
            && start.elapsed() >= Duration::from_millis(5)
    );

    producer.push_within(&[0; 4], Patience::Attempts(0)).expect("one attempt is made");
    let error = producer.push_within(&[0; 4], Patience::Attempts(9)).expect_err("full");
    assert_eq!(error.to_string(), "there is no room for record 2: 0 were taken, and the ring has room for 1");
    let replies = self::memory(4);
    let reader = ReplyReader::<4>::new(&replies, 1).expect("fits");
    let error = reader.poll_within(1, Patience::Attempts(2)).expect_err("nothing");
    assert_eq!(error.to_string(), "the reply to 1 did not come within 2 attempts");
}

/// A device that writes without asking whether there is room.
#[test]
fn an_end_that_breaks_the_rules_is_found() {
    let fresh = || ring(2);
    let record = |memory: &[Word], word: usize, value: u64| {
        memory[RING_HEAD_WORDS + word].store(value, Ordering::Release);
    };

    let memory = fresh();
    let (mut producer, mut consumer) = ends(&memory, 2);
    producer.push(&[0, 5, 6, 0]).expect("room");
    record(&memory, 0, 3);
    let skipped = consumer.pop().expect_err("overrun");
    assert_eq!(skipped, RingError::Skipped { expected: 1, found: 3 });
    assert_eq!(
        skipped.to_string(),
        "the place of record 1 has record 3: the other end skipped or repeated one"
    );
    assert_eq!(consumer.pop(), Err(skipped), "it stays an error");

    let memory = fresh();
    let (mut producer, mut consumer) = ends(&memory, 2);
    producer.push(&[0, 5, 6, 0]).expect("room");
    record(&memory, 3, 3);
    let torn = consumer.pop().expect_err("half overrun");
    assert_eq!(torn, RingError::Torn { sequence: 1, closing: 3 });
    assert_eq!(torn.to_string(), "record 1 is torn: it ends as record 3");

    // The number before the rest: what a missing fence looks like.
    let memory = fresh();
    let (_, mut consumer) = ends(&memory, 2);
    record(&memory, 0, 1);
    assert_eq!(consumer.pop(), Err(RingError::Torn { sequence: 1, closing: 0 }));

    // A consumer that claims what was never written, or takes back what it took.
    for (taken, pushes) in [(9, 2), (0, 3)] {
        let memory = fresh();
        let (mut producer, mut consumer) = ends(&memory, 2);
        for _ in 0..pushes {
            producer.push(&[0; 4]).expect("room");
            if pushes == 3 {
                consumer.pop().expect("whole");
            }
        }
        memory[0].store(3, Ordering::Release);
        if pushes == 3 {
            producer.push(&[0; 4]).expect("room");
            producer.push(&[0; 4]).expect("room");
        }
        memory[0].store(taken, Ordering::Release);
        assert!(matches!(producer.push(&[0; 4]), Err(RingError::Taken { .. })), "{taken}");
    }
}

#[test]
fn replies_that_do_not_belong_are_found() {
    let memory = memory(8);
    let mut writer = ReplyWriter::<4>::new(&memory, 2).expect("fits");
    let reader = ReplyReader::<4>::new(&memory, 2).expect("fits");
    writer.answer(1, &[0, 11, 0, 0]).expect("first");
    writer.answer(4, &[0, 14, 0, 0]).expect("later");
    assert_eq!(writer.answer(4, &[0; 4]), Err(RingError::Order { sequence: 4, last: 4 }));
    assert_eq!(reader.poll(1), Ok(Some([1, 11, 0, 1])));
    assert_eq!(reader.poll(3), Ok(None), "the one of a round before is there");
    assert_eq!(reader.poll(4), Ok(Some([4, 14, 0, 4])));
    assert_eq!(reader.poll(2), Err(RingError::Skipped { expected: 2, found: 4 }));
    assert!(reader.poll(0).is_err());
    memory[0].store(2, Ordering::Release);
    assert_eq!(reader.poll(3), Err(RingError::Skipped { expected: 3, found: 2 }));
}

#[test]
fn memory_that_does_not_fit_is_an_error() {
    let words = memory(RING_HEAD_WORDS + 7);
    let error = Producer::<4>::new(&words, 2).expect_err("one word short");
    assert_eq!(error.to_string(), "2 records of 4 words need more than the 23 words that are there");
    assert!(Producer::<4>::new(&words, 1).is_ok());
    assert!(Producer::<4>::new(&words[..3], 1).is_err());
    assert!(Consumer::<4>::new(&words, usize::MAX).is_err());
    assert_eq!(
        Consumer::<4>::new(&words, 0).map(drop),
        Err(RingError::Shape { capacity: 0, record_words: 4 })
    );
    assert!(Consumer::<1>::new(&words, 1).is_err());
    assert_eq!((ring_words(usize::MAX, 2), reply_words(2, 3)), (None, Some(6)));
}
