//! Buffers of a forward pass, kept between passes so that a token allocates nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use quant_kernels::Rows;

use super::lanes::Faults;

/// Buffers for one batch of T rows. They grow to the largest batch seen.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) hyper: HyperScratch,
    /// The normed input of a mixer or FFN, `[T][hidden]`.
    pub(crate) x: Rows,
    /// A mixer's or FFN's output, `[T][hidden]`.
    pub(crate) y: Vec<f32>,
    pub(crate) mixer: MixerScratch,
    pub(crate) ffn: FfnScratch,
    pub(crate) head: HeadScratch,
    pub(crate) faults: Faults,
    pub(crate) workers: Workers,
}

/// The residual streams and what `hyper::read` leaves for `hyper::write`.
#[derive(Default)]
pub(crate) struct HyperScratch {
    /// `[T][streams * hidden]`.
    pub(crate) residual: Rows,
    /// The same, being written.
    pub(crate) next: Rows,
    /// Mixing logits, `[hc rows][T]`.
    pub(crate) mix: Vec<f32>,
    /// `[T][streams + streams^2]`: post, then comb source-major.
    pub(crate) gates: Vec<f32>,
}

/// Shared by KDA and DSA, which never run at once.
#[derive(Default)]
pub(crate) struct MixerScratch {
    /// Products with the input, weight-row major.
    pub(crate) first: Vec<f32>,
    /// Products with low-rank results, weight-row major.
    pub(crate) second: Vec<f32>,
    /// KDA: `f_a`'s results; DSA: the query's low-rank form. Rows.
    pub(crate) low: Rows,
    /// KDA: `g_a`'s results. Rows.
    pub(crate) low_gate: Rows,
    /// Head-major results before they become rows.
    pub(crate) heads: Vec<f32>,
    /// DSA: attention's results, `[n][heads][latent]`.
    pub(crate) mixed: Vec<f32>,
    /// DSA: latents of the dense rows widened, or of one row's selection.
    pub(crate) rows: Vec<f32>,
    /// DSA: selected pools, `[n][top pools]`, ascending.
    pub(crate) selected: Vec<u32>,
    /// DSA: scores of one row's pools.
    pub(crate) scores: Vec<f32>,
    /// Input of the output projection. Rows.
    pub(crate) joined: Rows,
    /// The output projection's results, weight-row major.
    pub(crate) out: Vec<f32>,
}

/// Dense, shared and routed FFN.
#[derive(Default)]
pub(crate) struct FfnScratch {
    /// Gate and up, weight-row major.
    pub(crate) wide: Vec<f32>,
    /// Input of the down projection of the dense FFN or the shared expert. Rows.
    pub(crate) hidden: Rows,
    /// A down projection's results, weight-row major.
    pub(crate) out: Vec<f32>,
    /// Router logits, weight-row major.
    pub(crate) logits: Vec<f32>,
    /// Router scores of one row.
    pub(crate) scores: Vec<f32>,
    /// Experts by row and rank, `[T][k]`.
    pub(crate) ids: Vec<u32>,
    /// Their weights, `[T][k]`.
    pub(crate) weights: Vec<f32>,
    /// One row: inputs of the down projections by rank.
    pub(crate) ranks: Vec<Rows>,
    /// `(row, rank)` pairs sorted by expert, as `row * k + rank`.
    pub(crate) pairs: Vec<u32>,
    /// Row of pair `row * k + rank` in `experts`.
    pub(crate) places: Vec<u32>,
    /// Experts in use and their ranges in `pairs`.
    pub(crate) active: Vec<(u32, std::ops::Range<usize>)>,
    /// Unweighted results, `[pair][hidden]`, in the order in which they were computed.
    pub(crate) experts: Vec<f32>,
    /// Experts that the next layer is expected to take.
    pub(crate) guess: Vec<u32>,
}

/// From streams to logits.
#[derive(Default)]
pub(crate) struct HeadScratch {
    /// The post-norm hidden vectors asked for. Rows.
    pub(crate) hidden: Rows,
    /// Logits, weight-row major.
    pub(crate) wide: Vec<f32>,
    /// Logits, `[n][vocab]`.
    pub(crate) logits: Vec<f32>,
    /// A vector before its norm.
    pub(crate) mean: Vec<f32>,
}

/// Buffers of one thread, for tasks that own a head, a row or an expert.
#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) a: Vec<f32>,
    pub(crate) b: Vec<f32>,
    pub(crate) c: Vec<f32>,
    pub(crate) d: Vec<f32>,
    pub(crate) e: Vec<f32>,
    pub(crate) beta: Vec<f32>,
    pub(crate) scores: Vec<f32>,
    pub(crate) order: Vec<u32>,
    pub(crate) rows: Rows,
    pub(crate) hidden: Rows,
}

/// One [`Worker`] a thread of the pool.
#[derive(Default)]
pub(crate) struct Workers(Vec<Mutex<Worker>>);

impl Workers {
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Mutex::default()).collect())
    }

    /// This thread's buffers. The holder must not fork: a stolen task would ask for the same buffers again.
    pub(crate) fn mine(&self) -> MutexGuard<'_, Worker> {
        let thread = rayon::current_thread_index().expect("a forward pass runs inside the executor's pool");
        self.0[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
