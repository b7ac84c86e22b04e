//! Requests: accepted or not, ordered, cancelled, and completed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvme_reader::faults::{Faults, Injected};
use nvme_reader::{Aligned, Cancel, Options, Outcome, Part, Parts, Priority, Reader, Refusal};

use crate::scene::{Scene, check, lease, part, read, request, start};

const PIECE: u32 = 4096;

/// One I/O at the drive at a time, so that the order is known.
fn narrow(scene: &Scene) -> Options {
    Options { piece: PIECE, depth: 1, ..scene.options() }
}

pub fn refusals_give_everything_back(scene: &Scene) {
    let mut reader = scene.open(&scene.file(10_000), &scene.options());
    let good = [part(1, 100)];
    let tag_9 = |reader: &Reader<Aligned>| request(reader, &good, Priority::Demand, 9);

    let mut refused = |change: &dyn Fn(&mut nvme_reader::Read<Aligned>)| {
        let mut read = tag_9(&reader);
        change(&mut read);
        let refused = reader.start(read).unwrap_err();
        assert!(refused.read.into.iter().all(|b| *b == 0xEE) && refused.read.tag == 9);
        assert!(refused.to_string().starts_with("request 9 was not accepted: "));
        refused.why
    };
    assert_eq!(refused(&|r| r.set = 1), Refusal::NoSuchSet { set: 1, count: 1 });
    assert_eq!(refused(&|r| r.parts = Parts::default()), Refusal::PartCount(0));
    assert_eq!(refused(&|r| r.parts = Parts::from([Part::default(); 5])), Refusal::PartCount(5));
    let far = Refusal::TooFar { part: 1, offset: u64::MAX, len: 2 };
    assert_eq!(refused(&|r| r.parts = Parts::from([part(0, 1), part(u64::MAX, 2)])), far);
    let small = refused(&|r| r.parts = part(0, 1 << 20).into());
    assert!(matches!(small, Refusal::TooSmall { need: 1_048_576.., .. }), "{small}");
    assert_eq!((reader.room(1, good), reader.room(0, [part(u64::MAX, 2)])), (None, None));

    start(&mut reader, &good, Priority::Demand, 9);
    let read = tag_9(&reader);
    assert_eq!(reader.start(read).unwrap_err().why, Refusal::TagInUse(9));
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    check(&done[0], &good);
    // The tag is free again.
    let tag_9 = tag_9(&reader);
    reader.start(tag_9).unwrap();

    if reader.alignment() > 1 {
        let mut reader: Reader<&'static mut [u8]> =
            Reader::open_with(&[scene.file(10).into()], &scene.options()).unwrap();
        let memory = lease(3 * reader.alignment(), reader.alignment());
        let into = &mut memory[1..];
        let parts = part(0, 10).into();
        let read = nvme_reader::Read { set: 0, parts, into, priority: Priority::Demand, tag: 1 };
        let why = reader.start(read).unwrap_err().why;
        assert!(matches!(why, Refusal::Misaligned { .. }), "{why}");
    }
}

pub fn a_full_reader_refuses(scene: &Scene) {
    let mut reader = scene.open(&scene.file(100_000), &Options { capacity: 3, ..narrow(scene) });
    let parts = [part(10, 50_000)];
    for tag in 0..3 {
        start(&mut reader, &parts, Priority::Demand, tag);
    }
    let read = request(&reader, &parts, Priority::Demand, 3);
    let refused = reader.start(read).unwrap_err();
    assert_eq!(refused.why, Refusal::Full { capacity: 3 });
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    reader.start(refused.read).unwrap();
    reader.wait(4 - done.len(), &mut done);
    assert_eq!((done.len(), reader.in_flight()), (4, 0));
    done.iter().for_each(|c| check(c, &parts));
}

pub fn cancelled_before_any_piece_is_out(scene: &Scene) {
    let mut reader = scene.open(&scene.file(100_000), &narrow(scene));
    let parts = [part(0, 50_000)];
    start(&mut reader, &parts, Priority::Demand, 1);
    start(&mut reader, &parts, Priority::LookAhead, 2);
    assert_eq!((reader.cancel(2), reader.cancel(2)), (Cancel::Cancelled, Cancel::Cancelled));
    let mut done = Vec::new();
    reader.poll(&mut done);
    // At once, while the first is still being read or just done.
    let cancelled = done.iter().find(|c| c.tag == 2).unwrap();
    assert!(matches!(cancelled.outcome, Outcome::Cancelled));
    assert!(cancelled.memory.iter().all(|b| *b == 0xEE));
    reader.wait(2 - done.len(), &mut done);
    check(done.iter().find(|c| c.tag == 1).unwrap(), &parts);
    assert_eq!(reader.cancel(2), Cancel::TooLate);
    assert_eq!(reader.report().counters.cancelled, 1);
}

pub fn cancelled_while_a_piece_is_out(scene: &Scene) {
    let mut reader = scene.open(&scene.file(100_000), &narrow(scene));
    start(&mut reader, &[part(0, 90_000)], Priority::Demand, 1);
    assert_eq!(reader.cancel(1), Cancel::Cancelled);
    assert_eq!(reader.in_flight(), 1);
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    assert!(matches!(done[0].outcome, Outcome::Cancelled));
    // The one piece that was out came back, and no other went out.
    assert_eq!(reader.report().counters.ios, 1);
}

pub fn too_late_to_cancel(scene: &Scene) {
    let mut reader = scene.open(&scene.file(100_000), &narrow(scene));
    let parts = [part(0, 100)];
    start(&mut reader, &parts, Priority::Demand, 1);
    assert_eq!((reader.cancel(1), reader.cancel(77)), (Cancel::TooLate, Cancel::TooLate));
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    check(&done[0], &parts);
    assert_eq!(reader.cancel(1), Cancel::TooLate);
}

/// A reader that notes the offsets of its I/Os in the order in which they come back.
fn noting(scene: &Scene, options: Options) -> (Reader<Aligned>, Arc<Mutex<Vec<u64>>>) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::clone(&notes);
    let faults = Faults::new(move |attempt| {
        inside.lock().unwrap().push(attempt.offset);
        Injected::Real
    });
    (scene.open(&scene.file(200_000), &Options { faults: Some(faults), ..options }), notes)
}

pub fn demand_overtakes_look_ahead(scene: &Scene) {
    let (mut reader, notes) = noting(scene, narrow(scene));
    start(&mut reader, &[part(0, 3 * PIECE)], Priority::LookAhead, 1);
    start(&mut reader, &[part(40_960, 2 * PIECE)], Priority::Demand, 2);
    start(&mut reader, &[part(81_920, PIECE)], Priority::LookAhead, 3);
    start(&mut reader, &[part(122_880, PIECE)], Priority::Demand, 4);
    let mut done = Vec::new();
    reader.wait(4, &mut done);
    // One piece of the first was out; then all that is waited for; then the rest by age.
    assert_eq!(*notes.lock().unwrap(), [0, 40_960, 45_056, 122_880, 4096, 8192, 81_920]);
    assert_eq!(done.iter().map(|c| c.tag).collect::<Vec<_>>(), [2, 4, 1, 3]);
}

/// A guess that came true: what is left of it is read with the demand, and no longer after it.
pub fn an_urged_guess_is_demand(scene: &Scene) {
    let (mut reader, notes) = noting(scene, narrow(scene));
    start(&mut reader, &[part(0, 3 * PIECE)], Priority::LookAhead, 1);
    start(&mut reader, &[part(40_960, PIECE)], Priority::Demand, 2);
    assert!(reader.urge(1) && !reader.urge(1) && !reader.urge(2) && !reader.urge(3));
    start(&mut reader, &[part(122_880, PIECE)], Priority::Demand, 4);
    let mut done = Vec::new();
    reader.wait(3, &mut done);
    assert_eq!(*notes.lock().unwrap(), [0, 40_960, 4096, 8192, 122_880]);
    done.iter().for_each(|c| assert!(matches!(c.outcome, Outcome::Read(_))));
}

pub fn look_ahead_leaves_room(scene: &Scene) {
    let options = Options { depth: 4, look_ahead_depth: 1, ..narrow(scene) };
    let (mut reader, _) = noting(scene, options);
    start(&mut reader, &[part(0, 10 * PIECE)], Priority::LookAhead, 1);
    assert_eq!(reader.report().counters.ios, 1);
    start(&mut reader, &[part(0, 10 * PIECE)], Priority::Demand, 2);
    assert_eq!(reader.report().counters.ios, 4);
    let mut done = Vec::new();
    reader.wait(2, &mut done);
    done.iter().for_each(|c| check(c, &[part(0, 10 * PIECE)]));
}

pub fn dropping_waits_for_the_drive(scene: &Scene) {
    let back = Arc::new(AtomicU64::new(0));
    let inside = Arc::clone(&back);
    let faults = Faults::new(move |_| {
        inside.fetch_add(1, Ordering::Relaxed);
        Injected::Short(1)
    });
    let options = Options { piece: PIECE, depth: 8, faults: Some(faults), ..scene.options() };
    let mut reader = scene.open(&scene.file(200_000), &options);
    for tag in 0..4 {
        start(&mut reader, &[part(0, 150_000)], Priority::Demand, tag);
    }
    assert_eq!(reader.report().counters.ios, 8);
    drop(reader);
    assert_eq!(back.load(Ordering::Relaxed), 8);
}

pub fn waiting_ends(scene: &Scene) {
    let mut reader = scene.open(&scene.file(200_000), &narrow(scene));
    let mut done = Vec::new();
    // Nothing is in flight.
    reader.wait(5, &mut done);
    assert!(!reader.wait_timeout(1, Duration::MAX, &mut done) && done.is_empty());
    start(&mut reader, &[part(0, 200_000)], Priority::Demand, 1);
    assert!(reader.wait_timeout(0, Duration::ZERO, &mut done));
    // More is asked for than is in flight.
    assert!(!reader.wait_timeout(usize::MAX, Duration::from_secs(60), &mut done));
    assert_eq!((done.len(), reader.in_flight()), (1, 0));
    // Time is over before the read is.
    let slow = Faults::new(|_| Injected::Error(rustix::io::Errno::INTR.raw_os_error()));
    let mut reader = scene.open(&scene.file(10), &Options { faults: Some(slow), ..scene.options() });
    start(&mut reader, &[part(0, 10)], Priority::Demand, 1);
    assert!(!reader.wait_timeout(1, Duration::ZERO, &mut Vec::new()));
    assert_eq!(reader.in_flight(), 1);
    assert!(matches!(read_all(&mut reader), Outcome::Failed(_)));
    check(&read(&mut scene.open(&scene.file(9), &scene.options()), &[part(0, 9)]), &[part(0, 9)]);
}

fn read_all(reader: &mut Reader<Aligned>) -> Outcome {
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    done.remove(0).outcome
}
