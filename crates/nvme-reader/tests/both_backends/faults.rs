//! What can go wrong with one I/O, put in where both back-ends hand in their results.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nvme_reader::faults::{Attempt, Faults, Injected};
use nvme_reader::{Options, Outcome, ReadFault, WhyBuffered};
use rustix::io::Errno;

use crate::scene::{Scene, check, check_part, is_direct, part, read, skipped};

const EINTR: i32 = Errno::INTR.raw_os_error();
const EIO: i32 = Errno::IO.raw_os_error();
const EAGAIN: i32 = Errno::AGAIN.raw_os_error();
const EINVAL: i32 = Errno::INVAL.raw_os_error();

fn with(options: Options, decide: impl Fn(&Attempt) -> Injected + Send + Sync + 'static) -> Options {
    Options { faults: Some(Faults::new(decide)), ..options }
}

pub fn short_reads_of_every_length(scene: &Scene) {
    const PIECE: usize = 1024;
    let path = scene.file(5000);
    for options in scene.direct_and_not() {
        let length = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let (hook_length, hook_seen) = (Arc::clone(&length), Arc::clone(&seen));
        // The first try of each piece is short.
        let options = with(options, move |attempt| {
            if hook_seen.lock().unwrap().insert(attempt.offset) {
                Injected::Short(hook_length.load(Ordering::Relaxed))
            } else {
                Injected::Real
            }
        });
        let mut reader = scene.open(&path, &Options { piece: PIECE as u32, ..options });
        let parts = [part(300, 2900), part(4990, 10)];
        for short in 0..=PIECE {
            length.store(short, Ordering::Relaxed);
            seen.lock().unwrap().clear();
            check(&read(&mut reader, &parts), &parts);
        }
        assert!(reader.report().counters.short > 1000);
    }
}

pub fn short_reads_that_never_end(scene: &Scene) {
    let path = scene.file(50_000);
    for options in scene.direct_and_not() {
        // Fewer bytes than a block: a direct read can never be continued, only one through the page cache.
        let options = with(options, |_| Injected::Short(99));
        let mut reader = scene.open(&path, &Options { piece: 4096, ..options });
        let parts = [part(777, 20_000), part(49_999, 1)];
        check(&read(&mut reader, &parts), &parts);
    }
}

pub fn an_io_error_names_path_and_offset(scene: &Scene) {
    let path = scene.file(100_000);
    for options in scene.direct_and_not() {
        let options = with(options, |attempt| match attempt.offset {
            16_384..20_480 => Injected::Error(EIO),
            _ => Injected::Real,
        });
        let mut reader = scene.open(&path, &Options { piece: 4096, ..options });
        // The middle part hits the bad block, the others do not.
        let parts = [part(8192, 8192), part(16_390, 30_000), part(20_480, 70_000)];
        let completion = read(&mut reader, &parts);
        let Outcome::Failed(failed) = &completion.outcome else { panic!("{:?}", completion.outcome) };
        for i in [0, 2] {
            check_part(&completion.memory[failed.parts[i].clone().unwrap()], &parts[i]);
        }
        let (i, error) = failed.first().unwrap();
        assert_eq!((i, error.offset, error.fault), (1, 16_390, ReadFault::System(EIO)));
        let text = error.to_string();
        assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
        assert!(text.ends_with("at offset 16390 cannot be read: Input/output error (os error 5)"), "{text}");
        assert_eq!(reader.report().counters.failed, 1);
        assert!(reader.report().files[0].errors >= 1);
    }
}

pub fn interruptions_are_repeated(scene: &Scene) {
    let path = scene.file(100_000);
    for options in scene.direct_and_not() {
        let options = with(options, |attempt| match attempt.nth % 4 {
            0 => Injected::Error(EINTR),
            1 => Injected::Error(EAGAIN),
            2 => Injected::Short(1),
            _ => Injected::Real,
        });
        let mut reader = scene.open(&path, &Options { piece: 4096, ..options });
        let parts = [part(1, 99_999)];
        check(&read(&mut reader, &parts), &parts);
        assert!(reader.report().counters.repeated > 20);
    }
}

pub fn interruptions_that_never_end(scene: &Scene) {
    let path = scene.file(10_000);
    for errno in [EINTR, EAGAIN] {
        let mut reader = scene.open(&path, &with(scene.options(), move |_| Injected::Error(errno)));
        let Outcome::Failed(failed) = read(&mut reader, &[part(5, 5)]).outcome else { panic!() };
        let error = failed.first().unwrap().1;
        assert_eq!(error.fault, ReadFault::Stuck { tries: 100, errno });
    }
}

pub fn a_failed_try_may_spoil_what_was_there(scene: &Scene) {
    let path = scene.file(10_000);
    for options in scene.direct_and_not() {
        // A short read, then a failure of the block that it ended in, then refused direct reads: what comes through the
        // page cache must begin where the failed try began.
        let options = with(options, |attempt| match attempt.nth {
            0 => Injected::Short(700),
            1 => Injected::Error(EINTR),
            _ if attempt.direct => Injected::Error(EINVAL),
            _ => Injected::Real,
        });
        let mut reader = scene.open(&path, &Options { piece: 4096, ..options });
        let parts = [part(0, 4096)];
        check(&read(&mut reader, &parts), &parts);
    }
}

pub fn tries_that_undo_each_other_end(scene: &Scene) {
    let path = scene.file(10_000);
    for options in scene.direct_and_not() {
        let options = with(options, |attempt| match attempt.nth % 2 {
            0 => Injected::Short(attempt.direct.into()),
            _ => Injected::Error(EINTR),
        });
        let mut reader = scene.open(&path, &options);
        let Outcome::Failed(failed) = read(&mut reader, &[part(5, 500)]).outcome else { panic!() };
        assert!(matches!(failed.first().unwrap().1.fault, ReadFault::Stuck { tries: 100, .. }));
    }
}

pub fn a_file_truncated_meanwhile(scene: &Scene) {
    for options in scene.direct_and_not() {
        let path = scene.file(100_000);
        let (at, count) = (path.clone(), AtomicUsize::new(0));
        // After the third piece the file loses its end, in the middle of a block.
        let options = with(options, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) == 2 {
                truncate(&at, 50_100);
            }
            Injected::Real
        });
        let mut reader = scene.open(&path, &Options { piece: 4096, depth: 1, ..options });
        let parts = [part(0, 8192), part(40_000, 50_000), part(50_000, 100)];
        let completion = read(&mut reader, &parts);
        let Outcome::Failed(failed) = &completion.outcome else { panic!("{:?}", completion.outcome) };
        for i in [0, 2] {
            check_part(&completion.memory[failed.parts[i].clone().unwrap()], &parts[i]);
        }
        let error = failed.parts[1].clone().unwrap_err();
        assert_eq!((error.offset, error.fault), (50_100, ReadFault::End { file_len: 50_100 }));
        assert_eq!(*error.path, *path);
    }
}

fn truncate(path: &PathBuf, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

pub fn direct_reads_refused_later(scene: &Scene) {
    let path = scene.file(100_000);
    let options = with(scene.options(), |attempt| {
        if attempt.direct && attempt.nth > 3 { Injected::Error(EINVAL) } else { Injected::Real }
    });
    let mut reader = scene.open(&path, &Options { piece: 4096, ..options });
    if !is_direct(&reader) {
        return skipped("the folder for temporary files has no direct reads");
    }
    let alignment = reader.alignment();
    let parts = [part(1, 99_000)];
    check(&read(&mut reader, &parts), &parts);
    let why = reader.report().files[0].why_buffered.unwrap();
    assert!(matches!(why, WhyBuffered::Failed { errno: EINVAL, .. }), "{why}");
    // Memory of before still fits.
    assert_eq!(reader.alignment(), alignment);
    check(&read(&mut reader, &parts), &parts);
}
