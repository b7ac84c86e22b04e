//! A hyper-connection site of a token, or of one of each of several sequences.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::abi::{self, EMBED, KEEP};
use super::product::THREADS;
use super::token::{FIRST_LAYER, Pass};
use super::weights::{BlockPlaces, FfnPlaces, SitePlaces};

/// Blocks along the streams: each has every sixteenth part of 256 values.
const BLOCKS: u32 = 16;
/// Rows of the mixing matrix that a block multiplies.
const ROWS: u32 = 4;
// Of kernels/glm/site.cu, for four streams.
const FAST_STREAMS: usize = 4;
const FAST_THREADS: u32 = 544;
const FAST_HIDDEN: usize = 4096;
const FAST_SMEM: u32 = 16 + 16 * 4 + 16 * 4 + 4096 * 4;

/// What a site of `n` rows finds and leaves.
pub(super) struct SiteBuffers {
    /// One, unless the site is fast.
    pub(super) n: u32,
    /// How the streams change (`abi`).
    pub(super) mode: u32,
    pub(super) residual: u64,
    pub(super) next: u64,
    pub(super) y: u64,
    pub(super) experts: u64,
    pub(super) weights: u64,
    pub(super) gates: u64,
    pub(super) gates_out: u64,
    pub(super) x: u64,
    pub(super) faults: u64,
    /// The kernel before the next site finishes its gates; only of a fast site.
    pub(super) later: bool,
    /// Where the input goes in bytes, and its scales, in blocks of 256 and of 32; 0 where it does not. Only of a fast site.
    pub(super) rounded: [[u64; 2]; 2],
}

impl Pass<'_> {
    /// Whether sites of this model are those that take several rows at once.
    pub(super) fn has_fast_sites(&self) -> bool {
        let c = self.config;
        c.streams == FAST_STREAMS && c.hidden.is_multiple_of(256) && c.hidden <= FAST_HIDDEN
    }

    /// Whether the block's router does what takes longest of the gates of the site before it, of a pass whose sites are fast.
    pub(super) fn router_finishes_gates(&self, block: &BlockPlaces) -> bool {
        self.has_fast_sites() && matches!(block.ffn, FfnPlaces::Moe(_))
    }

    /// Where the gates are that a site left to a kernel before the next one, which has this turn; 0 if it left none.
    pub(super) fn unfinished_gates(&self, left: bool, turn: usize) -> u64 {
        if left { self.at(self.scratch.gates[turn]) } else { 0 }
    }

    /// The streams take what is pending; the next part's input is read, by `site`, or the head's where there is none.
    pub(super) fn put_site(
        &self,
        layer: usize,
        site: Option<&SitePlaces>,
        rows: &SiteBuffers,
    ) -> Result<(), DriverError> {
        let (c, s) = (self.config, self.scratch);
        let norm = site.map_or(self.weights.output_norm, |site| site.norm);
        let args = abi::Site {
            residual: rows.residual,
            next: rows.next,
            y: rows.y,
            experts: rows.experts,
            weights: rows.weights,
            gates: rows.gates,
            gates_out: rows.gates_out,
            mix: site.map_or(0, |site| self.at(site.mix)),
            base: site.map_or(0, |site| self.at(site.base)),
            norm: self.at(norm),
            x: rows.x,
            partials: self.at(s.partials),
            ended: self.at(s.ended),
            fault: rows.faults,
            mode: rows.mode,
            k: c.experts_used as u32,
            hidden: c.hidden as u32,
            streams: c.streams as u32,
            sinkhorn: c.sinkhorn as u32,
            code: layer as u32 + FIRST_LAYER,
            scale: site.map_or([0.0; 3], |site| site.scale),
            rms_eps: c.rms_eps,
            hc_eps: c.hc_eps,
            later: u32::from(rows.later),
            q: rows.rounded[0][0],
            q_scale: rows.rounded[0][1],
            q2: rows.rounded[1][0],
            q2_scale: rows.rounded[1][1],
        };
        let sums = if site.is_some() { c.hc_rows() as u32 } else { 0 };
        let groups = if site.is_some() { (sums + 1).div_ceil(ROWS) } else { 1 };
        let args = Args::new().value(&args);
        let hidden = c.hidden as u32;
        // What `begin` wrote is read without waiting for it by more than the first launch. Other predecessors have waited for
        // theirs, or began when these had ended.
        let first = rows.mode == KEEP || rows.mode == EMBED;
        let begins = |grid: Grid| if first { grid } else { grid.early() };
        if self.has_fast_sites() {
            // Of these blocks a multiprocessor runs one: eight rows with seven groups each took seven turns, 35 us.
            let groups = (self.room.processors / (hidden / 256 * rows.n)).clamp(1, groups);
            let grid = Grid::of([hidden / 256, groups, rows.n], [FAST_THREADS, 1, 1]).with_smem(FAST_SMEM);
            return self.put("site", &self.kernels.site4, begins(grid), args);
        }
        assert!(rows.n == 1 && !rows.later, "a site that is not fast has a row, and finishes its gates");
        let parts = c.residual().div_ceil(256) as u32;
        let blocks = parts.min(BLOCKS);
        let n = c.streams as u32;
        let values = (n + n * n).div_ceil(4) * 16 + parts.div_ceil(blocks) * 1024;
        let words = (sums + 1) * parts.next_power_of_two() + n + n * n;
        let last = 4 * (hidden + hidden.div_ceil(256).next_power_of_two() + words);
        let grid = Grid::of([blocks, groups, 1], [THREADS, 1, 1]).with_smem(values.max(last));
        self.put("site", &self.kernels.site, begins(grid), args)
    }
}
