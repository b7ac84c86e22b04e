//! What an instruction set provides beyond plain Rust, and the kernels written on it once.
//!
//! LLVM vectorises element-wise bodies by itself. Where sums cross lanes, or where registers must be shared between
//! several rows, the kernel is written with [`Vector`] here; x86.rs implements it.

use super::order::{BLOCK, LANES};

/// Vectors of `WIDTH` f32 values. A value of an implementing type exists only inside functions compiled for its
/// instruction set.
pub(super) trait Vector: Copy {
    /// One register.
    type F: Copy;
    /// Values a register: 8 or 16.
    const WIDTH: usize;
    /// Registers that make up the 32 lanes of a block.
    const GROUPS: usize = LANES / Self::WIDTH;

    fn splat(self, x: f32) -> Self::F;
    /// The first `WIDTH` values of x. Panics if there are fewer.
    fn load(self, x: &[f32]) -> Self::F;
    /// To the first `WIDTH` values of x. Panics if there are fewer.
    fn store(self, x: Self::F, to: &mut [f32]);
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The sum of each register's values as a tree of adjacent pairs.
    fn sums(self, x: [Self::F; 8]) -> [f32; 8];
    fn widen(self, x: &[u16; 8]) -> [f32; 8];
    fn narrow(self, x: &[f32; 8]) -> [u16; 8];
}

// The bodies below are plain loops: a closure is a function of its own, and one that LLVM leaves outlined is not compiled
// for the instruction set, so each register operation in it would become a call.

/// The longest vectors that [`dots`] takes, in blocks: they bound its stack of partials.
const MAX_BLOCKS: usize = 1 << 11;
const LEVELS: usize = MAX_BLOCKS.ilog2() as usize + 1;

/// Whether [`dots`] takes vectors of this length: whole lane rows, not enormous.
#[inline(always)]
pub(super) fn fits(len: usize) -> bool {
    len > 0 && len.is_multiple_of(LANES) && len <= MAX_BLOCKS * BLOCK
}

/// The dot products of H vectors with R rows, H * R = 8, each in dot order; that of a\[h\] and b\[r\] is at h * R + r.
/// Vector h is `width` values of `a` from h * width on, row r likewise of `b`; `width` passes [`fits`].
///
/// Eight sums are as many as hide the latency of two multiply-adds a cycle, and let eight lane trees run as one. Each
/// register of b serves H sums and each of a serves R.
#[inline(always)]
pub(super) fn dots<V: Vector, const H: usize, const R: usize>(
    v: V,
    a: &[f32],
    b: &[f32],
    width: usize,
) -> [f32; 8] {
    const { assert!(H * R == 8) };
    let mut partials = Partials::new();
    let mut start = 0;
    while start < width {
        let end = width.min(start + BLOCK);
        let steps = (end - start) / LANES;
        // Rows of lanes, sliced to one length so that the loop below needs no bounds check.
        let mut a_lanes: [&[[f32; LANES]]; H] = [&[]; H];
        for (h, lanes) in a_lanes.iter_mut().enumerate() {
            *lanes = &a[h * width + start..h * width + end].as_chunks().0[..steps];
        }
        let mut b_lanes: [&[[f32; LANES]]; R] = [&[]; R];
        for (r, lanes) in b_lanes.iter_mut().enumerate() {
            *lanes = &b[r * width + start..r * width + end].as_chunks().0[..steps];
        }
        let mut lane = 0;
        let mut groups = [[0.0; 8]; 4];
        for group in groups.iter_mut().take(V::GROUPS) {
            let mut sums = [v.splat(0.0); 8];
            for step in 0..steps {
                let mut rows = [v.splat(0.0); R];
                for r in 0..R {
                    rows[r] = v.load(&b_lanes[r][step][lane..]);
                }
                for h in 0..H {
                    let x = v.load(&a_lanes[h][step][lane..]);
                    for r in 0..R {
                        sums[h * R + r] = v.fma(x, rows[r], sums[h * R + r]);
                    }
                }
            }
            *group = v.sums(sums);
            lane += V::WIDTH;
        }
        partials.push(join_groups::<V, 8>(&groups));
        start = end;
    }
    partials.finish()
}

/// The block partials of eight sums, added as `crate::tree::Tree` adds those of one.
struct Partials {
    levels: [[f32; 8]; LEVELS],
    count: usize,
}

impl Partials {
    #[inline(always)]
    fn new() -> Self {
        Self { levels: [[0.0; 8]; LEVELS], count: 0 }
    }

    #[inline(always)]
    fn push(&mut self, partial: [f32; 8]) {
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
    fn finish(&self) -> [f32; 8] {
        if self.count.is_power_of_two() {
            return self.levels[self.count.trailing_zeros() as usize];
        }
        // The unpaired runs, shortest first, each with the sum of what stands to its right; that begins as padding.
        let mut right = [0.0; 8];
        for level in 0..=self.count.checked_ilog2().unwrap_or(0) as usize {
            let left = if self.count >> level & 1 == 1 { self.levels[level] } else { right };
            let other = if self.count >> level & 1 == 1 { right } else { [0.0; 8] };
            right = add(left, other);
        }
        right
    }
}

#[inline(always)]
fn add<const N: usize>(mut a: [f32; N], b: [f32; N]) -> [f32; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}

/// The partial sums of as many whole blocks as give eight registers of lanes: two of 8-wide groups, four of 16-wide.
/// `a` and `b` hold 8 / GROUPS blocks; the partials are the first 8 / GROUPS values.
#[inline(always)]
pub(super) fn blocks<V: Vector>(v: V, a: &[f32], b: &[f32]) -> [f32; 4] {
    let count = 8 / V::GROUPS;
    let a = &a[..count * BLOCK];
    let b = &b[..count * BLOCK];
    let mut sums = [v.splat(0.0); 8];
    let mut at = 0;
    while at < BLOCK {
        for (i, sum) in sums.iter_mut().enumerate() {
            let at = i / V::GROUPS * BLOCK + at + i % V::GROUPS * V::WIDTH;
            *sum = v.fma(v.load(&a[at..]), v.load(&b[at..]), *sum);
        }
        at += LANES;
    }
    let sums = v.sums(sums);
    let mut partials = [0.0; 4];
    for block in 0..count {
        let mut groups = [[0.0]; 4];
        for (group, sum) in groups.iter_mut().zip(&sums[block * V::GROUPS..(block + 1) * V::GROUPS]) {
            *group = [*sum];
        }
        [partials[block]] = join_groups::<V, 1>(&groups);
    }
    partials
}

/// The partial sum of one block of any length up to 256.
#[inline(always)]
pub(super) fn block<V: Vector>(v: V, a: &[f32], b: &[f32]) -> f32 {
    let len = a.len();
    let b = &b[..len];
    let mut sums = [v.splat(0.0); 8];
    let whole = len - len % LANES;
    let mut at = 0;
    while at < whole {
        for (i, sum) in sums.iter_mut().enumerate().take(V::GROUPS) {
            *sum = v.fma(v.load(&a[at + i * V::WIDTH..]), v.load(&b[at + i * V::WIDTH..]), *sum);
        }
        at += LANES;
    }
    let mut lanes = [0.0; LANES];
    for (i, &sum) in sums.iter().enumerate().take(V::GROUPS) {
        v.store(sum, &mut lanes[i * V::WIDTH..]);
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(&a[whole..]).zip(&b[whole..]) {
        *lane = a.mul_add(b, *lane);
    }
    tree(v, &lanes)
}

/// The sum of 32 lanes.
#[inline(always)]
pub(super) fn tree<V: Vector>(v: V, lanes: &[f32; LANES]) -> f32 {
    let mut registers = [v.splat(0.0); 8];
    for (i, register) in registers.iter_mut().enumerate().take(V::GROUPS) {
        *register = v.load(&lanes[i * V::WIDTH..]);
    }
    let sums = v.sums(registers);
    let [sum] = join_groups::<V, 1>(&[[sums[0]], [sums[1]], [sums[2]], [sums[3]]]);
    sum
}

/// Sums of `GROUPS` registers into the sum of the block: the last levels of its tree.
#[inline(always)]
fn join_groups<V: Vector, const N: usize>(sums: &[[f32; N]; 4]) -> [f32; N] {
    let left = add(sums[0], sums[1]);
    if V::GROUPS == 2 { left } else { add(left, add(sums[2], sums[3])) }
}

/// out\[h\] += sum over rows j of p\[h\]\[j\] * rows\[j\], by fmaf in the order of j, on C registers of columns from
/// `column` on. `out` is \[H\]\[width\], `rows` \[n\]\[width\]; p\[h\] is n values of `p` from h * stride on.
#[inline(always)]
pub(super) fn weigh<V: Vector, const H: usize, const C: usize>(
    v: V,
    p: &[f32],
    stride: usize,
    rows: &[f32],
    width: usize,
    column: usize,
    out: &mut [f32],
) {
    let span = C * V::WIDTH;
    let mut sums = [[v.splat(0.0); C]; H];
    for (h, sums) in sums.iter_mut().enumerate() {
        let out = &out[h * width + column..][..span];
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = v.load(&out[c * V::WIDTH..]);
        }
    }
    let mut row = [v.splat(0.0); C];
    for (j, values) in rows.chunks_exact(width).enumerate() {
        let values = &values[column..][..span];
        for (c, row) in row.iter_mut().enumerate() {
            *row = v.load(&values[c * V::WIDTH..]);
        }
        for (h, sums) in sums.iter_mut().enumerate() {
            let p = v.splat(p[h * stride + j]);
            for (sum, &row) in sums.iter_mut().zip(&row) {
                *sum = v.fma(p, row, *sum);
            }
        }
    }
    for (h, sums) in sums.iter().enumerate() {
        let out = &mut out[h * width + column..][..span];
        for (c, &sum) in sums.iter().enumerate() {
            v.store(sum, &mut out[c * V::WIDTH..]);
        }
    }
}
