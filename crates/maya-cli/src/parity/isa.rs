//! Level `isa`: every instruction set of this processor against the scalar, bit for bit: products of every format at the
//! row lengths the fixtures hold, and the f32 operations.

use anyhow::Result;
use quant_kernels::{Cpu, Isa, Matrix, Precision, Quant, Rows};

use super::golden::{Fixtures, Golden};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "isa";
/// Activation rows in a call: one, and numbers that leave remainders of every tile.
const BATCHES: [usize; 4] = [1, 2, 5, 9];
/// Lengths of f32 operations: below a lane group, whole ones, and remainders.
const LENGTHS: [usize; 8] = [1, 31, 32, 96, 192, 256, 288, 1023];

/// Compares every instruction set but the scalar.
pub fn run(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    for isa in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Scalar) {
        let subject = isa.to_string();
        let Some(cpu) = Cpu::with(isa) else {
            table.skipped(LEVEL, &subject, "this processor does not have it");
            continue;
        };
        for quant in Quant::ALL {
            let golden = fixtures.golden(&format!("quant/{}.safetensors", quant.name()))?;
            if let Some(golden) = golden.filter(|_| quant.family().is_some()) {
                let differing = products(quant, cpu, &golden)?;
                table.at_most(LEVEL, &subject, quant.name(), differing as f64, limit("isa.bits")?, "");
            }
        }
        for (name, operation) in OPERATIONS {
            let differing: usize =
                LENGTHS.iter().map(|n| different(&operation(Cpu::scalar(), *n), &operation(cpu, *n))).sum();
            table.at_most(LEVEL, &subject, *name, differing as f64, limit("isa.bits")?, "");
        }
    }
    Ok(())
}

/// Products that differ, over all batches, precisions and row lengths.
fn products(quant: Quant, cpu: Cpu, golden: &Golden) -> Result<usize> {
    let bytes = golden.u8s("raw")?;
    let rows = golden.shape("raw")?.first().copied().unwrap_or_default();
    let row_bytes = bytes.len() / rows.max(1);
    let mut differing = 0;
    for cols in (1..=16).map(|i| 32 * i) {
        let Some(cut) = quant.row_bytes(cols).filter(|cut| *cut <= row_bytes) else { continue };
        // Rows cut to their first blocks, so that lengths between whole super-blocks are met.
        let weights: Vec<u8> = bytes.chunks_exact(row_bytes).flat_map(|row| &row[..cut]).copied().collect();
        let matrix = Matrix::new(quant, rows, cols, &weights)?;
        for n in BATCHES {
            for precision in [Precision::Exact, Precision::Fast] {
                let expected = product(Cpu::scalar(), precision, matrix, n)?;
                differing += different(&expected, &product(cpu, precision, matrix, n)?);
            }
        }
    }
    Ok(differing)
}

fn product(cpu: Cpu, precision: Precision, matrix: Matrix<'_>, n: usize) -> Result<Vec<f32>> {
    let mut rows = Rows::new();
    rows.reset(n, matrix.cols()).copy_from_slice(&numbers(1, n * matrix.cols()));
    if let Some(family) = matrix.quant().family() {
        rows.prepare(cpu, family, &mut Vec::new());
    }
    let mut out = vec![0.0; matrix.rows() * n];
    cpu.matmul(precision, matrix, &rows, &mut out)?;
    Ok(out)
}

/// An f32 operation on made-up values of a given length.
type Operation = fn(Cpu, usize) -> Vec<f32>;

const OPERATIONS: &[(&str, Operation)] = &[
    ("dot", |cpu, n| vec![cpu.dot(&numbers(1, n), &numbers(2, n))]),
    ("dot_rows", |cpu, n| {
        let mut out = vec![0.0; 5];
        cpu.dot_rows(&numbers(1, n), &numbers(2, 5 * n), &mut out);
        out
    }),
    ("weighted_rows", |cpu, n| {
        let mut out = vec![0.0; n];
        cpu.weighted_rows(&numbers(1, 7), &numbers(2, 7 * n), &mut out);
        out
    }),
    ("exp", |cpu, n| changed(numbers(1, n), |x| cpu.exp(x))),
    ("sigmoid", |cpu, n| changed(numbers(1, n), |x| cpu.sigmoid(x))),
    ("silu", |cpu, n| changed(numbers(1, n), |x| cpu.silu(x))),
    ("softmax", |cpu, n| changed(numbers(1, n), |x| cpu.softmax(x))),
    ("swiglu", |cpu, n| changed(numbers(1, n), |x| cpu.swiglu(x, &numbers(2, n), 1.5))),
    ("rms_norm", |cpu, n| {
        let mut out = vec![0.0; n];
        cpu.rms_norm(&numbers(1, n), &numbers(2, n), 1e-5, &mut out);
        out
    }),
    ("add, axpy, scale_add", |cpu, n| {
        changed(numbers(1, n), |y| {
            cpu.add(&numbers(2, n), y);
            cpu.axpy(0.3, &numbers(3, n), y);
            cpu.scale_add(0.7, &numbers(4, n), y);
        })
    }),
    ("f16", |cpu, n| {
        let (mut halves, mut out) = (vec![0; n], vec![0.0; n]);
        cpu.narrow_f16(&numbers(1, n), &mut halves);
        cpu.widen_f16(&halves, &mut out);
        out
    }),
    ("kda_recurrence", |cpu, n| {
        let (d, n) = (64, n.min(9));
        let (mut state, mut out) = (numbers(1, d * d), vec![0.0; n * d]);
        let decay: Vec<f32> = numbers(2, n * d).iter().map(|v| v.abs() / 4.0).collect();
        let [q, k, v] = [3, 4, 5].map(|seed| numbers(seed, n * d));
        cpu.kda_recurrence(&mut state, d, &q, &k, &decay, &v, &numbers(6, n), &mut out);
        out.extend(state);
        out
    }),
    ("attend", |cpu, n| {
        let (heads, width) = (6, 128);
        let mut out = vec![0.0; heads * width];
        let (q, rows) = (numbers(1, heads * width), numbers(2, n * width));
        cpu.attend(&q, heads, &rows, width, 0.1, &mut Vec::new(), &mut out);
        out
    }),
    ("index_scores", |cpu, n| {
        let (heads, dim) = (11, 64);
        let mut out = vec![0.0; n];
        let (iq, iw, pooled) = (numbers(1, heads * dim), numbers(2, heads), numbers(3, n * dim));
        cpu.index_scores(&iq, &iw, &pooled, dim, 0.05, &mut out);
        out
    }),
];

fn changed(mut values: Vec<f32>, change: impl FnOnce(&mut [f32])) -> Vec<f32> {
    change(&mut values);
    values
}

/// Number of values whose bits differ.
fn different(a: &[f32], b: &[f32]) -> usize {
    assert_eq!(a.len(), b.len(), "both sides ran the same operation");
    a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count()
}

/// `n` values in (-4, 4), the same for the same seed: a linear congruence (Knuth's MMIX) is random enough for operands.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * 4.0
    };
    (0..n).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_counted() {
        let values = numbers(1, 100);
        let mut other = values.clone();
        other[7] = f32::from_bits(other[7].to_bits() ^ 1);
        assert_eq!((different(&values, &values), different(&values, &other)), (0, 1));
        assert!(values.iter().all(|v| v.abs() < 4.0 && *v != 0.0));
    }
}
