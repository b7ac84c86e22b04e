//! Device code for products of matrices with many vectors: units, numbers of formats, and shared memory.

use super::unit::Unit;
use std::cmp::Reverse;

use crate::{Family, Quant};

/// A file of the folder `kernels/`.
macro_rules! device_code {
    ($path:expr) => {
        include_str!(concat!("../../../../kernels/", $path))
    };
}

/// Headers of the quantised products, beside those of products with one vector.
macro_rules! headers {
    ($($name:literal)*) => {
        &[$(($name, device_code!(concat!("include/", $name)))),*]
    };
}

static QUANTISED: &[(&str, &str)] = headers!(
    "base.cuh" "packed.cuh" "wide.cuh" "codebook.cuh" "narrow.cuh" "mma.cuh" "tile.cuh"
    "digits.cuh" "partials.cuh" "products.cuh" "unpack.cuh" "unpack_book.cuh" "rows_product.cuh"
    "rows_few.cuh" "activation.cuh" "formats.cuh"
);
static VECTORS: &[(&str, &str)] = headers!("base.cuh" "canon.cuh" "activation.cuh");
static FLOATS: &[(&str, &str)] = headers!("base.cuh" "canon.cuh" "partials.cuh" "products.cuh");

/// Formats with 256 weights a block.
static WIDE: Unit = Unit {
    name: "product_wide",
    source: device_code!("rows/product_wide.cu"),
    headers: QUANTISED,
    entries: &["rows_wide", "rows_wide_small", "rows_wide_double"],
};

/// The same with few vectors.
static WIDE_FEW: Unit = Unit {
    name: "product_few",
    source: device_code!("rows/product_few.cu"),
    headers: QUANTISED,
    entries: &["rows_wide_few", "rows_book_few", "rows_wide_experts"],
};

/// Formats with 32.
static NARROW: Unit = Unit {
    name: "product_narrow",
    source: device_code!("rows/product_narrow.cu"),
    headers: QUANTISED,
    entries: &["rows_narrow", "rows_narrow_small", "rows_narrow_few", "rows_narrow_experts"],
};

/// Float weights; and SwiGLU for their inputs.
static FLOAT: Unit = Unit {
    name: "product_float",
    source: device_code!("rows/product_float.cu"),
    headers: FLOATS,
    entries: &["rows_float", "rows_swiglu"],
};

/// Vectors as bytes.
pub static QUANTIZE: Unit = Unit {
    name: "quantize",
    source: device_code!("rows/quantize.cu"),
    headers: VECTORS,
    entries: &["rows_quantize"],
};

/// The first two are those of the wide family, then one of the narrow and one of the float one.
pub(super) static UNITS: [&Unit; 5] = [&WIDE, &WIDE_FEW, &NARROW, &FLOAT, &QUANTIZE];

/// How a block of such a product is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsShape {
    /// Matrix rows of a block.
    pub rows: u32,
    /// Columns of a block.
    pub columns: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory.
    pub smem: u32,
    /// The entry's place among those of the family's units.
    pub entry: usize,
    /// Of a product with few vectors, which may begin early: it waits for its predecessor itself.
    pub few: Option<FewShape>,
}

/// What warps of a block do that multiplies few vectors (kernels/include/rows_few.cuh).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewShape {
    /// Warps that share a row.
    pub split: u32,
    /// Stages of a warp that are under way.
    pub stages: u32,
    /// Steps of 256 weights of a stage.
    pub deep: u32,
    /// Tiles of sixteen rows that a warp has, one after the other.
    pub tall: u32,
    /// Steps that it has in all of them.
    pub steps: u32,
}

/// A product with few vectors that is to be laid out.
#[derive(Clone, Copy, Debug)]
pub struct Few<'a> {
    /// Formats of the matrices, all of one family.
    pub quants: &'a [Quant],
    /// Weights of a row.
    pub k: usize,
    /// How many matrix rows meet the same vector, and how often there are so many.
    pub stretches: &'a [(u32, u32)],
    /// Blocks that shall not be exceeded.
    pub blocks: u32,
    /// Whether the matrices are those of experts, as many as the stretches say: their rows are dealt out among all blocks evenly.
    pub experts: bool,
    /// Warps of a block at most.
    pub warps: u32,
    /// Shared memory that a block can have, in bytes.
    pub room: u32,
}

/// The units of a family, whose entries are numbered one after the other.
#[must_use]
pub fn rows_units(family: Family) -> &'static [&'static Unit] {
    match family {
        Family::Wide => &UNITS[..2],
        Family::Narrow => &UNITS[2..3],
        Family::Float => &UNITS[3..4],
    }
}

/// A format's number in its family's unit, and copies of its codebook's entries in a large and in a small block.
const fn number_and_copies(quant: Quant) -> Option<(u32, [u32; 2])> {
    Some(match quant {
        Quant::Q6K | Quant::Q8_0 | Quant::F32 => (0, [0, 0]),
        Quant::Iq2Xxs => (1, [16, 4]),
        Quant::Iq2S => (2, [8, 2]),
        Quant::Iq3Xxs => (3, [16, 4]),
        Quant::Q2K => (4, [0, 0]),
        Quant::Q3K => (5, [0, 0]),
        Quant::Q4K => (6, [0, 0]),
        Quant::Q5K => (7, [0, 0]),
        Quant::Iq4Xs => (8, [0, 0]),
        Quant::Iq1S => (9, [4, 2]),
        Quant::Iq1M => (10, [4, 2]),
        Quant::Iq2Xs => (11, [8, 4]),
        Quant::Iq3S => (12, [8, 4]),
        Quant::Q4_0 | Quant::F16 => (1, [0, 0]),
        Quant::Q4_1 | Quant::Bf16 => (2, [0, 0]),
        Quant::Q5_0 => (3, [0, 0]),
        Quant::Q5_1 => (4, [0, 0]),
        Quant::Iq4Nl => (5, [0, 0]),
        Quant::Mxfp4 => (6, [0, 0]),
        _ => return None,
    })
}

/// A format's number in its family's unit (kernels/rows/product_*.cu); `None` for one without a fast product.
#[must_use]
pub fn rows_format(quant: Quant) -> Option<u32> {
    number_and_copies(quant).map(|(number, _)| number)
}

/// Chips that give a block less than this have only the small entries (kernels/include/products.cuh).
const LARGE_ROOM: u32 = 99 << 10;

/// The layout of a block for matrices of these formats, all of one family, that meet `columns` vectors, where a block can have `room`
/// bytes of shared memory.
#[must_use]
pub fn rows_shape(quants: &[Quant], columns: usize, room: u32) -> RowsShape {
    if quants.iter().all(|quant| quant.family() == Some(Family::Float)) {
        return RowsShape {
            rows: 32,
            columns: 32,
            threads: 256,
            smem: 2 * 2 * 32 * 128 * 4,
            entry: 0,
            few: None,
        };
    }
    let of = |rows: u32, columns: u32, entry: usize| {
        let smem = quants.iter().map(|quant| smem(*quant, rows, columns, entry)).max().unwrap_or(0);
        RowsShape { rows, columns, threads: 2 * rows, smem, entry, few: None }
    };
    let wide = quants.iter().all(|quant| quant.family() == Some(Family::Wide));
    let double = of(128, 128, 2);
    let dense = quants.iter().all(|quant| matches!(quant, Quant::Q4K | Quant::Q5K | Quant::Q6K));
    if dense && columns > 64 && room > LARGE_ROOM && double.smem <= room {
        return RowsShape { threads: 256, ..double };
    }
    let large = of(128, if wide { 64 } else { 32 }, 0);
    // With few columns most of a large block's products would be for nothing.
    if columns > 32 && room >= LARGE_ROOM && large.smem <= room { large } else { of(64, 32, 1) }
}

/// Vectors at most that the entries for few take.
pub const FEW: u32 = 8;
/// Matrix rows of a warp.
const FEW_ROWS: u32 = 16;

/// Bytes of a row in a stage at most.
const STAGE_BYTES: u32 = 480;

impl Few<'_> {
    /// The layout that takes the shortest, as far as a count of steps tells, with as many of a warp's steps under way as have room. `None`
    /// where there is no such entry or no room.
    #[must_use]
    pub fn shape(&self) -> Option<RowsShape> {
        let family = self.quants.first()?.family().filter(|family| *family != Family::Float)?;
        let books = has_codebook(*self.quants.first()?);
        let alike = |quant: &Quant| quant.family() == Some(family) && has_codebook(*quant) == books;
        if self.room < LARGE_ROOM || !self.quants.iter().all(alike) {
            return None;
        }
        let entry = match (family, books) {
            (Family::Wide, _) if self.experts => 5,
            (Family::Wide, true) => 4,
            (Family::Wide, false) => 3,
            _ if self.experts => 3,
            _ => 2,
        };
        let splits = [1, 2, 4, 8].into_iter().filter(|split| *split <= self.warps.min(self.steps_padded()));
        let few = splits.flat_map(|split| self.layouts(split)).flat_map(|(groups, few)| {
            let depths = [(3, 4), (3, 2), (3, 1), (2, 4), (2, 2), (2, 1)].into_iter();
            depths.map(move |(stages, deep)| (groups * few.split, FewShape { stages, deep, ..few }))
        });
        let step = self.quants.iter().map(|quant| step_bytes(*quant)).max().unwrap_or(0);
        let smem = |warps: u32, few: &FewShape| {
            self.smem(warps, few.split, few.stages * FEW_ROWS * raw_pitch_of(self.quants, few.deep))
        };
        let fitting = few.filter(|(warps, few)| {
            few.deep <= few.steps / few.tall
                && few.deep * step <= STAGE_BYTES
                && smem(*warps, few) <= self.room
        });
        let best = fitting
            .min_by_key(|(warps, few)| (cost(*warps, few), Reverse((few.stages * few.deep, few.deep))));
        best.map(|(warps, few)| RowsShape {
            rows: FEW_ROWS * (warps / few.split) * few.tall,
            columns: FEW,
            threads: 32 * warps,
            smem: smem(warps, &few),
            entry,
            few: Some(few),
        })
    }

    /// Groups of `split` warps of a block and what each has to do, so that there are not too many blocks: for each number of groups that
    /// is possible, or for dense matrices for each number of tiles the fewest groups.
    fn layouts(&self, split: u32) -> Vec<(u32, FewShape)> {
        let each = self.steps_padded() / split;
        let of = |tall: u32| FewShape { split, stages: 0, deep: 0, tall, steps: tall * each };
        let blocks = |groups: u32, tall: u32| -> u32 {
            self.stretches.iter().map(|(rows, n)| n * rows.div_ceil(FEW_ROWS * groups * tall)).sum()
        };
        let most = self.warps / split;
        if self.experts {
            let all = [most, most.div_ceil(2), most.div_ceil(4)];
            return all.map(|groups| (groups, of(blocks(groups, 1).div_ceil(self.blocks).max(1)))).to_vec();
        }
        let longest =
            self.stretches.iter().map(|(rows, _)| rows.div_ceil(FEW_ROWS)).max().unwrap_or(1).max(1);
        let of_tall = |tall: u32| {
            // The last resort has more blocks.
            let enough = |groups: &u32| blocks(*groups, tall) <= self.blocks || *groups * tall >= longest;
            (1..=most).find(enough).map(|groups| (groups, of(tall)))
        };
        // A warp more or less is another number of tiles; beyond twice the fewest there is nothing to gain.
        let fewest = (1..=longest).find(|tall| of_tall(*tall).is_some()).unwrap_or(longest);
        (fewest..=2 * fewest).filter_map(of_tall).collect()
    }

    /// Steps of a row, as many as its tree has leaves.
    fn steps_padded(&self) -> u32 {
        (self.k.div_ceil(256) as u32).next_power_of_two()
    }

    /// Shared memory of a block, with so many bytes of a warp's stages.
    fn smem(&self, warps: u32, split: u32, ring: u32) -> u32 {
        let steps = self.k.div_ceil(256) as u32;
        let of = |quant: &Quant| {
            let sums = if has_minima(*quant) { 256 } else { 0 };
            let scales = (steps * scales(*quant)).next_multiple_of(4) * 4 + 16;
            let values = if split > 1 { 512 } else { 0 };
            table_bytes(*quant, true) + steps * (2048 + sums) + FEW * scales + 32 + warps * (values + ring)
        };
        self.quants.iter().map(of).max().unwrap_or(0)
    }
}

/// How long a block takes, in sixteenths of a warp's step: all of its steps where sixteen warps share them, but no less than some of one
/// warp's; parts of a row that meet are about a step more.
fn cost(warps: u32, few: &FewShape) -> u32 {
    (warps * few.steps).max(10 * few.steps) + 16 * few.tall * u32::from(few.split > 1)
}

/// Bytes from row to row in a stage of so many steps.
fn raw_pitch_of(quants: &[Quant], steps: u32) -> u32 {
    quants.iter().map(|quant| raw_pitch(steps * step_bytes(*quant))).max().unwrap_or(0)
}

/// Bytes from one row's raw bytes to the next (kernels/include/rows_product.cuh).
const fn raw_pitch(bytes: u32) -> u32 {
    (((bytes + 30) / 16) | 1) * 16
}

/// Bytes of 256 weights.
fn step_bytes(quant: Quant) -> u32 {
    (256 / quant.block_len() * quant.block_bytes()) as u32
}

/// Scales of 256 activations.
fn scales(quant: Quant) -> u32 {
    if quant.family() == Some(Family::Narrow) { 8 } else { 1 }
}

/// Whether a codebook is in shared memory.
fn has_codebook(quant: Quant) -> bool {
    number_and_copies(quant).is_some_and(|(_, copies)| copies[0] > 0)
}

/// Whether sums of activations are kept, too.
const fn has_minima(quant: Quant) -> bool {
    matches!(quant, Quant::Q2K | Quant::Q4K | Quant::Q5K | Quant::Q4_1 | Quant::Q5_1)
}

/// Bytes of a format's tables in a large or in a small block.
fn table_bytes(quant: Quant, is_large: bool) -> u32 {
    let (_, copies) = number_and_copies(quant).unwrap_or_default();
    // IQ2_S's signs need no table.
    let words = if quant == Quant::Iq2S { 1024 } else { super::matvec_tables(quant).len() as u32 };
    (4 * words * copies[usize::from(!is_large)]).next_multiple_of(16)
}

/// The formula of kernels/include/rows_product.cuh.
fn smem(quant: Quant, rows: u32, columns: u32, entry: usize) -> u32 {
    let sums = if has_minima(quant) { 32 } else { 0 };
    table_bytes(quant, entry.is_multiple_of(2))
        + 2 * (rows * raw_pitch(step_bytes(quant)) + columns * (256 + 4 * scales(quant)))
        + columns * (8 + sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The large block fits an H100, the small one a Turing chip.
    #[test]
    fn every_format_fits() {
        for quant in Quant::ALL.into_iter().filter(|quant| quant.family().is_some()) {
            assert!(rows_format(quant).is_some(), "{}", quant.name());
            let (large, small) = (rows_shape(&[quant], 64, 227 << 10), rows_shape(&[quant], 64, 64 << 10));
            assert!(large.smem <= 227 << 10, "{}: {}", quant.name(), large.smem);
            assert!(small.smem <= 64 << 10, "{}: {}", quant.name(), small.smem);
            if quant.family() != Some(Family::Float) {
                assert_eq!((large.rows, small.rows, small.entry), (128, 64, 1), "{}", quant.name());
            }
        }
        // Q6_K: no table; twice 30 KB as they come and 16 KB of activations with a scale each; places of 64 columns.
        let q6_k = rows_shape(&[Quant::Q6K], 64, 227 << 10);
        assert_eq!(q6_k.smem, 2 * (128 * 240 + 64 * 260) + 64 * 8);
        // Two large blocks, each with one more KB, in 196.
        for quant in Quant::ALL.into_iter().filter(|quant| quant.family() == Some(Family::Wide)) {
            assert!(rows_shape(&[quant], 64, 227 << 10).smem <= 97 << 10, "{}", quant.name());
        }
        let more = rows_shape(&[Quant::Q6K, Quant::Q4K], 65, 227 << 10);
        assert_eq!((more.columns, more.entry), (128, 2));
        // Q2_K would fit Volta's 96 KB.
        assert_eq!(rows_shape(&[Quant::Q2K], 2048, 96 << 10).entry, 1);
        assert_eq!(rows_shape(&[Quant::Q6K, Quant::Iq2S], 65, 227 << 10).columns, 64);
    }

    fn few<'a>(quants: &'a [Quant], k: usize, stretches: &'a [(u32, u32)], room: u32) -> Few<'a> {
        Few { quants, k, stretches, blocks: 132, experts: false, warps: 16, room }
    }

    /// The published model's matrices on an H200: all multiprocessors have a block, whose steps are little more than the mean.
    #[test]
    fn few_vectors_fill_the_device() {
        for (rows, n, k) in [
            (8192, 3, 4096),
            (4096, 1, 8192),
            (4096, 1, 16384),
            (154_880, 1, 4096),
            (4096, 1, 4096),
            (512, 64, 256),
            (256, 64, 512),
        ] {
            let stretches = [(rows, n)];
            let few = few(&[Quant::Q6K], k, &stretches, 227 << 10);
            let shape = few.shape().unwrap();
            let own = shape.few.unwrap();
            let blocks = n * rows.div_ceil(shape.rows);
            assert!(
                (128..=132).contains(&blocks) && shape.smem <= 227 << 10,
                "{rows} x {k}: {blocks} blocks, {shape:?}"
            );
            let mean = f64::from(n * rows.div_ceil(16)) * f64::from(few.steps_padded()) / 132.0;
            let steps = f64::from(shape.threads / 32 * own.steps);
            assert!(steps < 1.1 * mean, "{rows} x {k}: {steps} steps, {mean} in the mean, {shape:?}");
        }
    }

    #[test]
    fn few_vectors_have_room_or_another_entry() {
        let stretches = [(4096, 1)];
        let warps = |quant: Quant, k, room| {
            few(&[quant], k, &stretches, room)
                .shape()
                .map(|shape| (shape.threads / 32, shape.few.unwrap().stages))
        };
        assert_eq!(warps(Quant::Q6K, 4096, 99 << 10), Some((8, 2)));
        assert_eq!(warps(Quant::Q6K, 16384, 99 << 10), None);
        assert_eq!(warps(Quant::Q6K, 4096, 64 << 10), None, "no such entry");
        assert_eq!(warps(Quant::Q8_0, 4096, 227 << 10), Some((16, 2)));
        assert_eq!(warps(Quant::Iq2S, 4096, 227 << 10), Some((16, 2)));
        assert_eq!(warps(Quant::F32, 4096, 227 << 10), None);
        let half = Few { warps: 8, ..few(&[Quant::Q6K], 4096, &stretches, 227 << 10) };
        assert_eq!(half.shape().map(|shape| shape.threads), Some(256));
        assert_eq!(
            few(&[Quant::Iq2S, Quant::Q6K], 4096, &stretches, 227 << 10).shape(),
            None,
            "one has a codebook"
        );
        // Gates and ups of thirty experts.
        let experts = Few { experts: true, ..few(&[Quant::Iq2Xxs], 4096, &[(2048, 60)], 227 << 10) };
        let shape = experts.shape().unwrap();
        assert!(shape.smem <= 227 << 10 && shape.few.unwrap().deep > 1, "{shape:?}");
    }

    /// Numbers of a family differ from each other.
    #[test]
    fn numbers_name_one_format() {
        let all: Vec<_> = Quant::ALL.into_iter().filter(|quant| quant.family().is_some()).collect();
        for (i, a) in all.iter().enumerate() {
            for b in all[..i].iter().filter(|b| b.family() == a.family()) {
                assert_ne!(rows_format(*a), rows_format(*b), "{} and {}", a.name(), b.name());
            }
        }
    }
}
