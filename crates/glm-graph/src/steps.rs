//! What every executor asks of the tokens and steps that it is given, and the answers it keeps until they are asked for.

use std::collections::VecDeque;

use crate::error::ExecError;
use crate::executor::{Input, SeqId, Step, StepRow, Ticket, Token};

/// What an executor takes at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Tokens are below this.
    pub(crate) vocab: usize,
    /// Most tokens a sequence may have.
    pub(crate) ctx: usize,
}

/// What a sequence's last step sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    Nothing,
    Token(Token),
    /// What it will sample: it is not done.
    Coming,
}

impl From<Option<Token>> for Sampled {
    fn from(token: Option<Token>) -> Self {
        token.map_or(Self::Nothing, Self::Token)
    }
}

/// What a step may need to know of its sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Its tokens so far, those of steps that are not done included.
    pub(crate) len: usize,
    pub(crate) sampled: Sampled,
}

impl Limits {
    /// # Errors
    /// The first token that the model does not have.
    pub(crate) fn check_tokens(self, tokens: &[Token]) -> Result<(), ExecError> {
        match tokens.iter().position(|token| *token as usize >= self.vocab) {
            Some(at) => Err(ExecError::TokenRange { token: tokens[at], at, vocab: self.vocab }),
            None => Ok(()),
        }
    }

    /// # Errors
    /// A sequence of `len` tokens has no room for `extra` more.
    pub(crate) fn check_room(self, len: usize, extra: usize) -> Result<(), ExecError> {
        let wanted = len.saturating_add(extra);
        if wanted > self.ctx { Err(ExecError::Context { wanted, ctx: self.ctx }) } else { Ok(()) }
    }

    /// The tokens that the steps feed, after every check that can be made beforehand; `None` for a token that is not known
    /// yet.
    ///
    /// # Errors
    /// Two steps of one sequence, what `standing` says of a sequence, too many without an answer, no room, bad sampling
    /// parameters, no token to feed or one that the model does not have.
    pub(crate) fn step_tokens(
        self,
        steps: &[Step],
        answers: &Answers,
        standing: impl Fn(SeqId) -> Result<Standing, ExecError>,
    ) -> Result<Vec<Option<Token>>, ExecError> {
        let mut tokens = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            if steps[..at].iter().any(|other| other.seq == step.seq) {
                return Err(ExecError::Twice(step.seq));
            }
            let Standing { len, sampled } = standing(step.seq)?;
            if answers.missing(step.seq) > 1 {
                return Err(ExecError::TooFarAhead(step.seq));
            }
            self.check_room(len, 1)?;
            if let Some(params) = step.want.params() {
                params.check(self.vocab)?;
            }
            let token = match (step.input, sampled) {
                (Input::Token(token), _) | (Input::LastSampled, Sampled::Token(token)) => Some(token),
                (Input::LastSampled, Sampled::Coming) => None,
                (Input::LastSampled, Sampled::Nothing) => {
                    return Err(ExecError::NothingSampled(step.seq));
                }
            };
            if let Some(token) = token.filter(|token| *token as usize >= self.vocab) {
                return Err(ExecError::TokenRange { token, at, vocab: self.vocab });
            }
            tokens.push(token);
        }
        Ok(tokens)
    }
}

/// Where a row of an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlace {
    pub(crate) ticket: u64,
    pub(crate) at: usize,
}

/// A row that is computed, or will be.
#[derive(Debug)]
struct Slot {
    seq: SeqId,
    /// It was submitted before the answer to the step before it was asked for, and no other has come since.
    is_ahead: bool,
    is_undone: bool,
    row: Option<StepRow>,
}

/// Answers that nobody has asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    waiting: VecDeque<(u64, Vec<Slot>)>,
    next: u64,
}

impl Answers {
    /// A place for the answers to `steps`.
    pub(crate) fn expect(&mut self, steps: &[Step]) -> Ticket {
        let is_ahead: Vec<bool> = steps.iter().map(|step| self.missing(step.seq) > 0).collect();
        for slot in self.waiting.iter_mut().flat_map(|(_, slots)| slots) {
            slot.is_ahead &= steps.iter().all(|step| step.seq != slot.seq);
        }
        let slots = steps.iter().zip(is_ahead);
        let slots =
            slots.map(|(step, is_ahead)| Slot { seq: step.seq, is_ahead, is_undone: false, row: None });
        let ticket = self.next;
        self.next += 1;
        self.waiting.push_back((ticket, slots.collect()));
        Ticket(ticket)
    }

    /// Steps of a sequence without an answer.
    pub(crate) fn missing(&self, seq: SeqId) -> usize {
        let slots = self.waiting.iter().flat_map(|(_, slots)| slots);
        slots.filter(|slot| slot.seq == seq && !slot.is_undone).count()
    }

    /// # Errors
    /// The sequence has a step without an answer.
    pub(crate) fn check_none_missing(&self, seq: SeqId) -> Result<(), ExecError> {
        if self.missing(seq) > 0 { Err(ExecError::Unanswered(seq)) } else { Ok(()) }
    }

    /// A row is done. That of an undone step is not wanted.
    pub(crate) fn fill(&mut self, place: RowPlace, row: StepRow) {
        let answer = self.waiting.iter_mut().find(|(ticket, _)| *ticket == place.ticket);
        let slot = answer.and_then(|(_, slots)| slots.get_mut(place.at));
        if let Some(slot) = slot.filter(|slot| !slot.is_undone) {
            slot.row = Some(row);
        }
    }

    /// Whether all rows are done.
    ///
    /// # Errors
    /// The ticket is not of this executor, or its rows were handed over before.
    pub(crate) fn is_complete(&self, ticket: &Ticket) -> Result<bool, ExecError> {
        let answer = self.waiting.iter().find(|(other, _)| *other == ticket.0);
        let (_, slots) = answer.ok_or(ExecError::UnknownTicket(ticket.0))?;
        Ok(slots.iter().all(|slot| slot.is_undone || slot.row.is_some()))
    }

    /// Hands the rows over, once; they are complete.
    ///
    /// # Errors
    /// As [`is_complete`](Self::is_complete).
    pub(crate) fn take(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        let at = self.waiting.iter().position(|(other, _)| *other == ticket.0);
        let answer = at.and_then(|at| self.waiting.remove(at));
        let (_, slots) = answer.ok_or(ExecError::UnknownTicket(ticket.0))?;
        let row = |slot: Slot| {
            let error = Some(ExecError::Undone(slot.seq));
            slot.row.unwrap_or(StepRow { seq: slot.seq, logits: None, token: None, error })
        };
        Ok(slots.into_iter().map(row).collect())
    }

    /// Forgets the last step of a sequence, which ran ahead.
    ///
    /// # Errors
    /// It did not, or there is none without an answer.
    pub(crate) fn undo(&mut self, seq: SeqId) -> Result<RowPlace, ExecError> {
        for (ticket, slots) in self.waiting.iter_mut().rev() {
            if let Some(at) = slots.iter().position(|slot| slot.seq == seq && slot.is_ahead) {
                let place = RowPlace { ticket: *ticket, at };
                self.drop_slots(|slot| slot.seq == seq && slot.is_ahead);
                return Ok(place);
            }
        }
        Err(ExecError::NotAhead(seq))
    }

    /// Forgets all steps of a sequence.
    pub(crate) fn forget(&mut self, seq: SeqId) {
        self.drop_slots(|slot| slot.seq == seq);
    }

    /// A ticket of which nothing is left is forgotten.
    fn drop_slots(&mut self, undone: impl Fn(&Slot) -> bool) {
        for slot in self.waiting.iter_mut().flat_map(|(_, slots)| slots).filter(|slot| undone(slot)) {
            (slot.is_ahead, slot.is_undone, slot.row) = (false, true, None);
        }
        self.waiting.retain(|(_, slots)| slots.is_empty() || slots.iter().any(|slot| !slot.is_undone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Want;

    fn step(seq: u64) -> Step {
        Step { seq: SeqId(seq), input: Input::LastSampled, want: Want::Logits }
    }

    fn row(seq: u64, token: Token) -> StepRow {
        StepRow { seq: SeqId(seq), logits: None, token: Some(token), error: None }
    }

    #[test]
    fn the_last_of_two_steps_can_be_undone_once() {
        let mut answers = Answers::default();
        let (a, seq) = (answers.expect(&[step(1)]), SeqId(1));
        assert_eq!(answers.undo(seq), Err(ExecError::NotAhead(seq)));
        let b = answers.expect(&[step(1)]);
        assert_eq!(answers.missing(seq), 2);
        assert_eq!(answers.undo(seq), Ok(RowPlace { ticket: b.0, at: 0 }));
        assert_eq!(answers.undo(seq), Err(ExecError::NotAhead(seq)));
        assert_eq!(answers.take(b), Err(ExecError::UnknownTicket(1)));
        assert_eq!(answers.is_complete(&a), Ok(false));
        answers.fill(RowPlace { ticket: a.0, at: 0 }, row(1, 7));
        assert_eq!(answers.take(a), Ok(vec![row(1, 7)]));
        assert_eq!(answers.missing(seq), 0);
    }

    /// The step after an undoable one takes its undoing away: the device has kept one state before it.
    #[test]
    fn a_third_step_settles_the_second() {
        let mut answers = Answers::default();
        let seq = SeqId(1);
        let (a, b) = (answers.expect(&[step(1)]), answers.expect(&[step(1)]));
        assert_eq!(answers.take(a).unwrap().len(), 1);
        let c = answers.expect(&[step(1)]);
        assert_eq!(answers.undo(seq), Ok(RowPlace { ticket: c.0, at: 0 }));
        assert_eq!(answers.undo(seq), Err(ExecError::NotAhead(seq)));
        assert_eq!(answers.missing(seq), 1);
        answers.forget(seq);
        assert_eq!(answers.is_complete(&b), Err(ExecError::UnknownTicket(b.0)));
    }

    #[test]
    fn an_undone_row_of_a_batch_says_so() {
        let mut answers = Answers::default();
        let first = answers.expect(&[step(1), step(2)]);
        let both = answers.expect(&[step(2), step(1)]);
        let place = answers.undo(SeqId(1)).unwrap();
        answers.fill(place, row(1, 3));
        answers.fill(RowPlace { ticket: both.0, at: 0 }, row(2, 4));
        assert_eq!(answers.is_complete(&both), Ok(true));
        let rows = answers.take(both).unwrap();
        assert_eq!((rows[0].token, rows[0].error.clone()), (Some(4), None));
        assert_eq!((rows[1].token, rows[1].error.clone()), (None, Some(ExecError::Undone(SeqId(1)))));
        assert_eq!(answers.is_complete(&first), Ok(false));
    }
}
