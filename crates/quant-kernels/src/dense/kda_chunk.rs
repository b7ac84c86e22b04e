//! The KDA recurrence of a whole chunk at once, by matrix products (model-spec 3.4).
//!
//! Mathematically equal to the recurrence token by token, not bit-equal: the CPU engine keeps the recurrent order, and
//! this is the account of the formula that a device's prefill is built on and compared with. It is generic over f32 and
//! f64, so that the formula can be checked apart from rounding.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Neg, Sub};

use super::canon;

/// f32, with the canonical exponential, or f64.
pub trait Real:
    Copy
    + Default
    + AddAssign
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + Sum
{
    /// e to the power self.
    #[must_use]
    fn exp(self) -> Self;
}

impl Real for f32 {
    fn exp(self) -> Self {
        canon::exp(self)
    }
}

impl Real for f64 {
    fn exp(self) -> Self {
        self.exp()
    }
}

/// n tokens of one head. n is `beta.len()`; every other slice is \[n\]\[d\].
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a, F> {
    /// Key and value dimension.
    pub d: usize,
    /// Queries, normalised and scaled by d^-0.5.
    pub q: &'a [F],
    /// Keys, normalised.
    pub k: &'a [F],
    /// Values.
    pub v: &'a [F],
    /// Logarithms of the decay, each at most 0.
    pub g: &'a [F],
    /// Write strengths.
    pub beta: &'a [F],
}

impl<F: Real> Chunk<'_, F> {
    /// Advances `state`, \[d key\]\[d value\], over the chunk and writes the tokens' results to `o`, \[n\]\[d value\].
    ///
    /// With G_i = g_0 + ... + g_i and D_ij = exp(G_i - G_j) for j <= i, all by channel:
    ///
    /// ```text
    /// A_ij = -beta_i sum_c k_i k_j D_ij     j < i
    /// X    = (I - A)^-1                     by forward substitution
    /// W    = X (beta K exp(G))              U = X (beta V)
    /// N    = U - W S                        the delta of each token, S the incoming state
    /// o_i  = (q_i exp(G_i)) S + sum_{j<=i} (sum_c q_i k_j D_ij) N_j
    /// S'   = diag(exp(G_n)) S + sum_j (k_j exp(G_n - G_j))^T N_j
    /// ```
    ///
    /// The exponents G_i - G_j are formed before exp. Factored as exp(G_i) exp(-G_j) they would overflow f32 from a
    /// decay of -5 a token on after 17 tokens.
    ///
    /// # Panics
    /// If the slices do not have the lengths above.
    pub fn run(&self, state: &mut [F], o: &mut [F]) {
        let (n, d) = (self.beta.len(), self.d);
        assert!(state.len() == d * d, "a state of {} values is not {d} x {d}", state.len());
        for (name, len) in [
            ("q", self.q.len()),
            ("k", self.k.len()),
            ("v", self.v.len()),
            ("g", self.g.len()),
            ("o", o.len()),
        ] {
            assert!(len == n * d, "{name} has {len} values, not {n} x {d}");
        }
        if n == 0 || d == 0 {
            return;
        }
        let row = |x: &'_ [F], i: usize| -> Vec<F> { x[i * d..(i + 1) * d].to_vec() };

        // G, inclusive.
        let mut total = self.g.to_vec();
        for i in d..n * d {
            let before = total[i - d];
            total[i] += before;
        }
        // sum_c x_i k_j D_ij
        let decayed = |x: &[F], i: usize, j: usize| -> F {
            (0..d)
                .map(|c| x[i * d + c] * self.k[j * d + c] * (total[i * d + c] - total[j * d + c]).exp())
                .sum()
        };

        // Row i of X times any right side is that side's row i plus A_ij times the finished rows above it: solving both
        // right sides row by row is the forward substitution.
        let mut w: Vec<F> = (0..n * d).map(|i| self.beta[i / d] * self.k[i] * total[i].exp()).collect();
        let mut u: Vec<F> = (0..n * d).map(|i| self.beta[i / d] * self.v[i]).collect();
        for i in 1..n {
            for j in 0..i {
                let a = -(self.beta[i] * decayed(self.k, i, j));
                let (w_j, u_j) = (row(&w, j), row(&u, j));
                for c in 0..d {
                    w[i * d + c] += a * w_j[c];
                    u[i * d + c] += a * u_j[c];
                }
            }
        }

        // N = U - W S
        let mut delta = u;
        for i in 0..n {
            for column in 0..d {
                let read: F = (0..d).map(|c| w[i * d + c] * state[c * d + column]).sum();
                delta[i * d + column] = delta[i * d + column] - read;
            }
        }

        for i in 0..n {
            let weights: Vec<F> = (0..=i).map(|j| decayed(self.q, i, j)).collect();
            let q: Vec<F> = (0..d).map(|c| self.q[i * d + c] * total[i * d + c].exp()).collect();
            for column in 0..d {
                let old: F = (0..d).map(|c| q[c] * state[c * d + column]).sum();
                let new: F = weights.iter().enumerate().map(|(j, &w)| w * delta[j * d + column]).sum();
                o[i * d + column] = old + new;
            }
        }

        let last = row(&total, n - 1);
        for c in 0..d {
            let keys: Vec<F> =
                (0..n).map(|j| self.k[j * d + c] * (last[c] - total[j * d + c]).exp()).collect();
            for column in 0..d {
                let new: F = keys.iter().enumerate().map(|(j, &k)| k * delta[j * d + column]).sum();
                state[c * d + column] = last[c].exp() * state[c * d + column] + new;
            }
        }
    }
}
