//! A low limit on locked memory: registration is refused with the reason, and reads work without it. In a process of its
//! own, since the limit is the process's.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write as _;

use nvme_reader::{Aligned, Choice, Options, Outcome, Part, Priority, Read, Reader, WhyUnregistered};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: a_low_limit_on_locked_memory: {why}");
}

#[test]
fn a_low_limit_on_locked_memory() {
    const ARENA: usize = 1 << 20;
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(64 << 10), maximum }).unwrap();
    // Whoever has this capability is not limited. A thread may give up its own.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    if let Err(error) = set_capabilities(None, sets) {
        return skipped(&format!("CAP_IPC_LOCK cannot be given up: {error}"));
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, vec![7; 500_000]).unwrap();
    let options = Options { backend: Choice::Uring, ..Options::default() };
    let mut reader: Reader<Aligned> = match Reader::open_with(&[path.into()], &options) {
        Ok(reader) => reader,
        Err(why) => return skipped(&why.to_string()),
    };
    let arena = Aligned::new(ARENA, 4096).unwrap();
    let registered = reader.register(&[(&arena[..]).into()]);
    let bytes = ARENA as u64;
    assert_eq!((registered.pieces, registered.why_not), (0, Some(WhyUnregistered::Limit { bytes })));
    let text = reader.report().to_string();
    assert!(text.contains("limit on locked memory") && text.contains("ulimit -l"), "{text}");

    let parts = Part { offset: 1, len: 499_999 }.into();
    reader.start(Read { set: 0, parts, into: arena, priority: Priority::Demand, tag: 0 }).unwrap();
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    let Outcome::Read(places) = &done[0].outcome else { panic!("{:?}", done[0].outcome) };
    assert!(done[0].memory[places[0].clone()].iter().all(|b| *b == 7));
    assert_eq!(reader.report().counters.fixed, 0);
}
