//! KDA over a batch (model-spec 3.1): the recurrence in its own order, in prefill too, parallel over heads.

use rayon::prelude::*;

use super::batch::{Batch, Segment};
use super::lanes::Lanes;
use super::layout::{fit, transpose};
use super::scratch::{MixerScratch, Scratch, Worker, Workers};
use crate::config::Config;
use crate::weights::Kda;

/// Added to a head's square sum before its root.
const L2_EPS: f32 = 1e-6;

/// From `scratch.x` to `scratch.y`; the states of block `block` move on by the batch's rows.
pub(crate) fn mix(
    lanes: &Lanes,
    file: &gguf::Model,
    config: &Config,
    weights: &Kda,
    block: usize,
    batch: &mut Batch<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { x, y, mixer, faults, workers, .. } = scratch;
    let MixerScratch { first, second, low, low_gate, heads, joined, out, .. } = mixer;
    let (t, inner, d) = (batch.rows, config.kda_inner(), config.kda_dim);

    let w = weights;
    let quants = [w.q.quant, w.k.quant, w.v.quant, w.f_a.quant, w.g_a.quant, w.beta.quant];
    lanes.prepare(x, &quants, "the input of KDA", faults);
    let first = fit(first, (3 * inner + 2 * d + config.heads) * t);
    let jobs = [
        lanes.job(w.q.matrix(file), x, "attn_q"),
        lanes.job(w.k.matrix(file), x, "attn_k"),
        lanes.job(w.v.matrix(file), x, "attn_v"),
        lanes.job(w.f_a.matrix(file), x, "ssm_f_a"),
        lanes.job(w.g_a.matrix(file), x, "ssm_g_a"),
        lanes.job(w.beta.matrix(file), x, "ssm_beta"),
    ];
    lanes.matmuls(&jobs, first, faults);

    let (raw, rest) = first.split_at(3 * inner * t);
    let (f_a, rest) = rest.split_at(d * t);
    let (g_a, beta) = rest.split_at(d * t);
    transpose(f_a, t, low.reset(t, d));
    transpose(g_a, t, low_gate.reset(t, d));
    lanes.prepare(low, &[w.f_b.quant], "ssm_f_a", faults);
    lanes.prepare(low_gate, &[w.g_b.quant], "ssm_g_a", faults);
    let second = fit(second, 2 * inner * t);
    let jobs =
        [lanes.job(w.f_b.matrix(file), low, "ssm_f_b"), lanes.job(w.g_b.matrix(file), low_gate, "ssm_g_b")];
    lanes.matmuls(&jobs, second, faults);
    let (forget, gate) = second.split_at(inner * t);

    let inputs = Inputs { lanes, config, weights, raw, forget, gate, beta, t };
    let rows = joined.reset(t, inner);
    for segment in batch.segments.iter_mut() {
        let (start, n) = (segment.start, segment.n);
        let rows = &mut rows[start * inner..][..n * inner];
        if n == 1 {
            inputs.heads(segment, block, rows, workers);
        } else {
            let heads = fit(heads, n * inner);
            inputs.heads(segment, block, heads, workers);
            join_heads(heads, n, d, rows);
        }
    }
    faults.check_rows(rows, inner, "the recurrence's output");

    lanes.prepare(joined, &[w.out.quant], "the input of attn_output", faults);
    let out = fit(out, config.hidden * t);
    lanes.matmuls(&[lanes.job(w.out.matrix(file), joined, "attn_output")], out, faults);
    transpose(out, t, fit(y, config.hidden * t));
}

/// `[heads][n][d]` to `[n][heads][d]`.
pub(super) fn join_heads(heads: &[f32], n: usize, d: usize, rows: &mut [f32]) {
    let inner = rows.len() / n;
    rows.par_chunks_exact_mut(inner).enumerate().with_min_len(16).for_each(|(t, row)| {
        for (out, head) in row.chunks_exact_mut(d).zip(heads.chunks_exact(n * d)) {
            out.copy_from_slice(&head[t * d..][..d]);
        }
    });
}

/// What the heads read: products of the whole batch of `t` rows, weight-row major.
struct Inputs<'a> {
    lanes: &'a Lanes,
    config: &'a Config,
    weights: &'a Kda,
    /// `[3 * inner][t]`: q, k, v before the convolution.
    raw: &'a [f32],
    /// `[inner][t]`: the forget gate before its bias.
    forget: &'a [f32],
    /// `[inner][t]`: the output gate before its sigmoid.
    gate: &'a [f32],
    /// `[heads][t]`: the write strength before its sigmoid.
    beta: &'a [f32],
    t: usize,
}

/// One head's place in a sequence's state and in the result.
struct HeadMut<'a> {
    /// Convolution histories of the head's channels of q, k and v, `[d][taps - 1]` each.
    conv: [&'a mut [f32]; 3],
    /// `[d key][d value]`.
    matrix: &'a mut [f32],
    /// `[n][d]`.
    out: &'a mut [f32],
}

impl Inputs<'_> {
    /// All heads of one segment; `out` is `[heads][n][d]`.
    fn heads(&self, segment: &mut Segment, block: usize, out: &mut [f32], workers: &Workers) {
        let (d, n, start) = (self.config.kda_dim, segment.n, segment.start);
        let state = segment.sequence.kda(block);
        let head_history = d * (self.config.conv_taps - 1);
        let third = state.conv.len() / 3;
        let (q, rest) = state.conv.split_at_mut(third);
        let (k, v) = rest.split_at_mut(third);
        // A head of one token does 3 d^2 multiplications in the recurrence and about as much work around it.
        let parts = self.lanes.parts((self.config.heads * n * d * (4 * d + 64)) as u64);
        if head_history == 0 {
            let heads =
                state.matrix.par_chunks_exact_mut(d * d).zip(out.par_chunks_exact_mut(n * d)).enumerate();
            heads.with_min_len(self.config.heads.div_ceil(parts)).for_each(|(h, (matrix, out))| {
                self.head(
                    h,
                    start,
                    n,
                    HeadMut { conv: [&mut [], &mut [], &mut []], matrix, out },
                    &mut workers.mine(),
                );
            });
            return;
        }
        let histories = q
            .par_chunks_exact_mut(head_history)
            .zip(k.par_chunks_exact_mut(head_history))
            .zip(v.par_chunks_exact_mut(head_history));
        histories
            .zip(state.matrix.par_chunks_exact_mut(d * d))
            .zip(out.par_chunks_exact_mut(n * d))
            .enumerate()
            .with_min_len(self.config.heads.div_ceil(parts))
            .for_each(|(h, ((((q, k), v), matrix), out))| {
                self.head(h, start, n, HeadMut { conv: [q, k, v], matrix, out }, &mut workers.mine());
            });
    }

    fn head(&self, h: usize, start: usize, n: usize, head: HeadMut<'_>, worker: &mut Worker) {
        let (cpu, d) = (self.lanes.cpu, self.config.kda_dim);
        let Worker { a, b, c, d: decay, beta, .. } = worker;
        let (q, k, v) = (fit(a, n * d), fit(b, n * d), fit(c, n * d));
        let [q_history, k_history, v_history] = head.conv;
        self.convolve(0, h, start, q_history, q);
        self.convolve(1, h, start, k_history, k);
        self.convolve(2, h, start, v_history, v);
        for values in [&mut *q, &mut *k, &mut *v] {
            cpu.silu(values);
        }
        let scale = (d as f32).sqrt().recip();
        for (q, k) in q.chunks_exact_mut(d).zip(k.chunks_exact_mut(d)) {
            let factor = (cpu.dot(q, q) + L2_EPS).sqrt().recip() * scale;
            q.iter_mut().for_each(|q| *q *= factor);
            let factor = (cpu.dot(k, k) + L2_EPS).sqrt().recip();
            k.iter_mut().for_each(|k| *k *= factor);
        }

        let decay = fit(decay, n * d);
        let bias = &self.weights.dt[h * d..][..d];
        self.gather(self.forget, h, start, decay);
        for row in decay.chunks_exact_mut(d) {
            row.iter_mut().zip(bias).for_each(|(a, bias)| *a = self.weights.decay[h] * (*a + bias));
        }
        log_decay(cpu, decay, self.config.gate_bound);
        cpu.exp(decay);
        let beta = fit(beta, n);
        beta.copy_from_slice(&self.beta[h * self.t + start..][..n]);
        cpu.sigmoid(beta);

        // Only `out` is still to be written, so the raw output takes the place of nothing else.
        let raw = fit(&mut worker.e, n * d);
        cpu.kda_recurrence(head.matrix, d, q, k, decay, v, beta, raw);
        let gate = q;
        self.gather(self.gate, h, start, gate);
        cpu.sigmoid(gate);
        for ((raw, gate), out) in
            raw.chunks_exact(d).zip(gate.chunks_exact(d)).zip(head.out.chunks_exact_mut(d))
        {
            cpu.rms_norm(raw, &self.weights.norm, self.config.rms_eps, out);
            out.iter_mut().zip(gate).for_each(|(out, gate)| *out *= gate);
        }
    }

    /// Rows of one head from weight-row major values: `out` is `[n][d]`.
    fn gather(&self, values: &[f32], h: usize, start: usize, out: &mut [f32]) {
        let d = self.config.kda_dim;
        for i in 0..d {
            let channel = &values[(h * d + i) * self.t + start..];
            for (out, value) in out.iter_mut().skip(i).step_by(d).zip(channel) {
                *out = *value;
            }
        }
    }

    /// The causal convolution of one head's channels of q (`part` 0), k (1) or v (2) into `out`, `[n][d]`; `history` moves
    /// on.
    fn convolve(&self, part: usize, h: usize, start: usize, history: &mut [f32], out: &mut [f32]) {
        let (d, taps) = (self.config.kda_dim, self.config.conv_taps);
        let n = out.len() / d;
        if n == 1 && taps == 4 {
            let first = (part * self.config.heads + h) * d;
            let taps = &self.weights.conv[first * taps..][..d * taps];
            return convolve_one(history, &self.raw[first * self.t + start..], self.t, taps, out);
        }
        for i in 0..d {
            let channel = (part * self.config.heads + h) * d + i;
            let input = &self.raw[channel * self.t + start..][..n];
            let taps_of = &self.weights.conv[channel * taps..][..taps];
            convolve(&mut history[i * (taps - 1)..][..taps - 1], input, taps_of, |t, value| {
                out[t * d + i] = value
            });
        }
    }
}

/// One channel: `value(t) = sum over j of taps[j] * u[t - (len - 1) + j]`, from the first tap on, products and sums
/// rounded apart. `history` holds the inputs before `input`, oldest first, and afterwards those before the next one.
fn convolve(history: &mut [f32], input: &[f32], taps: &[f32], mut value: impl FnMut(usize, f32)) {
    let past = history.len();
    let at = |history: &[f32], place: usize| {
        if place < past { history[place] } else { input[place - past] }
    };
    let slow = past.min(input.len());
    for t in 0..slow {
        let sum = (1..taps.len()).fold(taps[0] * at(history, t), |sum, j| sum + taps[j] * at(history, t + j));
        value(t, sum);
    }
    for (t, window) in input.windows(taps.len()).enumerate() {
        let sum = (1..taps.len()).fold(taps[0] * window[0], |sum, j| sum + taps[j] * window[j]);
        value(slow + t, sum);
    }
    for j in 0..past {
        history[j] = at(history, input.len() + j);
    }
}

/// As [`convolve`] for one input a channel and four taps: `history` is `[out.len()][3]`, `taps` `[out.len()][4]`, and
/// `input` has a channel's value every `stride` places.
fn convolve_one(history: &mut [f32], input: &[f32], stride: usize, taps: &[f32], out: &mut [f32]) {
    let (history, _) = history.as_chunks_mut::<3>();
    let (taps, _) = taps.as_chunks::<4>();
    for (((past, taps), input), out) in
        history.iter_mut().zip(taps).zip(input.iter().step_by(stride)).zip(out)
    {
        let [a, b, c] = *past;
        *out = taps[0] * a + taps[1] * b + taps[2] * c + taps[3] * input;
        *past = [b, c, *input];
    }
}

/// `g = bound * sigmoid(a)` for `a = exp(A_log) * (f + dt)`, in place (model-spec 3.1).
fn log_decay(cpu: quant_kernels::Cpu, a: &mut [f32], bound: f32) {
    cpu.sigmoid(a);
    a.iter_mut().for_each(|g| *g *= bound);
}

#[cfg(test)]
#[allow(clippy::excessive_precision)] // The specification's digits.
mod tests {
    use super::*;

    /// Appendix A.2; traps 12 and 13.
    #[test]
    fn appendix_a2_is_met() {
        let decay = 0.5f32.exp();
        let mut g: Vec<f32> = [-3.0, -1.0, 0.0, 1.0, 3.0].map(|a: f32| decay * a).to_vec();
        log_decay(quant_kernels::Cpu::scalar(), &mut g, -5.0);
        let expected = [-0.035_302_15, -0.806_409_24, -2.5, -4.193_590_76, -4.964_697_85];
        assert!(g.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-6), "{g:?}");
    }

    /// Trap 19: the last tap is the current position's, and nothing leaks backwards.
    #[test]
    fn an_impulse_leaves_by_its_taps() {
        let taps = [0.1, 0.2, 0.3, 0.4];
        let mut history = [0.0; 3];
        let mut out = [9.0; 6];
        convolve(&mut history, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], &taps, |t, value| out[t] = value);
        assert_eq!(out, [0.4, 0.3, 0.2, 0.1, 0.0, 0.0]);
    }

    /// Trap 20: the history holds raw inputs, and any cut gives the same bits.
    #[test]
    fn cuts_do_not_change_a_convolution() {
        let input: Vec<f32> = (0..11).map(|i| (i as f32 * 1.7).sin()).collect();
        let taps = [0.3, -0.7, 0.2, 1.1];
        let mut whole = [0.0; 11];
        let mut history = [0.0; 3];
        convolve(&mut history, &input, &taps, |t, value| whole[t] = value);
        assert_eq!(history, input[8..]);
        let mut history = [0.0; 3];
        for (t, value) in input.iter().enumerate() {
            let mut out = [0.0];
            convolve_one(&mut history, &[*value], 1, &taps, &mut out);
            assert_eq!(out[0].to_bits(), whole[t].to_bits());
        }
        assert_eq!(history, input[8..]);
        for cut in 1..11 {
            let (mut out, mut history) = (vec![0.0; 11], [0.0; 3]);
            convolve(&mut history, &input[..cut], &taps, |t, value| out[t] = value);
            convolve(&mut history, &input[cut..], &taps, |t, value| out[cut + t] = value);
            assert_eq!(
                out.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                whole.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            );
            assert_eq!(history, input[8..]);
        }
    }
}
