//! The KDA recurrence of one head (model-spec 3.1).

use super::vector::Vector;

/// q, k, v, decay and beta of n tokens, in the shapes of `Cpu::kda_recurrence`.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    pub(super) d: usize,
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) decay: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) beta: &'a [f32],
}

/// The definition: token by token, column by column.
#[inline(always)]
pub(super) fn recurrence(state: &mut [f32], x: Tokens<'_>, o: &mut [f32]) {
    columns(state, x, 0, o);
}

/// The columns from `from` on.
#[inline(always)]
fn columns(state: &mut [f32], x: Tokens<'_>, from: usize, o: &mut [f32]) {
    for (t, &beta) in x.beta.iter().enumerate() {
        let row = t * x.d..(t + 1) * x.d;
        let (q, k, decay) = (&x.q[row.clone()], &x.k[row.clone()], &x.decay[row.clone()]);
        let v = &x.v[row.clone()];
        for (column, o) in o[row].iter_mut().enumerate().skip(from) {
            let mut u = 0.0;
            for c in 0..x.d {
                let s = &mut state[c * x.d + column];
                *s *= decay[c];
                u = k[c].mul_add(*s, u);
            }
            let delta = beta * (v[column] - u);
            let mut sum = 0.0;
            for c in 0..x.d {
                let s = &mut state[c * x.d + column];
                *s = k[c].mul_add(delta, *s);
                sum = q[c].mul_add(*s, sum);
            }
            *o = sum;
        }
    }
}

/// Registers a tile: four sums hide the latency of a multiply-add.
const REGISTERS: usize = 4;
/// Values of a tile that is copied: 128 rows of 32 or 64 columns, 16 or 32 KB.
const COPY: usize = 128 * 16 * REGISTERS;

/// The same with a tile of columns at a time over all tokens.
///
/// Rows of 128 values are 512 bytes apart, so a tile in place would share an eighth of the sets of a first-level cache
/// and evict itself; from three tokens on it is copied to where its rows touch.
#[inline(always)]
pub(super) fn recurrence_vector<V: Vector>(v: V, state: &mut [f32], x: Tokens<'_>, o: &mut [f32]) {
    let span = REGISTERS * V::WIDTH;
    let whole = x.d - x.d % span;
    for column in (0..whole).step_by(span) {
        if x.beta.len() > 2 && x.d * span <= COPY {
            copied(v, state, x, column, o);
        } else {
            for t in 0..x.beta.len() {
                token(v, &mut state[column..], x.d, x, t, column, o);
            }
        }
    }
    if whole < x.d {
        columns(state, x, whole, o);
    }
}

/// All tokens on the tile at `column`, in a copy.
#[inline(always)]
fn copied<V: Vector>(v: V, state: &mut [f32], x: Tokens<'_>, column: usize, o: &mut [f32]) {
    let span = REGISTERS * V::WIDTH;
    let mut tile = [0.0; COPY];
    for (tile, row) in tile.chunks_exact_mut(span).zip(state.chunks_exact(x.d)) {
        tile.copy_from_slice(&row[column..column + span]);
    }
    for t in 0..x.beta.len() {
        token(v, &mut tile[..x.d * span], span, x, t, column, o);
    }
    for (tile, row) in tile.chunks_exact(span).zip(state.chunks_exact_mut(x.d)) {
        row[column..column + span].copy_from_slice(tile);
    }
}

/// One token on a tile whose rows begin `stride` apart in `tile`; the tile's first column is `column` of v and o.
///
/// The decayed state is made twice, by the same rounded product, instead of being stored between the passes.
#[inline(always)]
fn token<V: Vector>(
    vector: V,
    tile: &mut [f32],
    stride: usize,
    x: Tokens<'_>,
    t: usize,
    column: usize,
    o: &mut [f32],
) {
    let span = REGISTERS * V::WIDTH;
    let row = t * x.d..(t + 1) * x.d;
    let (q, k, decay) = (&x.q[row.clone()], &x.k[row.clone()], &x.decay[row]);
    let mut u = [vector.splat(0.0); REGISTERS];
    for ((s, &k), &decay) in tile.chunks(stride).zip(k).zip(decay) {
        let s = &s[..span];
        let (k, decay) = (vector.splat(k), vector.splat(decay));
        for (i, u) in u.iter_mut().enumerate() {
            let s = vector.mul(vector.load(&s[i * V::WIDTH..]), decay);
            *u = vector.fma(k, s, *u);
        }
    }
    let at = t * x.d + column;
    let v = &x.v[at..at + span];
    let beta = vector.splat(x.beta[t]);
    let mut delta = u;
    for (i, delta) in delta.iter_mut().enumerate() {
        *delta = vector.mul(beta, vector.sub(vector.load(&v[i * V::WIDTH..]), *delta));
    }
    let mut sums = [vector.splat(0.0); REGISTERS];
    for (((s, &k), &decay), &q) in tile.chunks_mut(stride).zip(k).zip(decay).zip(q) {
        let s = &mut s[..span];
        let (k, decay, q) = (vector.splat(k), vector.splat(decay), vector.splat(q));
        for i in 0..REGISTERS {
            let s = &mut s[i * V::WIDTH..];
            let updated = vector.fma(k, delta[i], vector.mul(vector.load(s), decay));
            vector.store(updated, s);
            sums[i] = vector.fma(q, updated, sums[i]);
        }
    }
    let o = &mut o[at..at + span];
    for i in 0..REGISTERS {
        vector.store(sums[i], &mut o[i * V::WIDTH..]);
    }
}
