//! Every format against GGML's bytes, values and products (fixtures `quant/*.safetensors`).

#![allow(clippy::unwrap_used)]

use quant_kernels::{Cpu, Family, Isa, Matrix, Precision, Quant, Rows, ShapeError, dequantize};
use safetensors::{SafeTensors, tensor::TensorView};

/// 8 rows of 512 weights and one activation row.
const ROWS: usize = 8;
const COLS: usize = 512;

struct Fixture {
    raw: Vec<u8>,
    dequantized: Vec<f32>,
    x: Vec<f32>,
    dot: Vec<f64>,
    dot_abs: Vec<f64>,
    dot_q8: Vec<f32>,
}

fn values<const N: usize, T>(tensor: &TensorView<'_>, value: impl Fn([u8; N]) -> T) -> Vec<T> {
    tensor.data().as_chunks().0.iter().map(|bytes| value(*bytes)).collect()
}

impl Fixture {
    fn load(quant: Quant) -> Option<Self> {
        let path = golden::file(&format!("quant/{}.safetensors", quant.name()))?;
        let bytes = std::fs::read(path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |name| file.tensor(name).unwrap();
        Some(Self {
            raw: tensor("raw").data().to_vec(),
            dequantized: values(&tensor("deq"), f32::from_le_bytes),
            x: values(&tensor("x"), f32::from_le_bytes),
            dot: values(&tensor("dot_f64"), f64::from_le_bytes),
            dot_abs: values(&tensor("dot_abs"), f64::from_le_bytes),
            dot_q8: values(&tensor("dot_q8"), f32::from_le_bytes),
        })
    }

    fn product(&self, cpu: Cpu, quant: Quant, precision: Precision) -> Result<Vec<f32>, ShapeError> {
        let w = Matrix::new(quant, ROWS, COLS, &self.raw).unwrap();
        let (mut x, mut bad, mut out) = (Rows::new(), Vec::new(), vec![f32::NAN; ROWS]);
        x.reset(1, COLS).copy_from_slice(&self.x);
        if let Some(family) = quant.family() {
            x.prepare(cpu, family, &mut bad);
        }
        assert!(bad.is_empty());
        cpu.matmul(precision, w, &x, &mut out)?;
        Ok(out)
    }
}

fn cpus() -> impl Iterator<Item = Cpu> {
    Isa::ALL.into_iter().filter_map(|isa| {
        let cpu = Cpu::with(isa);
        if cpu.is_none() {
            golden::skipped(format_args!("{isa}: this processor does not have it"));
        }
        cpu
    })
}

/// The fixtures hold no F32 file: its bytes are the values.
fn formats() -> impl Iterator<Item = (Quant, Fixture)> {
    let files = Quant::ALL.into_iter().filter(|&quant| quant != Quant::F32);
    files.filter_map(|quant| Some((quant, Fixture::load(quant)?)))
}

#[test]
fn dequantized_values_have_ggml_bits() {
    for (quant, fixture) in formats() {
        let mut ours = vec![0.0; ROWS * COLS];
        dequantize(quant, &fixture.raw, &mut ours).unwrap();
        for (i, (ours, golden)) in ours.iter().zip(&fixture.dequantized).enumerate() {
            assert_eq!(ours.to_bits(), golden.to_bits(), "{} weight {i}: {ours} {golden}", quant.name());
        }
    }
}

#[test]
fn exact_products_are_within_1e_6_of_the_sum_of_magnitudes() {
    for (quant, fixture) in formats() {
        for cpu in cpus() {
            let ours = fixture.product(cpu, quant, Precision::Exact).unwrap();
            for (r, &ours) in ours.iter().enumerate() {
                let error = (f64::from(ours) - fixture.dot[r]).abs();
                let allowed = 1e-6 * fixture.dot_abs[r];
                assert!(error <= allowed, "{} {} row {r}: {error} > {allowed}", quant.name(), cpu.isa());
            }
        }
    }
}

#[test]
fn fast_products_are_within_1e_3_of_those_with_ggml_activations() {
    for (quant, fixture) in formats() {
        for cpu in cpus() {
            let ours = match fixture.product(cpu, quant, Precision::Fast) {
                Ok(ours) => ours,
                Err(error) => {
                    assert_eq!(error, ShapeError::NoFastProduct { quant });
                    assert!(matches!(quant, Quant::Tq1_0 | Quant::Tq2_0 | Quant::Nvfp4), "{error}");
                    continue;
                }
            };
            for (r, &ours) in ours.iter().enumerate() {
                let error = f64::from((ours - fixture.dot_q8[r]).abs());
                let allowed = 1e-3 * fixture.dot_abs[r];
                assert!(error <= allowed, "{} {} row {r}: {error} > {allowed}", quant.name(), cpu.isa());
            }
        }
    }
}

#[test]
fn every_format_but_three_has_a_fast_product() {
    for quant in Quant::ALL {
        let none = matches!(quant, Quant::Tq1_0 | Quant::Tq2_0 | Quant::Nvfp4);
        assert_eq!(quant.family().is_none(), none, "{}", quant.name());
        let wide = quant.family() == Some(Family::Wide);
        assert!(!wide || quant.block_len() == 256, "{}", quant.name());
        assert_eq!(Quant::from_ggml_id(u32::MAX), None);
    }
    assert_eq!(Quant::from_ggml_id(16), Some(Quant::Iq2Xxs));
    assert_eq!(Quant::from_ggml_id(39).map(Quant::name), Some("MXFP4"));
}

#[test]
fn sizes_that_do_not_fit_are_named() {
    let error = Matrix::new(Quant::Q6K, 2, 288, &[]).unwrap_err();
    assert_eq!(error.to_string(), "a row of 288 weights is no whole number of Q6_K blocks of 256");
    let error = Matrix::new(Quant::Q8_0, 2, 64, &[0; 135]).unwrap_err();
    assert_eq!(error.to_string(), "2 rows of 64 Q8_0 weights need 136 bytes, 135 were given");
    assert!(matches!(Matrix::new(Quant::F32, usize::MAX, 64, &[]), Err(ShapeError::TooLarge { .. })));
    let w = Matrix::new(Quant::Q8_0, 2, 32, &[0; 68]).unwrap();
    let (cpu, mut x) = (Cpu::scalar(), Rows::new());
    x.reset(1, 64).fill(0.0);
    let error = cpu.matmul(Precision::Fast, w, &x, &mut [0.0; 2]).unwrap_err();
    assert_eq!(error.to_string(), "weight rows have 32 columns, activation rows 64");
    x.reset(1, 32).fill(0.0);
    let error = cpu.matmul(Precision::Fast, w, &x, &mut [0.0; 3]).unwrap_err();
    assert_eq!(error.to_string(), "the output has room for 3 values, the product has 2");
    let error = cpu.matmul(Precision::Fast, w, &x, &mut [0.0; 2]).unwrap_err();
    assert_eq!(error.to_string(), "the activations were not prepared for a fast product with Q8_0");
    let w = Matrix::new(Quant::Nvfp4, 1, 64, &[0; 36]).unwrap();
    x.reset(1, 64).fill(0.0);
    let error = cpu.matmul(Precision::Fast, w, &x, &mut [0.0; 1]).unwrap_err();
    assert_eq!(error.to_string(), "NVFP4 has no fast product");
}
