//! One token through the model: the launches of a pass, in order.

use quant_kernels::cuda::{Args, DriverError, Grid, Kernel, Stream};

use super::abi::{COMBINE, KEEP, PLAIN, SWIGLU, Task, WRITE};
use super::kernels::Kernels;
use super::launch;
use super::memory::{Memory, Place};
use super::product::{Product, Room, batches};
use super::scratch::{Scratch, SlotPlaces};
use super::site::SiteBuffers;
use super::timeline::Timeline;
use super::weights::{BlockPlaces, FfnPlaces, MixerPlaces, Placed, SitePlaces, SwiGluPlaces, Weights};
use crate::config::Config;
use crate::state::Kv;

/// What the fault word says of a layer, less its number; 1 stands for the input of a product.
pub(super) const FIRST_LAYER: u32 = 2;

/// What a pass is recorded from.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    pub(super) config: &'a Config,
    pub(super) weights: &'a Weights,
    pub(super) kernels: &'a Kernels,
    pub(super) memory: &'a Memory,
    pub(super) scratch: &'a Scratch,
    /// The first slot, or that of a span's sequence. Whose turn it is says how far another slot is from the first.
    pub(super) slot: &'a SlotPlaces,
    pub(super) stream: &'a Stream,
    pub(super) room: Room,
    pub(super) kv: Kv,
    pub(super) ctx: usize,
    /// Where times are noted, if the pass is run and not recorded.
    pub(super) timeline: Option<&'a Timeline>,
}

/// Where kernels for sequences' turns find and leave values, of `n` rows.
pub(super) struct StepBuffers {
    pub(super) n: u32,
    pub(super) faults: u64,
    pub(super) first: u64,
    pub(super) second: u64,
    pub(super) joined: u64,
    pub(super) low: u64,
    pub(super) absorbed: u64,
    pub(super) mixed: u64,
    pub(super) x: u64,
    pub(super) router: u64,
    pub(super) ids: u64,
    pub(super) weights: u64,
}

/// Rows whose vectors meet matrices of one launch.
pub(super) struct Rows {
    pub(super) n: u32,
    /// Slots, values of activations and of results from row to row.
    pub(super) steps: [u32; 3],
    /// Fault words, one a row.
    pub(super) faults: u64,
}

/// What the streams wait to take.
#[derive(Clone, Copy)]
enum Pending {
    Nothing,
    Vector,
    Experts,
}

impl Pass<'_> {
    /// Everything from the streams at the start to the logits, or to the states that the next token needs.
    pub(super) fn record(&self, with_logits: bool) -> Result<(), DriverError> {
        let mut pending = Pending::Nothing;
        let (mut turn, last) = (0, self.weights.blocks.len() - 1);
        for (layer, block) in self.weights.blocks.iter().enumerate() {
            let later = self.has_fast_sites();
            self.site(layer, Some(&block.sites[0]), turn, pending, later)?;
            turn ^= 1;
            let gates = self.unfinished_gates(later, turn);
            match &block.mixer {
                MixerPlaces::Kda(w) => self.kda(layer, w, gates)?,
                MixerPlaces::Dsa(w) => self.dsa(w, gates)?,
            }
            if layer == last && !with_logits {
                return Ok(());
            }
            let later = self.router_finishes_gates(block);
            self.site(layer, Some(&block.sites[1]), turn, Pending::Vector, later)?;
            turn ^= 1;
            pending = self.ffn(layer, block, self.unfinished_gates(later, turn))?;
        }
        self.site(last + 1, None, turn, pending, false)?;
        let logits = self.at(self.scratch.logits);
        self.products("head", &[self.product(&self.weights.output, self.at(self.scratch.x), logits)])
    }

    pub(super) fn at(&self, place: Place) -> u64 {
        self.memory.at(place)
    }

    /// So many values behind a place.
    pub(super) fn behind(&self, place: Place, values: usize) -> u64 {
        self.at(place) + 4 * values as u64
    }

    pub(super) fn product(&self, w: &Placed, x: u64, y: u64) -> Product {
        let task = Task {
            w: self.at(w.at),
            x,
            y,
            rows: w.rows as u32,
            k: w.cols as u32,
            row_bytes: w.row_bytes() as u32,
            kind: PLAIN,
            ..bytemuck::Zeroable::zeroed()
        };
        Product { quant: w.quant, task }
    }

    /// Puts a launch on the stream.
    pub(super) fn put(
        &self,
        what: &'static str,
        kernel: &Kernel,
        grid: Grid,
        args: Args,
    ) -> Result<(), DriverError> {
        self.put_bytes(what, kernel, grid, args, 0)
    }

    /// Puts a launch that reads so many bytes of weights on the stream.
    pub(super) fn put_bytes(
        &self,
        what: &'static str,
        kernel: &Kernel,
        grid: Grid,
        args: Args,
        bytes: u64,
    ) -> Result<(), DriverError> {
        launch::kernel(self.stream, kernel, grid, args)?;
        self.timeline.map_or(Ok(()), |timeline| timeline.mark(self.stream, what, bytes))
    }

    pub(super) fn products(&self, what: &'static str, list: &[Product]) -> Result<(), DriverError> {
        self.products_of_rows(what, list, &Rows { n: 1, steps: [0; 3], faults: self.at(self.scratch.fault) })
    }

    /// Products of each row's vectors with the same matrices, or with those of its own slots; `list` has the first row's.
    pub(super) fn products_of_rows(
        &self,
        what: &'static str,
        list: &[Product],
        rows: &Rows,
    ) -> Result<(), DriverError> {
        // All rows' blocks together are as many as there are multiprocessors.
        let room = Room { processors: (self.room.processors / rows.n).max(1), ..self.room };
        for mut batch in batches(list, room) {
            batch.tasks.steps = rows.steps;
            let kernel = self.kernels.matvec(batch.formats);
            let args = Args::new()
                .value(&*batch.tasks)
                .pointer(self.kernels.tables(batch.formats[0]))
                .pointer(self.kernels.tables(batch.formats[1]))
                .pointer(rows.faults);
            let grid = Grid::of([batch.blocks, 1, rows.n], [batch.threads, 1, 1]);
            let bytes = u64::from(rows.n) * batch.bytes();
            self.put_bytes(what, kernel, grid.with_smem(batch.smem).early(), args, bytes)?;
        }
        Ok(())
    }

    /// Products of the normed input, side by side in `first`; where each begins.
    pub(super) fn side_by_side<const N: usize>(
        &self,
        what: &'static str,
        list: &[Placed; N],
    ) -> Result<[usize; N], DriverError> {
        let (x, first) = (self.at(self.scratch.x), self.scratch.first);
        let mut at = 0;
        let places = list.each_ref().map(|w| {
            at += w.rows;
            at - w.rows
        });
        let products: Vec<Product> =
            list.iter().zip(places).map(|(w, at)| self.product(w, x, self.behind(first, at))).collect();
        self.products(what, &products)?;
        Ok(places)
    }

    /// The streams take what is pending; the next part's input is read, by `site`, or the head's where there is none.
    fn site(
        &self,
        layer: usize,
        site: Option<&SitePlaces>,
        turn: usize,
        pending: Pending,
        later: bool,
    ) -> Result<(), DriverError> {
        let s = self.scratch;
        let mode = match pending {
            Pending::Nothing => KEEP,
            Pending::Vector => WRITE,
            Pending::Experts => COMBINE,
        };
        let rows = SiteBuffers {
            n: 1,
            mode,
            // The first site reads the streams where the token's embedding was put.
            residual: self.at(if mode == KEEP { s.embedding } else { s.residual[turn] }),
            next: self.at(s.residual[turn ^ 1]),
            y: self.at(s.y),
            experts: self.at(s.experts),
            weights: self.at(s.weights),
            gates: self.at(s.gates[turn]),
            gates_out: self.at(s.gates[turn ^ 1]),
            x: self.at(s.x),
            faults: self.at(s.fault),
            later,
            rounded: [[0; 2]; 2],
        };
        self.put_site(layer, site, &rows)
    }

    pub(super) fn buffers(&self) -> StepBuffers {
        let s = self.scratch;
        StepBuffers {
            n: 1,
            faults: self.at(s.fault),
            first: self.at(s.first),
            second: self.at(s.second),
            joined: self.at(s.joined),
            low: self.at(s.low),
            absorbed: self.at(s.absorbed),
            mixed: self.at(s.mixed),
            x: self.at(s.x),
            router: self.at(s.router),
            ids: self.at(s.ids),
            weights: self.at(s.weights),
        }
    }

    fn ffn(&self, layer: usize, block: &BlockPlaces, gates: u64) -> Result<Pending, DriverError> {
        let c = self.config;
        match &block.ffn {
            FfnPlaces::Dense(w) => {
                self.swiglu(w, 0, c.clamp_shared[layer])?;
                Ok(Pending::Vector)
            }
            FfnPlaces::Moe(w) => {
                self.router(w, &self.buffers(), gates, false)?;
                self.experts(layer, w)?;
                Ok(Pending::Experts)
            }
        }
    }

    /// Gate and up into the wide buffer at `at`, then down into `y`.
    fn swiglu(&self, w: &SwiGluPlaces, at: usize, limit: f32) -> Result<(), DriverError> {
        let (x, wide) = (self.at(self.scratch.x), self.scratch.wide);
        let up = at + w.gate.rows;
        self.products(
            "dense gate, up",
            &[self.product(&w.gate, x, self.behind(wide, at)), self.product(&w.up, x, self.behind(wide, up))],
        )?;
        self.products("dense down", &[self.down(w, at, limit)])
    }

    pub(super) fn down(&self, w: &SwiGluPlaces, at: usize, limit: f32) -> Product {
        let wide = self.scratch.wide;
        let mut down = self.product(&w.down, self.behind(wide, at), self.at(self.scratch.y));
        down.task.x2 = self.behind(wide, at + w.gate.rows);
        (down.task.kind, down.task.limit) = (SWIGLU, limit);
        down
    }
}
