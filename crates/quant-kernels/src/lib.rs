//! GGML block formats and the canonical arithmetic on them.
//!
//! `Cpu` is the arithmetic for one instruction set. Every instruction set gives the scalar's bits: docs/ARITHMETIC.md
//! defines them, and `tests/` compares them.

mod activation;
mod block;
#[cfg(feature = "cuda")]
pub mod cuda;
mod dense;
mod dequantize;
mod float_mode;
mod grid;
mod isa;
mod matmul;
mod matrix;
mod narrow;
mod quant;
mod rows;
mod scalar;
mod tree;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use dense::{canon, kda_chunk};
pub use dequantize::dequantize;
pub use float_mode::is_default_float_mode;
pub use isa::{Cpu, Isa};
pub use matrix::{Matrix, ShapeError};
pub use quant::{Family, Precision, Quant};
pub use rows::Rows;
