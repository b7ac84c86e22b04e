//! Delta attention of a span, between its products: convolutions and gates of all rows, the recurrence, gated norms. Rows of
//! different sequences take a step each.

use bytemuck::{Pod, Zeroable};
use quant_kernels::Family;
use quant_kernels::cuda::{Args, DriverError, Grid};

use super::Span;
use super::vectors::{Done, Vectors};
use crate::cuda::kda::Rounded;
use crate::cuda::scratch::kda_width;
use crate::cuda::token::FIRST_LAYER;
use crate::cuda::weights::KdaPlaces;

// Of kernels/rows/kda_rows.cu and kernels/include/kda_rows.cuh.
const FAST_DIM: usize = 128;
const FAST_TAPS: usize = 4;
/// Rows of a block before the recurrence.
const CHUNK: u32 = 16;
const PREPARE_THREADS: u32 = 128;
/// Blocks of a head in the recurrence.
const SCAN_BLOCKS: u32 = 2;
const SCAN_THREADS: u32 = 128;
const SCAN_SMEM: u32 = 16 * (3 * 128 * 4 + 64 * 4 + 16);
const GATE_THREADS: u32 = 256;
/// Heads of a block of the norms.
const GATE_HEADS: u32 = 8;
const ANY_THREADS: u32 = 128;

/// What the three kernels are told.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct KdaRows {
    raw: u64,
    forget: u64,
    gate: u64,
    beta: u64,
    taps: u64,
    bias: u64,
    decay: u64,
    norm: u64,
    states: u64,
    ready: u64,
    out: u64,
    faults: u64,
    /// Values of a copy of the state.
    copy: u64,
    matrix: u32,
    history: u32,
    heads: u32,
    d: u32,
    taps_n: u32,
    code: u32,
    first: u32,
    rows: u32,
    first_width: u32,
    second_width: u32,
    bound: f32,
    rms_eps: f32,
}

// The size that the compiler of the device code gives it.
const _: () = assert!(size_of::<KdaRows>() == 152);

impl Span<'_> {
    /// A step of each row's sequence, from the products in `first` and `second` to the heads' gated answers, `joined`. Where it can, it
    /// rounds them as the matrix after it takes them.
    pub(super) fn kda_step(
        &self,
        layer: usize,
        w: &KdaPlaces,
        joined: Vectors,
        gates: u64,
    ) -> Result<Vectors, DriverError> {
        let narrow = match w.out.quant.family() {
            Some(Family::Wide) => Some(false),
            Some(Family::Narrow) => Some(true),
            _ => None,
        };
        let [q, scale] = self.rounded_at(&joined, false);
        let rounded = narrow.filter(|_| self.pass.kda_rounds()).map(|narrow| Rounded { q, scale, narrow });
        self.pass.kda_step(layer, w, &self.buffers(), gates, rounded)?;
        Ok(Vectors { done: rounded.map(|_| Done { both: false, earlier: false }), ..joined })
    }

    /// From the products in `first` and `second` to the heads' gated answers in `joined`; the layer's state moves on by the span's
    /// rows, the first of which is at position `first`.
    pub(super) fn kda_scan(&self, layer: usize, w: &KdaPlaces, first: usize) -> Result<(), DriverError> {
        let (pass, p) = (&self.pass, self.places);
        let c = pass.config;
        let (inner, d) = (c.kda_inner(), c.kda_dim);
        let args = KdaRows {
            raw: pass.at(p.first),
            forget: pass.at(p.second),
            gate: pass.behind(p.second, inner),
            beta: pass.behind(p.first, 3 * inner + 2 * d),
            taps: pass.at(w.taps),
            bias: pass.at(w.bias),
            decay: pass.at(w.decay),
            norm: pass.at(w.norm),
            states: pass.at(pass.slot.states),
            ready: pass.at(p.ready),
            out: pass.at(p.joined),
            faults: pass.at(p.faults),
            copy: pass.weights.state_values as u64,
            matrix: w.matrix as u32,
            history: w.history as u32,
            heads: c.heads as u32,
            d: d as u32,
            taps_n: c.conv_taps as u32,
            code: layer as u32 + FIRST_LAYER,
            first: first as u32,
            rows: self.rows as u32,
            first_width: kda_width(c) as u32,
            second_width: 2 * inner as u32,
            bound: c.gate_bound,
            rms_eps: c.rms_eps,
        };
        let args = || Args::new().value(&args);
        let (kernels, heads, rows) = (&pass.kernels.rows, c.heads as u32, self.rows as u32);
        if d == FAST_DIM && c.conv_taps == FAST_TAPS {
            let grid = Grid::of([heads, rows.div_ceil(CHUNK), 1], [PREPARE_THREADS, 1, 1]);
            pass.put("kda prepare", &kernels.kda_prepare128, grid, args())?;
            let grid = Grid::new(SCAN_BLOCKS * heads, SCAN_THREADS).with_smem(SCAN_SMEM);
            pass.put("kda scan", &kernels.kda_scan128, grid, args())?;
            let grid = Grid::of([rows, heads.div_ceil(GATE_HEADS), 1], [GATE_THREADS, 1, 1]);
            return pass.put("kda norm", &kernels.kda_gate128, grid, args());
        }
        let (d, parts) = (d as u32, d.div_ceil(256).next_power_of_two() as u32);
        let each = Grid::of([rows, heads, 1], [ANY_THREADS, 1, 1]);
        pass.put("kda prepare", &kernels.kda_prepare, each.with_smem(4 * (2 * d + parts)), args())?;
        let grid = Grid::new(heads, ANY_THREADS).with_smem(4 * 3 * d);
        pass.put("kda scan", &kernels.kda_scan, grid, args())?;
        pass.put("kda norm", &kernels.kda_gate, each.with_smem(4 * (d + parts)), args())
    }
}
