//! The order of a sum: 256-element blocks, 32 lanes each, trees of adjacent pairs (docs/ARITHMETIC.md, "Dot order").

use super::vector::{self, Vector};

/// Elements a block.
pub(crate) const BLOCK: usize = 256;
/// Lanes a block: lane j takes elements j, j + 32, ...
pub(crate) const LANES: usize = 32;

/// Adds adjacent pairs level by level.
#[inline(always)]
pub(crate) fn tree(lanes: &[f32; LANES]) -> f32 {
    let mut sums = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] = sums[2 * i] + sums[2 * i + 1];
        }
        width /= 2;
    }
    sums[0]
}

/// Block partials of N sums, padded with +0.0 to a power of two and added as a tree of adjacent pairs, while they stream
/// in: level l holds the sum of the last complete, still unpaired, run of 2^l partials. Takes fewer than 2^LEVELS.
#[derive(Clone, Copy)]
pub(crate) struct Partials<const N: usize, const LEVELS: usize> {
    levels: [[f32; N]; LEVELS],
    count: usize,
}

impl<const N: usize, const LEVELS: usize> Partials<N, LEVELS> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { levels: [[0.0; N]; LEVELS], count: 0 }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, partial: [f32; N]) {
        let mut sum = partial;
        let mut level = 0;
        while self.count >> level & 1 == 1 {
            sum = add(self.levels[level], sum);
            level += 1;
        }
        self.levels[level] = sum;
        self.count += 1;
    }

    #[inline(always)]
    pub(crate) fn finish(&self) -> [f32; N] {
        if self.count.is_power_of_two() {
            return self.levels[self.count.trailing_zeros() as usize];
        }
        // The unpaired runs, shortest first, each with the sum of what stands to its right; that begins as padding.
        let mut right = [0.0; N];
        for level in 0..=self.count.checked_ilog2().unwrap_or(0) as usize {
            let left = if self.count >> level & 1 == 1 { self.levels[level] } else { right };
            let other = if self.count >> level & 1 == 1 { right } else { [0.0; N] };
            right = add(left, other);
        }
        right
    }
}

#[inline(always)]
pub(super) fn add<const N: usize>(mut a: [f32; N], b: [f32; N]) -> [f32; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}

/// Levels for single sums: 2^40 blocks are more than an address space holds.
type Stream = Partials<1, 40>;

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
    let mut partials = Stream::new();
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        partials.push([block(a, b)]);
    }
    partials.finish()[0]
}

/// The same with whole blocks in registers.
#[inline(always)]
pub(super) fn dot_vector<V: Vector>(v: V, a: &[f32], b: &[f32]) -> f32 {
    let at_once = 8 / V::GROUPS;
    let mut partials = Stream::new();
    let (mut a_chunks, mut b_chunks) = (a.chunks_exact(at_once * BLOCK), b.chunks_exact(at_once * BLOCK));
    for (a, b) in (&mut a_chunks).zip(&mut b_chunks) {
        for &partial in &vector::blocks(v, a, b)[..at_once] {
            partials.push([partial]);
        }
    }
    for (a, b) in a_chunks.remainder().chunks(BLOCK).zip(b_chunks.remainder().chunks(BLOCK)) {
        partials.push([vector::block(v, a, b)]);
    }
    partials.finish()[0]
}

/// The sum of x in dot order: what a dot product with ones would give.
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    let mut partials = Stream::new();
    for block in x.chunks(BLOCK) {
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
        partials.push([tree(&lanes)]);
    }
    partials.finish()[0]
}
