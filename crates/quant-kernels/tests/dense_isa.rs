//! Every f32 operation gives the scalar's bits on every instruction set of this processor, at any length.

use proptest::prelude::*;
use quant_kernels::{Cpu, Isa};

/// The instruction sets to compare with the scalar definition.
fn vector() -> Vec<Cpu> {
    let found = [Isa::Avx2, Isa::Avx512].into_iter().filter_map(|isa| {
        let cpu = Cpu::with(isa);
        if cpu.is_none() {
            golden::skipped(format_args!("{isa} against scalar: this processor does not have it"));
        }
        cpu
    });
    found.collect()
}

/// Equal bits; one NaN is as good as another, because its payload depends on the order of an addition's operands.
fn same(name: &str, isa: Isa, found: &[f32], wanted: &[f32]) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let equal = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
        prop_assert!(equal, "{} on {}, value {}: {:e}, scalar {:e}", name, isa, i, found, wanted);
    }
    Ok(())
}

/// Runs one operation on the scalar and on every vector set.
fn compare(name: &str, operation: impl Fn(Cpu) -> Vec<f32>) -> Result<(), TestCaseError> {
    let wanted = operation(Cpu::scalar());
    for cpu in vector() {
        same(name, cpu.isa(), &operation(cpu), &wanted)?;
    }
    Ok(())
}

/// Mostly ordinary numbers, some of every other kind.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        40 => -2.0_f32..2.0,
        8 => -100.0_f32..100.0,
        2 => prop_oneof![Just(0.0), Just(-0.0), Just(1e-40), Just(-1e-30), Just(1e30), Just(f32::MIN_POSITIVE)],
    ]
}

/// The same and what a broken sequence holds.
fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![
        60 => number(),
        1 => prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)],
        1 => any::<u32>().prop_map(f32::from_bits),
    ]
}

/// Lengths around every border of the blocks and registers.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        prop::sample::select(vec![
            0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 192, 255, 256, 257, 288, 511, 512,
            513, 515, 768, 1023, 1024, 1025, 1056, 1280, 2051, 4096, 4128,
        ]),
        0_usize..700,
    ]
}

fn vector_of(n: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(number(), n)
}

/// Repeats a small random sample to n values, so that large operands cost little to make.
fn stretched(sample: &[f32], n: usize, salt: usize) -> Vec<f32> {
    (0..n).map(|i| sample[(i * 7 + i / sample.len() + salt) % sample.len()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dot((a, b) in length().prop_flat_map(|n| (vector_of(n), vector_of(n)))) {
        compare("dot", |cpu| vec![cpu.dot(&a, &b)])?;
    }

    #[test]
    fn element_wise(
        (x, y) in length().prop_flat_map(|n| {
            (prop::collection::vec(any_number(), n), prop::collection::vec(any_number(), n))
        }),
        w in any_number(),
    ) {
        let run = |operation: &dyn Fn(&mut [f32])| { let mut y = y.clone(); operation(&mut y); y };
        compare("exp", |cpu| run(&|y| cpu.exp(y)))?;
        compare("sigmoid", |cpu| run(&|y| cpu.sigmoid(y)))?;
        compare("silu", |cpu| run(&|y| cpu.silu(y)))?;
        compare("softmax", |cpu| run(&|y| cpu.softmax(y)))?;
        compare("swiglu", |cpu| run(&|y| cpu.swiglu(y, &x, 10.0)))?;
        compare("rms_norm", |cpu| {
            let mut out = vec![f32::NAN; x.len()];
            cpu.rms_norm(&x, &y, 1e-5, &mut out);
            out
        })?;
        compare("axpy", |cpu| run(&|y| cpu.axpy(w, &x, y)))?;
        compare("add", |cpu| run(&|y| cpu.add(&x, y)))?;
        compare("scale_add", |cpu| run(&|y| cpu.scale_add(w, &x, y)))?;
        let narrow = |cpu: Cpu| { let mut out = vec![0; x.len()]; cpu.narrow_f16(&x, &mut out); out };
        let halves = narrow(Cpu::scalar());
        for cpu in vector() {
            prop_assert_eq!(&narrow(cpu), &halves);
        }
        compare("widen_f16", |cpu| run(&|y| cpu.widen_f16(&halves, y)))?;
    }

    #[test]
    fn rows(
        sample in prop::collection::vec(number(), 211),
        width in prop_oneof![length(), Just(16384)],
        n in 0_usize..20,
    ) {
        let (a, rows) = (stretched(&sample, width, 0), stretched(&sample, n * width, 5));
        compare("dot_rows", |cpu| { let mut out = vec![f32::NAN; n]; cpu.dot_rows(&a, &rows, &mut out); out })?;
        let p = &sample[..n];
        compare("weighted_rows", |cpu| {
            let mut out = vec![f32::NAN; width];
            cpu.weighted_rows(p, &rows, &mut out);
            out
        })?;
    }

    #[test]
    fn attend(
        sample in prop::collection::vec(number(), 211),
        width in prop::sample::select(vec![1_usize, 31, 32, 33, 48, 64, 96, 100, 192, 256, 257, 288, 512, 515]),
        heads in 1_usize..10,
        n in prop_oneof![1_usize..20, Just(63_usize), Just(257)],
    ) {
        let (q, rows) = (stretched(&sample, heads * width, 0), stretched(&sample, n * width, 5));
        let run = |cpu: Cpu| {
            let (mut scores, mut out) = (vec![f32::NAN; 3], vec![f32::NAN; heads * width]);
            cpu.attend(&q, heads, &rows, width, 0.0625, &mut scores, &mut out);
            scores.extend(out);
            scores
        };
        compare("attend", run)?;
    }

    #[test]
    fn index_scores(
        sample in prop::collection::vec(number(), 211),
        dim in prop::sample::select(vec![1_usize, 31, 32, 64, 96, 128, 192, 257]),
        heads in prop_oneof![0_usize..10, Just(32_usize), Just(132)],
        pools in 0_usize..9,
    ) {
        let (iq, pooled) = (stretched(&sample, heads * dim, 0), stretched(&sample, pools * dim, 5));
        let iw = stretched(&sample, heads, 9);
        compare("index_scores", |cpu| {
            let mut out = vec![f32::NAN; pools];
            cpu.index_scores(&iq, &iw, &pooled, dim, 1.0 / 64.0, &mut out);
            out
        })?;
    }

    #[test]
    fn kda_recurrence(
        sample in prop::collection::vec(-1.0_f32..1.0, 211),
        d in prop::sample::select(vec![1_usize, 2, 8, 16, 31, 32, 33, 64, 96, 100, 128, 160]),
        n in 0_usize..6,
        cut in 0_usize..6,
    ) {
        let of = |salt| stretched(&sample, n * d, salt);
        let (q, k, v) = (of(1), of(2), of(3));
        let decay: Vec<f32> = of(4).iter().map(|x| 0.5 + 0.49 * x).collect();
        let beta: Vec<f32> = stretched(&sample, n, 5).iter().map(|x| 0.5 + 0.49 * x).collect();
        let k: Vec<f32> = k.iter().map(|x| x / (d as f32).sqrt()).collect();
        let start = stretched(&sample, d * d, 6);
        let run = |cpu: Cpu, cut: usize| {
            let (mut state, mut o) = (start.clone(), vec![f32::NAN; n * d]);
            for tokens in [0..cut, cut..n] {
                let at = tokens.start * d..tokens.end * d;
                let beta = &beta[tokens];
                let o = &mut o[at.clone()];
                cpu.kda_recurrence(&mut state, d, &q[at.clone()], &k[at.clone()], &decay[at.clone()], &v[at], beta, o);
            }
            state.extend(o);
            state
        };
        compare("kda_recurrence", |cpu| run(cpu, 0))?;
        for cpu in vector() {
            same("kda_recurrence in two parts", cpu.isa(), &run(cpu, cut.min(n)), &run(Cpu::scalar(), 0))?;
        }
    }
}
