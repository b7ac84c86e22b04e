//! Feeding a prompt in spans.

use super::Span;
use crate::cuda::CudaExecutor;
use crate::cuda::launch;
use crate::cuda::step::{Rows, not_finite, pass};
use crate::cuda::timeline::{LaunchTime, Timeline};
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
        let pass = pass!(self, slot, timeline);
        let span = Span { pass, places: &self.span, first, rows: n };
        launch::up(&self.stream, &self.span_input, 4 * n * hidden, self.memory.at(self.span.y))?;
        span.run(rows.is_some())?;
        launch::down(&self.stream, self.memory.at(self.span.faults), 4 * n, &mut self.span_faults, 0)?;
        self.stream.synchronize()?;
        let moe_layers = (config.dense_layers..config.trunk).len() as u64;
        self.counters.experts += moe_layers * (n * config.experts_used) as u64;
        let faults = &self.span_faults.slice::<u32>()[..n];
        let broken = faults.iter().position(|fault| *fault != 0).map(|row| (row, faults[row]));
        let sequence = self.sequences.get_mut(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        sequence.tokens.extend_from_slice(tokens);
        sequence.sampled = Sampled::Nothing;
        if let Some((row, fault)) = broken {
            sequence.broken = true;
            self.memory.buffer.write(self.span.faults.0 as usize, &vec![0; 4 * n])?;
            return Err(not_finite(seq, fault, first + row, self.model.config().trunk));
        }
        if let Some(rows) = rows {
            self.span_logits(slot, first, n, &mut |row, logits| rows(at + row, logits))?;
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

    /// The logits of all rows of the span that was run last.
    fn span_logits(&mut self, slot: usize, first: usize, n: usize, told: Rows<'_>) -> Result<(), ExecError> {
        let vocab = self.model.vocab();
        for from in (0..n).step_by(self.span.logit_rows) {
            let some = self.span.logit_rows.min(n - from);
            let span = Span { pass: pass!(self, slot, None), places: &self.span, first, rows: n };
            span.head(from, some)?;
            let logits = self.memory.at(self.span.logits);
            launch::down(&self.stream, logits, 4 * some * vocab, &mut self.span_output, 0)?;
            self.stream.synchronize()?;
            let rows = self.span_output.slice::<f32>()[..some * vocab].chunks_exact(vocab);
            rows.enumerate().for_each(|(row, logits)| told(from + row, logits));
        }
        Ok(())
    }
}
