//! The demo model's own text on both: the CPU writes it, a device is fed the same tokens.

use std::sync::Arc;

use anyhow::Result;
use glm_graph::{CpuExecutor, CpuOptions, CudaExecutor, CudaOptions, Executor, Kv, Model};
use quant_kernels::Precision;
use quant_kernels::cuda::StoreOptions;

use super::cuda::{DEVICE, argmax, different, logits, scored};
use super::table::Table;
use super::tolerance::limit;
use crate::demo;

const LEVEL: &str = "cuda";
/// Where logits differed, the best token could differ where the second is closer than this; how often that is the note says. Equal
/// bits leave no room for it, nor for a distance between the distributions.
const GAP: f32 = 0.05;

/// Feeds `tokens` tokens of the CPU's greedy text to a device; compares every row of logits.
pub fn run(tokens: usize, store: &StoreOptions, table: &mut Table) -> Result<()> {
    let model = Arc::new(Model::load(gguf::Model::from_static(demo::NAME, demo::bytes())?)?);
    let (kv, ctx) = (Kv::F16, tokens + 1);
    let options = CpuOptions { precision: Precision::Fast, kv, threads: None, ctx, isa: None, tiers: None };
    let mut cpu = CpuExecutor::new(Arc::clone(&model), options)?;
    let options =
        CudaOptions { device: DEVICE, kv, ctx, sequences: 1, vram: None, span: None, store: store.clone() };
    let mut device = CudaExecutor::new(Arc::clone(&model), options, &mut |_| ())?;

    let theirs = cpu.open_sequence()?;
    let (mut text, mut expected, mut next) = (Vec::new(), Vec::new(), 1);
    for _ in 0..tokens {
        text.push(next);
        let row = logits(&mut cpu, theirs, next)?;
        next = argmax(&row);
        expected.extend(row);
    }
    let mine = device.open_sequence()?;
    let found = scored(&mut device, mine, &text)?;
    let close = expected.chunks_exact(model.vocab()).filter(|row| gap(row) <= GAP).count();
    let note = format!("{close} of {tokens} best logits are within {GAP} of the second");
    let differing = different(&expected, &found);
    table.at_most(LEVEL, "demo", "logits of its own text", differing as f64, limit("cuda.bits")?, note);
    Ok(())
}

/// How far the best logit is above the second.
fn gap(row: &[f32]) -> f32 {
    let (first, second) =
        row.iter().fold((f32::NEG_INFINITY, f32::NEG_INFINITY), |(first, second), logit| {
            if *logit > first { (*logit, first) } else { (first, second.max(*logit)) }
        });
    first - second
}

#[cfg(test)]
mod tests {
    use super::gap;

    #[test]
    fn gaps() {
        assert_eq!((gap(&[1.0, 4.0, 3.0]), gap(&[4.0, 3.5, 1.0]), gap(&[2.0, 2.0])), (1.0, 0.5, 0.0));
    }
}
