//! Matrix times one vector, per format and instruction set, in bytes of weights a second, beside what one core reads from
//! memory in the same run. The weights are 64 MiB, more than the caches hold: this is decoding.
//!
//! An argument picks: `matvec Q6_K` runs what holds this text; `read` is the read bandwidth.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quant_kernels::{Cpu, Isa, Matrix, Precision, Quant, Rows};

const COLS: usize = 4096;
const BYTES: usize = 64 << 20;
/// The scalar definition is some hundred times slower: it gets as many rows less.
const SCALAR_BYTES: usize = 1 << 18;

/// Bytes that look random; halves among them are finite and small.
fn weights(len: usize) -> Vec<u8> {
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

/// Sixteen sums keep every load independent of the others.
fn read(words: &[u64]) -> u64 {
    let mut sums = [0u64; 16];
    for line in words.as_chunks::<16>().0 {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

fn matvec(c: &mut Criterion) {
    let words: Vec<u64> = (0..BYTES as u64 / 8).collect();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(BYTES as u64));
    group.bench_function("one core", |b| b.iter(|| read(black_box(&words))));
    group.finish();

    let bytes = weights(BYTES);
    for quant in Quant::ALL {
        let precision = if quant.family().is_some() { Precision::Fast } else { Precision::Exact };
        let row_bytes = quant.row_bytes(COLS).expect("whole blocks");
        for isa in Isa::ALL {
            let Some(cpu) = Cpu::with(isa) else {
                eprintln!("SKIPPED {}/{isa}: this processor lacks it", quant.name());
                continue;
            };
            let rows = if isa == Isa::Scalar { SCALAR_BYTES } else { BYTES } / row_bytes;
            let bytes = &bytes[..rows * row_bytes];
            let w = Matrix::new(quant, rows, COLS, bytes).expect("sizes fit");
            let (mut x, mut out) = (Rows::new(), vec![0.0; rows]);
            for (i, x) in x.reset(1, COLS).iter_mut().enumerate() {
                *x = (i as f32 * 0.37).sin();
            }
            if let Some(family) = quant.family() {
                x.prepare(cpu, family, &mut Vec::new());
            }
            let mut group = c.benchmark_group(quant.name());
            group.throughput(Throughput::Bytes(bytes.len() as u64));
            group.bench_function(isa.to_string(), |b| {
                b.iter(|| cpu.matmul(precision, w, black_box(&x), &mut out).expect("sizes fit"));
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(10)
        .without_plots();
    targets = matvec
}
criterion_main!(benches);
