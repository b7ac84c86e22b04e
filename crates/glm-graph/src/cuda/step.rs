//! Running recorded passes: tokens of a prompt one by one, and what steps are made of.

use quant_kernels::cuda::{DriverError, Graph};

use super::abi::Begin;
use super::draw::{self, DrawPlaces, End, drawing};
use super::flight::answer_at;
use super::scratch::{capacity, choice_words};
use super::span::{Span, SpanPlaces, Whose};
use super::timeline::{LaunchTime, Timeline};
use super::token::{FIRST_LAYER, Pass};
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

/// What a step begins with, as far as its sequence says.
#[derive(Clone, Copy)]
pub(super) struct Beginning<'a> {
    pub(super) slot: usize,
    /// `None` for the token that the sequence's step before leaves on the device.
    pub(super) fed: Option<Token>,
    pub(super) position: usize,
    pub(super) params: Option<&'a SamplerParams>,
    /// Which record of the output takes the answer.
    pub(super) record: usize,
}

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
        self.fly_alone(seq, token, end)?;
        match self.land()? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Records a pass of `n` rows, once.
    pub(super) fn recorded(&mut self, n: usize, end: End) -> Result<(), ExecError> {
        if self.graphs.contains_key(&(n, end)) {
            return Ok(());
        }
        let (pass, places) = (pass!(self, 0, None), &self.span);
        let (output, bytes) = (&mut self.output, 4 * n * self.model.vocab());
        let graph = Graph::capture::<ExecError>(&self.stream, |stream| {
            let logits = pass.steps(places, n, end)?;
            if end == End::Rows {
                launch::down(stream, logits, bytes, output, 0)?;
            }
            Ok(())
        })?;
        graph.upload(&self.stream)?;
        self.graphs.insert((n, end), graph);
        Ok(())
    }

    /// What the steps of a pass begin with goes on the stream. Where the device cannot take the embedding's row apart there is one
    /// step, its token is known and the stream is idle.
    pub(super) fn begin(
        &mut self,
        rows: &[Beginning<'_>],
        timeline: Option<&Timeline>,
    ) -> Result<(), ExecError> {
        let config = self.model.config();
        if self.weights.embed.is_none() {
            let row = rows[0].fed.unwrap_or(0) as usize;
            let values = &mut self.input.slice_mut::<f32>()[..config.hidden];
            self.model.weights().embed.row(self.model.gguf(), row, values);
            let to = self.memory.at(self.scratch.embedding);
            launch::up(&self.stream, &self.input, self.input.bytes(), to)?;
        }
        let vocab = self.model.vocab();
        let pass = pass!(self, 0, timeline);
        let mut begins = Vec::with_capacity(rows.len());
        for (row, step) in rows.iter().enumerate() {
            let (slot, counted) = (&self.slots[step.slot], self.drawn[step.slot].counted);
            let next = counted.next(step.params, step.position);
            let answer = self.output.device_address() + answer_at(self.turns * vocab, step.record) as u64;
            let draw = [pass.at(slot.sampled), answer, pass.at(slot.bias), pass.at(slot.counts)];
            // One row has its streams, several have their embeddings where a span has them.
            let (streams, streams_n) = match rows.len() {
                1 => (pass.at(self.scratch.embedding), config.streams),
                _ => (pass.behind(self.span.y, row * config.hidden), 1),
            };
            begins.push(Begin {
                streams,
                streams_n: streams_n as u32,
                counted_from: counted.from,
                counted_to: counted.to,
                from: next.from,
                to: next.to,
                ..pass.beginning(
                    row,
                    slot,
                    step.fed,
                    step.position,
                    drawing(step.params, step.position, vocab, draw),
                )
            });
            self.drawn[step.slot].counted = next;
        }
        draw::begin(&self.kernels.draw, &begins, &|what, kernel, grid, args| {
            pass.put(what, kernel, grid, args)
        })?;
        Ok(())
    }

    /// Runs the next steps of sequences launch by launch as one pass, with an event after each, and forgets them: nothing of
    /// the sequences changes but what their next steps overwrite. They draw as the default parameters say.
    ///
    /// # Errors
    /// None or too many, one of them twice, unknown or failed sequence, a step without an answer, or the driver's.
    pub fn profile(&mut self, seqs: &[SeqId]) -> Result<Vec<LaunchTime>, ExecError> {
        let n = seqs.len();
        if let Some((_, seq)) = seqs.iter().enumerate().find(|(at, seq)| seqs[..*at].contains(seq)) {
            return Err(ExecError::Twice(*seq));
        }
        if !(1..=self.turns).contains(&n) {
            return Err(ExecError::Length {
                what: "the sequences of a pass",
                found: n,
                expected: n.clamp(1, self.turns),
            });
        }
        let params = SamplerParams::default();
        let mut rows = Vec::with_capacity(n);
        for (row, seq) in seqs.iter().enumerate() {
            let sequence = self.usable(*seq)?;
            let (slot, position) = (sequence.slot, sequence.tokens.len());
            let fed = Some(sequence.tokens.last().copied().unwrap_or(0));
            self.answers.check_none_missing(*seq)?;
            self.limits().check_room(position, 1)?;
            let record = (self.next_record + row) % self.events.len();
            rows.push(Beginning { slot, fed, position, params: Some(&params), record });
        }
        self.land_all()?;
        let timeline = Timeline::begin(&self.context, &self.stream)?;
        let begun = self.begin(&rows, Some(&timeline));
        let run =
            begun.and_then(|()| Ok(pass!(self, 0, Some(&timeline)).steps(&self.span, n, End::Token)?));
        if let Err(error) = run {
            // Scores may have been counted for a choice that did not come, and the next one's come on top.
            let c = self.model.config();
            let bytes = 4 * self.turns * choice_words(capacity(c, self.ctx));
            launch::clear(&self.stream, self.memory.at(self.scratch.counts), bytes)?;
            return Err(error);
        }
        self.stream.synchronize()?;
        Ok(timeline.end()?)
    }

    /// Nodes of the graph of a pass of so many steps; `None` before the first one.
    #[must_use]
    pub fn graph_nodes(&self, steps: usize) -> Option<usize> {
        let recorded = |end: End| self.graphs.get(&(steps, end));
        recorded(End::Token).or(recorded(End::Rows)).map(Graph::n_nodes)
    }

    /// Sequences that one pass has steps of, at most.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns
    }
}

impl Pass<'_> {
    /// Steps of `n` sequences, whose beginnings are done: one alone, several as rows of a span. Returns where their logits are.
    fn steps(&self, places: &SpanPlaces, n: usize, end: End) -> Result<u64, DriverError> {
        let alone = self.draw_places();
        if n == 1 {
            self.record(end != End::States)?;
            self.end(&alone, end)?;
            return Ok(alone.logits);
        }
        let span = Span { pass: *self, places, whose: Whose::Each, rows: n };
        span.run(true)?;
        span.head(0, n)?;
        let draws = DrawPlaces {
            rows: n as u32,
            logits: self.at(places.logits),
            fault: self.at(places.faults),
            ..alone
        };
        self.end(&draws, end)?;
        Ok(draws.logits)
    }
}
