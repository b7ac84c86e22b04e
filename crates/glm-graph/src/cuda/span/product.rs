//! Products of matrices with many vectors: rounding of the vectors, and the launches by family of formats.

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};
use quant_kernels::cuda::{Args, DriverError, Grid, RowsShape, rows_format, rows_shape};
use quant_kernels::{Family, Quant};

use super::super::memory::Place;
use super::super::weights::{Placed, SwiGluPlaces};
use super::Span;

/// Matrices of one launch at most (kernels/include/products.cuh).
const MAX_TASKS: usize = 8;
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
}

/// The columns of a product when they are not all rows in order: pairs of a row and a rank, by expert.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByExpert<'a> {
    /// Residency entries, one an expert.
    pub(super) table: u64,
    /// Pairs that share a vector.
    pub(super) share: usize,
    /// Pairs in all.
    pub(super) pairs: usize,
    /// Columns of a block, once pairs are cut into tiles of so many.
    pub(super) tiled: &'a Cell<Option<u32>>,
}

/// Products that are wanted of the same vectors.
pub(super) struct Group<'a> {
    pub(super) what: &'static str,
    pub(super) list: &'a [RowsProduct],
    pub(super) experts: Option<&'a ByExpert<'a>>,
}

/// A product that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowsProduct {
    pub(super) quant: Quant,
    /// The matrix; or, of an expert, how far it lies behind its slot's beginning.
    pub(super) w: u64,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// The result, `stride` values a column.
    pub(super) y: u64,
    pub(super) stride: usize,
    /// The one part that the matrix meets; `None`: its rows are dealt out among all parts.
    pub(super) part: Option<usize>,
}

/// `RowsTask` of kernels/include/products.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct RowsTask {
    w: u64,
    table: u64,
    q: u64,
    scale: u64,
    y: u64,
    book: u64,
    offset: u64,
    rows: u32,
    k: u32,
    row_bytes: u32,
    format: u32,
    part_rows: u32,
    parts: u32,
    first_part: u32,
    pitch: u32,
    scales: u32,
    stride: u32,
    share: u32,
    reserved: u32,
}

/// `RowsTasks` of kernels/include/products.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct RowsTasks {
    task: [RowsTask; MAX_TASKS],
    first_block: [u32; MAX_TASKS + 1],
    n: u32,
    columns: u32,
    padding: u32,
    order: u64,
    tiles: u64,
    n_tiles: u64,
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
}

const _: () = assert!(size_of::<RowsTask>() == 104);
const _: () = assert!(size_of::<RowsTasks>() == MAX_TASKS * 104 + 48 + 24);
const _: () = assert!(size_of::<Quantize>() == 80);

/// Bytes of a rounded vector of `k` values, and places for its scales.
pub(super) fn rounded(k: usize) -> (usize, usize) {
    (k.next_multiple_of(BLOCK), k.div_ceil(32).next_multiple_of(8))
}

impl Span<'_> {
    pub(super) fn product(&self, w: &Placed, y: u64, stride: usize) -> RowsProduct {
        let (quant, rows, cols) = (w.quant, w.rows, w.cols);
        RowsProduct { quant, w: self.pass.at(w.at), rows, cols, y, stride, part: None }
    }

    /// Multiplies matrices of any formats with vectors.
    pub(super) fn products(
        &self,
        what: &'static str,
        x: &Vectors,
        list: &[RowsProduct],
    ) -> Result<(), DriverError> {
        self.groups(x, &[Group { what, list, experts: None }])
    }

    /// Gate and up, side by side at `wide`.
    pub(super) fn gate_and_up(&self, w: &SwiGluPlaces, wide: Place) -> [RowsProduct; 2] {
        let (wide, ff) = (self.pass.at(wide), w.gate.rows);
        [self.product(&w.gate, wide, 2 * ff), self.product(&w.up, wide + 4 * ff as u64, 2 * ff)]
    }

    /// Down of what gate and up left at `wide`, into `y`.
    pub(super) fn down(
        &self,
        what: &'static str,
        w: &SwiGluPlaces,
        wide: Place,
        limit: f32,
    ) -> Result<(), DriverError> {
        let (wide, ff) = (self.pass.at(wide), w.gate.rows);
        let up = wide + 4 * ff as u64;
        let h = Vectors { gate: Some((up, limit)), ..self.vectors(wide, 2 * ff, ff) };
        self.products(what, &h, &[self.product(&w.down, self.pass.at(self.places.y), w.down.rows)])
    }

    /// Multiplies matrices with the same vectors, which are rounded once for each family of formats.
    pub(super) fn groups(&self, x: &Vectors, groups: &[Group<'_>]) -> Result<(), DriverError> {
        for family in [Family::Wide, Family::Narrow, Family::Float] {
            let mut is_rounded = false;
            for group in groups {
                let of_family = |product: &RowsProduct| product.quant.family() == Some(family);
                let some: Vec<_> = group.list.iter().copied().filter(of_family).collect();
                if some.is_empty() {
                    continue;
                }
                if !is_rounded {
                    self.round(family, x)?;
                    is_rounded = true;
                }
                for some in some.chunks(MAX_TASKS) {
                    self.launch(group.what, family, x, some, group.experts)?;
                }
            }
        }
        Ok(())
    }

    /// Rounds the vectors to bytes for a family, or makes the f32 vectors that float weights meet.
    fn round(&self, family: Family, x: &Vectors) -> Result<(), DriverError> {
        let (p, kernels) = (self.places, &self.pass.kernels.rows);
        let vectors = (x.rows * x.parts) as u32;
        if family == Family::Float {
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
        let args = Quantize {
            x: x.x,
            x2: x.gate.map_or(0, |(up, _)| up),
            q: self.pass.at(p.bytes),
            scale: self.pass.at(p.scales),
            faults: self.pass.behind(p.faults, x.from),
            stride: x.stride as u64,
            rows: x.rows as u32,
            parts: x.parts as u32,
            k: x.k as u32,
            pitch: pitch as u32,
            scales: scales as u32,
            share: x.share as u32,
            narrow: u32::from(family == Family::Narrow),
            limit: x.gate.map_or(0.0, |(_, limit)| limit),
        };
        let grid = Grid::of([vectors.div_ceil(WARPS), x.k.div_ceil(BLOCK) as u32, 1], [32 * WARPS, 1, 1]);
        self.pass.put("round", &kernels.quantize, grid, Args::new().value(&args))
    }

    fn launch(
        &self,
        what: &'static str,
        family: Family,
        x: &Vectors,
        list: &[RowsProduct],
        experts: Option<&ByExpert<'_>>,
    ) -> Result<(), DriverError> {
        let p = self.places;
        let quants: Vec<Quant> = list.iter().map(|product| product.quant).collect();
        // An expert of the published model has 57 of 2048 rows.
        let columns = experts.map_or(x.rows, |experts| experts.pairs.div_ceil(self.pass.config.experts));
        let shape = rows_shape(&quants, columns, self.pass.room.smem);
        let mut tasks: Box<RowsTasks> = Box::new(Zeroable::zeroed());
        let (mut blocks, mut bytes) = (0, 0);
        for (i, product) in list.iter().enumerate() {
            let task = self.task(family, x, product, experts);
            tasks.task[i] = task;
            tasks.first_block[i] = blocks;
            blocks += task.rows / task.part_rows * task.part_rows.div_ceil(shape.rows);
            bytes += u64::from(task.rows) * u64::from(task.row_bytes);
        }
        tasks.first_block[list.len()..].fill(blocks);
        tasks.n = list.len() as u32;
        let mut tiles = (x.rows as u32).div_ceil(shape.columns);
        tasks.columns = x.rows as u32;
        if let Some(experts) = experts {
            tiles = self.tiles(&shape, experts)?;
            tasks.columns = experts.pairs as u32;
            tasks.order = self.pass.at(p.order);
            tasks.tiles = self.pass.at(p.tiles);
            tasks.n_tiles = self.pass.at(p.n_tiles);
            // No more experts than pairs are read.
            bytes *= self.pass.config.experts.min(experts.pairs) as u64;
        }
        let grid = Grid::of([blocks, tiles, 1], [shape.threads, 1, 1]).with_smem(shape.smem);
        let kernel = self.pass.kernels.rows.product(family, shape.entry);
        self.pass.put_bytes(what, kernel, grid, Args::new().value(&*tasks), bytes)
    }

    fn task(
        &self,
        family: Family,
        x: &Vectors,
        product: &RowsProduct,
        experts: Option<&ByExpert<'_>>,
    ) -> RowsTask {
        let p = self.places;
        let (pitch, scales) = rounded(x.k);
        let row_bytes =
            product.quant.row_bytes(product.cols).expect("a claimed tensor's row is whole blocks");
        // f32 vectors are read where they lie.
        let (q, pitch) =
            if family == Family::Float { (x.x, 4 * x.stride) } else { (self.pass.at(p.bytes), pitch) };
        let dealt = product.part.is_none();
        RowsTask {
            w: if experts.is_some() { 0 } else { product.w },
            table: experts.map_or(0, |experts| experts.table),
            q,
            scale: self.pass.at(p.scales),
            y: product.y,
            book: self.pass.kernels.tables(product.quant),
            offset: if experts.is_some() { product.w } else { 0 },
            rows: product.rows as u32,
            k: product.cols as u32,
            row_bytes: row_bytes as u32,
            format: rows_format(product.quant).expect("a format with a family has a number"),
            part_rows: (product.rows / if dealt { x.parts } else { 1 }) as u32,
            parts: x.parts as u32,
            first_part: product.part.unwrap_or(0) as u32,
            pitch: pitch as u32,
            scales: scales as u32,
            stride: product.stride as u32,
            share: experts.map_or(1, |experts| experts.share) as u32,
            reserved: 0,
        }
    }

    /// Cuts every expert's pairs into tiles of a block's columns, unless they are; returns how many there may be.
    fn tiles(&self, shape: &RowsShape, by: &ByExpert<'_>) -> Result<u32, DriverError> {
        let (p, experts) = (self.places, self.pass.config.experts);
        // No more than one tile of each expert is not full.
        let most = by.pairs as u32 / shape.columns + experts.min(by.pairs) as u32;
        if by.tiled.replace(Some(shape.columns)) == Some(shape.columns) {
            return Ok(most);
        }
        let args = Args::new()
            .pointer(self.pass.at(p.begin))
            .u32(experts as u32)
            .u32(shape.columns)
            .pointer(self.pass.at(p.tiles))
            .pointer(self.pass.at(p.n_tiles));
        self.pass.put("tiles", &self.pass.kernels.rows.tiles, Grid::new(1, 1024).with_smem(128), args)?;
        Ok(most)
    }
}
