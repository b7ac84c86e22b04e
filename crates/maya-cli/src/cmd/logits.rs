//! `maya logits`: the logits of every position of a prompt.

use anyhow::{Result, bail};
use glm_graph::Executor;

use super::generate::CHUNK;
use crate::args::LogitsArgs;
use crate::dump::Dump;
use crate::engine::Engine;
use crate::interrupt;
use crate::output::note;
use crate::outputs::check_beside;
use crate::progress::Progress;
use crate::safetensors::LogitsWriter;

/// Writes tensor `logits` F32 [positions, vocabulary], or nothing.
pub fn run(args: &LogitsArgs) -> Result<()> {
    let mut engine = Engine::load(&args.engine)?;
    let routes = args.dump_routes.as_deref();
    let outputs = [
        ("--usage", args.engine.tiers.usage.as_deref()),
        ("--out", Some(args.out.as_path())),
        ("--dump-routes", routes),
    ];
    check_beside(&engine, &outputs, &[])?;
    let prompt = &args.ids.0;
    engine.check(prompt)?;
    let mut writer = LogitsWriter::create(&args.out, prompt.len(), engine.exec.vocab(), None)?;
    let dump = Dump::start(routes, &mut engine)?;
    let mut progress = Progress::new("computing logits", "positions", prompt.len() as u64);
    score(&mut engine, prompt, &mut |row, logits| {
        progress.at(row as u64 + 1);
        writer.row(logits)
    })?;
    progress.finish();
    writer.commit()?;
    dump.finish(&mut engine)?;
    note(format_args!("{}: logits [{}, {}]", args.out.display(), prompt.len(), engine.exec.vocab()));
    Ok(())
}

/// Feeds `tokens` into a sequence of its own and hands out each position's logits.
///
/// # Errors
/// What the executor meets, what `on` answers, a logit that is no number, or Ctrl-C.
pub fn score(
    engine: &mut Engine,
    tokens: &[u32],
    on: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    let seq = engine.exec.open_sequence()?;
    let mut result = Ok(());
    let mut at = 0;
    for chunk in tokens.chunks(CHUNK.max(engine.exec.span())) {
        if interrupt::pressed() {
            result = Err(anyhow::anyhow!("interrupted after {at} of {} tokens", tokens.len()));
            break;
        }
        let scored = engine.exec.score(seq, chunk, &mut |i, logits| {
            if result.is_ok() {
                result = finite(logits, at + i).and_then(|()| on(at + i, logits));
            }
        });
        if result.is_ok() {
            result = scored.map_err(Into::into);
        }
        if result.is_err() {
            break;
        }
        at += chunk.len();
    }
    engine.exec.close_sequence(seq)?;
    result
}

fn finite(logits: &[f32], position: usize) -> Result<()> {
    match logits.iter().position(|v| !v.is_finite()) {
        Some(id) => {
            bail!("the logit of token {id} at position {position} is {}: the weights are damaged", logits[id])
        }
        None => Ok(()),
    }
}
