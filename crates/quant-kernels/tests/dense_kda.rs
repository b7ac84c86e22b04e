//! The KDA recurrence and its chunked form against the model specification (3.1, 3.4, appendix A.3 and A.8).

use quant_kernels::kda_chunk::{Chunk, Real};
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

/// One head's operands of the recurrence, in f64.
struct Tokens {
    d: usize,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    g: Vec<f64>,
    beta: Vec<f64>,
}

impl Tokens {
    /// q and k divided by their norms, q also by the root of d, as the layer does it.
    fn normalised(mut self) -> Self {
        let d = self.d;
        for (x, scale) in [(&mut self.q, (d as f64).powf(-0.5)), (&mut self.k, 1.0)] {
            for row in x.chunks_exact_mut(d) {
                let norm = (row.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                row.iter_mut().for_each(|x| *x = *x / norm * scale);
            }
        }
        self
    }

    fn random(n: usize, d: usize, g: impl Fn(f64) -> f64) -> Self {
        let of = |seed| values(n * d, seed);
        let beta = values(n, 15).iter().map(|x| 0.5 + 0.49 * x).collect();
        Self { d, q: of(11), k: of(12), v: of(13), g: of(14).into_iter().map(g).collect(), beta }.normalised()
    }

    /// Model-spec 3.1, literally.
    fn recurrence(&self, state: &mut [f64]) -> Vec<f64> {
        let d = self.d;
        let mut o = vec![0.0; self.v.len()];
        for t in 0..self.beta.len() {
            for c in 0..d {
                for j in 0..d {
                    state[c * d + j] *= self.g[t * d + c].exp();
                }
            }
            for j in 0..d {
                let u: f64 = (0..d).map(|c| self.k[t * d + c] * state[c * d + j]).sum();
                let delta = self.beta[t] * (self.v[t * d + j] - u);
                for c in 0..d {
                    state[c * d + j] += self.k[t * d + c] * delta;
                }
                o[t * d + j] = (0..d).map(|c| self.q[t * d + c] * state[c * d + j]).sum();
            }
        }
        o
    }

    fn on(&self, cpu: Cpu, state: &mut [f32]) -> Vec<f32> {
        let decay: Vec<f32> = self.g.iter().map(|&g| canon::exp(g as f32)).collect();
        let (q, k, v, beta) = (f32s(&self.q), f32s(&self.k), f32s(&self.v), f32s(&self.beta));
        let mut o = vec![0.0; v.len()];
        cpu.kda_recurrence(state, self.d, &q, &k, &decay, &v, &beta, &mut o);
        o
    }
}

fn chunk<F: Real + From<f32>>(x: &Tokens, convert: impl Fn(&[f64]) -> Vec<F>, state: &mut [F]) -> Vec<F> {
    let (q, k, v, g, beta) = (convert(&x.q), convert(&x.k), convert(&x.v), convert(&x.g), convert(&x.beta));
    let mut o = vec![F::default(); v.len()];
    Chunk { d: x.d, q: &q, k: &k, v: &v, g: &g, beta: &beta }.run(state, &mut o);
    o
}

fn furthest(found: &[impl Copy + Into<f64>], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let distance = |(a, b): (&_, &f64)| (Into::<f64>::into(*a) - b).abs();
    let furthest = found.iter().zip(wanted).map(|(a, b)| distance((a, b)));
    // f64::max would forget a NaN.
    furthest.fold(0.0, |max, x| if x.is_nan() || x > max { x } else { max })
}

/// Appendix A.3, traps 14, 15 and 17: decay first and on the key axis, read from the decayed state, q alone scaled.
#[test]
fn kda_recurrence_of_the_specification() {
    let x = Tokens {
        d: 2,
        q: vec![1.0, 2.0, 0.5, -1.0, 2.0, 0.1],
        k: vec![1.0, 0.5, -1.0, 1.0, 0.3, 2.0],
        v: vec![1.0, -1.0, 0.5, 2.0, 3.0, 0.0],
        g: vec![-0.1, -2.0, -0.5, -0.01, -4.0, -1.0],
        beta: vec![0.5, 0.9, 0.2],
    }
    .normalised();
    let o = [0.28284257, -0.28284257, -0.37739526, -1.13194965, 0.08450572, -0.01665771];
    let end = [0.08167277, -0.03885265, 0.75971340, 0.30531316];
    for cpu in cpus() {
        let mut state = [0.0; 4];
        assert!(furthest(&x.on(cpu, &mut state), &o) < 2e-7);
        assert!(furthest(&state, &end) < 2e-7);
    }
    let mut state = [0.0; 4];
    assert!(furthest(&x.recurrence(&mut state), &o) < 1e-8);
    let mut state = [0.0; 4];
    assert!(furthest(&chunk(&x, <[f64]>::to_vec, &mut state), &o) < 1e-8);
    assert!(furthest(&state, &end) < 1e-8);
}

/// Trap 16: the first token's output is (q.k) * beta * v, not 0.
#[test]
fn kda_recurrence_reads_the_updated_state() {
    let x = Tokens::random(1, 128, |g| -2.5 + 2.4 * g);
    let qk: f64 = x.q.iter().zip(&x.k).map(|(q, k)| q * k).sum();
    let wanted: Vec<f64> = x.v.iter().map(|v| qk * x.beta[0] * v).collect();
    for cpu in cpus() {
        assert!(furthest(&x.on(cpu, &mut [0.0; 128 * 128]), &wanted) < 1e-7);
    }
}

/// Appendix A.8: the chunked formula is the recurrence, from a state that is not zero.
#[test]
fn kda_chunk_is_the_recurrence() {
    for (n, d) in [(1, 8), (16, 8), (64, 32), (17, 96)] {
        let x = Tokens::random(n, d, |g| -2.5 + 2.49 * g);
        let start = values(d * d, 16);

        let (mut wanted_state, mut state) = (start.clone(), start.clone());
        let wanted = x.recurrence(&mut wanted_state);
        let o = chunk(&x, <[f64]>::to_vec, &mut state);
        assert!(furthest(&o, &wanted) < 1e-14, "{n} tokens of {d}: {:e}", furthest(&o, &wanted));
        assert!(furthest(&state, &wanted_state) < 1e-14, "{n} tokens of {d}");

        let mut state = f32s(&start);
        let o = chunk(&x, f32s, &mut state);
        assert!(furthest(&o, &wanted) < 1e-5, "{n} tokens of {d} in f32: {:e}", furthest(&o, &wanted));
        assert!(furthest(&state, &wanted_state) < 1e-5);

        let mut state = f32s(&start);
        let o = x.on(Cpu::detect(), &mut state);
        assert!(furthest(&o, &wanted) < 1e-5);
        assert!(furthest(&state, &wanted_state) < 1e-5);
    }
}

/// Trap 24: 64 tokens with a = +10 everywhere, decays of almost -5 a token: the sum of logarithms reaches -320, and
/// exp(-G) alone would be infinite in f32.
#[test]
fn kda_chunk_stays_finite_under_the_strongest_decay() {
    let g = f64::from(-5.0 * canon::sigmoid(10.0));
    let x = Tokens::random(64, 32, |_| g);
    let start = values(32 * 32, 17);
    let mut wanted_state = start.clone();
    let wanted = x.recurrence(&mut wanted_state);
    let mut state = f32s(&start);
    let o = chunk(&x, f32s, &mut state);
    assert!(o.iter().chain(&state).all(|x| x.is_finite()));
    assert!(furthest(&o, &wanted) < 1e-5);
    assert!(furthest(&state, &wanted_state) < 1e-5);
}

/// Padding a chunk with k = v = q = 0, beta = 0, g = 0 leaves the state alone.
#[test]
fn kda_chunk_may_be_padded() {
    let x = Tokens::random(5, 16, |g| -2.5 + 2.49 * g);
    let start = values(16 * 16, 18);
    let (mut state, mut padded_state) = (start.clone(), start);
    chunk(&x, <[f64]>::to_vec, &mut state);
    let pad = |x: &[f64], unit: usize| [x, &vec![0.0; 3 * unit]].concat();
    let padded = Tokens {
        d: 16,
        q: pad(&x.q, 16),
        k: pad(&x.k, 16),
        v: pad(&x.v, 16),
        g: pad(&x.g, 16),
        beta: pad(&x.beta, 1),
    };
    chunk(&padded, <[f64]>::to_vec, &mut padded_state);
    assert!(furthest(&padded_state, &state) < 1e-15);
}
