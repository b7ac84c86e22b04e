//! `maya bench`: loading, prefill and decode, measured; JSON on standard output.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use glm_graph::{
    Checkpoint, Executor, Input, LayerPass, MemoryPlan, SamplerParams, SeqId, Step, Ticket, Want,
};
use serde_json::{Value as Json, json};

use super::generate::CHUNK;
use super::profile;
use crate::args::BenchArgs;
use crate::device;
use crate::engine::Engine;
use crate::interrupt;
use crate::machine::{Peak, anonymous};
use crate::output::Out;
use crate::progress::Progress;
use crate::tiers;

/// Measures and prints. One run is not counted, so that samples do not differ by what was still on the drive. Every run has
/// other tokens, the decoded ones included: what a run before it left in memory, it has no use for as such.
pub fn run(args: &BenchArgs) -> Result<()> {
    let mut engine = Engine::load_for(&args.engine, args.sequences.into())?;
    let (prefill, decode, sequences) = (args.prefill as usize, args.decode as usize, args.sequences as usize);
    let (depth, each) = (args.fill_depth as usize, prefill.saturating_add(decode));
    let needed = depth.saturating_add(each);
    if needed > engine.options.ctx {
        bail!(
            "--fill-depth {depth}, --prefill {prefill} and --decode {decode} need {needed} tokens, the context is {} (--ctx)",
            engine.options.ctx
        );
    }
    let filled = match depth {
        0 => None,
        _ => Some(Checkpoint::random(&engine.model, engine.options.kv, depth, FILL_SEED)?),
    };
    let runs = u64::from(args.repeat) + 1;
    let mut progress = Progress::new("measuring", "runs", runs);
    let mut samples = Samples::default();
    let peak = Peak::watch();
    for i in 0..runs {
        samples.tokens.clear();
        let ids = ids(each * sequences, engine.exec.vocab(), i);
        let texts: Vec<_> = ids.chunks(each).map(|ids| ids.split_at(prefill)).collect();
        let (first, second) = sample(&mut engine, filled.as_ref(), &texts, &mut samples.tokens)?;
        samples.note_memory();
        if i == 0 {
            samples.warm_up = first + second;
        } else {
            samples.prefill.push(first);
            samples.decode.push(second);
        }
        progress.at(i + 1);
    }
    progress.finish();
    let profile = if args.profile {
        let prompt = ids(prefill, engine.exec.vocab(), 0);
        profile::of(&mut engine, filled.as_ref(), &prompt, sequences)?
    } else {
        Json::Null
    };
    let options = &engine.options;
    Out::new().line(json!({
        "model": engine.name,
        "bytes": engine.file_bytes,
        "version": env!("CARGO_PKG_VERSION"),
        "commit": env!("MAYA_COMMIT"),
        "device": if engine.exec.cpu().is_some() { "cpu" } else { "cuda" },
        "isa": engine.exec.describe(),
        "threads": engine.threads(),
        "precision": format!("{:?}", options.precision).to_lowercase(),
        "kv": format!("{:?}", options.kv).to_lowercase(),
        "ctx": options.ctx,
        "load_s": engine.load_time.as_secs_f64(),
        "load": device::load_json(&engine.exec),
        "warm_up_s": samples.warm_up.as_secs_f64(),
        "sequences": sequences,
        "fill_depth": depth,
        "prefill": rates(prefill * sequences, &samples.prefill),
        "decode": rates(decode * sequences, &samples.decode),
        "memory_plan": plan_json(&engine.plan),
        "tiers": tiers::json(&engine),
        "profile": profile,
        "last_decode": samples.tokens,
        "rss_anon_bytes": samples.rss_anon,
        "held_bytes_peak": peak.most(),
    }))
}

/// Of the content made up by `--fill-depth`.
const FILL_SEED: u64 = 5;

#[derive(Default)]
struct Samples {
    warm_up: Duration,
    prefill: Vec<Duration>,
    decode: Vec<Duration>,
    rss_anon: Option<u64>,
    /// The last sample's tokens: what each took and what it needed of the drive. Empty without tiers.
    tokens: Vec<Json>,
}

impl Samples {
    fn note_memory(&mut self) {
        self.rss_anon = self.rss_anon.max(anonymous());
    }
}

/// Ids spread over the vocabulary, so that routed experts are met as a real text meets them; the same every time for the same
/// run, and others for another.
fn ids(n: usize, vocab: usize, run: u64) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(2 * run + 1);
    let draw = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(state) * vocab as u128) >> 64) as u32
    };
    (0..n).map(draw).collect()
}

/// A prompt, and what is decoded after it.
type Text<'a> = (&'a [u32], &'a [u32]);

/// Times of feeding the prompts and of decoding after them, each in a sequence of its own that begins as `filled` says.
fn sample(
    engine: &mut Engine,
    filled: Option<&Checkpoint>,
    texts: &[Text<'_>],
    tokens: &mut Vec<Json>,
) -> Result<(Duration, Duration)> {
    let mut seqs = Vec::with_capacity(texts.len());
    let opened = texts.iter().try_for_each(|_| -> Result<()> {
        let seq = engine.exec.open_sequence()?;
        seqs.push(seq);
        match filled {
            Some(filled) => Ok(engine.exec.restore(seq, filled)?),
            None => Ok(()),
        }
    });
    let result = opened.and_then(|()| timed(engine, &seqs, texts, tokens));
    seqs.into_iter().try_for_each(|seq| engine.exec.close_sequence(seq))?;
    result
}

fn interrupted() -> Result<()> {
    if interrupt::pressed() { Err(anyhow!("interrupted")) } else { Ok(()) }
}

fn timed(
    engine: &mut Engine,
    seqs: &[SeqId],
    texts: &[Text<'_>],
    tokens: &mut Vec<Json>,
) -> Result<(Duration, Duration)> {
    let started = Instant::now();
    for (seq, (prompt, _)) in seqs.iter().zip(texts) {
        for chunk in prompt.chunks((CHUNK * 4).max(engine.exec.span())) {
            interrupted()?;
            engine.exec.prefill(*seq, chunk)?;
        }
    }
    let prefill = started.elapsed();
    let started = Instant::now();
    let steps = texts.first().map_or(0, |(_, decoded)| decoded.len());
    let mut next = submit(engine, seqs, texts, 0)?;
    for i in 0..steps {
        interrupted()?;
        let before = engine.exec.tier_counters();
        let token_started = Instant::now();
        let Some(ticket) = next else { break };
        // As a text is decoded: the next step runs ahead.
        next = submit(engine, seqs, texts, i + 1)?;
        if let Some(error) = engine.exec.poll(ticket)?.into_iter().find_map(|row| row.error) {
            return Err(error.into());
        }
        if let (Some(before), Some(after)) = (before, engine.exec.tier_counters()) {
            let by_layer =
                |of: fn(&LayerPass) -> u32| engine.exec.last_pass().iter().map(of).collect::<Vec<_>>();
            tokens.push(json!({
                "ms": token_started.elapsed().as_secs_f64() * 1e3,
                "compute_ms": (after.compute_ns - before.compute_ns) as f64 / 1e6,
                "wait_ms": (after.wait_ns - before.wait_ns) as f64 / 1e6,
                "read_bytes": after.bytes - before.bytes,
                "misses": by_layer(|layer| layer.misses),
                "guessed": by_layer(|layer| layer.guessed),
                "expert_bytes": engine.exec.last_pass().iter().map(|layer| layer.bytes).collect::<Vec<_>>(),
            }));
        }
    }
    Ok((prefill, started.elapsed()))
}

/// Step `at` of every text; `None` behind their end. A random model, left to choose, falls into a circle of few tokens and of few
/// experts, so the tokens are given.
fn submit(engine: &mut Engine, seqs: &[SeqId], texts: &[Text<'_>], at: usize) -> Result<Option<Ticket>> {
    let greedy = Want::Sample(SamplerParams::greedy());
    let steps = seqs.iter().zip(texts).filter_map(|(seq, (_, decoded))| {
        let input = Input::Token(*decoded.get(at)?);
        Some(Step { seq: *seq, input, want: greedy.clone() })
    });
    let steps: Vec<_> = steps.collect();
    if steps.is_empty() { Ok(None) } else { Ok(Some(engine.exec.submit(&steps)?)) }
}

fn rates(tokens: usize, times: &[Duration]) -> Json {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    let rates: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s.max(1e-12)).collect();
    let mut sorted = rates.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    };
    json!({"tokens": tokens, "seconds": seconds, "tok_s": rates, "median_tok_s": median})
}

/// The plan with its numbers named.
fn plan_json(plan: &MemoryPlan) -> Json {
    json!({
        "weights_mapped": plan.weights,
        "vectors": plan.vectors,
        "state": plan.state,
        "caches": plan.caches,
        "scratch": plan.scratch,
        "anonymous": plan.anonymous(),
        "ctx": plan.ctx,
    })
}
