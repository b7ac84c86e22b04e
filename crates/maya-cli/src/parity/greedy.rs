//! Level `greedy`: the most likely continuation of each prompt, token for token while it is no toss-up.

use std::ops::ControlFlow;

use anyhow::{Context, Result};
use glm_graph::{
    CpuExecutor, Executor, GenerateEvent, GenerateOptions, Input, Kv, SamplerParams, SeqId, Step, Want,
    generate,
};
use quant_kernels::Precision;

use super::excuse::Gaps;
use super::golden::Fixtures;
use super::layer::largest_error;
use super::subject::{Loaded, SUBJECTS};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "greedy";

/// Continues every prompt of every model, exactly.
pub fn run(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    for subject in &SUBJECTS {
        if let Some(loaded) = subject.load(LEVEL, fixtures, table)? {
            compare(&loaded, table)?;
        }
    }
    Ok(())
}

fn compare(loaded: &Loaded, table: &mut Table) -> Result<()> {
    let (name, golden) = (loaded.subject.name, &loaded.golden);
    let mut executor = loaded.executor(Precision::Exact, Kv::F32)?;
    for prompt in golden.prompts() {
        let key = |name: &str| format!("p{prompt}.{name}");
        let expected = golden.tokens(&key("greedy"))?;
        let decided = decided(&golden.f32s(&key("greedy_gap"))?, limit("greedy.gap")?);
        let seq = executor.open_sequence()?;
        let found = continued(&mut executor, seq, &golden.tokens(&key("tokens"))?, expected.len())?;
        let same = found.iter().zip(&expected).take_while(|(f, e)| f == e).count();
        let excuse = Gaps::read(golden, prompt)?.excuses_what_follows();
        let note = match (same >= decided, excuse) {
            (true, _) if decided < expected.len() => format!("a toss-up at {decided} ends the comparison"),
            (true, _) => String::new(),
            (false, true) => "may part: a close selection in the prompt".to_owned(),
            (false, false) => format!("token {} where {} is golden", found[same], expected[same]),
        };
        if excuse && same < decided {
            table.excuse(name, prompt);
        }
        let least = if excuse { 0.0 } else { decided as f64 };
        table.at_least(LEVEL, name, format!("p{prompt} tokens"), same as f64, least, note);

        if same == expected.len() {
            let last = logits_after(&mut executor, seq, found.last().copied().context("no tokens")?)?;
            let error = largest_error(&last, &golden.f32s(&key("greedy_logits_last"))?);
            let limit = limit(&format!("model.exact.{}", loaded.subject.family()))?;
            table.at_most(LEVEL, name, format!("p{prompt} logits after the last"), error, limit, "");
        }
        executor.close_sequence(seq)?;
    }
    Ok(())
}

/// Steps before the first whose two most likely tokens are too close to tell apart.
fn decided(gaps: &[f32], limit: f64) -> usize {
    gaps.iter().take_while(|gap| f64::from(**gap) > limit).count()
}

fn continued(executor: &mut CpuExecutor, seq: SeqId, prompt: &[u32], n: usize) -> Result<Vec<u32>> {
    let options = GenerateOptions {
        max_tokens: n,
        sampler: SamplerParams::greedy(),
        stop_tokens: Vec::new(),
        chunk: 64,
    };
    let mut found = Vec::new();
    generate(executor, seq, prompt, &options, &mut |event| {
        if let GenerateEvent::Token(token) = event {
            found.push(token);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Logits after the last generated token, which `generate` has drawn and not fed.
fn logits_after(executor: &mut CpuExecutor, seq: SeqId, token: u32) -> Result<Vec<f32>> {
    let ticket = executor.submit(&[Step { seq, input: Input::Token(token), want: Want::Logits }])?;
    let row = executor.poll(ticket)?.pop().context("a step has one answer")?;
    if let Some(error) = row.error {
        return Err(error.into());
    }
    row.logits.context("logits were asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toss_up_ends_the_comparison() {
        assert_eq!(decided(&[0.1, 0.002, 0.0005, 0.1], 1e-3), 2);
        assert_eq!(decided(&[0.1, f32::NAN], 1e-3), 1);
    }
}
