//! Random requests, cancels and faults against the one promise: every accepted request completes exactly once, with its
//! own memory, and what it says was read is what the file has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nvme_reader::faults::{Faults, Injected};
use nvme_reader::{Aligned, Completion, Direct, Options, Outcome, Part, Priority, Refusal};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::io::Errno;

use crate::scene::{Scene, check, check_part, request};

const LEN: u64 = 60_000;

#[derive(Clone, Debug)]
enum Step {
    Start(Vec<Part>, bool, u64),
    Cancel(u64),
    Poll,
    Wait(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let part = (0..LEN + 100, 0..20_000_u32).prop_map(|(offset, len)| Part { offset, len });
    let parts = prop::collection::vec(part, 0..=5);
    prop_oneof![
        6 => (parts, any::<bool>(), 0..12_u64).prop_map(|(parts, demand, tag)| Step::Start(parts, demand, tag)),
        2 => (0..12_u64).prop_map(Step::Cancel),
        2 => Just(Step::Poll),
        1 => (0..3_usize).prop_map(Step::Wait),
    ]
}

/// What the faults of one run are made from.
fn decide(seed: u64, nth: u64) -> Injected {
    let dice = (nth ^ seed).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40;
    match (seed % 3, dice % 23) {
        (0, _) => Injected::Real,
        (_, 0) => Injected::Error(Errno::INTR.raw_os_error()),
        (_, 1) => Injected::Error(Errno::AGAIN.raw_os_error()),
        (_, 2) => Injected::Error(Errno::IO.raw_os_error()),
        (_, 3..6) => Injected::Short((dice / 23) as usize % 5000),
        _ => Injected::Real,
    }
}

pub fn every_request_completes_exactly_once(scene: &Scene) {
    let paths = [scene.file(LEN), scene.file(LEN)];
    let case = (prop::collection::vec(step(), 0..40), any::<u64>(), 1..6_u32, any::<bool>(), 1..=2_usize);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(96) });
    let outcome = runner.run(&case, |(steps, seed, depth, direct, n_mirrors)| {
        let nth = Arc::new(AtomicU64::new(0));
        let faults = Some(Faults::new(move |_| decide(seed, nth.fetch_add(1, Ordering::Relaxed))));
        let direct = if direct { Direct::Auto } else { Direct::Never };
        let more = Options { depth, direct, faults, piece: 4096, capacity: 8, ..scene.options() };
        let mut reader = scene.mirrored(&paths[..n_mirrors], &more);
        let mut open: BTreeMap<u64, (Vec<Part>, usize)> = BTreeMap::new();
        let mut done = Vec::new();
        for step in steps {
            match step {
                Step::Start(parts, demand, tag) => {
                    let fits = parts.len() <= 4;
                    let mut read = request(&reader, if fits { &parts } else { &[] }, Priority::Demand, tag);
                    read.parts = parts[..].into();
                    read.priority = if demand { Priority::Demand } else { Priority::LookAhead };
                    let address = read.into.as_ptr() as usize;
                    match reader.start(read) {
                        Ok(()) => prop_assert!(open.insert(tag, (parts, address)).is_none()),
                        Err(refused) => match refused.why {
                            Refusal::TagInUse(_) => prop_assert!(open.contains_key(&tag)),
                            Refusal::Full { .. } => prop_assert_eq!(open.len(), 8),
                            Refusal::PartCount(n) => prop_assert!(n == 0 || n == 5),
                            // More parts than are allowed were given no memory.
                            why => prop_assert!(!fits, "{}", why),
                        },
                    }
                }
                Step::Cancel(tag) => drop(reader.cancel(tag)),
                Step::Poll => reader.poll(&mut done),
                Step::Wait(n) => reader.wait(n, &mut done),
            }
            settle(&mut open, &mut done);
            prop_assert_eq!(reader.in_flight(), open.len());
        }
        // Half of the runs end with a drop instead.
        if seed % 2 == 0 {
            reader.wait(usize::MAX, &mut done);
            settle(&mut open, &mut done);
            prop_assert!(open.is_empty());
            let counters = reader.report().counters;
            prop_assert_eq!(counters.started, counters.read + counters.failed + counters.cancelled);
        }
        Ok(())
    });
    outcome.unwrap();
}

fn settle(open: &mut BTreeMap<u64, (Vec<Part>, usize)>, done: &mut Vec<Completion<Aligned>>) {
    for completion in done.drain(..) {
        let (parts, address) = open.remove(&completion.tag).expect("a request that completes was open");
        assert_eq!(completion.memory.as_ptr() as usize, address);
        match &completion.outcome {
            Outcome::Read(_) => check(&completion, &parts),
            Outcome::Failed(failed) => {
                assert!(failed.parts.len() == parts.len() && failed.first().is_some());
                for (place, part) in failed.parts.iter().zip(&parts) {
                    if let Ok(place) = place {
                        check_part(&completion.memory[place.clone()], part);
                    }
                }
            }
            Outcome::Cancelled => {}
        }
    }
}
