//! Products with many activation rows: a lane of a vector is a weight row.
//!
//! 16 weight rows are unpacked and transposed: a vector holds the same two (wide) or four (narrow) columns of all of
//! them, and the activations of these columns are broadcast to it. So sums need no work across lanes, and the float part
//! is done for 16 rows at once. Weights of wide formats are multiplied by their sub-block scales first: at most
//! 128 * 32 = 4,096, so `vpdpwssd` takes them; narrow ones are bytes with an offset for `vpdpbusd`. Two groups of 16 rows
//! by eight activation rows are 16 accumulators, which hide the latency of the multiplications.

use std::arch::x86_64::*;

use bytemuck::cast_slice;

use super::avx2_narrow::NarrowAvx2;
use super::avx512::{Line, Trees16, halves, transpose};
use super::avx512_narrow::{bytes, offset};
use super::avx512_scratch as scratch;
use super::avx512_wide::{Kind512, Wide512, spread};
use crate::Matrix;
use crate::rows::Quantized;
use crate::wide::Minima;
use crate::{narrow, wide};

/// From this many activation rows on, transposing the weights pays.
pub(super) const MIN_COLS: usize = 8;
/// Weight rows of a group, and groups of a tile.
const LANES: usize = 16;
const GROUPS: usize = 2;
/// Activation rows of a tile.
const TILE_COLS: usize = 64;
/// Lines of 256 weights of 16 bits, one row.
const ROW: usize = 8;
/// Lines of 256 weights of 16 bits, 16 rows.
const PANEL: usize = ROW * LANES;

/// One block of 16 weight rows, ready to be multiplied.
struct Scales {
    d: __m512,
    /// Of the minima.
    m: __m512,
}

/// Writes the sums of a tile.
///
/// # Safety
///
/// AVX-512F. The trees have `groups * cols` accumulators.
#[inline(always)]
unsafe fn store(
    trees: &Trees16<'_>,
    (r0, rows): (usize, usize),
    (t0, cols, n): (usize, usize, usize),
    out: &mut [f32],
) {
    for g in 0..rows.div_ceil(LANES) {
        for t in 0..cols {
            // SAFETY: the caller's.
            let sums = unsafe { trees.finish(g * cols + t) };
            for (r, sum) in sums.iter().enumerate().take(rows - LANES * g) {
                out[(r0 + LANES * g + r) * n + t0 + t] = *sum;
            }
        }
    }
}

/// Products of a wide format.
///
/// # Safety
///
/// As `avx512_wide::matmul`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub(super) unsafe fn wide<B: Wide512>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let blocks = x.blocks;
    let weights = cast_slice::<u8, B>(w.bytes());
    let most = n.min(TILE_COLS);
    let mut q = scratch::take(blocks * most * ROW);
    let mut panels = scratch::take(GROUPS * PANEL);
    let mut minima = scratch::take(GROUPS * LANES);
    let mut rows = scratch::take(PANEL);
    let mut levels = scratch::take(GROUPS * most * Trees16::depth(blocks));
    for t0 in (0..n).step_by(TILE_COLS) {
        let cols = TILE_COLS.min(n - t0);
        // SAFETY: the features are the caller's, and `x` holds `blocks` blocks of `n` rows.
        unsafe { widen(x, (t0, cols, n), &mut q) };
        for r0 in (0..w.rows()).step_by(GROUPS * LANES) {
            let in_tile = (GROUPS * LANES).min(w.rows() - r0);
            let groups = in_tile.div_ceil(LANES);
            let mut trees = Trees16::new(&mut levels, blocks);
            for b in 0..blocks {
                // SAFETY: the features are the caller's; block b of rows below `w.rows()` is read, activation rows
                // `t0 .. t0 + cols` of block b.
                unsafe {
                    let zero = _mm512_setzero_ps();
                    let mut scales = [Scales { d: zero, m: zero }, Scales { d: zero, m: zero }];
                    for g in 0..groups {
                        let first = r0 + LANES * g;
                        let column = &weights[first * blocks + b..];
                        let some = LANES.min(w.rows() - first);
                        let panel = &mut panels[PANEL * g..][..PANEL];
                        let minima = &mut minima[LANES * g..][..LANES];
                        scales[g] = pack(column, blocks, some, &mut rows, panel, minima);
                    }
                    let tile = Tile {
                        panels: &panels,
                        minima: &minima,
                        scales: &scales,
                        q: q[b * cols * ROW..].as_ptr().cast(),
                        sums: x.sums.as_ptr().add((b * n + t0) * 16),
                        dx: x.scale_by_block.as_ptr().add(b * n.next_multiple_of(8) + t0),
                        cols,
                    };
                    if groups == 1 {
                        tile.times::<B, 1>(&mut trees);
                    } else {
                        tile.times::<B, 2>(&mut trees);
                    }
                }
                trees.advance();
            }
            // SAFETY: the features are the caller's.
            unsafe { store(&trees, (r0, in_tile), (t0, cols, n), out) };
        }
    }
    for lines in [q, panels, minima, rows, levels] {
        scratch::put(lines);
    }
}

/// Activations of a tile as 16 bits: `[block][row][256]`.
///
/// # Safety
///
/// The features of [`wide`]; `x` is the wide form of `n` rows, `q` has room for the tile.
#[inline(always)]
unsafe fn widen(x: &Quantized, (t0, cols, n): (usize, usize, usize), q: &mut [Line]) {
    for b in 0..x.blocks {
        let lines = &mut q[b * cols * ROW..][..cols * ROW];
        let from = &x.q[(b * n + t0) * wide::LEN..][..cols * wide::LEN];
        for (line, from) in lines.iter_mut().zip(from.as_chunks::<32>().0) {
            // SAFETY: the features are the caller's; 32 bytes are readable.
            unsafe { line.set(_mm512_cvtepi8_epi16(_mm256_loadu_si256(from.as_ptr().cast()))) };
        }
    }
}

/// Unpacks the first block of each of `some` rows, which are `blocks` blocks apart, to 16 lanes; missing rows are zero.
///
/// # Safety
///
/// The features of [`wide`]. `rows` and `panel` have `PANEL` lines, `minima` 16.
#[inline(always)]
unsafe fn pack<B: Wide512>(
    column: &[B],
    blocks: usize,
    some: usize,
    rows: &mut [Line],
    panel: &mut [Line],
    minima: &mut [Line],
) -> Scales {
    // SAFETY: the caller's.
    unsafe {
        let zero = _mm512_setzero_si512();
        let (mut d, mut m) = ([[0u8; 2]; LANES], [[0u8; 2]; LANES]);
        let mut mins = [zero; LANES];
        for (r, row) in rows.chunks_exact_mut(ROW).enumerate().take(LANES) {
            if r >= some {
                for line in row {
                    line.set(zero);
                }
                continue;
            }
            let block = &column[r * blocks];
            (d[r], m[r]) = (block.d512(), block.dmin512());
            let unpacked = block.vectors512();
            let scale = spread::<8>(unpacked.scale);
            for i in 0..4 {
                let w = unpacked.w[i];
                let w = match B::KIND {
                    Kind512::Signed => _mm512_mask_sub_epi8(w, unpacked.negative[i], zero, w),
                    Kind512::Offset(offset) => _mm512_sub_epi8(w, _mm512_set1_epi8(offset as i8)),
                    Kind512::Minima => w,
                };
                let low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(w));
                let high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(w));
                row[2 * i].set(_mm512_mullo_epi16(low, scale[2 * i]));
                row[2 * i + 1].set(_mm512_mullo_epi16(high, scale[2 * i + 1]));
            }
            if B::MINIMA == Minima::Yes {
                mins[r] = _mm512_zextsi256_si512(unpacked.min);
            }
        }
        for j in 0..ROW {
            let mut part = [zero; LANES];
            for r in 0..LANES {
                part[r] = rows[ROW * r + j].get();
            }
            let columns = transpose(&part);
            for c in 0..LANES {
                panel[LANES * j + c].set(columns[c]);
            }
        }
        if B::MINIMA == Minima::Yes {
            let columns = transpose(&mins);
            for c in 0..LANES {
                minima[c].set(columns[c]);
            }
        }
        let d = _mm512_cvtph_ps(_mm256_loadu_si256(d.as_ptr().cast()));
        let d = if B::UNIT == 1.0 { d } else { _mm512_mul_ps(d, _mm512_set1_ps(B::UNIT)) };
        Scales { d, m: _mm512_cvtph_ps(_mm256_loadu_si256(m.as_ptr().cast())) }
    }
}

/// One block of a tile.
struct Tile<'a> {
    /// `[group][128 pairs of columns]`.
    panels: &'a [Line],
    /// `[group][16]`, eight pairs of minima in each.
    minima: &'a [Line],
    scales: &'a [Scales; GROUPS],
    /// `[cols][128]` pairs of activations.
    q: *const i32,
    /// `[cols][16]`.
    sums: *const i16,
    /// `[cols]`.
    dx: *const f32,
    cols: usize,
}

impl Tile<'_> {
    /// All its activation rows.
    ///
    /// # Safety
    ///
    /// The features of [`wide`]; the pointers point to what their fields say.
    #[inline(always)]
    unsafe fn times<B: Wide512, const R: usize>(&self, trees: &mut Trees16<'_>) {
        let mut t = 0;
        while t < self.cols {
            // SAFETY: the caller's.
            t += unsafe {
                match self.cols - t {
                    8.. => self.some::<B, R, 8>(t, trees),
                    4.. => self.some::<B, R, 4>(t, trees),
                    _ => self.some::<B, R, 1>(t, trees),
                }
            };
        }
    }

    /// Activation rows `t .. t + C`; returns C.
    ///
    /// # Safety
    ///
    /// As [`Tile::times`]; `t + C <= cols`.
    #[inline(always)]
    unsafe fn some<B: Wide512, const R: usize, const C: usize>(
        &self,
        t: usize,
        trees: &mut Trees16<'_>,
    ) -> usize {
        // SAFETY: the caller's.
        unsafe {
            let zero = _mm512_setzero_si512();
            let mut acc = [[zero; C]; R];
            let q = self.q.add(t * PANEL);
            for k in 0..PANEL {
                let mut w = [zero; R];
                for r in 0..R {
                    w[r] = self.panels.get_unchecked(PANEL * r + k).get();
                }
                for c in 0..C {
                    let x = _mm512_set1_epi32(q.add(PANEL * c + k).read());
                    for r in 0..R {
                        acc[r][c] = _mm512_dpwssd_epi32(acc[r][c], w[r], x);
                    }
                }
            }
            for c in 0..C {
                let dx = _mm512_set1_ps(self.dx.add(t + c).read());
                for r in 0..R {
                    let scales = &self.scales[r];
                    let mut p = _mm512_mul_ps(_mm512_mul_ps(scales.d, dx), _mm512_cvtepi32_ps(acc[r][c]));
                    if B::MINIMA == Minima::Yes {
                        let sums = self.sums.add((t + c) * 16).cast::<i32>();
                        let mut min = zero;
                        for k in 0..8 {
                            let x = _mm512_set1_epi32(sums.add(k).read_unaligned());
                            min = _mm512_dpwssd_epi32(min, self.minima[LANES * r + k].get(), x);
                        }
                        p = _mm512_sub_ps(
                            p,
                            _mm512_mul_ps(_mm512_mul_ps(scales.m, dx), _mm512_cvtepi32_ps(min)),
                        );
                    }
                    trees.push(r * self.cols + t + c, p);
                }
            }
            C
        }
    }
}

/// Products of a narrow format.
///
/// # Safety
///
/// As `avx512_narrow::matmul`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub(super) unsafe fn narrow<B: NarrowAvx2>(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    let blocks = x.blocks;
    let weights = cast_slice::<u8, B>(w.bytes());
    let most = n.min(TILE_COLS);
    let mut panels = scratch::take(GROUPS * LANES);
    let mut levels = scratch::take(GROUPS * most * Trees16::depth(blocks));
    for t0 in (0..n).step_by(TILE_COLS) {
        let cols = TILE_COLS.min(n - t0);
        for r0 in (0..w.rows()).step_by(GROUPS * LANES) {
            let in_tile = (GROUPS * LANES).min(w.rows() - r0);
            let groups = in_tile.div_ceil(LANES);
            let mut trees = Trees16::new(&mut levels, blocks);
            for b0 in (0..blocks).step_by(2) {
                let pair = 2.min(blocks - b0);
                // SAFETY: the features are the caller's; blocks below `blocks` of rows below `w.rows()` are read,
                // activation rows `t0 .. t0 + cols` of these blocks.
                unsafe {
                    let zero = _mm512_setzero_ps();
                    let mut scales = [
                        [Scales { d: zero, m: zero }, Scales { d: zero, m: zero }],
                        [Scales { d: zero, m: zero }, Scales { d: zero, m: zero }],
                    ];
                    for g in 0..groups {
                        let first = r0 + LANES * g;
                        let column = &weights[first * blocks + b0..];
                        let some = LANES.min(w.rows() - first);
                        let panel = &mut panels[LANES * g..][..LANES];
                        let [low, high] = pack_narrow(column, blocks, some, pair, panel);
                        scales[0][g] = low;
                        scales[1][g] = high;
                    }
                    for i in 0..pair {
                        let b = b0 + i;
                        let by_block = b * n.next_multiple_of(8) + t0;
                        let tile = NarrowTile {
                            panels: &panels[8 * i..],
                            scales: &scales[i],
                            q: x.q.as_ptr().add((b * n + t0) * narrow::LEN).cast(),
                            sums: x.sums_by_block.as_ptr().add(by_block),
                            dx: x.scale_by_block.as_ptr().add(by_block),
                            cols,
                        };
                        if groups == 1 {
                            tile.times::<B, 1>(&mut trees);
                        } else {
                            tile.times::<B, 2>(&mut trees);
                        }
                        trees.advance();
                    }
                }
            }
            // SAFETY: the features are the caller's.
            unsafe { store(&trees, (r0, in_tile), (t0, cols, n), out) };
        }
    }
    for lines in [panels, levels] {
        scratch::put(lines);
    }
}

/// Unpacks the first `pair` blocks of each of `some` rows, which are `blocks` blocks apart, to 16 lanes: lines 0 to 8 of
/// the panel are the first blocks', 8 to 16 the second ones'.
///
/// # Safety
///
/// The features of [`narrow`]; `panel` has 16 lines.
#[inline(always)]
unsafe fn pack_narrow<B: NarrowAvx2>(
    column: &[B],
    blocks: usize,
    some: usize,
    pair: usize,
    panel: &mut [Line],
) -> [Scales; 2] {
    // SAFETY: the caller's.
    unsafe {
        let mut rows = [_mm512_setzero_si512(); LANES];
        let (mut d, mut m) = ([[0u16; LANES]; 2], [[0u16; LANES]; 2]);
        for r in 0..some {
            let first = &column[r * blocks];
            let second = if pair == 2 { &column[r * blocks + 1] } else { first };
            rows[r] = halves(bytes(first), bytes(second));
            (d[0][r], m[0][r]) = (first.d(), first.m());
            (d[1][r], m[1][r]) = (second.d(), second.m());
        }
        let columns = transpose(&rows);
        for c in 0..LANES {
            panel[c].set(columns[c]);
        }
        [scales_of::<B>(&d[0], &m[0]), scales_of::<B>(&d[1], &m[1])]
    }
}

/// # Safety
///
/// The features of [`narrow`].
#[inline(always)]
unsafe fn scales_of<B: NarrowAvx2>(d: &[u16; LANES], m: &[u16; LANES]) -> Scales {
    // SAFETY: the caller's; both arrays are 32 bytes.
    unsafe {
        let low = B::scales(_mm_loadu_si128(d.as_ptr().cast()));
        let high = B::scales(_mm_loadu_si128(d.as_ptr().add(8).cast()));
        Scales {
            d: _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high),
            m: _mm512_cvtph_ps(_mm256_loadu_si256(m.as_ptr().cast())),
        }
    }
}

/// One block of a tile.
struct NarrowTile<'a> {
    /// `[group][16]`, of which the first eight are this block's four columns each.
    panels: &'a [Line],
    scales: &'a [Scales; GROUPS],
    /// `[cols][8]` fours of activations.
    q: *const i32,
    /// `[cols]`.
    sums: *const i16,
    /// `[cols]`.
    dx: *const f32,
    cols: usize,
}

impl NarrowTile<'_> {
    /// All its activation rows.
    ///
    /// # Safety
    ///
    /// The features of [`narrow`]; the pointers point to what their fields say.
    #[inline(always)]
    unsafe fn times<B: NarrowAvx2, const R: usize>(&self, trees: &mut Trees16<'_>) {
        let mut t = 0;
        while t < self.cols {
            // SAFETY: the caller's.
            t += unsafe {
                match self.cols - t {
                    8.. => self.some::<B, R, 8>(t, trees),
                    4.. => self.some::<B, R, 4>(t, trees),
                    _ => self.some::<B, R, 1>(t, trees),
                }
            };
        }
    }

    /// Activation rows `t .. t + C`; returns C.
    ///
    /// # Safety
    ///
    /// As [`NarrowTile::times`]; `t + C <= cols`.
    #[inline(always)]
    unsafe fn some<B: NarrowAvx2, const R: usize, const C: usize>(
        &self,
        t: usize,
        trees: &mut Trees16<'_>,
    ) -> usize {
        // SAFETY: the caller's.
        unsafe {
            let zero = _mm512_setzero_si512();
            let mut acc = [[zero; C]; R];
            for c in 0..C {
                let excess = offset::<B>() * i32::from(self.sums.add(t + c).read());
                for r in 0..R {
                    acc[r][c] = _mm512_set1_epi32(-excess);
                }
            }
            let q = self.q.add(8 * t);
            for k in 0..8 {
                let mut w = [zero; R];
                for r in 0..R {
                    w[r] = self.panels.get_unchecked(LANES * r + k).get();
                }
                for c in 0..C {
                    let x = _mm512_set1_epi32(q.add(8 * c + k).read_unaligned());
                    for r in 0..R {
                        acc[r][c] = _mm512_dpbusd_epi32(acc[r][c], w[r], x);
                    }
                }
            }
            for c in 0..C {
                let dx = _mm512_set1_ps(self.dx.add(t + c).read());
                let sum = _mm512_set1_ps(f32::from(self.sums.add(t + c).read()));
                for r in 0..R {
                    let scales = &self.scales[r];
                    let mut p = _mm512_mul_ps(_mm512_mul_ps(scales.d, dx), _mm512_cvtepi32_ps(acc[r][c]));
                    if B::MINIMUM {
                        p = _mm512_add_ps(p, _mm512_mul_ps(_mm512_mul_ps(scales.m, dx), sum));
                    }
                    trees.push(r * self.cols + t + c, p);
                }
            }
            C
        }
    }
}
