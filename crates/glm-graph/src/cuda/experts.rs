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
    /// they are at 0, is done beside it. `apart`: the input was complete before the kernel before this let its successor begin. Returns
    /// whether all that came before has ended when the next kernel begins.
    pub(super) fn router(
        &self,
        w: &MoePlaces,
        rows: &StepBuffers,
        gates: u64,
        apart: bool,
    ) -> Result<bool, DriverError> {
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
            apart: u32::from(apart),
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
            self.put("router", &self.kernels.router, grid, args())?;
            return Ok(false);
        }
        // A weight is read once for all rows. The block that ends last would have all of them to choose for.
        let grid = Grid::new(blocks, THREADS).with_smem(of_all).early();
        self.put("router", &self.kernels.router_logits, grid, args())?;
        let grid = Grid::of([1 + beside, 1, rows.n], [THREADS, 1, 1]).with_smem(choice).early();
        self.put("route", &self.kernels.router_choose, grid, args())?;
        Ok(true)
    }

    /// The chosen experts and the shared one: all gates and ups, then all downs.
    pub(super) fn experts(&self, layer: usize, w: &MoePlaces) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        let (x, shared) = (self.at(s.x), &w.shared);
        let behind = 2 * c.expert_ff * c.experts_used;
        let at = Chosen { x, wide: self.at(s.wide), y: self.at(s.experts) };
        let mut wide = self.gates_and_ups(w, &at);
        wide.push(self.product(&shared.gate, x, self.behind(s.wide, behind)));
        wide.push(self.product(&shared.up, x, self.behind(s.wide, behind + shared.gate.rows)));
        self.products("expert gate, up", &wide)?;
        let mut down = self.downs(layer, w, &at);
        down.push(self.down(shared, behind, c.clamp_shared[layer]));
        self.products("expert down", &down)
    }

    /// Gates and ups of the experts that each of `n` rows has chosen.
    ///
    /// A row's expert is multiplied by itself: eight rows share an expert in one case of ten, its bytes then come from the second
    /// cache, and looking up one vector's weights takes 14 instructions for eight where the tensor cores' order takes 19.
    pub(super) fn gates_and_ups_of_rows(
        &self,
        w: &MoePlaces,
        at: &Chosen,
        rows: &StepBuffers,
    ) -> Result<(), DriverError> {
        let (c, k) = (self.config, self.config.experts_used);
        let rows = rows_apart(rows, [k, c.hidden, 2 * c.expert_ff * k]);
        self.products_of_rows("expert gate, up", &self.gates_and_ups(w, at), &rows)
    }

    /// Their downs.
    pub(super) fn downs_of_rows(
        &self,
        layer: usize,
        w: &MoePlaces,
        at: &Chosen,
        rows: &StepBuffers,
    ) -> Result<(), DriverError> {
        let (c, k) = (self.config, self.config.experts_used);
        let rows = rows_apart(rows, [k, 2 * c.expert_ff * k, c.hidden * k]);
        self.products_of_rows("expert down", &self.downs(layer, w, at), &rows)
    }

    /// Gates and ups of a row's chosen experts, in rank order.
    fn gates_and_ups(&self, w: &MoePlaces, at: &Chosen) -> Vec<Product> {
        let mut list = Vec::new();
        for rank in 0..self.config.experts_used {
            let [gate, up] = self.gate_and_up_of(rank, at);
            if w.joined() {
                let both = InSlot { rows: 2 * self.config.expert_ff, ..w.gate };
                list.push(self.chosen(&both, rank, at.x, gate));
            } else {
                list.extend([self.chosen(&w.gate, rank, at.x, gate), self.chosen(&w.up, rank, at.x, up)]);
            }
        }
        list
    }

    /// Their downs.
    fn downs(&self, layer: usize, w: &MoePlaces, at: &Chosen) -> Vec<Product> {
        let c = self.config;
        let down = |rank: usize| {
            let [gate, up] = self.gate_and_up_of(rank, at);
            let mut down = self.chosen(&w.down, rank, gate, at.y + 4 * (rank * c.hidden) as u64);
            (down.task.x2, down.task.kind, down.task.limit) = (up, SWIGLU, c.clamp_exp[layer]);
            down
        };
        (0..c.experts_used).map(down).collect()
    }

    /// Where the results of a rank's gate and up are.
    fn gate_and_up_of(&self, rank: usize, at: &Chosen) -> [u64; 2] {
        let ff = self.config.expert_ff;
        [2 * rank * ff, 2 * rank * ff + ff].map(|values| at.wide + 4 * values as u64)
    }

    /// The product of a matrix of the expert of this rank.
    fn chosen(&self, part: &InSlot, rank: usize, x: u64, y: u64) -> Product {
        let row_bytes = part.quant.row_bytes(part.cols).expect("a claimed tensor's row is whole blocks");
        let task = Task {
            slot: self.at(self.scratch.slots) + 8 * rank as u64,
            x,
            y,
            rows: part.rows as u32,
            k: part.cols as u32,
            row_bytes: row_bytes as u32,
            offset: part.offset as u32,
            ..bytemuck::Zeroable::zeroed()
        };
        Product { quant: part.quant, task }
    }
}

/// A pass's rows, whose slots, activations and results lie so far apart.
fn rows_apart(rows: &StepBuffers, steps: [usize; 3]) -> Rows {
    Rows { n: rows.n, steps: steps.map(|step| step as u32), faults: rows.faults }
}
