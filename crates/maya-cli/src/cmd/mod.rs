//! One module a command.

pub mod bench;
pub mod chat;
pub mod completions;
pub mod doctor;
pub mod eval;
pub mod generate;
pub mod inspect;
#[cfg(feature = "cuda")]
pub mod kernels;
pub mod lines;
pub mod logits;
pub mod perplexity;
pub mod plan;
mod profile;
pub mod replay;
pub mod serve;
pub mod synth;
