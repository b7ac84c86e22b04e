//! Feeding a prompt in spans.

use quant_kernels::cuda::DriverError;

use super::{Span, Whose};
use crate::cuda::CudaExecutor;
use crate::cuda::launch;
use crate::cuda::step::{Rows, not_finite, pass};
use crate::cuda::timeline::{LaunchTime, Timeline};
use crate::cuda::token::FIRST_LAYER;
use crate::error::ExecError;
use crate::executor::{SeqId, Token};
use crate::steps::Sampled;

impl CudaExecutor {
    /// As many of the first tokens as a span takes, through the model at once; with `rows`, each one's logits are handed out, the
    /// first being row `at` of the call. Returns how many it took.
    pub(in crate::cuda) fn span(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        at: usize,
        rows: Option<Rows<'_>>,
        timeline: Option<&Timeline>,
    ) -> Result<usize, ExecError> {
        let (slot, first) = {
            let sequence = self.usable(seq)?;
            (sequence.slot, sequence.tokens.len())
        };
        let tokens = &tokens[..tokens.len().min(self.span.rows)];
        let (n, config) = (tokens.len(), self.model.config());
        let hidden = config.hidden;
        let embeddings = &mut self.span_input.slice_mut::<f32>()[..n * hidden];
        for (row, token) in embeddings.chunks_exact_mut(hidden).zip(tokens) {
            self.model.weights().embed.row(self.model.gguf(), *token as usize, row);
        }
        let (n_rows, told) = (4 * n, rows.is_some());
        let mut run = || -> Result<(), DriverError> {
            let whose = Whose::One(first);
            let span = Span { pass: pass!(self, slot, timeline), places: &self.span, whose, rows: n };
            launch::up(&self.stream, &self.span_input, n_rows * hidden, self.memory.at(self.span.y))?;
            span.run(told)?;
            launch::down(&self.stream, self.memory.at(self.span.faults), n_rows, &mut self.span_faults, 0)?;
            self.stream.synchronize()
        };
        if let Err(error) = run() {
            // Part of the state may be the span's, and a copy of the input may still wait.
            let waited = self.stream.synchronize();
            self.break_off(seq, waited.is_ok())?;
            return Err(error.into());
        }
        let moe_layers = (config.dense_layers..config.trunk).len() as u64;
        self.counters.experts += moe_layers * (n * config.experts_used) as u64;
        let faults = &self.span_faults.slice::<u32>()[..n];
        let broken = faults.iter().position(|fault| *fault != 0).map(|row| (row, faults[row]));
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        sequence.tokens.extend_from_slice(tokens);
        sequence.sampled = Sampled::Nothing;
        if let Some((row, fault)) = broken {
            self.break_off(seq, true)?;
            return Err(not_finite(seq, fault, first + row, self.model.config().trunk));
        }
        if let Some(rows) = rows {
            self.span_logits(seq, slot, first, n, &mut |row, logits| rows(at + row, logits))?;
        }
        Ok(n)
    }

    /// Feeds one span launch by launch, with an event after each.
    ///
    /// # Errors
    /// As [`prefill`](crate::Executor::prefill).
    pub fn profile_span(&mut self, seq: SeqId, tokens: &[Token]) -> Result<Vec<LaunchTime>, ExecError> {
        self.limits().check_tokens(tokens)?;
        self.limits().check_room(self.usable(seq)?.tokens.len(), tokens.len())?;
        self.answers.check_none_missing(seq)?;
        self.land_all()?;
        let timeline = Timeline::begin(&self.context, &self.stream)?;
        self.span(seq, tokens, 0, None, Some(&timeline))?;
        Ok(timeline.end()?)
    }

    /// A sequence whose span failed can only be closed or restored; the next span of another finds no faults.
    fn break_off(&mut self, seq: SeqId, works: bool) -> Result<(), ExecError> {
        if let Some(sequence) = self.sequences.get_mut(&seq) {
            sequence.broken = true;
        }
        if works {
            self.memory.buffer.write(self.span.faults.0 as usize, &vec![0; 4 * self.span.rows])?;
        }
        Ok(())
    }

    /// The logits of all rows of the span that was run last.
    fn span_logits(
        &mut self,
        seq: SeqId,
        slot: usize,
        first: usize,
        n: usize,
        told: Rows<'_>,
    ) -> Result<(), ExecError> {
        let (vocab, trunk) = (self.model.vocab(), self.model.config().trunk);
        for from in (0..n).step_by(self.span.logit_rows) {
            let some = self.span.logit_rows.min(n - from);
            let whose = Whose::One(first);
            let span = Span { pass: pass!(self, slot, None), places: &self.span, whose, rows: n };
            span.head(from, some)?;
            let (logits, faults) = (self.memory.at(self.span.logits), self.memory.at(self.span.faults));
            launch::down(&self.stream, logits, 4 * some * vocab, &mut self.span_output, 0)?;
            launch::down(&self.stream, faults, 4 * n, &mut self.span_faults, 0)?;
            self.stream.synchronize()?;
            for row in 0..some {
                let logits = &self.span_output.slice::<f32>()[row * vocab..][..vocab];
                let fault = match self.span_faults.slice::<u32>()[from + row] {
                    0 if logits.iter().all(|logit| logit.is_finite()) => 0,
                    0 => trunk as u32 + 1 + FIRST_LAYER,
                    fault => fault,
                };
                if fault != 0 {
                    self.break_off(seq, true)?;
                    return Err(not_finite(seq, fault, first + from + row, trunk));
                }
                told(from + row, logits);
            }
        }
        Ok(())
    }
}
