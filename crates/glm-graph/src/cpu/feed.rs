//! Feeding rows: spans of one sequence, steps of several, drafts.

use std::ops::Range;
use std::sync::Arc;

use super::batch::{Batch, Segment};
use super::forward::Purpose;
use super::head::rows_at_once;
use super::observer::Watch;
use super::{CpuExecutor, HiddenRows, awake, forward, head, nextn};
use crate::error::ExecError;
use crate::executor::{SeqId, Step, StepRow, Token, Want};
use crate::model::Model;

impl CpuExecutor {
    pub(crate) fn draft(
        &mut self,
        seq: SeqId,
        hidden: &[f32],
        next: &[Token],
        rows: &mut HiddenRows<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExecError> {
        let model = Arc::clone(&self.model);
        let (config, width) = (model.config(), model.config().hidden);
        let nextn = model.weights().nextn.as_ref().ok_or(ExecError::NoNextN)?;
        if hidden.len() != next.len() * width {
            let expected = next.len() * width;
            return Err(ExecError::Length { what: "the hidden vectors", found: hidden.len(), expected });
        }
        self.limits().check_tokens(next)?;
        self.answers.check_none_missing(seq)?;
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
        let at_once = self.rows.min(rows_at_once(model.vocab()));
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
        mut rows: Option<&mut HiddenRows<'_>>,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExecError> {
        self.limits().check_tokens(tokens)?;
        let before = self.usable(seq)?.tokens.len();
        self.answers.check_none_missing(seq)?;
        self.limits().check_room(before, tokens.len())?;
        if tokens.is_empty() {
            return Ok(());
        }
        self.reserve(seq, tokens.len())?;
        let model = Arc::clone(&self.model);
        for (i, chunk) in tokens.chunks(self.rows).enumerate() {
            let sequence = self.take(seq)?;
            let position = before + i * self.rows;
            let mut segments =
                [Segment { id: seq, sequence, start: 0, n: chunk.len(), position, error: None }];
            let first = if rows.is_some() { chunk.len().min(rows_at_once(model.vocab())) } else { 0 };
            self.pass(&model, chunk, &mut segments, 0..first, watch);
            if let Some(rows) = rows.as_deref_mut()
                && segments[0].error.is_none()
            {
                let at_once = rows_at_once(model.vocab());
                for first in (0..chunk.len()).step_by(at_once) {
                    let range = first..chunk.len().min(first + at_once);
                    if first > 0 {
                        self.head(&model, range.clone(), &mut segments);
                    }
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

    /// Embeds, runs the trunk, and leaves the logits of rows `logits` in `scratch.head`; without any, the pass is for the
    /// states alone.
    fn pass(
        &mut self,
        model: &Model,
        tokens: &[Token],
        segments: &mut [Segment],
        logits: Range<usize>,
        watch: &mut Watch<'_>,
    ) {
        let (lanes, store, scratch) = (&self.lanes, &mut self.store, &mut self.scratch);
        let purpose = if logits.is_empty() && !watch.is_on() { Purpose::States } else { Purpose::Streams };
        let work = || {
            let mut batch = Batch::new(segments);
            forward::embed(model, tokens, scratch);
            forward::trunk(lanes, model, &mut batch, store, scratch, purpose, watch);
            if !logits.is_empty() && !batch.all_failed() {
                head::run(lanes, model, logits, &mut batch, scratch);
            }
        };
        awake::install(&self.pool, work);
        self.store.end_pass();
        let config = model.config();
        let moe_layers = (config.dense_layers..config.trunk).len() as u64;
        self.counters.experts += moe_layers * (tokens.len() * config.experts_used) as u64;
    }

    /// Logits of batch rows `range` into `scratch.head`.
    fn head(&mut self, model: &Model, range: Range<usize>, segments: &mut [Segment]) {
        let (lanes, scratch) = (&self.lanes, &mut self.scratch);
        self.pool.install(|| head::run(lanes, model, range, &mut Batch::new(segments), scratch));
    }

    /// One batch of steps, at most `rows` of them.
    pub(super) fn steps(
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
        let at_once = rows_at_once(model.vocab());
        let first = 0..steps.len().min(at_once);
        self.watched(|it, watch| it.pass(&model, tokens, &mut segments, first, watch));
        for first in (0..steps.len()).step_by(at_once) {
            let range = first..steps.len().min(first + at_once);
            if first > 0 {
                self.head(&model, range.clone(), &mut segments);
            }
            // Where all rows met NaN or infinity no logits were computed.
            let mut logits = self.scratch.head.logits.chunks_exact(model.vocab());
            for row in range {
                let logits = logits.next();
                let segment = &mut segments[row];
                segment.sequence.tokens.push(tokens[row]);
                segment.sequence.sampled = None;
                let mut out =
                    StepRow { seq: segment.id, logits: None, token: None, error: segment.error.clone() };
                if out.error.is_none() {
                    let logits = logits.expect("the head ran, since this row is sound");
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
