//! `maya replay`: cache policies on a routing trace.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::{Value as Json, json};

use super::plan::write_chart;
use crate::args::{Budget, ReplayArgs};
use crate::output::{Out, bytes, count, note};
use crate::plan::sizes::{Preset, Sizes};
use crate::plot::{Chart, Line};
use crate::progress::Progress;
use crate::replay::{Outcome, Policy, Setup, simulated, walk};
use crate::routes::Trace;
use crate::{interrupt, outputs};

/// Prints the table.
pub fn run(args: &ReplayArgs) -> Result<()> {
    outputs::check(&[("--plot", args.plot.as_deref())], &[("the trace", &args.trace)])?;
    let trace = Trace::read(&args.trace)?;
    let expert_bytes = match args.expert_bytes {
        Some(Budget::Bytes(bytes)) => bytes as f64,
        Some(Budget::Share(_)) => bail!("--expert-bytes is an amount of bytes, not a part of something"),
        None => Sizes::of_preset(Preset::MayaS)?.mean_expert_bytes(),
    };
    let setup =
        |slots: u32| Setup { slots: slots as usize, spares: args.spares as usize, half_life: args.half_life };
    let policies = match &args.policies[..] {
        [] => Policy::value_variants().to_vec(),
        chosen => chosen.to_vec(),
    };
    if policies.iter().any(|policy| *policy != Policy::Belady) {
        for slots in args.slots.iter().filter(|slots| (**slots as usize) < trace.experts) {
            let kept = setup(*slots).spares_kept(trace.experts);
            if kept < args.spares as usize {
                note(format_args!(
                    "--slots {slots} have room for {kept} of the {} spares (--spares), as in the engine{}",
                    args.spares,
                    if kept == 0 { ": what misses is read and not kept" } else { "" }
                ));
            }
        }
    }
    let total = policies.len() * args.slots.len();
    let mut progress = Progress::new("replaying", "tokens", (total * trace.tokens) as u64);
    let mut rows: Vec<Row> = Vec::with_capacity(total);
    for &policy in &policies {
        for &slots in &args.slots {
            let mut cache = simulated(policy, &trace, setup(slots))?;
            let before = rows.len() * trace.tokens;
            let mut shown = usize::MAX;
            let outcome = walk(&trace, &mut *cache, &mut |token| {
                if std::mem::replace(&mut shown, token) != token {
                    progress.at((before + token) as u64);
                }
                !interrupt::pressed()
            })?;
            let Some(outcome) = outcome else { bail!("interrupted after {} of {total} replays", rows.len()) };
            rows.push(Row { policy, slots, outcome });
        }
    }
    progress.finish();
    if let Some(path) = &args.plot {
        write_chart(&chart(&policies, &rows, &trace), path)?;
    }
    let mut out = Out::new();
    if args.json {
        out.line(report(args, &trace, expert_bytes, &rows))?;
    } else {
        out.text(&table(&trace, expert_bytes, &rows))?;
    }
    out.flush()
}

struct Row {
    policy: Policy,
    slots: u32,
    outcome: Outcome,
}

fn report(args: &ReplayArgs, trace: &Trace, expert_bytes: f64, rows: &[Row]) -> Json {
    let results: Vec<Json> = rows
        .iter()
        .map(|Row { policy, slots, outcome }| {
            let layers: Vec<Json> = outcome
                .layers
                .iter()
                .map(|layer| {
                    json!({
                        "hit_rate": layer.hits as f64 / outcome.lookups as f64,
                        "moves_per_token": layer.moves as f64 / outcome.tokens as f64,
                        "kept_per_token": layer.kept as f64 / outcome.tokens as f64,
                    })
                })
                .collect();
            json!({
                "policy": policy.name(),
                "slots": slots,
                "hit_rate": outcome.hit_rate(),
                "moves_per_token": outcome.moves_per_token(),
                "kept_per_token": outcome.kept_per_token(),
                "bytes_per_token": outcome.moves_per_token() * expert_bytes,
                "layers": layers,
            })
        })
        .collect();
    json!({
        "trace": args.trace.display().to_string(),
        "tokens": trace.tokens,
        "moe_layers": trace.layers,
        "experts": trace.experts,
        "experts_used": trace.k,
        "spares": args.spares,
        "half_life": args.half_life,
        "expert_bytes": expert_bytes,
        "results": results,
    })
}

fn table(trace: &Trace, expert_bytes: f64, rows: &[Row]) -> String {
    let mut text = format!(
        "{} tokens, {} layers, {} of {} experts\n\n{:<14}{:>8}{:>12}{:>16}{:>14}{:>16}\n",
        count(trace.tokens as u64),
        trace.layers,
        trace.k,
        trace.experts,
        "policy",
        "slots",
        "hit rate",
        "moves a token",
        "of them kept",
        "bytes a token"
    );
    for Row { policy, slots, outcome } in rows {
        let moves = outcome.moves_per_token();
        let _ = writeln!(
            text,
            "{:<14}{slots:>8}{:>10.1} %{moves:>16.2}{:>14.2}{:>16}",
            policy.name(),
            outcome.hit_rate() * 100.0,
            outcome.kept_per_token(),
            bytes((moves * expert_bytes) as u64)
        );
    }
    text
}

fn chart(policies: &[Policy], rows: &[Row], trace: &Trace) -> Chart {
    let lines = policies
        .iter()
        .map(|&policy| {
            let of = rows.iter().filter(|row| row.policy == policy);
            let mut points: Vec<(f64, f64)> =
                of.map(|row| (f64::from(row.slots), row.outcome.hit_rate() * 100.0)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line { name: policy.name(), points }
        })
        .collect();
    Chart {
        title: format!(
            "{} tokens, {} of {} experts a layer",
            count(trace.tokens as u64),
            trace.k,
            trace.experts
        ),
        x: "slots of a layer".to_owned(),
        y: "hit rate, %".to_owned(),
        lines,
    }
}
