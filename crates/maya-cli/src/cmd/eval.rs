//! `maya eval`: greedy answers to an evaluation file, or the distance of the fast arithmetic from the exact one on it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use glm_chat::{ParseSpecial, Tokenizer};
use glm_graph::{
    CpuExecutor, CpuOptions, Executor, GenerateEvent, GenerateOptions, Model, SamplerParams, generate,
};
use serde_json::{Value as Json, json};

use super::generate::CHUNK;
use super::perplexity::{LogSoftmax, top};
use crate::args::EvalArgs;
use crate::engine::Engine;
use crate::exec::Exec;
use crate::output::Out;
use crate::progress::Progress;
use crate::source::Source;
use crate::{interrupt, text};

/// One JSON line a row, then one with the sums.
pub fn run(args: &EvalArgs) -> Result<()> {
    let rows = rows(&args.file, args.rows)?;
    let mut engine = Engine::load(&args.engine)?;
    let tokenizer = text::tokenizer(engine.model.gguf(), &engine.name, "eval")?;
    if args.kl {
        distances(args, &mut engine, &tokenizer, &rows)
    } else {
        answers(args, &mut engine, &tokenizer, &rows)
    }
}

struct Row {
    skill: String,
    prompt: Vec<u32>,
    expected: String,
}

fn rows(path: &Path, limit: Option<usize>) -> Result<Vec<Row>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name} cannot be opened"))?;
    let mut rows = Vec::new();
    for (i, line) in BufReader::new(file).lines().enumerate().take(limit.unwrap_or(usize::MAX)) {
        let at = || format!("{name} line {}", i + 1);
        let line = line.with_context(at)?;
        let value: Json = serde_json::from_str(&line).with_context(at)?;
        let ids = value["prompt_ids"].as_array().map(|ids| {
            ids.iter()
                .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
                .collect::<Option<Vec<u32>>>()
        });
        let (Some(Some(prompt)), Some(expected)) = (ids, value["expected"].as_str()) else {
            bail!("{}: prompt_ids and expected are needed", at());
        };
        let skill = value["skill"].as_str().unwrap_or_default().to_owned();
        rows.push(Row { skill, prompt, expected: expected.to_owned() });
    }
    Ok(rows)
}

fn answers(args: &EvalArgs, engine: &mut Engine, tokenizer: &Tokenizer, rows: &[Row]) -> Result<()> {
    let options = GenerateOptions {
        max_tokens: args.max_tokens as usize,
        sampler: SamplerParams::greedy(),
        stop_tokens: tokenizer.stop_tokens().to_vec(),
        chunk: CHUNK * 4,
    };
    let mut out = Out::new();
    let mut progress = Progress::new("answering", "rows", rows.len() as u64);
    let (mut right, mut strict, mut right_without_code, mut without_code) = (0, 0, 0, 0);
    for (i, row) in rows.iter().enumerate() {
        engine.check(&row.prompt).with_context(|| format!("row {i}"))?;
        let mut ids = Vec::new();
        let seq = engine.exec.open_sequence()?;
        let done = generate(&mut engine.exec, seq, &row.prompt, &options, &mut |event| {
            if let GenerateEvent::Token(id) = event {
                ids.push(id);
            }
            if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        engine.exec.close_sequence(seq)?;
        done.with_context(|| format!("row {i}"))?;
        if interrupt::pressed() {
            bail!("interrupted in row {i} of {}", rows.len());
        }
        let whole = tokenizer.decode(&ids);
        let answer = whole.rsplit("</think>").next().unwrap_or_default().trim();
        let (is_right, is_strict) = (answer.starts_with(&row.expected), answer == row.expected);
        right += usize::from(is_right);
        strict += usize::from(is_strict);
        if row.skill != "code" {
            without_code += 1;
            right_without_code += usize::from(is_right);
        }
        out.line(json!({
            "row": i,
            "skill": row.skill,
            "right": is_right,
            "strict": is_strict,
            "answer": answer,
            "expected": row.expected,
            "ids": ids,
        }))?;
        progress.at(i as u64 + 1);
    }
    progress.finish();
    out.line(json!({
        "rows": rows.len(),
        "right": right,
        "strict": strict,
        "rows_without_code": without_code,
        "right_without_code": right_without_code,
        "precision": format!("{:?}", engine.options.precision).to_lowercase(),
    }))
}

/// KL of the flags' arithmetic from the exact one, teacher-forced over prompt and expected answer.
fn distances(args: &EvalArgs, engine: &mut Engine, tokenizer: &Tokenizer, rows: &[Row]) -> Result<()> {
    let base_model = match &args.base {
        None => Arc::clone(&engine.model),
        Some(path) => {
            let model = Model::load(Source::open(Some(path))?.model)
                .with_context(|| format!("{} cannot be used", path.display()))?;
            Arc::new(model)
        }
    };
    let exact = CpuOptions {
        precision: quant_kernels::Precision::Exact,
        kv: glm_graph::Kv::F32,
        ..engine.options.clone()
    };
    let mut base = CpuExecutor::new(base_model, exact)?;
    if base.vocab() != engine.exec.vocab() {
        bail!("the base has {} tokens, the model {}", base.vocab(), engine.exec.vocab());
    }
    let mut out = Out::new();
    let mut progress = Progress::new("comparing", "rows", rows.len() as u64);
    let (mut sum, mut same, mut positions, mut largest) = (0.0, 0, 0usize, 0.0f64);
    for (i, row) in rows.iter().enumerate() {
        let mut ids = row.prompt.clone();
        ids.extend(tokenizer.encode(&row.expected, ParseSpecial::Yes));
        engine.check(&ids).with_context(|| format!("row {i}"))?;
        let d = distance(&mut base, &mut engine.exec, &ids).with_context(|| format!("row {i}"))?;
        sum += d.sum;
        same += d.same_top;
        positions += ids.len();
        largest = largest.max(d.largest);
        out.line(json!({
            "row": i,
            "skill": row.skill,
            "positions": ids.len(),
            "kl_mean": d.sum / ids.len() as f64,
            "kl_max": d.largest,
            "same_top": d.same_top,
        }))?;
        progress.at(i as u64 + 1);
    }
    progress.finish();
    let n = positions.max(1) as f64;
    out.line(json!({
        "rows": rows.len(),
        "positions": positions,
        "kl_mean": sum / n,
        "kl_max": largest,
        "top1_agreement": same as f64 / n,
    }))
}

struct Distance {
    sum: f64,
    largest: f64,
    same_top: usize,
}

/// Both executors take the same tokens chunk by chunk, so that the rows of one chunk are all that is held.
fn distance(base: &mut CpuExecutor, other: &mut Exec, ids: &[u32]) -> Result<Distance> {
    let (a, b) = (base.open_sequence()?, other.open_sequence()?);
    let mut total = Distance { sum: 0.0, largest: 0.0, same_top: 0 };
    let mut held: Vec<f32> = Vec::new();
    let vocab = base.vocab();
    for chunk in ids.chunks(CHUNK) {
        if interrupt::pressed() {
            bail!("interrupted");
        }
        held.clear();
        base.score(a, chunk, &mut |_, logits| held.extend_from_slice(logits))?;
        other.score(b, chunk, &mut |i, logits| {
            let Some(row) = held.get(i * vocab..(i + 1) * vocab) else { return };
            let kl = LogSoftmax::kl(row, logits, LogSoftmax::of(row), LogSoftmax::of(logits));
            total.sum += kl;
            total.largest = total.largest.max(kl);
            total.same_top += usize::from(top(row) == top(logits));
        })?;
    }
    base.close_sequence(a)?;
    other.close_sequence(b)?;
    Ok(total)
}
