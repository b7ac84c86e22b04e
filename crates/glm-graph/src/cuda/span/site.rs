//! A hyper-connection site of a span: the streams of all rows take what is pending, the next part's input is read from them.

use bytemuck::{Pod, Zeroable};
use quant_kernels::cuda::{Args, DriverError, Grid};

use super::{Pending, Span, Whose};
use crate::cuda::abi::{COMBINE, EMBED, WRITE};
use crate::cuda::site::SiteBuffers;
use crate::cuda::token::FIRST_LAYER;
use crate::cuda::weights::SitePlaces;

// Of kernels/rows/site_rows.cu and kernels/include/site_rows.cuh.
const PART: usize = 256;
const STREAM_THREADS: u32 = 256;
/// Blocks of the streams that a multiprocessor runs at a time.
const STREAM_BLOCKS: u32 = 2;
/// Rows of a block of the streams, where shared memory has room for two such blocks; and where it has not.
const BLOCK_ROWS: u32 = 16;
const FEWER_ROWS: u32 = 8;
/// Shared memory for a row of a block: 256 values of each stream, a line of sums of each, and gates.
const ROW_SMEM: u32 = 4 * (4 * 256 + 4 * 32 + 20);
const GATE_THREADS: u32 = 128;
/// Rows of a block of the gates.
const GATE_ROWS: u32 = 4;
const ANY_THREADS: u32 = 256;

/// What the kernels are told.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct SiteRows {
    streams: u64,
    y: u64,
    gates: u64,
    mix: u64,
    base: u64,
    norm: u64,
    x: u64,
    faults: u64,
    mode: u32,
    hidden: u32,
    n: u32,
    sinkhorn: u32,
    code: u32,
    rows: u32,
    rows_of_block: u32,
    scale: [f32; 3],
    rms_eps: f32,
    hc_eps: f32,
}

// The size that the compiler of the device code gives it.
const _: () = assert!(size_of::<SiteRows>() == 112);

impl Span<'_> {
    /// Whether sites are a token's own, which take a few rows at once: one launch for three, and experts are added up there.
    pub(super) fn sites_of_each(&self) -> bool {
        self.whose == Whose::Each && self.pass.has_fast_sites()
    }

    /// The streams take what is pending; the normed input of the next part is read by `site`, or the head's where there is none.
    /// Sites alternate between turn 0 and 1. With `later` a kernel before the next site finishes the gates.
    pub(super) fn site(
        &self,
        layer: usize,
        site: Option<&SitePlaces>,
        turn: usize,
        pending: Pending,
        later: bool,
    ) -> Result<(), DriverError> {
        let (pass, p) = (&self.pass, self.places);
        let mode = match pending {
            Pending::Embedding => EMBED,
            Pending::Vector => WRITE,
            Pending::Experts => COMBINE,
        };
        if self.sites_of_each() {
            return self.site_of_each(layer, site, turn, mode, later);
        }
        let (c, rows) = (pass.config, self.rows as u32);
        let roomy = STREAM_BLOCKS * BLOCK_ROWS * ROW_SMEM <= pass.room.smem;
        let rows_of_block = if roomy { BLOCK_ROWS } else { FEWER_ROWS };
        let args = SiteRows {
            streams: pass.at(p.streams),
            y: pass.at(p.y),
            gates: pass.at(p.gates),
            mix: site.map_or(0, |site| pass.at(site.mix)),
            base: site.map_or(0, |site| pass.at(site.base)),
            norm: pass.at(site.map_or(pass.weights.output_norm, |site| site.norm)),
            x: pass.at(p.x),
            faults: pass.at(p.faults),
            mode,
            hidden: c.hidden as u32,
            n: c.streams as u32,
            sinkhorn: c.sinkhorn as u32,
            code: layer as u32 + FIRST_LAYER,
            rows,
            rows_of_block,
            scale: site.map_or([0.0; 3], |site| site.scale),
            rms_eps: c.rms_eps,
            hc_eps: c.hc_eps,
        };
        let args = || Args::new().value(&args);
        let kernels = &pass.kernels.rows;
        if pass.has_fast_sites() {
            let parts = (c.hidden / PART) as u32;
            let groups = rows.div_ceil(rows_of_block);
            // A block a part: those at work at a time have all parts of neighbouring rows, 17 MB in one piece on an H200. With the
            // fewest blocks all 134 MB of 2048 rows would be open at once, a kilobyte here and there.
            let grid = Grid::of([parts, groups, 1], [STREAM_THREADS, 1, 1]);
            let smem = rows_of_block * ROW_SMEM;
            pass.put("site streams", &kernels.site4_streams, grid.with_smem(smem), args())?;
            if site.is_some() {
                let grid = Grid::new(rows.div_ceil(GATE_ROWS), GATE_THREADS);
                pass.put("site gates", &kernels.site4_gates, grid, args())?;
            }
            let grid = Grid::new(rows, 32 * parts).with_smem(4 * parts);
            return pass.put("site norm", &kernels.site4_norm, grid, args());
        }
        let gates = c.streams + c.streams * c.streams;
        let sums = if site.is_some() { c.hc_rows() } else { 0 };
        let words = gates + sums + 1 + c.hidden.div_ceil(PART).next_power_of_two();
        let grid = Grid::new(rows, ANY_THREADS).with_smem(4 * words as u32);
        pass.put("site", &kernels.site, grid, args())
    }

    fn site_of_each(
        &self,
        layer: usize,
        site: Option<&SitePlaces>,
        turn: usize,
        mode: u32,
        later: bool,
    ) -> Result<(), DriverError> {
        let (pass, p, s) = (&self.pass, self.places, self.pass.scratch);
        let x = self.normed();
        let rounded = x.done.map(|_| [self.rounded_at(&x, false), self.rounded_at(&x, true)]);
        let rows = SiteBuffers {
            n: self.rows as u32,
            mode,
            residual: pass.at(s.residual[turn]),
            next: pass.at(s.residual[turn ^ 1]),
            y: pass.at(p.y),
            experts: pass.at(p.experts),
            weights: pass.at(p.weights),
            gates: pass.at(s.gates[turn]),
            gates_out: pass.at(s.gates[turn ^ 1]),
            x: pass.at(p.x),
            faults: pass.at(p.faults),
            later,
            rounded: rounded.unwrap_or_default(),
        };
        pass.put_site(layer, site, &rows)
    }
}
