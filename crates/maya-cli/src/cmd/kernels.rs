//! `maya kernels`: compiles the device code, for checks and for the pack in a release binary. Only `probe` needs a
//! driver.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use quant_kernels::cuda::{
    self, Arch, Compiled, Device, Entry, KernelStore, Key, Nvrtc, Pack, Resources, StoreOptions, Unit,
};
use serde_json::{Value as Json, json};

use crate::output::Out;

/// The pack that the build put into this binary.
pub const PACK: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/kernel_pack.rs"));

/// All units: the products', and those of the model's own operations.
fn units() -> Vec<&'static Unit> {
    cuda::units().into_iter().chain(glm_graph::CUDA_UNITS).collect()
}

/// `maya kernels`
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// What to do with the device code.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Compile and report seconds, registers and spills; a warning is a failure
    Check(CompileArgs),
    /// Compile, and write everything to one file
    Pack {
        /// What to compile.
        #[command(flatten)]
        compile: CompileArgs,
        /// The file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the units, and what this binary's pack holds
    List {
        /// One JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Run the smallest kernel on every GPU and compare its bits
    Probe {
        /// One JSON object for each GPU instead of text
        #[arg(long)]
        json: bool,
    },
}

/// What to compile, and with what.
#[derive(Debug, Args)]
pub struct CompileArgs {
    /// The compiler's library, or the folder that it lies in [default: MAYA_NVRTC, then the usual places]
    #[arg(long, value_name = "PATH")]
    nvrtc: Option<PathBuf>,
    /// Architectures (comma-separated) [default: all that a release carries]
    #[arg(long, value_delimiter = ',', value_name = "ARCHS")]
    arch: Vec<Arch>,
    /// Only these units (comma-separated)
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    unit: Vec<String>,
    /// One JSON object for each unit and architecture instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &KernelsArgs) -> Result<()> {
    match &args.what {
        What::Check(compile) => check(compile),
        What::Pack { compile, out } => pack(compile, out),
        What::List { json } => list(*json),
        What::Probe { json } => probe(*json),
    }
}

/// A unit to compile for an architecture.
type Job = (&'static Unit, Arch);

impl CompileArgs {
    fn jobs(&self) -> Result<Vec<Job>> {
        let named = |name: &String| {
            let unit = units().into_iter().find(|unit| unit.name == *name);
            unit.with_context(|| format!("there is no unit {name}"))
        };
        let mut chosen: Vec<&'static Unit> = self.unit.iter().map(named).collect::<Result<_>>()?;
        if chosen.is_empty() {
            chosen = units();
        }
        let archs = if self.arch.is_empty() { &Arch::SHIPPED[..] } else { &self.arch };
        Ok(chosen.into_iter().flat_map(|unit| archs.iter().map(move |arch| (unit, *arch))).collect())
    }
}

fn check(args: &CompileArgs) -> Result<()> {
    let jobs = args.jobs()?;
    let nvrtc = Nvrtc::find(args.nvrtc.as_deref())?;
    let mut out = Out::new();
    let mut problems = Vec::new();
    for (unit, arch) in jobs {
        let begin = Instant::now();
        let compiled = match nvrtc.compile(unit, arch) {
            Ok(compiled) => compiled,
            Err(e) => {
                problems.push(e.to_string());
                continue;
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        problems.extend(complaint(unit, arch, &compiled));
        if args.json {
            out.line(row(unit, arch, seconds, &compiled))?;
        } else {
            out.line(format_args!("{:20} {arch:7} {seconds:6.2} s", unit.name))?;
            for entry in &compiled.resources {
                out.line(sentence(entry))?;
            }
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

/// A warning, or entries that are not those of the unit.
fn complaint(unit: &Unit, arch: Arch, compiled: &Compiled) -> Option<String> {
    let warnings = compiled.warnings();
    if !warnings.is_empty() {
        return Some(format!("unit {} has warnings for {arch}: {warnings}", unit.name));
    }
    let mut found: Vec<&str> = compiled.resources.iter().map(|r| r.entry.as_str()).collect();
    let mut listed = unit.entries.to_vec();
    found.sort_unstable();
    listed.sort_unstable();
    (found != listed).then(|| {
        format!("unit {} lists the entries {listed:?}, and its code for {arch} has {found:?}", unit.name)
    })
}

fn row(unit: &Unit, arch: Arch, seconds: f64, compiled: &Compiled) -> Json {
    let entries: Vec<Json> = compiled
        .resources
        .iter()
        .map(|r| {
            json!({
                "entry": r.entry,
                "registers": r.registers,
                "stack_bytes": r.stack_bytes,
                "spill_store_bytes": r.spill_store_bytes,
                "spill_load_bytes": r.spill_load_bytes,
                "smem_bytes": r.smem_bytes,
            })
        })
        .collect();
    json!({
        "unit": unit.name,
        "arch": arch.to_string(),
        "seconds": seconds,
        "cubin_bytes": compiled.cubin.len(),
        "warnings": compiled.warnings(),
        "entries": entries,
    })
}

fn sentence(entry: &Resources) -> String {
    format!(
        "  {:40} {:3} registers, {} B stack, {} B spilled, {} B read back, {} B shared",
        entry.entry,
        entry.registers,
        entry.stack_bytes,
        entry.spill_store_bytes,
        entry.spill_load_bytes,
        entry.smem_bytes
    )
}

fn pack(args: &CompileArgs, path: &Path) -> Result<()> {
    let jobs = args.jobs()?;
    let nvrtc = Nvrtc::find(args.nvrtc.as_deref())?;
    let compiled = side_by_side(&nvrtc, &jobs)?;
    let entry = |(job, cubin)| {
        let &(unit, arch): &Job = job;
        Entry::new(unit.name, arch, Key::of(unit, arch, nvrtc.version()), cubin)
    };
    let entries = jobs.iter().zip(compiled.iter().map(Vec::as_slice)).map(entry).collect();
    let bytes = Pack { compiler: nvrtc.version(), entries }.to_bytes();
    cuda::write_whole(path, &bytes).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut out = Out::new();
    let version = nvrtc.version();
    if args.json {
        let compiler = version.to_string();
        out.line(json!({ "entries": jobs.len(), "bytes": bytes.len(), "compiler": compiler }))
    } else {
        let (n, len) = (jobs.len(), bytes.len());
        out.line(format_args!("{}: {n} cubins by NVRTC {version}, {len} bytes", path.display()))
    }
}

/// Every job's cubin, in order, on as many threads as there are cores.
fn side_by_side(nvrtc: &Nvrtc, jobs: &[Job]) -> Result<Vec<Vec<u8>>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, (unit, arch))) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| jobs.get(at).map(|job| (at, *job)))
        {
            let answer = nvrtc.compile(unit, arch).map_err(anyhow::Error::from).and_then(|compiled| {
                match complaint(unit, arch, &compiled) {
                    Some(complaint) => bail!("{complaint}"),
                    None => Ok(compiled.cubin),
                }
            });
            if let Ok(mut done) = done.lock() {
                done.push((at, answer));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, answer)| answer).collect()
}

fn list(json: bool) -> Result<()> {
    let pack = PACK.map(Pack::parse).transpose()?;
    let mut out = Out::new();
    if json {
        let units: Vec<Json> =
            units().iter().map(|u| json!({ "unit": u.name, "entries": u.entries })).collect();
        let packed =
            |e: &Entry<'_>| json!({ "unit": e.unit, "arch": e.arch.to_string(), "bytes": e.bytes() });
        let pack = pack.map(|p| {
            let entries: Vec<Json> = p.entries.iter().map(packed).collect();
            json!({ "compiler": p.compiler.to_string(), "entries": entries })
        });
        let archs: Vec<String> = Arch::SHIPPED.iter().map(Arch::to_string).collect();
        return out.line(json!({ "units": units, "archs": archs, "pack": pack }));
    }
    for unit in units() {
        out.line(format_args!("{:20} {}", unit.name, unit.entries.join(" ")))?;
    }
    match pack {
        Some(p) => out.line(format_args!("pack: {} cubins by NVRTC {}", p.entries.len(), p.compiler)),
        None => out.line("pack: none in this binary"),
    }
}

fn probe(json: bool) -> Result<()> {
    let mut out = Out::new();
    for device in Device::all()? {
        let context = cuda::Context::new(device.ordinal)?;
        let begin = Instant::now();
        let store = KernelStore::open(&context, StoreOptions::from_environment(PACK)?);
        cuda::self_test(&store).with_context(|| format!("GPU {} ({})", device.ordinal, device.name))?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        let origin = store.origin(&cuda::PROBE).map_or("nowhere", cuda::Origin::name);
        let (driver_major, driver_minor) = device.driver_version;
        if json {
            out.line(json!({
                "ordinal": device.ordinal,
                "name": device.name,
                "arch": Arch::new(device.arch()).to_string(),
                "driver": format!("{driver_major}.{driver_minor}"),
                "origin": origin,
                "ms": ms,
            }))?;
        } else {
            out.line(format_args!(
                "GPU {}: {}, {}, driver for CUDA {driver_major}.{driver_minor}: right bits after {ms:.1} ms, code from {origin}",
                device.ordinal,
                device.name,
                Arch::new(device.arch())
            ))?;
        }
    }
    Ok(())
}
