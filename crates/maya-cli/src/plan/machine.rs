//! A machine as its lanes' costs and its tiers' room, each number with whoever says so.

use std::fmt;

use anyhow::{Result, bail};
use serde_json::{Value as Json, json};

use super::place::Placement;
use super::sizes::Sizes;

/// A number and who says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Said<T> {
    /// The number.
    pub value: T,
    /// Where it comes from: begins with `given`, `derived`, `assumed` or, on this machine, `measured`.
    pub source: String,
}

impl<T> Said<T> {
    /// Puts them together.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }
}

/// What an expert costs on a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// Milliseconds an expert of average size.
    Ms(f64),
    /// Bytes a nanosecond.
    Gbps(f64),
}

impl Cost {
    fn ms(self, bytes: f64) -> f64 {
        match self {
            Self::Ms(ms) => ms,
            Self::Gbps(rate) => bytes / rate / 1e6,
        }
    }
}

/// Room of a tier for routed experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Room {
    /// So many bytes.
    Bytes(f64),
    /// So many experts.
    Slots(usize),
    /// A part of all routed experts.
    Share(f64),
}

impl Room {
    /// Bytes, after the `from` hottest experts have found room elsewhere.
    fn bytes(self, sizes: &Sizes, placement: &Placement, from: usize) -> f64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Slots(n) => placement.bytes_of(from, n),
            Self::Share(share) => share * sizes.routed_bytes() as f64,
        }
    }
}

/// What is known of a machine before the model is: a named one, a measured one, flags over either.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// What it is called.
    pub name: String,
    /// GPU time of a token whose experts are all in VRAM.
    pub gpu: Option<Said<Cost>>,
    /// An expert in VRAM.
    pub hit: Option<Said<Cost>>,
    /// An expert in RAM that the GPU takes over the bus.
    pub pull: Option<Said<Cost>>,
    /// An expert in RAM that the CPU computes.
    pub cpu: Option<Said<Cost>>,
    /// An expert that the drive reads.
    pub drive: Option<Said<Cost>>,
    /// Where there is no GPU: how fast the CPU reads what is no routed expert.
    pub dense: Option<Said<Cost>>,
    /// VRAM for experts.
    pub vram: Option<Said<Room>>,
    /// RAM for experts.
    pub ram: Option<Said<Room>>,
}

/// Everything that a prediction takes, in milliseconds and bytes.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What it is called.
    pub name: String,
    /// All of a token but its routed experts, on the GPU or, without one, on the CPU.
    pub dense_ms: Said<f64>,
    /// The lanes of a GPU; `None` where there is none.
    pub gpu: Option<GpuLanes>,
    /// An expert that the CPU computes from RAM; `None` where it computes none.
    pub cpu_ms: Option<Said<f64>>,
    /// An expert that the drive reads.
    pub drive_ms: Said<f64>,
    /// Bytes of RAM for experts.
    pub ram: Said<f64>,
}

/// Costs of a GPU's lanes.
#[derive(Clone, Debug)]
pub struct GpuLanes {
    /// A token whose experts are all in VRAM.
    pub token_ms: Said<f64>,
    /// An expert in VRAM.
    pub hit_ms: Said<f64>,
    /// An expert over the bus.
    pub pull_ms: Said<f64>,
    /// Bytes of VRAM for experts.
    pub vram: Said<f64>,
}

impl Machine {
    /// Turns rates into costs of this model's experts.
    ///
    /// # Errors
    /// A number that is needed and was not given, by its flags, or numbers that contradict each other.
    pub fn new(given: &Given, sizes: &Sizes, placement: &Placement) -> Result<Self> {
        let expert = sizes.mean_expert_bytes();
        let lane = |cost: &Said<Cost>, bytes: f64| {
            let source = match cost.value {
                Cost::Ms(_) => cost.source.clone(),
                Cost::Gbps(rate) => format!("{} ({} GB/s)", cost.source, short(rate)),
            };
            Said::new(cost.value.ms(bytes), source)
        };
        let room = |room: &Option<Said<Room>>, from: usize| match room {
            Some(room) => Said::new(room.value.bytes(sizes, placement, from), room.source.clone()),
            None => Said::new(0.0, "assumed: none, since none was given"),
        };
        let vram = room(&given.vram, 0);
        let ram = room(&given.ram, placement.tiers(vram.value, 0.0).vram);
        let Some(drive) = &given.drive else {
            bail!("the drive's cost is not known: give --drive-gbps or --drive-ms, a --box, or --measure")
        };
        let drive_ms = lane(drive, expert);
        let cpu_ms = given.cpu.as_ref().map(|cost| lane(cost, expert));
        let name = given.name.clone();
        let Some(token) = &given.gpu else {
            if let Some(flag) =
                [(given.vram.is_some(), "--vram"), (given.pull.is_some(), "--pull-ms or --pcie-gbps")]
                    .into_iter()
                    .find_map(|(there, flag)| there.then_some(flag))
            {
                bail!("{flag} needs a GPU, whose speed is not known: give --gpu-ms or --vram-gbps");
            }
            let (Some(dense), Some(cpu_ms)) = (&given.dense, cpu_ms) else {
                bail!(
                    "neither the GPU nor the CPU is known: give --gpu-ms or --vram-gbps, or --cpu-gbps, or a --box"
                )
            };
            let dense_ms = lane(dense, sizes.always_bytes as f64 + sizes.state_bytes as f64);
            return Ok(Self { name, dense_ms, gpu: None, cpu_ms: Some(cpu_ms), drive_ms, ram });
        };
        let Some(pull) = &given.pull else {
            bail!("the bus between RAM and GPU is not known: give --pcie-gbps or --pull-ms")
        };
        let token_ms = lane(token, sizes.token_bytes());
        let hit_ms = match &given.hit {
            Some(hit) => lane(hit, expert),
            None => Said::new(
                token_ms.value * expert / sizes.token_bytes(),
                "derived: the part of the GPU's time that an expert is of a token's bytes",
            ),
        };
        let lookups = sizes.lookups() as f64;
        let dense = token_ms.value - hit_ms.value * lookups;
        if dense < 0.0 {
            bail!(
                "{lookups} experts of {} ms in VRAM (--hit-ms) take longer than the whole token of {} ms (--gpu-ms)",
                hit_ms.value,
                token_ms.value
            );
        }
        let dense_ms = Said::new(dense, format!("derived: the token less {lookups} experts in VRAM"));
        let gpu = GpuLanes { token_ms, hit_ms, pull_ms: lane(pull, expert), vram };
        Ok(Self { name, dense_ms, gpu: Some(gpu), cpu_ms, drive_ms, ram })
    }

    /// Bytes of VRAM for experts.
    pub fn vram(&self) -> f64 {
        self.gpu.as_ref().map_or(0.0, |gpu| gpu.vram.value)
    }

    /// The same machine with more memory, or a drive so many times as fast.
    pub fn with(&self, vram: f64, ram: f64, drive: f64) -> Self {
        let mut it = self.clone();
        if let Some(gpu) = &mut it.gpu {
            gpu.vram.value += vram;
        }
        it.ram.value += ram;
        it.drive_ms.value /= drive;
        it
    }

    /// Every number with its name, unit and source.
    pub fn inputs(&self) -> Vec<(&'static str, Unit, &Said<f64>)> {
        let mut list = Vec::new();
        if let Some(gpu) = &self.gpu {
            list.push(("gpu_ms", Unit::Ms, &gpu.token_ms));
            list.push(("hit_ms", Unit::Ms, &gpu.hit_ms));
        }
        list.push(("dense_ms", Unit::Ms, &self.dense_ms));
        list.extend(self.gpu.as_ref().map(|gpu| ("pull_ms", Unit::Ms, &gpu.pull_ms)));
        list.extend(self.cpu_ms.as_ref().map(|cpu| ("cpu_ms", Unit::Ms, cpu)));
        list.push(("drive_ms", Unit::Ms, &self.drive_ms));
        list.extend(self.gpu.as_ref().map(|gpu| ("vram_bytes", Unit::Bytes, &gpu.vram)));
        list.push(("ram_bytes", Unit::Bytes, &self.ram));
        list
    }

    /// [`inputs`](Self::inputs) as JSON.
    pub fn json(&self) -> Json {
        let list = self.inputs().into_iter();
        let pairs = list.map(|(name, _, said)| {
            let value = if name.ends_with("_bytes") { json!(said.value as u64) } else { json!(said.value) };
            (name.to_owned(), json!({"value": value, "source": said.source}))
        });
        Json::Object(pairs.collect())
    }
}

/// A number for people: three digits that matter, or all before the point.
pub fn short(value: f64) -> String {
    let digits = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Unit of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds, an expert or a token.
    Ms,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// For people.
    pub fn show(self, value: f64) -> impl fmt::Display {
        match self {
            Self::Ms => format!("{value:.3} ms"),
            Self::Bytes => crate::output::bytes(value as u64),
        }
    }
}
