//! Products of matrices with many vectors: the launches by family of formats.

use std::cell::Cell;

use bytemuck::{Pod, Zeroable};
use quant_kernels::cuda::{Args, DriverError, FEW, Few, Grid, RowsShape, rows_format, rows_shape};
use quant_kernels::{Family, Quant};

use super::super::memory::Place;
use super::super::weights::{Placed, SwiGluPlaces};
use super::Span;
use super::vectors::{Done, Vectors, rounded};

/// Matrices of one launch at most (kernels/include/products.cuh).
const MAX_TASKS: usize = 8;
/// Warps of a block for few vectors at most.
const FEW_WARPS: u32 = 16;
/// Values of a vector up to which each block of a product with few rounds it for itself: a launch takes longer.
const ROUNDED_INSIDE: usize = 512;

/// The columns of a product when they are not all rows in order: pairs of a row and a rank, by expert.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByExpert<'a> {
    /// Residency entries, one an expert.
    pub(super) table: u64,
    /// Pairs that share a vector.
    pub(super) share: usize,
    /// Pairs in all.
    pub(super) pairs: usize,
    /// Columns of a tile, once pairs are cut into tiles of so many.
    pub(super) tiled: &'a Cell<Option<u32>>,
}

/// Products that are wanted of the same vectors.
pub(super) struct Group<'a> {
    pub(super) what: &'static str,
    pub(super) list: &'a [RowsProduct],
    pub(super) experts: Option<&'a ByExpert<'a>>,
    /// Blocks for few vectors take half of a multiprocessor, so that the next kernel's run beside them.
    pub(super) half: bool,
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

const FAMILIES: [Family; 3] = [Family::Wide, Family::Narrow, Family::Float];

fn of_family(group: &Group<'_>, family: Family) -> Vec<RowsProduct> {
    group.list.iter().copied().filter(|product| product.quant.family() == Some(family)).collect()
}

/// Where a launch has its vectors from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Where they were rounded to, or for both families: the first of them.
    First,
    /// The second.
    Second,
    /// As they are.
    Unrounded,
}

/// What a launch of products comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Something that it has to wait for.
    Any,
    /// Products that let their successor begin once its vectors were rounded: so many blocks of so many steps each.
    Products { blocks: u32, steps: u32 },
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
    x_stride: u32,
    x: u64,
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
    split: u32,
    stages: u32,
    deep: u32,
    apart: u32,
    faults: u64,
    order: u64,
    tiles: u64,
    n_tiles: u64,
}

const _: () = assert!(size_of::<RowsTask>() == 112);
const _: () = assert!(size_of::<RowsTasks>() == MAX_TASKS * 112 + 64 + 32);

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
        self.groups(x, &[Group { what, list, experts: None, half: false }])
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
        let inside = self.rounds_inside(x, groups);
        let both = !inside && x.done.map_or_else(|| self.wants_both(groups), |done| done.both);
        if both && x.done.is_none() {
            self.round(x, &[Family::Wide, Family::Narrow], false)?;
        }
        let mut before = match x.done {
            Some(Done { earlier: true, .. }) => Before::Products { blocks: 0, steps: 0 },
            _ => Before::Any,
        };
        for family in FAMILIES {
            let mut is_rounded = (both || inside || x.done.is_some()) && family != Family::Float;
            for group in groups {
                let some = of_family(group, family);
                if some.is_empty() {
                    continue;
                }
                if !is_rounded {
                    self.round(x, &[family], false)?;
                    is_rounded = true;
                    before = Before::Any;
                }
                let from = match (inside, both && family == Family::Narrow) {
                    (true, _) => From::Unrounded,
                    (_, true) => From::Second,
                    _ => From::First,
                };
                for some in some.chunks(MAX_TASKS) {
                    before = self.launch(group, family, x, some, from, before)?;
                }
            }
        }
        Ok(())
    }

    /// Whether all products of short vectors round them for themselves.
    fn rounds_inside(&self, x: &Vectors, groups: &[Group<'_>]) -> bool {
        let can = |group: &Group<'_>, family: Family| {
            let some = of_family(group, family);
            some.is_empty() || self.few(group, x, &some, Before::Any).is_some()
        };
        x.done.is_none()
            && x.gate.is_none()
            && x.k <= ROUNDED_INSIDE
            && groups
                .iter()
                .all(|group| group.experts.is_none() && FAMILIES.iter().all(|family| can(group, *family)))
    }

    fn wants_both(&self, groups: &[Group<'_>]) -> bool {
        let wants = |family: Family| {
            groups.iter().any(|group| group.list.iter().any(|product| product.quant.family() == Some(family)))
        };
        wants(Family::Wide) && wants(Family::Narrow) && self.has_room_for_both()
    }

    /// The vectors that `list` meets, rounded now: other kernels come before its products. `apart`: they were complete when the kernel
    /// before this let its successor begin.
    pub(super) fn rounded(
        &self,
        x: Vectors,
        list: &[RowsProduct],
        apart: bool,
    ) -> Result<Vectors, DriverError> {
        let both = self.wants_both(&[Group { what: "", list, experts: None, half: false }]);
        let families = [Family::Wide, Family::Narrow];
        let wanted = families
            .into_iter()
            .filter(|family| list.iter().any(|product| product.quant.family() == Some(*family)));
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() || (wanted.len() == 2 && !both) {
            return Ok(x);
        }
        self.round(&x, &wanted, apart)?;
        Ok(Vectors { done: Some(Done { both, earlier: true }), ..x })
    }

    /// One launch for `list`, of `group`. Returns what it is for its successor.
    fn launch(
        &self,
        group: &Group<'_>,
        family: Family,
        x: &Vectors,
        list: &[RowsProduct],
        from: From,
        before: Before,
    ) -> Result<Before, DriverError> {
        let (p, experts) = (self.places, group.experts);
        let shape = self.shape(group, x, list, before);
        let mut tasks: Box<RowsTasks> = Box::new(Zeroable::zeroed());
        let (mut blocks, mut bytes) = (0, 0);
        for (i, product) in list.iter().enumerate() {
            let task = self.task(family, x, product, experts, from);
            tasks.task[i] = task;
            tasks.first_block[i] = blocks;
            blocks += task.rows / task.part_rows * task.part_rows.div_ceil(shape.rows);
            bytes += u64::from(task.rows) * u64::from(task.row_bytes);
        }
        tasks.first_block[list.len()..].fill(blocks);
        tasks.n = list.len() as u32;
        let mut tiles = (x.rows as u32).div_ceil(shape.columns);
        tasks.columns = x.rows as u32;
        tasks.faults = self.pass.behind(p.faults, x.from);
        if let Some(experts) = experts {
            tiles = self.tiles(&shape, experts)?;
            tasks.columns = experts.pairs as u32;
            tasks.order = self.pass.at(p.order);
            tasks.tiles = self.pass.at(p.tiles);
            tasks.n_tiles = self.pass.at(p.n_tiles);
            // No more experts than pairs are read.
            bytes *= self.pass.config.experts.min(experts.pairs) as u64;
        }
        if shape.few.is_some() && experts.is_some() {
            // These deal out the rows of all tiles.
            (blocks, tiles) = (self.pass.room.processors, 1);
        }
        let mut grid = Grid::of([blocks, tiles, 1], [shape.threads, 1, 1]).with_smem(shape.smem);
        let mut after = Before::Any;
        if let Some(few) = shape.few {
            grid = grid.early();
            (tasks.tall, tasks.split, tasks.stages) = (few.tall, few.split, few.stages);
            tasks.deep = few.deep;
            tasks.apart = u32::from(before != Before::Any && experts.is_none());
            if tasks.apart == 0 {
                after = Before::Products { blocks, steps: few.steps };
            }
        }
        let kernel = self.pass.kernels.rows.product(family, shape.entry);
        self.pass.put_bytes(group.what, kernel, grid, Args::new().value(&*tasks), bytes)?;
        Ok(after)
    }

    fn task(
        &self,
        family: Family,
        x: &Vectors,
        product: &RowsProduct,
        experts: Option<&ByExpert<'_>>,
        from: From,
    ) -> RowsTask {
        let (pitch, scales) = rounded(x.k);
        let row_bytes =
            product.quant.row_bytes(product.cols).expect("a claimed tensor's row is whole blocks");
        let [q, scale] = self.rounded_at(x, from == From::Second);
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
            x_stride: x.stride as u32,
            x: if from == From::Unrounded { x.x } else { 0 },
        }
    }

    /// Vectors that meet a matrix: an expert of the published model has 57 of 2048 rows.
    fn columns(&self, group: &Group<'_>, x: &Vectors) -> usize {
        group.experts.map_or(x.rows, |experts| experts.pairs.div_ceil(self.pass.config.experts))
    }

    /// How blocks are laid out.
    fn shape(&self, group: &Group<'_>, x: &Vectors, list: &[RowsProduct], before: Before) -> RowsShape {
        self.few(group, x, list, before).unwrap_or_else(|| {
            let quants: Vec<Quant> = list.iter().map(|product| product.quant).collect();
            rows_shape(&quants, self.columns(group, x), self.pass.room.smem)
        })
    }

    /// The same for few vectors: no more blocks than there are multiprocessors, which run one at a time. Blocks that begin beside
    /// others have what these leave, if they do not take longer for it.
    fn few(&self, group: &Group<'_>, x: &Vectors, list: &[RowsProduct], before: Before) -> Option<RowsShape> {
        if self.columns(group, x) > FEW as usize {
            return None;
        }
        let quants: Vec<Quant> = list.iter().map(|product| product.quant).collect();
        let stretch = |product: &RowsProduct| {
            let parts = if product.part.is_none() { x.parts } else { 1 };
            ((product.rows / parts) as u32, parts as u32)
        };
        let stretches: Vec<_> = list.iter().map(stretch).collect();
        let room = self.pass.room;
        let warps = if group.half || group.experts.is_some() { FEW_WARPS / 2 } else { FEW_WARPS };
        let k = list.first().map_or(0, |product| product.cols);
        let few =
            Few { quants: &quants, k, stretches: &[], blocks: 0, experts: false, warps, room: room.smem };
        if let Some(experts) = group.experts {
            // Two pairs an expert, as a guess: how many there are is seen on the device.
            let guess = experts.pairs.div_ceil(2) as u32;
            let stretches: Vec<_> = stretches.iter().map(|(rows, n)| (*rows, n * guess)).collect();
            return Few { stretches: &stretches, blocks: room.processors, experts: true, ..few }.shape();
        }
        let of = |blocks: u32| Few { stretches: &stretches, blocks, ..few }.shape();
        if let Before::Products { blocks, steps } = before
            && blocks < room.processors
            && let Some(shape) = of(room.processors - blocks)
            && shape.few.is_some_and(|few| few.steps <= steps)
        {
            return Some(shape);
        }
        of(room.processors)
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
