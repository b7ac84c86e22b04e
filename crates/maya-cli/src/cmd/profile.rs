//! Where the time of a device's token goes, of a pass with a token of each of several sequences, and of a span of a prompt: each
//! kind of launch, by events.

use anyhow::Result;
use glm_graph::Checkpoint;
#[cfg(feature = "cuda")]
use glm_graph::{CudaExecutor, ExecError, LaunchTime, SeqId};
use serde_json::{Value as Json, json};

use crate::engine::Engine;

/// Passes that are timed; of each kind of launch the median counts.
#[cfg(feature = "cuda")]
const PASSES: usize = 9;
/// Tokens that sequences of one pass have for themselves.
#[cfg(feature = "cuda")]
const APART: usize = 6;

/// Each kind of launch of a decoded token after `prompt`, which comes after `filled`, and of a pass of `sequences` of them; null on
/// the CPU.
#[cfg(feature = "cuda")]
pub fn of(
    engine: &mut Engine,
    filled: Option<&Checkpoint>,
    prompt: &[u32],
    sequences: usize,
) -> Result<Json> {
    use glm_graph::Executor;

    use crate::exec::Exec;

    let Exec::Cuda(exec) = &mut engine.exec else { return Ok(Json::Null) };
    let seqs: Vec<_> =
        (0..exec.turns().min(sequences)).map(|_| exec.open_sequence()).collect::<Result<_, _>>()?;
    let seq = seqs[0];
    if let Some(filled) = filled {
        exec.restore(seq, filled)?;
    }
    // The last span: it has all positions before it.
    let last = prompt.len().saturating_sub(1) / exec.span() * exec.span();
    exec.prefill(seq, &prompt[..last])?;
    let span = exec.profile_span(seq, &prompt[last..])?;
    let token = medians(|| exec.profile(&[seq]))?;
    let of_token = traffic(exec, &[seq])?;
    let mut together = Json::Null;
    if seqs.len() > 1 {
        let copy = exec.save(seq)?;
        seqs[1..].iter().try_for_each(|other| exec.restore(*other, &copy))?;
        // Sequences that are alike take the same experts: each goes on a little on its own.
        for (at, seq) in seqs.iter().enumerate() {
            let room = exec.ctx().saturating_sub(exec.len(*seq)? + 1);
            let own: Vec<u32> =
                (0..APART.min(room)).map(|i| prompt[(at * 31 + i * 7) % prompt.len()]).collect();
            exec.prefill(*seq, &own)?;
        }
        let pass = medians(|| exec.profile(&seqs))?;
        let of_pass = traffic(exec, &seqs)?;
        together = json!({
            "sequences": seqs.len(),
            "ms": all_ms(&pass),
            "graph_nodes": exec.graph_nodes(seqs.len()),
            "traffic": of_pass,
            "launches": rows(&pass),
        });
    }
    seqs.into_iter().try_for_each(|seq| exec.close_sequence(seq))?;
    Ok(json!({
        "ms": all_ms(&token),
        "graph_nodes": exec.graph_nodes(1),
        "traffic": of_token,
        "launches": rows(&token),
        "together": together,
        "span": { "tokens": prompt.len() - last, "before": last, "ms": all_ms(&span), "launches": rows(&span) },
    }))
}

/// Bytes of the next pass of `seqs`, with the experts that it really takes.
#[cfg(feature = "cuda")]
fn traffic(exec: &mut CudaExecutor, seqs: &[SeqId]) -> Result<Json> {
    let before = exec.expert_uses()?;
    exec.profile(seqs)?;
    let after = exec.expert_uses()?;
    let taken =
        |(before, after): (&Vec<u32>, &Vec<u32>)| before.iter().zip(after).filter(|(a, b)| a != b).count();
    let distinct: usize = before.iter().zip(&after).map(taken).sum();
    let bytes = exec.traffic(seqs, distinct)?;
    Ok(json!({
        "bytes": bytes.all(),
        "dense": bytes.dense,
        "experts": bytes.experts,
        "states": bytes.states,
        "caches": bytes.caches,
        "distinct_experts": distinct,
        "layers_with_experts": before.len(),
    }))
}

/// Each kind's median over some passes.
#[cfg(feature = "cuda")]
fn medians(mut pass: impl FnMut() -> Result<Vec<LaunchTime>, ExecError>) -> Result<Vec<LaunchTime>> {
    let passes: Vec<_> = (0..PASSES).map(|_| pass()).collect::<Result<_, _>>()?;
    let median = |kind: usize| {
        let mut times: Vec<f32> = passes.iter().map(|pass| pass[kind].ms).collect();
        times.sort_unstable_by(f32::total_cmp);
        LaunchTime { ms: times[PASSES / 2], ..passes[0][kind].clone() }
    };
    Ok((0..passes[0].len()).map(median).collect())
}

#[cfg(feature = "cuda")]
fn all_ms(launches: &[LaunchTime]) -> f64 {
    launches.iter().map(|launch| f64::from(launch.ms)).sum()
}

#[cfg(feature = "cuda")]
fn rows(launches: &[LaunchTime]) -> Vec<Json> {
    let all = all_ms(launches);
    let row = |launch: &LaunchTime| {
        let ms = f64::from(launch.ms);
        json!({
            "what": launch.what,
            "launches": launch.launches,
            "ms": ms,
            "share": ms / all,
            "us_each": 1e3 * ms / f64::from(launch.launches),
            "weight_bytes": launch.bytes,
            "gb_s": launch.bytes as f64 / ms / 1e6,
        })
    };
    launches.iter().map(row).collect()
}

/// A build without devices.
#[cfg(not(feature = "cuda"))]
pub fn of(_: &mut Engine, _: Option<&Checkpoint>, _: &[u32], _: usize) -> Result<Json> {
    Ok(json!(null))
}
