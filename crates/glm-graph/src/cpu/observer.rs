//! Looking into a forward pass without changing it.

use super::batch::Batch;
use super::pools::Selection;
use crate::config::Config;
use crate::indexer::positions;

/// Receives intermediate values of a pass over one sequence. Rows come in the order of positions within a call, layer by
/// layer; every method may stay empty.
pub trait Observer: Send {
    /// The residual streams after `layer`: `rows` is `[n][streams * hidden]` for positions from `first` on.
    fn streams(&mut self, layer: usize, first: usize, rows: &[f32]) {
        let _ = (layer, first, rows);
    }

    /// The experts that `layer` takes for a position, in rank order, and their final weights.
    fn route(&mut self, layer: usize, position: usize, experts: &[u32], weights: &[f32]) {
        let _ = (layer, position, experts, weights);
    }

    /// The positions that a row of `layer` attends to, ascending.
    fn selection(&mut self, layer: usize, position: usize, positions: &[usize]) {
        let _ = (layer, position, positions);
    }
}

/// An observer, or none: then every call is one compare.
pub(crate) struct Watch<'a>(pub(crate) Option<&'a mut dyn Observer>);

impl Watch<'_> {
    /// Whether somebody looks: then nothing may be left out that only an observer would miss.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn streams(&mut self, layer: usize, batch: &Batch<'_>, rows: &[f32]) {
        let Some(observer) = &mut self.0 else { return };
        let width = rows.len() / batch.rows;
        for segment in batch.segments.iter() {
            observer.streams(layer, segment.position, &rows[segment.start * width..][..segment.n * width]);
        }
    }

    pub(super) fn routes(&mut self, layer: usize, batch: &Batch<'_>, ids: &[u32], weights: &[f32]) {
        let Some(observer) = &mut self.0 else { return };
        let k = ids.len() / batch.rows;
        for segment in batch.segments.iter() {
            for row in 0..segment.n {
                let range = (segment.start + row) * k..(segment.start + row + 1) * k;
                observer.route(layer, segment.position + row, &ids[range.clone()], &weights[range]);
            }
        }
    }

    pub(super) fn selection(
        &mut self,
        layer: usize,
        first: usize,
        n: usize,
        selection: &Selection<'_>,
        config: &Config,
    ) {
        let Some(observer) = &mut self.0 else { return };
        for row in 0..n {
            let visible = first + row + 1;
            let set: Vec<usize> = match selection.pools(row) {
                Some(pools) => positions(pools, visible, config.kpool).collect(),
                None => (0..visible).collect(),
            };
            observer.selection(layer, first + row, &set);
        }
    }
}
