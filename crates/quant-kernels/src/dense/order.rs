//! The order of a sum: 256-element blocks, 32 lanes each, trees of adjacent pairs (docs/ARITHMETIC.md, "Dot order").

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

/// Block partials, padded with +0.0 to a power of two and added as a tree of adjacent pairs, while they stream in:
/// level l holds the sum of the last complete, still unpaired, run of 2^l partials.
#[derive(Clone, Copy)]
pub(crate) struct Partials {
    levels: [f32; usize::BITS as usize],
    count: usize,
}

impl Partials {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { levels: [0.0; usize::BITS as usize], count: 0 }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, partial: f32) {
        let mut sum = partial;
        let mut level = 0;
        while self.count >> level & 1 == 1 {
            sum += self.levels[level];
            level += 1;
        }
        self.levels[level] = sum;
        self.count += 1;
    }

    #[inline(always)]
    pub(crate) fn finish(self) -> f32 {
        if self.count == 0 {
            return 0.0;
        }
        let depth = self.count.next_power_of_two().trailing_zeros() as usize;
        if self.count >> depth & 1 == 1 {
            return self.levels[depth];
        }
        // The unpaired runs, lowest level first, each against what the padding has become on its right.
        let mut right = 0.0;
        for level in 0..depth {
            right = if self.count >> level & 1 == 1 { self.levels[level] + right } else { right + 0.0 };
        }
        right
    }
}

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

/// a . b in dot order.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut partials = Partials::new();
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        partials.push(block(a, b));
    }
    partials.finish()
}

/// The sum of x in dot order: what a dot product with ones would give.
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    let mut partials = Partials::new();
    for block in x.chunks(BLOCK) {
        let mut lanes = [0.0; LANES];
        for chunk in block.chunks(LANES) {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += x;
            }
        }
        partials.push(tree(&lanes));
    }
    partials.finish()
}
