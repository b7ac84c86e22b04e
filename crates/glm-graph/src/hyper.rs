//! Hyper-connections of one position (model-spec 2.3, 2.4): the small mathematics, without the product.
//!
//! Everything is f32 with products and sums rounded apart, in the order written.

use quant_kernels::Cpu;

/// Most residual streams that are run. The real model has 4.
pub const MAX_STREAMS: usize = 8;

/// Constants of a site.
#[derive(Clone, Copy, Debug)]
pub struct Mixing<'a> {
    /// Streams, at most [`MAX_STREAMS`].
    pub streams: usize,
    /// Factors of pre, post and comb.
    pub scale: [f32; 3],
    /// Added to the scaled logits, `[2n + n*n]`.
    pub base: &'a [f32],
    /// Sinkhorn iterations.
    pub sinkhorn: usize,
    /// Epsilon of `pre`, of the softmax and of every division of Sinkhorn.
    pub eps: f32,
}

impl Mixing<'_> {
    /// From mixing logits `m`, `[2n + n*n]`: `pre`, `post` (`[n]` each) and `comb`, `[source][destination]`.
    ///
    /// # Panics
    /// If the slices are shorter than that, or there are more than [`MAX_STREAMS`] streams.
    pub fn gates(&self, cpu: Cpu, m: &[f32], pre: &mut [f32], post: &mut [f32], comb: &mut [f32]) {
        let n = self.streams;
        let logit = |k: usize, scale: f32| m[k] * scale + self.base[k];
        let (pre, post, comb) = (&mut pre[..n], &mut post[..n], &mut comb[..n * n]);
        for s in 0..n {
            pre[s] = logit(s, self.scale[0]);
            post[s] = logit(n + s, self.scale[1]);
        }
        cpu.sigmoid(pre);
        cpu.sigmoid(post);
        pre.iter_mut().for_each(|pre| *pre += self.eps);
        post.iter_mut().for_each(|post| *post *= 2.0);
        for (i, row) in comb.chunks_exact_mut(n).enumerate() {
            for (j, out) in row.iter_mut().enumerate() {
                *out = logit(2 * n + i * n + j, self.scale[2]);
            }
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|l| *l -= max);
        }
        cpu.exp(comb);
        for row in comb.chunks_exact_mut(n) {
            let sum = row.iter().fold(0.0, |sum, l| sum + l);
            row.iter_mut().for_each(|l| *l = *l / sum + self.eps);
        }
        // The real model's count is compiled for itself: 39 passes over 16 values are 0.4 us instead of 2.
        match n {
            4 => sinkhorn_of::<4>(comb, self.sinkhorn, self.eps),
            _ => sinkhorn(comb, n, self.sinkhorn, self.eps),
        }
    }
}

/// Sinkhorn on `c`, `[source][destination]`: a column pass, then `iterations - 1` times a row pass and a column pass. The
/// sums run in the order of the index.
///
/// # Panics
/// If `c` is shorter than `n * n`.
pub fn sinkhorn(c: &mut [f32], n: usize, iterations: usize, eps: f32) {
    columns(c, n, eps);
    for _ in 1..iterations {
        rows(c, n, eps);
        columns(c, n, eps);
    }
}

fn columns(c: &mut [f32], n: usize, eps: f32) {
    for j in 0..n {
        let sum = (0..n).fold(0.0, |sum, i| sum + c[i * n + j]) + eps;
        (0..n).for_each(|i| c[i * n + j] /= sum);
    }
}

fn rows(c: &mut [f32], n: usize, eps: f32) {
    for row in c[..n * n].chunks_exact_mut(n) {
        let sum = row.iter().fold(0.0, |sum, value| sum + value) + eps;
        row.iter_mut().for_each(|value| *value /= sum);
    }
}

fn sinkhorn_of<const N: usize>(c: &mut [f32], iterations: usize, eps: f32) {
    let mut m = [[0.0; N]; N];
    for (i, row) in m.iter_mut().enumerate() {
        row.copy_from_slice(&c[i * N..][..N]);
    }
    let columns = |m: &mut [[f32; N]; N]| {
        let mut sum = [0.0; N];
        for row in m.iter() {
            (0..N).for_each(|j| sum[j] += row[j]);
        }
        sum.iter_mut().for_each(|sum| *sum += eps);
        for row in m.iter_mut() {
            (0..N).for_each(|j| row[j] /= sum[j]);
        }
    };
    columns(&mut m);
    for _ in 1..iterations {
        for row in m.iter_mut() {
            let sum = row.iter().fold(0.0, |sum, value| sum + value) + eps;
            row.iter_mut().for_each(|value| *value /= sum);
        }
        columns(&mut m);
    }
    for (i, row) in m.iter().enumerate() {
        c[i * N..][..N].copy_from_slice(row);
    }
}

/// `out = sum over s of pre[s] * residual[s]`, from +0 in the order of the streams. `residual` is `[streams][out.len()]`.
pub fn collapse(cpu: Cpu, residual: &[f32], pre: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (stream, weight) in residual.chunks_exact(out.len()).zip(pre) {
        cpu.scale_add(*weight, stream, out);
    }
}

/// `next[j] = post[j] * y + sum over i of comb[i][j] * residual[i]`, from +0 in that order: the comb matrix is applied
/// transposed. `residual` and `next` are `[streams][y.len()]`.
pub fn expand(cpu: Cpu, y: &[f32], residual: &[f32], post: &[f32], comb: &[f32], next: &mut [f32]) {
    let (n, hidden) = (post.len(), y.len());
    for (j, out) in next.chunks_exact_mut(hidden).enumerate() {
        out.fill(0.0);
        cpu.scale_add(post[j], y, out);
        for (i, stream) in residual.chunks_exact(hidden).enumerate() {
            cpu.scale_add(comb[i * n + j], stream, out);
        }
    }
}

#[cfg(test)]
#[allow(clippy::excessive_precision)] // The specification's digits.
mod tests {
    use super::*;

    /// Appendix A.1.
    fn appendix(sinkhorn: usize) -> ([f32; 4], [f32; 4], [f32; 16]) {
        let m: Vec<f32> = (0..24).map(|k| 0.1 * (k as f32 - 11.5)).collect();
        let mut base: Vec<f32> = (0..24).map(|k| 0.01 * k as f32).collect();
        let extra = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -1.0]];
        for (place, add) in extra.as_flattened().iter().enumerate() {
            base[8 + place] += add;
        }
        let mixing = Mixing { streams: 4, scale: [1.0, 0.5, 2.0], base: &base, sinkhorn, eps: 1e-6 };
        let (mut pre, mut post, mut comb) = ([0.0; 4], [0.0; 4], [0.0; 16]);
        mixing.gates(Cpu::scalar(), &m, &mut pre, &mut post, &mut comb);
        (pre, post, comb)
    }

    const COMB: [f32; 16] = [
        0.18362913, 0.42463247, 0.10926535, 0.28247205, 0.12844124, 0.10926542, 0.56471512, 0.19757722,
        0.35588414, 0.18362909, 0.12844097, 0.33204480, 0.33204449, 0.28247202, 0.19757757, 0.18790492,
    ];

    fn distance(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn appendix_a1_is_met() {
        let (pre, post, comb) = appendix(20);
        assert!(distance(&pre, &[0.24049008, 0.26115099, 0.28292571, 0.30576466]) < 1e-6, "{pre:?}");
        assert!(distance(&post, &[0.83404909, 0.86336003, 0.89291219, 0.92265479]) < 1e-6, "{post:?}");
        assert!(distance(&comb, &COMB) < 1e-6, "{comb:?}");
        for i in 0..4 {
            let row: f32 = comb[4 * i..][..4].iter().sum();
            let column: f32 = (0..4).map(|k| comb[4 * k + i]).sum();
            assert!((row - 0.999999).abs() < 1e-6 && (column - 0.999999).abs() < 1e-6, "{row} {column}");
        }
    }

    /// Trap 3: fewer passes are another matrix.
    #[test]
    fn three_passes_miss_appendix_a1() {
        assert!(distance(&appendix(3).2, &COMB) > 1e-6);
    }

    /// Trap 2: the softmax runs over destinations and the first Sinkhorn pass over columns. Starting with rows ends
    /// elsewhere while the iteration has not converged.
    #[test]
    fn first_pass_is_over_columns() {
        let start: [f32; 16] = std::array::from_fn(|k| 0.05 + (k * 7 % 16) as f32 / 16.0);
        let mut ours = start;
        sinkhorn(&mut ours, 4, 1, 1e-6);
        for j in 0..4 {
            let column: f32 = (0..4).map(|i| ours[4 * i + j]).sum();
            assert!((column - 1.0).abs() < 1e-5);
        }
        let mut by_rows = start;
        rows(&mut by_rows, 4, 1e-6);
        assert!(distance(&ours, &by_rows) > 1e-2);
    }

    #[test]
    fn the_compiled_count_gives_the_general_bits() {
        let start: [f32; 16] = std::array::from_fn(|k| 0.01 + (k * 5 % 16) as f32 / 11.0);
        let (mut general, mut special) = (start, start);
        sinkhorn(&mut general, 4, 20, 1e-6);
        sinkhorn_of::<4>(&mut special, 20, 1e-6);
        assert_eq!(general.map(f32::to_bits), special.map(f32::to_bits));
    }

    /// Trap 11: rows of the mixing matrix are pre, post, comb.
    #[test]
    fn logits_are_split_pre_post_comb() {
        let mut base = vec![0.0; 24];
        base[4..8].fill(5.0);
        let mixing = Mixing { streams: 4, scale: [1.0; 3], base: &base, sinkhorn: 20, eps: 1e-6 };
        let (mut pre, mut post, mut comb) = ([0.0; 4], [0.0; 4], [0.0; 16]);
        mixing.gates(Cpu::scalar(), &[0.0; 24], &mut pre, &mut post, &mut comb);
        assert!(pre.iter().all(|pre| (pre - (0.5 + 1e-6)).abs() < 1e-7));
        assert!(post.iter().all(|post| (post - 2.0 * 0.993_307_15).abs() < 1e-6));
        assert!(comb.iter().all(|comb| (comb - 0.25).abs() < 1e-5));
    }

    fn streams() -> Vec<f32> {
        (0..4).flat_map(|s| (0..3).map(move |h| (10 * s + h) as f32)).collect()
    }

    /// Trap 1: comb is applied transposed, so `comb[0][1] = 1` moves stream 0 to stream 1. Trap 7: the old streams are
    /// read, not the ones being written.
    #[test]
    fn comb_moves_source_to_destination() {
        let mut comb = [0.0; 16];
        for source in 0..4 {
            comb[4 * source + (source + 1) % 4] = 1.0;
        }
        let residual = streams();
        let mut next = vec![0.0; 12];
        expand(Cpu::scalar(), &[5.0; 3], &residual, &[0.0; 4], &comb, &mut next);
        assert_eq!(next[3..], residual[..9]);
        assert_eq!(next[..3], residual[9..]);
    }

    /// Trap 6: with post = 0 and comb = I the layer is the identity, whatever the mixer said.
    #[test]
    fn nothing_is_added_around_the_mixer() {
        let identity: [f32; 16] = std::array::from_fn(|k| if k % 5 == 0 { 1.0 } else { 0.0 });
        let residual = streams();
        let mut next = vec![0.0; 12];
        expand(Cpu::scalar(), &[7.0; 3], &residual, &[0.0; 4], &identity, &mut next);
        assert_eq!(next, residual);
        let mut y = [0.0; 3];
        collapse(Cpu::scalar(), &residual, &[1.0, 0.0, 0.5, 0.0], &mut y);
        assert_eq!(y, [10.0, 11.5, 13.0]);
    }
}
