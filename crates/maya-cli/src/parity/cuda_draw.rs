//! Draws of a device against the CPU's: from given logits, and in steps that run ahead.

use anyhow::{Context, Result};
use glm_graph::probe::DeviceSampler;
use glm_graph::{CudaExecutor, Executor, Input, Sampler, SamplerParams, SeqId, Step, Want};
use quant_kernels::cuda::StoreOptions;

use super::cuda::Extent;
use super::table::Table;
use super::tolerance::limit;
use crate::random::Pcg64;

/// Vocabularies, the published model's first, and how many rows of each are drawn from: 10,000.
const ROWS: [(usize, u64); 4] = [(154_880, 1_000), (5_000, 4_000), (1_025, 3_000), (37, 2_000)];
/// How far the number that is drawn may be from where the token would be another.
const BOUNDARY: f64 = 1e-6;

/// Tokens that differ, among all rows and among those that are not near a boundary.
pub(super) fn run(device: u32, store: &StoreOptions, extent: &Extent, table: &mut Table) -> Result<()> {
    let mut cpu = Sampler::default();
    for (vocab, rows) in ROWS {
        let rows = rows / extent.draws;
        let mut sampler = DeviceSampler::open(device, store.clone(), vocab)?;
        let (mut differing, mut near) = (0, 0);
        for seed in 0..rows {
            let mut random = Random(Pcg64::new(seed + vocab as u64));
            let logits = logits(&mut random, vocab);
            let params = params(&mut random, vocab);
            let history: Vec<u32> =
                (0..1 + random.below(300)).map(|_| random.below(vocab as u64) as u32).collect();
            let expected = cpu.sample(&logits, &history, &params);
            if sampler.sample(&logits, &history, &params)? != expected {
                differing += 1;
                near += usize::from(is_near(&mut cpu, &logits, &history, &params, expected));
            }
        }
        let note = format!("{near} of them within {BOUNDARY} of a boundary");
        let what = format!("{rows} draws from {vocab} logits");
        table.at_most("cuda", "draws", what, f64::from(differing), limit("cuda.bits")?, &note);
    }
    Ok(())
}

/// Whether the CPU itself would take another token if top-p were a little different or the logits a little hotter.
fn is_near(cpu: &mut Sampler, logits: &[f32], history: &[u32], params: &SamplerParams, token: u32) -> bool {
    [-1.0, 1.0].into_iter().any(|sign| {
        let scale = (1.0 + sign * BOUNDARY) as f32;
        let top_p = (params.top_p * scale).min(1.0);
        let temperature = params.temperature * scale;
        [SamplerParams { top_p, ..params.clone() }, SamplerParams { temperature, ..params.clone() }]
            .iter()
            .any(|params| cpu.sample(logits, history, params) != token)
    })
}

/// Sequences of both executors that stand at the same place go on from `token`: tokens that differ, and what is left after the
/// device's last step was undone.
pub fn steps_ahead(
    cpu: &mut dyn Executor,
    theirs: SeqId,
    device: &mut CudaExecutor,
    mine: SeqId,
    token: u32,
) -> Result<usize> {
    const STEPS: usize = 16;
    let params = SamplerParams {
        temperature: 1.3,
        presence_penalty: 0.2,
        penalty_last_n: 9,
        logit_bias: vec![(3, 0.5)],
        ..SamplerParams::default()
    };
    let run = |exec: &mut dyn Executor, seq| -> Result<Vec<u32>> {
        let saved = exec.save(seq)?;
        let step = |input| Step { seq, input, want: Want::Sample(params.clone()) };
        let mut tokens = Vec::new();
        let mut ticket = exec.submit(&[step(Input::Token(token))])?;
        for i in 0..STEPS {
            let mut ahead = exec.submit(&[step(Input::LastSampled)])?;
            if i % 3 == 1 {
                // Before the answer: the device has to take the token from the right step.
                exec.undo(seq)?;
                ahead = exec.submit(&[step(Input::LastSampled)])?;
            }
            let row = exec.poll(ticket)?.pop().context("a step has one answer")?;
            tokens.push(row.token.context("the step sampled")?);
            if i % 4 == 2 || i + 1 == STEPS {
                exec.undo(seq)?;
            }
            if i % 4 == 2 && i + 1 < STEPS {
                ahead = exec.submit(&[step(Input::LastSampled)])?;
            }
            ticket = ahead;
        }
        // One more, with logits, where the last one was undone.
        let last = Step { seq, input: Input::LastSampled, want: Want::Both(params.clone()) };
        let ticket = exec.submit(&[last])?;
        let row = exec.poll(ticket)?.pop().context("a step has one answer")?;
        tokens.push(row.token.context("the step sampled")?);
        tokens.extend(row.logits.context("logits were asked for")?.iter().map(|logit| logit.to_bits()));
        exec.restore(seq, &saved)?;
        Ok(tokens)
    };
    let (expected, found) = (run(cpu, theirs)?, run(device, mine)?);
    Ok(expected.iter().zip(&found).filter(|(a, b)| a != b).count() + expected.len().abs_diff(found.len()))
}

/// What the draws are made of.
struct Random(Pcg64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0.next()
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn unit(&mut self) -> f32 {
        (self.word() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Roughly normal.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit() - 0.5).sum::<f32>() * std::f32::consts::SQRT_2
    }
}

/// Peaked, flat, with ties, all equal, or with what no model should give.
fn logits(random: &mut Random, vocab: usize) -> Vec<f32> {
    let (kind, spread) = (random.below(8), random.of(&[0.01, 1.0, 3.0, 10.0]));
    let mut logits: Vec<f32> = (0..vocab)
        .map(|_| match kind {
            0 => (random.normal() * 4.0).round(),
            1 => -60.0 * random.unit(),
            2 => 1.5,
            _ => random.normal() * spread,
        })
        .collect();
    if kind >= 4 {
        let odd = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 3e38, -3e38, -0.0];
        for _ in 0..6 {
            let at = random.below(vocab as u64) as usize;
            logits[at] = if kind == 4 { random.of(&odd) } else { logits[at] + 12.0 + random.unit() };
        }
    }
    logits
}

fn params(random: &mut Random, vocab: usize) -> SamplerParams {
    let mut params = SamplerParams {
        temperature: random.of(&[0.0, 1.0, 1.0, 1.0, 0.7, 2.0, 30.0, f32::MIN_POSITIVE, 3.4e38]),
        top_k: random.of(&[0, 0, 0, 1, 2, 40, 1000, vocab]),
        top_p: random.of(&[1.0, 0.95, 0.95, 0.5, 0.99999, 1e-30]),
        min_p: random.of(&[0.0, 0.0, 0.05, 1.0, 1e-12]),
        seed: random.word(),
        ..SamplerParams::default()
    };
    if random.below(3) == 0 {
        params.repetition_penalty = random.of(&[1.0, 1.1, 0.5, 100.0]);
        params.presence_penalty = random.of(&[0.0, 0.3, -2.0]);
        params.frequency_penalty = random.of(&[0.0, 0.07, -0.5]);
        params.penalty_last_n = random.of(&[usize::MAX, 0, 1, 64]);
    }
    if random.below(3) == 0 {
        let biases = [1.5, -100.0, f32::NEG_INFINITY, f32::MAX, 4.0];
        params.logit_bias =
            (0..random.below(30)).map(|_| (random.below(vocab as u64) as u32, random.of(&biases))).collect();
        params.banned =
            (0..random.below(vocab as u64 / 4)).map(|_| random.below(vocab as u64) as u32).collect();
    }
    params
}
