//! The clamped SwiGLU of a dense layer and of the shared expert (model-spec 5.1, 5.2).

use quant_kernels::Rows;

use super::lanes::{Faults, Lanes};
use super::layout::{fit, transpose};
use super::scratch::Scratch;
use crate::weights::SwiGlu;

/// What an error calls gate, up, the input of down, and down.
pub(super) struct Names([&'static str; 4]);

impl Names {
    pub(super) const DENSE: Self = Self(["ffn_gate", "ffn_up", "the input of ffn_down", "ffn_down"]);
    pub(super) const SHARED: Self =
        Self(["ffn_gate_shexp", "ffn_up_shexp", "the input of ffn_down_shexp", "ffn_down_shexp"]);
}

/// Buffers of one SwiGLU.
pub(super) struct Buffers<'a> {
    pub(super) names: Names,
    pub(super) wide: &'a mut Vec<f32>,
    pub(super) hidden: &'a mut Rows,
    pub(super) out: &'a mut Vec<f32>,
}

/// A dense layer: from `scratch.x` to `scratch.y`.
pub(crate) fn dense(lanes: &Lanes, file: &gguf::Model, weights: &SwiGlu, limit: f32, scratch: &mut Scratch) {
    let Scratch { x, y, ffn, faults, .. } = scratch;
    let buffers =
        Buffers { names: Names::DENSE, wide: &mut ffn.wide, hidden: &mut ffn.hidden, out: &mut ffn.out };
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
    let Names(names) = buffers.names;
    let wide = fit(buffers.wide, 2 * width * t);
    let jobs =
        [lanes.job(weights.gate.matrix(file), x, names[0]), lanes.job(weights.up.matrix(file), x, names[1])];
    lanes.matmuls(&jobs, wide, faults);
    let (gate, up) = wide.split_at_mut(width * t);
    lanes.cpu.swiglu(gate, up, limit);
    transpose(gate, t, buffers.hidden.reset(t, width));
    lanes.prepare(buffers.hidden, &[weights.down.quant], names[2], faults);
    let out = fit(buffers.out, weights.down.rows * t);
    lanes.matmuls(&[lanes.job(weights.down.matrix(file), buffers.hidden, names[3])], out, faults);
}
