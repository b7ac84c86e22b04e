//! Speed of the products of weights and activations, in bytes of weights a second, for every vector instruction set of
//! this machine. One activation row is decoding, four a batch, 64 a long prompt. The weights are 256 rows of 4,096: small
//! enough for a second-level cache or near it, so that the arithmetic is measured and not the memory.
//!
//! An argument picks: `products 'fast/Q6_K'` runs what holds this text.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quant_kernels::{Cpu, Isa, Matrix, Precision, Quant, Rows};

const ROWS: usize = 256;
const COLS: usize = 4096;

/// Bytes that look random; halves among them are finite and small.
fn weights(quant: Quant) -> Vec<u8> {
    let len = quant.row_bytes(COLS).expect("whole blocks") * ROWS;
    let mut state = 0x9e37_79b9_u32;
    let bytes = (0..len).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // The top bits of a half's exponent are 0, wherever it lies.
        (state >> 24) as u8 & 0xbf
    });
    bytes.collect()
}

fn products(c: &mut Criterion) {
    let cpus: Vec<Cpu> = [Isa::Avx2, Isa::Avx512].into_iter().filter_map(Cpu::with).collect();
    for isa in Isa::ALL {
        if !isa.is_available() {
            eprintln!("SKIPPED: {isa} is not available on this processor");
        }
    }
    for (precision, name, formats, batches) in [
        (
            Precision::Fast,
            "fast",
            [
                Quant::Q6K,
                Quant::Q8_0,
                Quant::Q4K,
                Quant::Q5K,
                Quant::Q3K,
                Quant::Q2K,
                Quant::Iq2Xxs,
                Quant::Iq2Xs,
                Quant::Iq2S,
                Quant::Iq3Xxs,
                Quant::Iq3S,
                Quant::Iq1S,
                Quant::Iq1M,
                Quant::Iq4Xs,
                Quant::Iq4Nl,
                Quant::Q4_0,
                Quant::Q5_1,
                Quant::Mxfp4,
            ]
            .as_slice(),
            [1, 4, 8, 64].as_slice(),
        ),
        (
            Precision::Exact,
            "exact",
            &[Quant::Q6K, Quant::Iq2Xxs, Quant::Q8_0, Quant::F16, Quant::F32],
            &[1, 4, 64],
        ),
    ] {
        for &quant in formats {
            let bytes = weights(quant);
            let w = Matrix::new(quant, ROWS, COLS, &bytes).expect("sizes fit");
            let mut group = c.benchmark_group(format!("{name}/{}", quant.name()));
            group.throughput(Throughput::Bytes(bytes.len() as u64));
            for &n in batches {
                let mut out = vec![0.0; ROWS * n];
                for &cpu in &cpus {
                    let mut x = Rows::new();
                    for (i, x) in x.reset(n, COLS).iter_mut().enumerate() {
                        *x = (i as f32 * 0.37).sin();
                    }
                    if let Some(family) = quant.family() {
                        x.prepare(cpu, family, &mut Vec::new());
                    }
                    group.bench_function(format!("{n} rows/{}", cpu.isa()), |b| {
                        b.iter(|| cpu.matmul(precision, w, black_box(&x), &mut out).expect("sizes fit"));
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(60))
        .measurement_time(Duration::from_millis(200))
        .sample_size(10)
        .without_plots();
    targets = products
}
criterion_main!(benches);
