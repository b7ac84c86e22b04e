//! The f32 side: everything of the model that is not a product with a quantised weight.
//!
//! Every operation has a fixed order of additions and says where it fuses, so every instruction set gives the same bits,
//! and a row's result does not depend on the rows beside it. docs/ARITHMETIC.md writes the orders out; "dot order"
//! below is its family (c).
//!
//! Lengths that do not fit each other are a caller's broken invariant and panic with the two numbers.

mod attend;
pub mod canon;
mod f16;
mod kda;
pub mod kda_chunk;
mod norm;
mod order;
mod rows;
mod vector;
mod x86;

use crate::isa::Cpu;

impl Cpu {
    /// a . b in dot order. `a` and `b` have the same length, which may be anything; the dot product of nothing is +0.
    #[must_use]
    pub fn dot(self, a: &[f32], b: &[f32]) -> f32 {
        same("dot: b", b.len(), a.len());
        x86::dot(self, a, b)
    }

    /// out\[j\] = dot(a, rows\[j\]) for the rows of `rows`, each as long as `a`.
    pub fn dot_rows(self, a: &[f32], rows: &[f32], out: &mut [f32]) {
        same("dot_rows: rows", rows.len(), out.len() * a.len());
        x86::dot_rows(self, a, rows, out);
    }

    /// y = fma(alpha, x, y), element by element.
    pub fn axpy(self, alpha: f32, x: &[f32], y: &mut [f32]) {
        same("axpy: x", x.len(), y.len());
        x86::axpy(self, alpha, x, y);
    }

    /// out = sum over j of p\[j\] * rows\[j\]: from +0 by fmaf in the order of j. `rows` is \[p.len()\]\[out.len()\].
    pub fn weighted_rows(self, p: &[f32], rows: &[f32], out: &mut [f32]) {
        same("weighted_rows: rows", rows.len(), p.len() * out.len());
        x86::weighted_rows(self, p, rows, out);
    }

    /// x = E(x), element by element ([`canon::exp`]).
    pub fn exp(self, x: &mut [f32]) {
        x86::exp(self, x);
    }

    /// x = 1 / (1 + E(-x)), element by element ([`canon::sigmoid`]).
    pub fn sigmoid(self, x: &mut [f32]) {
        x86::sigmoid(self, x);
    }

    /// x = x / (1 + E(-x)), element by element ([`canon::silu`]).
    pub fn silu(self, x: &mut [f32]) {
        x86::silu(self, x);
    }

    /// Softmax in place: x = E(x - max x), then each divided by the sum, which is in dot order.
    ///
    /// -inf gives exactly 0 beside at least one finite value. One NaN, one +inf, or nothing but -inf makes every value
    /// NaN.
    pub fn softmax(self, x: &mut [f32]) {
        x86::softmax(self, x);
    }

    /// gate = (g / (1 + E(-g))) * u with g = min(gate, limit) and u = up clamped to +-limit (model-spec 5.1). The gate has
    /// no lower clamp. NaN stays NaN.
    pub fn swiglu(self, gate: &mut [f32], up: &[f32], limit: f32) {
        same("swiglu: up", up.len(), gate.len());
        x86::swiglu(self, gate, up, limit);
    }

    /// out = (x * f) * weight with f = 1 / sqrt(dot(x, x) / len + eps): every operation rounded, the square sum in dot
    /// order.
    pub fn rms_norm(self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        same("rms_norm: weight", weight.len(), x.len());
        same("rms_norm: out", out.len(), x.len());
        x86::rms_norm(self, x, weight, eps, out);
    }

    /// y = y + x, element by element.
    pub fn add(self, x: &[f32], y: &mut [f32]) {
        same("add: x", x.len(), y.len());
        x86::add(self, x, y);
    }

    /// y = y + (w * x), product and sum both rounded: the step that combines experts.
    pub fn scale_add(self, w: f32, x: &[f32], y: &mut [f32]) {
        same("scale_add: x", x.len(), y.len());
        x86::scale_add(self, w, x, y);
    }

    /// out = the f32 values of the IEEE halves whose bits are in x.
    pub fn widen_f16(self, x: &[u16], out: &mut [f32]) {
        same("widen_f16: x", x.len(), out.len());
        x86::widen_f16(self, x, out);
    }

    /// out = the bits of the nearest IEEE halves, ties to even; too large becomes infinity.
    pub fn narrow_f16(self, x: &[f32], out: &mut [u16]) {
        same("narrow_f16: x", x.len(), out.len());
        x86::narrow_f16(self, x, out);
    }

    /// The KDA recurrence of one head over n = `beta.len()` tokens (model-spec 3.1).
    ///
    /// `state` is \[d key\]\[d value\], updated in place. `q` (already scaled), `k` and `decay` = exp(g) are
    /// \[n\]\[d key\], `v` and the result `o` \[n\]\[d value\], `beta` \[n\]. For each token and value column:
    /// s_c = s_c * decay_c; u = fma(k_c, s_c, u) from +0 over c ascending; delta = beta * (v - u); s_c = fma(k_c, delta,
    /// s_c); o = fma(q_c, s_c, o) from +0 over c ascending. A span gives the bits of its tokens one by one.
    #[expect(clippy::too_many_arguments, reason = "the operands of one formula")]
    pub fn kda_recurrence(
        self,
        state: &mut [f32],
        d: usize,
        q: &[f32],
        k: &[f32],
        decay: &[f32],
        v: &[f32],
        beta: &[f32],
        o: &mut [f32],
    ) {
        same("kda_recurrence: state", state.len(), d * d);
        let operands =
            [("q", q.len()), ("k", k.len()), ("decay", decay.len()), ("v", v.len()), ("o", o.len())];
        for (name, len) in operands {
            assert!(len == beta.len() * d, "kda_recurrence: {name} has {len} values, not {}", beta.len() * d);
        }
        x86::kda_recurrence(self, state, kda::Tokens { d, q, k, decay, v, beta }, o);
    }

    /// Attention of `heads` queries over the rows of `rows`, which are keys and values at once (model-spec 4.1, absorbed).
    ///
    /// `q` and `out` are \[heads\]\[width\], `rows` \[n\]\[width\], n and width at least 1. s = dot(q\[h\], rows\[j\]) * scale;
    /// p = softmax(s); out\[h\] = weighted_rows(p, rows), with the bits of those operations. `scores` is scratch; afterwards
    /// it holds p, \[heads\]\[n\].
    #[expect(clippy::too_many_arguments, reason = "the operands of one formula")]
    pub fn attend(
        self,
        q: &[f32],
        heads: usize,
        rows: &[f32],
        width: usize,
        scale: f32,
        scores: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        same("attend: q", q.len(), heads * width);
        same("attend: out", out.len(), heads * width);
        assert!(width > 0, "attend: rows of no width");
        let n = rows.len() / width;
        assert!(n > 0 && rows.len() == n * width, "attend: {} values are not rows of {width}", rows.len());
        scores.resize(heads * n, 0.0);
        x86::attend(self, q, rows, width, scale, scores, out);
    }

    /// The indexer's scores of one token (model-spec 4.4): out\[p\] = scale * sum over heads m of iw\[m\] * max(dot(iq\[m\],
    /// pooled\[p\]), 0), from +0 by fmaf in the order of m. `iq` is \[iw.len()\]\[dim\], `pooled` \[out.len()\]\[dim\].
    pub fn index_scores(
        self,
        iq: &[f32],
        iw: &[f32],
        pooled: &[f32],
        dim: usize,
        scale: f32,
        out: &mut [f32],
    ) {
        assert!(dim > 0, "index_scores: keys of no width");
        same("index_scores: iq", iq.len(), iw.len() * dim);
        same("index_scores: pooled", pooled.len(), out.len() * dim);
        x86::index_scores(self, iq, iw, pooled, dim, scale, out);
    }
}

/// Panics unless two lengths agree.
#[inline]
#[track_caller]
fn same(what: &str, found: usize, wanted: usize) {
    assert!(found == wanted, "{what} has {found} values, not {wanted}");
}
