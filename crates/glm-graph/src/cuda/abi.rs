//! Parameters of kernels as both sides see them: `kernels/glm/*.cu` and `kernels/include/task.cuh` in Rust. Addresses are
//! device addresses, 0 where there is nothing.

use bytemuck::{Pod, Zeroable};

/// Matrices of one launch at most: eight experts' gates and ups, and the shared expert's.
pub(super) const MAX_TASKS: usize = 20;

/// How a product's activations are made from what lies at `x`.
pub(super) const PLAIN: u32 = 0;
/// SwiGLU of `x` (gate) and `x2` (up), clamped at `limit`.
pub(super) const SWIGLU: u32 = 1;

/// One matrix times one vector.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Task {
    pub w: u64,
    /// Where the address of the matrix's slot stands, if the router chooses it.
    pub slot: u64,
    pub x: u64,
    pub x2: u64,
    pub x3: u64,
    pub y: u64,
    pub rows: u32,
    pub k: u32,
    pub row_bytes: u32,
    /// Of the matrix in its slot.
    pub offset: u32,
    pub kind: u32,
    /// Which of the unit's two formats.
    pub format: u32,
    pub limit: f32,
    /// Rows that share a vector; the next ones take the next `k` values. 0: all of them.
    pub x_rows: u32,
}

/// The matrices of a launch and their blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Tasks {
    pub task: [Task; MAX_TASKS],
    pub first_block: [u32; MAX_TASKS + 1],
    pub rows_of_block: [u32; MAX_TASKS],
    pub n: u32,
    /// Slots, values of activations and of results between the rows of a pass.
    pub steps: [u32; 3],
    pub reserved: u32,
}

/// How the streams change before a site reads them.
pub(super) const KEEP: u32 = 0;
/// By one vector.
pub(super) const WRITE: u32 = 1;
/// By weighted experts and the shared one.
pub(super) const COMBINE: u32 = 2;
/// All become the vector: the token's embedding.
pub(super) const EMBED: u32 = 3;

/// A hyper-connection site of a row, or of several.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Site {
    pub residual: u64,
    pub next: u64,
    pub y: u64,
    pub experts: u64,
    pub weights: u64,
    pub gates: u64,
    pub gates_out: u64,
    pub mix: u64,
    pub base: u64,
    pub norm: u64,
    pub x: u64,
    pub partials: u64,
    pub ended: u64,
    pub fault: u64,
    pub mode: u32,
    pub k: u32,
    pub hidden: u32,
    pub streams: u32,
    pub sinkhorn: u32,
    pub code: u32,
    pub scale: [f32; 3],
    pub rms_eps: f32,
    pub hc_eps: f32,
    /// Comb's logits are left for a kernel before the next site.
    pub later: u32,
    pub q: u64,
    pub q_scale: u64,
    pub q2: u64,
    pub q2_scale: u64,
}

/// Sequences of a pass at most (kernels/glm/begin.cu).
pub(super) const MOST_TURNS: usize = 8;

/// Bytes of a `Turn` of kernels/include/turn.cuh.
pub(super) const TURN_BYTES: u64 = 16;

/// One token of each of several sequences in a KDA layer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Kda {
    pub raw: u64,
    pub forget: u64,
    pub gate: u64,
    pub beta: u64,
    pub taps: u64,
    pub bias: u64,
    pub decay: u64,
    pub norm: u64,
    pub states: u64,
    pub out: u64,
    pub turns: u64,
    pub fault: u64,
    /// Values of a copy of the state.
    pub copy: u64,
    pub matrix: u32,
    pub history: u32,
    pub heads: u32,
    pub d: u32,
    pub taps_n: u32,
    pub code: u32,
    pub first_width: u32,
    pub second_width: u32,
    pub bound: f32,
    pub rms_eps: f32,
    pub gates: u64,
    pub sinkhorn: u32,
    pub hc_eps: f32,
    /// Where the answers go in bytes, if the step rounds them.
    pub q: u64,
    pub q_scale: u64,
    /// In blocks of 32 values, not of 256.
    pub narrow: u32,
    pub reserved: u32,
}

/// The router.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Router {
    pub w: u64,
    pub x: u64,
    pub logits: u64,
    pub bias: u64,
    pub table: u64,
    pub ids: u64,
    pub weights: u64,
    pub slots: u64,
    pub uses: u64,
    pub ended: u64,
    /// Gates of the site before, of whose comb there are only logits; 0 for none.
    pub gates: u64,
    pub experts: u32,
    pub width: u32,
    pub k: u32,
    pub scale: f32,
    pub sinkhorn: u32,
    pub hc_eps: f32,
    pub rows: u32,
    pub apart: u32,
}

/// A step draws nothing; only faults are told.
pub(super) const NO_DRAW: u32 = 0;
/// It takes the largest logit.
pub(super) const GREEDY: u32 = 1;
pub(super) const DRAW: u32 = 2;

/// How a step draws.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Drawing {
    pub sampled: u64,
    pub answer: u64,
    pub bias: u64,
    pub counts: u64,
    pub draw: u64,
    pub mode: u32,
    pub top_k: u32,
    pub temperature: f32,
    pub top_p: f32,
    pub lowest: f32,
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
}

/// Bytes of what a draw needs beside the logits: `Choice` of kernels/include/sampler.cuh.
pub(super) const CHOICE_BYTES: u64 = 88 + 24 * 1024;

/// What a step of a sequence begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Begin {
    pub embeddings: u64,
    pub last: u64,
    pub streams: u64,
    pub turn: u64,
    pub history: u64,
    pub counts: u64,
    pub choice: u64,
    pub drawing: Drawing,
    /// Bytes from the first slot to the sequence's.
    pub slot: u64,
    pub token: u32,
    pub position: u32,
    pub vocab: u32,
    pub format: u32,
    pub row_bytes: u32,
    pub hidden: u32,
    pub streams_n: u32,
    pub reserved: u32,
    pub counted_from: u32,
    pub counted_to: u32,
    pub from: u32,
    pub to: u32,
}

/// The steps of a pass.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Begins {
    pub row: [Begin; MOST_TURNS],
}

// The sizes that the compiler of the device code gives the same structures.
const _: () = assert!(size_of::<Task>() == 80);
const _: () = assert!(size_of::<Tasks>() == MAX_TASKS * 80 + 4 * (2 * MAX_TASKS + 1) + 20);
const _: () = assert!(size_of::<Site>() == 192);
const _: () = assert!(size_of::<Kda>() == 184);
const _: () = assert!(size_of::<Router>() == 120);
const _: () = assert!(size_of::<Drawing>() == 72);
const _: () = assert!(size_of::<Begin>() == 184);
const _: () = assert!(size_of::<Begins>() == 8 * 184);
