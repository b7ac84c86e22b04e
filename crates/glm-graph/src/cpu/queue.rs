//! Steps that wait until somebody asks for their answers. So a step that ran ahead and is undone costs nothing, and nothing has to
//! be put back.

use super::CpuExecutor;
use crate::error::ExecError;
use crate::executor::{SeqId, Step, StepRow, Ticket, Token};
use crate::steps::{RowPlace, Sampled, Standing};

/// A step that is not computed.
#[derive(Debug)]
pub(super) struct Queued {
    place: RowPlace,
    step: Step,
    /// What it feeds; `None` for what the step before samples.
    token: Option<Token>,
}

impl CpuExecutor {
    /// Steps of a sequence that are not computed.
    pub(super) fn queued(&self, seq: SeqId) -> usize {
        self.queue.iter().filter(|queued| queued.step.seq == seq).count()
    }

    pub(super) fn enqueue(&mut self, steps: &[Step]) -> Result<Ticket, ExecError> {
        let tokens = self.limits().step_tokens(steps, &self.answers, |seq| {
            let sequence = self.usable(seq)?;
            let last = self.queue.iter().rfind(|queued| queued.step.seq == seq);
            let sampled = match last {
                None => sequence.sampled.into(),
                Some(last) if last.step.want.params().is_some() => Sampled::Coming,
                Some(_) => Sampled::Nothing,
            };
            Ok(Standing { len: sequence.tokens.len() + self.queued(seq), sampled })
        })?;
        for step in steps {
            self.reserve(step.seq, 1 + self.queued(step.seq))?;
        }
        let ticket = self.answers.expect(steps);
        self.queue.extend(steps.iter().zip(tokens).enumerate().map(|(at, (step, token))| Queued {
            place: RowPlace { ticket: ticket.0, at },
            step: step.clone(),
            token,
        }));
        Ok(ticket)
    }

    /// Computes the steps of a ticket, and before them those that they follow.
    pub(super) fn work_off(&mut self, ticket: &Ticket) -> Result<(), ExecError> {
        let asked = self.queue.iter().filter(|queued| queued.place.ticket == ticket.0);
        let asked: Vec<SeqId> = asked.map(|queued| queued.step.seq).collect();
        let (now, later): (Vec<_>, Vec<_>) = self
            .queue
            .drain(..)
            .partition(|queued| queued.place.ticket <= ticket.0 && asked.contains(&queued.step.seq));
        self.queue = later;
        for batch in now.chunk_by(|a, b| a.place.ticket == b.place.ticket) {
            self.compute(batch)?;
        }
        Ok(())
    }

    /// Computes steps of different sequences.
    fn compute(&mut self, batch: &[Queued]) -> Result<(), ExecError> {
        let (mut places, mut steps, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for Queued { place, step, token } in batch {
            // The step before it may have failed.
            let token = self
                .usable(step.seq)
                .and_then(|sequence| token.or(sequence.sampled).ok_or(ExecError::NothingSampled(step.seq)));
            match token {
                Ok(token) => {
                    places.push(*place);
                    steps.push(step.clone());
                    tokens.push(token);
                }
                Err(error) => {
                    let row = StepRow { seq: step.seq, logits: None, token: None, error: Some(error) };
                    self.answers.fill(*place, row);
                }
            }
        }
        let mut rows = Vec::with_capacity(steps.len());
        for (steps, tokens) in steps.chunks(self.rows).zip(tokens.chunks(self.rows)) {
            self.steps(steps, tokens, &mut rows)?;
        }
        places.into_iter().zip(rows).for_each(|(place, row)| self.answers.fill(place, row));
        Ok(())
    }

    pub(super) fn undo_step(&mut self, seq: SeqId) -> Result<(), ExecError> {
        if !self.sequences.contains_key(&seq) {
            return Err(ExecError::UnknownSequence(seq));
        }
        let place = self.answers.undo(seq)?;
        self.queue.retain(|queued| queued.place != place);
        Ok(())
    }

    /// A sequence's steps without an answer are nobody's any more.
    pub(super) fn forget_steps(&mut self, seq: SeqId) {
        self.answers.forget(seq);
        self.queue.retain(|queued| queued.step.seq != seq);
    }
}
