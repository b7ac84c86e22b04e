//! The executor on the CPU: exact or fast, every row with the same bits whatever else is computed.

mod awake;
mod batch;
mod dsa;
mod feed;
mod ffn;
mod forward;
mod head;
mod inspect;
mod kda;
mod lanes;
mod layout;
mod moe;
mod nextn;
mod observer;
mod pools;
mod queue;
mod read_ahead;
mod scratch;
mod site;
mod store;
mod tiers;

use std::collections::BTreeMap;
use std::sync::Arc;

use quant_kernels::{Cpu, Isa, Precision};
use rayon::ThreadPool;

use batch::Segment;
use lanes::Lanes;
pub use observer::Observer;
use observer::Watch;
use queue::Queued;
use read_ahead::ReadAhead;
use scratch::{Scratch, Workers};
use store::Store;
use tiers::Tiers;
pub use tiers::{LayerPass, TierCounters, TierOptions, TierPlan};

use crate::error::ExecError;
use crate::executor::{Counters, Executor, SeqId, Step, StepRow, Ticket, Token};
use crate::model::Model;
use crate::plan::{MemoryPlan, batch_rows, plan};
use crate::sampler::Sampler;
use crate::state::{Checkpoint, Kv, Sequence};
use crate::steps::{Answers, Limits};

pub(crate) use head::rows_at_once as logit_rows;

/// How a CPU executor is made.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Exact: dequantised weights and f32 activations. Fast: 8-bit activations and integer products.
    pub precision: Precision,
    /// How latents are stored.
    pub kv: Kv,
    /// Worker threads; `None` for one a processor.
    pub threads: Option<usize>,
    /// Most tokens a sequence may have.
    pub ctx: usize,
    /// Instruction set; `None` for the best one.
    pub isa: Option<Isa>,
    /// Keeps routed experts in a part of memory; `None` reads them from the file's map.
    pub tiers: Option<TierOptions>,
}

/// One forward pass at a time on a pool of its own.
pub struct CpuExecutor {
    model: Arc<Model>,
    lanes: Lanes,
    pool: ThreadPool,
    kv: Kv,
    ctx: usize,
    /// Rows of a batch at most.
    rows: usize,
    sequences: BTreeMap<SeqId, Sequence>,
    next_sequence: u64,
    store: Store,
    scratch: Scratch,
    sampler: Sampler,
    answers: Answers,
    /// Steps that were submitted and not computed, in their order.
    queue: Vec<Queued>,
    counters: Counters,
    observer: Option<Box<dyn Observer>>,
}

/// Receives rows in order: index in the call, post-norm hidden vector, logits.
pub type HiddenRows<'a> = dyn FnMut(usize, &[f32], &[f32]) + 'a;

impl CpuExecutor {
    /// Starts the threads. Memory is taken as sequences and batches need it.
    ///
    /// # Errors
    /// The processor lacks the instruction set, the threads do not start or round otherwise than docs/ARITHMETIC.md says, or
    /// tiers were asked for and the files or their copies cannot be opened for it.
    pub fn new(model: Arc<Model>, options: CpuOptions) -> Result<Self, ExecError> {
        let cpu = match options.isa {
            Some(isa) => Cpu::with(isa).ok_or(ExecError::NoIsa(isa))?,
            None => Cpu::detect(),
        };
        let threads = threads(&options);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("maya-cpu-{i}"))
            .build()
            .map_err(|error| ExecError::Threads { threads, reason: error.to_string() })?;
        if pool.broadcast(|_| quant_kernels::is_default_float_mode()).contains(&false) {
            return Err(ExecError::FloatMode);
        }
        let rows = batch_rows(model.config());
        // After a cold start the first pass would wait for it page by page.
        let ahead = ReadAhead::start(&model);
        if let Some(ahead) = &ahead {
            ahead.ask_dense(&model);
        }
        let tiers = options.tiers.as_ref().map(|tiers| Tiers::open(&model, tiers)).transpose()?;
        Ok(Self {
            lanes: Lanes { cpu, precision: options.precision, threads },
            pool,
            kv: options.kv,
            ctx: options.ctx,
            rows,
            sequences: BTreeMap::new(),
            next_sequence: 0,
            store: Store::new(tiers, ahead),
            scratch: Scratch { workers: Workers::new(threads), ..Scratch::default() },
            sampler: Sampler::default(),
            answers: Answers::default(),
            queue: Vec::new(),
            counters: Counters::default(),
            observer: None,
            model,
        })
    }

    /// What an executor with these options needs of memory.
    #[must_use]
    pub fn plan(model: &Model, options: &CpuOptions) -> MemoryPlan {
        plan(model, options.kv, options.ctx, threads(options))
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.lanes.cpu.isa()
    }

    /// What the tiers have done; `None` without tiers.
    #[must_use]
    pub fn tier_counters(&self) -> Option<TierCounters> {
        self.store.tiers.as_ref().map(|tiers| tiers.counters())
    }

    /// Bytes of the expert slots that are in use now; `None` without tiers.
    #[must_use]
    pub fn tier_resident_bytes(&self) -> Option<u64> {
        self.store.tiers.as_ref().map(|tiers| tiers.resident_bytes())
    }

    /// What each MoE layer needed in the last pass; empty without tiers.
    #[must_use]
    pub fn last_pass(&self) -> &[LayerPass] {
        self.store.tiers.as_ref().map_or(&[], |tiers| tiers.last_pass())
    }

    /// What reads the drive, and why; `None` without tiers.
    #[must_use]
    pub fn drive_report(&self) -> Option<nvme_reader::Report> {
        self.store.tiers.as_ref().map(|tiers| tiers.report())
    }

    /// Counts of expert use and what is resident, to be saved for the next run; `None` without tiers.
    #[must_use]
    pub fn usage(&self) -> Option<tier_cache::Usage> {
        self.store.tiers.as_ref().and_then(|tiers| tiers.usage())
    }

    /// As [`Executor::score`], with each position's post-norm hidden vector between its index and its logits: what
    /// [`draft_logits`](Self::draft_logits) takes.
    ///
    /// # Errors
    /// As [`Executor::prefill`].
    pub fn score_hidden(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut HiddenRows<'_>,
    ) -> Result<(), ExecError> {
        self.watched(|it, watch| it.feed(seq, tokens, Some(rows), watch))
    }

    /// Logits of the NextN block (model-spec 6) for rows (`hidden[t]`, `next[t]`): row t's logits are of the token after
    /// `next[t]`.
    ///
    /// `hidden` is `[next.len()][hidden size]`: post-norm vectors of the trunk, or the block's own. The rows are appended
    /// to the sequence's draft cache, which has positions of its own, is saved and restored with the sequence, and is not
    /// used by anything else. `rows` gets the index, the block's own post-norm vector and the logits.
    ///
    /// # Errors
    /// No NextN block, slices that do not fit, and as [`Executor::prefill`].
    pub fn draft_logits(
        &mut self,
        seq: SeqId,
        hidden: &[f32],
        next: &[Token],
        rows: &mut HiddenRows<'_>,
    ) -> Result<(), ExecError> {
        self.draft(seq, hidden, next, rows, &mut Watch(None))
    }

    /// From now on every pass of the trunk is shown to `observer`, or to nobody; the one before is handed back. Results do
    /// not change. A step of several sequences shows their rows in the order of the steps.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        std::mem::replace(&mut self.observer, observer)
    }

    /// Runs `work` with the standing observer.
    fn watched<R>(&mut self, work: impl FnOnce(&mut Self, &mut Watch<'_>) -> R) -> R {
        let mut observer = self.observer.take();
        let result = work(self, &mut Watch(observer.as_mut().map(|it| &mut **it as &mut dyn Observer)));
        self.observer = observer;
        result
    }

    fn limits(&self) -> Limits {
        Limits { vocab: self.model.vocab(), ctx: self.ctx }
    }

    /// A sequence that exists and has not failed.
    fn usable(&self, seq: SeqId) -> Result<&Sequence, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        if sequence.broken { Err(ExecError::Broken(seq)) } else { Ok(sequence) }
    }

    fn reserve(&mut self, seq: SeqId, extra: usize) -> Result<(), ExecError> {
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        sequence.reserve(self.model.config(), extra)
    }

    /// Takes a sequence out for the time of a pass: were the pass to panic, the sequence would be closed.
    fn take(&mut self, seq: SeqId) -> Result<Sequence, ExecError> {
        self.sequences.remove(&seq).ok_or(ExecError::UnknownSequence(seq))
    }

    fn give_back(&mut self, segment: Segment) -> Result<(), ExecError> {
        let Segment { id, mut sequence, error, .. } = segment;
        sequence.broken = error.is_some();
        self.sequences.insert(id, sequence);
        error.map_or(Ok(()), Err)
    }
}

fn threads(options: &CpuOptions) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    options.threads.unwrap_or_else(available).max(1)
}

impl Executor for CpuExecutor {
    fn vocab(&self) -> usize {
        self.model.vocab()
    }

    fn ctx(&self) -> usize {
        self.ctx
    }

    fn span(&self) -> usize {
        1
    }

    fn open_sequence(&mut self) -> Result<SeqId, ExecError> {
        let sequence = Sequence::new(self.model.config(), self.kv)?;
        let id = SeqId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, sequence);
        Ok(id)
    }

    fn close_sequence(&mut self, seq: SeqId) -> Result<(), ExecError> {
        self.take(seq)?;
        self.forget_steps(seq);
        Ok(())
    }

    fn len(&self, seq: SeqId) -> Result<usize, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        Ok(sequence.tokens.len() + self.queued(seq))
    }

    fn prefill(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), ExecError> {
        self.watched(|it, watch| it.feed(seq, tokens, None, watch))
    }

    fn score(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExecError> {
        let mut rows = |at: usize, _hidden: &[f32], logits: &[f32]| rows(at, logits);
        self.watched(|it, watch| it.feed(seq, tokens, Some(&mut rows), watch))
    }

    fn submit(&mut self, steps: &[Step]) -> Result<Ticket, ExecError> {
        self.enqueue(steps)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        if !self.answers.is_complete(&ticket)? {
            self.work_off(&ticket)?;
        }
        self.answers.take(ticket)
    }

    fn undo(&mut self, seq: SeqId) -> Result<(), ExecError> {
        self.undo_step(seq)
    }

    fn save(&self, seq: SeqId) -> Result<Checkpoint, ExecError> {
        let sequence = self.usable(seq)?;
        self.answers.check_none_missing(seq)?;
        let sequence = sequence.try_clone()?;
        Ok(Checkpoint { fingerprint: self.model.fingerprint(), kv: self.kv, sequence })
    }

    fn restore(&mut self, seq: SeqId, checkpoint: &Checkpoint) -> Result<(), ExecError> {
        if checkpoint.fingerprint != self.model.fingerprint() || checkpoint.kv != self.kv {
            return Err(ExecError::ForeignCheckpoint);
        }
        self.limits().check_room(checkpoint.len(), 0)?;
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        *sequence = checkpoint.sequence.try_clone()?;
        self.forget_steps(seq);
        self.counters.restored += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { open: self.sequences.len() as u64, ..self.counters }
    }
}
