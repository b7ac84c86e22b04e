//! Whether two paths have the same bytes, as far as that can be found out before the first read.
//!
//! Files of up to 16 MiB are compared whole. Of larger ones these are:
//!
//! - the first and the last 64 KiB, and 4 KiB in the middle;
//! - where the copy has a hole and the first file has none, the first file's bytes, which are to be zeros then: a copy that
//!   was begun and not ended. At most 64 MiB of each;
//! - 4 KiB at a place in every 4 MiB. Files of more than 64 GiB have 16,384 such places. The places depend on the length
//!   alone, so that a refusal can be repeated.
//!
//! Of both files together at most 256 MiB are read, by eight threads. Places that are not reached within ten seconds are
//! left out; those that were reached are spread over the whole file then. Two files of 2 GB on one virtual drive, neither
//! in the page cache, take 0.05 s.
//!
//! A gap of zeros is found wherever it is if it has 8 MiB, and smaller ones by luck; a hole of any size is, where the file
//! system tells of holes. **Not found** are flipped bits, and other weights of the same length and the same beginning that
//! differ in less than 8 MiB. Whoever must exclude those compares checksums.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::OpenError;

/// Up to here everything is compared.
const WHOLE: u64 = 16 << 20;
/// At both ends.
const END: u64 = 64 << 10;
/// At each place between them.
const BLOCK: u64 = 4096;
/// One place in each.
const STRIDE: u64 = 4 << 20;
/// At most so many places.
const MAX_PLACES: u64 = 1 << 14;
/// Bytes of holes at most, and holes at most.
const MAX_IN_HOLES: u64 = 64 << 20;
const MAX_HOLES: usize = 1 << 16;
/// Places after this are left out.
const MOST_TIME: Duration = Duration::from_secs(10);
const THREADS: usize = 8;

/// A path of a set, open.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// Its name.
    pub path: &'a Path,
    /// The file.
    pub file: &'a File,
    /// Its bytes when it was opened.
    pub len: u64,
}

/// Refuses `copy` if it is found to differ from `first`.
pub fn compare(first: Copy<'_>, copy: Copy<'_>) -> Result<(), OpenError> {
    let len = first.len;
    if len != copy.len {
        let (path, first_path) = (copy.path.into(), first.path.into());
        return Err(OpenError::Lengths { path, len: copy.len, first: first_path, first_len: len });
    }
    let pair = Pair { first, copy };
    if len <= WHOLE {
        return pair.range(0, len);
    }
    pair.range(0, END)?;
    pair.range(len - END, len)?;
    pair.range(len / 2, len / 2 + BLOCK)?;
    let deadline = Instant::now() + MOST_TIME;
    pair.holes(deadline)?;
    pair.places(deadline)
}

struct Pair<'a> {
    first: Copy<'a>,
    copy: Copy<'a>,
}

impl Pair<'_> {
    /// Bytes `from..to`.
    fn range(&self, from: u64, to: u64) -> Result<(), OpenError> {
        let most = END.min(to - from) as usize;
        let mut blocks = [vec![0; most], vec![0; most]];
        let mut offset = from;
        while offset < to {
            let len = most.min((to - offset) as usize);
            for (block, Copy { path, file, .. }) in blocks.iter_mut().zip([self.first, self.copy]) {
                file.read_exact_at(&mut block[..len], offset).map_err(|error| OpenError::Compare {
                    path: path.into(),
                    offset,
                    len,
                    error,
                })?;
            }
            if blocks[0][..len] != blocks[1][..len] {
                let (path, first) = (self.copy.path.into(), self.first.path.into());
                return Err(OpenError::Differ { path, first, offset, len });
            }
            offset += len as u64;
        }
        Ok(())
    }

    /// Where the copy has holes and the first file has data.
    fn holes(&self, deadline: Instant) -> Result<(), OpenError> {
        let (len, mut at, mut left) = (self.copy.len, 0, MAX_IN_HOLES);
        for _ in 0..MAX_HOLES {
            let Some(hole) = next_hole(self.copy.file, at).filter(|hole| *hole < len) else { return Ok(()) };
            at = next_data(self.copy.file, hole).unwrap_or(len).clamp(hole + 1, len);
            let mut from = hole;
            while let Some(data) = next_data(self.first.file, from).filter(|data| *data < at) {
                let end =
                    next_hole(self.first.file, data).unwrap_or(len).clamp(data + 1, at).min(data + left);
                self.range(data, end)?;
                left -= end - data;
                from = end;
                if left == 0 || Instant::now() >= deadline {
                    return Ok(());
                }
            }
            if at == len {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A block in each stride.
    fn places(&self, deadline: Instant) -> Result<(), OpenError> {
        let n = (self.first.len / STRIDE).min(MAX_PLACES);
        let step = step(n);
        let (next, over, failed) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(None));
        let work = || {
            while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return;
                }
                let at = place(self.first.len, n, i * step % n);
                if let Err(error) = self.range(at, at + BLOCK) {
                    over.store(true, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..THREADS {
                // One that cannot be started is made up for by the others.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// A step with which `n` places are visited once each, the first so many of them spread over all: by the golden ratio.
fn step(n: u64) -> u64 {
    let near = (n as f64 * 0.618) as u64;
    (near..).find(|step| gcd(*step, n) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The block to look at in the `i`-th of `n` parts of a file.
fn place(len: u64, n: u64, i: u64) -> u64 {
    let width = len / n;
    // SplitMix64.
    let mut mixed = len.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    i * width + mixed % (width / BLOCK) * BLOCK
}

/// Where the hole at or after `at` begins; the end of the file where there is none. `None` where the system does not tell.
#[cfg(target_os = "linux")]
fn next_hole(file: &File, at: u64) -> Option<u64> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(at)).ok()
}

/// Where the data at or after `at` begin. `None` where there are no more.
#[cfg(target_os = "linux")]
fn next_data(file: &File, at: u64) -> Option<u64> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)).ok()
}

/// Holes are not looked for here.
#[cfg(not(target_os = "linux"))]
fn next_hole(_: &File, _: u64) -> Option<u64> {
    None
}

/// As there.
#[cfg(not(target_os = "linux"))]
fn next_data(_: &File, _: u64) -> Option<u64> {
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn places_are_visited_once_and_lie_in_their_parts() {
        for (len, n) in
            [(17 << 20, 4), (64 << 30, 16_384), (93_123_456_789, 16_384), (5 << 30, 1280), (1 << 40, 16_384)]
        {
            let step = step(n);
            let mut seen: Vec<u64> = (0..n).map(|i| i * step % n).collect();
            // The first hundredth of them leaves no large part out.
            let mut early = seen[..(n / 100).max(1) as usize].to_vec();
            early.extend([0, n]);
            early.sort_unstable();
            assert!(n < 1000 || early.windows(2).all(|w| w[1] - w[0] <= 4 * n / early.len() as u64), "{n}");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n));
            for i in 0..n {
                let at = place(len, n, i);
                assert!(at >= i * (len / n) && at + BLOCK <= (i + 1) * (len / n), "{len} {i}");
            }
        }
    }

    #[test]
    fn few_places_have_a_step() {
        for n in 4..300 {
            assert_eq!(gcd(step(n), n), 1, "{n}");
        }
    }
}
