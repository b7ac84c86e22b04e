//! Steps on their way: put on the stream, and heard of later. Work of the stream is done in the order in which it came, so a step
//! may be put behind the one whose token it feeds.

use std::sync::Arc;

use super::draw::{ANSWER_BYTES, Counted, End, bias_table};
use super::step::{Beginning, not_finite};
use super::{CudaExecutor, launch};
use crate::error::ExecError;
use crate::executor::{SeqId, Step, StepRow, Ticket, Token, Want};
use crate::sampler::SamplerParams;
use crate::steps::{RowPlace, Sampled};

/// Stands among a sequence's tokens for one that is not known yet.
const UNKNOWN: Token = Token::MAX;

/// Where the pinned output has an answer: behind the logits, of which a pass has `logits` values.
pub(super) fn answer_at(logits: usize, record: usize) -> usize {
    (4 * logits).next_multiple_of(ANSWER_BYTES) + ANSWER_BYTES * record
}

/// A step that goes on the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) seq: SeqId,
    /// `None` for the token that the step before, which is under way, samples.
    pub(super) fed: Option<Token>,
    pub(super) params: Option<&'a SamplerParams>,
    /// Where its row belongs; `None` for a token of a prompt.
    pub(super) place: Option<RowPlace>,
    pub(super) wants_logits: bool,
}

/// A step that was put on the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    seq: SeqId,
    slot: usize,
    position: usize,
    place: Option<RowPlace>,
    /// Its row of the pass, which record of the output has its answer, and which event tells that the pass has ended.
    row: usize,
    record: usize,
    event: usize,
    wants_logits: bool,
    wants_token: bool,
    is_undone: bool,
}

/// What a slot's memory holds for draws.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) counted: Counted,
    /// What the table of biases was made from.
    biases: Option<Biases>,
}

#[derive(Debug)]
struct Biases {
    added: Vec<(Token, f32)>,
    banned: Arc<[Token]>,
}

impl CudaExecutor {
    /// Puts all steps on the stream, so many in a pass as go together.
    pub(super) fn take_off(&mut self, steps: &[Step], tokens: &[Option<Token>]) -> Result<Ticket, ExecError> {
        let ticket = self.answers.expect(steps);
        let wanted = steps.iter().zip(tokens).enumerate().map(|(at, (step, token))| Wanted {
            seq: step.seq,
            fed: *token,
            params: step.want.params(),
            place: Some(RowPlace { ticket: ticket.0, at }),
            wants_logits: !matches!(step.want, Want::Sample(_)),
        });
        let wanted: Vec<Wanted<'_>> = wanted.collect();
        for some in wanted.chunks(self.turns) {
            if let Err(error) = self.fly_all(some) {
                // Nobody gets the ticket.
                self.answers.take(ticket)?;
                return Err(error);
            }
        }
        Ok(ticket)
    }

    /// Puts steps on the stream as one pass, without those whose sequence has failed meanwhile: they are answered.
    fn fly_all(&mut self, wanted: &[Wanted<'_>]) -> Result<(), ExecError> {
        let end = if wanted.iter().any(|step| step.wants_logits) { End::Rows } else { End::Token };
        self.make_room(wanted.len(), end)?;
        for step in wanted {
            match self.prepare(step) {
                Ok(()) | Err(ExecError::Broken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // Whatever was waited for has told its token by now, and perhaps that a sequence has failed.
        let mut ready = Vec::with_capacity(wanted.len());
        for step in wanted {
            match (self.usable(step.seq).map(|_| ()), step.place) {
                (Ok(()), _) => ready.push(*step),
                (Err(error), Some(place)) => {
                    let row = StepRow { seq: step.seq, logits: None, token: None, error: Some(error) };
                    self.answers.fill(place, row);
                }
                (Err(error), None) => return Err(error),
            }
        }
        if ready.is_empty() { Ok(()) } else { self.fly(&ready, end) }
    }

    /// Waits until `n` more steps can be on their way.
    fn make_room(&mut self, n: usize, end: End) -> Result<(), ExecError> {
        // There is one place for logits, and one for rows of embeddings that the host takes apart.
        if end == End::Rows || self.weights.embed.is_none() {
            self.land_all()?;
        }
        while self.flights.len() + n > self.events.len() {
            self.land()?;
        }
        Ok(())
    }

    /// Brings what a step needs.
    fn prepare(&mut self, step: &Wanted<'_>) -> Result<(), ExecError> {
        let slot = self.usable(step.seq)?.slot;
        // A step that was undone leaves its own token on the device.
        let last = self.flights.iter().rfind(|flight| flight.slot == slot);
        if step.fed.is_none() && last.is_some_and(|last| last.is_undone) {
            self.land_slot(slot)?;
        }
        self.bring_history(step.seq)?;
        self.bring_biases(slot, step.params)
    }

    /// Puts one step on the stream that nobody has asked for: a token of a prompt.
    pub(super) fn fly_alone(&mut self, seq: SeqId, token: Token, end: End) -> Result<(), ExecError> {
        let step = Wanted { seq, fed: Some(token), params: None, place: None, wants_logits: false };
        self.make_room(1, end)?;
        self.prepare(&step)?;
        self.fly(&[step], end)
    }

    /// Puts a pass on the stream; everything that its steps need is there.
    fn fly(&mut self, wanted: &[Wanted<'_>], end: End) -> Result<(), ExecError> {
        let (first, records) = (self.next_record, self.events.len());
        let record_of = |row: usize| (first + row) % records;
        let mut rows = Vec::with_capacity(wanted.len());
        for (row, step) in wanted.iter().enumerate() {
            let sequence = self.usable(step.seq)?;
            let fed = match (step.fed, sequence.sampled) {
                (None, Sampled::Token(token)) => Some(token),
                (fed, _) => fed,
            };
            let (slot, position) = (sequence.slot, sequence.tokens.len());
            rows.push(Beginning { slot, fed, position, params: step.params, record: record_of(row) });
        }
        // That of the last row: its record is free, and its event used again, only when all rows have landed.
        let event = record_of(rows.len() - 1);
        self.recorded(rows.len(), end)?;
        self.begin(&rows, None)?;
        if let Some(graph) = self.graphs.get(&(rows.len(), end)) {
            launch::graph(&self.stream, graph)?;
        }
        self.events[event].record(&self.stream)?;
        self.next_record = record_of(rows.len());
        let config = self.model.config();
        let moe_layers = (config.dense_layers..config.trunk).len() as u64;
        self.counters.experts += moe_layers * (rows.len() * config.experts_used) as u64;
        for (row, (step, begun)) in wanted.iter().zip(&rows).enumerate() {
            let Wanted { seq, place, .. } = *step;
            let wants_token = step.params.is_some();
            let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
            sequence.tokens.push(begun.fed.unwrap_or(UNKNOWN));
            sequence.stored = sequence.tokens.len();
            (sequence.last, sequence.sampled_before, sequence.broken_before) =
                (place, sequence.sampled, false);
            sequence.sampled = if wants_token { Sampled::Coming } else { Sampled::Nothing };
            self.flights.push_back(Flight {
                seq,
                slot: begun.slot,
                position: begun.position,
                place,
                row,
                record: begun.record,
                event,
                wants_logits: step.wants_logits,
                wants_token,
                is_undone: false,
            });
        }
        Ok(())
    }

    /// Waits for the oldest step on its way and notes what came of it; an error that is that sequence's alone is handed back.
    pub(super) fn land(&mut self) -> Result<Option<ExecError>, ExecError> {
        let Some(flight) = self.flights.front().copied() else { return Ok(None) };
        self.events[flight.event].synchronize()?;
        self.flights.pop_front();
        let Flight { seq, position, .. } = flight;
        let vocab = self.model.vocab();
        let [token, fault] = launch::heard(&self.output, answer_at(self.turns * vocab, flight.record));
        let sequence = self.sequences.get_mut(&seq).filter(|_| !flight.is_undone);
        let Some(sequence) = sequence else { return Ok(None) };
        let is_last = position + 1 == sequence.tokens.len();
        let mut row = StepRow { seq, logits: None, token: None, error: None };
        if sequence.broken {
            row.error = Some(ExecError::Broken(seq));
        } else if fault != 0 {
            sequence.broken = true;
            // It stays so if a step after it is undone.
            sequence.broken_before |= !is_last;
            row.error = Some(not_finite(seq, fault, position, self.model.config().trunk));
        } else {
            if flight.wants_token {
                row.token = Some(token);
                if is_last {
                    sequence.sampled = Sampled::Token(token);
                } else {
                    sequence.sampled_before = Sampled::Token(token);
                    let next = &mut sequence.tokens[position + 1];
                    *next = if *next == UNKNOWN { token } else { *next };
                }
            }
            if flight.wants_logits {
                row.logits = Some(launch::heard_floats(&self.output, vocab * flight.row, vocab));
            }
            self.counters.decoded += u64::from(flight.place.is_some());
        }
        let error = row.error.clone();
        if let Some(place) = flight.place {
            self.answers.fill(place, row);
        }
        Ok(error)
    }

    /// Waits for everything that is on its way.
    pub(super) fn land_all(&mut self) -> Result<(), ExecError> {
        while !self.flights.is_empty() {
            self.land()?;
        }
        Ok(())
    }

    /// Waits for what is on its way in a slot.
    fn land_slot(&mut self, slot: usize) -> Result<(), ExecError> {
        while self.flights.iter().any(|flight| flight.slot == slot) {
            self.land()?;
        }
        Ok(())
    }

    /// Forgets a sequence's last step, which ran ahead. Its state before lies in the other copy, and what it appended to
    /// caches lies behind their length; the work itself runs to its end.
    pub(super) fn undo_step(&mut self, seq: SeqId) -> Result<(), ExecError> {
        if !self.sequences.contains_key(&seq) {
            return Err(ExecError::UnknownSequence(seq));
        }
        let place = self.answers.undo(seq)?;
        let flight = self.flights.iter_mut().find(|flight| flight.place == Some(place));
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        if sequence.last != Some(place) {
            // The sequence had failed before the step was put on the stream.
            return Ok(());
        }
        match flight {
            Some(flight) => flight.is_undone = true,
            // It has landed.
            None => self.counters.decoded -= u64::from(!sequence.broken),
        }
        sequence.tokens.pop();
        sequence.stored = sequence.stored.min(sequence.tokens.len());
        (sequence.sampled, sequence.broken) = (sequence.sampled_before, sequence.broken_before);
        sequence.last = None;
        Ok(())
    }

    /// Answers of a sequence are nobody's any more.
    pub(super) fn forget_steps(&mut self, seq: SeqId) {
        self.answers.forget(seq);
        self.flights.iter_mut().filter(|flight| flight.seq == seq).for_each(|flight| flight.is_undone = true);
    }

    /// Nothing on its way uses the slot any more, and nothing is counted there.
    pub(super) fn vacate(&mut self, slot: usize) -> Result<(), ExecError> {
        self.land_slot(slot)?;
        if self.drawn[slot].counted != Counted::default() {
            let zeros = vec![0; 4 * self.model.vocab()];
            self.memory.buffer.write(self.slots[slot].counts.0 as usize, &zeros)?;
            self.drawn[slot].counted = Counted::default();
        }
        Ok(())
    }

    /// Writes tokens that the device does not have: those of a prompt.
    fn bring_history(&mut self, seq: SeqId) -> Result<(), ExecError> {
        let sequence = self.usable(seq)?;
        let (slot, stored) = (sequence.slot, sequence.stored);
        if stored == sequence.tokens.len() {
            return Ok(());
        }
        if self.drawn[slot].counted.to as usize > stored {
            // A token that was undone was counted, and is about to be overwritten.
            self.vacate(slot)?;
        }
        let at = self.slots[slot].history.0 as usize + 4 * stored;
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        self.memory.buffer.write(at, bytemuck::cast_slice(&sequence.tokens[stored..]))?;
        Ok(())
    }

    /// Writes the table of biases, if the parameters need another one than is there.
    fn bring_biases(&mut self, slot: usize, params: Option<&SamplerParams>) -> Result<(), ExecError> {
        let is_biased = |params: &&SamplerParams| !(params.logit_bias.is_empty() && params.banned.is_empty());
        let Some(params) = params.filter(is_biased) else { return Ok(()) };
        let same = self.drawn[slot].biases.as_ref().is_some_and(|there| {
            there.added == params.logit_bias
                && (Arc::ptr_eq(&there.banned, &params.banned) || there.banned == params.banned)
        });
        if !same {
            self.land_slot(slot)?;
            let table = bias_table(params, self.model.vocab());
            self.memory.buffer.write(self.slots[slot].bias.0 as usize, bytemuck::cast_slice(&table))?;
            let (added, banned) = (params.logit_bias.clone(), Arc::clone(&params.banned));
            self.drawn[slot].biases = Some(Biases { added, banned });
        }
        Ok(())
    }
}
