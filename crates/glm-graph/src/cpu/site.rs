//! A hyper-connection site over a batch: streams in, normed input out; then output in, streams out.

use quant_kernels::Precision;
use rayon::prelude::*;

use super::lanes::{Job, Lanes};
use super::layout::{column, fit};
use super::scratch::Scratch;
use crate::config::Config;
use crate::hyper::{MAX_STREAMS, Mixing, collapse, expand};
use crate::weights::HyperSite;

/// Values that one thread should at least move: about 10 us.
const VALUES_PER_TASK: usize = 1 << 15;

/// Rows a task.
fn rows_per_task(width: usize) -> usize {
    (VALUES_PER_TASK / width).max(1)
}

/// Reads the streams (model-spec 2.3) and norms the result into `scratch.x`.
///
/// The mixing product runs on the raw streams and its 24 results are scaled by the streams' inverse RMS, which is the same
/// as scaling 16,384 values first.
pub(crate) fn read(
    lanes: &Lanes,
    file: &gguf::Model,
    config: &Config,
    site: &HyperSite,
    norm: &[f32],
    scratch: &mut Scratch,
) {
    let Scratch { hyper, x, y, faults, .. } = scratch;
    let t = hyper.residual.n();
    let (hidden, n, width) = (config.hidden, config.streams, config.residual());
    let mix = fit(&mut hyper.mix, config.hc_rows() * t);
    // The mixing weights keep f32 activations in both precisions: their sigmoids and Sinkhorn steer every stream.
    let job = Job {
        w: site.mix.matrix(file),
        x: &hyper.residual,
        precision: Precision::Exact,
        what: "the mixing logits",
    };
    lanes.matmuls(&[job], mix, faults);
    let mixing = Mixing {
        streams: n,
        scale: site.scale,
        base: &site.base,
        sinkhorn: config.sinkhorn,
        eps: config.hc_eps,
    };
    let cpu = lanes.cpu;
    let gates_width = n + n * n;
    let mix = &*mix;
    let row = |row: usize, residual: &[f32], gates: &mut [f32], raw: &mut [f32], out: &mut [f32]| {
        let squares = cpu.dot(residual, residual);
        if !squares.is_finite() {
            faults.note(faults.stage(), row, "the residual streams");
        }
        let inverse = 1.0 / (squares / width as f32 + config.rms_eps).sqrt();
        let mut logits = [0.0; 2 * MAX_STREAMS + MAX_STREAMS * MAX_STREAMS];
        let logits = &mut logits[..config.hc_rows()];
        column(mix, t, row, logits);
        logits.iter_mut().for_each(|logit| *logit *= inverse);
        let mut pre = [0.0; MAX_STREAMS];
        let (post, comb) = gates.split_at_mut(n);
        mixing.gates(cpu, logits, &mut pre[..n], post, comb);
        collapse(cpu, residual, &pre[..n], raw);
        cpu.rms_norm(raw, norm, config.rms_eps, out);
    };
    let residual = hyper.residual.f32();
    let gates = fit(&mut hyper.gates, gates_width * t);
    let raw = fit(y, hidden * t);
    let out = x.reset(t, hidden);
    if t == 1 {
        return row(0, residual, gates, raw, out);
    }
    residual
        .par_chunks_exact(width)
        .zip(gates.par_chunks_exact_mut(gates_width))
        .zip(raw.par_chunks_exact_mut(hidden))
        .zip(out.par_chunks_exact_mut(hidden))
        .enumerate()
        .with_min_len(rows_per_task(width))
        .for_each(|(i, (((residual, gates), raw), out))| row(i, residual, gates, raw, out));
}

/// Writes the streams (model-spec 2.4) from the output in `scratch.y`, with the gates that [`read`] left.
pub(crate) fn write(lanes: &Lanes, config: &Config, scratch: &mut Scratch) {
    let Scratch { hyper, y, .. } = scratch;
    let t = hyper.residual.n();
    let (hidden, n, width) = (config.hidden, config.streams, config.residual());
    let cpu = lanes.cpu;
    let row = |y: &[f32], residual: &[f32], gates: &[f32], next: &mut [f32]| {
        let (post, comb) = gates.split_at(n);
        expand(cpu, y, residual, post, comb, next);
    };
    let next = hyper.next.reset(t, width);
    let gates_width = n + n * n;
    if t == 1 {
        row(&y[..hidden], hyper.residual.f32(), &hyper.gates[..gates_width], next);
    } else {
        y[..hidden * t]
            .par_chunks_exact(hidden)
            .zip(hyper.residual.f32().par_chunks_exact(width))
            .zip(hyper.gates[..gates_width * t].par_chunks_exact(gates_width))
            .zip(next.par_chunks_exact_mut(width))
            .with_min_len(rows_per_task(width))
            .for_each(|(((y, residual), gates), next)| row(y, residual, gates, next));
    }
    std::mem::swap(&mut hyper.residual, &mut hyper.next);
}

#[cfg(test)]
mod tests {
    use quant_kernels::{Cpu, Rows};

    use super::*;
    use crate::cpu::scratch::Workers;
    use crate::weights::Tensor;

    fn wave(n: usize, scale: f32, step: f32) -> Vec<f32> {
        (0..n).map(|i| scale * (i as f32 * step + 0.3).sin()).collect()
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// A file with the mixing matrices of two sites.
    fn file(config: &Config) -> gguf::Model {
        let dims = [config.residual() as u64, config.hc_rows() as u64];
        let mut layout = gguf::Layout::new();
        layout.set("general.architecture", "glm5-next");
        for name in ["attn", "ffn"] {
            layout.tensor(name, gguf::GgmlType::F32, &dims).unwrap();
        }
        let mut writer = layout.write_to(Vec::new()).unwrap();
        for (name, step) in [("attn", 0.7), ("ffn", 1.3)] {
            writer.tensor(name, &bytes(&wave(config.residual() * config.hc_rows(), 0.4, step))).unwrap();
        }
        gguf::Model::from_static("two sites", Box::leak(writer.finish().unwrap().into_boxed_slice())).unwrap()
    }

    fn site(file: &gguf::Model, config: &Config, name: &str, step: f32) -> HyperSite {
        HyperSite {
            mix: Tensor::for_test(file, name),
            base: wave(config.hc_rows(), 1.0, step),
            scale: [0.9, 0.6, 1.7],
        }
    }

    /// Sections 2.3 and 2.4 in f64, written out: the normed input and the streams after `y` is written.
    fn oracle(
        config: &Config,
        mix: &[f32],
        site: &HyperSite,
        norm: &[f32],
        streams: &[f32],
        y: &[f32],
    ) -> (Vec<f64>, Vec<f64>) {
        let (n, hidden, width) = (config.streams, config.hidden, config.residual());
        let r: Vec<f64> = streams.iter().map(|v| f64::from(*v)).collect();
        let rms = (r.iter().map(|v| v * v).sum::<f64>() / width as f64 + f64::from(config.rms_eps)).sqrt();
        let m: Vec<f64> = mix
            .chunks_exact(width)
            .map(|row| row.iter().zip(&r).map(|(w, v)| f64::from(*w) * v / rms).sum())
            .collect();
        let logit = |k: usize, s: usize| m[k] * f64::from(site.scale[s]) + f64::from(site.base[k]);
        let sigmoid = |t: f64| 1.0 / (1.0 + (-t).exp());
        let eps = f64::from(config.hc_eps);
        let mut comb = vec![0.0; n * n];
        for i in 0..n {
            let e: Vec<f64> = (0..n).map(|j| logit(2 * n + i * n + j, 2).exp()).collect();
            (0..n).for_each(|j| comb[i * n + j] = e[j] / e.iter().sum::<f64>() + eps);
        }
        for pass in 0..2 * config.sinkhorn - 1 {
            for a in 0..n {
                let at = |b: usize| if pass % 2 == 0 { b * n + a } else { a * n + b };
                let sum: f64 = (0..n).map(|b| comb[at(b)]).sum::<f64>() + eps;
                (0..n).for_each(|b| comb[at(b)] /= sum);
            }
        }
        let x: Vec<f64> = (0..hidden)
            .map(|h| (0..n).map(|s| (sigmoid(logit(s, 0)) + eps) * r[s * hidden + h]).sum())
            .collect();
        let rms = (x.iter().map(|v| v * v).sum::<f64>() / hidden as f64 + f64::from(config.rms_eps)).sqrt();
        let normed = x.iter().zip(norm).map(|(v, w)| v / rms * f64::from(*w)).collect();
        let mut next = vec![0.0; width];
        for j in 0..n {
            for h in 0..hidden {
                let mixed: f64 = (0..n).map(|i| comb[i * n + j] * r[i * hidden + h]).sum();
                next[j * hidden + h] = 2.0 * sigmoid(logit(n + j, 1)) * f64::from(y[h]) + mixed;
            }
        }
        (normed, next)
    }

    fn close(mine: &[f32], oracle: &[f64]) {
        for (mine, oracle) in mine.iter().zip(oracle) {
            assert!((f64::from(*mine) - oracle).abs() < 2e-6 * (1.0 + oracle.abs()), "{mine} {oracle}");
        }
    }

    /// Traps 1, 2, 4, 5, 6, 7, 10 on streams so small that the epsilon of the norm is half of what it is added to, with one
    /// stream a hundred times the others, on streams of zero, and on ordinary ones. Two sites in turn: what is written
    /// belongs to the site that was read.
    #[test]
    fn a_site_is_the_formula() {
        let config = Config::small();
        let file = file(&config);
        let (hidden, width) = (config.hidden, config.residual());
        let lanes = Lanes { cpu: Cpu::detect(), precision: Precision::Fast, threads: 1 };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let mut streams = wave(4 * width, 1.0, 0.9);
        streams[..width].iter_mut().for_each(|v| *v *= 3e-3);
        streams[width..][..hidden].iter_mut().for_each(|v| *v *= 100.0);
        streams[2 * width..3 * width].fill(0.0);
        let norm = wave(hidden, 1.0, 0.2);
        let y = wave(4 * hidden, 1.0, 0.5);
        for rows in [1, 4] {
            let mut scratch = Scratch { workers: Workers::new(1), ..Scratch::default() };
            scratch.hyper.residual.reset(rows, width).copy_from_slice(&streams[..rows * width]);
            let mut expected: Vec<Vec<f64>> = Vec::new();
            let mut before: Rows = Rows::new();
            for (name, step) in [("attn", 0.37), ("ffn", 0.91)] {
                let site = site(&file, &config, name, step);
                before.reset(rows, width).copy_from_slice(scratch.hyper.residual.f32());
                pool.install(|| read(&lanes, &file, &config, &site, &norm, &mut scratch));
                scratch.y[..rows * hidden].copy_from_slice(&y[..rows * hidden]);
                pool.install(|| write(&lanes, &config, &mut scratch));
                let mix = wave(width * config.hc_rows(), 0.4, if name == "attn" { 0.7 } else { 1.3 });
                for t in 0..rows {
                    let y = &y[t * hidden..][..hidden];
                    let (x, next) = oracle(&config, &mix, &site, &norm, before.row(t), y);
                    close(scratch.x.row(t), &x);
                    close(scratch.hyper.residual.row(t), &next);
                    expected.push(next);
                }
            }
            assert!(expected[0] != expected[rows], "the sites differ");
        }
    }
}
