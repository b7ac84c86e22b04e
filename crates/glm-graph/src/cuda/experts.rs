//! Routed experts of one token, or of one of each of several sequences: the router, gates and ups of the chosen ones, their downs.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::abi::{self, SWIGLU, Task};
use super::product::{Product, THREADS};
use super::token::{Pass, Rows, StepBuffers};
use super::weights::{InSlot, MoePlaces};

/// Where a row's chosen experts find and leave values: the input, gates and ups [rank][2][ff], outputs [rank][hidden]. Rows follow
/// each other without gaps.
pub(super) struct Chosen {
    pub(super) x: u64,
    pub(super) wide: u64,
    pub(super) y: u64,
}

impl Pass<'_> {
    /// Which experts each row takes, how much of each, and where they are. What the site before left to do of its gates, unless
    /// they are at 0, is done beside it.
    pub(super) fn router(&self, w: &MoePlaces, rows: &StepBuffers, gates: u64) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        let args = abi::Router {
            w: self.at(w.router),
            x: rows.x,
            logits: rows.router,
            bias: self.at(w.bias),
            table: self.at(w.table),
            ids: rows.ids,
            weights: rows.weights,
            slots: self.at(s.slots),
            uses: self.at(w.uses),
            ended: self.at(s.ended),
            gates,
            experts: c.experts as u32,
            width: c.hidden as u32,
            k: c.experts_used as u32,
            scale: c.expert_scale,
            sinkhorn: c.sinkhorn as u32,
            hc_eps: c.hc_eps,
            rows: rows.n,
            reserved: 0,
        };
        let args = || Args::new().value(&args);
        let blocks = self.room.processors.min(c.experts as u32);
        let rows_of_block = c.experts.div_ceil(blocks as usize);
        let parts = rows_of_block * c.hidden.div_ceil(256).next_power_of_two() * 4;
        // Keys of warps of 32 experts, and a score a rank.
        let choice = (c.experts.div_ceil(32) * 256 + c.experts_used * 4) as u32;
        let beside = u32::from(gates != 0);
        let of_all = parts as u32 * rows.n;
        if rows.n == 1 || of_all > self.room.smem {
            let grid = Grid::of([blocks + beside, 1, rows.n], [THREADS, 1, 1]);
            let grid = grid.with_smem(choice.max(parts as u32)).early();
            return self.put("router", &self.kernels.router, grid, args());
        }
        // A weight is read once for all rows. The block that ends last would have all of them to choose for.
        let grid = Grid::new(blocks, THREADS).with_smem(of_all).early();
        self.put("router", &self.kernels.router_logits, grid, args())?;
        let grid = Grid::of([1 + beside, 1, rows.n], [THREADS, 1, 1]).with_smem(choice).early();
        self.put("route", &self.kernels.router_choose, grid, args())
    }

    /// The chosen experts and the shared one: all gates and ups, then all downs.
    pub(super) fn experts(&self, layer: usize, w: &MoePlaces) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        let (x, shared) = (self.at(s.x), &w.shared);
        let at = 2 * c.expert_ff * c.experts_used;
        let (mut wide, mut down) =
            self.chosen(layer, w, &Chosen { x, wide: self.at(s.wide), y: self.at(s.experts) });
        wide.push(self.product(&shared.gate, x, self.behind(s.wide, at)));
        wide.push(self.product(&shared.up, x, self.behind(s.wide, at + shared.gate.rows)));
        down.push(self.down(shared, at, c.clamp_shared[layer]));
        self.products("expert gate, up", &wide)?;
        self.products("expert down", &down)
    }

    /// Gates and ups of the experts that each of `n` rows has chosen.
    ///
    /// A row's expert is multiplied by itself: eight rows share an expert in one case of ten, its bytes then come from the second
    /// cache, and looking up one vector's weights takes 14 instructions for eight where the tensor cores' order takes 19.
    pub(super) fn gates_and_ups_of_rows(
        &self,
        layer: usize,
        w: &MoePlaces,
        at: &Chosen,
        rows: &StepBuffers,
    ) -> Result<(), DriverError> {
        let c = self.config;
        let steps = [c.experts_used, c.hidden, 2 * c.expert_ff * c.experts_used].map(|step| step as u32);
        let rows = Rows { n: rows.n, steps, faults: rows.faults };
        self.products_of_rows("expert gate, up", &self.chosen(layer, w, at).0, &rows)
    }

    /// Their downs.
    pub(super) fn downs_of_rows(
        &self,
        layer: usize,
        w: &MoePlaces,
        at: &Chosen,
        rows: &StepBuffers,
    ) -> Result<(), DriverError> {
        let c = self.config;
        let k = c.experts_used;
        let steps = [k, 2 * c.expert_ff * k, c.hidden * k].map(|step| step as u32);
        let rows = Rows { n: rows.n, steps, faults: rows.faults };
        self.products_of_rows("expert down", &self.chosen(layer, w, at).1, &rows)
    }

    /// A row's chosen experts: gates and ups, then downs, in rank order.
    fn chosen(&self, layer: usize, w: &MoePlaces, at: &Chosen) -> (Vec<Product>, Vec<Product>) {
        let (c, slots) = (self.config, self.at(self.scratch.slots));
        let pair = 2 * c.expert_ff;
        let behind = |from: u64, values: usize| from + 4 * values as u64;
        let product = |part: &InSlot, rank: usize, x: u64, y: u64| {
            let row_bytes = part.quant.row_bytes(part.cols).expect("a claimed tensor's row is whole blocks");
            let task = Task {
                slot: slots + 8 * rank as u64,
                x,
                y,
                rows: part.rows as u32,
                k: part.cols as u32,
                row_bytes: row_bytes as u32,
                offset: part.offset as u32,
                ..bytemuck::Zeroable::zeroed()
            };
            Product { quant: part.quant, task }
        };
        let (mut wide, mut down) = (Vec::new(), Vec::new());
        for rank in 0..c.experts_used {
            let (gate, up) = (behind(at.wide, rank * pair), behind(at.wide, rank * pair + c.expert_ff));
            if w.joined() {
                wide.push(product(&InSlot { rows: pair, ..w.gate }, rank, at.x, gate));
            } else {
                wide.extend([product(&w.gate, rank, at.x, gate), product(&w.up, rank, at.x, up)]);
            }
            let mut of_both = product(&w.down, rank, gate, behind(at.y, rank * c.hidden));
            (of_both.task.x2, of_both.task.kind, of_both.task.limit) = (up, SWIGLU, c.clamp_exp[layer]);
            down.push(of_both);
        }
        (wide, down)
    }
}
