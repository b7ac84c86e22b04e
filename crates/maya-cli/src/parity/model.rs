//! Level `model`: logits of whole prompts, exact, fast and with f16 latents, and the NextN block's.

use anyhow::{Context, Result};
use glm_graph::{CpuExecutor, Executor, Kv, SeqId};
use quant_kernels::Precision;

use super::excuse::{Gaps, Judged};
use super::golden::Fixtures;
use super::layer::largest_error;
use super::subject::{Loaded, SUBJECTS};
use super::table::Table;
use super::tolerance::{limit, yardstick};

const LEVEL: &str = "model";

/// Compares every model.
pub fn run(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    for subject in &SUBJECTS {
        if let Some(loaded) = subject.load(LEVEL, fixtures, table)? {
            exact(&loaded, table)?;
            fast(&loaded, table)?;
            // The yardstick was measured on both F32 files; the latents' share of the error shows only on the one whose
            // selections are not close.
            if subject.name == "tiny-a.f32" {
                f16_latents(&loaded, table)?;
            }
        }
    }
    same_results(fixtures, table)
}

/// What an executor gives for a prompt.
struct Pass {
    /// `[n][hidden]`, after the last norm.
    hidden: Vec<f32>,
    /// `[n][vocab]`
    logits: Vec<f32>,
    vocab: usize,
}

impl Pass {
    fn new(executor: &mut CpuExecutor, seq: SeqId, tokens: &[u32]) -> Result<Self> {
        let (mut hidden, mut logits) = (Vec::new(), Vec::new());
        executor.score_hidden(seq, tokens, &mut |_, h, l| {
            hidden.extend_from_slice(h);
            logits.extend_from_slice(l);
        })?;
        Ok(Self { hidden, logits, vocab: executor.vocab() })
    }

    /// The prompt's passes in a sequence that is closed again.
    fn alone(executor: &mut CpuExecutor, tokens: &[u32]) -> Result<Self> {
        let seq = executor.open_sequence()?;
        let pass = Self::new(executor, seq, tokens)?;
        executor.close_sequence(seq)?;
        Ok(pass)
    }
}

/// Errors of the last rows, for which there are golden values: position and largest absolute error.
fn errors(found: &[f32], expected: &[f32], width: usize) -> Vec<(usize, f64)> {
    let n = found.len() / width;
    let first = n - expected.len() / width;
    let rows = found.chunks_exact(width).enumerate().skip(first).zip(expected.chunks_exact(width));
    rows.map(|((position, found), expected)| (position, largest_error(found, expected))).collect()
}

fn exact(loaded: &Loaded, table: &mut Table) -> Result<()> {
    let (name, golden) = (loaded.subject.name, &loaded.golden);
    let limit = limit(&format!("model.exact.{}", loaded.subject.family()))?;
    let mut executor = loaded.executor(Precision::Exact, Kv::F32)?;
    for prompt in golden.prompts() {
        let key = |name: &str| format!("p{prompt}.{name}");
        let tokens = golden.tokens(&key("tokens"))?;
        let gaps = Gaps::read(golden, prompt)?;
        let mut judge = |what: &str, errors: &[(usize, f64)]| {
            let judged = Judged::new(errors, limit, &gaps);
            if !judged.excused.is_empty() {
                table.excuse(name, prompt);
            }
            table.at_most(LEVEL, name, format!("p{prompt} {what}"), judged.worst, limit, judged.note());
        };
        let seq = executor.open_sequence()?;
        let pass = Pass::new(&mut executor, seq, &tokens)?;
        judge("logits, exact", &errors(&pass.logits, &golden.f32s(&key("logits"))?, pass.vocab));
        let last = &pass.logits[pass.logits.len() - pass.vocab..];
        judge(
            "last logits in f64",
            &[(prompt - 1, largest_error(last, &golden.f32s(&key("logits_last_f64"))?))],
        );
        if golden.has(&key("mtp_logits")) {
            let first = golden.tokens(&key("greedy"))?.first().copied().context("greedy is empty")?;
            let draft = Draft::new(&mut executor, seq, &pass, &tokens, first)?;
            judge("NextN logits", &errors(&draft.logits, &golden.f32s(&key("mtp_logits"))?, pass.vocab));
            let expected = golden.f32s(&key("mtp_draft_logits"))?;
            let chained = errors(&draft.chained, &expected, pass.vocab);
            judge(
                "NextN logits, 3 chained",
                &chained.iter().map(|(_, e)| (prompt - 1, *e)).collect::<Vec<_>>(),
            );
        }
        executor.close_sequence(seq)?;
    }
    Ok(())
}

/// What the NextN block gives for a prompt and a chain of three drafts after it.
struct Draft {
    /// `[n][vocab]`
    logits: Vec<f32>,
    /// `[3][vocab]`
    chained: Vec<f32>,
}

impl Draft {
    /// Row t takes the hidden vector of t and the token after it; the last one takes `first`, the token that follows the
    /// prompt. Then each draft takes the block's own hidden vector and its most likely token.
    fn new(executor: &mut CpuExecutor, seq: SeqId, pass: &Pass, tokens: &[u32], first: u32) -> Result<Self> {
        let next: Vec<u32> = tokens.iter().skip(1).copied().chain([first]).collect();
        let (mut logits, mut hidden) = (Vec::new(), Vec::new());
        executor.draft_logits(seq, &pass.hidden, &next, &mut |_, h, l| {
            hidden = h.to_vec();
            logits.extend_from_slice(l);
        })?;
        let mut last = logits[logits.len() - pass.vocab..].to_vec();
        let mut chained = last.clone();
        for _ in 0..2 {
            let (from, token) = (std::mem::take(&mut hidden), [argmax(&last) as u32]);
            executor.draft_logits(seq, &from, &token, &mut |_, h, l| {
                hidden = h.to_vec();
                last = l.to_vec();
            })?;
            chained.extend_from_slice(&last);
        }
        Ok(Self { logits, chained })
    }
}

fn fast(loaded: &Loaded, table: &mut Table) -> Result<()> {
    let (subject, golden) = (loaded.subject, &loaded.golden);
    let mut executor = loaded.executor(Precision::Fast, Kv::F32)?;
    let mut agreements = Vec::new();
    for prompt in golden.prompts() {
        let tokens = golden.tokens(&format!("p{prompt}.tokens"))?;
        let expected = golden.f32s(&format!("p{prompt}.logits"))?;
        let pass = Pass::alone(&mut executor, &tokens)?;
        let found = &pass.logits[pass.logits.len() - expected.len()..];
        if subject.is_f32 {
            // No activation is rounded to 8 bits beside F32 weights, so the exact tolerance holds.
            let limit = limit(&format!("model.exact.{}", subject.family()))?;
            let gaps = Gaps::read(golden, prompt)?;
            let judged = Judged::new(&errors(&pass.logits, &expected, pass.vocab), limit, &gaps);
            if !judged.excused.is_empty() {
                table.excuse(subject.name, prompt);
            }
            let what = format!("p{prompt} logits, fast");
            table.at_most(LEVEL, subject.name, what, judged.worst, limit, judged.note());
            continue;
        }
        let peer = yardstick(subject.peer(), prompt)?;
        let error: f64 =
            found.iter().zip(&expected).map(|(f, e)| (f64::from(*f) - f64::from(*e)).abs()).sum();
        let (mean, most) = (error / expected.len() as f64, limit("model.fast-mean")? * peer.mean);
        let note = format!("llama.cpp {:.3}", peer.mean);
        table.at_most(LEVEL, subject.name, format!("p{prompt} mean error, fast"), mean, most, note);

        let rows = found.chunks_exact(pass.vocab).zip(expected.chunks_exact(pass.vocab));
        let same = rows.filter(|(f, e)| argmax(f) == argmax(e)).count();
        agreements.push(Agreement { prompt, rows: expected.len() / pass.vocab, same, peer: peer.argmax });
    }
    judge_agreements(subject.name, &agreements, table)
}

/// How often the most likely token of a prompt's rows is the golden one.
#[derive(Debug)]
struct Agreement {
    prompt: usize,
    rows: usize,
    same: usize,
    /// Share of llama.cpp.
    peer: f64,
}

/// The share of each prompt, and of all together. Rows are counted whole: of n rows at least `n * (peer - allowance)`,
/// rounded down, agree. So a prompt of less than ten rows may lose one row more than its share, since there a single
/// toss-up between two tokens, or one expert whose score is as close, is more than the allowance; the share of all
/// together has no such row.
fn judge_agreements(name: &str, agreements: &[Agreement], table: &mut Table) -> Result<()> {
    let allowance = limit("model.fast-argmax")?;
    let (mut rows, mut same, mut peer) = (0.0, 0.0, 0.0);
    for a in agreements {
        let (n, equal) = (a.rows as f64, a.same as f64);
        rows += n;
        same += equal;
        peer += n * a.peer;
        // The sum of the two decimal fractions may lie a hair below the whole number that is meant.
        let least = (n * (a.peer - allowance) + 1e-9).floor();
        let note = format!("of {}; llama.cpp {:.2}", a.rows, a.peer);
        table.at_least(
            LEVEL,
            name,
            format!("p{} rows with the same most likely, fast", a.prompt),
            equal,
            least,
            note,
        );
    }
    if !agreements.is_empty() {
        let note = format!("llama.cpp {:.2}", peer / rows);
        table.at_least(
            LEVEL,
            name,
            "share with the same most likely, fast",
            same / rows,
            peer / rows - allowance,
            note,
        );
    }
    Ok(())
}

fn f16_latents(loaded: &Loaded, table: &mut Table) -> Result<()> {
    let (name, golden) = (loaded.subject.name, &loaded.golden);
    let mut executor = loaded.executor(Precision::Exact, Kv::F16)?;
    for prompt in golden.prompts() {
        let tokens = golden.tokens(&format!("p{prompt}.tokens"))?;
        let pass = Pass::alone(&mut executor, &tokens)?;
        let errors = errors(&pass.logits, &golden.f32s(&format!("p{prompt}.logits"))?, pass.vocab);
        let worst = errors.iter().fold(0.0, |w: f64, (_, e)| if *e > w || e.is_nan() { *e } else { w });
        let peer = yardstick(name, prompt)?.f16_max;
        let note = format!("llama.cpp {peer:.1e}");
        let most = limit("model.f16-latents")? * peer;
        table.at_most(LEVEL, name, format!("p{prompt} logits, f16 latents"), worst, most, note);
    }
    Ok(())
}

/// The same weights under the other spelling of the architecture, and a split set opened from another shard or by its
/// folder, give the same bits.
fn same_results(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    let one = ["tiny-a.maya.gguf", "tiny-a.glm5next.gguf"];
    let other = ["tiny-b.maya-00001-of-00003.gguf", "tiny-b.maya-00003-of-00003.gguf"];
    for [a, b] in [one, other] {
        let (Some(left), Some(right)) = (fixtures.path(a), fixtures.path(b)) else {
            table.skipped(LEVEL, b, format!("it or {a} is not here"));
            continue;
        };
        for precision in [Precision::Exact, Precision::Fast] {
            let [left, right] = [&left, &right].map(|path| -> Result<Vec<u32>> {
                let model = glm_graph::Model::load(gguf::Model::open(path)?)?;
                let options = glm_graph::CpuOptions {
                    precision,
                    kv: Kv::F32,
                    threads: None,
                    ctx: 64,
                    isa: None,
                    tiers: None,
                };
                let mut executor = CpuExecutor::new(model.into(), options)?;
                let tokens: Vec<u32> = (1..40).collect();
                let pass = Pass::alone(&mut executor, &tokens)?;
                Ok(pass.logits.iter().map(|v| v.to_bits()).collect())
            });
            let (left, right) = (left?, right?);
            let differing = left.iter().zip(&right).filter(|(a, b)| a != b).count();
            let what = format!("bits of {}, {precision:?}", a.trim_end_matches(".gguf"));
            table.at_most(LEVEL, b.trim_end_matches(".gguf"), what.to_lowercase(), differing as f64, 0.0, "");
        }
    }
    Ok(())
}

/// Index of the largest value, the lower one of equals.
pub fn argmax(values: &[f32]) -> usize {
    values.iter().enumerate().fold(0, |best, (i, v)| if *v > values[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_the_last_rows() {
        let found = [9.0, 9.0, 1.0, 2.0, 3.0, 4.0];
        assert_eq!(errors(&found, &[1.0, 2.5, 3.0, 4.0], 2), [(1, 0.5), (2, 0.0)]);
    }

    #[test]
    fn the_lower_of_equals_is_the_most_likely() {
        assert_eq!((argmax(&[1.0, 3.0, 3.0]), argmax(&[5.0, 3.0])), (1, 0));
    }

    #[test]
    fn rows_are_counted_whole_and_shares_over_all() {
        let missed = |same: [usize; 2]| {
            let mut table = Table::default();
            let agreement = |prompt, same, peer| Agreement { prompt, rows: prompt, same, peer };
            let agreements = [agreement(7, same[0], 1.0), agreement(64, same[1], 0.8)];
            judge_agreements("a", &agreements, &mut table).unwrap();
            assert_eq!(table.len(), 3);
            table.json()["missed"].clone()
        };
        // Of 7 rows 6.3 are to agree, of 64 44.8, and of all 71 the share 0.72: 51.1.
        assert_eq!((missed([6, 46]), missed([7, 44])), (0.into(), 1.into()));
        assert_eq!((missed([5, 47]), missed([6, 44]), missed([7, 43])), (1.into(), 1.into(), 2.into()));
    }
}
