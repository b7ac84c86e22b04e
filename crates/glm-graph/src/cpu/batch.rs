//! The rows of one forward pass: consecutive positions of one sequence, or one position each of several.

use super::lanes::Note;
use crate::error::ExecError;
use crate::executor::SeqId;
use crate::state::Sequence;

/// Rows of one sequence in a batch.
pub(crate) struct Segment {
    pub(crate) id: SeqId,
    /// Taken out of the executor for the time of the call.
    pub(crate) sequence: Sequence,
    /// First row in the batch.
    pub(crate) start: usize,
    /// Rows.
    pub(crate) n: usize,
    /// Position of the first row in its sequence.
    pub(crate) position: usize,
    /// The first NaN or infinity met.
    pub(crate) error: Option<ExecError>,
}

/// Segments one behind the other.
pub(crate) struct Batch<'a> {
    pub(crate) segments: &'a mut [Segment],
    /// Rows of all segments.
    pub(crate) rows: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(segments: &'a mut [Segment]) -> Self {
        let rows = segments.iter().map(|segment| segment.n).sum();
        Self { segments, rows }
    }

    /// Charges the segments with what was noted, the earliest note first.
    pub(crate) fn settle(&mut self, notes: &[Note], layer: usize) {
        for note in notes {
            let hit = |segment: &&mut Segment| (segment.start..segment.start + segment.n).contains(&note.row);
            if let Some(segment) = self.segments.iter_mut().find(hit) {
                segment.error.get_or_insert(ExecError::NotFinite {
                    seq: segment.id,
                    layer,
                    what: note.what,
                    position: segment.position + note.row - segment.start,
                });
            }
        }
    }

    /// Fails the segments of these rows, for a reason that is not one of arithmetic.
    pub(crate) fn fail(&mut self, rows: impl Iterator<Item = usize>, why: &ExecError) {
        for row in rows {
            let hit = |segment: &&mut Segment| (segment.start..segment.start + segment.n).contains(&row);
            if let Some(segment) = self.segments.iter_mut().find(hit) {
                segment.error.get_or_insert_with(|| why.clone());
            }
        }
    }

    /// Whether no segment is worth going on for.
    pub(crate) fn all_failed(&self) -> bool {
        self.segments.iter().all(|segment| segment.error.is_some())
    }
}
