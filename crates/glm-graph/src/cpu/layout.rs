//! Turning `[weight row][activation row]` results into rows, and buffers that only grow.

/// Side of the square tiles: 16 f32 are one cache line.
const TILE: usize = 16;

/// `out[t * rows + r] = values[r * n + t]`.
pub(crate) fn transpose(values: &[f32], n: usize, out: &mut [f32]) {
    if n == 1 {
        return out.copy_from_slice(values);
    }
    let rows = values.len() / n;
    assert_eq!(values.len(), out.len(), "a transpose keeps its size");
    for r0 in (0..rows).step_by(TILE) {
        let r1 = (r0 + TILE).min(rows);
        for t0 in (0..n).step_by(TILE) {
            for t in t0..(t0 + TILE).min(n) {
                for r in r0..r1 {
                    out[t * rows + r] = values[r * n + t];
                }
            }
        }
    }
}

/// Column `t` of `values`, `[out.len()][n]`.
pub(crate) fn column(values: &[f32], n: usize, t: usize, out: &mut [f32]) {
    if n == 1 {
        return out.copy_from_slice(values);
    }
    for (out, value) in out.iter_mut().zip(values.iter().skip(t).step_by(n)) {
        *out = *value;
    }
}

/// The first `len` places of a buffer that grows when it must and keeps what it has.
pub(crate) fn fit<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
    &mut buffer[..len]
}
