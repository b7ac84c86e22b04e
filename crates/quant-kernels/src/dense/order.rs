//! The order of a sum: 256-element blocks, 32 lanes each, trees of adjacent pairs (docs/ARITHMETIC.md, "Dot order").

use super::vector::{self, Vector};
use crate::tree::{Tree, lanes as tree};

/// Elements a block.
pub(super) const BLOCK: usize = 256;
/// Lanes a block: lane j takes elements j, j + 32, ...
pub(super) const LANES: usize = 32;

/// One block of at most 256 products, by fmaf from +0.
#[inline(always)]
fn block(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane = a.mul_add(b, *lane);
        }
    }
    tree(&lanes)
}

/// a . b in dot order: the definition.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut partials = Tree::new();
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        partials.push(block(a, b));
    }
    partials.finish()
}

/// The same with whole blocks in registers.
#[inline(always)]
pub(super) fn dot_vector<V: Vector>(v: V, a: &[f32], b: &[f32]) -> f32 {
    let at_once = 8 / V::GROUPS;
    let mut partials = Tree::new();
    let (mut a_chunks, mut b_chunks) = (a.chunks_exact(at_once * BLOCK), b.chunks_exact(at_once * BLOCK));
    for (a, b) in (&mut a_chunks).zip(&mut b_chunks) {
        for &partial in &vector::blocks(v, a, b)[..at_once] {
            partials.push(partial);
        }
    }
    for (a, b) in a_chunks.remainder().chunks(BLOCK).zip(b_chunks.remainder().chunks(BLOCK)) {
        partials.push(vector::block(v, a, b));
    }
    partials.finish()
}

/// The sum of x in dot order: what a dot product with ones would give.
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    let mut partials = Tree::new();
    for block in x.chunks(BLOCK) {
        partials.push(tree(&lane_sums(block)));
    }
    partials.finish()
}

/// The same with the trees in registers.
#[inline(always)]
pub(super) fn sum_vector<V: Vector>(v: V, x: &[f32]) -> f32 {
    let mut partials = Tree::new();
    for block in x.chunks(BLOCK) {
        partials.push(vector::tree(v, &lane_sums(block)));
    }
    partials.finish()
}

#[inline(always)]
fn lane_sums(block: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += x;
    }
    lanes
}
