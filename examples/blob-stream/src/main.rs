//! Streams blobs of a made-up engine within a memory budget. See the README.

#![forbid(unsafe_code)]

mod blobs;
mod stream;

use std::error::Error;

use blobs::{BLOBS, Blobs, GROUPS, is_part};
use stream::{Stream, TOGETHER};

const REQUESTS: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("blob-stream-{}", std::process::id()));
    let blobs = Blobs::write(path)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => stream(&blobs, 4_000_000).map(drop),
        ["--budget", bytes] => stream(&blobs, bytes.parse()?).map(drop),
        ["--check"] => check(&blobs),
        _ => Err("usage: blob-stream [--budget BYTES | --check]".into()),
    }
}

/// More memory means fewer reads, down to one for each blob, and never other bytes.
fn check(blobs: &Blobs) -> Result<(), Box<dyn Error>> {
    let requested = REQUESTS * u64::from(TOGETHER);
    let mut before = u64::MAX;
    for budget in [600_000, 2_000_000, 6_000_000, 40_000_000] {
        let reads = stream(blobs, budget)?;
        assert!(reads <= before, "{budget} B read {reads} blobs, and less memory {before}");
        before = reads;
    }
    assert!(before < requested / 4, "with room for all, {before} reads");
    assert!(Stream::open(blobs.path(), 100_000).is_err(), "below transit memory there is an error");
    Ok(())
}

/// Plays the requests; answers with the reads.
fn stream(blobs: &Blobs, budget: u64) -> Result<u64, Box<dyn Error>> {
    let mut stream = Stream::open(blobs.path(), budget)?;
    let mapped = stream.arena.bytes_mapped();
    assert!(mapped as u64 <= budget, "{mapped} B of memory for a budget of {budget} B");
    let (mut random, mut most) = (1, 0);
    for request in 0..REQUESTS {
        let mut wanted: Vec<u16> = Vec::new();
        while wanted.len() < usize::from(TOGETHER) {
            // The product of two is small more often than large.
            let blob = next(&mut random, BLOBS) * next(&mut random, BLOBS) / BLOBS;
            if !wanted.contains(&blob) {
                wanted.push(blob);
            }
        }
        stream.request((request % u64::from(GROUPS)) as u16, &wanted, |id, part, bytes| {
            assert!(is_part(id, part, bytes), "part {part} of {id} has other bytes");
        })?;
        stream.directory.check()?;
        most = most.max((0..GROUPS).map(|group| stream.directory.residents(group)).sum());
    }
    let (hits, reads) = (stream.hits, stream.reads);
    assert_eq!(hits + reads, REQUESTS * u64::from(TOGETHER));
    println!(
        "{budget} B: {hits} hits, {reads} reads, at most {most} blobs kept, {mapped} B mapped, all bytes right"
    );
    Ok(reads)
}

fn next(random: &mut u64, below: u16) -> u16 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*random >> 33) % u64::from(below)) as u16
}
