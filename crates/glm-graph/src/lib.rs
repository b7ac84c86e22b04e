//! GLM-5.3-Flash: configuration, weights, state and the forward pass.
//!
//! [`Model::load`] understands a GGUF file; an [`Executor`] runs it ([`CpuExecutor`] here); [`generate`] turns a prompt
//! into tokens. docs/MODEL.md is the account of the equations.
//!
//! Sections named "model-spec" are those of the specification that docs/MODEL.md follows.

#![deny(unsafe_code)]

mod choice;
mod config;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
mod executor;
mod fill;
mod generate;
pub mod hyper;
pub mod indexer;
mod model;
mod plan;
pub mod probe;
pub mod router;
mod sampler;
mod state;
mod steps;
pub mod weights;

pub use config::{Config, MixerKind};
pub use cpu::{
    CpuExecutor, CpuOptions, HiddenRows, LayerPass, Observer, TierCounters, TierOptions, TierPlan,
};
#[cfg(feature = "cuda")]
pub use cuda::{CudaExecutor, CudaOptions, DevicePlan, LaunchTime, LoadReport, Traffic, UNITS as CUDA_UNITS};
pub use error::{Dims, ExecError, LoadError};
pub use executor::{Counters, Executor, Input, SeqId, Step, StepRow, Ticket, Token, Want};
pub use generate::{Finish, GenerateEvent, GenerateOptions, generate};
pub use hyper::MAX_STREAMS;
pub use model::Model;
pub use plan::MemoryPlan;
pub use sampler::{Sampler, SamplerParams};
pub use state::{Checkpoint, Kv};
