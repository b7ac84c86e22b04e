//! The executor on the CPU: exact or fast, every row with the same bits whatever else is computed.

mod batch;
mod dsa;
mod ffn;
mod forward;
mod head;
mod kda;
mod lanes;
mod layout;
mod moe;
mod nextn;
mod observer;
mod pools;
mod scratch;
mod site;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quant_kernels::{Cpu, Isa, Precision};
use rayon::ThreadPool;

use batch::{Batch, Segment};
use forward::Purpose;
use lanes::Lanes;
pub use observer::Observer;
use observer::Watch;
use scratch::{Scratch, Workers};

use crate::error::ExecError;
use crate::executor::{Counters, Executor, Input, SeqId, Step, StepRow, Ticket, Token, Want};
use crate::model::Model;
use crate::plan::{MemoryPlan, batch_rows, plan};
use crate::sampler::Sampler;
use crate::state::{Checkpoint, Kv, LayerState, Sequence};

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
    scratch: Scratch,
    sampler: Sampler,
    answers: VecDeque<(u64, Vec<StepRow>)>,
    next_ticket: u64,
    counters: Counters,
}

/// What a call does with the logits of a chunk's rows: index in the call, hidden vector, logits.
type Rows<'a> = dyn FnMut(usize, &[f32], &[f32]) + 'a;

impl CpuExecutor {
    /// Starts the threads. Memory is taken as sequences and batches need it.
    ///
    /// # Errors
    /// The processor lacks the instruction set, or the threads do not start.
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
        let rows = batch_rows(model.config());
        Ok(Self {
            lanes: Lanes { cpu, precision: options.precision, threads },
            pool,
            kv: options.kv,
            ctx: options.ctx,
            rows,
            sequences: BTreeMap::new(),
            next_sequence: 0,
            scratch: Scratch { workers: Workers::new(threads), ..Scratch::default() },
            sampler: Sampler::default(),
            answers: VecDeque::new(),
            next_ticket: 0,
            counters: Counters::default(),
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

    /// As [`Executor::score`], with each position's post-norm hidden vector between its index and its logits: what
    /// [`draft_logits`](Self::draft_logits) takes.
    ///
    /// # Errors
    /// As [`Executor::prefill`].
    pub fn score_hidden(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut dyn FnMut(usize, &[f32], &[f32]),
    ) -> Result<(), ExecError> {
        self.feed(seq, tokens, Some(rows), &mut Watch(None))
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
        rows: &mut dyn FnMut(usize, &[f32], &[f32]),
    ) -> Result<(), ExecError> {
        self.draft(seq, hidden, next, rows, &mut Watch(None))
    }

    pub(crate) fn draft(
        &mut self,
        seq: SeqId,
        hidden: &[f32],
        next: &[Token],
        rows: &mut dyn FnMut(usize, &[f32], &[f32]),
        watch: &mut Watch<'_>,
    ) -> Result<(), ExecError> {
        let model = Arc::clone(&self.model);
        let (config, width) = (model.config(), model.config().hidden);
        let nextn = model.weights().nextn.as_ref().ok_or(ExecError::NoNextN)?;
        if hidden.len() != next.len() * width {
            let expected = next.len() * width;
            return Err(ExecError::Length { what: "the hidden vectors", found: hidden.len(), expected });
        }
        self.check_tokens(next)?;
        let sequence = self.usable(seq)?;
        let before = sequence.draft_len(config.trunk);
        if before + next.len() > self.ctx {
            return Err(ExecError::Context { wanted: before + next.len(), ctx: self.ctx });
        }
        let mut sequence = self.take(seq)?;
        if let Err(error) = sequence.dsa(config.trunk).reserve(config, next.len()) {
            self.sequences.insert(seq, sequence);
            return Err(error);
        }
        let at_once = self.rows.min(logit_rows(model.vocab()));
        let mut segments = [Segment { id: seq, sequence, start: 0, n: 0, position: before, error: None }];
        let chunks = next.chunks(at_once).zip(hidden.chunks(at_once * width)).enumerate();
        for (i, (next, hidden)) in chunks {
            segments[0].n = next.len();
            let mut batch = Batch::new(&mut segments);
            let (lanes, scratch) = (&self.lanes, &mut self.scratch);
            self.pool
                .install(|| nextn::draft(lanes, &model, nextn, hidden, next, &mut batch, scratch, watch));
            if segments[0].error.is_none() {
                let head = &self.scratch.head;
                for (t, logits) in head.logits.chunks_exact(model.vocab()).take(next.len()).enumerate() {
                    rows(i * at_once + t, head.hidden.row(t), logits);
                }
            }
            segments[0].position += next.len();
            if segments[0].error.is_some() {
                break;
            }
        }
        let [segment] = segments;
        self.give_back(segment).map(drop)
    }

    /// Feeds tokens chunk by chunk; with `rows`, hands out each position's logits.
    pub(crate) fn feed(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        mut rows: Option<&mut Rows<'_>>,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExecError> {
        self.check_tokens(tokens)?;
        let before = self.usable(seq)?.tokens.len();
        self.check_room(before, tokens.len())?;
        if tokens.is_empty() {
            return Ok(());
        }
        self.reserve(seq, tokens.len())?;
        let model = Arc::clone(&self.model);
        let purpose = if rows.is_some() { Purpose::Streams } else { Purpose::States };
        for (i, chunk) in tokens.chunks(self.rows).enumerate() {
            let sequence = self.take(seq)?;
            let position = before + i * self.rows;
            let mut segments =
                [Segment { id: seq, sequence, start: 0, n: chunk.len(), position, error: None }];
            self.pass(&model, chunk, &mut segments, purpose, watch);
            if let Some(rows) = rows.as_deref_mut()
                && segments[0].error.is_none()
            {
                let at_once = logit_rows(model.vocab());
                for first in (0..chunk.len()).step_by(at_once) {
                    let range = first..chunk.len().min(first + at_once);
                    self.head(&model, range.clone(), &mut segments);
                    if segments[0].error.is_some() {
                        break;
                    }
                    let head = &self.scratch.head;
                    for (t, logits) in range.clone().zip(head.logits.chunks_exact(model.vocab())) {
                        rows(i * self.rows + t, head.hidden.row(t - first), logits);
                    }
                }
            }
            let [mut segment] = segments;
            segment.sequence.tokens.extend_from_slice(chunk);
            segment.sequence.sampled = None;
            self.give_back(segment)?;
            self.counters.prefilled += chunk.len() as u64;
        }
        Ok(())
    }

    /// Embeds and runs the trunk.
    fn pass(
        &mut self,
        model: &Model,
        tokens: &[Token],
        segments: &mut [Segment],
        purpose: Purpose,
        watch: &mut Watch<'_>,
    ) {
        let (lanes, scratch) = (&self.lanes, &mut self.scratch);
        self.pool.install(|| {
            let mut batch = Batch::new(segments);
            forward::embed(model, tokens, scratch);
            forward::trunk(lanes, model, &mut batch, scratch, purpose, watch);
        });
        let config = model.config();
        let moe_layers = (config.dense_layers..config.trunk).len() as u64;
        self.counters.experts += moe_layers * (tokens.len() * config.experts_used) as u64;
    }

    /// Logits of batch rows `range` into `scratch.head`.
    fn head(&mut self, model: &Model, range: std::ops::Range<usize>, segments: &mut [Segment]) {
        let (lanes, scratch, first) = (&self.lanes, &mut self.scratch, range.start);
        let notes = self.pool.install(|| {
            head::hidden(lanes, model.config(), model.weights(), range, scratch);
            head::logits(lanes, model.gguf(), &model.weights().output, &mut scratch.head, &scratch.faults);
            let mut notes = scratch.faults.take();
            notes.iter_mut().for_each(|note| note.row += first);
            notes
        });
        Batch::new(segments).settle(&notes, model.config().trunk);
    }

    fn check_tokens(&self, tokens: &[Token]) -> Result<(), ExecError> {
        let vocab = self.model.vocab();
        match tokens.iter().position(|token| *token as usize >= vocab) {
            Some(at) => Err(ExecError::TokenRange { token: tokens[at], at, vocab }),
            None => Ok(()),
        }
    }

    fn check_room(&self, len: usize, extra: usize) -> Result<(), ExecError> {
        let wanted = len.saturating_add(extra);
        if wanted > self.ctx { Err(ExecError::Context { wanted, ctx: self.ctx }) } else { Ok(()) }
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

    /// The tokens that the steps feed, after every check that can be made beforehand.
    fn step_tokens(&self, steps: &[Step]) -> Result<Vec<Token>, ExecError> {
        let vocab = self.model.vocab();
        let mut tokens = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            if steps[..at].iter().any(|other| other.seq == step.seq) {
                return Err(ExecError::Twice(step.seq));
            }
            let sequence = self.usable(step.seq)?;
            self.check_room(sequence.tokens.len(), 1)?;
            if let Want::Sample(params) | Want::Both(params) = &step.want {
                params.check(vocab)?;
            }
            let token = match step.input {
                Input::Token(token) => token,
                Input::LastSampled => sequence.sampled.ok_or(ExecError::NothingSampled(step.seq))?,
            };
            if token as usize >= vocab {
                return Err(ExecError::TokenRange { token, at, vocab });
            }
            tokens.push(token);
        }
        Ok(tokens)
    }

    /// One batch of steps, at most `rows` of them.
    fn steps(
        &mut self,
        steps: &[Step],
        tokens: &[Token],
        answer: &mut Vec<StepRow>,
    ) -> Result<(), ExecError> {
        let model = Arc::clone(&self.model);
        let mut segments = Vec::with_capacity(steps.len());
        for (start, step) in steps.iter().enumerate() {
            let sequence = self.take(step.seq)?;
            let position = sequence.tokens.len();
            segments.push(Segment { id: step.seq, sequence, start, n: 1, position, error: None });
        }
        self.pass(&model, tokens, &mut segments, Purpose::Streams, &mut Watch(None));
        let at_once = logit_rows(model.vocab());
        for first in (0..steps.len()).step_by(at_once) {
            let range = first..steps.len().min(first + at_once);
            self.head(&model, range.clone(), &mut segments);
            for (row, logits) in range.zip(self.scratch.head.logits.chunks_exact(model.vocab())) {
                let segment = &mut segments[row];
                segment.sequence.tokens.push(tokens[row]);
                segment.sequence.sampled = None;
                let mut out =
                    StepRow { seq: segment.id, logits: None, token: None, error: segment.error.clone() };
                if out.error.is_none() {
                    if let Want::Sample(params) | Want::Both(params) = &steps[row].want {
                        let token = self.sampler.sample(logits, &segment.sequence.tokens, params);
                        segment.sequence.sampled = Some(token);
                        out.token = Some(token);
                    }
                    if !matches!(steps[row].want, Want::Sample(_)) {
                        out.logits = Some(logits.to_vec());
                    }
                }
                answer.push(out);
            }
        }
        for segment in segments {
            // Its row of the answer carries the error.
            let _reported = self.give_back(segment);
        }
        self.counters.decoded += steps.len() as u64;
        Ok(())
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

    fn open_sequence(&mut self) -> Result<SeqId, ExecError> {
        let sequence = Sequence::new(self.model.config(), self.kv)?;
        let id = SeqId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, sequence);
        Ok(id)
    }

    fn close_sequence(&mut self, seq: SeqId) -> Result<(), ExecError> {
        self.take(seq).map(drop)
    }

    fn len(&self, seq: SeqId) -> Result<usize, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        Ok(sequence.tokens.len())
    }

    fn prefill(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), ExecError> {
        self.feed(seq, tokens, None, &mut Watch(None))
    }

    fn score(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExecError> {
        let mut rows = |at: usize, _hidden: &[f32], logits: &[f32]| rows(at, logits);
        self.feed(seq, tokens, Some(&mut rows), &mut Watch(None))
    }

    fn submit(&mut self, steps: &[Step]) -> Result<Ticket, ExecError> {
        let tokens = self.step_tokens(steps)?;
        for step in steps {
            self.reserve(step.seq, 1)?;
        }
        let mut answer = Vec::with_capacity(steps.len());
        for (steps, tokens) in steps.chunks(self.rows).zip(tokens.chunks(self.rows)) {
            self.steps(steps, tokens, &mut answer)?;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.answers.push_back((ticket, answer));
        Ok(Ticket(ticket))
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        let at = self.answers.iter().position(|(other, _)| *other == ticket.0);
        let answer = at.and_then(|at| self.answers.remove(at));
        answer.map(|(_, rows)| rows).ok_or(ExecError::UnknownTicket(ticket.0))
    }

    fn save(&self, seq: SeqId) -> Result<Checkpoint, ExecError> {
        let sequence = self.usable(seq)?.clone();
        Ok(Checkpoint { fingerprint: self.model.fingerprint(), kv: self.kv, sequence })
    }

    fn restore(&mut self, seq: SeqId, checkpoint: &Checkpoint) -> Result<(), ExecError> {
        if checkpoint.fingerprint != self.model.fingerprint() || checkpoint.kv != self.kv {
            return Err(ExecError::ForeignCheckpoint);
        }
        self.check_room(checkpoint.len(), 0)?;
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        *sequence = checkpoint.sequence.clone();
        self.counters.restored += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters { open: self.sequences.len() as u64, ..self.counters }
    }
}

/// What [`crate::probe`] shows.
impl CpuExecutor {
    pub(crate) fn trace(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        observer: &mut dyn Observer,
        rows: &mut dyn FnMut(usize, &[f32], &[f32]),
    ) -> Result<(), ExecError> {
        self.feed(seq, tokens, Some(rows), &mut Watch(Some(observer)))
    }

    pub(crate) fn trace_draft(
        &mut self,
        seq: SeqId,
        hidden: &[f32],
        next: &[Token],
        observer: &mut dyn Observer,
        rows: &mut dyn FnMut(usize, &[f32], &[f32]),
    ) -> Result<(), ExecError> {
        self.draft(seq, hidden, next, rows, &mut Watch(Some(observer)))
    }

    pub(crate) fn embedding(&self, tokens: &[Token]) -> Result<Vec<f32>, ExecError> {
        self.check_tokens(tokens)?;
        let (model, hidden) = (&self.model, self.model.config().hidden);
        let mut streams = vec![0.0; tokens.len() * model.config().residual()];
        for (row, token) in streams.chunks_exact_mut(model.config().residual()).zip(tokens) {
            for stream in row.chunks_exact_mut(hidden) {
                model.weights().embed.row(model.gguf(), *token as usize, stream);
            }
        }
        Ok(streams)
    }

    pub(crate) fn layer_forward(&mut self, layer: usize, streams: &[f32]) -> Result<Vec<f32>, ExecError> {
        let model = Arc::clone(&self.model);
        let (config, width) = (model.config(), model.config().residual());
        if layer >= config.trunk || streams.is_empty() || streams.len() % width != 0 {
            return Err(ExecError::Length { what: "the streams", found: streams.len(), expected: width });
        }
        let mut sequence = Sequence::new(config, self.kv)?;
        let rows = streams.len() / width;
        sequence.reserve(config, rows)?;
        let mut segments =
            [Segment { id: SeqId(u64::MAX), sequence, start: 0, n: 0, position: 0, error: None }];
        let mut out = Vec::with_capacity(streams.len());
        for chunk in streams.chunks(self.rows * width) {
            segments[0].n = chunk.len() / width;
            let (lanes, scratch) = (&self.lanes, &mut self.scratch);
            self.pool.install(|| {
                scratch.hyper.residual.reset(chunk.len() / width, width).copy_from_slice(chunk);
                forward::layer(lanes, &model, layer, &mut Batch::new(&mut segments), scratch);
            });
            if let Some(error) = segments[0].error.take() {
                return Err(error);
            }
            out.extend_from_slice(self.scratch.hyper.residual.f32());
            segments[0].position += chunk.len() / width;
        }
        Ok(out)
    }

    pub(crate) fn kda_state(&self, seq: SeqId, layer: usize) -> Result<Option<(&[f32], &[f32])>, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        Ok(match sequence.layers.get(layer) {
            Some(LayerState::Kda(state)) => Some((&state.conv, &state.matrix)),
            _ => None,
        })
    }
}
