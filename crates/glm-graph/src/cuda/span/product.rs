//! Products of matrices with many vectors: rounding of the vectors, and the launches by family of formats.

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};
use quant_kernels::cuda::{
    Args, DriverError, Grid, RowsShape, rows_format, rows_shape, rows_shape_of_few_rows,
};
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
/// Weights of a stage of the product of few rows.
const DEEP: usize = 2048;

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

/// What a launch of products comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Something that it has to wait for.
    Any,
    /// Products that let their successor begin once its vectors were rounded: so many blocks of so many tiles each.
    Products { blocks: u32, tall: u32 },
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
    tall: u32,
    apart: u32,
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
    q2: u64,
    scale2: u64,
}

const _: () = assert!(size_of::<RowsTask>() == 104);
const _: () = assert!(size_of::<RowsTasks>() == MAX_TASKS * 104 + 56 + 24);
const _: () = assert!(size_of::<Quantize>() == 96);

/// Bytes of a rounded vector of `k` values, and places for its scales.
pub(super) fn rounded(k: usize) -> (usize, usize) {
    (k.next_multiple_of(BLOCK), k.div_ceil(32).next_multiple_of(8))
}

/// Tiles of matrix rows.
fn tiles(x: &Vectors, list: &[RowsProduct], shape: &RowsShape) -> u32 {
    let of = |product: &RowsProduct| {
        let parts = if product.part.is_none() { x.parts } else { 1 };
        parts * (product.rows / parts).div_ceil(shape.rows as usize)
    };
    list.iter().map(of).sum::<usize>() as u32
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
        let (h, down) = self.down_of(w, wide, limit);
        self.products(what, &h, &[down])
    }

    /// The vectors that down meets, and down.
    pub(super) fn down_of(&self, w: &SwiGluPlaces, wide: Place, limit: f32) -> (Vectors, RowsProduct) {
        let (wide, ff) = (self.pass.at(wide), w.gate.rows);
        let up = wide + 4 * ff as u64;
        let h = Vectors { gate: Some((up, limit)), ..self.vectors(wide, 2 * ff, ff) };
        (h, self.product(&w.down, self.pass.at(self.places.y), w.down.rows))
    }

    /// Multiplies matrices with the same vectors, which are rounded once for each family of formats.
    pub(super) fn groups(&self, x: &Vectors, groups: &[Group<'_>]) -> Result<(), DriverError> {
        // Few vectors are rounded for both families at once, the second time behind the first. Narrow matrices are small: they are
        // multiplied where wide ones leave room.
        let both = x.done.map_or_else(|| self.wants_both(groups), |done| done.both);
        if both && x.done.is_none() {
            self.round(x, &[Family::Wide, Family::Narrow])?;
        }
        let mut before = match x.done {
            Some(Done { earlier: true, .. }) => Before::Products { blocks: 0, tall: 0 },
            _ => Before::Any,
        };
        for family in [Family::Wide, Family::Narrow, Family::Float] {
            let mut is_rounded = (both || x.done.is_some()) && family != Family::Float;
            for group in groups {
                let of_family = |product: &RowsProduct| product.quant.family() == Some(family);
                let some: Vec<_> = group.list.iter().copied().filter(of_family).collect();
                if some.is_empty() {
                    continue;
                }
                if !is_rounded {
                    self.round(x, &[family])?;
                    is_rounded = true;
                    before = Before::Any;
                }
                let second = both && family == Family::Narrow;
                for some in some.chunks(MAX_TASKS) {
                    before = self.launch(group, family, x, some, second, before)?;
                }
            }
        }
        Ok(())
    }

    fn wants_both(&self, groups: &[Group<'_>]) -> bool {
        let wants = |family: Family| {
            groups.iter().any(|group| group.list.iter().any(|product| product.quant.family() == Some(family)))
        };
        wants(Family::Wide) && wants(Family::Narrow) && self.has_room_for_both()
    }

    /// Whether vectors of all rows, rounded twice, have a place.
    pub(super) fn has_room_for_both(&self) -> bool {
        2 * self.rows <= self.places.rows
    }

    /// The vectors that `list` meets, rounded now: other kernels come before its products.
    pub(super) fn rounded(&self, x: Vectors, list: &[RowsProduct]) -> Result<Vectors, DriverError> {
        let both = self.wants_both(&[Group { what: "", list, experts: None }]);
        let families = [Family::Wide, Family::Narrow];
        let wanted = families
            .into_iter()
            .filter(|family| list.iter().any(|product| product.quant.family() == Some(*family)));
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() || (wanted.len() == 2 && !both) {
            return Ok(x);
        }
        self.round(&x, &wanted)?;
        Ok(Vectors { done: Some(Done { both, earlier: true }), ..x })
    }

    /// Rounds the vectors to bytes for one family or two, or makes the f32 vectors that float weights meet.
    fn round(&self, x: &Vectors, families: &[Family]) -> Result<(), DriverError> {
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

    /// One launch for `list`, of `group`; `second` says where its vectors are. Returns what it is for its successor.
    fn launch(
        &self,
        group: &Group<'_>,
        family: Family,
        x: &Vectors,
        list: &[RowsProduct],
        second: bool,
        before: Before,
    ) -> Result<Before, DriverError> {
        let (p, experts) = (self.places, group.experts);
        let quants: Vec<Quant> = list.iter().map(|product| product.quant).collect();
        // An expert of the published model has 57 of 2048 rows.
        let columns = experts.map_or(x.rows, |experts| experts.pairs.div_ceil(self.pass.config.experts));
        let shape = self.shape(&quants, columns, x, list, experts.is_some());
        let mut tasks: Box<RowsTasks> = Box::new(Zeroable::zeroed());
        tasks.tall = if shape.waits && experts.is_none() { self.tall(x, list, &shape, before) } else { 1 };
        let rows_of_block = shape.rows * tasks.tall;
        let (mut blocks, mut bytes) = (0, 0);
        for (i, product) in list.iter().enumerate() {
            let task = self.task(family, x, product, experts, second);
            tasks.task[i] = task;
            tasks.first_block[i] = blocks;
            blocks += task.rows / task.part_rows * task.part_rows.div_ceil(rows_of_block);
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
        let mut grid = Grid::of([blocks, tiles, 1], [shape.threads, 1, 1]).with_smem(shape.smem);
        if shape.waits {
            grid = grid.early();
            tasks.apart = u32::from(before != Before::Any && experts.is_none());
        }
        let kernel = self.pass.kernels.rows.product(family, shape.entry);
        self.pass.put_bytes(group.what, kernel, grid, Args::new().value(&*tasks), bytes)?;
        let lets = shape.waits && tasks.apart == 0;
        Ok(if lets { Before::Products { blocks, tall: tasks.tall } } else { Before::Any })
    }

    fn task(
        &self,
        family: Family,
        x: &Vectors,
        product: &RowsProduct,
        experts: Option<&ByExpert<'_>>,
        second: bool,
    ) -> RowsTask {
        let (pitch, scales) = rounded(x.k);
        let row_bytes =
            product.quant.row_bytes(product.cols).expect("a claimed tensor's row is whole blocks");
        let [q, scale] = self.rounded_at(x, second);
        // f32 vectors are read where they lie.
        let (q, pitch) = if family == Family::Float { (x.x, 4 * x.stride) } else { (q, pitch) };
        let dealt = product.part.is_none();
        RowsTask {
            w: if experts.is_some() { 0 } else { product.w },
            table: experts.map_or(0, |experts| experts.table),
            q,
            scale,
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

    /// How blocks are laid out for `columns` vectors.
    fn shape(
        &self,
        quants: &[Quant],
        columns: usize,
        x: &Vectors,
        list: &[RowsProduct],
        by_expert: bool,
    ) -> RowsShape {
        let room = self.pass.room;
        let shape = rows_shape(quants, columns, room.smem);
        // Less than three halves of a block for each multiprocessor: half of the warps that it can run, or little more.
        let few = 2 * tiles(x, list, &shape) < 3 * room.processors && !by_expert;
        let deep = list.iter().all(|product| product.cols >= DEEP);
        let other = if few && deep { rows_shape_of_few_rows(&shape, quants, room.smem) } else { None };
        other.unwrap_or(shape)
    }

    /// Tiles of rows that a block has, so that all blocks are at work at once, two a multiprocessor. Blocks that begin beside others
    /// have what these leave, if they do not take longer for it.
    fn tall(&self, x: &Vectors, list: &[RowsProduct], shape: &RowsShape, before: Before) -> u32 {
        let (all, places) = (tiles(x, list, shape), 2 * self.pass.room.processors);
        if let Before::Products { blocks, tall } = before
            && blocks < places
            && all.div_ceil(places - blocks) <= tall
        {
            return all.div_ceil(places - blocks).max(1);
        }
        all.div_ceil(places).max(1)
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
