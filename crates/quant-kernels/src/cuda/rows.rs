//! Device code for products of matrices with many vectors: units, numbers of formats, and shared memory.

use super::unit::Unit;
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
    "rows_few.cuh"
);
static VECTORS: &[(&str, &str)] = headers!("base.cuh" "canon.cuh" "activation.cuh");
static FLOATS: &[(&str, &str)] = headers!("base.cuh" "canon.cuh" "partials.cuh" "products.cuh");

/// Formats with 256 weights a block.
static WIDE: Unit = Unit {
    name: "product_wide",
    source: device_code!("rows/product_wide.cu"),
    headers: QUANTISED,
    entries: &[
        "rows_wide",
        "rows_wide_small",
        "rows_wide_double",
        "rows_wide_few",
        "rows_book_few",
        "rows_wide_deep",
    ],
};

/// Formats with 32.
static NARROW: Unit = Unit {
    name: "product_narrow",
    source: device_code!("rows/product_narrow.cu"),
    headers: QUANTISED,
    entries: &["rows_narrow", "rows_narrow_small", "rows_narrow_few"],
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

pub(super) static UNITS: [&Unit; 4] = [&WIDE, &NARROW, &FLOAT, &QUANTIZE];

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
    /// The entry's place in the unit's list.
    pub entry: usize,
    /// Whether it may begin early: it waits for its predecessor itself.
    pub waits: bool,
}

/// The unit of a family.
#[must_use]
pub fn rows_unit(family: Family) -> &'static Unit {
    match family {
        Family::Wide => &WIDE,
        Family::Narrow => &NARROW,
        Family::Float => &FLOAT,
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

/// Columns of the entries for few vectors.
const FEW: u32 = 8;

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
            waits: false,
        };
    }
    let of = |rows: u32, columns: u32, entry: usize| {
        let smem = quants.iter().map(|quant| smem(*quant, rows, columns, entry)).max().unwrap_or(0);
        RowsShape { rows, columns, threads: 2 * rows, smem, entry, waits: false }
    };
    let wide = quants.iter().all(|quant| quant.family() == Some(Family::Wide));
    if columns <= FEW as usize && room >= LARGE_ROOM {
        let books = quants.iter().filter(|quant| has_codebook(**quant)).count();
        let few = if wide && books > 0 { of(128, FEW, 4) } else { few_shape(quants, wide, room) };
        let possible = books == 0 || quants.iter().all(|quant| has_codebook(*quant) || *quant == Quant::Q6K);
        if possible && few.smem <= room {
            return few;
        }
    }
    let double = of(128, 128, 2);
    let dense = quants.iter().all(|quant| matches!(quant, Quant::Q4K | Quant::Q5K | Quant::Q6K));
    if dense && columns > 64 && room > LARGE_ROOM && double.smem <= room {
        return RowsShape { threads: 256, ..double };
    }
    let large = of(128, if wide { 64 } else { 32 }, 0);
    // With few columns most of a large block's products would be for nothing.
    if columns > 32 && room >= LARGE_ROOM && large.smem <= room { large } else { of(64, 32, 1) }
}

/// The same product as that of `shape`, for matrices of few rows: sixteen of a block, and stages twice as long, so that the blocks are
/// twice as many. None where there is no such entry, or no room for two blocks.
#[must_use]
pub fn rows_shape_of_few_rows(shape: &RowsShape, quants: &[Quant], room: u32) -> Option<RowsShape> {
    let wide = quants.iter().all(|quant| quant.family() == Some(Family::Wide));
    if !(shape.waits && wide && room > LARGE_ROOM) {
        return None;
    }
    let smem = quants.iter().map(|quant| few_smem(*quant, 16, 8, 2)).max().unwrap_or(0);
    let entry = WIDE.entries.iter().position(|name| *name == "rows_wide_deep")?;
    (2 * smem <= room).then_some(RowsShape { rows: 16, smem, entry, ..*shape })
}

/// Thirty-two rows and four times 256 weights a stage: kernels/include/rows_few.cuh.
fn few_shape(quants: &[Quant], wide: bool, room: u32) -> RowsShape {
    let stages = if wide && room > LARGE_ROOM { 3 } else { 2 };
    let smem = quants.iter().map(|quant| few_smem(*quant, 32, 4, stages)).max().unwrap_or(0);
    RowsShape { rows: 32, columns: FEW, threads: 256, smem, entry: if wide { 3 } else { 2 }, waits: true }
}

/// Shared memory of a block of so many rows, parts of a stage and stages.
fn few_smem(quant: Quant, rows: u32, parts: u32, stages: u32) -> u32 {
    let sums = if has_minima(quant) { 256 * parts } else { 0 };
    stages * (rows * raw_pitch(parts * step_bytes(quant)) + parts * (2048 + 32 * scales(quant))) + 4192 + sums
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

/// The formula of kernels/include/rows_product.cuh.
fn smem(quant: Quant, rows: u32, columns: u32, entry: usize) -> u32 {
    let (_, copies) = number_and_copies(quant).unwrap_or_default();
    // IQ2_S's signs need no table.
    let words = if quant == Quant::Iq2S { 1024 } else { super::matvec_tables(quant).len() as u32 };
    let table = words * copies[entry % 2];
    let sums = if has_minima(quant) { 32 } else { 0 };
    (4 * table).next_multiple_of(16)
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

    /// Two blocks for few vectors fit a multiprocessor of 228 KB.
    #[test]
    fn few_columns_have_their_own() {
        let shape = |quants: &[Quant], columns, room| {
            let shape = rows_shape(quants, columns, room);
            (shape.rows, shape.columns, shape.entry, shape.smem)
        };
        assert_eq!(shape(&[Quant::Q6K], 8, 227 << 10), (32, 8, 3, 113_632));
        assert_eq!(shape(&[Quant::Q6K], 1, 99 << 10), (32, 8, 3, 77_152));
        assert_eq!(shape(&[Quant::Q8_0], 2, 227 << 10), (32, 8, 2, 93_280));
        assert_eq!(shape(&[Quant::Iq2S, Quant::Q6K], 8, 227 << 10), (128, 8, 4, 65_664));
        for (quants, columns, room) in [
            (&[Quant::Iq2S, Quant::Q4K][..], 8, 227 << 10),
            (&[Quant::Q6K][..], 9, 227 << 10),
            (&[Quant::Q6K][..], 8, 64 << 10),
        ] {
            assert_eq!(rows_shape(quants, columns, room).entry, 1, "{quants:?}, {columns} columns");
        }
        for quant in Quant::ALL.into_iter().filter(|quant| quant.family().is_some()) {
            let smem = rows_shape(&[quant], 8, 227 << 10).smem;
            assert!(smem <= 113 << 10, "{}: {smem}", quant.name());
        }
    }

    /// Sixteen rows a block, where two blocks of them have room.
    #[test]
    fn few_rows_have_deeper_stages() {
        let deep = |quant: Quant, columns, room| {
            let shape = rows_shape(&[quant], columns, room);
            rows_shape_of_few_rows(&shape, &[quant], room).map(|shape| (shape.rows, shape.entry, shape.smem))
        };
        assert_eq!(deep(Quant::Q6K, 8, 227 << 10), Some((16, 5, 92_256)));
        assert_eq!(deep(Quant::Q6K, 8, 99 << 10), None, "room for one block at most");
        assert_eq!(deep(Quant::Q8_0, 8, 227 << 10), None, "no such entry");
        assert_eq!(deep(Quant::Q6K, 9, 227 << 10), None, "not few vectors");
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
