//! GGML block formats and the canonical arithmetic on them.
//!
//! `Cpu` is the arithmetic for one instruction set. Every instruction set gives the scalar's bits: docs/ARITHMETIC.md
//! defines them, and `tests/` compares them.

mod dense;
mod isa;

pub use dense::canon;
pub use isa::{Cpu, Isa};
