//! What this machine does, measured in a few seconds. One function a lane: a better one replaces its body.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gguf::GgmlType;
use quant_kernels::{Cpu, Family, Matrix, Precision, Quant, Rows};

use super::machine::{Cost, Given, Room, Said};
use super::sizes::Sizes;
use crate::drive::{self, Job};
use crate::machine::Memory;
use crate::synth::blocks::{self, Random};
use crate::tiers::reserve;

/// Weights of all threads: beyond their caches. A thread has no less than the second number and no more than the third.
const WEIGHTS: [usize; 3] = [256 << 20, 4 << 20, 24 << 20];
/// How long a lane is measured.
const TIME: Duration = Duration::from_millis(400);
/// Values of a row: the width of a stream, which is that of an expert's larger matrices.
const COLS: usize = 4096;
/// Bytes of one read, about an expert's share of a tensor, and how many are made.
const READ: u32 = 2 << 20;
const READS: u64 = 256;

/// This machine without a GPU. `path` is a file of the model on the drive in question; without one the drive is not known.
///
/// # Errors
/// The file cannot be read.
pub fn here(path: Option<&Path>, sizes: &Sizes) -> Result<Given> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let room = Memory::read().room().unwrap_or(0);
    let ram = room.saturating_sub(sizes.always_bytes).saturating_sub(reserve(room));
    let rate = |ty, what: &str| -> Result<Option<Said<Cost>>> {
        let source = format!("measured: {what} on {threads} threads");
        Ok(Some(Said::new(Cost::Gbps(matvec_gbps(ty, threads)?), source)))
    };
    Ok(Given {
        name: "this machine".to_owned(),
        cpu: rate(GgmlType::Iq2S, "products with IQ2_S weights")?,
        dense: rate(GgmlType::Q6K, "products with Q6_K weights")?,
        drive: match path {
            Some(path) => Some(Said::new(
                Cost::Gbps(drive_gbps(path)?),
                format!(
                    "measured: reads of {}, around the page cache where that is possible",
                    path.display()
                ),
            )),
            None => None,
        },
        ram: Some(Said::new(
            Room::Bytes(ram as f64),
            "measured: available memory less what every token reads and a reserve",
        )),
        ..Given::default()
    })
}

/// Gigabytes of weights a second that all threads together multiply with one activation.
fn matvec_gbps(ty: GgmlType, threads: usize) -> Result<f64> {
    let Some(quant) = Quant::ALL.into_iter().find(|q| q.name().eq_ignore_ascii_case(ty.name())) else {
        bail!("there are no kernels for {}", ty.name())
    };
    let weights = blocks::random(
        ty,
        0.02,
        (WEIGHTS[0] / threads).clamp(WEIGHTS[1], WEIGHTS[2]),
        &mut Random::new(1, 0),
    )
    .with_context(|| format!("there are no random blocks of type {}", ty.name()))?;
    let row = quant.row_bytes(COLS).with_context(|| format!("{} has no rows of {COLS}", ty.name()))?;
    let rows = weights.len() / row;
    let weights = &weights[..rows * row];
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(quant, rows, weights))).collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| bail!("a measuring thread panicked"))).sum()
    })
}

/// Multiplies for a while; gigabytes of weights read a second.
fn work(quant: Quant, rows: usize, weights: &[u8]) -> Result<f64> {
    let cpu = Cpu::detect();
    // A copy of its own: threads must not share what one of them brought into a cache.
    let weights = weights.to_vec();
    let matrix = Matrix::new(quant, rows, COLS, &weights)?;
    let mut x = Rows::new();
    for (i, value) in x.reset(1, COLS).iter_mut().enumerate() {
        *value = (i % 17) as f32 / 8.0 - 1.0;
    }
    x.prepare(cpu, quant.family().unwrap_or(Family::Wide), &mut Vec::new());
    let mut out = vec![0.0; rows];
    let mut bytes = 0;
    let started = Instant::now();
    while started.elapsed() < TIME {
        cpu.matmul(Precision::Fast, matrix, &x, &mut out)?;
        bytes += weights.len() as u64;
    }
    Ok(bytes as f64 / started.elapsed().as_secs_f64() / 1e9)
}

/// Gigabytes a second that the drive below a file gives to the reader that the engine uses.
fn drive_gbps(path: &Path) -> Result<f64> {
    let paths = [path.to_owned()];
    let job = Job {
        paths: &paths,
        blob: READ,
        depth: 32,
        backend: nvme_reader::Choice::Auto,
        register: false,
        time: TIME,
        bytes: READS * u64::from(READ),
        seed: 1,
    };
    Ok(drive::measure(&job)?.rate.gbps())
}
