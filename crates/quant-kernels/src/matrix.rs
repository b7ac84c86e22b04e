//! Weight matrices in borrowed bytes, and what can be wrong with the sizes of a product.

use std::ops::Range;

use crate::Quant;

/// Sizes or formats that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ShapeError {
    #[error("a row of {cols} weights is no whole number of {quant} blocks of {block}", quant = .quant.name(), block = .quant.block_len())]
    RowLength { quant: Quant, cols: usize },
    #[error("{rows} rows of {cols} {quant} weights are more bytes than can be addressed", quant = .quant.name())]
    TooLarge { quant: Quant, rows: usize, cols: usize },
    #[error("{rows} rows of {cols} {quant} weights need {expected} bytes, {found} were given", quant = .quant.name())]
    Bytes { quant: Quant, rows: usize, cols: usize, expected: usize, found: usize },
    #[error("weight rows have {weights} columns, activation rows {activations}")]
    Columns { weights: usize, activations: usize },
    #[error("the output has room for {found} values, the product has {expected}")]
    Output { expected: usize, found: usize },
    #[error("the activations were not prepared for a fast product with {}", .quant.name())]
    NotPrepared { quant: Quant },
    #[error("{} has no fast product", .quant.name())]
    NoFastProduct { quant: Quant },
}

/// `rows` x `cols` weights of one format in borrowed bytes, row after row.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    quant: Quant,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// Sees `bytes` as a matrix.
    ///
    /// # Errors
    ///
    /// If `cols` is no whole number of blocks, or `bytes` is not exactly the size of the rows.
    pub fn new(quant: Quant, rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Self, ShapeError> {
        let row_bytes = quant.row_bytes(cols).ok_or(ShapeError::RowLength { quant, cols })?;
        let expected = row_bytes.checked_mul(rows).ok_or(ShapeError::TooLarge { quant, rows, cols })?;
        if bytes.len() != expected {
            return Err(ShapeError::Bytes { quant, rows, cols, expected, found: bytes.len() });
        }
        Ok(Self { quant, rows, cols, row_bytes, bytes })
    }

    /// The format.
    #[must_use]
    pub fn quant(&self) -> Quant {
        self.quant
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Weights of a row.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// All rows' bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of row `r`.
    ///
    /// # Panics
    ///
    /// If there is no row `r`.
    #[must_use]
    pub fn row(&self, r: usize) -> &'a [u8] {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        &self.bytes[r * self.row_bytes..(r + 1) * self.row_bytes]
    }

    /// Some of the rows.
    ///
    /// # Panics
    ///
    /// If the range does not lie inside `0..rows`.
    #[must_use]
    pub fn rows_range(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        let bytes = &self.bytes[range.start * self.row_bytes..range.end * self.row_bytes];
        Self { rows: range.len(), bytes, ..*self }
    }
}
