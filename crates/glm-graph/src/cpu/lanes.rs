//! Products with the file's weights, split over threads by weight rows.
//!
//! All products of one fork write one buffer, a product's `[weight row][activation row]` results behind the previous
//! one's, so that a part of the work is a range of weight rows and owns a contiguous, disjoint part of the buffer.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quant_kernels::{Cpu, Matrix, Precision, Quant, Rows};

/// Multiplications a part should have at least: 64 Ki weights are about 12 us of one core, several times the few
/// microseconds that a fork costs.
const PART: u64 = 1 << 16;
/// Parts a thread when there is work for it, so that a thread that wakes late still finds some.
const PARTS_PER_THREAD: u64 = 2;

/// The arithmetic and how many threads share it. Its methods run inside the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) cpu: Cpu,
    pub(crate) precision: Precision,
    pub(crate) threads: usize,
}

/// One product: every row of `x` with every row of `w`.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) w: Matrix<'a>,
    pub(crate) x: &'a Rows,
    pub(crate) precision: Precision,
    /// Named in the error if a result is NaN or infinite.
    pub(crate) what: &'static str,
}

impl Job<'_> {
    fn cost(&self, rows: usize) -> u64 {
        (rows * self.w.cols() * self.x.n()) as u64
    }
}

impl Lanes {
    /// How many parts work of `cost` multiplications is worth.
    pub(crate) fn parts(&self, cost: u64) -> usize {
        if self.threads == 1 {
            return 1;
        }
        (cost / PART).clamp(1, PARTS_PER_THREAD * self.threads as u64) as usize
    }

    /// A product in the executor's precision.
    pub(crate) fn job<'a>(&self, w: Matrix<'a>, x: &'a Rows, what: &'static str) -> Job<'a> {
        Job { w, x, precision: self.precision, what }
    }

    /// Quantises `x` for weights of the formats `quants`, where the precision asks for it.
    pub(crate) fn prepare(&self, x: &mut Rows, quants: &[Quant], what: &'static str, faults: &Faults) {
        let bad = self.quantise(x, quants);
        if !bad.is_empty() {
            let stage = faults.stage();
            bad.into_iter().for_each(|row| faults.note(stage, row, what));
        }
    }

    /// As [`prepare`](Self::prepare), as step `step` of work that runs for several heads or experts at once, for rows whose
    /// row in the batch is `name_row` of their own.
    pub(crate) fn prepare_within(
        &self,
        x: &mut Rows,
        quants: &[Quant],
        what: &'static str,
        (faults, step): (&Faults, u32),
        name_row: impl Fn(usize) -> usize,
    ) {
        let stage = faults.stage_within(step);
        self.quantise(x, quants).into_iter().for_each(|row| faults.note(stage, name_row(row), what));
    }

    /// Rows of `x` that could not be quantised.
    fn quantise(&self, x: &mut Rows, quants: &[Quant]) -> Vec<usize> {
        let mut bad = Vec::new();
        if self.precision == Precision::Fast {
            for family in quants.iter().filter_map(|quant| quant.family()) {
                x.prepare(self.cpu, family, &mut bad);
            }
        }
        bad
    }

    /// Runs the jobs, which all have the same number n of activation rows, into `out`, `[sum of weight rows][n]`.
    pub(crate) fn matmuls(&self, jobs: &[Job<'_>], out: &mut [f32], faults: &Faults) {
        let stage = faults.stage();
        let rows = jobs.iter().map(|job| job.w.rows()).sum();
        let cost = jobs.iter().map(|job| job.cost(job.w.rows())).sum();
        let span = Span { from: 0, to: rows, cost, parts: self.parts(cost) };
        self.split(jobs, span, out, &Sink { faults, stage });
    }

    fn split(&self, jobs: &[Job<'_>], span: Span, out: &mut [f32], sink: &Sink<'_>) {
        let Span { from, to, cost, parts } = span;
        if parts <= 1 || to - from < 2 {
            return self.leaf(jobs, span, out, sink);
        }
        let left_parts = parts / 2;
        let (mid, left_cost) = cut(jobs, from, to, cost * left_parts as u64 / parts as u64);
        let (left_out, right_out) = out.split_at_mut((mid - from) * jobs[0].x.n());
        let left = Span { from, to: mid, cost: left_cost, parts: left_parts };
        let right = Span { from: mid, to, cost: cost - left_cost, parts: parts - left_parts };
        rayon::join(|| self.split(jobs, left, left_out, sink), || self.split(jobs, right, right_out, sink));
    }

    fn leaf(&self, jobs: &[Job<'_>], span: Span, out: &mut [f32], sink: &Sink<'_>) {
        let Span { from, to, .. } = span;
        let mut first = 0;
        let mut rest = out;
        for (i, job) in jobs.iter().enumerate() {
            let rows = job.w.rows();
            let (lo, hi) = (from.max(first) - first, to.min(first + rows).saturating_sub(first));
            first += rows;
            if lo >= hi {
                continue;
            }
            let (mine, behind) = rest.split_at_mut((hi - lo) * job.x.n());
            rest = behind;
            self.product(job, lo..hi, mine);
            if !all_finite(mine) {
                sink.faults.note_columns(sink.stage + i as u32, mine, job.x.n(), job.what);
            }
        }
    }

    fn product(&self, job: &Job<'_>, rows: std::ops::Range<usize>, out: &mut [f32]) {
        let w = job.w.rows_range(rows);
        // One row of activations with f32 weights is the dot product of the f32 side, bit for bit, and needs no copy of
        // the weights: the mixing matrices and routers of a decoded token were a tenth of the demo's time as copies.
        if job.x.n() == 1
            && w.quant() == Quant::F32
            && w.cols() == job.x.cols()
            && let Ok(weights) = bytemuck::try_cast_slice(w.bytes())
        {
            return self.cpu.dot_rows(job.x.row(0), weights, out);
        }
        self.cpu
            .matmul(job.precision, w, job.x, out)
            .expect("shapes are checked when weights are claimed, and rows are prepared before a product");
    }

    /// One product on this thread, as step `step` of work that runs for several heads or experts at once, noting faults
    /// for activation rows whose row in the batch is `name_row` of their own.
    pub(crate) fn serial(
        &self,
        job: &Job<'_>,
        out: &mut [f32],
        (faults, step): (&Faults, u32),
        name_row: impl Fn(usize) -> usize,
    ) {
        self.product(job, 0..job.w.rows(), out);
        if !all_finite(out) {
            let (stage, n) = (faults.stage_within(step), job.x.n());
            (0..n)
                .filter(|t| column_is_bad(out, n, *t))
                .for_each(|t| faults.note(stage, name_row(t), job.what));
        }
    }
}

/// A range of the weight rows of all jobs, and how to cut it further.
#[derive(Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
    cost: u64,
    parts: usize,
}

struct Sink<'a> {
    faults: &'a Faults,
    stage: u32,
}

/// A row to cut at so that about `target` of the cost lies before it, and the cost that does.
fn cut(jobs: &[Job<'_>], from: usize, to: usize, target: u64) -> (usize, u64) {
    /// Kernels take several weight rows at a time.
    const ALIGN: usize = 8;
    let (mut first, mut before, mut mid) = (0, 0, to - 1);
    for job in jobs {
        let rows = job.w.rows();
        let (lo, hi) = (from.max(first), to.min(first + rows));
        if lo < hi {
            let cost = job.cost(hi - lo);
            if before + cost >= target {
                let wanted = ((target - before) / job.cost(1).max(1)) as usize;
                let aligned = wanted / ALIGN * ALIGN;
                mid = lo + if aligned == 0 { wanted } else { aligned };
                before += job.cost(mid - lo);
                break;
            }
            before += cost;
        }
        first += rows;
    }
    // Both sides get something, so that the recursion ends.
    let clamped = mid.clamp(from + 1, to - 1);
    if clamped == mid { (mid, before) } else { (clamped, span_cost(jobs, from, clamped)) }
}

fn span_cost(jobs: &[Job<'_>], from: usize, to: usize) -> u64 {
    let mut first = 0;
    let mut cost = 0;
    for job in jobs {
        let rows = job.w.rows();
        cost += job.cost(to.min(first + rows).saturating_sub(from.max(first)));
        first += rows;
    }
    cost
}

/// Whether no value is NaN or infinite. Integer compares: a float reduction would be one serial chain.
pub(crate) fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    !values.iter().fold(false, |bad, value| bad | (value.to_bits() & EXPONENT == EXPONENT))
}

fn column_is_bad(values: &[f32], n: usize, t: usize) -> bool {
    values.iter().skip(t).step_by(n).any(|value| !value.is_finite())
}

/// Distance of two stages.
const STAGE: u32 = 1 << 10;

/// Batch rows that met NaN or infinity, with the earliest stage at which each did.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    any: AtomicBool,
    stages: AtomicU32,
    notes: Mutex<Vec<Note>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    stage: u32,
    pub(crate) row: usize,
    pub(crate) what: &'static str,
}

impl Faults {
    /// A number above all earlier ones, with room for the jobs of one fork.
    pub(crate) fn stage(&self) -> u32 {
        self.stages.fetch_add(STAGE, Ordering::Relaxed)
    }

    /// The number of a step of work that several threads do at once, between that of what came before and that of what
    /// follows. It is the same on every thread: which note is the first must not depend on who was faster.
    fn stage_within(&self, step: u32) -> u32 {
        (self.stages.load(Ordering::Relaxed) + step).saturating_sub(STAGE / 2)
    }

    pub(crate) fn note(&self, stage: u32, row: usize, what: &'static str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(Note { stage, row, what });
        self.any.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn note_columns(&self, stage: u32, values: &[f32], n: usize, what: &'static str) {
        (0..n).filter(|t| column_is_bad(values, n, *t)).for_each(|t| self.note(stage, t, what));
    }

    /// Notes every row of `values`, `[rows][width]`, that is not finite.
    pub(crate) fn check_rows(&self, values: &[f32], width: usize, what: &'static str) {
        if !all_finite(values) {
            let stage = self.stage();
            let rows = values.chunks_exact(width).enumerate();
            rows.filter(|(_, row)| !all_finite(row)).for_each(|(t, _)| self.note(stage, t, what));
        }
    }

    /// Takes the notes, earliest first. Called between forks.
    pub(crate) fn take(&self) -> Vec<Note> {
        self.stages.store(0, Ordering::Relaxed);
        if !self.any.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let mut notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        notes.sort_by_key(|note| (note.stage, note.row));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin()).collect()
    }

    /// The short cut for f32 weights, at every split of the work, has the bits of the product it stands for.
    #[test]
    fn one_row_of_f32_weights_has_the_bits_of_the_product() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for (rows, cols) in [(1, 1), (24, 1024), (16, 256), (7, 300), (5, 33), (300, 2048), (3, 513)] {
            let weights = wave(rows * cols, 0.7);
            let w = Matrix::new(Quant::F32, rows, cols, bytemuck::cast_slice(&weights)).unwrap();
            let mut x = Rows::new();
            x.reset(1, cols).copy_from_slice(&wave(cols, 1.3));
            for cpu in [Cpu::scalar(), Cpu::detect()] {
                let mut expected = vec![0.0; rows];
                Cpu::scalar().matmul(Precision::Exact, w, &x, &mut expected).unwrap();
                let lanes = Lanes { cpu, precision: Precision::Exact, threads: 2 };
                let mut out = vec![0.0; rows];
                let faults = Faults::default();
                pool.install(|| lanes.matmuls(&[lanes.job(w, &x, "w")], &mut out, &faults));
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&out), bits(&expected), "{rows} x {cols}");
                assert!(faults.take().is_empty());
            }
        }
    }

    /// Every part of the work is done once, whatever the sizes of the jobs.
    #[test]
    fn jobs_of_any_size_are_cut_into_whole_parts() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let weights: Vec<Vec<f32>> = [1, 700, 3, 64, 1999].iter().map(|rows| wave(rows * 64, 0.3)).collect();
        let mut x = Rows::new();
        x.reset(5, 64).copy_from_slice(&wave(5 * 64, 0.11));
        let matrices: Vec<Matrix<'_>> = weights
            .iter()
            .map(|w| Matrix::new(Quant::F32, w.len() / 64, 64, bytemuck::cast_slice(w)).unwrap())
            .collect();
        for threads in [1, 2, 3, 16] {
            let lanes = Lanes { cpu: Cpu::detect(), precision: Precision::Fast, threads };
            let jobs: Vec<Job<'_>> = matrices.iter().map(|w| lanes.job(*w, &x, "w")).collect();
            let mut out = vec![f32::NAN; 5 * matrices.iter().map(Matrix::rows).sum::<usize>()];
            pool.install(|| lanes.matmuls(&jobs, &mut out, &Faults::default()));
            let mut rest = &out[..];
            for w in &matrices {
                let mut expected = vec![0.0; 5 * w.rows()];
                lanes.cpu.matmul(Precision::Fast, *w, &x, &mut expected).unwrap();
                assert_eq!(rest[..expected.len()], expected);
                rest = &rest[expected.len()..];
            }
        }
    }

    /// A fault is named by the job and the row in which it first appeared.
    #[test]
    fn the_earliest_fault_of_a_row_comes_first() {
        let mut weights = wave(8 * 32, 0.3);
        let sound = weights.clone();
        weights[3 * 32] = f32::INFINITY;
        let matrix = |w| Matrix::new(Quant::F32, 8, 32, bytemuck::cast_slice(w)).unwrap();
        let mut x = Rows::new();
        x.reset(3, 32).copy_from_slice(&wave(3 * 32, 0.11));
        let lanes = Lanes { cpu: Cpu::scalar(), precision: Precision::Exact, threads: 1 };
        let faults = Faults::default();
        let jobs = [lanes.job(matrix(&sound), &x, "sound"), lanes.job(matrix(&weights), &x, "broken")];
        let mut out = vec![0.0; 2 * 8 * 3];
        lanes.matmuls(&jobs, &mut out, &faults);
        faults.note(faults.stage(), 1, "later");
        let notes = faults.take();
        assert_eq!(notes.iter().map(|note| note.row).collect::<Vec<_>>(), [0, 1, 2, 1]);
        assert_eq!((notes[0].what, notes[3].what), ("broken", "later"));
        assert!(faults.take().is_empty());
    }
}
