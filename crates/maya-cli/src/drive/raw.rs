//! What the drive gives to plain reads, to compare the reader with: threads that read one piece after the other, each of as
//! many bytes as one I/O of the reader, around the page cache where that works. With as many threads as the reader has I/Os
//! at the drive both keep it equally full. It is no limit: whoever wakes fewer threads for the same reads may be faster.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nvme_reader::{Aligned, Options};

use super::{Job, Places, Rate};

/// Block and memory alignment that every usual drive takes.
const ALIGNMENT: usize = 4096;

/// How fast plain reads were.
#[derive(Clone, Debug)]
pub struct Raw {
    /// How fast.
    pub rate: Rate,
    /// Threads, each with one read at the drive.
    pub threads: usize,
    /// Whether the page cache was gone around; if not, the rate may be that of memory.
    pub is_direct: bool,
}

/// Measures plain reads by `threads` threads. Of the job it heeds files, blob, time, bytes and seed.
///
/// # Errors
/// As [`measure`](super::measure).
pub fn raw(job: &Job<'_>, threads: usize) -> Result<Raw> {
    let piece = job.blob.min(Options::default().piece);
    // Direct reads are whole blocks.
    let blob = piece.next_multiple_of(ALIGNMENT as u32);
    let (blob, places) = match Places::of(job.paths, blob, job.seed) {
        Ok(places) => (blob, places),
        Err(_) => (piece, Places::of(job.paths, piece, job.seed)?),
    };
    let direct = if blob.is_multiple_of(ALIGNMENT as u32) { open(job.paths, true).ok() } else { None };
    let is_direct = direct.as_deref().is_some_and(|files| works(files, places.clone(), blob));
    let files = match direct.filter(|_| is_direct) {
        Some(files) => files,
        None => open(job.paths, false)?,
    };
    let threads = threads.max(1);
    let begun = AtomicU64::new(0);
    let places = Mutex::new(places);
    let started = Instant::now();
    let work = || -> Result<Vec<(Duration, Duration)>> {
        let mut memory =
            Aligned::new(blob as usize, ALIGNMENT).context("there is no memory for the blobs")?;
        let mut ends = Vec::new();
        loop {
            let before = begun.fetch_add(u64::from(blob), Ordering::Relaxed);
            if before > 0 && (before >= job.bytes || started.elapsed() >= job.time) {
                return Ok(ends);
            }
            let (file, offset) = match places.lock() {
                Ok(mut places) => places.draw(),
                Err(_) => bail!("a thread that reads failed"),
            };
            let start = Instant::now();
            let path = &job.paths[file as usize];
            files[file as usize].read_exact_at(&mut memory, offset).with_context(|| {
                format!("{}: {blob} bytes at offset {offset} cannot be read", path.display())
            })?;
            let now = Instant::now();
            ends.push((now - started, now - start));
        }
    };
    let ends: Result<Vec<_>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                std::thread::Builder::new().spawn_scoped(scope, work).context("a thread cannot be started")
            })
            .collect();
        let joined =
            workers.into_iter().map(|w| w?.join().unwrap_or_else(|_| bail!("a thread that reads failed")));
        joined.collect()
    });
    let mut ends: Vec<_> = ends?.into_iter().flatten().collect();
    // When a thread finds nothing more to begin, the drive is no longer full: what comes after that is not counted, as
    // long as enough was counted before.
    ends.sort_unstable();
    let full = ends.len().saturating_sub(threads - 1);
    if full > 2 * threads {
        ends.truncate(full);
    }
    Ok(Raw { rate: Rate::of(ends, blob).context("no blob was read")?, threads, is_direct })
}

fn open(paths: &[std::path::PathBuf], direct: bool) -> Result<Vec<File>> {
    let open = |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true);
        if direct {
            options.custom_flags(flags()?);
        }
        options.open(path).with_context(|| format!("{}: cannot be opened", path.display()))
    };
    paths.iter().map(|path| open(path)).collect()
}

/// Around the page cache.
#[cfg(target_os = "linux")]
fn flags() -> Result<i32> {
    Ok(rustix::fs::OFlags::DIRECT.bits() as i32)
}

#[cfg(not(target_os = "linux"))]
fn flags() -> Result<i32> {
    bail!("this system has no O_DIRECT")
}

/// Whether a file that let itself be opened for direct reads can be read so.
fn works(files: &[File], mut places: Places, blob: u32) -> bool {
    let (file, offset) = places.draw();
    let Some(mut memory) = Aligned::new(ALIGNMENT.min(blob as usize), ALIGNMENT) else { return false };
    files[file as usize].read_exact_at(&mut memory, offset).is_ok()
}
