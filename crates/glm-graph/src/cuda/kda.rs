//! Delta attention of one token, or of one of each of several sequences.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::abi;
use super::product::THREADS;
use super::scratch::kda_width;
use super::token::{FIRST_LAYER, Pass, StepBuffers};
use super::weights::KdaPlaces;

// Of kernels/glm/kda.cu, for the published model's heads.
const FAST_DIM: usize = 128;
const FAST_TAPS: usize = 4;
/// Of a head: four vectors, and the rows of the state that registers do not hold.
const FAST_SMEM: u32 = 4 * 128 * 4 + 48 * 128 * 4;

/// Where a step leaves its answers in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounded {
    pub(super) q: u64,
    pub(super) scale: u64,
    /// In blocks of 32 values, not of 256.
    pub(super) narrow: bool,
}

impl Pass<'_> {
    fn has_fast_heads(&self) -> bool {
        self.config.kda_dim == FAST_DIM && self.config.conv_taps == FAST_TAPS
    }

    /// Whether steps of this model can round their answers: two neighbouring heads are a block of 256.
    pub(super) fn kda_rounds(&self) -> bool {
        self.has_fast_heads() && self.config.heads.is_multiple_of(2)
    }

    pub(super) fn kda(&self, layer: usize, w: &KdaPlaces, gates: u64) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        let places = self.side_by_side("kda in", &w.first)?;
        self.products(
            "kda gates",
            &[
                self.product(&w.forget, self.behind(s.first, places[3]), self.at(s.second)),
                self.product(&w.gate, self.behind(s.first, places[4]), self.behind(s.second, c.kda_inner())),
            ],
        )?;
        self.kda_step(layer, w, &self.buffers(), gates, None)?;
        self.products("kda out", &[self.product(&w.out, self.at(s.joined), self.at(s.y))])
    }

    /// From a layer's products to its heads' gated answers; the states move on by a token. What the site before left to do of its
    /// gates, unless they are at 0, is done beside it. The answers are left in `joined`, or only where they are `rounded`, if steps of
    /// this model can.
    pub(super) fn kda_step(
        &self,
        layer: usize,
        w: &KdaPlaces,
        rows: &StepBuffers,
        gates: u64,
        rounded: Option<Rounded>,
    ) -> Result<(), DriverError> {
        let c = self.config;
        let (inner, d) = (c.kda_inner(), c.kda_dim);
        let args = abi::Kda {
            raw: rows.first,
            forget: rows.second,
            gate: rows.second + 4 * inner as u64,
            beta: rows.first + 4 * (3 * inner + 2 * d) as u64,
            taps: self.at(w.taps),
            bias: self.at(w.bias),
            decay: self.at(w.decay),
            norm: self.at(w.norm),
            states: self.at(self.slot.states),
            out: rows.joined,
            turns: self.at(self.scratch.turns),
            fault: rows.faults,
            copy: self.weights.state_values as u64,
            matrix: w.matrix as u32,
            history: w.history as u32,
            heads: c.heads as u32,
            d: d as u32,
            taps_n: c.conv_taps as u32,
            code: layer as u32 + FIRST_LAYER,
            first_width: kda_width(c) as u32,
            second_width: 2 * inner as u32,
            bound: c.gate_bound,
            rms_eps: c.rms_eps,
            gates,
            sinkhorn: c.sinkhorn as u32,
            hc_eps: c.hc_eps,
            q: rounded.map_or(0, |rounded| rounded.q),
            q_scale: rounded.map_or(0, |rounded| rounded.scale),
            narrow: u32::from(rounded.is_some_and(|rounded| rounded.narrow)),
            reserved: 0,
        };
        let (kernel, heads, threads, smem) = if rounded.is_some() {
            assert!(self.kda_rounds(), "a step that rounds has pairs of heads of 128");
            (&self.kernels.kda_pair128, 2, 2 * FAST_DIM as u32, 2 * FAST_SMEM)
        } else if self.has_fast_heads() {
            (&self.kernels.kda128, 1, FAST_DIM as u32, FAST_SMEM)
        } else {
            let smem = (5 * d * 4 + 64).next_multiple_of(16) + d * d * 4;
            (&self.kernels.kda, 1, THREADS, smem as u32)
        };
        let blocks = c.heads as u32 / heads + u32::from(gates != 0);
        let grid = Grid::of([blocks, 1, rows.n], [threads, 1, 1]).with_smem(smem).early();
        self.put("kda step", kernel, grid, Args::new().value(&args))
    }
}
