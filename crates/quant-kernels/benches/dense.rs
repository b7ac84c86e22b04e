//! Speed of the f32 side, at the sizes of the real model. Elements a second are fused multiply-adds a second for dot,
//! attend and index; state elements a second (four operations each) for kda; values a second for exp and softmax.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quant_kernels::{Cpu, Isa};

/// Values in (-1, 1) that look random and are the same in every run.
fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// The vector instruction sets of this machine; the scalar definition is some fifty times slower.
fn vector() -> impl Iterator<Item = Cpu> {
    [Isa::Avx2, Isa::Avx512].into_iter().filter_map(Cpu::with)
}

fn dot(c: &mut Criterion) {
    let mut group = c.benchmark_group("dot");
    for len in [128_usize, 512, 4096, 65536] {
        let (a, b) = (values(len, 1), values(len, 2));
        group.throughput(Throughput::Elements(len as u64));
        for cpu in vector() {
            group.bench_function(format!("{}/{len}", cpu.isa()), |x| {
                x.iter(|| cpu.dot(black_box(&a), black_box(&b)));
            });
        }
    }
    // The mHC mixer: 24 rows of 16,384 against one vector.
    let (a, rows) = (values(16384, 1), values(24 * 16384, 2));
    let mut out = vec![0.0; 24];
    group.throughput(Throughput::Elements(24 * 16384));
    for cpu in vector() {
        group.bench_function(format!("{}/rows 24x16384", cpu.isa()), |x| {
            x.iter(|| cpu.dot_rows(black_box(&a), black_box(&rows), &mut out));
        });
    }
    group.finish();
}

fn attend(c: &mut Criterion) {
    let mut group = c.benchmark_group("attend");
    let width = 512;
    for (heads, n) in [(64_usize, 64_usize), (64, 2051), (8, 2051)] {
        let (q, rows) = (values(heads * width, 3), values(n * width, 4));
        let (mut scores, mut out) = (Vec::new(), vec![0.0; heads * width]);
        group.throughput(Throughput::Elements((2 * heads * n * width) as u64));
        for cpu in vector() {
            group.bench_function(format!("{}/{heads}x{n}x{width}", cpu.isa()), |x| {
                x.iter(|| cpu.attend(black_box(&q), heads, &rows, width, 0.0625, &mut scores, &mut out));
            });
        }
    }
    group.finish();
}

fn index(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    let (heads, dim, pools) = (32, 128, 4096);
    let (iq, iw, pooled) = (values(heads * dim, 5), values(heads, 6), values(pools * dim, 7));
    let mut out = vec![0.0; pools];
    group.throughput(Throughput::Elements((heads * dim * pools) as u64));
    for cpu in vector() {
        group.bench_function(format!("{}/{heads}x{pools}x{dim}", cpu.isa()), |x| {
            x.iter(|| cpu.index_scores(black_box(&iq), &iw, &pooled, dim, 1.0 / 64.0, &mut out));
        });
    }
    group.finish();
}

fn kda(c: &mut Criterion) {
    let mut group = c.benchmark_group("kda");
    let d = 128;
    for n in [1_usize, 64] {
        let heads = 64;
        let (q, k, v) = (values(n * d, 8), values(n * d, 9), values(n * d, 10));
        let k: Vec<f32> = k.iter().map(|x| x * 0.08).collect();
        let decay: Vec<f32> = values(n * d, 11).iter().map(|x| 0.9 + 0.1 * x).collect();
        let beta: Vec<f32> = values(n, 12).iter().map(|x| 0.5 + 0.4 * x).collect();
        let mut states = values(heads * d * d, 13);
        let mut o = vec![0.0; n * d];
        group.throughput(Throughput::Elements((heads * n * d * d) as u64));
        for cpu in vector() {
            group.bench_function(format!("{}/64 heads x {n} tokens", cpu.isa()), |x| {
                x.iter(|| {
                    for state in states.chunks_exact_mut(d * d) {
                        cpu.kda_recurrence(state, d, black_box(&q), &k, &decay, &v, &beta, &mut o);
                    }
                });
            });
        }
    }
    group.finish();
}

fn elementwise(c: &mut Criterion) {
    let mut group = c.benchmark_group("elementwise");
    let len = 4096;
    let x = values(len, 14);
    let mut y = values(len, 15);
    let mut halves = vec![0; len];
    group.throughput(Throughput::Elements(len as u64));
    for cpu in vector() {
        let isa = cpu.isa();
        group.bench_function(format!("{isa}/exp"), |b| {
            b.iter(|| {
                y.copy_from_slice(black_box(&x));
                cpu.exp(&mut y);
            });
        });
        group.bench_function(format!("{isa}/softmax"), |b| {
            b.iter(|| {
                y.copy_from_slice(black_box(&x));
                cpu.softmax(&mut y);
            });
        });
        group.bench_function(format!("{isa}/swiglu"), |b| {
            b.iter(|| {
                y.copy_from_slice(black_box(&x));
                cpu.swiglu(&mut y, &x, 10.0);
            });
        });
        group.bench_function(format!("{isa}/rms_norm"), |b| {
            b.iter(|| cpu.rms_norm(black_box(&x), &x, 1e-5, &mut y));
        });
        group.bench_function(format!("{isa}/axpy"), |b| b.iter(|| cpu.axpy(black_box(1e-9), &x, &mut y)));
        group.bench_function(format!("{isa}/narrow_f16"), |b| {
            b.iter(|| cpu.narrow_f16(black_box(&x), &mut halves))
        });
        group.bench_function(format!("{isa}/widen_f16"), |b| {
            b.iter(|| cpu.widen_f16(black_box(&halves), &mut y))
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    targets = dot, attend, index, kda, elementwise
}
criterion_main!(benches);
