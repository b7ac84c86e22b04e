//! The executor on a device: every weight in its memory, a token as one recorded graph.
//!
//! A pass gives the CPU executor's bits in `fast` precision: products with quantised weights, the f32 operations and their
//! orders are those of docs/ARITHMETIC.md.

mod abi;
mod attention;
mod kernels;
mod launch;
mod load;
mod lone_product;
mod memory;
mod product;
mod scratch;
mod sequence;
mod step;
mod timeline;
mod token;
mod units;
mod weights;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quant_kernels::Quant;
use quant_kernels::cuda::{Context, Graph, KernelStore, Pinned, StoreOptions, Stream, matvec_tables};

use crate::error::ExecError;
use crate::executor::{Counters, Executor, SeqId, Step, StepRow, Ticket, Token};
use crate::model::Model;
use crate::sampler::Sampler;
use crate::state::{Checkpoint, Kv};
use crate::steps::{Answers, Limits, Standing};
use kernels::Kernels;
pub use load::LoadReport;
pub use lone_product::DeviceProducts;
pub use memory::DevicePlan;
use memory::{Memory, Part, Place};
use scratch::{Scratch, SlotPlaces};
use sequence::DeviceSequence;
pub use timeline::LaunchTime;
pub use units::UNITS;
use weights::{FfnPlaces, MixerPlaces, Weights};

/// How a device executor is made.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The device's number.
    pub device: u32,
    /// How latents are stored.
    pub kv: Kv,
    /// Most tokens a sequence may have.
    pub ctx: usize,
    /// Sequences that can be open at once.
    pub sequences: usize,
    /// Most bytes of device memory; `None` for all that is free.
    pub vram: Option<u64>,
    /// Where device code comes from.
    pub store: StoreOptions,
}

/// One forward pass at a time on a device.
pub struct CudaExecutor {
    // Dropped in this order: what was recorded, then what it names.
    graphs: Vec<[Option<Graph>; 2]>,
    input: Pinned,
    output: Pinned,
    model: Arc<Model>,
    weights: Weights,
    scratch: Scratch,
    slots: Vec<SlotPlaces>,
    kernels: Kernels,
    memory: Memory,
    plan: DevicePlan,
    loaded: LoadReport,
    stream: Stream,
    context: Context,
    kv: Kv,
    ctx: usize,
    free: BTreeSet<usize>,
    sequences: BTreeMap<SeqId, DeviceSequence>,
    next_sequence: u64,
    sampler: Sampler,
    answers: Answers,
    counters: Counters,
    options: CudaOptions,
}

impl Drop for CudaExecutor {
    /// Nothing that is on the stream outlives the memory: a sequence that was opened and never fed is still being cleared.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// Where everything will lie.
struct Layout {
    plan: DevicePlan,
    weights: Weights,
    scratch: Scratch,
    slots: Vec<SlotPlaces>,
    tables: HashMap<Quant, Place>,
}

impl Layout {
    fn of(model: &Model, options: &CudaOptions) -> Self {
        let (config, mut plan) = (model.config(), DevicePlan::default());
        let weights = Weights::plan(model, &mut plan);
        let formats = formats(&weights);
        let tables = formats.iter().filter_map(|quant| {
            let words = matvec_tables(*quant);
            (!words.is_empty()).then(|| (*quant, plan.words(Part::Vectors, words.len())))
        });
        let tables = tables.collect();
        let scratch = Scratch::plan(config, model.vocab(), options.kv, options.ctx, &mut plan);
        let slots = (0..options.sequences)
            .map(|_| SlotPlaces::plan(config, &weights, options.kv, options.ctx, &mut plan))
            .collect();
        Self { plan, weights, scratch, slots, tables }
    }
}

/// The formats of all matrices.
fn formats(weights: &Weights) -> Vec<Quant> {
    let mut all = vec![weights.output.quant];
    for block in &weights.blocks {
        match &block.mixer {
            MixerPlaces::Kda(w) => {
                all.extend(w.first.iter().chain([&w.forget, &w.gate, &w.out]).map(|w| w.quant));
            }
            MixerPlaces::Dsa(w) => {
                let others = [&w.q_b, &w.index_q_b, &w.k_b, &w.v_b, &w.out];
                all.extend(w.first.iter().chain(others).map(|w| w.quant));
            }
        }
        match &block.ffn {
            FfnPlaces::Dense(w) => all.extend([w.gate.quant, w.up.quant, w.down.quant]),
            FfnPlaces::Moe(w) => {
                let s = &w.shared;
                all.extend([w.gate.quant, w.up.quant, w.down.quant]);
                all.extend([s.gate.quant, s.up.quant, s.down.quant]);
            }
        }
    }
    let mut once = Vec::new();
    all.into_iter().for_each(|quant| {
        if !once.contains(&quant) {
            once.push(quant);
        }
    });
    once
}

impl CudaExecutor {
    /// What an executor with these options takes of the device's memory.
    #[must_use]
    pub fn plan(model: &Model, options: &CudaOptions) -> DevicePlan {
        Layout::of(model, options).plan
    }

    /// Takes the device's memory and brings every weight there. `told` hears of bytes as they come.
    ///
    /// # Errors
    /// There is no driver or no such device, too little memory (the sentence names each part), no device code for it, or
    /// the file cannot be read.
    pub fn new(
        model: Arc<Model>,
        options: CudaOptions,
        told: &mut dyn FnMut(u64),
    ) -> Result<Self, ExecError> {
        let context = Context::new(options.device)?;
        let Layout { plan, weights, scratch, slots, tables } = Layout::of(&model, &options);
        let mut memory = Memory::take(&context, &plan, options.vram)?;
        let store = KernelStore::open(&context, options.store.clone());
        let addresses = tables.iter().map(|(quant, place)| (*quant, memory.at(*place))).collect();
        let most = context.device().smem_optin_bytes;
        let kernels = Kernels::load(&store, &formats(&weights), addresses, most)?;
        for (quant, place) in &tables {
            memory.buffer.write(place.0 as usize, bytemuck::cast_slice(&matvec_tables(*quant)))?;
        }
        let loaded = load::load(&weights, &model, &context, &mut memory, told)?;
        let stream = Stream::new(&context)?;
        let config = model.config();
        Ok(Self {
            graphs: (0..options.sequences).map(|_| [None, None]).collect(),
            input: Pinned::new(&context, 16 + 4 * config.residual())?,
            output: Pinned::new(&context, 4 * model.vocab() + 16)?,
            weights,
            scratch,
            free: (0..slots.len()).collect(),
            slots,
            kernels,
            memory,
            plan,
            loaded,
            stream,
            context,
            kv: options.kv,
            ctx: options.ctx,
            sequences: BTreeMap::new(),
            next_sequence: 0,
            sampler: Sampler::default(),
            answers: Answers::default(),
            counters: Counters::default(),
            options,
            model,
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How it was made.
    #[must_use]
    pub fn options(&self) -> &CudaOptions {
        &self.options
    }

    /// What was taken of the device's memory.
    #[must_use]
    pub fn device_plan(&self) -> &DevicePlan {
        &self.plan
    }

    /// How the weights came to the device.
    #[must_use]
    pub fn load_report(&self) -> &LoadReport {
        &self.loaded
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &quant_kernels::cuda::Device {
        self.context.device()
    }

    fn limits(&self) -> Limits {
        Limits { vocab: self.model.vocab(), ctx: self.ctx }
    }

    fn usable(&self, seq: SeqId) -> Result<&DeviceSequence, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        if sequence.broken { Err(ExecError::Broken(seq)) } else { Ok(sequence) }
    }
}

impl Executor for CudaExecutor {
    fn vocab(&self) -> usize {
        self.model.vocab()
    }

    fn ctx(&self) -> usize {
        self.ctx
    }

    fn open_sequence(&mut self) -> Result<SeqId, ExecError> {
        let slot = self.free.first().copied().ok_or(ExecError::NoSlot { slots: self.slots.len() })?;
        self.clear(slot)?;
        self.free.remove(&slot);
        let id = SeqId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, DeviceSequence::new(slot));
        Ok(id)
    }

    fn close_sequence(&mut self, seq: SeqId) -> Result<(), ExecError> {
        let sequence = self.sequences.remove(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        self.free.insert(sequence.slot);
        Ok(())
    }

    fn len(&self, seq: SeqId) -> Result<usize, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        Ok(sequence.tokens.len())
    }

    fn prefill(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), ExecError> {
        self.feed(seq, tokens, None)
    }

    fn score(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExecError> {
        self.feed(seq, tokens, Some(rows))
    }

    fn submit(&mut self, steps: &[Step]) -> Result<Ticket, ExecError> {
        let tokens = self.limits().step_tokens(steps, |seq| {
            let sequence = self.usable(seq)?;
            Ok(Standing { len: sequence.tokens.len(), sampled: sequence.sampled })
        })?;
        let mut answer = Vec::with_capacity(steps.len());
        for (step, token) in steps.iter().zip(tokens) {
            answer.push(self.step(step, token)?);
        }
        Ok(self.answers.keep(answer))
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        self.answers.take(ticket)
    }

    fn save(&self, seq: SeqId) -> Result<Checkpoint, ExecError> {
        let sequence = self.download(self.usable(seq)?)?;
        Ok(Checkpoint { fingerprint: self.model.fingerprint(), kv: self.kv, sequence })
    }

    fn restore(&mut self, seq: SeqId, checkpoint: &Checkpoint) -> Result<(), ExecError> {
        if checkpoint.fingerprint != self.model.fingerprint() || checkpoint.kv != self.kv {
            return Err(ExecError::ForeignCheckpoint);
        }
        self.limits().check_room(checkpoint.len(), 0)?;
        let slot = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?.slot;
        self.upload(slot, &checkpoint.sequence)?;
        let sequence = DeviceSequence {
            slot,
            tokens: checkpoint.sequence.tokens.clone(),
            sampled: checkpoint.sequence.sampled,
            broken: false,
        };
        self.sequences.insert(seq, sequence);
        self.counters.restored += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { open: self.sequences.len() as u64, ..self.counters }
    }
}
