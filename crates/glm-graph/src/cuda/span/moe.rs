//! Routed experts of a span: routes of all rows, then each expert once for all rows that take it.

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};
use quant_kernels::Quant;
use quant_kernels::cuda::{Args, DriverError, Grid};

use super::super::experts::Chosen;
use super::super::weights::{InSlot, MoePlaces, Placed};
use super::Span;
use super::product::{ByExpert, Group, RowsProduct};
use super::vectors::Vectors;

/// Threads of a block that routes a row.
const ROUTE_THREADS: u32 = 128;
/// Of one that adds a row's experts.
const COMBINE_THREADS: u32 = 256;
/// And of one that lists an expert's pairs.
const ORDER_THREADS: u32 = 1024;

/// `Routes` of kernels/rows/experts.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Routes {
    logits: u64,
    bias: u64,
    ids: u64,
    weights: u64,
    uses: u64,
    experts: u32,
    k: u32,
    scale: f32,
    reserved: u32,
}

const _: () = assert!(size_of::<Routes>() == 56);

/// A matrix of the experts, `rows` rows of it, with results at `y`.
fn in_slot(part: &InSlot, rows: usize, y: u64, stride: usize) -> RowsProduct {
    RowsProduct { quant: part.quant, w: part.offset as u64, rows, cols: part.cols, y, stride, part: None }
}

impl Span<'_> {
    /// Which experts each row takes, and which rows each expert has.
    pub(super) fn routes(&self, w: &MoePlaces) -> Result<(), DriverError> {
        let (c, p, kernels) = (self.pass.config, self.places, &self.pass.kernels.rows);
        let router = Placed { at: w.router, quant: Quant::F32, rows: c.experts, cols: c.hidden };
        let x = self.normed();
        self.products("router", &x, &[self.product(&router, self.pass.at(p.router), c.experts)])?;
        let args = Routes {
            logits: self.pass.at(p.router),
            bias: self.pass.at(w.bias),
            ids: self.pass.at(p.ids),
            weights: self.pass.at(p.weights),
            uses: self.pass.at(w.uses),
            experts: c.experts as u32,
            k: c.experts_used as u32,
            scale: c.expert_scale,
            reserved: 0,
        };
        let smem = (c.experts.div_ceil(2) * 16 + c.experts_used * 4) as u32;
        let grid = Grid::new(self.rows as u32, ROUTE_THREADS).with_smem(smem);
        self.pass.put("route", &kernels.route, grid, Args::new().value(&args))?;
        self.order()
    }

    /// Lists each expert's pairs of a row and a rank.
    fn order(&self) -> Result<(), DriverError> {
        let (c, p, kernels) = (self.pass.config, self.places, &self.pass.kernels.rows);
        let args = Args::new()
            .pointer(self.pass.at(p.ids))
            .u32((self.rows * c.experts_used) as u32)
            .pointer(self.pass.at(p.order))
            .pointer(self.pass.at(p.begin))
            .u32(c.experts as u32);
        let grid = Grid::new(c.experts as u32, ORDER_THREADS).with_smem(256);
        self.pass.put("order", &kernels.order, grid, args)
    }

    /// Gates and ups of all pairs of a row and a rank and of the shared expert, then their downs, each to its own row.
    pub(super) fn experts(&self, layer: usize, w: &MoePlaces, x: &Vectors) -> Result<(), DriverError> {
        let (c, p) = (self.pass.config, self.places);
        let pairs = self.rows * c.experts_used;
        let (tiled, list) = (Cell::new(None), self.gates_and_ups(w));
        let by = ByExpert { table: self.pass.at(w.table), share: c.experts_used, pairs, tiled: &tiled };
        let shared = self.gate_and_up(&w.shared, p.shared);
        self.groups(
            x,
            &[
                Group { what: "expert gate, up", list: &list, experts: Some(&by), half: false },
                Group { what: "shared gate, up", list: &shared, experts: None, half: false },
            ],
        )?;
        let (h, down) = self.downs(layer, w, pairs);
        let by = ByExpert { share: 1, ..by };
        self.groups(&h, &[Group { what: "expert down", list: &[down], experts: Some(&by), half: false }])?;
        self.down("shared down", &w.shared, p.shared, c.clamp_shared[layer])
    }

    /// Routes and experts of a row of each of several sequences. `gates` as of a token's router.
    ///
    /// The shared expert needs no routes. So its gate and up run beside the router's logits, which hardly use the memory, its rounding
    /// beside the choice, and its down where the routed experts' gates and ups come to an end.
    pub(super) fn experts_of_turns(
        &self,
        layer: usize,
        w: &MoePlaces,
        x: &Vectors,
        gates: u64,
    ) -> Result<(), DriverError> {
        let (pass, c, p, rows) = (&self.pass, self.pass.config, self.places, self.buffers());
        let list = self.gate_and_up(&w.shared, p.shared);
        self.groups(x, &[Group { what: "shared gate, up", list: &list, experts: None, half: true }])?;
        let is_late = pass.router(w, &rows, gates, true)?;
        let (h, down) = self.down_of(&w.shared, p.shared, c.clamp_shared[layer]);
        let h = self.rounded(h, &[down], is_late)?;
        let at = Chosen { x: rows.x, wide: pass.at(p.wide), y: pass.at(p.experts) };
        pass.gates_and_ups_of_rows(w, &at, &rows)?;
        self.products("shared down", &h, &[down])?;
        pass.downs_of_rows(layer, w, &at, &rows)
    }

    /// Gates and ups of the experts, for each pair of a row and a rank.
    fn gates_and_ups(&self, w: &MoePlaces) -> Vec<RowsProduct> {
        let (ff, wide) = (self.pass.config.expert_ff, self.pass.at(self.places.wide));
        if w.joined() {
            return vec![in_slot(&w.gate, 2 * ff, wide, 2 * ff)];
        }
        vec![in_slot(&w.gate, ff, wide, 2 * ff), in_slot(&w.up, ff, wide + 4 * ff as u64, 2 * ff)]
    }

    /// What their downs meet, and these.
    fn downs(&self, layer: usize, w: &MoePlaces, pairs: usize) -> (Vectors, RowsProduct) {
        let (c, p) = (self.pass.config, self.places);
        let (ff, wide) = (c.expert_ff, self.pass.at(p.wide));
        let h = Vectors {
            rows: pairs,
            share: c.experts_used,
            gate: Some((wide + 4 * ff as u64, c.clamp_exp[layer])),
            ..self.vectors(wide, 2 * ff, ff)
        };
        (h, in_slot(&w.down, c.hidden, self.pass.at(p.experts), c.hidden))
    }

    /// The shared expert's output in `y` takes the weighted others. The streams could as well take them where they read `y`, but each
    /// block of them has so much else to hold that 0.3 GB came at a tenth of the memory's rate. Where sites are a token's own, they do.
    pub(super) fn combine(&self) -> Result<(), DriverError> {
        let (c, p) = (self.pass.config, self.places);
        let args = Args::new()
            .pointer(self.pass.at(p.y))
            .pointer(self.pass.at(p.experts))
            .pointer(self.pass.at(p.weights))
            .u32(c.hidden as u32)
            .u32(c.experts_used as u32);
        let across = c.hidden.div_ceil(4).div_ceil(COMBINE_THREADS as usize) as u32;
        let grid = Grid::of([across, self.rows as u32, 1], [COMBINE_THREADS, 1, 1]);
        self.pass.put("combine", &self.pass.kernels.rows.combine, grid, args)
    }
}
