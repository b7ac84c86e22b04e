//! `io_uring` under a sandbox, as in a container: threads read instead, and the report says what to change. The sandbox is
//! real, a seccomp filter on the thread that runs the test and on those it starts.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write as _;
use std::path::Path;

use nvme_reader::{
    Aligned, BackendName, Choice, OpenError, Options, Outcome, Part, Priority, Read, Reader, Reason,
    UringFault,
};

const LEN: u32 = 3 << 20;

/// Makes the system call `number` fail with `errno` on this thread and those it starts from now on.
fn forbid(number: libc::c_long, errno: i32) -> Result<(), rustix::io::Errno> {
    rustix::thread::set_no_new_privs(true)?;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The call's number is the first word that a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which is complete and outlives the call.
    let outcome = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
    }
}

/// Runs `test` with a file on a thread of its own, since a filter stays as long as its thread.
fn alone(name: &'static str, test: fn(&Path) -> Result<(), String>) {
    let outcome = std::thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![9; LEN as usize]).unwrap();
        test(&path)
    });
    match outcome.join() {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {why}");
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn options(backend: Choice) -> Options {
    Options { backend, piece: 65_536, depth: 4, threads: 2, ..Options::default() }
}

fn start(reader: &mut Reader<Aligned>, tag: u64) {
    let parts = [Part { offset: 1, len: LEN - 1 }];
    let into = Aligned::new(reader.room(0, parts).unwrap(), reader.alignment()).unwrap();
    let read = Read { set: 0, parts: parts.into(), into, priority: Priority::Demand, tag };
    reader.start(read).unwrap();
}

fn finish(reader: &mut Reader<Aligned>, n: usize) {
    let mut done = Vec::new();
    reader.wait(n, &mut done);
    assert_eq!(done.len(), n);
    for completion in done {
        let Outcome::Read(places) = completion.outcome else { panic!("{:?}", completion.outcome) };
        assert!(completion.memory[places[0].clone()].iter().all(|b| *b == 9));
    }
}

/// The ring is refused at open with `fault`.
fn refused(path: &Path, number: libc::c_long, errno: i32, fault: UringFault) -> Result<(), String> {
    forbid(number, errno).map_err(|e| format!("a seccomp filter is refused: {e}"))?;
    let sets = [path.into()];
    let mut reader = Reader::open_with(&sets, &options(Choice::Auto)).unwrap();
    let report = reader.report();
    assert_eq!((report.backend, report.reason), (BackendName::Threads, Reason::NoUring(fault)));
    start(&mut reader, 1);
    finish(&mut reader, 1);
    let error = Reader::<Aligned>::open_with(&sets, &options(Choice::Uring)).unwrap_err();
    assert!(matches!(error, OpenError::Uring(why) if why == fault), "{error}");
    Ok(())
}

#[test]
fn a_forbidden_ring() {
    alone("a_forbidden_ring", |path| {
        refused(path, libc::SYS_io_uring_setup, libc::EPERM, UringFault::Forbidden(libc::EPERM))
    });
}

#[test]
fn a_hidden_ring() {
    alone("a_hidden_ring", |path| refused(path, libc::SYS_io_uring_setup, libc::ENOSYS, UringFault::Missing));
}

#[test]
fn a_ring_without_memory() {
    alone("a_ring_without_memory", |path| {
        refused(path, libc::SYS_io_uring_setup, libc::ENOMEM, UringFault::Memory)
    });
}

#[test]
fn a_ring_that_may_be_made_and_not_run() {
    alone("a_ring_that_may_be_made_and_not_run", |path| {
        refused(path, libc::SYS_io_uring_enter, libc::EPERM, UringFault::Forbidden(libc::EPERM))
    });
}

/// A program may close its sandbox when everything is open: reads go on.
#[test]
fn a_ring_forbidden_while_reads_are_out() {
    alone("a_ring_forbidden_while_reads_are_out", |path| {
        let mut reader = match Reader::open_with(&[path.into()], &options(Choice::Uring)) {
            Ok(reader) => reader,
            Err(why) => return Err(why.to_string()),
        };
        start(&mut reader, 1);
        finish(&mut reader, 1);
        start(&mut reader, 1);
        forbid(libc::SYS_io_uring_enter, libc::EPERM)
            .map_err(|e| format!("a seccomp filter is refused: {e}"))?;
        start(&mut reader, 2);
        finish(&mut reader, 2);
        let report = reader.report();
        let reason = Reason::NoUring(UringFault::Forbidden(libc::EPERM));
        assert_eq!((report.backend, report.reason), (BackendName::Threads, reason));
        start(&mut reader, 3);
        finish(&mut reader, 1);
        Ok(())
    });
}

/// As before, and the reader is dropped with reads out.
#[test]
fn a_ring_forbidden_and_dropped() {
    alone("a_ring_forbidden_and_dropped", |path| {
        let mut reader = match Reader::open_with(&[path.into()], &options(Choice::Uring)) {
            Ok(reader) => reader,
            Err(why) => return Err(why.to_string()),
        };
        start(&mut reader, 1);
        forbid(libc::SYS_io_uring_enter, libc::EPERM)
            .map_err(|e| format!("a seccomp filter is refused: {e}"))?;
        start(&mut reader, 2);
        drop(reader);
        Ok(())
    });
}
