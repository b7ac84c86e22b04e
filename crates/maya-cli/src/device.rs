//! Which device computes: from `--device`, and from what the machine has.

use std::fmt::Display;
use std::sync::Arc;

use anyhow::{Result, bail};
use glm_graph::{CpuOptions, ExecError, Model};
use serde_json::Value as Json;

use crate::args::{Amount, Device, EngineArgs};
use crate::exec::Exec;
use crate::output::note;

/// Tells that `--vram` has no use, where an amount was given.
fn without_vram(args: &EngineArgs, why: impl Display) {
    if matches!(args.vram, Some(Amount::Budget(_))) {
        note(format_args!("--vram is not used, since the CPU computes: {why}"));
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use anyhow::Context;
    use glm_graph::{CudaExecutor, CudaOptions, LoadReport};
    use quant_kernels::cuda::{Device as Gpu, StoreOptions};
    use serde_json::json;

    use super::*;
    use crate::args::{Budget, Precision};
    use crate::output::bytes;
    use crate::progress::Progress;

    /// Sequences that can be open at once at least: the one that is answered, and one that is kept for the next message.
    const SEQUENCES: usize = 2;

    pub(super) fn choose(
        args: &EngineArgs,
        model: &Arc<Model>,
        options: &CpuOptions,
        name: &str,
        sequences: usize,
    ) -> Result<Option<Exec>> {
        let wanted = match &args.device {
            Device::Cpu => {
                without_vram(args, "--device cpu");
                return Ok(None);
            }
            Device::Auto => None,
            Device::Cuda(text) => Some((text, ordinal(text)?)),
        };
        let obstacle = if args.precision == Precision::Exact {
            Some("--precision exact is the CPU's")
        } else if args.tiers.ram.is_some() {
            Some("--ram is for experts beside the CPU, and a device keeps all of them in its own memory")
        } else {
            None
        };
        if let Some(why) = obstacle {
            return match &args.device {
                Device::Cuda(device) => bail!("--device {device}: {why}; leave one of the two out"),
                _ => {
                    without_vram(args, why);
                    Ok(None)
                }
            };
        }
        let Some((text, ordinal)) = wanted else { return automatic(args, model, options, name, sequences) };
        let exec = make(cuda_options(args, options, model, ordinal, sequences)?, model);
        let exec = exec.with_context(|| format!("--device {text} cannot run {name}"))?;
        Ok(Some(Exec::Cuda(Box::new(exec))))
    }

    /// The first device, if the whole model fits there.
    fn automatic(
        args: &EngineArgs,
        model: &Arc<Model>,
        options: &CpuOptions,
        name: &str,
        sequences: usize,
    ) -> Result<Option<Exec>> {
        // No driver, or one that is too old: the processor works everywhere.
        let gpu = match Gpu::all() {
            Ok(all) => all.into_iter().next(),
            Err(why) => {
                without_vram(args, why);
                None
            }
        };
        let Some(gpu) = gpu else { return Ok(None) };
        let cuda = cuda_options(args, options, model, gpu.ordinal, sequences)?;
        match make(cuda, model) {
            Ok(exec) => Ok(Some(Exec::Cuda(Box::new(exec)))),
            Err(error) => {
                note(format_args!("{name} runs on the CPU, not on {}: {error}", gpu.name));
                Ok(None)
            }
        }
    }

    fn ordinal(text: &str) -> Result<u32> {
        let list = text.strip_prefix("cuda").unwrap_or(text).trim_start_matches(':');
        match list.split(',').collect::<Vec<_>>()[..] {
            [""] => Ok(0),
            [one] => match one.parse() {
                Ok(ordinal) => Ok(ordinal),
                Err(_) => bail!("--device {text}: {one} is no device number"),
            },
            _ => bail!("--device {text}: a model on several devices is not in this build yet; name one"),
        }
    }

    fn cuda_options(
        args: &EngineArgs,
        options: &CpuOptions,
        model: &Model,
        device: u32,
        sequences: usize,
    ) -> Result<CudaOptions> {
        let mut it = CudaOptions {
            device,
            kv: options.kv,
            ctx: options.ctx,
            sequences: sequences.max(SEQUENCES),
            vram: None,
            span: None,
            store: StoreOptions::from_environment(crate::cmd::kernels::PACK)?,
        };
        it.vram = match args.vram {
            Some(Amount::Budget(Budget::Bytes(bytes))) => Some(bytes),
            Some(Amount::Budget(share)) => Some(share.of(CudaExecutor::plan(model, &it).experts())),
            Some(Amount::Auto) | None => None,
        };
        Ok(it)
    }

    pub(super) fn make(options: CudaOptions, model: &Arc<Model>) -> Result<CudaExecutor, ExecError> {
        let total = CudaExecutor::plan(model, &options).weights();
        let mut progress = Progress::new("loading to the device", "bytes", total);
        let mut come = 0;
        let exec = CudaExecutor::new(Arc::clone(model), options, &mut |more| {
            come += more;
            progress.at(come);
        });
        progress.finish();
        let exec = exec?;
        let (load, memory) = (exec.load_report(), bytes(exec.device_plan().total()));
        tracing::debug!(device = exec.device().name, memory, "the model is on the device");
        if let Some(how) = read_by(load) {
            note(format_args!(
                "the weights are on {}: {} in {:.1} s, {:.1} GB/s, {how}",
                exec.device().name,
                bytes(load.bytes),
                load.took.as_secs_f64(),
                load.rate() / 1e9
            ));
        }
        Ok(exec)
    }

    /// What read the files; `None` where nothing had to be read.
    fn read_by(load: &LoadReport) -> Option<String> {
        let reader = load.reader.as_ref()?;
        let by = match load.threads {
            Some(threads) => format!("read by {threads} threads"),
            None => format!("read by {}", reader.backend),
        };
        let buffered = reader.files.iter().find_map(|file| Some((&file.path, file.why_buffered?)));
        Some(match buffered {
            None => format!("{by} around the page cache"),
            Some((path, why)) => format!("{by}: {} {why}", path.display()),
        })
    }

    pub(super) fn load_json(exec: &Exec) -> Json {
        let Exec::Cuda(exec) = exec else { return Json::Null };
        let load = exec.load_report();
        let reader = load.reader.as_ref();
        json!({
            "bytes": load.bytes,
            "seconds": load.took.as_secs_f64(),
            "gb_s": load.rate() / 1e9,
            "drive": reader.map(|it| it.backend.to_string()),
            "threads": load.threads,
            "direct": reader.map(|it| it.files.iter().all(nvme_reader::FileReport::is_direct)),
            "how": read_by(load),
        })
    }

    pub(super) fn again(old: Exec, model: &Arc<Model>) -> Result<Option<Exec>, ExecError> {
        match old {
            Exec::Cpu(_) => Ok(None),
            Exec::Cuda(old) => {
                let options = old.options().clone();
                drop(old);
                Ok(Some(Exec::Cuda(Box::new(make(options, model)?))))
            }
        }
    }
}

/// The executor on the device that the flags ask for, or `None` where the CPU computes.
///
/// # Errors
/// A sentence: a device that was asked for by name cannot be used, or with the other flags.
#[cfg(feature = "cuda")]
pub fn choose(
    args: &EngineArgs,
    model: &Arc<Model>,
    options: &CpuOptions,
    name: &str,
    sequences: usize,
) -> Result<Option<Exec>> {
    cuda::choose(args, model, options, name, sequences)
}

/// An executor like `old`, which is dropped first; `None` if that was the CPU's.
///
/// # Errors
/// The executor's.
#[cfg(feature = "cuda")]
pub fn again(old: Exec, model: &Arc<Model>) -> Result<Option<Exec>, ExecError> {
    cuda::again(old, model)
}

/// How the weights came to the device, for programs; null where the CPU computes.
#[cfg(feature = "cuda")]
pub fn load_json(exec: &Exec) -> Json {
    cuda::load_json(exec)
}

/// A build without the device's executor.
#[cfg(not(feature = "cuda"))]
pub fn load_json(_: &Exec) -> Json {
    Json::Null
}

/// A build without the device's executor.
///
/// # Errors
/// A device was asked for by name.
#[cfg(not(feature = "cuda"))]
pub fn choose(args: &EngineArgs, _: &Arc<Model>, _: &CpuOptions, _: &str, _: usize) -> Result<Option<Exec>> {
    match &args.device {
        Device::Cuda(device) => bail!("--device {device}: this build has no CUDA executor; use --device cpu"),
        _ => {
            without_vram(args, "this build has no CUDA executor");
            Ok(None)
        }
    }
}

/// Only the CPU's.
///
/// # Errors
/// None.
#[cfg(not(feature = "cuda"))]
pub fn again(_: Exec, _: &Arc<Model>) -> Result<Option<Exec>, ExecError> {
    Ok(None)
}
