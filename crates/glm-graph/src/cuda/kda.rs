//! Delta attention of one token, or of one of each of several sequences.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::abi;
use super::product::THREADS;
use super::scratch::kda_width;
use super::token::{FIRST_LAYER, Pass, StepBuffers};
use super::weights::KdaPlaces;

/// Of `kda_step128`: four vectors, and the rows of the state that registers do not hold.
const KDA_SMEM: u32 = 4 * 128 * 4 + 48 * 128 * 4;

impl Pass<'_> {
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
        self.kda_step(layer, w, &self.buffers(), gates)?;
        self.products("kda out", &[self.product(&w.out, self.at(s.joined), self.at(s.y))])
    }

    /// From a layer's products to its heads' gated answers; the states move on by a token. What the site before left to do of its
    /// gates, unless they are at 0, is done beside it.
    pub(super) fn kda_step(
        &self,
        layer: usize,
        w: &KdaPlaces,
        rows: &StepBuffers,
        gates: u64,
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
        };
        let (blocks, args) = (c.heads as u32 + u32::from(gates != 0), Args::new().value(&args));
        if d == 128 && c.conv_taps == 4 {
            let grid = Grid::of([blocks, 1, rows.n], [128, 1, 1]).with_smem(KDA_SMEM).early();
            self.put("kda step", &self.kernels.kda128, grid, args)
        } else {
            let smem = ((5 * d * 4 + 64).next_multiple_of(16) + d * d * 4) as u32;
            let grid = Grid::of([blocks, 1, rows.n], [THREADS, 1, 1]).with_smem(smem).early();
            self.put("kda step", &self.kernels.kda, grid, args)
        }
    }
}
