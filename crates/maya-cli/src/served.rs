//! The engine as the server sees it: tokens for one request at a time.

use std::ops::ControlFlow;
use std::path::PathBuf;

use glm_graph::{ExecError, Executor, GenerateEvent, GenerateOptions, generate};
use server::{EngineError, Event, Finish, Generate, ModelInfo, Options};

use crate::engine::Engine;
use crate::tiers;

/// Prompt tokens between two looks at whether the client is still there: a quarter of a second of the full model on a processor. A
/// device looks once a span, which is as long.
const CHUNK: usize = 32;

/// An engine behind the server's seam.
pub struct Served {
    engine: Engine,
    id: String,
    usage: Option<PathBuf>,
}

impl Served {
    /// Serves `engine` under the name `id`, and keeps counts of expert use in `usage`.
    pub fn new(engine: Engine, id: String, usage: Option<PathBuf>) -> Self {
        Self { engine, id, usage }
    }
}

impl Generate for Served {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: self.id.clone(), context: self.engine.options.ctx, vocab: self.engine.exec.vocab() }
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        options: &Options,
        on: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Finish, EngineError> {
        let options = GenerateOptions {
            max_tokens: options.max_tokens,
            sampler: options.sampler.clone(),
            stop_tokens: options.stop_tokens.clone(),
            chunk: CHUNK,
        };
        let exec = &mut self.engine.exec;
        let seq = exec.open_sequence().map_err(error)?;
        let finish = generate(exec, seq, prompt, &options, &mut |event| {
            on(match event {
                GenerateEvent::Prefill { done, total } => Event::Prefill { done, total },
                GenerateEvent::Token(id) => Event::Token(id),
            })
        });
        let closed = exec.close_sequence(seq);
        tiers::save_usage(&self.engine, self.usage.as_deref());
        let finish = finish.map_err(error)?;
        closed.map_err(error)?;
        Ok(match finish {
            glm_graph::Finish::Stop(id) => Finish::Stop(id),
            glm_graph::Finish::Length => Finish::Length,
            glm_graph::Finish::Cancelled => Finish::Cancelled,
        })
    }

    /// A new executor over the same weights: what a panic left behind is dropped with the old one.
    fn recover(&mut self) -> Result<(), EngineError> {
        self.engine.restart().map_err(error)
    }
}

/// A sequence that met NaN, a full cache or refused memory is lost alone; anything else may have left the executor in a
/// bad state.
fn error(e: ExecError) -> EngineError {
    match e {
        ExecError::NotFinite { .. }
        | ExecError::Broken(_)
        | ExecError::Context { .. }
        | ExecError::TokenRange { .. }
        | ExecError::EmptyPrompt
        | ExecError::Read { .. }
        | ExecError::Sampler { .. }
        | ExecError::Memory { .. } => EngineError::Sequence(e.to_string()),
        e => EngineError::Engine(e.to_string()),
    }
}
