//! Running recorded passes: tokens of a prompt one by one, and steps.

use quant_kernels::cuda::Graph;

use super::timeline::{LaunchTime, Timeline};
use super::token::FIRST_LAYER;
use super::{CudaExecutor, launch};
use crate::error::ExecError;
use crate::executor::{SeqId, Step, StepRow, Token, Want};

/// Where the pinned output has the fault word: behind the logits.
fn fault_at(vocab: usize) -> usize {
    4 * vocab
}

/// A pass over fields of an executor; not a method, since recording writes to another field.
macro_rules! pass {
    ($it:expr, $slot:expr, $timeline:expr) => {
        $crate::cuda::token::Pass {
            config: $it.model.config(),
            weights: &$it.weights,
            kernels: &$it.kernels,
            memory: &$it.memory,
            scratch: &$it.scratch,
            slot: &$it.slots[$slot],
            stream: &$it.stream,
            room: $crate::cuda::product::Room {
                processors: $it.context.device().n_multiprocessors,
                smem: $it.context.device().smem_optin_bytes,
            },
            kv: $it.kv,
            ctx: $it.ctx,
            timeline: $timeline,
        }
    };
}
pub(super) use pass;

/// Hears each position's logits.
pub(super) type Rows<'a> = &'a mut dyn FnMut(usize, &[f32]);

/// Fewer tokens than this go one by one.
const SPAN_FROM: usize = 4;

/// What a fault word says.
pub(super) fn not_finite(seq: SeqId, fault: u32, position: usize) -> ExecError {
    ExecError::NotFinite {
        seq,
        layer: fault.saturating_sub(FIRST_LAYER) as usize,
        what: if fault < FIRST_LAYER { "the input of a product" } else { "the streams or the mixer" },
        position,
    }
}

impl CudaExecutor {
    /// Feeds tokens; with `rows`, hands out each position's logits.
    pub(super) fn feed(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        mut rows: Option<Rows<'_>>,
    ) -> Result<(), ExecError> {
        self.limits().check_tokens(tokens)?;
        self.limits().check_room(self.usable(seq)?.tokens.len(), tokens.len())?;
        let mut at = 0;
        while at < tokens.len() {
            let left = &tokens[at..];
            let took = if left.len() < SPAN_FROM {
                self.run(seq, left[0], rows.is_some())?;
                if let Some(rows) = rows.as_deref_mut() {
                    rows(at, self.logits());
                }
                1
            } else {
                let told = rows.as_deref_mut().map(|rows| rows as Rows<'_>);
                self.span(seq, left, at, told, None)?
            };
            at += took;
            self.counters.prefilled += took as u64;
        }
        Ok(())
    }

    /// One step of one sequence.
    pub(super) fn step(&mut self, step: &Step, token: Token) -> Result<StepRow, ExecError> {
        let mut out = StepRow { seq: step.seq, logits: None, token: None, error: None };
        match self.run(step.seq, token, true) {
            Ok(()) => {}
            Err(error @ ExecError::NotFinite { .. }) => {
                out.error = Some(error);
                return Ok(out);
            }
            Err(error) => return Err(error),
        }
        self.counters.decoded += 1;
        let vocab = self.model.vocab();
        let logits = &self.output.slice::<f32>()[..vocab];
        let sequence = self.sequences.get_mut(&step.seq).ok_or(ExecError::UnknownSequence(step.seq))?;
        if let Want::Sample(params) | Want::Both(params) = &step.want {
            let sampled = self.sampler.sample(logits, &sequence.tokens, params);
            sequence.sampled = Some(sampled);
            out.token = Some(sampled);
        }
        if !matches!(step.want, Want::Sample(_)) {
            out.logits = Some(logits.to_vec());
        }
        Ok(out)
    }

    fn logits(&self) -> &[f32] {
        &self.output.slice::<f32>()[..self.model.vocab()]
    }

    /// One token of a sequence through the model, to its end.
    fn run(&mut self, seq: SeqId, token: Token, with_logits: bool) -> Result<(), ExecError> {
        let (slot, position) = {
            let sequence = self.usable(seq)?;
            (sequence.slot, sequence.tokens.len())
        };
        self.recorded(slot, with_logits)?;
        let config = self.model.config();
        let input = self.input.slice_mut::<u32>();
        input[0] = position as u32;
        let streams: &mut [f32] = bytemuck::cast_slice_mut(&mut input[4..]);
        let (first, others) = streams.split_at_mut(config.hidden);
        self.model.weights().embed.row(self.model.gguf(), token as usize, first);
        others.chunks_exact_mut(config.hidden).for_each(|stream| stream.copy_from_slice(first));
        if let Some(graph) = &self.graphs[slot][usize::from(with_logits)] {
            launch::graph(&self.stream, graph)?;
        }
        self.stream.synchronize()?;
        let moe_layers = (config.dense_layers..config.trunk).len() as u64;
        self.counters.experts += moe_layers * config.experts_used as u64;
        let fault = self.output.slice::<u32>()[fault_at(self.model.vocab()) / 4];
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        sequence.tokens.push(token);
        sequence.sampled = None;
        if fault != 0 {
            sequence.broken = true;
            self.memory.buffer.write(self.scratch.fault.0 as usize, &[0; 4])?;
            return Err(not_finite(seq, fault, position));
        }
        Ok(())
    }

    /// Records the pass of a slot, once.
    fn recorded(&mut self, slot: usize, with_logits: bool) -> Result<(), ExecError> {
        if self.graphs[slot][usize::from(with_logits)].is_some() {
            return Ok(());
        }
        let pass = pass!(self, slot, None);
        let (input, output, vocab) = (&self.input, &mut self.output, self.model.vocab());
        let (memory, scratch) = (&self.memory, &self.scratch);
        let graph = Graph::capture::<ExecError>(&self.stream, |stream| {
            launch::up(stream, input, input.bytes(), memory.at(scratch.position))?;
            pass.record(with_logits)?;
            if with_logits {
                launch::down(stream, memory.at(scratch.logits), 4 * vocab, output, 0)?;
            }
            launch::down(stream, memory.at(scratch.fault), 4, output, fault_at(vocab))?;
            Ok(())
        })?;
        graph.upload(&self.stream)?;
        self.graphs[slot][usize::from(with_logits)] = Some(graph);
        Ok(())
    }

    /// Runs a sequence's next step launch by launch, with an event after each, and forgets it: nothing of the sequence
    /// changes but what the next step overwrites.
    ///
    /// # Errors
    /// Unknown or failed sequence, or the driver's.
    pub fn profile(&mut self, seq: SeqId) -> Result<Vec<LaunchTime>, ExecError> {
        let (slot, position) = {
            let sequence = self.usable(seq)?;
            (sequence.slot, sequence.tokens.len())
        };
        self.limits().check_room(position, 1)?;
        // The streams of the last token are still in the input.
        self.input.slice_mut::<u32>()[0] = position as u32;
        launch::up(&self.stream, &self.input, self.input.bytes(), self.memory.at(self.scratch.position))?;
        let timeline = Timeline::begin(&self.context, &self.stream)?;
        pass!(self, slot, Some(&timeline)).record(true)?;
        self.stream.synchronize()?;
        self.memory.buffer.write(self.scratch.fault.0 as usize, &[0; 4])?;
        Ok(timeline.end()?)
    }

    /// Nodes of the graph of a step; `None` before the first one.
    #[must_use]
    pub fn graph_nodes(&self) -> Option<usize> {
        self.graphs.iter().find_map(|both| both[1].as_ref()).map(Graph::n_nodes)
    }
}
