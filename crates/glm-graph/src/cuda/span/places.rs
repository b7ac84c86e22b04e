//! Buffers of a span.

use super::vectors::rounded;
use crate::config::{Config, MixerKind};
use crate::cuda::memory::{DevicePlan, Part, Place};
use crate::cuda::scratch::{capacity, dsa_width, kda_width, row_stride};

/// Rows that a span has at most, where memory allows it. Reading all weights of the published model takes as long as
/// multiplying about 150 rows; with 2048 it is a twelfth of the time.
pub(in crate::cuda) const MOST_ROWS: usize = 2048;
/// And the fewest that are worth a try.
pub(in crate::cuda) const FEWEST_ROWS: usize = 64;
/// Rows whose logits are made at once.
const LOGIT_ROWS: usize = 64;
/// Bytes for scores of attention and of pools.
const SCORE_BYTES: usize = 96 << 20;
/// Rows that are attended to at once, in whole steps: a step's blocks of the weighted sum (four a row) are one for each of an H200's
/// processors, which run three of them at a time; four steps have a row for each.
const CHUNK_STEP: usize = 33;
const MOST_STEPS: usize = 4;

/// Buffers that spans of up to `rows` rows write and read. What a mixer and what a FFN needs lie over one another.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct SpanPlaces {
    /// Rows of a span at most.
    pub(in crate::cuda) rows: usize,
    /// Rows that are attended to at once.
    pub(super) chunk: usize,
    /// Rows whose logits are made at once.
    pub(in crate::cuda) logit_rows: usize,
    pub(super) streams: Place,
    pub(super) gates: Place,
    pub(super) x: Place,
    /// The embeddings; a part's output.
    pub(in crate::cuda) y: Place,
    /// A word a row, not zero once something of it was not finite.
    pub(in crate::cuda) faults: Place,
    /// Vectors as bytes, and their scales.
    pub(super) bytes: Place,
    pub(super) scales: Place,
    pub(super) first: Place,
    pub(super) second: Place,
    pub(super) ready: Place,
    pub(super) joined: Place,
    pub(super) low: Place,
    pub(super) absorbed: Place,
    pub(super) mixed: Place,
    pub(super) index_rows: Place,
    pub(super) pool_scores: Place,
    pub(super) pools: Place,
    pub(super) attention: Place,
    /// Gates and ups, of the dense FFN or of all pairs of a row and a rank.
    pub(super) wide: Place,
    pub(super) shared: Place,
    pub(super) experts: Place,
    pub(super) router: Place,
    pub(super) ids: Place,
    pub(super) weights: Place,
    pub(super) order: Place,
    pub(super) begin: Place,
    pub(super) tiles: Place,
    pub(super) n_tiles: Place,
    pub(in crate::cuda) logits: Place,
}

impl SpanPlaces {
    pub(in crate::cuda) fn plan(
        c: &Config,
        vocab: usize,
        ctx: usize,
        rows: usize,
        plan: &mut DevicePlan,
    ) -> Self {
        let inner = c.kda_inner();
        let gates = c.streams + c.streams * c.streams;
        let [has_kda, has_dsa] =
            [MixerKind::Kda, MixerKind::Dsa].map(|kind| c.mixers[..c.trunk].contains(&kind));
        let row_bytes = 4 * (c.heads * row_stride(c, ctx) + capacity(c, ctx) + c.top_pools());
        let fit = (SCORE_BYTES / row_bytes).max(1);
        let steps = (fit / CHUNK_STEP).min(MOST_STEPS);
        let chunk = if steps > 0 { steps * CHUNK_STEP } else { fit }.min(rows);
        let logit_rows = LOGIT_ROWS.min(rows);

        // Each of these begins where the other does.
        let mut mixer = DevicePlan::default();
        let mut of_row = |len: usize| mixer.words(Part::Scratch, rows * len);
        let kda = |len: usize| if has_kda { len } else { 0 };
        let dsa = |len: usize| if has_dsa { len } else { 0 };
        let first = of_row(kda(kda_width(c)).max(dsa(dsa_width(c))));
        let queries = c.heads * c.key_dim + c.index_heads * c.index_dim;
        let second = of_row(kda(2 * inner).max(dsa(queries)));
        let joined = of_row(kda(inner).max(dsa(c.heads * c.value_dim)));
        let ready = of_row(kda(3 * inner));
        let low = of_row(dsa(c.q_rank));
        let absorbed = of_row(dsa(c.heads * c.latent));
        let mixed = of_row(dsa(c.heads * c.latent));
        let index_rows = of_row(dsa(2 * c.index_dim));
        let mut of_chunk = |len: usize| mixer.words(Part::Scratch, chunk * dsa(len));
        let pool_scores = of_chunk(capacity(c, ctx));
        let pools = of_chunk(c.top_pools());
        let attention = of_chunk(c.heads * row_stride(c, ctx));

        let mut ffn = DevicePlan::default();
        let mut of_row = |len: usize| ffn.words(Part::Scratch, rows * len);
        let pairs = c.experts_used;
        let wide = of_row((2 * c.dense_ff).max(2 * pairs * c.expert_ff));
        let shared = of_row(2 * c.shared_ff);
        let router = of_row(c.experts);
        let ids = of_row(pairs);
        let order = of_row(pairs);
        // `combine` adds the experts' outputs into `y`, or the next site takes them before a mixer's buffers are written.
        let weights = of_row(pairs);
        let experts = of_row(pairs * c.hidden);
        let mut words = |len: usize| ffn.words(Part::Scratch, len);
        let begin = words(c.experts + 1);
        // Blocks of at least eight columns.
        let tiles = words(3 * (rows * pairs / 8 + c.experts));
        let n_tiles = words(1);

        let area = plan.place(Part::Scratch, mixer.total().max(ffn.total()));
        let within = |place: Place| Place(area.0 + place.0);
        let mut of_row = |len: usize| plan.words(Part::Scratch, rows * len);
        // Vectors of all products, by how many a row has and how long they are.
        let vectors = [
            (1, c.hidden),
            (2, c.kda_dim),
            (1, inner),
            (1, c.q_rank),
            (c.heads, c.key_dim),
            (c.heads, c.latent),
            (1, c.heads * c.value_dim),
            (1, c.dense_ff),
            (1, c.shared_ff),
            (c.experts_used, c.expert_ff),
        ];
        let longest = |of: fn((usize, usize)) -> usize| {
            vectors.iter().map(|(n, k)| n * of(rounded(*k))).max().unwrap_or(0)
        };
        Self {
            rows,
            chunk,
            logit_rows,
            streams: of_row(c.residual()),
            gates: of_row(gates),
            x: of_row(c.hidden),
            y: of_row(c.hidden),
            faults: of_row(1),
            bytes: of_row(longest(|(bytes, _)| bytes) / 4),
            scales: of_row(longest(|(_, scales)| scales)),
            experts: within(experts),
            weights: within(weights),
            first: within(first),
            second: within(second),
            ready: within(ready),
            joined: within(joined),
            low: within(low),
            absorbed: within(absorbed),
            mixed: within(mixed),
            index_rows: within(index_rows),
            pool_scores: within(pool_scores),
            pools: within(pools),
            attention: within(attention),
            wide: within(wide),
            shared: within(shared),
            router: within(router),
            ids: within(ids),
            order: within(order),
            begin: within(begin),
            tiles: within(tiles),
            n_tiles: within(n_tiles),
            logits: plan.words(Part::Scratch, logit_rows * vocab),
        }
    }
}
