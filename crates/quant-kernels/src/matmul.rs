//! Products of weight rows and activation rows: checks and dispatch.

use crate::activation::{self, NonFinite};
use crate::rows::RowMut;
use crate::{Cpu, Family, Matrix, Precision, Rows, ShapeError, scalar};

impl Cpu {
    /// `out[r * x.n() + t] = w.row(r) . x.row(t)` for every weight row r and activation row t.
    ///
    /// `Exact` dequantises block by block and multiplies f32 activations; it takes every format. `Fast` is the canonical
    /// arithmetic of docs/ARITHMETIC.md by the format's family, on activations that [`Rows::prepare`] quantised. A row's
    /// bits depend on that row alone, in both.
    ///
    /// # Errors
    ///
    /// If the sizes do not go together, the activations were not prepared, or the format has no fast product.
    pub fn matmul(
        self,
        precision: Precision,
        w: Matrix<'_>,
        x: &Rows,
        out: &mut [f32],
    ) -> Result<(), ShapeError> {
        let quant = w.quant();
        if w.cols() != x.cols() {
            return Err(ShapeError::Columns { weights: w.cols(), activations: x.cols() });
        }
        if w.rows().checked_mul(x.n()) != Some(out.len()) {
            let expected = w.rows().saturating_mul(x.n());
            return Err(ShapeError::Output { expected, found: out.len() });
        }
        let family = quant.family();
        if precision == Precision::Exact || family == Some(Family::Float) {
            scalar::exact(w, x, out);
            return Ok(());
        }
        let family = family.ok_or(ShapeError::NoFastProduct { quant })?;
        let form = x.quantized(family).ok_or(ShapeError::NotPrepared { quant })?;
        scalar::fast(w, form, x.n(), out);
        Ok(())
    }

    /// Quantises one activation row.
    pub(crate) fn quantize_row(self, x: &[f32], row: RowMut<'_>) -> Result<(), NonFinite> {
        activation::quantize_row(x, row)
    }
}
