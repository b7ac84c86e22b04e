//! A device against the CPU far into a context: both go on from the same made-up state.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use glm_graph::{
    Checkpoint, CpuExecutor, CpuOptions, CudaExecutor, CudaOptions, Executor, Input, Kv, Model, SeqId, Step,
    Want,
};
use quant_kernels::Precision;
use quant_kernels::cuda::StoreOptions;

use super::cuda::{DEVICE, different, logits, scored};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "cuda";
/// Tokens that are fed one by one, then as a span, then one by one again, together with sequences that have hardly begun.
const STEPS: usize = 3;
/// Tokens that these have.
const OTHERS: [usize; 2] = [5, 9];
const SPAN: usize = 70;
const SEED: u64 = 17;

/// Compares every row behind `depth` tokens, latents of half precision.
pub fn run(path: &Path, depth: usize, store: &StoreOptions, table: &mut Table) -> Result<()> {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let model = gguf::Model::open(path)?;
    let model = Model::load(model).with_context(|| format!("{} cannot be used", path.display()))?;
    let (model, kv, ctx) = (Arc::new(model), Kv::F16, depth + SPAN + 2 * STEPS);
    let options = CudaOptions {
        device: DEVICE,
        kv,
        ctx,
        sequences: 1 + OTHERS.len(),
        vram: None,
        span: None,
        store: store.clone(),
    };
    let mut device = CudaExecutor::new(Arc::clone(&model), options, &mut |_| ())?;
    let options = CpuOptions { precision: Precision::Fast, kv, threads: None, ctx, isa: None, tiers: None };
    let mut cpu = CpuExecutor::new(Arc::clone(&model), options)?;
    let state = Checkpoint::random(&model, kv, depth, SEED)?;
    let (mine, theirs) = (device.open_sequence()?, cpu.open_sequence()?);
    device.restore(mine, &state)?;
    cpu.restore(theirs, &state)?;
    drop(state);
    let token = |i: usize| (i * 7919 % model.vocab()) as u32;
    let mut differing = [0; 3];
    for i in 0..STEPS {
        differing[0] +=
            different(&logits(&mut cpu, theirs, token(i))?, &logits(&mut device, mine, token(i))?);
    }
    let span: Vec<u32> = (0..SPAN).map(|i| token(STEPS + i)).collect();
    differing[1] = different(&scored(&mut cpu, theirs, &span)?, &scored(&mut device, mine, &span)?);
    let mut pairs = vec![(mine, theirs)];
    for len in OTHERS {
        let (mine, theirs) = (device.open_sequence()?, cpu.open_sequence()?);
        device.prefill(mine, &span[..len])?;
        cpu.prefill(theirs, &span[..len])?;
        pairs.push((mine, theirs));
    }
    for i in 0..STEPS {
        let step = |(at, (seq, _)): (usize, &(SeqId, SeqId))| Step {
            seq: *seq,
            input: Input::Token(token(i + at)),
            want: Want::Logits,
        };
        let steps: Vec<Step> = pairs.iter().enumerate().map(step).collect();
        let ticket = device.submit(&steps)?;
        for (at, row) in device.poll(ticket)?.into_iter().enumerate() {
            let expected = logits(&mut cpu, pairs[at].1, token(i + at))?;
            differing[2] += different(&expected, &row.logits.unwrap_or_default());
        }
    }
    for (what, differing) in ["steps", "a span", "steps together with others"].iter().zip(differing) {
        let what = format!("{what} behind {depth} tokens");
        table.at_most(LEVEL, &name, what, differing as f64, limit("cuda.bits")?, "");
    }
    Ok(())
}
