//! The KDA recurrence of one head (model-spec 3.1).

/// Value columns a tile: 32 columns of 128 rows are 16 KB, half of a first-level cache.
const TILE: usize = 32;

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

#[inline(always)]
pub(super) fn recurrence(state: &mut [f32], x: Tokens<'_>, o: &mut [f32]) {
    let mut column = 0;
    while column + TILE <= x.d {
        for t in 0..x.beta.len() {
            token::<TILE>(state, x, t, column, o);
        }
        column += TILE;
    }
    while column < x.d {
        for t in 0..x.beta.len() {
            token::<1>(state, x, t, column, o);
        }
        column += 1;
    }
}

/// One token on W value columns. The decayed state is made twice, by the same rounded product, instead of being stored
/// between the passes.
#[inline(always)]
fn token<const W: usize>(state: &mut [f32], x: Tokens<'_>, t: usize, column: usize, o: &mut [f32]) {
    let row = t * x.d..(t + 1) * x.d;
    let (q, k, decay) = (&x.q[row.clone()], &x.k[row.clone()], &x.decay[row]);
    let mut u = [0.0; W];
    for ((s, &k), &decay) in state.chunks_exact(x.d).zip(k).zip(decay) {
        let s = &s[column..column + W];
        for i in 0..W {
            u[i] = k.mul_add(s[i] * decay, u[i]);
        }
    }
    let at = t * x.d + column;
    let v = &x.v[at..at + W];
    let mut delta = [0.0; W];
    for i in 0..W {
        delta[i] = x.beta[t] * (v[i] - u[i]);
    }
    let mut sum = [0.0; W];
    for (((s, &k), &decay), &q) in state.chunks_exact_mut(x.d).zip(k).zip(decay).zip(q) {
        let s = &mut s[column..column + W];
        for i in 0..W {
            s[i] = k.mul_add(delta[i], s[i] * decay);
            sum[i] = q.mul_add(s[i], sum[i]);
        }
    }
    o[at..at + W].copy_from_slice(&sum);
}
