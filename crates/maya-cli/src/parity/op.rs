//! Level `op`: block formats. Dequantised values against ggml's bit for bit, and products of a weight row and an
//! activation row.

use anyhow::Result;
use quant_kernels::{Cpu, Matrix, Precision, Quant, Rows, ShapeError, dequantize};

use super::golden::{Fixtures, Golden};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "op";

/// Compares every format.
pub fn run(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    for quant in Quant::ALL {
        // F32 has no golden file: its values are its bytes.
        if quant == Quant::F32 {
            continue;
        }
        match fixtures.golden(&format!("quant/{}.safetensors", quant.name()))? {
            Some(golden) => compare(quant, &golden, table)?,
            None => table.skipped(LEVEL, quant.name(), "its golden file is not here"),
        }
    }
    Ok(())
}

fn compare(quant: Quant, golden: &Golden, table: &mut Table) -> Result<()> {
    let expected = golden.f32s("deq")?;
    let bytes = golden.u8s("raw")?;
    let mut found = vec![0.0; expected.len()];
    dequantize(quant, bytes, &mut found)?;
    let differing = found.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let name = quant.name();
    table.at_most(LEVEL, name, "dequantised bits", differing as f64, limit("op.dequantise")?, "");

    let x = golden.f32s("x")?;
    let scale = golden.f64s("dot_abs")?;
    let matrix = Matrix::new(quant, scale.len(), x.len(), bytes)?;
    let mut rows = Rows::new();
    rows.reset(1, x.len()).copy_from_slice(&x);
    let cpu = Cpu::detect();
    let mut out = vec![0.0; scale.len()];
    cpu.matmul(Precision::Exact, matrix, &rows, &mut out)?;
    let (worst, note) = worst(&out, &golden.f64s("dot_f64")?, &scale);
    table.at_most(LEVEL, name, "product, exact", worst, limit("op.dot-exact")?, note);

    let Some(family) = quant.family() else {
        let refusal = cpu.matmul(Precision::Fast, matrix, &rows, &mut out);
        let refused = matches!(refusal, Err(ShapeError::NoFastProduct { .. }));
        table.holds(LEVEL, name, "product, fast", refused, "has none and must be refused");
        return Ok(());
    };
    let mut bad = Vec::new();
    rows.prepare(cpu, family, &mut bad);
    cpu.matmul(Precision::Fast, matrix, &rows, &mut out)?;
    let (worst, note) = self::worst(&out, &golden.f64s("dot_q8")?, &scale);
    table.at_most(LEVEL, name, "product, fast", worst, limit("op.dot-fast")?, note);
    Ok(())
}

/// The largest error in units of `scale`, and where it lies.
fn worst(found: &[f32], expected: &[f64], scale: &[f64]) -> (f64, String) {
    let errors = found.iter().zip(expected).zip(scale).map(|((f, e), s)| (f64::from(*f) - e).abs() / s);
    let (at, worst) = errors.enumerate().fold((0, 0.0), |best: (usize, f64), (i, error)| {
        // A NaN must become the worst, not vanish.
        if error > best.1 || error.is_nan() { (i, error) } else { best }
    });
    (worst, format!("row {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_error_is_relative_and_never_hides_a_nan() {
        assert_eq!(worst(&[1.0, 2.0], &[1.0, 1.0], &[1.0, 4.0]), (0.25, "row 1".to_owned()));
        assert!(worst(&[f32::NAN, 1.0], &[1.0, 1.0], &[1.0, 1.0]).0.is_nan());
    }
}
