//! The seam to whatever computes tokens.

use std::ops::ControlFlow;

pub use glm_graph::SamplerParams;

/// What the server has to know about the model it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// The id shown in `/v1/models` and echoed in every reply, whatever name a client asked for.
    pub id: String,
    /// Positions one sequence may fill: prompt and answer together.
    pub context: usize,
    /// Token ids are `0..vocab`.
    pub vocab: usize,
}

/// How one request is to be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Most tokens to emit, at least 1. The server has already clamped it to the room that the prompt leaves.
    pub max_tokens: usize,
    /// How a token is drawn.
    pub sampler: SamplerParams,
    /// A token of this list ends the answer and is not emitted.
    pub stop_tokens: Vec<u32>,
}

/// What an engine reports while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `done` of `total` prompt tokens are computed. Reported before each prefill step, however small, and once when all are.
    Prefill {
        /// Prompt tokens computed so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// The next token of the answer.
    Token(u32),
}

/// Why an engine stopped without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// This stop token was drawn.
    Stop(u32),
    /// `max_tokens` were emitted, or the context is full.
    Length,
    /// The callback asked for it.
    Cancelled,
}

/// Why an engine could not go on. Both are a 500 (or an error event) for the request that met it, and the next request
/// is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// This sequence cannot be continued (a non-finite value, a full cache); the engine itself is sound.
    #[error("{0}")]
    Sequence(String),
    /// The engine may be left in a bad state: [`Generate::recover`] is called before the next request.
    #[error("{0}")]
    Engine(String),
}

/// Tokens for requests, one request at a time.
///
/// One operating-system thread owns the engine and calls it; the calls are synchronous. A panic in [`generate`] is
/// caught: it costs the request that met it, and [`recover`] is called before the next one.
///
/// [`generate`]: Generate::generate
/// [`recover`]: Generate::recover
pub trait Generate: Send {
    /// What is served. Asked once, before the first request.
    fn info(&self) -> ModelInfo;

    /// Computes `prompt` (1 to `context - 1` ids, each below `vocab`) in a fresh sequence, then decodes.
    ///
    /// `on` is called at least once an engine step, in prefill and in decode. Once it returns `Break` it is not called
    /// again, and the call returns [`Finish::Cancelled`] within one step. The sequence's memory is given back before
    /// returning, in every case.
    ///
    /// # Errors
    /// [`EngineError::Sequence`] when only this request is lost, [`EngineError::Engine`] otherwise.
    fn generate(
        &mut self,
        prompt: &[u32],
        options: &Options,
        on: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Finish, EngineError>;

    /// Called after a panic or [`EngineError::Engine`], before the next request: drop what the lost request left.
    ///
    /// # Errors
    /// The reason why nothing can be computed any more. It is told to the next client, and tried again after that.
    fn recover(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}
