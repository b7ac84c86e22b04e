//! Routed experts of a span: routes of all rows, then each expert once for all rows that take it.

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};
use quant_kernels::Quant;
use quant_kernels::cuda::{Args, DriverError, Grid};

use super::super::experts::Chosen;
use super::super::weights::{InSlot, MoePlaces, Placed};
use super::product::{ByExpert, Done, Group, RowsProduct, Vectors};
use super::{Span, Whose};

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

impl Span<'_> {
    /// Which experts each row takes, and which rows each expert has. `gates` as of a token's router.
    pub(super) fn routes(&self, w: &MoePlaces, gates: u64) -> Result<(), DriverError> {
        let (c, p, kernels) = (self.pass.config, self.places, &self.pass.kernels.rows);
        if self.whose == Whose::Each {
            return self.pass.router(w, &self.buffers(), gates);
        }
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
        if self.whose == Whose::Each {
            return self.experts_of_turns(layer, w, x);
        }
        let (ff, pairs) = (c.expert_ff, self.rows * c.experts_used);
        let wide = self.pass.at(p.wide);
        let in_slot = |part: &InSlot, rows: usize, y: u64, stride: usize| RowsProduct {
            quant: part.quant,
            w: part.offset as u64,
            rows,
            cols: part.cols,
            y,
            stride,
            part: None,
        };
        let up = wide + 4 * ff as u64;
        let products = if w.joined() {
            vec![in_slot(&w.gate, 2 * ff, wide, 2 * ff)]
        } else {
            vec![in_slot(&w.gate, ff, wide, 2 * ff), in_slot(&w.up, ff, up, 2 * ff)]
        };
        let tiled = Cell::new(None);
        let rows = ByExpert { table: self.pass.at(w.table), share: c.experts_used, pairs, tiled: &tiled };
        self.groups(
            x,
            &[
                Group { what: "expert gate, up", list: &products, experts: Some(&rows) },
                Group {
                    what: "shared gate, up",
                    list: &self.gate_and_up(&w.shared, p.shared),
                    experts: None,
                },
            ],
        )?;
        let h = Vectors {
            rows: pairs,
            share: c.experts_used,
            gate: Some((up, c.clamp_exp[layer])),
            ..self.vectors(wide, 2 * ff, ff)
        };
        let down = in_slot(&w.down, c.hidden, self.pass.at(p.experts), c.hidden);
        let rows = ByExpert { share: 1, ..rows };
        self.groups(&h, &[Group { what: "expert down", list: &[down], experts: Some(&rows) }])?;
        self.down("shared down", &w.shared, p.shared, c.clamp_shared[layer])
    }

    /// The same for a row of each of several sequences.
    fn experts_of_turns(&self, layer: usize, w: &MoePlaces, x: &Vectors) -> Result<(), DriverError> {
        let (pass, p, rows) = (&self.pass, self.places, self.buffers());
        let at = Chosen { x: rows.x, wide: pass.at(p.wide), y: pass.at(p.experts) };
        // The shared expert's products begin where the routed ones' blocks end, each before the others have.
        pass.gates_and_ups_of_rows(w, &at, &rows)?;
        let x = Vectors { done: x.done.map(|done| Done { earlier: true, ..done }), ..*x };
        self.products("shared gate, up", &x, &self.gate_and_up(&w.shared, p.shared))?;
        let (h, down) = self.down_of(&w.shared, p.shared, pass.config.clamp_shared[layer]);
        let h = self.rounded(h, &[down])?;
        pass.downs_of_rows(layer, w, &at, &rows)?;
        self.products("shared down", &h, &[down])
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
