//! Reads blobs of a file with both back-ends and prints how fast.
//!
//! ```text
//! cargo run --release -p nvme-reader --example read_blobs -- FILE [OFFSET:LENGTH ...]
//! ```
//!
//! With ranges, it reads those, each once, and prints a checksum of each. Without, it measures: plain reads of 8 MB one
//! after the other as the raw limit, then 256 blobs of 7.11 MB in file order and in random order with each back-end, with
//! and without registered memory. Files of less than 2 GB are read more than once and may flatter a drive with a cache.

use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

use nvme_reader::{Aligned, BackendName, Choice, FileSet, Options, Outcome, Part, Priority, Read, Reader};

/// One expert of a large mixture-of-experts model in four-bit blocks.
const BLOB: u32 = 7_110_656;
/// Blobs of one measurement.
const BLOBS: u64 = 256;
/// Blobs in flight: what one layer of a model asks for at once.
const IN_FLIGHT: usize = 8;

type Outcomes<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcomes<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: read_blobs FILE [OFFSET:LENGTH ...]")?;
    let ranges: Vec<Part> = arguments.map(|a| range(&a)).collect::<Outcomes<_>>()?;
    if !ranges.is_empty() {
        for backend in [Choice::Uring, Choice::Threads] {
            sums(&path, backend, &ranges)?;
        }
        return Ok(());
    }
    let len = std::fs::metadata(&path)?.len();
    if len < u64::from(BLOB) {
        return Err(format!("{path}: {len} bytes are less than one blob of {BLOB}").into());
    }
    let sequential: Vec<u64> =
        (0..BLOBS).map(|i| i * u64::from(BLOB) % (len - u64::from(BLOB) + 1)).collect();
    let mut state = 1_u64;
    let random: Vec<u64> = (0..BLOBS).map(|_| next(&mut state) % (len - u64::from(BLOB) + 1)).collect();
    // Twice, back and forth, since drives and neighbours have moods.
    for round in 0..2 {
        say(format_args!("round {}", round + 1))?;
        raw(&path, len)?;
        let mut modes = [(Choice::Uring, false), (Choice::Uring, true), (Choice::Threads, false)];
        if round == 1 {
            modes.reverse();
        }
        for (backend, registered) in modes {
            for (order, offsets) in [("sequential", &sequential), ("random", &random)] {
                measure(&path, backend, registered, order, offsets)?;
            }
        }
    }
    Ok(())
}

fn say(line: std::fmt::Arguments<'_>) -> Outcomes<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

fn range(text: &str) -> Outcomes<Part> {
    let (offset, len) = text.split_once(':').ok_or_else(|| format!("{text}: is not OFFSET:LENGTH"))?;
    Ok(Part { offset: offset.parse()?, len: len.parse()? })
}

/// A generator that needs no crate: good enough to jump about in a file.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

fn open<M: nvme_reader::Memory>(path: &str, backend: Choice) -> Outcomes<Option<Reader<M>>> {
    match Reader::open_with(&[FileSet::from(path)], &Options { backend, ..Options::default() }) {
        Ok(reader) => Ok(Some(reader)),
        Err(nvme_reader::OpenError::Uring(why)) => {
            say(format_args!("SKIPPED: io_uring: {why}"))?;
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}

/// Each range's sum of bytes, one request after the other.
fn sums(path: &str, backend: Choice, ranges: &[Part]) -> Outcomes<()> {
    let Some(mut reader) = open(path, backend)? else { return Ok(()) };
    let begun = Instant::now();
    let mut done = Vec::new();
    let mut bytes = 0_u64;
    for (part, tag) in ranges.iter().zip(0..) {
        let room = reader.room(0, [*part]).ok_or("a range beyond any file")?;
        let into = Aligned::new(room, reader.alignment()).ok_or("out of memory")?;
        reader.start(Read { set: 0, parts: (*part).into(), into, priority: Priority::Demand, tag })?;
        reader.wait(1, &mut done);
        let Some(completion) = done.pop() else { return Err("nothing completed".into()) };
        match completion.outcome {
            Outcome::Read(places) => {
                let sum: u64 = completion.memory[places[0].clone()].iter().map(|b| u64::from(*b)).sum();
                say(format_args!("{}:{}: sum of bytes {sum}", part.offset, part.len))?;
                bytes += u64::from(part.len);
            }
            Outcome::Failed(failed) => {
                if let Some((_, error)) = failed.first() {
                    say(format_args!("{error}"))?;
                }
            }
            Outcome::Cancelled => {}
        }
    }
    let speed = bytes as f64 / begun.elapsed().as_secs_f64() / 1e9;
    say(format_args!("{}: {speed:.2} GB/s\n{}", reader.report().backend, reader.report()))
}

/// The raw limit of one reader: one plain read of 8 MB after the other.
fn raw(path: &str, len: u64) -> Outcomes<()> {
    const CHUNK: u32 = 8 << 20;
    let options =
        Options { backend: Choice::Threads, threads: 1, depth: 1, piece: CHUNK, ..Options::default() };
    let mut reader: Reader<Aligned> = Reader::open_with(&[FileSet::from(path)], &options)?;
    let chunk = u64::from(CHUNK).min(len);
    let mut memory = Aligned::new(CHUNK as usize, 4096.max(reader.alignment()));
    let begun = Instant::now();
    let n = (len / chunk).min(256);
    let mut done = Vec::new();
    for tag in 0..n {
        let into = memory.take().ok_or("out of memory")?;
        let parts = Part { offset: tag * chunk, len: chunk as u32 }.into();
        reader.start(Read { set: 0, parts, into, priority: Priority::Demand, tag })?;
        reader.wait(1, &mut done);
        memory = done.pop().map(|c| c.memory);
    }
    let speed = (n * chunk) as f64 / begun.elapsed().as_secs_f64() / 1e9;
    let report = reader.report();
    let file = report.files.first().ok_or("no file")?;
    let how = if file.is_direct() { "direct" } else { "through the page cache" };
    say(format_args!("  one pread of 8 MB after the other, {how}: {speed:.2} GB/s"))
}

/// Reads the blobs at `offsets`, some in flight at a time.
fn measure(path: &str, backend: Choice, registered: bool, order: &str, offsets: &[u64]) -> Outcomes<()> {
    let Some(mut reader) = open::<&'static mut [u8]>(path, backend)? else { return Ok(()) };
    let lease = (BLOB as usize + 2 * reader.alignment()).next_multiple_of(4096.max(reader.alignment()));
    let arena = Aligned::new(IN_FLIGHT * lease, 4096).ok_or("out of memory")?.leak();
    arena.fill(1);
    if registered && let Some(why) = reader.register(&[(&arena[..]).into()]).why_not {
        return say(format_args!("  SKIPPED: registered memory: {why}"));
    }
    let mut leases: Vec<&'static mut [u8]> = arena.chunks_exact_mut(lease).collect();
    let mut offsets = offsets.iter().copied().zip(0..);
    let mut done = Vec::new();
    let (mut bytes, begun) = (0_u64, Instant::now());
    loop {
        while let Some(into) = leases.pop() {
            let Some((offset, tag)) = offsets.next() else { break };
            let parts = Part { offset, len: BLOB }.into();
            reader.start(Read { set: 0, parts, into, priority: Priority::Demand, tag })?;
        }
        if reader.in_flight() == 0 {
            break;
        }
        reader.wait(1, &mut done);
        for completion in done.drain(..) {
            match completion.outcome {
                Outcome::Read(_) => bytes += u64::from(BLOB),
                other => return Err(format!("{other:?}").into()),
            }
            leases.push(completion.memory);
        }
    }
    let speed = bytes as f64 / begun.elapsed().as_secs_f64() / 1e9;
    let report = reader.report();
    let memory = match (report.backend, registered) {
        (BackendName::Uring, true) => ", registered memory",
        (BackendName::Uring, false) => ", plain memory",
        (BackendName::Threads, _) => "",
    };
    say(format_args!("  {}{memory}, {order}: {speed:.2} GB/s", report.backend))
}
