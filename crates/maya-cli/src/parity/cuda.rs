//! Level `cuda`: a device against the CPU, bit for bit: products of every format, whole prompts of every model, decoding,
//! and sequences that move between the two.

use std::path::Path;

use anyhow::Result;
use glm_graph::probe::DeviceProducts;
use glm_graph::{CpuExecutor, CudaExecutor, CudaOptions, ExecError, Executor, Input, Kv, Step, Want};
use quant_kernels::cuda::StoreOptions;
use quant_kernels::{Cpu, Matrix, Precision, Quant, Rows};

use super::cuda_batch;
use super::golden::{Fixtures, Golden};
use super::subject::{Loaded, SUBJECTS};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "cuda";
/// Tokens of context: the longest prompt and what is decoded after it.
const CTX: usize = 640;
/// Tokens that are decoded after each prompt.
const DECODED: usize = 12;
/// Lengths in which a prompt is fed in turn: whole spans, parts of one, and single tokens.
const PIECES: [usize; 6] = [64, 1, 4, 5, 37, 1];
/// How much is compared.
pub(super) struct Extent {
    /// Tokens of the longest prompt.
    prompt: usize,
    /// Tokens of a span, so that long prompts take several.
    span: usize,
    /// One of so many draws.
    pub draws: u64,
    /// Tokens of the demo model's own text.
    text: usize,
    /// Which of the models; none named are all.
    subjects: &'static [&'static str],
}

const FULL: Extent = Extent { prompt: usize::MAX, span: 96, draws: 1, text: 512, subjects: &[] };
/// A model of each kind of weights and both families of sizes; and the one that is compared with latents of both types.
const BRIEF_SUBJECTS: [&str; 4] = ["tiny-a.f32", "tiny-a.q8_0", FLOAT_LATENTS, "tiny-b.maya"];
const FLOAT_LATENTS: &str = "tiny-a.maya";
/// Every kernel and every way through the executor, but little of each: for a device that is emulated.
const BRIEF: Extent = Extent { prompt: 64, span: 24, draws: 100, text: 24, subjects: &BRIEF_SUBJECTS };
/// The device of the comparisons.
pub(super) const DEVICE: u32 = 0;

/// Compares everything, or says why there is nothing to compare.
///
/// `deep` is a model that is compared behind so many tokens.
pub fn run(fixtures: &Fixtures, brief: bool, deep: Option<(&Path, usize)>, table: &mut Table) -> Result<()> {
    let extent = if brief { BRIEF } else { FULL };
    let store = StoreOptions::from_environment(crate::cmd::kernels::PACK)?;
    let mut products = match DeviceProducts::open(DEVICE, store.clone()) {
        Ok(products) => products,
        Err(error) => {
            table.skipped(LEVEL, "all", error.to_string());
            return Ok(());
        }
    };
    for quant in Quant::ALL {
        let golden = fixtures.golden(&format!("quant/{}.safetensors", quant.name()))?;
        if let Some(golden) = golden.filter(|_| quant.family().is_some()) {
            let differing = differing_products(quant, &mut products, &golden)?;
            table.at_most(LEVEL, "products", quant.name(), differing as f64, limit("cuda.bits")?, "");
        }
    }
    drop(products);
    super::cuda_draw::run(DEVICE, &store, &extent, table)?;
    super::cuda_forced::run(extent.text, &store, table)?;
    if let Some((file, depth)) = deep {
        super::cuda_deep::run(file, depth, &store, table)?;
    }
    for subject in &SUBJECTS {
        if !(extent.subjects.is_empty() || extent.subjects.contains(&subject.name)) {
            continue;
        }
        let Some(loaded) = subject.load(LEVEL, fixtures, table)? else { continue };
        let both = !brief || subject.name == FLOAT_LATENTS;
        for kv in [Kv::F16, Kv::F32].into_iter().filter(|kv| both || *kv == Kv::F16) {
            let options = CudaOptions {
                device: DEVICE,
                kv,
                ctx: CTX,
                sequences: cuda_batch::SEQUENCES,
                vram: None,
                span: Some(extent.span),
                store: store.clone(),
            };
            let mut device = CudaExecutor::new(loaded.model.clone(), options, &mut |_| ())?;
            let mut cpu = loaded.executor(Precision::Fast, kv)?;
            for prompt in loaded.golden.prompts().into_iter().filter(|length| *length <= extent.prompt) {
                compare(&loaded, prompt, kv, &mut cpu, &mut device, table)?;
            }
            let longest = loaded.golden.prompts().into_iter().filter(|length| *length <= extent.prompt).max();
            let longest = longest.unwrap_or(0);
            let tokens = loaded.golden.tokens(&format!("p{longest}.tokens"))?;
            for (what, differing) in cuda_batch::run(&mut cpu, &mut device, &tokens)? {
                let what = format!("{what}, latents {kv:?}").to_lowercase();
                table.at_most(LEVEL, subject.name, what, differing as f64, limit("cuda.bits")?, "");
            }
        }
    }
    Ok(())
}

/// Row lengths that leave remainders of everything that a device takes at once.
const COLS: [usize; 12] = [32, 64, 96, 160, 256, 512, 768, 1536, 2048, 4096, 8192, 12_288];

/// Products that differ, over all row lengths.
fn differing_products(quant: Quant, device: &mut DeviceProducts, golden: &Golden) -> Result<usize> {
    let bytes = golden.u8s("raw")?;
    let mut differing = 0;
    for cols in COLS {
        let Some(row_bytes) = quant.row_bytes(cols) else { continue };
        // The golden blocks, one behind the other, as often as rows of this length need them.
        let rows = 37;
        let weights: Vec<u8> = bytes.iter().copied().cycle().take(rows * row_bytes).collect();
        let matrix = Matrix::new(quant, rows, cols, &weights)?;
        for kind in 0..4 {
            let x: Vec<f32> = (0..cols).map(|i| activation(kind, i)).collect();
            let mut inputs = Rows::new();
            inputs.reset(1, cols).copy_from_slice(&x);
            let mut bad = Vec::new();
            if let Some(family) = quant.family() {
                inputs.prepare(Cpu::detect(), family, &mut bad);
            }
            let mut expected = vec![0.0; rows];
            Cpu::detect().matmul(Precision::Fast, matrix, &inputs, &mut expected)?;
            let found = device.product(quant, rows, cols, &weights, &x)?;
            differing += different(&expected, &found);
        }
    }
    Ok(differing)
}

/// Ordinary values; ties of the largest magnitude and halves; blocks of zeros and of nearly nothing; one large value.
fn activation(kind: usize, i: usize) -> f32 {
    let wave = (i as f32 * 0.37 + kind as f32).sin();
    match kind {
        0 => wave,
        1 => (wave * 3.0).round() * 0.5,
        2 if (i / 32).is_multiple_of(3) => 0.0,
        2 => wave * 1e-31,
        _ if i % 97 == 5 => 3e4 * wave,
        _ => wave * 1e-3,
    }
}

pub(super) fn different(a: &[f32], b: &[f32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count() + a.len().abs_diff(b.len())
}

/// All rows of a prompt, then tokens decoded after it, then a copy of the sequence in the other executor.
fn compare(
    loaded: &Loaded,
    prompt: usize,
    kv: Kv,
    cpu: &mut CpuExecutor,
    device: &mut CudaExecutor,
    table: &mut Table,
) -> Result<()> {
    let tokens = loaded.golden.tokens(&format!("p{prompt}.tokens"))?;
    let name = loaded.subject.name;
    let mut row = |what: String, differing: usize| -> Result<()> {
        let what = format!("p{prompt} {what}, latents {kv:?}").to_lowercase();
        table.at_most(LEVEL, name, what, differing as f64, limit("cuda.bits")?, "");
        Ok(())
    };
    let mine = device.open_sequence()?;
    let theirs = cpu.open_sequence()?;
    let found = scored(device, mine, &tokens)?;
    let expected = scored(cpu, theirs, &tokens)?;
    row("logits".to_owned(), different(&expected, &found))?;

    // However a prompt is cut, and whichever kernels take it, the state is the same.
    let cut = device.open_sequence()?;
    let mut left = &tokens[..];
    for piece in PIECES.into_iter().cycle() {
        let (now, later) = left.split_at(piece.min(left.len()));
        if piece == 1 {
            now.iter().try_for_each(|token| logits(device, cut, *token).map(drop))?;
        } else {
            device.prefill(cut, now)?;
        }
        left = later;
        if left.is_empty() {
            break;
        }
    }
    row("saved states of a cut prompt".to_owned(), usize::from(device.save(cut)? != device.save(mine)?))?;
    device.close_sequence(cut)?;

    let mut next = argmax(&expected[expected.len() - cpu.vocab()..]);
    let mut differing = 0;
    for _ in 0..DECODED {
        let expected = logits(cpu, theirs, next)?;
        differing += different(&expected, &logits(device, mine, next)?);
        next = argmax(&expected);
    }
    row("decoded logits".to_owned(), differing)?;
    row("tokens of steps ahead".to_owned(), super::cuda_draw::steps_ahead(cpu, theirs, device, mine, next)?)?;

    // A sequence that is saved on one and restored on the other goes on as if nothing had happened.
    let (from_device, from_cpu) = (device.save(mine)?, cpu.save(theirs)?);
    row("saved states".to_owned(), usize::from(from_device != from_cpu))?;
    device.restore(mine, &from_cpu)?;
    cpu.restore(theirs, &from_device)?;
    row("after a swap".to_owned(), different(&logits(cpu, theirs, next)?, &logits(device, mine, next)?))?;
    device.close_sequence(mine)?;
    cpu.close_sequence(theirs)?;
    Ok(())
}

pub(super) fn scored(
    exec: &mut dyn Executor,
    seq: glm_graph::SeqId,
    tokens: &[u32],
) -> Result<Vec<f32>, ExecError> {
    let mut all = Vec::new();
    exec.score(seq, tokens, &mut |_, logits| all.extend_from_slice(logits))?;
    Ok(all)
}

pub(super) fn logits(
    exec: &mut dyn Executor,
    seq: glm_graph::SeqId,
    token: u32,
) -> Result<Vec<f32>, ExecError> {
    let ticket = exec.submit(&[Step { seq, input: Input::Token(token), want: Want::Logits }])?;
    let row = exec.poll(ticket)?.remove(0);
    match row.error {
        Some(error) => Err(error),
        None => Ok(row.logits.unwrap_or_default()),
    }
}

pub(super) fn argmax(logits: &[f32]) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (i, logit)| if *logit > best.1 { (i, *logit) } else { best });
    best.0 as u32
}
