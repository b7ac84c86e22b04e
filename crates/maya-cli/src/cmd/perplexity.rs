//! `maya perplexity`: how well the model predicts a text, and how far it is from saved logits.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use glm_chat::ParseSpecial;
use glm_graph::Executor;
use serde_json::json;

use super::logits::score;
use crate::args::PerplexityArgs;
use crate::dump::Dump;
use crate::engine::Engine;
use crate::output::{Out, count};
use crate::outputs::check_beside;
use crate::progress::Progress;
use crate::safetensors::{LogitsReader, LogitsWriter};
use crate::text;

/// Tokens of a window where the user gives none.
const WINDOW: usize = 512;
/// Bytes of the longest text that is read: more tokens than any model here has context for.
const TEXT_LIMIT: u64 = 1 << 28;

/// Measures, compares, saves.
pub fn run(args: &PerplexityArgs) -> Result<()> {
    let path = args.text.display();
    let bytes = text_bytes(&args.text).with_context(|| format!("{path} cannot be read"))?;
    let string = String::from_utf8(bytes).map_err(|e| {
        anyhow::anyhow!("{path} is not UTF-8: byte {} is wrong", e.utf8_error().valid_up_to())
    })?;
    let mut engine = Engine::load(&args.engine)?;
    let outputs = [
        ("--usage", args.engine.tiers.usage.as_deref()),
        ("--save", args.save.as_deref()),
        ("--dump-routes", args.dump_routes.as_deref()),
    ];
    let mut inputs = vec![("the text", args.text.as_path())];
    inputs.extend(args.against.as_deref().map(|base| ("what --against reads", base)));
    check_beside(&engine, &outputs, &inputs)?;
    let tokenizer = text::tokenizer(engine.model.gguf(), &engine.name, "perplexity")?;
    let special = if args.parse_special { ParseSpecial::Yes } else { ParseSpecial::No };
    let ids = tokenizer.encode(&string, special);
    let window = window(args.window, engine.options.ctx)?;
    if ids.len() < 2 {
        bail!("{path} has {} tokens: perplexity needs at least 2", ids.len());
    }
    // A last window of one token predicts nothing.
    let n = if ids.len() % window == 1 { ids.len() - 1 } else { ids.len() };
    let ids = &ids[..n];
    for tokens in ids.chunks(window) {
        engine.check(tokens)?;
    }
    let vocab = engine.exec.vocab();
    let mut base = args.against.as_deref().map(LogitsReader::open).transpose()?;
    if let (Some(base), Some(file)) = (&base, &args.against) {
        same_text(base, ids, vocab)
            .with_context(|| format!("{} does not belong to {path}", file.display()))?;
    }
    let mut save =
        args.save.as_deref().map(|file| LogitsWriter::create(file, n, vocab, Some(ids))).transpose()?;

    let dump = Dump::start(args.dump_routes.as_deref(), &mut engine)?;
    let mut progress = Progress::new("reading the text", "tokens", n as u64);
    let mut sums = Sums::default();
    let mut base_row = Vec::new();
    for (w, tokens) in ids.chunks(window).enumerate() {
        score(&mut engine, tokens, &mut |i, logits| {
            progress.at((w * window + i) as u64 + 1);
            let next = tokens.get(i + 1).copied();
            let own = LogSoftmax::of(logits);
            if let Some(next) = next {
                sums.predicted += 1;
                sums.nll -= own.of_token(logits, next);
            }
            if let Some(base) = &mut base {
                base.next_row(&mut base_row)?;
                sums.compare(&base_row, logits, own, next);
            }
            save.as_mut().map_or(Ok(()), |save| save.row(logits))
        })?;
    }
    progress.finish();
    dump.finish(&mut engine)?;
    if let Some(save) = save {
        save.commit()?;
    }
    report(args, &mut sums, n, window)
}

/// The text, which may come from a pipe; of a device that never ends no more than the limit is read.
fn text_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(TEXT_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_LIMIT {
        bail!("it has more than {} bytes", count(TEXT_LIMIT));
    }
    Ok(bytes)
}

fn window(asked: Option<u32>, ctx: usize) -> Result<usize> {
    match asked {
        Some(w) if w as usize > ctx => {
            bail!(
                "--window {} is larger than the context of {} tokens (--ctx)",
                count(u64::from(w)),
                count(ctx as u64)
            )
        }
        Some(w) => Ok(w as usize),
        None if ctx < 2 => bail!("perplexity needs a context of at least 2 tokens"),
        None => Ok(WINDOW.min(ctx)),
    }
}

fn same_text(base: &LogitsReader, ids: &[u32], vocab: usize) -> Result<()> {
    if base.cols != vocab {
        bail!("it has {} logits a position, the model has {vocab} tokens", base.cols);
    }
    if base.rows != ids.len() {
        bail!("it has {} positions, the text has {} tokens", base.rows, ids.len());
    }
    if let Some(saved) = &base.ids
        && let Some(at) = saved.iter().zip(ids).position(|(a, b)| a != b)
    {
        bail!(
            "it was saved for other tokens: at position {at} it has {}, the text has {}",
            saved[at],
            ids[at]
        );
    }
    Ok(())
}

/// What turns a row of logits into log-probabilities, in f64.
#[derive(Clone, Copy)]
pub struct LogSoftmax {
    offset: f64,
}

impl LogSoftmax {
    /// Of a row of finite logits.
    pub fn of(logits: &[f32]) -> Self {
        let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = logits.iter().map(|&v| (f64::from(v) - max).exp()).sum();
        Self { offset: max + sum.ln() }
    }

    /// Log-probability of a token.
    pub fn of_token(self, logits: &[f32], id: u32) -> f64 {
        f64::from(logits[id as usize]) - self.offset
    }

    /// KL divergence of `other` from `base`, in nats.
    pub fn kl(base: &[f32], other: &[f32], base_norm: Self, other_norm: Self) -> f64 {
        let terms = base.iter().zip(other).map(|(&b, &o)| {
            let b = f64::from(b) - base_norm.offset;
            b.exp() * (b - (f64::from(o) - other_norm.offset))
        });
        terms.sum()
    }
}

/// The likeliest token, the lower id of equals.
pub fn top(logits: &[f32]) -> usize {
    let mut best = 0;
    for (id, &v) in logits.iter().enumerate() {
        if v > logits[best] {
            best = id;
        }
    }
    best
}

/// Running sums.
#[derive(Default)]
struct Sums {
    predicted: u64,
    nll: f64,
    base_nll: f64,
    same_top: u64,
    kl: Vec<f64>,
}

impl Sums {
    fn compare(&mut self, base: &[f32], logits: &[f32], own: LogSoftmax, next: Option<u32>) {
        let norm = LogSoftmax::of(base);
        if let Some(next) = next {
            self.base_nll -= norm.of_token(base, next);
        }
        self.kl.push(LogSoftmax::kl(base, logits, norm, own));
        self.same_top += u64::from(top(base) == top(logits));
    }
}

fn report(args: &PerplexityArgs, sums: &mut Sums, n: usize, window: usize) -> Result<()> {
    let predicted = sums.predicted as f64;
    let ppl = (sums.nll / predicted).exp();
    let mut value = json!({
        "tokens": n,
        "window": window,
        "predicted": sums.predicted,
        "nll": sums.nll / predicted,
        "perplexity": ppl,
    });
    let mut lines = vec![format!(
        "perplexity {ppl:.4} over {} predictions (windows of {})",
        count(sums.predicted),
        count(window as u64)
    )];
    if !sums.kl.is_empty() {
        sums.kl.sort_unstable_by(f64::total_cmp);
        let rows = sums.kl.len();
        let at = |share: f64| sums.kl[((rows - 1) as f64 * share).round() as usize];
        let mean = sums.kl.iter().sum::<f64>() / rows as f64;
        let agreement = sums.same_top as f64 / rows as f64;
        let base_ppl = (sums.base_nll / predicted).exp();
        value["against"] = json!({
            "perplexity": base_ppl,
            "kl_mean": mean,
            "kl_median": at(0.5),
            "kl_p99": at(0.99),
            "kl_max": at(1.0),
            "top1_agreement": agreement,
        });
        lines.push(format!("base       {base_ppl:.4}"));
        lines.push(format!(
            "KL         mean {mean:.6} nats, median {:.6}, 99th percentile {:.6}, largest {:.6}",
            at(0.5),
            at(0.99),
            at(1.0)
        ));
        lines.push(format!("top-1      the same likeliest token at {:.2} % of positions", agreement * 100.0));
    }
    let mut out = Out::new();
    if args.json {
        out.line(value)?;
    } else {
        for line in lines {
            out.line(line)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kl_of_known_distributions() {
        let (a, b) = ([0.0f32, 0.0], [3f32.ln(), 0.0]);
        let kl = LogSoftmax::kl(&a, &b, LogSoftmax::of(&a), LogSoftmax::of(&b));
        let expected = 0.5 * (0.5f64 / 0.75).ln() + 0.5 * (0.5f64 / 0.25).ln();
        assert!((kl - expected).abs() < 1e-7, "{kl} {expected}");
        assert_eq!(top(&[1.0, 3.0, 3.0]), 1);
    }
}
