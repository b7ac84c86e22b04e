//! The clamped SwiGLU of a dense layer and of the shared expert (model-spec 5.1, 5.2).

use quant_kernels::Rows;

use super::lanes::{Faults, Lanes};
use super::layout::{fit, transpose};
use super::scratch::Scratch;
use crate::weights::SwiGlu;

/// Buffers of one SwiGLU.
pub(super) struct Buffers<'a> {
    pub(super) wide: &'a mut Vec<f32>,
    pub(super) hidden: &'a mut Rows,
    pub(super) out: &'a mut Vec<f32>,
}

/// A dense layer: from `scratch.x` to `scratch.y`.
pub(crate) fn dense(lanes: &Lanes, file: &gguf::Model, weights: &SwiGlu, limit: f32, scratch: &mut Scratch) {
    let Scratch { x, y, ffn, faults, .. } = scratch;
    let buffers = Buffers { wide: &mut ffn.wide, hidden: &mut ffn.hidden, out: &mut ffn.out };
    lanes.prepare(x, &[weights.gate.quant, weights.up.quant], "the input of the FFN", faults);
    swiglu(lanes, file, weights, limit, x, buffers, faults);
    let size = weights.down.rows * x.n();
    transpose(&ffn.out[..size], x.n(), fit(y, size));
}

/// From prepared `x` to `buffers.out`, `[hidden][n]`.
pub(super) fn swiglu(
    lanes: &Lanes,
    file: &gguf::Model,
    weights: &SwiGlu,
    limit: f32,
    x: &Rows,
    buffers: Buffers<'_>,
    faults: &Faults,
) {
    let (t, width) = (x.n(), weights.gate.rows);
    let wide = fit(buffers.wide, 2 * width * t);
    let jobs = [
        lanes.job(weights.gate.matrix(file), x, "ffn_gate"),
        lanes.job(weights.up.matrix(file), x, "ffn_up"),
    ];
    lanes.matmuls(&jobs, wide, faults);
    let (gate, up) = wide.split_at_mut(width * t);
    lanes.cpu.swiglu(gate, up, limit);
    transpose(gate, t, buffers.hidden.reset(t, width));
    lanes.prepare(buffers.hidden, &[weights.down.quant], "the input of ffn_down", faults);
    let out = fit(buffers.out, weights.down.rows * t);
    lanes.matmuls(&[lanes.job(weights.down.matrix(file), buffers.hidden, "ffn_down")], out, faults);
}
