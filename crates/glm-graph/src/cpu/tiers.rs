//! Routed experts in a part of memory that cannot hold them all, the rest on the drive.
//!
//! The near tier of a [`tier_cache::Directory`] is a partition of a [`HostArena`]: each layer's slots, and a landing area
//! of transit blobs that experts without a slot are computed from. The drive reaches both by itself. What is computed, and
//! in which order it is added, does not depend on any of this.

mod ahead;
mod layout;
mod read;
mod serve;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use nvme_reader::Reader;
use tier_cache::{
    Admission, ArenaOptions, Boundary, Budget, Claimer, ClassSpec, Directory, ExpertId, Geometry, HostArena,
    HostSlot, LayerNeed, Lfu, Owner, Plan, Residence, Routed, Shares, SlotRules, Ticket, Usage,
};

use super::store::Served;
use crate::error::ExecError;
use crate::model::Model;
use crate::weights::Ffn;

pub use layout::TierPlan;
use layout::{Layer, layers};

/// How much memory routed experts may take, and how they come.
#[derive(Clone, Debug)]
pub struct TierOptions {
    /// Bytes of expert slots. The landing area is counted inside where it fits (see [`TierPlan`]).
    pub ram: u64,
    /// Whether the next layer's router is asked early, for the drive to read what it will miss.
    pub look_ahead: bool,
    /// Copies of the model's files on other drives: for each copy its shards, in order.
    pub mirrors: Vec<Vec<PathBuf>>,
    /// What reads the drive.
    pub backend: nvme_reader::Choice,
    /// Whether reads go around the page cache.
    pub direct: nvme_reader::Direct,
    /// Counts of an earlier run: they decide how the slots are divided among layers, and who is evicted at first.
    pub usage: Option<Usage>,
    /// Changes what the drive answers, for tests.
    #[doc(hidden)]
    pub faults: Option<nvme_reader::faults::Faults>,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            ram: 0,
            look_ahead: true,
            mirrors: Vec::new(),
            backend: nvme_reader::Choice::Auto,
            direct: nvme_reader::Direct::Auto,
            usage: None,
            faults: None,
        }
    }
}

/// What the tiers have done since the executor was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierCounters {
    /// Passes through the layers: tokens of a decode, batches of rows of a prompt.
    pub passes: u64,
    /// Routed experts of a layer that were in a slot, each counted once a pass.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
    /// Misses that were given a slot.
    pub promoted: u64,
    /// Reads that a computation waited for.
    pub reads: u64,
    /// Bytes of all reads.
    pub bytes: u64,
    /// Times that nothing was left to compute and a read had to be waited for.
    pub waits: u64,
    /// Nanoseconds of those waits.
    pub wait_ns: u64,
    /// Nanoseconds of computing routed experts, the shared one included.
    pub compute_ns: u64,
    /// Reads begun for an expert that was then routed.
    pub ahead_useful: u64,
    /// Reads begun for one that was not, and carried out.
    pub ahead_wasted: u64,
    /// Reads begun for one that was not, and called back in time.
    pub ahead_cancelled: u64,
    /// Sum of the weights of all routed experts.
    pub routed_mass: f64,
    /// Sum of the weights of those that were computed and added; the same number unless a drive failed.
    pub executed_mass: f64,
}

/// What one layer of the last pass needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerPass {
    /// Experts, each once.
    pub experts: u32,
    /// Those that were not in a slot when they were routed.
    pub misses: u32,
    /// Those that look-ahead had begun to read.
    pub guessed: u32,
    /// Bytes of one expert.
    pub bytes: u64,
}

/// The experts of all layers of the trunk, on two tiers.
pub(crate) struct Tiers {
    directory: Directory<Lfu>,
    claimer: Claimer,
    arena: HostArena,
    reader: Reader<&'static mut [u8]>,
    layers: Vec<Layer>,
    /// The tier's layer of each block.
    of_block: Vec<Option<u16>>,
    /// First arena slot of the landing area.
    landing: u32,
    look_ahead: bool,
    k: usize,
    counters: TierCounters,
    /// By layer.
    pass: Vec<LayerPass>,
    /// The layer in progress.
    layer: u16,
    /// Experts of it for which no memory was free yet.
    todo: VecDeque<Served>,
    /// Those whose weights are on their way.
    waiting: HashMap<Ticket, Served>,
    /// Those that can be computed.
    ready: Vec<Served>,
    failures: Vec<(u32, ExecError)>,
    /// Claimer and directory disagree: nothing may be computed from the slots any more.
    defect: Option<String>,
    guesses: Vec<ahead::Guess>,
    /// The slot that each read lands in.
    flights: HashMap<u64, HostSlot>,
    done: Vec<nvme_reader::Completion<&'static mut [u8]>>,
    boundary: Boundary,
    plan: Plan,
    routed: Vec<Routed>,
    ids: Vec<u16>,
}

impl Tiers {
    /// Opens the files, divides the memory, starts the reader.
    pub(crate) fn open(model: &Model, options: &TierOptions) -> Result<Self, ExecError> {
        let reader = read::open(model, options)?;
        let config = model.config();
        let layers = layers(model, &reader)?;
        let plan = TierPlan::divide(model, options, &layers)?;
        let mut of_block = vec![None; model.weights().blocks.len()];
        layers.iter().enumerate().for_each(|(at, layer)| of_block[layer.block] = Some(at as u16));

        let mut specs: Vec<ClassSpec> = Vec::new();
        for (layer, slots) in layers.iter().zip(&plan.slots) {
            specs.push(ClassSpec { slot_bytes: layer.slot_bytes, slots: *slots });
        }
        let largest = layers.iter().map(|layer| layer.slot_bytes).max().unwrap_or(1);
        let scratch = u32::from(plan.landings);
        specs.push(ClassSpec { slot_bytes: largest, slots: scratch });
        let align = reader.alignment().max(512);
        let arena = HostArena::new(&specs, &ArenaOptions { align, ..ArenaOptions::default() });
        let arena = arena.map_err(|error| ExecError::Tiers(error.to_string()))?;
        let landing = arena.class_slots(layers.len()).start;

        let mut geometry =
            Geometry::two_tiers(config.experts as u16, plan.slots.clone(), config.experts_used as u16);
        geometry.scratch = plan.landings;
        // A prompt's batch may miss every expert of a layer at once.
        geometry.offers = config.experts as u16;
        let claimer = Claimer::new(&geometry, Admission::All);
        let mut directory =
            Directory::new(geometry, Lfu).map_err(|error| ExecError::Tiers(error.to_string()))?;
        if let Some(usage) = fitting(options, layers.len(), config.experts) {
            directory.seed(usage.counts());
        }
        let mut tiers = Self {
            directory,
            claimer,
            arena,
            reader,
            layers,
            of_block,
            landing,
            look_ahead: options.look_ahead,
            k: config.experts_used,
            counters: TierCounters::default(),
            pass: Vec::new(),
            layer: 0,
            todo: VecDeque::new(),
            waiting: HashMap::new(),
            ready: Vec::new(),
            failures: Vec::new(),
            defect: None,
            guesses: Vec::new(),
            flights: HashMap::new(),
            done: Vec::new(),
            boundary: Boundary::default(),
            plan: Plan::default(),
            routed: Vec::new(),
            ids: Vec::new(),
        };
        tiers.pass = tiers
            .layers
            .iter()
            .map(|layer| LayerPass { bytes: layer.expert_bytes(), ..LayerPass::default() })
            .collect();
        // The arena is not registered with the ring: that would pin all of its pages now (6 GB took a second before the
        // first token), and registered reads were no faster on any drive that was measured.
        tiers.sync();
        Ok(tiers)
    }

    pub(crate) fn counters(&self) -> TierCounters {
        self.counters
    }

    /// Time was spent on a wave.
    pub(crate) fn computed(&mut self, time: std::time::Duration) {
        self.counters.compute_ns += time.as_nanos() as u64;
    }

    /// Counts what was routed and what of it was computed. Both sums take the same terms in the same order, so they are
    /// equal to the bit when nothing is missing.
    pub(crate) fn weigh(&mut self, pairs: impl Iterator<Item = (bool, f32)>) {
        for (is_computed, weight) in pairs.filter(|(_, weight)| weight.is_finite()) {
            self.counters.routed_mass += f64::from(weight);
            self.counters.executed_mass += if is_computed { f64::from(weight) } else { 0.0 };
        }
    }

    /// Bytes of the slots that hold an expert, or are about to.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let of = |(at, layer): (usize, &Layer)| {
            u64::from(self.directory.residents(at as u16)) * layer.slot_bytes as u64
        };
        self.layers.iter().enumerate().map(of).sum()
    }

    pub(crate) fn last_pass(&self) -> &[LayerPass] {
        &self.pass
    }

    /// What the drive is read with, and why.
    pub(crate) fn report(&self) -> nvme_reader::Report {
        self.reader.report()
    }

    /// Counts and residents, for the next run.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let experts = self.directory.geometry().experts;
        let mut usage = Usage::new(self.layers.len() as u32, u32::from(experts))?;
        usage.counts_mut().iter_mut().zip(self.directory.counts()).for_each(|(to, from)| *to = from);
        for layer in 0..self.layers.len() as u16 {
            for expert in 0..experts {
                let id = ExpertId { layer, expert };
                if let (Residence::Device(_), Some(at)) = (self.directory.residence(id), usage.index(id)) {
                    usage.owners_mut()[at] = Owner::Host;
                }
            }
        }
        Some(usage)
    }

    /// Ends a pass: reads that are still under way for guesses are called back, evictions make room for the next misses.
    pub(crate) fn end_pass(&mut self) {
        self.counters.passes += 1;
        self.drop_guesses(None);
        self.receive();
        self.directory.token_boundary(&mut self.boundary);
        self.apply();
        self.sync();
    }

    /// Tells the claimer what changed, until it knows all.
    fn sync(&mut self) {
        loop {
            self.directory.publish(&mut self.boundary);
            if self.boundary.batch.is_none() {
                return;
            }
            self.apply();
        }
    }

    fn apply(&mut self) {
        debug_assert!(self.boundary.transfers.is_empty(), "with one tier in memory nothing is demoted");
        self.claimer.apply(&self.boundary.edits);
        if let Some(batch) = self.boundary.batch {
            let acknowledged = self.directory.acknowledge(batch, &mut self.plan.transfers);
            debug_assert!(acknowledged.is_ok(), "the batch was just written");
        }
    }
}

/// Usage of the same shape as the model.
fn fitting(options: &TierOptions, layers: usize, experts: usize) -> Option<&Usage> {
    let fits = |usage: &&Usage| (usage.layers() as usize, usage.experts() as usize) == (layers, experts);
    options.usage.as_ref().filter(fits)
}

impl TierPlan {
    /// How `options` divide memory, before anything is opened but the files.
    ///
    /// # Errors
    /// As [`CpuExecutor::new`](crate::CpuExecutor::new).
    pub fn of(model: &Model, options: &TierOptions) -> Result<Self, ExecError> {
        let reader = read::open(model, options)?;
        Self::divide(model, options, &layers(model, &reader)?)
    }

    /// As [`of`](Self::of), where the layers are known.
    fn divide(model: &Model, options: &TierOptions, layers: &[Layer]) -> Result<Self, ExecError> {
        let config = model.config();
        let landings = 2 * config.experts_used as u64;
        let largest = layers.iter().map(|layer| layer.slot_bytes as u64).max().unwrap_or(0);
        let all = layers.iter().map(|layer| layer.slot_bytes as u64 * config.experts as u64).sum();
        let landing_bytes = landings * largest;
        // A landing area that would take more than half of the memory comes on top: slots are what the limit is for.
        let inside = options.ram < all && landing_bytes <= options.ram / 2;
        let usage = fitting(options, layers.len(), config.experts);
        let needs: Vec<LayerNeed> = layers
            .iter()
            .enumerate()
            .map(|(at, layer)| LayerNeed {
                slot_bytes: layer.slot_bytes as u64,
                experts: config.experts as u32,
                shares: usage
                    .map_or_else(Shares::unknown, |u| Shares::from_counts(u.layer_counts(at as u16))),
            })
            .collect();
        let rules = SlotRules { experts_per_token: config.experts_used as u32, spares: 3, yielding: true };
        let for_slots = options.ram - if inside { landing_bytes } else { 0 };
        let budget =
            Budget::for_layers(for_slots, &needs, rules).map_err(|e| ExecError::Tiers(e.to_string()))?;
        Ok(Self {
            slot_bytes: budget.bytes,
            slots: budget.slots,
            landings: landings as u16,
            landing_bytes,
            landing_inside: inside,
            all_bytes: all,
        })
    }
}

/// Whether a block's experts are routed ones of the trunk.
fn moe(model: &Model, block: usize) -> Option<&crate::weights::Moe> {
    match model.weights().blocks.get(block).map(|block| &block.ffn) {
        Some(Ffn::Moe(weights)) if block < model.config().trunk => Some(weights),
        _ => None,
    }
}
