//! Where everything lies in a device's memory, and sizes that its kernels do not take.

use std::collections::HashMap;

use quant_kernels::Quant;
use quant_kernels::cuda::matvec_tables;

use super::CudaOptions;
use super::abi::MOST_TURNS;
use super::memory::{DevicePlan, Part, Place};
use super::scratch::{Scratch, SlotPlaces, row_stride};
use super::span::{FEWEST_ROWS, MOST_ROWS, SpanPlaces};
use super::weights::{FfnPlaces, MixerPlaces, Placed, Weights};
use crate::config::Config;
use crate::error::ExecError;
use crate::model::Model;

/// Where everything will lie.
pub(super) struct Layout {
    pub(super) plan: DevicePlan,
    pub(super) weights: Weights,
    pub(super) scratch: Scratch,
    pub(super) span: SpanPlaces,
    /// All laid out alike.
    pub(super) slots: Vec<SlotPlaces>,
    /// Sequences that one pass has steps of, at most.
    pub(super) turns: usize,
    pub(super) tables: HashMap<Quant, Place>,
}

/// Bytes that long spans leave to the driver: code, and the threads' own memory, which is some hundred megabytes.
const RESERVE: u64 = 1 << 30;

impl Layout {
    /// With the longest spans that fit into `room` bytes; with the shortest if none do.
    pub(super) fn within(model: &Model, options: &CudaOptions, room: u64) -> Self {
        let wanted = options.span.unwrap_or(MOST_ROWS).min(MOST_ROWS);
        let mut rows = wanted.min(options.ctx).max(1);
        loop {
            let layout = Self::of(model, options, rows);
            if layout.plan.total() + RESERVE <= room || rows <= FEWEST_ROWS {
                return layout;
            }
            rows = (rows / 2).max(FEWEST_ROWS);
        }
    }

    fn of(model: &Model, options: &CudaOptions, rows: usize) -> Self {
        let (config, mut plan) = (model.config(), DevicePlan::default());
        let weights = Weights::plan(model, &mut plan);
        let formats = formats(&weights);
        let tables = formats.iter().filter_map(|quant| {
            let words = matvec_tables(*quant);
            (!words.is_empty()).then(|| (*quant, plan.words(Part::Vectors, words.len())))
        });
        let tables = tables.collect();
        // Without its row of embeddings on the device a step needs the host.
        let together = if weights.embed.is_some() { MOST_TURNS.min(rows) } else { 1 };
        let turns = options.sequences.clamp(1, together);
        let scratch = Scratch::plan(config, model.vocab(), options.kv, options.ctx, turns, &mut plan);
        let span = SpanPlaces::plan(config, model.vocab(), options.ctx, rows, &mut plan);
        let slots = (0..options.sequences)
            .map(|_| SlotPlaces::plan(config, &weights, options.kv, options.ctx, &mut plan))
            .collect();
        Self { plan, weights, scratch, span, slots, turns, tables }
    }
}

/// Format and row length of all matrices.
fn matrices(weights: &Weights) -> Vec<(Quant, usize)> {
    let of = |w: &Placed| (w.quant, w.cols);
    let mut all = vec![of(&weights.output)];
    for block in &weights.blocks {
        match &block.mixer {
            MixerPlaces::Kda(w) => {
                all.extend(w.first.iter().chain([&w.forget, &w.gate, &w.out]).map(of));
            }
            MixerPlaces::Dsa(w) => {
                let others = [&w.q_b, &w.index_q_b, &w.k_b, &w.v_b, &w.out];
                all.extend(w.first.iter().chain(others).map(of));
            }
        }
        match &block.ffn {
            FfnPlaces::Dense(w) => all.extend([&w.gate, &w.up, &w.down].map(of)),
            FfnPlaces::Moe(w) => {
                let s = &w.shared;
                all.extend([&w.gate, &w.up, &w.down].map(|w| (w.quant, w.cols)));
                all.extend([&s.gate, &s.up, &s.down].map(of));
            }
        }
    }
    all
}

/// The formats of all matrices.
pub(super) fn formats(weights: &Weights) -> Vec<Quant> {
    let mut once = Vec::new();
    for (quant, _) in matrices(weights) {
        if !once.contains(&quant) {
            once.push(quant);
        }
    }
    once
}

/// Weights of a row, and positions that a row attends to, whose sums the kernels' trees have room for.
const LONGEST: usize = 1 << 18;

/// # Errors
/// A size that the kernels were not made for.
pub(super) fn check_sizes(config: &Config, weights: &Weights, ctx: usize) -> Result<(), ExecError> {
    let longest = matrices(weights).into_iter().map(|(_, cols)| cols).max().unwrap_or(0);
    for (what, found) in
        [("weights in a row", longest), ("positions that a token attends to", row_stride(config, ctx))]
    {
        if found > LONGEST {
            return Err(ExecError::TooLong { what, found, most: LONGEST });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quant_kernels::cuda::StoreOptions;

    use super::*;
    use crate::state::Kv;

    fn demo() -> Model {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../maya-cli/demo/maya-nano.gguf");
        Model::load(gguf::Model::open(&path).expect("the demo model opens")).expect("the demo model loads")
    }

    fn options(sequences: usize, ctx: usize, span: Option<usize>) -> CudaOptions {
        let store = StoreOptions::default();
        CudaOptions { device: 0, kv: Kv::F16, ctx, sequences, vram: None, span, store }
    }

    /// A `Turn` says how far a slot is from the first: that must be the same for everything in it.
    #[test]
    fn slots_are_laid_out_alike() {
        let layout = Layout::within(&demo(), &options(5, 1000, None), u64::MAX);
        let places = |slot: &SlotPlaces| -> Vec<u64> {
            let caches = slot.caches.iter().flat_map(|c| [c.latents, c.pooled, c.open_keys, c.open_gates]);
            let others = [slot.states, slot.sampled, slot.history, slot.counts, slot.bias];
            caches.chain(others).map(|place| place.0).collect()
        };
        let first = places(&layout.slots[0]);
        for slot in &layout.slots {
            let away = slot.states.0 - layout.slots[0].states.0;
            assert!(places(slot).iter().zip(&first).all(|(own, first)| own - first == away));
        }
        assert_eq!(layout.turns, 5);
    }

    #[test]
    fn passes_have_no_more_turns_than_a_span_has_rows() {
        let turns =
            |sequences, span| Layout::within(&demo(), &options(sequences, 1000, span), u64::MAX).turns;
        assert_eq!((turns(1, None), turns(8, None), turns(50, None), turns(8, Some(3))), (1, 8, 8, 3));
    }

    #[test]
    fn sizes_beyond_the_trees_are_refused() {
        let model = demo();
        let weights = Weights::plan(&model, &mut DevicePlan::default());
        assert!(check_sizes(model.config(), &weights, 1 << 20).is_ok());
        let mut config = model.config().clone();
        config.index_topk = LONGEST + config.kpool;
        let error = check_sizes(&config, &weights, 1 << 20).expect_err("more than the trees hold");
        assert!(error.to_string().contains("positions that a token attends to"), "{error}");
    }
}
