//! `maya plan`: predicted tokens a second.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::args::{Budget, MachineArgs, ModelOf, PlanArgs, PopularityArgs, Tier};
use crate::output::{AtomicFile, Out, note};
use crate::outputs;
use crate::plan::machine::{Cost, Given, Machine, Room, Said};
use crate::plan::measure;
use crate::plan::place::Placement;
use crate::plan::popularity::{Law, Popularity};
use crate::plan::report::Plan;
use crate::plan::sizes::{Preset, Sizes};
use crate::plot::Chart;
use crate::routes::Trace;

/// The exponent with which the article's figures come out.
const ARTICLE_ZIPF: f64 = 0.88;
/// The deviation with which replays of synthetic traces come near published hit rates.
const LOGNORMAL: f64 = 1.55;

/// Prints the prediction.
pub fn run(args: &PlanArgs) -> Result<()> {
    let path = args.model.as_deref().filter(|p| !p.as_os_str().is_empty());
    // A preset given by name wins over MAYA_MODEL, and contradicts a --model.
    let by_flag = |path: &Path| std::env::var_os("MAYA_MODEL").is_none_or(|named| named != path.as_os_str());
    if args.preset.is_some() && path.is_some_and(by_flag) {
        let says = "the argument '--preset <NAME>' cannot be used with '--model <PATH>'\n";
        clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, says).exit();
    }
    let (sizes, path) = match (args.preset, path) {
        (Some(preset), _) => (Sizes::of_preset(preset)?, None),
        (None, Some(path)) => (Sizes::of_file(path)?, Some(path)),
        (None, None) => (Sizes::of_preset(Preset::MayaS)?, None),
    };
    let model = path.map(gguf::Model::open).transpose()?;
    let shards = model.iter().flat_map(|model| model.shards()).map(|s| ("a file of the model", &*s.path));
    let trace = args.popularity.trace.iter().map(|path| ("the trace", path.as_path()));
    outputs::check(&[("--plot", args.plot.as_deref())], &shards.chain(trace).collect::<Vec<_>>())?;
    let given = given(&args.machine, &sizes, path)?;
    let article = args.model_of == ModelOf::Article;
    let popularity = popularity(&args.popularity, article, &sizes)?;
    let placement = Placement::new(&sizes, &popularity.shares);
    let machine = Machine::new(&given, &sizes, &placement)?;
    if article && machine.gpu.is_none() {
        bail!("--model-of article describes machines with a GPU: give --gpu-ms or --vram-gbps, or a --box");
    }
    if args.plot_over == Tier::Vram && machine.gpu.is_none() {
        bail!("--plot-over vram needs a GPU: give --gpu-ms or --vram-gbps, or a --box");
    }
    let plan = Plan { sizes, machine, popularity, placement, article };
    if let Some(path) = &args.plot {
        write_chart(&plan.chart(args.plot_over == Tier::Vram), path)?;
    }
    let mut out = Out::new();
    if args.json {
        out.line(plan.json())?
    } else {
        out.text(&plan.text())?
    }
    out.flush()
}

/// Writes a chart whole or not at all.
pub fn write_chart(chart: &Chart, path: &Path) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(chart.svg().as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    file.commit()
}

/// A named or measured machine, and the flags over it.
fn given(args: &MachineArgs, sizes: &Sizes, path: Option<&Path>) -> Result<Given> {
    let has_gpu = args.gpu_ms.is_some() || args.vram_gbps.is_some();
    let has_cpu = args.cpu_ms_per_expert.is_some() || args.cpu_gbps.is_some();
    let mut given = match args.named {
        Some(named) => named.given(),
        None if args.measure || !(has_gpu || has_cpu) => measured(sizes, path, args)?,
        None => Given { name: "as given by flags".to_owned(), ..Given::default() },
    };
    let over = |slot: &mut Option<Said<Cost>>, ms: (Option<f64>, &str), rate: (Option<f64>, &str)| {
        if let Some(value) = ms.0 {
            *slot = Some(Said::new(Cost::Ms(value), given_by(ms.1)));
        }
        if let Some(value) = rate.0 {
            *slot = Some(Said::new(Cost::Gbps(value), given_by(rate.1)));
        }
    };
    over(&mut given.gpu, (args.gpu_ms, "--gpu-ms"), (args.vram_gbps, "--vram-gbps"));
    over(&mut given.hit, (args.hit_ms, "--hit-ms"), (None, ""));
    // The speed of another card says nothing about this one's experts.
    if has_gpu && args.hit_ms.is_none() {
        given.hit = None;
    }
    over(&mut given.pull, (args.pull_ms, "--pull-ms"), (args.pcie_gbps, "--pcie-gbps"));
    over(&mut given.cpu, (args.cpu_ms_per_expert, "--cpu-ms-per-expert"), (args.cpu_gbps, "--cpu-gbps"));
    over(&mut given.drive, (args.drive_ms, "--drive-ms"), (args.drive_gbps, "--drive-gbps"));
    if has_cpu {
        // Without a GPU the CPU reads the other weights as fast as it reads experts.
        let rate = args.cpu_gbps.or(args.cpu_ms_per_expert.map(|ms| sizes.mean_expert_bytes() / ms / 1e6));
        given.dense = rate.map(|rate| Said::new(Cost::Gbps(rate), "assumed: as the CPU computes experts"));
    }
    let room = |budget: Option<Budget>, slots: Option<u32>, flags: [&str; 2]| match (budget, slots) {
        (Some(Budget::Bytes(bytes)), _) => Some(Said::new(Room::Bytes(bytes as f64), given_by(flags[0]))),
        (Some(Budget::Share(share)), _) => Some(Said::new(Room::Share(share), given_by(flags[0]))),
        (None, Some(slots)) => Some(Said::new(Room::Slots(slots as usize), given_by(flags[1]))),
        (None, None) => None,
    };
    given.vram = room(args.vram, args.vram_slots, ["--vram", "--vram-slots"]).or(given.vram);
    given.ram = room(args.ram, args.ram_slots, ["--ram", "--ram-slots"]).or(given.ram);
    Ok(given)
}

/// A flag as a source.
fn given_by(flag: &str) -> String {
    format!("given: {flag}")
}

/// This machine, with an assumed drive where there is no file to read and no flag that says more.
fn measured(sizes: &Sizes, path: Option<&Path>, args: &MachineArgs) -> Result<Given> {
    let file = path.map(|path| match gguf::Model::open(path) {
        Ok(model) => Ok(model.shards().first().map(|s| s.path.clone())),
        Err(e) => Err(e),
    });
    let file = file.transpose()?.flatten();
    let mut given = measure::here(file.as_deref(), sizes)?;
    if given.drive.is_none() && args.drive_ms.is_none() && args.drive_gbps.is_none() {
        note(
            "no --model to measure the drive with, so it is assumed to read 2.5 GB a second; --drive-gbps says otherwise",
        );
        given.drive = Some(Said::new(Cost::Gbps(2.5), "assumed: there is no file to read"));
    }
    Ok(given)
}

fn popularity(args: &PopularityArgs, article: bool, sizes: &Sizes) -> Result<Popularity> {
    let samples = args.samples as usize;
    if let Some(path) = &args.trace {
        let trace = Trace::read(path)?;
        return Popularity::by_trace(&path.display().to_string(), &trace, sizes, samples);
    }
    let law = match (args.zipf, args.lognormal) {
        (Some(s), _) => Law::Zipf(s),
        (None, Some(sigma)) => Law::LogNormal(sigma),
        (None, None) if article => Law::Zipf(ARTICLE_ZIPF),
        (None, None) => Law::LogNormal(LOGNORMAL),
    };
    Ok(Popularity::by_law(law, sizes, samples, args.seed))
}
