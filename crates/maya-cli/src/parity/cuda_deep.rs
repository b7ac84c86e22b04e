//! A device against the CPU far into a context: both go on from the same made-up state.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use glm_graph::{Checkpoint, CpuExecutor, CpuOptions, CudaExecutor, CudaOptions, Executor, Kv, Model};
use quant_kernels::Precision;
use quant_kernels::cuda::StoreOptions;

use super::cuda::{DEVICE, different, logits, scored};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "cuda";
/// Tokens that are fed one by one, then as a span, then one by one again.
const STEPS: usize = 3;
const SPAN: usize = 70;
const SEED: u64 = 17;

/// Compares every row behind `depth` tokens, latents of half precision.
pub fn run(path: &Path, depth: usize, store: &StoreOptions, table: &mut Table) -> Result<()> {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let model = gguf::Model::open(path)?;
    let model = Model::load(model).with_context(|| format!("{} cannot be used", path.display()))?;
    let (model, kv, ctx) = (Arc::new(model), Kv::F16, depth + SPAN + 2 * STEPS);
    let options =
        CudaOptions { device: DEVICE, kv, ctx, sequences: 1, vram: None, span: None, store: store.clone() };
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
    for i in 0..STEPS {
        differing[2] +=
            different(&logits(&mut cpu, theirs, token(i))?, &logits(&mut device, mine, token(i))?);
    }
    for (what, differing) in ["steps", "a span", "steps after it"].iter().zip(differing) {
        let what = format!("{what} behind {depth} tokens");
        table.at_most(LEVEL, &name, what, differing as f64, limit("cuda.bits")?, "");
    }
    Ok(())
}
