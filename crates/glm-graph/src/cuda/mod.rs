//! The executor on a device: every weight in its memory, a token as one recorded graph, a prompt in spans of many tokens.
//!
//! A pass gives the CPU executor's bits in `fast` precision: products with quantised weights, the f32 operations and their
//! orders are those of docs/ARITHMETIC.md.

mod abi;
mod attention;
mod draw;
mod experts;
mod flight;
mod kda;
mod kernels;
mod launch;
mod layout;
mod load;
mod lone_draw;
mod lone_product;
mod memory;
mod product;
mod scratch;
mod sequence;
mod site;
mod span;
mod step;
mod timeline;
mod token;
mod traffic;
mod units;
mod weights;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use quant_kernels::cuda::{
    Context, Event, Graph, KernelStore, Pinned, StoreOptions, Stream, Timing, matvec_tables,
};

use crate::error::ExecError;
use crate::executor::{Counters, Executor, SeqId, Step, StepRow, Ticket, Token};
use crate::model::Model;
use crate::state::{Checkpoint, Kv};
use crate::steps::{Answers, Limits, Standing};
use draw::End;
use flight::{Drawn, Flight};
use kernels::Kernels;
use layout::{Layout, check_sizes, formats};
pub use load::LoadReport;
pub use lone_draw::DeviceSampler;
pub use lone_product::DeviceProducts;
pub use memory::DevicePlan;
use memory::Memory;
use scratch::{Scratch, SlotPlaces};
use sequence::DeviceSequence;
use span::SpanPlaces;
pub use timeline::LaunchTime;
pub use traffic::Traffic;
pub use units::UNITS;
use weights::Weights;

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
    /// Tokens of a prompt that go through the model at once, at most; `None` for as many as memory allows, up to 2048. They
    /// change no bit.
    pub span: Option<usize>,
    /// Where device code comes from.
    pub store: StoreOptions,
}

/// One forward pass at a time on a device.
pub struct CudaExecutor {
    // Dropped in this order: what was recorded, then what it names.
    graphs: HashMap<(usize, End), Graph>,
    /// One for each record of an answer in the output; that of a pass's last row is the pass's.
    events: Vec<Event>,
    flights: VecDeque<Flight>,
    next_record: usize,
    input: Pinned,
    output: Pinned,
    span_input: Pinned,
    span_faults: Pinned,
    span_output: Pinned,
    model: Arc<Model>,
    weights: Weights,
    scratch: Scratch,
    span: SpanPlaces,
    slots: Vec<SlotPlaces>,
    /// Sequences that one pass has steps of, at most.
    turns: usize,
    kernels: Kernels,
    memory: Memory,
    plan: DevicePlan,
    loaded: LoadReport,
    stream: Stream,
    context: Context,
    kv: Kv,
    ctx: usize,
    free: BTreeSet<usize>,
    /// What slots have for draws.
    drawn: Vec<Drawn>,
    sequences: BTreeMap<SeqId, DeviceSequence>,
    next_sequence: u64,
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

impl CudaExecutor {
    /// What an executor with these options takes of the device's memory at least: with more, spans are longer.
    #[must_use]
    pub fn plan(model: &Model, options: &CudaOptions) -> DevicePlan {
        Layout::within(model, options, 0).plan
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
        let room = memory::room(&context, options.vram)?;
        let Layout { plan, weights, scratch, span, slots, turns, tables } =
            Layout::within(&model, &options, room);
        check_sizes(model.config(), &weights, options.ctx)?;
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
        // Two steps of each sequence, and as many that were undone.
        let records = 4 * options.sequences.max(1);
        let events = (0..records).map(|_| Event::new(&context, Timing::Off)).collect::<Result<_, _>>()?;
        Ok(Self {
            span_input: Pinned::new(&context, 4 * span.rows * config.hidden)?,
            span_faults: Pinned::new(&context, 4 * span.rows)?,
            span_output: Pinned::new(&context, 4 * span.logit_rows * model.vocab())?,
            span,
            graphs: HashMap::new(),
            events,
            flights: VecDeque::new(),
            next_record: 0,
            input: Pinned::new(&context, 4 * config.hidden)?,
            output: Pinned::new(&context, flight::answer_at(turns * model.vocab(), records))?,
            weights,
            scratch,
            free: (0..slots.len()).collect(),
            slots,
            turns,
            kernels,
            memory,
            plan,
            loaded,
            stream,
            context,
            kv: options.kv,
            ctx: options.ctx,
            drawn: (0..options.sequences).map(|_| Drawn::default()).collect(),
            sequences: BTreeMap::new(),
            next_sequence: 0,
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

    fn span(&self) -> usize {
        self.span.rows
    }

    fn open_sequence(&mut self) -> Result<SeqId, ExecError> {
        let slot = self.free.first().copied().ok_or(ExecError::NoSlot { slots: self.slots.len() })?;
        self.vacate(slot)?;
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
        self.forget_steps(seq);
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
        let tokens = self.limits().step_tokens(steps, &self.answers, |seq| {
            let sequence = self.usable(seq)?;
            Ok(Standing { len: sequence.tokens.len(), sampled: sequence.sampled })
        })?;
        self.take_off(steps, &tokens)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        while !self.answers.is_complete(&ticket)? && !self.flights.is_empty() {
            self.land()?;
        }
        self.answers.take(ticket)
    }

    fn undo(&mut self, seq: SeqId) -> Result<(), ExecError> {
        self.undo_step(seq)
    }

    fn save(&self, seq: SeqId) -> Result<Checkpoint, ExecError> {
        let sequence = self.usable(seq)?;
        self.answers.check_none_missing(seq)?;
        let sequence = self.download(sequence)?;
        Ok(Checkpoint { fingerprint: self.model.fingerprint(), kv: self.kv, sequence })
    }

    fn restore(&mut self, seq: SeqId, checkpoint: &Checkpoint) -> Result<(), ExecError> {
        if checkpoint.fingerprint != self.model.fingerprint() || checkpoint.kv != self.kv {
            return Err(ExecError::ForeignCheckpoint);
        }
        self.limits().check_room(checkpoint.len(), 0)?;
        let slot = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?.slot;
        self.forget_steps(seq);
        self.vacate(slot)?;
        self.upload(slot, &checkpoint.sequence)?;
        self.sequences.insert(seq, DeviceSequence::restored(slot, &checkpoint.sequence));
        self.counters.restored += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { open: self.sequences.len() as u64, ..self.counters }
    }
}
