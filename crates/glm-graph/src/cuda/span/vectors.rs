//! Vectors that products meet, and their rounding to bytes.

use bytemuck::{Pod, Zeroable};
use quant_kernels::Family;
use quant_kernels::cuda::{Args, DriverError, Grid};

use super::Span;

/// Values that a warp of the rounding has.
const BLOCK: usize = 256;
/// Warps of its blocks.
const WARPS: u32 = 8;

/// Vectors that products meet: `parts` for each of `rows` rows, `k` values each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors {
    /// Where the first begins; rows are `stride` values apart, parts of a row side by side.
    pub(super) x: u64,
    pub(super) stride: usize,
    pub(super) k: usize,
    pub(super) rows: usize,
    pub(super) parts: usize,
    /// Rows here that belong to one row of the span.
    pub(super) share: usize,
    /// The row of the span that the first belongs to.
    pub(super) from: usize,
    /// Where up begins and its clamp, if the vectors are SwiGLU of `x` and it.
    pub(super) gate: Option<(u64, f32)>,
    /// That they have been rounded to bytes.
    pub(super) done: Option<Done>,
}

/// How vectors have been rounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// For both families, the second behind the first; or for the one that is wanted.
    pub(super) both: bool,
    /// Before the last kernel let its successor begin.
    pub(super) earlier: bool,
}

/// `Quantize` of kernels/rows/quantize.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Quantize {
    x: u64,
    x2: u64,
    q: u64,
    scale: u64,
    faults: u64,
    stride: u64,
    rows: u32,
    parts: u32,
    k: u32,
    pitch: u32,
    scales: u32,
    share: u32,
    narrow: u32,
    limit: f32,
    q2: u64,
    scale2: u64,
    apart: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<Quantize>() == 104);

/// Bytes of a rounded vector of `k` values, and places for its scales.
pub(super) fn rounded(k: usize) -> (usize, usize) {
    (k.next_multiple_of(BLOCK), k.div_ceil(32).next_multiple_of(8))
}

impl Span<'_> {
    /// Whether vectors of all rows, rounded twice, have a place.
    pub(super) fn has_room_for_both(&self) -> bool {
        2 * self.rows <= self.places.rows
    }

    /// Rounds the vectors to bytes for one family or two, or makes the f32 vectors that float weights meet.
    pub(super) fn round(&self, x: &Vectors, families: &[Family], apart: bool) -> Result<(), DriverError> {
        let kernels = &self.pass.kernels.rows;
        let vectors = (x.rows * x.parts) as u32;
        if families == [Family::Float] {
            let Some((up, limit)) = x.gate else { return Ok(()) };
            let args = Args::new()
                .pointer(x.x)
                .pointer(up)
                .u32(x.rows as u32)
                .u32(x.k as u32)
                .u32(x.stride as u32)
                .f32(limit);
            return self.pass.put(
                "swiglu",
                &kernels.swiglu,
                Grid::new(4 * self.pass.room.processors, 256),
                args,
            );
        }
        let (pitch, scales) = rounded(x.k);
        let ([q, scale], [q2, scale2]) = (self.rounded_at(x, false), self.rounded_at(x, true));
        let args = Quantize {
            x: x.x,
            x2: x.gate.map_or(0, |(up, _)| up),
            q,
            scale,
            faults: self.pass.behind(self.places.faults, x.from),
            stride: x.stride as u64,
            rows: x.rows as u32,
            parts: x.parts as u32,
            k: x.k as u32,
            pitch: pitch as u32,
            scales: scales as u32,
            share: x.share as u32,
            narrow: u32::from(families[0] == Family::Narrow),
            limit: x.gate.map_or(0.0, |(_, limit)| limit),
            q2,
            scale2,
            apart: u32::from(apart),
            reserved: 0,
        };
        let across = [vectors.div_ceil(WARPS), x.k.div_ceil(BLOCK) as u32, families.len() as u32];
        let grid = Grid::of(across, [32 * WARPS, 1, 1]).early();
        self.pass.put("round", &kernels.quantize, grid, Args::new().value(&args))
    }

    /// Where rounded vectors and their scales are; or, when they are rounded for two families at once, the second one's.
    pub(super) fn rounded_at(&self, x: &Vectors, second: bool) -> [u64; 2] {
        let (p, (pitch, scales)) = (self.places, rounded(x.k));
        let before = if second { x.rows * x.parts } else { 0 };
        [self.pass.at(p.bytes) + (before * pitch) as u64, self.pass.behind(p.scales, before * scales)]
    }
}
