//! A loaded model with its executor, made from the flags.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use glm_chat::Tokenizer;
use glm_graph::{CpuExecutor, CpuOptions, ExecError, Executor, MemoryPlan, Model, SamplerParams, TierPlan};

use crate::args::{Amount, EngineArgs, Kv, Precision, SamplingArgs};
use crate::device;
use crate::exec::Exec;
use crate::machine::Memory;
use crate::output::{bytes, count, note};
use crate::progress::Waiting;
use crate::source::Source;
use crate::{demo, tiers};

/// Context where the user asks for none: room for a long conversation, with caches that any machine can hold (the full
/// model's take 0.4 GB then; its own limit of a million tokens would take 13 GB).
const CTX_DEFAULT: usize = 32_768;

/// A model ready to compute.
pub struct Engine {
    /// How messages call the file.
    pub name: String,
    /// Config, weights, file.
    pub model: Arc<Model>,
    /// What computes.
    pub exec: Exec,
    /// How it was made.
    pub options: CpuOptions,
    /// What it needs of memory.
    pub plan: MemoryPlan,
    /// How memory for routed experts is divided; `None` where they are read from the file's map.
    pub tiers: Option<TierPlan>,
    /// From the start of the call to ready.
    pub load_time: Duration,
    /// Bytes of the file or files.
    pub file_bytes: u64,
}

impl Engine {
    /// Opens the file, checks that it fits, starts the executor.
    ///
    /// # Errors
    /// A sentence: a device or a file that cannot be used, a context beyond the model's, too little memory.
    pub fn load(args: &EngineArgs) -> Result<Self> {
        Self::load_for(args, 1)
    }

    /// As [`load`](Self::load), with room for the state and caches of `sequences` full sequences or copies of them.
    ///
    /// # Errors
    /// As there.
    pub fn load_for(args: &EngineArgs, sequences: u64) -> Result<Self> {
        let started = Instant::now();
        let mut source = Source::open(args.model.model.as_deref())?;
        if source.path.is_none() && matches!(args.tiers.ram, Some(Amount::Budget(_))) {
            // Tiers read a file: the demo model's copy on disk will do.
            source.model = gguf::Model::open(&demo::on_disk()?)?;
        }
        let file_bytes = source.len();
        let name = source.name;
        let _waiting = Waiting::new("loading the model");
        let model = Model::load(source.model).with_context(|| format!("{name} cannot be used"))?;
        let mut options = options(args, &model, &name)?;
        let mut plan = CpuExecutor::plan(&model, &options);
        plan.state = plan.state.saturating_mul(sequences);
        plan.caches = plan.caches.saturating_mul(sequences);
        let model = Arc::new(model);
        if let Some(exec) = device::choose(args, &model, &options, &name, sequences as usize)? {
            let (tiers, load_time) = (None, started.elapsed());
            return Ok(Self { name, model, exec, options, plan, tiers, load_time, file_bytes });
        }
        let memory = Memory::read();
        fits(&plan, &memory, &name)?;
        let (tier_options, tiers) = tiers::choose(&args.tiers, &model, &plan, &memory, &name)?.unzip();
        options.tiers = tier_options;
        warn_of_rereads(&plan, &memory, &name, options.tiers.is_some());
        let exec = Exec::Cpu(Box::new(CpuExecutor::new(Arc::clone(&model), options.clone())?));
        Ok(Self { name, model, exec, options, plan, tiers, load_time: started.elapsed(), file_bytes })
    }

    /// A new executor over the same weights: what a panic or a device's failure left behind is dropped with the old one.
    ///
    /// # Errors
    /// The executor's.
    pub fn restart(&mut self) -> Result<(), ExecError> {
        let cpu = CpuExecutor::new(Arc::clone(&self.model), self.options.clone())?;
        // A device's memory is free only when its executor is gone.
        let old = std::mem::replace(&mut self.exec, Exec::Cpu(Box::new(cpu)));
        if let Some(exec) = device::again(old, &self.model)? {
            self.exec = exec;
        }
        Ok(())
    }

    /// Refuses a prompt that the model cannot take, before anything is computed.
    ///
    /// # Errors
    /// It is empty, has an id outside the vocabulary, or is longer than the context.
    pub fn check(&self, prompt: &[u32]) -> Result<()> {
        if prompt.is_empty() {
            bail!("the prompt is empty: there is nothing to continue");
        }
        let vocab = self.exec.vocab();
        if let Some(at) = prompt.iter().position(|&id| id as usize >= vocab) {
            bail!(
                "token id {} (number {} of the prompt) is out of range: the vocabulary of {} has ids 0 to {}",
                prompt[at],
                at + 1,
                self.name,
                vocab - 1
            );
        }
        if prompt.len() > self.options.ctx {
            bail!(
                "the prompt has {} tokens and the context is {} (--ctx); the model's own limit is {}",
                count(prompt.len() as u64),
                count(self.options.ctx as u64),
                count(self.model.config().context_length as u64)
            );
        }
        Ok(())
    }

    /// What computes, for people.
    pub fn device_line(&self, precision: &str) -> String {
        match self.exec.cpu() {
            Some(_) => format!("cpu, {}, {} threads, {precision}", self.exec.describe(), self.threads()),
            None => format!("cuda, {}, {precision}", self.exec.describe()),
        }
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}

fn options(args: &EngineArgs, model: &Model, name: &str) -> Result<CpuOptions> {
    let limit = model.config().context_length;
    let ctx = match args.ctx {
        Some(ctx) if ctx as usize > limit => bail!(
            "--ctx {} is beyond what {name} was made for: {} tokens",
            count(u64::from(ctx)),
            count(limit as u64)
        ),
        Some(ctx) => ctx as usize,
        None => limit.min(CTX_DEFAULT),
    };
    let precision = match args.precision {
        Precision::Exact => quant_kernels::Precision::Exact,
        Precision::Fast => quant_kernels::Precision::Fast,
    };
    let kv = match (args.kv, args.precision) {
        (Some(Kv::F32), _) | (None, Precision::Exact) => glm_graph::Kv::F32,
        (Some(Kv::F16), _) | (None, Precision::Fast) => glm_graph::Kv::F16,
    };
    Ok(CpuOptions { precision, kv, threads: args.threads.map(usize::from), ctx, isa: None, tiers: None })
}

/// How much memory there is, and what says so.
fn there_is(memory: &Memory, room: u64) -> String {
    match &memory.cgroup {
        Some(group) if memory.available.is_none_or(|a| group.limit.saturating_sub(group.used) < a) => {
            format!(
                "{} are left under the limit of {} set by {}",
                bytes(room),
                bytes(group.limit),
                group.path.display()
            )
        }
        _ => format!("{} of memory are available", bytes(room)),
    }
}

/// Refuses what cannot fit.
fn fits(plan: &MemoryPlan, memory: &Memory, name: &str) -> Result<()> {
    let Some(room) = memory.room() else { return Ok(()) };
    let (need, of) = (plan.anonymous(), there_is(memory, room));
    if need > room {
        bail!(
            "too little memory for {name}: {} are needed beside the weights ({} of caches at {} tokens of context, {} of \
             state, {} of buffers), and {of}; a smaller --ctx needs less",
            bytes(need),
            bytes(plan.caches),
            count(plan.ctx as u64),
            bytes(plan.state),
            bytes(plan.scratch + plan.vectors)
        );
    }
    Ok(())
}

/// Tells where weights will have to come from the drive again and again.
fn warn_of_rereads(plan: &MemoryPlan, memory: &Memory, name: &str, tiered: bool) {
    let Some(room) = memory.room() else { return };
    let weights = plan.weights - if tiered { plan.routed } else { 0 };
    if weights > room.saturating_sub(plan.anonymous()) {
        note(format_args!(
            "the {} of {name} ({}) do not fit beside {} of state and caches: {}; what does not fit is read from the drive \
             again for every token that needs it",
            if tiered { "dense weights" } else { "weights" },
            bytes(weights),
            bytes(plan.anonymous()),
            there_is(memory, room)
        ));
    }
}

/// Sampling from the flags, then from what the file recommends, then from the model card. Padding rows of the
/// vocabulary are never drawn.
///
/// # Errors
/// As [`recommended`], or flags that no sampler can follow.
pub fn sampling(
    args: &SamplingArgs,
    seed: Option<u64>,
    model: &gguf::Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<SamplerParams> {
    let mut params = recommended(model, tokenizer)?;
    if let Some(temperature) = args.temperature {
        params.temperature = temperature;
    }
    if let Some(top_p) = args.top_p {
        params.top_p = top_p;
    }
    if let Some(top_k) = args.top_k {
        params.top_k = top_k as usize;
    }
    params.min_p = args.min_p;
    params.repetition_penalty = args.repetition_penalty;
    params.presence_penalty = args.presence_penalty;
    params.frequency_penalty = args.frequency_penalty;
    params.seed = seed.unwrap_or_else(fresh_seed);
    // Now, not at the first token: a chat would say it again after every line.
    params.check(usize::MAX)?;
    Ok(params)
}

/// What the file recommends (`general.sampling.*`), else the model card's.
///
/// # Errors
/// A recommendation that is no number, or one that no sampler can follow.
pub fn recommended(model: &gguf::Model, tokenizer: Option<&Tokenizer>) -> Result<SamplerParams> {
    let mut params = SamplerParams::default();
    if let Some(temperature) = model.f32("general.sampling.temp")? {
        params.temperature = temperature;
    }
    if let Some(top_p) = model.f32("general.sampling.top_p")? {
        params.top_p = top_p;
    }
    if let Some(top_k) = model.u32("general.sampling.top_k")? {
        params.top_k = top_k as usize;
    }
    params.check(usize::MAX).map_err(|e| {
        let key = match &e {
            ExecError::Sampler { name: "temperature", .. } => "general.sampling.temp",
            ExecError::Sampler { name: "top_p", .. } => "general.sampling.top_p",
            _ => "general.sampling.*",
        };
        let file = model.shards().first().map(|s| s.path.display().to_string()).unwrap_or_default();
        anyhow!("{file}: key {key} cannot be followed: {e}")
    })?;
    if let Some(tokenizer) = tokenizer {
        params.banned = tokenizer.unused_tokens().into();
    }
    Ok(params)
}

/// A seed that differs from run to run.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // RandomState takes its keys from the system's random source.
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cgroup;

    fn plan(weights: u64, caches: u64) -> MemoryPlan {
        MemoryPlan {
            weights,
            routed: 0,
            vectors: 0,
            state: 10,
            latents_per_token: 0,
            pooled_per_token: 0,
            caches,
            scratch: 5,
            ctx: 4096,
        }
    }

    #[test]
    fn too_little_memory_is_refused_with_the_numbers() {
        let memory = Memory { available: Some(1000), ..Memory::default() };
        assert!(fits(&plan(100, 900), &memory, "m").is_ok());
        let error = fits(&plan(100, 990), &memory, "m").unwrap_err().to_string();
        assert!(
            error.contains("1.00 kB are needed") && error.contains("4,096") && error.contains("available"),
            "{error}"
        );
        let group = Cgroup { path: "/sys/fs/cgroup/box".into(), limit: 800, used: 100 };
        let memory = Memory { available: Some(1000), cgroup: Some(group), ..Memory::default() };
        let error = fits(&plan(100, 900), &memory, "m").unwrap_err().to_string();
        assert!(
            error.contains("700 B are left under the limit of 800 B set by /sys/fs/cgroup/box"),
            "{error}"
        );
    }
}
