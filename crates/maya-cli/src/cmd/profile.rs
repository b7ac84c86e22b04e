//! Where the time of a device's token goes, and of a span of a prompt: each kind of launch, by events.

use anyhow::Result;
#[cfg(feature = "cuda")]
use glm_graph::LaunchTime;
use serde_json::{Value as Json, json};

use crate::engine::Engine;

/// Passes that are timed; of each kind of launch the median counts.
#[cfg(feature = "cuda")]
const PASSES: usize = 9;

/// Each kind of launch of a decoded token after `prompt`; null on the CPU.
#[cfg(feature = "cuda")]
pub fn of(engine: &mut Engine, prompt: &[u32]) -> Result<Json> {
    use glm_graph::Executor;

    use crate::exec::Exec;

    let Exec::Cuda(exec) = &mut engine.exec else { return Ok(Json::Null) };
    let seq = exec.open_sequence()?;
    // The last span: it has all positions before it.
    let last = prompt.len().saturating_sub(1) / exec.span() * exec.span();
    exec.prefill(seq, &prompt[..last])?;
    let span = exec.profile_span(seq, &prompt[last..])?;
    let passes: Vec<_> = (0..PASSES).map(|_| exec.profile(seq)).collect::<Result<_, _>>()?;
    exec.close_sequence(seq)?;
    let median = |kind: usize| {
        let mut times: Vec<f32> = passes.iter().map(|pass| pass[kind].ms).collect();
        times.sort_unstable_by(f32::total_cmp);
        LaunchTime { ms: times[PASSES / 2], ..passes[0][kind].clone() }
    };
    let token: Vec<_> = (0..passes[0].len()).map(median).collect();
    Ok(json!({
        "ms": all_ms(&token),
        "graph_nodes": exec.graph_nodes(),
        "launches": rows(&token),
        "span": { "tokens": prompt.len() - last, "before": last, "ms": all_ms(&span), "launches": rows(&span) },
    }))
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
pub fn of(_: &mut Engine, _: &[u32]) -> Result<Json> {
    Ok(json!(null))
}
