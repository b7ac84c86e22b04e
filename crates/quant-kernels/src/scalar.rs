//! The products in plain Rust: the definition that every instruction set is compared with. Nothing here is tuned.

use bytemuck::cast_slice;

use crate::dequantize::{self, with_narrow, with_wide};
use crate::narrow::{self, Narrow};
use crate::rows::Quantized;
use crate::tree::{self, Tree};
use crate::wide::{self, Minima, Wide};
use crate::{Matrix, Rows};

/// Values of a float block, and lanes that share its sums.
const BLOCK: usize = 256;
const LANES: usize = 32;

/// Dequantises a block of every row and multiplies it with f32 activations.
pub(crate) fn exact(w: Matrix<'_>, x: &Rows, out: &mut [f32]) {
    let n = x.n();
    let mut trees = vec![Tree::new(); n];
    let mut weights = [0.0; BLOCK];
    for (r, out) in out.chunks_exact_mut(n.max(1)).enumerate() {
        let row = w.row(r);
        for start in (0..w.cols()).step_by(BLOCK) {
            let len = BLOCK.min(w.cols() - start);
            let quant = w.quant();
            let bytes = quant.block_bytes();
            let from = start / quant.block_len() * bytes;
            let weights = &mut weights[..len];
            dequantize::blocks(quant, &row[from..][..len / quant.block_len() * bytes], weights);
            for (t, tree) in trees.iter_mut().enumerate() {
                tree.push(block_dot(weights, &x.row(t)[start..][..len]));
            }
        }
        for (out, tree) in out.iter_mut().zip(&mut trees) {
            *out = tree.finish();
        }
    }
}

/// One block of at most 256 values: lane j of 32 takes elements j, j + 32, ... in order.
fn block_dot(w: &[f32], x: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (w, x) in w.chunks(LANES).zip(x.chunks(LANES)) {
        for ((sum, w), x) in sums.iter_mut().zip(w).zip(x) {
            *sum = w.mul_add(*x, *sum);
        }
    }
    tree::lanes(&sums)
}

/// The integer product of a wide or a narrow format.
pub(crate) fn fast(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    with_wide!(w.quant(), Block => fast_wide::<Block>(w, x, n, out), _ => {
        with_narrow!(w.quant(), Block => fast_narrow::<Block>(w, x, n, out), _ => {
            unreachable!("the caller asks only for formats of the two integer families")
        })
    });
}

fn fast_wide<B: Wide>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let mut trees = vec![Tree::new(); n];
    let mut parts = wide::Parts::new();
    for (r, out) in out.chunks_exact_mut(n.max(1)).enumerate() {
        for (b, block) in cast_slice::<u8, B>(w.row(r)).iter().enumerate() {
            block.unpack(&mut parts);
            for (t, tree) in trees.iter_mut().enumerate() {
                let at = b * n + t;
                let q = &x.q[at * wide::LEN..][..wide::LEN];
                let sums = &x.sums[at * 16..][..16];
                tree.push(wide_block(B::MINIMA, &parts, q, sums, x.scale[t * x.stride + b]));
            }
        }
        for (out, tree) in out.iter_mut().zip(&mut trees) {
            *out = tree.finish();
        }
    }
}

fn wide_block(minima: Minima, parts: &wide::Parts, q: &[i8], sums: &[i16], d: f32) -> f32 {
    let mut sum = 0i32;
    for ((w, q), &scale) in parts.w.chunks_exact(16).zip(q.chunks_exact(16)).zip(&parts.scale) {
        let dot: i32 = w.iter().zip(q).map(|(&w, &q)| i32::from(w) * i32::from(q)).sum();
        sum += i32::from(scale) * dot;
    }
    let product = (parts.d * d) * sum as f32;
    match minima {
        Minima::No => product,
        Minima::Yes => {
            let min: i32 =
                parts.min.iter().zip(sums).map(|(&min, &sum)| i32::from(min) * i32::from(sum)).sum();
            product - (parts.dmin * d) * min as f32
        }
    }
}

fn fast_narrow<B: Narrow>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let mut trees = vec![Tree::new(); n];
    let mut parts = narrow::Parts::new();
    for (r, out) in out.chunks_exact_mut(n.max(1)).enumerate() {
        for (b, block) in cast_slice::<u8, B>(w.row(r)).iter().enumerate() {
            block.unpack(&mut parts);
            for (t, tree) in trees.iter_mut().enumerate() {
                let q = &x.q[(b * n + t) * narrow::LEN..][..narrow::LEN];
                let dot: i32 = parts.w.iter().zip(q).map(|(&w, &q)| i32::from(w) * i32::from(q)).sum();
                let (d, sum) = (x.scale[t * x.stride + b], x.sums[t * x.stride + b]);
                let product = (parts.d * d) * dot as f32;
                tree.push(if B::MINIMUM { product + (parts.m * d) * f32::from(sum) } else { product });
            }
        }
        for (out, tree) in out.iter_mut().zip(&mut trees) {
            *out = tree.finish();
        }
    }
}
