//! The f32 operations against their definitions, the model specification's values (its appendix A), and exact answers.

#![allow(clippy::unwrap_used)]

use quant_kernels::{Cpu, Isa, canon};

/// Values in (-1, 1) that look random and are the same in every run.
fn values(n: usize, seed: u32) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state) / f64::from(1_u32 << 31) - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn f32s(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&x| x as f32).collect()
}

/// Every instruction set of this processor.
fn cpus() -> impl Iterator<Item = Cpu> {
    Isa::ALL.into_iter().filter_map(Cpu::with)
}

fn close(found: f32, wanted: f64, tolerance: f64) {
    assert!((f64::from(found) - wanted).abs() <= tolerance, "{found} is not {wanted} within {tolerance}");
}

/// The distance to the true value in units of the last place of an f32.
fn ulps(found: f32, truth: f64) -> f64 {
    let ulp = f64::from(f32::from_bits((truth as f32).to_bits() + 1)) - f64::from(truth as f32);
    (f64::from(found) - truth).abs() / ulp
}

#[test]
fn exp_is_within_one_ulp() {
    // Every 499th f32 of both signs, up to 87; and every 97th between 0.25 and 4, where most arguments lie.
    let (mut worst, mut at) = (0.0, 0.0);
    let ranges = [(0_u32, canon::LIMIT.to_bits(), 499), (0x3e80_0000, 0x4080_0000, 97)];
    for bits in ranges.into_iter().flat_map(|(from, to, step)| (from..=to).step_by(step)) {
        for t in [f32::from_bits(bits), -f32::from_bits(bits)] {
            let error = ulps(canon::exp(t), f64::from(t).exp());
            if error > worst {
                (worst, at) = (error, t);
            }
        }
    }
    println!("E(t): at most {worst:.3} ulp, at {at:e}");
    assert!(worst < 1.0, "{worst} ulp at {at:e}");
}

#[test]
fn exp_has_these_exact_answers() {
    for (t, bits) in EXP_ANSWERS {
        assert_eq!(canon::exp(t).to_bits(), bits, "E({t}) = {:#010x}", canon::exp(t).to_bits());
    }
    assert!(canon::exp(f32::NAN).is_nan());
    assert!(canon::sigmoid(f32::NAN).is_nan() && canon::silu(f32::NAN).is_nan());
}

/// E(t) at points that a new implementation should try first, worked out with exact rational numbers; docs/ARITHMETIC.md
/// prints them.
const EXP_ANSWERS: [(f32, u32); 11] = [
    (0.0, 0x3f80_0000),
    (-0.0, 0x3f80_0000),
    (1.0, 0x402d_f854),
    (-1.0, 0x3ebc_5ab2),
    (0.5, 0x3fd3_094c),
    (10.0, 0x46ac_14ef),
    (-5.0, 0x3bdc_c9ff),
    (-20.25, 0x30dc_9ef1),
    (50.0, 0x638c_881f),
    (87.0, 0x7e36_d809),
    (-87.0, 0x00b3_3687),
];

/// The page is what a device's kernels are written from.
#[test]
fn the_page_on_arithmetic_lists_these_constants_and_answers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ARITHMETIC.md");
    let page = std::fs::read_to_string(path).unwrap();
    let constants = [
        ("LOG2E", canon::LOG2_E),
        ("LN2_HI", canon::LN2_HI),
        ("LN2_LO", canon::LN2_LO),
        ("MAGIC", canon::MAGIC),
    ];
    let names = ["C6", "C5", "C4", "C3", "C2", "C1, C0", "C1, C0"];
    let mut rows: Vec<(String, u32)> = Vec::new();
    for (name, x) in constants.into_iter().chain(names.into_iter().zip(canon::COEFFICIENTS)) {
        rows.push((name.to_owned(), x.to_bits()));
    }
    for (t, bits) in EXP_ANSWERS {
        // -0 + 0 is +0: one row for both.
        rows.push(((t + 0.0).to_string(), bits));
    }
    for (name, bits) in rows {
        let row = format!("| {name} | {bits:#010x} |");
        assert!(page.contains(&row), "docs/ARITHMETIC.md lacks {row}");
    }
}

#[test]
fn exp_clamps() {
    let bits = |t: f32| canon::exp(t).to_bits();
    assert_eq!(bits(f32::INFINITY), bits(87.0));
    assert_eq!(bits(88.0), bits(87.0));
    assert_eq!(bits(f32::NEG_INFINITY), bits(-87.0));
    assert_eq!(bits(-1e30), bits(-87.0));
    assert!(canon::exp(-87.0) >= f32::MIN_POSITIVE);
}

/// Appendix A.2, and traps 12 and 13: a decay gate by sigmoid, near -5 for positive a.
#[test]
fn forget_gate_of_the_specification() {
    let ssm_a = -(0.5_f64.exp() as f32);
    let cases = [
        (-3.0, -0.03530215, 0.9653137),
        (-1.0, -0.80640924, 0.44645832),
        (0.0, -2.5, 0.082085),
        (1.0, -4.19359076, 0.015092),
        (3.0, -4.96469785, 0.00698006),
    ];
    for (a, g, decay) in cases {
        let found = -5.0 * canon::sigmoid(-ssm_a * a);
        close(found, g, 5e-7);
        close(canon::exp(found), decay, 5e-8);
    }
    assert_eq!(-5.0 * canon::sigmoid(0.0), -2.5);
}

/// Appendix A.6, traps 50 and 51: the gate is clamped above only and before silu, the up side on both sides.
#[test]
fn swiglu_of_the_specification() {
    for cpu in cpus() {
        let mut gate = [12.0, -12.0, 5.0, 9.9];
        cpu.swiglu(&mut gate, &[3.0, 3.0, -20.0, 10.1], 10.0);
        for (found, wanted) in gate.into_iter().zip([29.998638, -2.2119e-4, -49.665357, 98.995033]) {
            close(found, wanted, f64::abs(wanted) * 3e-6);
        }
        // A NaN on either side comes out: a broken sequence must be noticed.
        let mut gate = [f32::NAN, 1.0];
        cpu.swiglu(&mut gate, &[1.0, f32::NAN], 10.0);
        assert!(gate.iter().all(|x| x.is_nan()));
    }
}

#[test]
fn dot_order_is_the_definition() {
    // Written from docs/ARITHMETIC.md without a stream of partials: all lanes, then whole trees.
    let tree = |mut sums: Vec<f32>| {
        sums.resize(sums.len().next_power_of_two(), 0.0);
        while sums.len() > 1 {
            sums = sums.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        }
        sums[0]
    };
    for n in [1, 2, 31, 32, 33, 96, 192, 255, 256, 257, 515, 768, 1281, 1536, 4096, 5000] {
        let (a, b) = (f32s(&values(n, 1)), f32s(&values(n, 2)));
        let mut partials = Vec::new();
        for (a, b) in a.chunks(256).zip(b.chunks(256)) {
            let mut lanes = vec![0.0_f32; 32];
            for i in 0..a.len() {
                lanes[i % 32] = a[i].mul_add(b[i], lanes[i % 32]);
            }
            partials.push(tree(lanes));
        }
        let wanted = tree(partials);
        for cpu in cpus() {
            assert_eq!(cpu.dot(&a, &b).to_bits(), wanted.to_bits(), "{n} values on {}", cpu.isa());
        }
        let truth: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        close(wanted, truth, 1e-6 * (n as f64).sqrt());
    }
    assert_eq!(Cpu::detect().dot(&[], &[]).to_bits(), 0);
}

#[test]
fn softmax_is_a_distribution_and_says_when_it_is_not() {
    for cpu in cpus() {
        let scores: Vec<f32> = f32s(&values(515, 3)).iter().map(|x| 30.0 * x).collect();
        let mut p = scores.clone();
        cpu.softmax(&mut p);
        let max = scores.iter().copied().fold(f32::MIN, f32::max);
        let total: f64 = scores.iter().map(|s| f64::from(s - max).exp()).sum();
        for (p, s) in p.iter().zip(&scores) {
            let wanted = f64::from(s - max).exp() / total;
            close(*p, wanted, wanted * 1e-6);
        }

        let mut masked = [1.0, f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY];
        cpu.softmax(&mut masked);
        assert_eq!(masked, [0.5, 0.0, 0.5, 0.0]);
        let mut one = [-1e30];
        cpu.softmax(&mut one);
        assert_eq!(one, [1.0]);
        cpu.softmax(&mut []);

        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = vec![0.5; 40];
            x[33] = bad;
            cpu.softmax(&mut x);
            assert!(x.iter().all(|x| x.is_nan()), "one {bad} among 40");
        }
        let mut nothing = [f32::NEG_INFINITY; 3];
        cpu.softmax(&mut nothing);
        assert!(nothing.iter().all(|x| x.is_nan()));
    }
}

#[test]
fn rms_norm_divides_by_the_root_of_the_mean_square() {
    for cpu in cpus() {
        let (x, weight) = (values(192, 4), values(192, 5));
        let mean = x.iter().map(|x| x * x).sum::<f64>() / 192.0;
        let mut out = vec![0.0; 192];
        cpu.rms_norm(&f32s(&x), &f32s(&weight), 1e-5, &mut out);
        for ((found, x), weight) in out.iter().zip(&x).zip(&weight) {
            close(*found, x / (mean + 1e-5).sqrt() * weight, 1e-6);
        }
        cpu.rms_norm(&[0.0; 4], &[1.0; 4], 1e-5, &mut out[..4]);
        assert_eq!(out[..4], [0.0; 4]);
    }
}

#[test]
fn halves_are_those_of_the_standard() {
    // Every half there is, and for each the f32 values around it and around the tie to its neighbour.
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let mut x = Vec::new();
    for &bits in &all {
        let value = half::f16::from_bits(bits).to_f32().to_bits();
        for offset in [0_u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
            x.push(f32::from_bits(value.wrapping_add(offset)));
        }
    }
    // Ties and near ties of subnormal halves, and what is too small for one.
    for unit in 0..2050_u32 {
        for offset in [-1e-6, 0.0, 1e-6_f32] {
            x.push((unit as f32 / 2.0 + offset) / 16_777_216.0);
        }
    }
    for cpu in cpus() {
        let mut wide = vec![0.0; all.len()];
        cpu.widen_f16(&all, &mut wide);
        for (&bits, found) in all.iter().zip(&wide) {
            let wanted = half::f16::from_bits(bits).to_f32();
            assert!(found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan(), "{bits:#06x}");
        }
        let mut narrow = vec![0; x.len()];
        cpu.narrow_f16(&x, &mut narrow);
        for (x, &found) in x.iter().zip(&narrow) {
            let wanted = half::f16::from_f32(*x);
            let both_nan = half::f16::from_bits(found).is_nan() && wanted.is_nan();
            assert!(found == wanted.to_bits() || both_nan, "{x:e} on {}", cpu.isa());
        }
    }
}

#[test]
fn combining_rounds_the_product_and_the_sum() {
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last bit is lost by the product's rounding, kept by a fused one.
    let x = 1.0 + 1.0 / 4096.0;
    for cpu in cpus() {
        let mut y = [-1.0; 40];
        cpu.scale_add(x, &[x; 40], &mut y);
        assert_eq!(y, [1.0 / 2048.0; 40]);
        let mut y = [-1.0; 40];
        cpu.axpy(x, &[x; 40], &mut y);
        assert_eq!(y, [1.0 / 2048.0 + 1.0 / 16_777_216.0; 40]);
    }
}

#[test]
fn attention_is_its_three_operations() {
    let (heads, n, width) = (6, 71, 96);
    let (q, rows) = (f32s(&values(heads * width, 6)), f32s(&values(n * width, 7)));
    for cpu in cpus() {
        let (mut scores, mut out) = (Vec::new(), vec![0.0; heads * width]);
        cpu.attend(&q, heads, &rows, width, 0.25, &mut scores, &mut out);
        for h in 0..heads {
            let mut p = vec![0.0; n];
            cpu.dot_rows(&q[h * width..(h + 1) * width], &rows, &mut p);
            p.iter_mut().for_each(|s| *s *= 0.25);
            cpu.softmax(&mut p);
            let mut wanted = vec![0.0; width];
            cpu.weighted_rows(&p, &rows, &mut wanted);
            assert_eq!(scores[h * n..(h + 1) * n], p);
            assert_eq!(out[h * width..(h + 1) * width], wanted);
        }
    }
}

/// Trap 37: relu inside the head sum, before a signed weight.
#[test]
fn index_scores_clip_before_the_signed_weight() {
    for cpu in cpus() {
        let (iq, iw) = ([1.0, 0.0, 0.0, 1.0], [2.0, -3.0]);
        let mut out = [0.0; 3];
        cpu.index_scores(&iq, &iw, &[1.0, 4.0, -1.0, 4.0, -1.0, -4.0], 2, 0.5, &mut out);
        assert_eq!(out, [0.5 * (2.0 - 12.0), 0.5 * -12.0, 0.0]);
        cpu.index_scores(&iq, &iw, &[f32::NAN, 1.0, 1.0, 1.0, 1.0, 1.0], 2, 0.5, &mut out);
        assert!(out[0].is_nan() && !out[1].is_nan());
    }
}
