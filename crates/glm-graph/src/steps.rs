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

/// What a step may need to know of its sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Its tokens so far.
    pub(crate) len: usize,
    /// The token sampled last.
    pub(crate) sampled: Option<Token>,
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

    /// The tokens that the steps feed, after every check that can be made beforehand.
    ///
    /// # Errors
    /// Two steps of one sequence, what `standing` says of a sequence, no room, bad sampling parameters, no token to feed
    /// or one that the model does not have.
    pub(crate) fn step_tokens(
        self,
        steps: &[Step],
        standing: impl Fn(SeqId) -> Result<Standing, ExecError>,
    ) -> Result<Vec<Token>, ExecError> {
        let mut tokens = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            if steps[..at].iter().any(|other| other.seq == step.seq) {
                return Err(ExecError::Twice(step.seq));
            }
            let Standing { len, sampled } = standing(step.seq)?;
            self.check_room(len, 1)?;
            if let Some(params) = step.want.params() {
                params.check(self.vocab)?;
            }
            let token = match step.input {
                Input::Token(token) => token,
                Input::LastSampled => sampled.ok_or(ExecError::NothingSampled(step.seq))?,
            };
            if token as usize >= self.vocab {
                return Err(ExecError::TokenRange { token, at, vocab: self.vocab });
            }
            tokens.push(token);
        }
        Ok(tokens)
    }
}

/// Rows that were computed and not yet asked for.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    waiting: VecDeque<(u64, Vec<StepRow>)>,
    next: u64,
}

impl Answers {
    /// Keeps the rows of one submission.
    pub(crate) fn keep(&mut self, rows: Vec<StepRow>) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push_back((ticket, rows));
        Ticket(ticket)
    }

    /// Hands the rows over, once.
    ///
    /// # Errors
    /// The ticket is not of this executor, or its rows were handed over before.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        let at = self.waiting.iter().position(|(other, _)| *other == ticket.0);
        let answer = at.and_then(|at| self.waiting.remove(at));
        answer.map(|(_, rows)| rows).ok_or(ExecError::UnknownTicket(ticket.0))
    }
}
