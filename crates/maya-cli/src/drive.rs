//! How fast the drive below some files answers: through the reader that the engine uses, and, to compare with, by plain
//! reads of many threads. Nothing is written.
//!
//! Both read at random places with as many I/Os of the same size at the drive, so that a ratio of their rates says what the
//! reader costs. The rate is that of the time when as many reads were under way as were asked for: neither the first nor the
//! last ones count.

mod places;
mod raw;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nvme_reader::{
    Aligned, Choice, Chunk, Direct, FileSet, Options, Outcome, Part, Priority, Read, Reader, Report,
};

use places::Places;
pub use raw::{Raw, raw};

/// What to read, and for how long.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The files; those shorter than a blob are passed over.
    pub paths: &'a [PathBuf],
    /// Bytes of one request.
    pub blob: u32,
    /// I/Os at the drive at once; those of a blob count apart.
    pub depth: u32,
    /// What reads.
    pub backend: Choice,
    /// Whether the memory is registered with the kernel.
    pub register: bool,
    /// When no more is begun.
    pub time: Duration,
    /// How many bytes are begun at most, one blob at least.
    pub bytes: u64,
    /// Decides the places. The same places twice may come from a cache of the drive.
    pub seed: u64,
}

/// How fast it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Bytes read in all.
    pub bytes: u64,
    /// From the first request to the last completion.
    pub elapsed: Duration,
    /// Bytes a second while as much was under way as was asked for.
    pub bytes_per_second: f64,
    /// Time from beginning a blob until it was seen to be there.
    pub latency: Latency,
}

/// Percentiles over blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Latency {
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Rate {
    /// Gigabytes (10^9) a second.
    pub fn gbps(&self) -> f64 {
        self.bytes_per_second / 1e9
    }

    /// From the completions of blobs: when each was seen, counted from the start, and how long it took.
    fn of(mut ends: Vec<(Duration, Duration)>, blob: u32) -> Option<Self> {
        ends.sort_unstable();
        let (first, last) = (ends.first()?.0, ends.last()?.0);
        let blob = u64::from(blob);
        let bytes = ends.len() as u64 * blob;
        // Blobs under way at the first completion are as far as those at the last: between the two the drive was full.
        let between = ends.iter().filter(|(end, _)| *end > first).count() as u64 * blob;
        let (counted, time) = if between >= 2 * blob { (between, last - first) } else { (bytes, last) };
        let mut times: Vec<Duration> = ends.into_iter().map(|(_, took)| took).collect();
        times.sort_unstable();
        let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1];
        Some(Self {
            bytes,
            elapsed: last,
            bytes_per_second: counted as f64 / time.as_secs_f64().max(1e-9),
            latency: Latency { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) },
        })
    }
}

/// A [`Rate`] of the reader, with what the reader says of itself.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How fast.
    pub rate: Rate,
    /// Back-end, reasons, alignment, counts.
    pub report: Report,
}

/// Measures the reader.
///
/// # Errors
/// A file that cannot be read, files all shorter than a blob, a back-end that was insisted on and does not work, no memory.
pub fn measure(job: &Job<'_>) -> Result<Measured> {
    let mut places = Places::of(job.paths, job.blob, job.seed)?;
    let sets: Vec<FileSet> = job.paths.iter().map(FileSet::from).collect();
    let options = Options {
        backend: job.backend,
        direct: Direct::Auto,
        depth: job.depth,
        // A thread has one I/O at the drive.
        threads: job.depth.clamp(1, 256) as usize,
        ..Options::default()
    };
    let mut reader: Reader<Aligned> = Reader::open_with(&sets, &options)?;
    let pieces = job.blob.div_ceil(options.piece).max(1);
    // One blob more than fills the drive: while its last piece is read, the next blob's must wait already.
    let n = if job.depth == 1 { 1 } else { job.depth.div_ceil(pieces) as usize + 1 };
    let room = job.blob as usize + 2 * reader.alignment();
    let memory = || Aligned::new(room, reader.alignment()).context("there is no memory for the blobs");
    let mut free: Vec<Aligned> = (0..n).map(|_| memory()).collect::<Result<_>>()?;
    if job.register {
        let chunks: Vec<Chunk> = free.iter().map(|m| Chunk::from(&m[..])).collect();
        reader.register(&chunks);
    }
    let started = Instant::now();
    let mut begun: Vec<Instant> = Vec::new();
    let mut ends = Vec::new();
    let mut done = Vec::new();
    loop {
        let is_over = |begun: usize| {
            begun > 0 && (begun as u64 * u64::from(job.blob) >= job.bytes || started.elapsed() >= job.time)
        };
        while !is_over(begun.len()) {
            let Some(into) = free.pop() else { break };
            let (set, offset) = places.draw();
            let parts = Part { offset, len: job.blob }.into();
            let tag = begun.len() as u64;
            begun.push(Instant::now());
            reader.start(Read { set, parts, into, priority: Priority::Demand, tag })?;
        }
        // What is still under way when no more is begun would count a drive that is not full.
        if is_over(begun.len()) && !ends.is_empty() {
            break;
        }
        reader.wait(1, &mut done);
        if done.is_empty() {
            break;
        }
        for completion in done.drain(..) {
            let now = Instant::now();
            match completion.outcome {
                Outcome::Read(_) => ends.push((now - started, now - begun[completion.tag as usize])),
                Outcome::Failed(failed) => match failed.first() {
                    Some((_, error)) => bail!("{error}"),
                    None => bail!("a read failed without a reason"),
                },
                Outcome::Cancelled => {}
            }
            free.push(completion.memory);
        }
    }
    let report = reader.report();
    for tag in 0..begun.len() as u64 {
        reader.cancel(tag);
    }
    // It waits for what is at the drive. Registered memory must outlive it.
    drop(reader);
    drop(free);
    let rate = Rate::of(ends, job.blob).context("no blob was read")?;
    Ok(Measured { rate, report })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const BLOB: u32 = 300_000;

    fn job(paths: &[PathBuf]) -> Job<'_> {
        Job {
            paths,
            blob: BLOB,
            depth: 4,
            backend: Choice::Auto,
            register: false,
            time: Duration::from_secs(5),
            bytes: 20 * u64::from(BLOB),
            seed: 1,
        }
    }

    fn file(folder: &Path, len: usize) -> PathBuf {
        let path = folder.join("model.gguf");
        fs::write(&path, vec![7; len]).unwrap();
        path
    }

    #[test]
    fn both_back_ends_read_no_more_than_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [file(folder.path(), 3_000_001)];
        for (backend, depth, register) in [
            (Choice::Threads, 1, false),
            (Choice::Threads, 32, false),
            (Choice::Auto, 1, true),
            (Choice::Auto, 32, true),
        ] {
            let job = Job { backend, depth, register, ..job(&paths) };
            let measured = measure(&job).unwrap();
            let rate = &measured.rate;
            assert!(rate.bytes > 0 && rate.bytes <= job.bytes && rate.gbps() > 0.0, "{measured:?}");
            assert!(rate.latency.p50 <= rate.latency.p99 && rate.latency.p99 <= rate.latency.max);
            assert_eq!(measured.report.counters.failed, 0);
        }
        let raw = raw(&job(&paths), 4).unwrap();
        assert!(raw.rate.bytes > 0 && raw.rate.gbps() > 0.0, "{raw:?}");
    }

    #[test]
    fn a_limit_below_one_blob_still_reads_one() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [file(folder.path(), BLOB as usize)];
        let job = Job { bytes: 1, time: Duration::ZERO, ..job(&paths) };
        assert_eq!(measure(&job).unwrap().rate.bytes, u64::from(BLOB));
        assert_eq!(raw(&job, 3).unwrap().rate.bytes, u64::from(BLOB));
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let small = [file(folder.path(), 10)];
        for (paths, says) in [
            (&small[..], "shorter than"),
            (&[folder.path().join("absent")][..], "absent"),
            (&[folder.path().to_owned()][..], "is not a file"),
            (&[][..], "no file"),
        ] {
            for error in [measure(&job(paths)).err(), raw(&job(paths), 2).err()] {
                let text = error.map(|e| format!("{e:#}")).unwrap_or_default();
                assert!(text.contains(says), "{paths:?}: {text:?}");
            }
        }
    }

    #[test]
    fn the_rate_is_that_of_the_full_drive() {
        let ms = Duration::from_millis;
        // The first blob took 100 ms, the others came every 10 ms.
        let ends = (0..11).map(|i| (ms(100 + 10 * i), ms(100 - i))).collect();
        let rate = Rate::of(ends, 1000).unwrap();
        assert!((rate.bytes_per_second - 100_000.0).abs() < 1e-6, "{rate:?}");
        assert_eq!((rate.bytes, rate.elapsed), (11_000, ms(200)));
        assert_eq!((rate.latency.p50, rate.latency.max), (ms(95), ms(100)));
        let one = Rate::of(vec![(ms(50), ms(50))], 1000).unwrap();
        assert!((one.bytes_per_second - 20_000.0).abs() < 1e-6, "{one:?}");
        assert_eq!(Rate::of(Vec::new(), 1), None);
    }
}
