//! Running recorded passes: tokens of a prompt one by one, and what a step is made of.

use quant_kernels::cuda::Graph;

use super::abi::Begin;
use super::draw::{self, End, drawing};
use super::flight::answer_at;
use super::timeline::{LaunchTime, Timeline};
use super::token::FIRST_LAYER;
use super::{CudaExecutor, launch};
use crate::error::ExecError;
use crate::executor::{SeqId, Token};
use crate::sampler::SamplerParams;

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

/// What a fault word says of a pass through `trunk` layers.
pub(super) fn not_finite(seq: SeqId, fault: u32, position: usize, trunk: usize) -> ExecError {
    let layer = fault.saturating_sub(FIRST_LAYER) as usize;
    let what = match fault {
        ..FIRST_LAYER => "the input of a product",
        _ if layer > trunk => "the logits",
        _ => "the streams or the mixer",
    };
    ExecError::NotFinite { seq, layer: layer.min(trunk), what, position }
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
        self.answers.check_none_missing(seq)?;
        self.land_all()?;
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

    fn logits(&self) -> &[f32] {
        &self.output.slice::<f32>()[..self.model.vocab()]
    }

    /// One token of a sequence through the model, to its end.
    fn run(&mut self, seq: SeqId, token: Token, with_logits: bool) -> Result<(), ExecError> {
        self.land_all()?;
        let end = if with_logits { End::Rows } else { End::States };
        self.fly(seq, Some(token), end, None, None)?;
        match self.land()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Records the pass of a slot, once.
    pub(super) fn recorded(&mut self, slot: usize, end: End) -> Result<(), ExecError> {
        if self.graphs[slot][end as usize].is_some() {
            return Ok(());
        }
        let pass = pass!(self, slot, None);
        let (output, vocab) = (&mut self.output, self.model.vocab());
        let logits = self.memory.at(self.scratch.logits);
        let graph = Graph::capture::<ExecError>(&self.stream, |stream| {
            pass.record(end != End::States)?;
            pass.end(end)?;
            if end == End::Rows {
                launch::down(stream, logits, 4 * vocab, output, 0)?;
            }
            Ok(())
        })?;
        graph.upload(&self.stream)?;
        self.graphs[slot][end as usize] = Some(graph);
        Ok(())
    }

    /// What a step of a slot begins with goes on the stream. Where the device cannot take the embedding's row apart the token is
    /// known and the stream is idle.
    pub(super) fn begin(
        &mut self,
        slot: usize,
        fed: Option<Token>,
        position: usize,
        params: Option<&SamplerParams>,
        record: usize,
        timeline: Option<&Timeline>,
    ) -> Result<(), ExecError> {
        if self.weights.embed.is_none() {
            let (hidden, row) = (self.model.config().hidden, fed.unwrap_or(0) as usize);
            self.input.slice_mut::<u32>()[0] = position as u32;
            let values = &mut self.input.slice_mut::<f32>()[4..][..hidden];
            self.model.weights().embed.row(self.model.gguf(), row, values);
            launch::up(&self.stream, &self.input, self.input.bytes(), self.memory.at(self.scratch.position))?;
        }
        let counted = self.drawn[slot].counted;
        let next = counted.next(params, position);
        let vocab = self.model.vocab();
        let answer = self.output.device_address() + answer_at(vocab, record) as u64;
        let pass = pass!(self, slot, timeline);
        let places = &self.slots[slot];
        let draw = [pass.at(places.sampled), answer, pass.at(places.bias), pass.at(places.counts)];
        let begin = Begin {
            counted_from: counted.from,
            counted_to: counted.to,
            from: next.from,
            to: next.to,
            ..pass.beginning(fed, position, drawing(params, position, vocab, draw))
        };
        draw::begin(&self.kernels.draw, &begin, &|what, kernel, grid, args| {
            pass.put(what, kernel, grid, args)
        })?;
        self.drawn[slot].counted = next;
        Ok(())
    }

    /// Runs a sequence's next step launch by launch, with an event after each, and forgets it: nothing of the sequence
    /// changes but what the next step overwrites. It draws as the default parameters say.
    ///
    /// # Errors
    /// Unknown or failed sequence, a step without an answer, or the driver's.
    pub fn profile(&mut self, seq: SeqId) -> Result<Vec<LaunchTime>, ExecError> {
        let (slot, position, token) = {
            let sequence = self.usable(seq)?;
            (sequence.slot, sequence.tokens.len(), sequence.tokens.last().copied().unwrap_or(0))
        };
        self.answers.check_none_missing(seq)?;
        self.limits().check_room(position, 1)?;
        self.land_all()?;
        let timeline = Timeline::begin(&self.context, &self.stream)?;
        let params = SamplerParams::default();
        self.begin(slot, Some(token), position, Some(&params), self.next_record, Some(&timeline))?;
        let pass = pass!(self, slot, Some(&timeline));
        pass.record(true)?;
        pass.end(End::Token)?;
        self.stream.synchronize()?;
        Ok(timeline.end()?)
    }

    /// Nodes of the graph of a step; `None` before the first one.
    #[must_use]
    pub fn graph_nodes(&self) -> Option<usize> {
        let recorded = |end: End| self.graphs.iter().find_map(|graphs| graphs[end as usize].as_ref());
        recorded(End::Token).or(recorded(End::Rows)).map(Graph::n_nodes)
    }
}
