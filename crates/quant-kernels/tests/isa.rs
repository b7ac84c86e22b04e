//! Every instruction set gives the scalar's bits, and a row's bits do not depend on the rows around it.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use quant_kernels::{Cpu, Family, Isa, Matrix, Precision, Quant, Rows};

fn cpus() -> Vec<Cpu> {
    let (present, absent): (Vec<_>, Vec<_>) =
        [Isa::Avx2, Isa::Avx512].into_iter().partition(|isa| isa.is_available());
    for isa in absent {
        golden::skipped(format_args!("{isa}: this processor does not have it"));
    }
    present.into_iter().filter_map(Cpu::with).collect()
}

/// A generator that needs no state beyond a number (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// What the bytes of the weights look like.
#[derive(Clone, Copy, Debug)]
enum Bytes {
    /// Any bytes: scales may be infinite or NaN.
    Any,
    /// Any bytes, with halves and floats that are finite.
    Finite,
    Zero,
    /// All bits set but the exponents' top ones: the largest finite scales, the largest quantised values.
    Extreme,
}

/// Offsets of halves in a block.
fn halves(quant: Quant) -> &'static [usize] {
    match quant {
        Quant::Q4_1 | Quant::Q5_1 | Quant::Q4K | Quant::Q5K => &[0, 2],
        Quant::Q2K => &[80, 82],
        Quant::Q3K => &[108],
        Quant::Q6K => &[208],
        Quant::Tq1_0 => &[52],
        Quant::Tq2_0 => &[64],
        Quant::Iq1M | Quant::Mxfp4 | Quant::Nvfp4 | Quant::F32 | Quant::Bf16 => &[],
        _ => &[0],
    }
}

fn weights(quant: Quant, rows: usize, cols: usize, kind: Bytes, random: &mut Random) -> Vec<u8> {
    let len = quant.row_bytes(cols).unwrap() * rows;
    let mut bytes: Vec<u8> = match kind {
        Bytes::Zero => return vec![0; len],
        Bytes::Extreme => vec![0xff; len],
        Bytes::Any | Bytes::Finite => (0..len).map(|_| random.next() as u8).collect(),
    };
    if matches!(kind, Bytes::Any) {
        return bytes;
    }
    for block in bytes.chunks_exact_mut(quant.block_bytes()) {
        for &at in halves(quant) {
            // The largest exponent means infinity or NaN.
            if block[at + 1] & 0x7c == 0x7c {
                block[at + 1] &= 0xfb;
            }
        }
        match quant {
            // The exponent of the half lies in the top nibble of the fourth scale word and the third's.
            Quant::Iq1M => block[55] &= 0xbf,
            Quant::F32 => block[3] &= 0xbf,
            Quant::Bf16 => block[1] &= 0xbf,
            _ => {}
        }
    }
    bytes
}

fn activations(n: usize, cols: usize, random: &mut Random) -> Vec<f32> {
    let mut x = vec![0.0; n * cols];
    for block in x.chunks_mut(32) {
        // Magnitudes from far below the smallest scale to near the largest, and whole blocks of zero.
        let scale = match random.below(8) {
            0 => 0.0,
            1 => 1e-32,
            2 => 1e30,
            3 => 1e-20,
            _ => 1.0,
        };
        for x in block {
            *x = (random.next() as i32 as f32) * 2f32.powi(-31) * scale;
        }
    }
    x
}

/// NaN is only NaN: which of two NaNs comes out of a sum is not defined.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

struct Case {
    quant: Quant,
    rows: usize,
    cols: usize,
    n: usize,
    bytes: Vec<u8>,
    x: Vec<f32>,
}

impl Case {
    fn product(&self, cpu: Cpu, precision: Precision, rows: std::ops::Range<usize>, x: &[f32]) -> Vec<f32> {
        let w = Matrix::new(self.quant, self.rows, self.cols, &self.bytes).unwrap().rows_range(rows);
        let n = x.len() / self.cols;
        let (mut form, mut bad, mut out) = (Rows::new(), Vec::new(), vec![f32::NAN; w.rows() * n]);
        form.reset(n, self.cols).copy_from_slice(x);
        if let Some(family) = self.quant.family() {
            form.prepare(cpu, family, &mut bad);
        }
        assert!(bad.is_empty());
        cpu.matmul(precision, w, &form, &mut out).unwrap();
        out
    }

    fn precisions(&self) -> &'static [Precision] {
        match self.quant.family() {
            Some(Family::Wide | Family::Narrow) => &[Precision::Exact, Precision::Fast],
            _ => &[Precision::Exact],
        }
    }

    fn check(&self, cpus: &[Cpu]) -> Result<(), TestCaseError> {
        let name = self.quant.name();
        for &precision in self.precisions() {
            let golden = self.product(Cpu::scalar(), precision, 0..self.rows, &self.x);
            for &cpu in cpus {
                let ours = self.product(cpu, precision, 0..self.rows, &self.x);
                for (i, (a, b)) in golden.iter().zip(&ours).enumerate() {
                    let (r, t) = (i / self.n, i % self.n);
                    prop_assert!(
                        same(*a, *b),
                        "{name} {precision:?} row {r} column {t}: {a:e} {b:e} {}",
                        cpu.isa()
                    );
                }
                // One weight row and one activation row alone.
                let (r, t) = (self.rows - 1, self.n / 2);
                let alone = self.product(cpu, precision, r..r + 1, &self.x[t * self.cols..][..self.cols]);
                let (a, b) = (golden[r * self.n + t], alone[0]);
                prop_assert!(same(a, b), "{name} {precision:?} alone, row {r} column {t}: {a:e} {b:e}");
            }
        }
        Ok(())
    }
}

fn case(quant: Quant, rows: usize, blocks: usize, n: usize, kind: Bytes, seed: u64) -> Case {
    let mut random = Random(seed);
    let cols = blocks * quant.block_len();
    let bytes = weights(quant, rows, cols, kind, &mut random);
    let x = activations(n, cols, &mut random);
    Case { quant, rows, cols, n, bytes, x }
}

/// Blocks of a row: every shape of the tree's start, and lengths that leave the last 256 columns short.
fn blocks(quant: Quant) -> BoxedStrategy<usize> {
    match quant.block_len() {
        256 => (1usize..20).boxed(),
        1 => prop_oneof![1usize..70, 200usize..600, Just(1152usize)].boxed(),
        _ => prop_oneof![1usize..20, 60usize..70].boxed(),
    }
}

#[test]
fn every_instruction_set_has_the_scalar_bits() {
    let cpus = cpus();
    let kind = prop_oneof![
        4 => Just(Bytes::Finite),
        1 => Just(Bytes::Any),
        1 => Just(Bytes::Extreme),
        1 => Just(Bytes::Zero),
    ];
    for quant in Quant::ALL {
        let mut runner =
            TestRunner::new(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() });
        let shape = (1usize..10, blocks(quant), 1usize..18, kind.clone(), any::<u64>());
        runner
            .run(&shape, |(rows, blocks, n, kind, seed)| {
                case(quant, rows, blocks, n, kind, seed).check(&cpus)
            })
            .unwrap();
    }
}

#[test]
fn many_activation_rows_have_the_scalar_bits() {
    let cpus = cpus();
    // Tiles of 4, 16 and 32 weight rows and of 8, 32 and 64 activation rows, whole and not.
    for quant in Quant::ALL {
        let blocks = 768usize.div_ceil(quant.block_len());
        for (rows, n) in [(5, 63), (16, 8), (17, 64), (33, 13), (40, 65)] {
            case(quant, rows, blocks, n, Bytes::Finite, n as u64).check(&cpus).unwrap();
        }
        case(quant, 32, blocks, 20, Bytes::Extreme, 1).check(&cpus).unwrap();
        case(quant, 32, blocks, 20, Bytes::Any, 2).check(&cpus).unwrap();
    }
    case(Quant::Q6K, 5, 2, 131, Bytes::Finite, 3).check(&cpus).unwrap();
    case(Quant::Q5_1, 5, 16, 131, Bytes::Finite, 4).check(&cpus).unwrap();
}

#[test]
fn quantised_activations_do_not_depend_on_the_instruction_set() {
    // Seen through a product with weights that pick single values: identity rows in Q8_0 with scale 1.
    let cols = 64;
    let mut bytes = Vec::new();
    for r in 0..cols {
        for b in 0..cols / 32 {
            bytes.extend_from_slice(&0x3c00u16.to_le_bytes());
            bytes.extend((0..32).map(|i| u8::from(b * 32 + i == r)));
        }
    }
    let mut random = Random(7);
    for round in 0..200 {
        // Quotients near ties: small integers and halves times a scale that is or is not a power of two.
        let scale = if round % 2 == 0 { 1.0 } else { 0.1 + random.below(1000) as f32 };
        let mut x: Vec<f32> = (0..cols).map(|_| (random.below(509) as f32 - 254.0) * 0.5 * scale).collect();
        x[0] = 127.0 * scale;
        x[32] = -127.0 * scale;
        let case = Case { quant: Quant::Q8_0, rows: cols, cols, n: 1, bytes: bytes.clone(), x };
        case.check(&cpus()).unwrap();
    }
}

#[test]
fn nothing_times_nothing_is_nothing() {
    let mut cpus = cpus();
    cpus.push(Cpu::scalar());
    for quant in Quant::ALL {
        for (rows, blocks, n) in [(0, 1, 1), (0, 3, 20), (3, 0, 1), (3, 0, 20), (3, 1, 0), (0, 0, 0)] {
            let case = case(quant, rows, blocks, n, Bytes::Finite, 1);
            let w = Matrix::new(quant, rows, case.cols, &case.bytes).unwrap();
            let (mut x, mut bad, mut out) = (Rows::new(), Vec::new(), vec![f32::NAN; rows * n]);
            for &cpu in &cpus {
                x.reset(n, case.cols).copy_from_slice(&case.x);
                for &precision in case.precisions() {
                    if let Some(family) = quant.family() {
                        x.prepare(cpu, family, &mut bad);
                    }
                    cpu.matmul(precision, w, &x, &mut out).unwrap();
                    assert!(blocks > 0 || out.iter().all(|out| out.to_bits() == 0), "{}", quant.name());
                }
            }
        }
    }
}
