//! Looking into an executor: what [`crate::probe`] shows.

use std::sync::Arc;

use super::batch::{Batch, Segment};
use super::observer::{Observer, Watch};
use super::{CpuExecutor, HiddenRows, forward};
use crate::error::ExecError;
use crate::executor::{SeqId, Token};
use crate::probe::KdaView;
use crate::state::{LayerState, Sequence};

impl CpuExecutor {
    pub(crate) fn trace(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        observer: &mut dyn Observer,
        rows: &mut HiddenRows<'_>,
    ) -> Result<(), ExecError> {
        self.feed(seq, tokens, Some(rows), &mut Watch(Some(observer)))
    }

    pub(crate) fn trace_draft(
        &mut self,
        seq: SeqId,
        hidden: &[f32],
        next: &[Token],
        observer: &mut dyn Observer,
        rows: &mut HiddenRows<'_>,
    ) -> Result<(), ExecError> {
        self.draft(seq, hidden, next, rows, &mut Watch(Some(observer)))
    }

    pub(crate) fn embedding(&mut self, tokens: &[Token]) -> Result<Vec<f32>, ExecError> {
        self.limits().check_tokens(tokens)?;
        let scratch = &mut self.scratch;
        self.pool.install(|| forward::embed(&self.model, tokens, scratch));
        scratch.faults.take();
        Ok(scratch.hyper.residual.f32().to_vec())
    }

    pub(crate) fn layer_forward(&mut self, layer: usize, streams: &[f32]) -> Result<Vec<f32>, ExecError> {
        let model = Arc::clone(&self.model);
        let (config, width) = (model.config(), model.config().residual());
        if layer >= config.trunk || streams.is_empty() || !streams.len().is_multiple_of(width) {
            return Err(ExecError::Length { what: "the streams", found: streams.len(), expected: width });
        }
        let mut sequence = Sequence::new(config, self.kv)?;
        let rows = streams.len() / width;
        sequence.reserve(config, rows)?;
        let mut segments =
            [Segment { id: SeqId(u64::MAX), sequence, start: 0, n: 0, position: 0, error: None }];
        let mut out = Vec::with_capacity(streams.len());
        for chunk in streams.chunks(self.rows * width) {
            segments[0].n = chunk.len() / width;
            let (lanes, store, scratch) = (&self.lanes, &mut self.store, &mut self.scratch);
            self.pool.install(|| {
                scratch.hyper.residual.reset(chunk.len() / width, width).copy_from_slice(chunk);
                forward::layer(lanes, &model, layer, &mut Batch::new(&mut segments), store, scratch);
            });
            if let Some(error) = segments[0].error.take() {
                return Err(error);
            }
            out.extend_from_slice(self.scratch.hyper.residual.f32());
            segments[0].position += chunk.len() / width;
        }
        Ok(out)
    }

    pub(crate) fn kda_state(&self, seq: SeqId, layer: usize) -> Result<Option<KdaView<'_>>, ExecError> {
        let sequence = self.sequences.get(&seq).ok_or(ExecError::UnknownSequence(seq))?;
        Ok(match sequence.layers.get(layer) {
            Some(LayerState::Kda(state)) => Some(KdaView { conv: &state.conv, matrix: &state.matrix }),
            _ => None,
        })
    }
}
