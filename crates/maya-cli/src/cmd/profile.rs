//! Where the time of a device's token goes: each kind of launch, by events.

use anyhow::Result;
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
    exec.prefill(seq, prompt)?;
    let passes: Vec<_> = (0..PASSES).map(|_| exec.profile(seq)).collect::<Result<_, _>>()?;
    exec.close_sequence(seq)?;
    let median = |kind: usize| {
        let mut times: Vec<f32> = passes.iter().map(|pass| pass[kind].ms).collect();
        times.sort_unstable_by(f32::total_cmp);
        f64::from(times[PASSES / 2])
    };
    let all: f64 = (0..passes[0].len()).map(median).sum();
    let rows: Vec<Json> = passes[0]
        .iter()
        .enumerate()
        .map(|(kind, launch)| {
            let ms = median(kind);
            json!({
                "what": launch.what,
                "launches": launch.launches,
                "ms": ms,
                "share": ms / all,
                "us_each": 1e3 * ms / f64::from(launch.launches),
                "weight_bytes": launch.bytes,
                "gb_s": launch.bytes as f64 / ms / 1e6,
            })
        })
        .collect();
    Ok(json!({ "ms": all, "graph_nodes": exec.graph_nodes(), "launches": rows }))
}

/// A build without devices.
#[cfg(not(feature = "cuda"))]
pub fn of(_: &mut Engine, _: &[u32]) -> Result<Json> {
    Ok(json!(null))
}
