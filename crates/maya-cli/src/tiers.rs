//! Which part of the model is kept where: from flags, from what the machine has, and from what was learnt before.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use glm_graph::{Executor, MemoryPlan, Model, TierCounters, TierOptions, TierPlan};
use serde_json::{Value as Json, json};
use tier_cache::{Loaded, Usage};

use crate::args::{Amount, Budget, DriveChoice, TierArgs};
use crate::engine::Engine;
use crate::machine::Memory;
use crate::output::{bytes, note};
use crate::outputs::device_and_inode;

/// The options of the tiers and what follows from them, or `None` where the file's map serves: everything fits, or the model is in the program.
///
/// # Errors
/// A sentence: a copy that cannot be opened, flags that need a file, a file for counts of use that holds something else.
pub fn choose(
    args: &TierArgs,
    model: &Model,
    plan: &MemoryPlan,
    memory: &Memory,
    name: &str,
) -> Result<Option<(TierOptions, TierPlan)>> {
    if let Some(path) = &args.usage {
        if path.as_os_str().is_empty() {
            bail!("--usage: the path is empty");
        }
        Usage::may_save(path).map_err(|e| anyhow!("--usage {}: {}", path.display(), e.source))?;
    }
    let chosen = divide(args, model, plan, memory, name)?;
    if let (None, [first, rest @ ..]) = (&chosen, &given(args)[..]) {
        let flags = rest.iter().fold((*first).to_owned(), |all, flag| format!("{all}, {flag}"));
        let have = if rest.is_empty() { "has" } else { "have" };
        note(format_args!(
            "{flags} {have} no effect: the whole of {name} is kept in memory, and no expert is read as it is needed; --ram \
             sets how much memory experts may take"
        ));
    }
    Ok(chosen)
}

/// Flags that say how experts are read, as far as they were given.
fn given(args: &TierArgs) -> Vec<&'static str> {
    let flags = [
        ("--usage", args.usage.is_some()),
        ("--mirror", !args.mirror.is_empty()),
        ("--no-look-ahead", args.no_look_ahead),
        ("--drive", args.drive != DriveChoice::Auto),
        ("--page-cache", args.page_cache),
    ];
    flags.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect()
}

fn divide(
    args: &TierArgs,
    model: &Model,
    plan: &MemoryPlan,
    memory: &Memory,
    name: &str,
) -> Result<Option<(TierOptions, TierPlan)>> {
    if plan.routed == 0 && matches!(args.ram, None | Some(Amount::Auto)) {
        return Ok(None);
    }
    let mut options = TierOptions {
        look_ahead: !args.no_look_ahead,
        mirrors: copies(&args.mirror, model)?,
        backend: match args.drive {
            DriveChoice::Auto => nvme_reader::Choice::Auto,
            DriveChoice::Uring => nvme_reader::Choice::Uring,
            DriveChoice::Threads => nvme_reader::Choice::Threads,
        },
        direct: if args.page_cache { nvme_reader::Direct::Never } else { nvme_reader::Direct::Auto },
        ..TierOptions::default()
    };
    let amount = match args.ram {
        Some(Amount::Budget(budget)) => budget,
        Some(Amount::Auto) | None => match memory.room().filter(|_| is_in_files(model)) {
            None => return Ok(None),
            Some(room) => match Spare::of(room, plan.anonymous(), plan.weights - plan.routed, plan.routed) {
                Spare::All => return Ok(None),
                Spare::Slots(spare) => Budget::Bytes(spare),
                Spare::Nothing => Budget::Bytes(0),
            },
        },
    };
    options.usage = args.usage.as_deref().and_then(|path| read_usage(path, model));
    options.ram = match amount {
        Budget::Bytes(bytes) => bytes,
        share @ Budget::Share(_) => share.of(TierPlan::of(model, &options)?.all_bytes),
    };
    let tiers = TierPlan::of(model, &options)?;
    if let Some(room) = memory.room() {
        let need = plan.anonymous().saturating_add(tiers.bytes());
        if need > room {
            bail!(
                "too little memory for {name} with --ram {amount}: {} of expert slots and {} beside them are needed, and \
                 {} are available; a smaller --ram needs less",
                bytes(tiers.bytes()),
                bytes(plan.anonymous()),
                bytes(room)
            );
        }
    }
    if args.ram.is_none() {
        note(format_args!(
            "the weights of {name} do not fit in memory: routed experts come from the drive as they are needed ({tiers}); \
             --ram sets how much they may take"
        ));
    }
    Ok(Some((options, tiers)))
}

/// What `--ram auto` makes of the memory that can be had: one answer for the engine, for `doctor` and for `plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// Every weight fits beside what is needed.
    All,
    /// So many bytes for slots.
    Slots(u64),
    /// Not even what every token reads fits.
    Nothing,
}

impl Spare {
    /// Of `room` bytes, when `beside` bytes of state, caches and buffers, the weights outside of the routed experts and
    /// the [`reserve`] are provided for.
    pub fn of(room: u64, beside: u64, dense: u64, routed: u64) -> Self {
        let left = room.saturating_sub(beside).saturating_sub(reserve(room)).checked_sub(dense);
        match left {
            Some(left) if left >= routed => Self::All,
            Some(left) if left > 0 => Self::Slots(left),
            _ => Self::Nothing,
        }
    }
}

/// What `--ram auto` leaves of `room` bytes to everybody else: a twentieth, at least half a gigabyte.
pub fn reserve(room: u64) -> u64 {
    (room / 20).max(512 << 20)
}

/// A model inside the program has no file to read experts from, and is small.
fn is_in_files(model: &Model) -> bool {
    model.gguf().shards().iter().all(|shard| shard.path.is_file())
}

/// The files of each copy of the model, in order. What reads them compares their bytes; a name of the same file again is
/// no copy, and would halve what one drive gives.
fn copies(paths: &[PathBuf], model: &Model) -> Result<Vec<Vec<PathBuf>>> {
    let mut seen: Vec<_> =
        model.gguf().shards().iter().map(|s| (device_and_inode(&s.path), s.path.clone())).collect();
    let mut copies = Vec::with_capacity(paths.len());
    for path in paths {
        let copy = gguf::Model::open(path).with_context(|| format!("--mirror {}", path.display()))?;
        let mut shards = Vec::with_capacity(copy.shards().len());
        for shard in copy.shards() {
            let this = device_and_inode(&shard.path);
            if let Some((_, other)) = seen.iter().find(|(seen, _)| this.is_some() && *seen == this) {
                bail!(
                    "--mirror {}: {} is the same file as {}, not a copy of it",
                    path.display(),
                    shard.path.display(),
                    other.display()
                );
            }
            seen.push((this, shard.path.clone()));
            shards.push(shard.path.clone());
        }
        copies.push(shards);
    }
    Ok(copies)
}

/// What a usage file is of: counts of another model would mislead.
fn identity(model: &Model) -> Vec<u8> {
    format!("maya {:016x}", model.fingerprint()).into_bytes()
}

fn read_usage(path: &Path, model: &Model) -> Option<Usage> {
    match Usage::load(path, &identity(model)) {
        Loaded::Usage(usage) => Some(usage),
        Loaded::Absent => None,
        Loaded::Ignored(why) => {
            note(format_args!("{} is not used: {why}; it is written anew at the end", path.display()));
            None
        }
    }
}

/// Saves what the engine has learnt where `--usage` says. A failure is told and is no failure of the answer.
pub fn save_usage(engine: &Engine, path: Option<&Path>) {
    let (Some(path), Some(usage)) = (path, engine.exec.usage()) else { return };
    if let Err(error) = usage.save(path, &identity(&engine.model)) {
        note(format_args!("the counts of expert use are not saved: {error}"));
    }
}

/// What the tiers did, for programs. `{}` without tiers.
pub fn json(engine: &Engine) -> Json {
    let (Some(c), Some(report)) = (engine.exec.tier_counters(), engine.exec.drive_report()) else {
        return json!({});
    };
    let fed = engine.exec.counters();
    let tokens = (fed.prefilled + fed.decoded).max(1) as f64;
    let per_token = |n: u64| n as f64 / tokens;
    let direct = report.files.iter().all(nvme_reader::FileReport::is_direct);
    json!({
        "ram_bytes": engine.options.tiers.as_ref().map(|tiers| tiers.ram),
        "slot_bytes": engine.tiers.as_ref().map(|plan| plan.slot_bytes),
        "resident_bytes": engine.exec.tier_resident_bytes(),
        "landing_bytes": engine.tiers.as_ref().map(|plan| plan.landing_bytes),
        "passes": c.passes,
        "hits": c.hits,
        "misses": c.misses,
        "promoted": c.promoted,
        "reads": c.reads,
        "read_bytes": c.bytes,
        "waits": c.waits,
        "wait_ms": c.wait_ns as f64 / 1e6,
        "compute_ms": c.compute_ns as f64 / 1e6,
        "ahead_useful": c.ahead_useful,
        "ahead_wasted": c.ahead_wasted,
        "ahead_cancelled": c.ahead_cancelled,
        "executed_routed_mass": executed(&c),
        "per_token": {
            "hits": per_token(c.hits),
            "misses": per_token(c.misses),
            "reads": per_token(c.reads),
            "read_bytes": per_token(c.bytes),
            "waits": per_token(c.waits),
            "wait_ms": per_token(c.wait_ns) / 1e6,
            "ahead_useful": per_token(c.ahead_useful),
            "ahead_wasted": per_token(c.ahead_wasted),
        },
        "drive": report.backend.to_string(),
        "direct": direct,
    })
}

/// The part of the routed weight that was computed; all of nothing is all.
fn executed(counters: &TierCounters) -> f64 {
    if counters.routed_mass > 0.0 { counters.executed_mass / counters.routed_mass } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    /// `doctor` said that all fits where the engine then chose tiers: the two had a formula each.
    #[test]
    fn memory_is_shared_out_in_one_place() {
        let of = |room| Spare::of(room, GB, 10 * GB, 86 * GB);
        assert_eq!(of(128 * GB), Spare::All);
        assert_eq!(of(100 * GB), Spare::Slots((100 - 1 - 5 - 10) * GB), "5 of reserve");
        assert_eq!([of(11 * GB), of(0)], [Spare::Nothing; 2]);
        assert_eq!((reserve(GB), reserve(40 * GB)), (512 << 20, 2 * GB));
    }

    #[test]
    fn a_model_inside_the_program_is_never_tiered_by_itself() {
        let file = gguf::Model::from_static("demo", crate::demo::bytes()).unwrap();
        let model = Model::load(file).unwrap();
        let options = glm_graph::CpuOptions {
            precision: quant_kernels::Precision::Fast,
            kv: glm_graph::Kv::F16,
            threads: Some(1),
            ctx: 64,
            isa: None,
            tiers: None,
        };
        let plan = glm_graph::CpuExecutor::plan(&model, &options);
        let memory = Memory { available: Some(plan.anonymous() + 1), ..Memory::default() };
        let chosen = choose(&TierArgs::default(), &model, &plan, &memory, "demo").unwrap();
        assert!(chosen.is_none());
    }
}
