//! Passes with steps of several sequences against each sequence alone on the CPU.

use anyhow::{Context, Result, bail};
use glm_graph::{
    CpuExecutor, CudaExecutor, ExecError, Executor, Input, SamplerParams, SeqId, Step, StepRow, Want, probe,
};

/// Sequences of the largest passes.
pub const SEQUENCES: usize = 8;
/// How many sequences step together, in turn.
const TOGETHER: [usize; 6] = [8, 2, 5, 8, 3, 7];
/// Steps with sampled tokens.
const SAMPLED: usize = 10;

/// A sequence on the device and the same one on the CPU.
struct Pair {
    device: SeqId,
    cpu: SeqId,
    next: u32,
}

/// What was compared, and how many values differ.
pub type Differing = Vec<(&'static str, usize)>;

/// Sequences of different lengths, cut from `tokens`, step together in several ways.
pub fn run(cpu: &mut CpuExecutor, device: &mut CudaExecutor, tokens: &[u32]) -> Result<Differing> {
    let mut pairs = Vec::new();
    for at in 0..SEQUENCES {
        // From a token to all of them, an odd and an even number at a time.
        let len = (tokens.len() * (at * at + 1) / (SEQUENCES * SEQUENCES)).clamp(1, tokens.len());
        let first = at * 3 % (tokens.len() - len + 1);
        let (mine, theirs) = (device.open_sequence()?, cpu.open_sequence()?);
        let fed = &tokens[first..first + len];
        device.prefill(mine, fed)?;
        cpu.prefill(theirs, fed)?;
        pairs.push(Pair { device: mine, cpu: theirs, next: tokens[(first + 7 * at) % tokens.len()] });
    }
    let logits = logits(cpu, device, &mut pairs)?;
    let found = vec![
        ("passes of all of them", usize::from(device.graph_nodes(SEQUENCES).is_none())),
        ("logits of steps together", logits),
        ("tokens sampled together", sampled(cpu, device, &pairs)?),
        ("a step undone among others", undone(cpu, device, &pairs)?),
        ("saved states after steps together", saved(cpu, device, &pairs)?),
        ("rows beside one with a NaN", poisoned(cpu, device, &pairs)?),
    ];
    for pair in pairs {
        device.close_sequence(pair.device)?;
        cpu.close_sequence(pair.cpu)?;
    }
    Ok(found)
}

fn bits(row: &StepRow) -> impl Iterator<Item = u32> {
    row.logits.iter().flatten().map(|logit| logit.to_bits())
}

/// Values that differ; a row that has none where the other has some counts as one.
fn different(a: &StepRow, b: &StepRow) -> usize {
    let lengths = usize::from(a.logits.as_ref().map(Vec::len) != b.logits.as_ref().map(Vec::len));
    let values = bits(a).zip(bits(b)).filter(|(a, b)| a != b).count();
    lengths + values + usize::from(a.token != b.token)
}

fn of(seq: SeqId, input: Input, want: &Want) -> Step {
    Step { seq, input, want: want.clone() }
}

fn alone(exec: &mut dyn Executor, step: Step) -> Result<StepRow> {
    let ticket = exec.submit(&[step])?;
    exec.poll(ticket)?.pop().context("a step has one answer")
}

/// Given tokens, several numbers of sequences.
fn logits(cpu: &mut CpuExecutor, device: &mut CudaExecutor, pairs: &mut [Pair]) -> Result<usize> {
    let mut differing = 0;
    for (turn, n) in TOGETHER.into_iter().enumerate() {
        pairs.rotate_left(turn);
        let some = &mut pairs[..n];
        let step = |seq, pair: &Pair| of(seq, Input::Token(pair.next), &Want::Logits);
        let steps: Vec<Step> = some.iter().map(|pair| step(pair.device, pair)).collect();
        let ticket = device.submit(&steps)?;
        for (pair, found) in some.iter_mut().zip(device.poll(ticket)?) {
            let expected = alone(cpu, step(pair.cpu, pair))?;
            differing += different(&expected, &found) + usize::from(found.error.is_some());
            let best = expected.logits.unwrap_or_default();
            pair.next = super::cuda::argmax(&best);
        }
    }
    Ok(differing)
}

/// Each sequence with its own way of drawing, a pass ahead.
fn sampled(cpu: &mut CpuExecutor, device: &mut CudaExecutor, pairs: &[Pair]) -> Result<usize> {
    let wants: Vec<Want> = (0..pairs.len())
        .map(|at| {
            Want::Sample(SamplerParams {
                temperature: [0.0, 1.0, 0.7, 1.3][at % 4],
                top_k: [0, 0, 40][at % 3],
                presence_penalty: if at % 5 == 2 { 0.3 } else { 0.0 },
                banned: if at == 3 { [pairs[at].next].into() } else { [].into() },
                seed: at as u64,
                ..SamplerParams::default()
            })
        })
        .collect();
    let steps = |input: fn(&Pair) -> Input| -> Vec<Step> {
        pairs.iter().zip(&wants).map(|(pair, want)| of(pair.device, input(pair), want)).collect()
    };
    let mut ticket = device.submit(&steps(|pair| Input::Token(pair.next)))?;
    let mut differing = 0;
    for turn in 0..SAMPLED {
        let ahead = device.submit(&steps(|_| Input::LastSampled))?;
        for ((pair, want), found) in pairs.iter().zip(&wants).zip(device.poll(ticket)?) {
            let input = if turn == 0 { Input::Token(pair.next) } else { Input::LastSampled };
            differing += different(&alone(cpu, of(pair.cpu, input, want))?, &found);
        }
        ticket = ahead;
    }
    // The last pass ran ahead for all of them.
    for pair in pairs {
        device.undo(pair.device)?;
    }
    if device.poll(ticket).is_ok() {
        bail!("a pass of which every step was undone has an answer");
    }
    Ok(differing)
}

/// One step of a pass that ran ahead is undone, and made again with others.
fn undone(cpu: &mut CpuExecutor, device: &mut CudaExecutor, pairs: &[Pair]) -> Result<usize> {
    let greedy = Want::Sample(SamplerParams::greedy());
    let both = Want::Both(SamplerParams::greedy());
    let steps = |want: &Want| -> Vec<Step> {
        pairs.iter().map(|pair| of(pair.device, Input::LastSampled, want)).collect()
    };
    let (first, second) = (device.submit(&steps(&greedy))?, device.submit(&steps(&greedy))?);
    device.undo(pairs[2].device)?;
    let mut differing = 0;
    for (ticket, misses) in [(first, usize::MAX), (second, 2)] {
        for (at, found) in device.poll(ticket)?.into_iter().enumerate() {
            if at == misses {
                differing += usize::from(found.error != Some(ExecError::Undone(pairs[2].device)));
            } else {
                differing += different(&alone(cpu, of(pairs[at].cpu, Input::LastSampled, &greedy))?, &found);
            }
        }
    }
    let ticket = device.submit(&steps(&both))?;
    for (pair, found) in pairs.iter().zip(device.poll(ticket)?) {
        differing += different(&alone(cpu, of(pair.cpu, Input::LastSampled, &both))?, &found);
    }
    Ok(differing)
}

fn saved(cpu: &CpuExecutor, device: &CudaExecutor, pairs: &[Pair]) -> Result<usize> {
    let mut differing = 0;
    for pair in pairs {
        differing += usize::from(device.save(pair.device)? != cpu.save(pair.cpu)?);
    }
    Ok(differing)
}

/// A sequence whose state has a NaN fails, and the others of its pass do not notice.
fn poisoned(cpu: &mut CpuExecutor, device: &mut CudaExecutor, pairs: &[Pair]) -> Result<usize> {
    const BAD: usize = 4;
    let mut state = device.save(pairs[BAD].device)?;
    probe::poison(&mut state);
    device.restore(pairs[BAD].device, &state)?;
    let want = Want::Both(SamplerParams::greedy());
    let mut differing = 0;
    for turn in 0..3 {
        let input = |pair: &Pair| if turn == 0 { Input::Token(pair.next) } else { Input::LastSampled };
        let some: Vec<&Pair> = pairs
            .iter()
            .enumerate()
            .filter(|(at, _)| turn == 0 || *at != BAD)
            .map(|(_, pair)| pair)
            .collect();
        let steps: Vec<Step> = some.iter().map(|pair| of(pair.device, input(pair), &want)).collect();
        let ticket = device.submit(&steps)?;
        for (pair, found) in some.iter().zip(device.poll(ticket)?) {
            if pair.device == pairs[BAD].device {
                let failed =
                    matches!(&found.error, Some(ExecError::NotFinite { seq, .. }) if *seq == pair.device);
                differing += usize::from(!failed);
            } else {
                differing += different(&alone(cpu, of(pair.cpu, input(pair), &want))?, &found);
            }
        }
    }
    // Until it is restored.
    let refused = device.submit(&[of(pairs[BAD].device, Input::Token(0), &Want::Logits)]);
    Ok(differing + usize::from(refused != Err(ExecError::Broken(pairs[BAD].device))))
}
