//! Products of weight rows and activation rows: checks and dispatch.

use crate::activation::{self, NonFinite};
use crate::rows::Quantized;
#[cfg(target_arch = "x86_64")]
use crate::x86;
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
            (self.kernels().exact)(w, x, out);
            return Ok(());
        }
        let family = family.ok_or(ShapeError::NoFastProduct { quant })?;
        let form = x.quantized(family).ok_or(ShapeError::NotPrepared { quant })?;
        (self.kernels().fast)(w, form, x.n(), out);
        Ok(())
    }

    /// Quantises one block of an activation row; see [`activation::quantize_block`].
    pub(crate) fn quantize_block(self, x: &[f32], q: &mut [i8], sums: &mut [i16]) -> Result<f32, NonFinite> {
        (self.kernels().quantize_block)(x, q, sums)
    }

    /// What its instruction set provides.
    fn kernels(self) -> &'static Kernels {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernels) = x86::kernels(self.isa()) {
            return kernels;
        }
        &SCALAR
    }
}

/// Quantises a block of activations; writes its sums and returns its scale.
type QuantizeBlock = fn(&[f32], &mut [i8], &mut [i16]) -> Result<f32, NonFinite>;

/// What an instruction set provides: every entry has the bits of [`SCALAR`]'s.
pub(crate) struct Kernels {
    /// Weights dequantised block by block, times f32 rows.
    pub(crate) exact: fn(Matrix<'_>, &Rows, &mut [f32]),
    /// Integer block products; the format has a wide or narrow family and the rows that form.
    pub(crate) fast: fn(Matrix<'_>, &Quantized, usize, &mut [f32]),
    /// A block of activations to 8 bits.
    pub(crate) quantize_block: QuantizeBlock,
}

/// The definition.
pub(crate) static SCALAR: Kernels =
    Kernels { exact: scalar::exact, fast: scalar::fast, quantize_block: activation::quantize_block };
