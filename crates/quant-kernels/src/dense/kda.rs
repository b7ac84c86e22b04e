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

/// Columns a tile: four registers of 8 or two of 16, whose sums hide the latency of a multiply-add.
const SPAN: usize = 32;
/// The most rows that a tile is made for; 128 of them are 16 KB, half of a first-level cache.
const ROWS: usize = 128;

/// The same with 32 columns at a time over all tokens.
#[inline(always)]
pub(super) fn recurrence_vector<V: Vector>(v: V, state: &mut [f32], x: Tokens<'_>, o: &mut [f32]) {
    let whole = if x.d <= ROWS { x.d - x.d % SPAN } else { 0 };
    if x.beta.len() == 1 {
        let mut column = 0;
        while column + 4 * V::WIDTH <= whole {
            token::<V, 4>(v, &mut state[column..], x, column, o);
            column += 4 * V::WIDTH;
        }
        while column < whole {
            token::<V, 2>(v, &mut state[column..], x, column, o);
            column += 2 * V::WIDTH;
        }
    } else if x.beta.len() > 1 {
        let mut tile = [[0.0; SPAN]; ROWS];
        for column in (0..whole).step_by(SPAN) {
            span(v, state, x, column, &mut tile[..x.d], o);
        }
    }
    if whole < x.d {
        columns(state, x, whole, o);
    }
}

/// One token on C registers of columns from `column` on, in place; `state` begins at the first of them. Four registers
/// hide the latency of the sums; two take what a tile of 32 columns leaves of 16-wide ones.
///
/// The decayed state is made twice, by the same rounded product, instead of being stored between the passes.
#[inline(always)]
fn token<V: Vector, const C: usize>(
    vector: V,
    state: &mut [f32],
    x: Tokens<'_>,
    column: usize,
    o: &mut [f32],
) {
    let span = C * V::WIDTH;
    let mut u = [vector.splat(0.0); C];
    for ((s, &k), &decay) in state.chunks(x.d).zip(x.k).zip(x.decay) {
        let s = &s[..span];
        let (k, decay) = (vector.splat(k), vector.splat(decay));
        for (i, u) in u.iter_mut().enumerate() {
            let s = vector.mul(vector.load(&s[i * V::WIDTH..]), decay);
            *u = vector.fma(k, s, *u);
        }
    }
    let delta = deltas(vector, u, &x.v[column..], x.beta[0]);
    let mut sums = [vector.splat(0.0); C];
    for (((s, &k), &decay), &q) in state.chunks_mut(x.d).zip(x.k).zip(x.decay).zip(x.q) {
        let s = &mut s[..span];
        let (k, decay, q) = (vector.splat(k), vector.splat(decay), vector.splat(q));
        for (i, sum) in sums.iter_mut().enumerate() {
            let s = &mut s[i * V::WIDTH..];
            let updated = vector.fma(k, delta[i], vector.mul(vector.load(s), decay));
            vector.store(updated, s);
            *sum = vector.fma(q, updated, *sum);
        }
    }
    for (i, &sum) in sums.iter().enumerate() {
        vector.store(sum, &mut o[column + i * V::WIDTH..]);
    }
}

/// Two tokens or more on the columns from `column` on, with their state in `tile`, \[d\]\[32\].
///
/// A token's update and the next token's decay and read share one pass over the tile. It is a copy because rows of 128
/// values are 512 bytes apart: in place a tile would share an eighth of the sets of a first-level cache and evict
/// itself.
#[inline(always)]
fn span<V: Vector>(
    vector: V,
    state: &mut [f32],
    x: Tokens<'_>,
    column: usize,
    tile: &mut [[f32; SPAN]],
    o: &mut [f32],
) {
    let d = x.d;
    let mut u = [vector.splat(0.0); 4];
    for (((tile, s), &k), &decay) in
        tile.iter_mut().zip(state.chunks_exact(d)).zip(&x.k[..d]).zip(&x.decay[..d])
    {
        let s = &s[column..column + SPAN];
        let (k, decay) = (vector.splat(k), vector.splat(decay));
        for (i, u) in u.iter_mut().enumerate().take(SPAN / V::WIDTH) {
            let s = vector.mul(vector.load(&s[i * V::WIDTH..]), decay);
            vector.store(s, &mut tile[i * V::WIDTH..]);
            *u = vector.fma(k, s, *u);
        }
    }
    let last = x.beta.len() - 1;
    for t in 0..last {
        let (row, next) = (t * d..(t + 1) * d, (t + 1) * d..(t + 2) * d);
        let delta = deltas(vector, u, &x.v[t * d + column..], x.beta[t]);
        let mut sums = [vector.splat(0.0); 4];
        u = sums;
        let operands = x.k[row.clone()].iter().zip(&x.q[row]).zip(&x.decay[next.clone()]).zip(&x.k[next]);
        for (tile, (((&k, &q), &decay), &next_k)) in tile.iter_mut().zip(operands) {
            let (k, q) = (vector.splat(k), vector.splat(q));
            let (decay, next_k) = (vector.splat(decay), vector.splat(next_k));
            for i in 0..SPAN / V::WIDTH {
                let s = vector.fma(k, delta[i], vector.load(&tile[i * V::WIDTH..]));
                sums[i] = vector.fma(q, s, sums[i]);
                let s = vector.mul(s, decay);
                vector.store(s, &mut tile[i * V::WIDTH..]);
                u[i] = vector.fma(next_k, s, u[i]);
            }
        }
        for (i, &sum) in sums.iter().enumerate().take(SPAN / V::WIDTH) {
            vector.store(sum, &mut o[t * d + column + i * V::WIDTH..]);
        }
    }
    let row = last * d..(last + 1) * d;
    let delta = deltas(vector, u, &x.v[last * d + column..], x.beta[last]);
    let mut sums = [vector.splat(0.0); 4];
    let operands = x.k[row.clone()].iter().zip(&x.q[row]);
    for ((tile, s), (&k, &q)) in tile.iter().zip(state.chunks_exact_mut(d)).zip(operands) {
        let s = &mut s[column..column + SPAN];
        let (k, q) = (vector.splat(k), vector.splat(q));
        for (i, sum) in sums.iter_mut().enumerate().take(SPAN / V::WIDTH) {
            let updated = vector.fma(k, delta[i], vector.load(&tile[i * V::WIDTH..]));
            vector.store(updated, &mut s[i * V::WIDTH..]);
            *sum = vector.fma(q, updated, *sum);
        }
    }
    for (i, &sum) in sums.iter().enumerate().take(SPAN / V::WIDTH) {
        vector.store(sum, &mut o[last * d + column + i * V::WIDTH..]);
    }
}

/// beta * (v - u), as many registers as v has values for.
#[inline(always)]
fn deltas<V: Vector, const C: usize>(vector: V, u: [V::F; C], v: &[f32], beta: f32) -> [V::F; C] {
    let mut delta = u;
    for (delta, v) in delta.iter_mut().zip(v.chunks_exact(V::WIDTH)) {
        *delta = vector.mul(vector.splat(beta), vector.sub(vector.load(v), *delta));
    }
    delta
}
