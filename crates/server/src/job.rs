//! One request on the engine's thread: nothing that happens here may end the thread.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use glm_chat::Ending;

use crate::engine::{EngineError, Event, Finish, Generate};
use crate::error::ApiError;
use crate::outcome::Clock;
use crate::queue::{Job, Queue, Update};

/// Why the callback asked the engine to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Halt {
    /// The turn is complete: a stop string, or the one call that was allowed.
    Turn,
    /// The client is gone.
    Gone,
    /// The server is stopping.
    Cut,
}

/// Serves `job` and returns whether the engine is still sound. When it comes in unsound, it is recovered first.
pub(crate) fn run(job: Job, engine: &mut dyn Generate, sound: bool, queue: &Queue) -> bool {
    if !sound && let Err(reason) = recover(engine) {
        tracing::error!(id = job.id, "the engine cannot recover: {reason}");
        let _ = job.reply.send(Update::Failed(ApiError::internal(format!(
            "The engine failed earlier and could not recover: {reason}"
        ))));
        return false;
    }
    let Job { id, prompt, options, mut turn, progress, reply } = job;
    let mut clock = Clock::start(prompt.len());
    let mut halt = None;
    let mut deltas = Vec::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let finish = engine.generate(&prompt, &options, &mut |event| {
            if halt.is_some() {
                return ControlFlow::Break(());
            }
            if reply.is_closed() {
                halt = Some(Halt::Gone);
            } else if queue.is_cut() {
                halt = Some(Halt::Cut);
            } else {
                match event {
                    Event::Prefill { done, total } => {
                        if progress {
                            let _ = reply.send(Update::Prefill { done, total, ms: clock.elapsed_ms() });
                        }
                    }
                    Event::Token(token) => {
                        clock.token();
                        if turn.push(token, &mut deltas).is_break() {
                            halt = Some(Halt::Turn);
                        }
                        for delta in deltas.drain(..) {
                            let _ = reply.send(Update::Delta(delta));
                        }
                    }
                }
            }
            if halt.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let ending = match (halt, finish) {
            (Some(Halt::Turn), _) | (None, Finish::Stop(_)) => Ending::Turn,
            (None, Finish::Length) => Ending::Cut,
            (None, Finish::Cancelled) => {
                return Err(EngineError::Sequence("the engine stopped without being asked to".to_owned()));
            }
            (Some(Halt::Gone | Halt::Cut), _) => return Ok(None),
        };
        let outcome = turn.finish(ending, &mut deltas, &clock);
        for delta in deltas.drain(..) {
            let _ = reply.send(Update::Delta(delta));
        }
        Ok(Some(outcome))
    }));

    let (update, sound) = match result {
        Ok(Ok(Some(outcome))) => {
            tracing::info!(
                id,
                prompt = outcome.usage.prompt,
                tokens = outcome.usage.completion,
                reasoning = outcome.usage.reasoning,
                prompt_ms = outcome.timings.prompt_ms,
                tokens_per_second = outcome.timings.predicted_per_second(),
                finish = outcome.finish,
                "served"
            );
            (Some(Update::Done(outcome)), true)
        }
        Ok(Ok(None)) => {
            let gone = halt == Some(Halt::Gone);
            tracing::info!(id, tokens = clock.tokens(), "{}", if gone { "client gone" } else { "cut" });
            ((!gone).then(|| Update::Failed(ApiError::shutting_down())), true)
        }
        Ok(Err(error)) => {
            tracing::error!(id, tokens = clock.tokens(), "the engine failed: {error}");
            let sound = matches!(error, EngineError::Sequence(_));
            let message = format!("The engine could not finish this answer: {error}");
            (Some(Update::Failed(ApiError::internal(message))), sound)
        }
        Err(panic) => {
            tracing::error!(id, tokens = clock.tokens(), "the engine panicked: {}", panic_text(&*panic));
            let message = "The engine failed while computing this answer; the server's log says more.";
            (Some(Update::Failed(ApiError::internal(message))), false)
        }
    };
    if let Some(update) = update {
        let _ = reply.send(update);
    }
    sound
}

fn recover(engine: &mut dyn Generate) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| engine.recover())) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => Err(panic_text(&*panic).to_owned()),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::{Arc, Mutex};

    use glm_chat::{Tokenizer, VocabSource};
    use tokio::sync::mpsc;

    use super::run;
    use crate::engine::{EngineError, Event, Finish, Generate, ModelInfo, Options, SamplerParams};
    use crate::queue::{Job, Queue, Update};
    use crate::turn::Turn;

    /// What happens to the request before a step.
    type Meddle = Box<dyn FnMut(usize) + Send>;

    /// Prefill in three steps, then tokens for ever; counts its steps.
    struct Endless {
        steps: usize,
        meddle: Meddle,
    }

    impl Generate for Endless {
        fn info(&self) -> ModelInfo {
            ModelInfo { id: "endless".into(), context: 10, vocab: 256 }
        }

        fn generate(
            &mut self,
            _: &[u32],
            _: &Options,
            on: &mut dyn FnMut(Event) -> ControlFlow<()>,
        ) -> Result<Finish, EngineError> {
            loop {
                self.steps += 1;
                (self.meddle)(self.steps);
                let event = match self.steps {
                    done @ 1..=3 => Event::Prefill { done, total: 3 },
                    _ => Event::Token(97),
                };
                if on(event).is_break() {
                    return Ok(Finish::Cancelled);
                }
                assert!(self.steps < 100, "nobody stopped the engine");
            }
        }
    }

    fn job(reply: mpsc::UnboundedSender<Update>) -> Job {
        let tokens: Vec<String> = (0..=255_u32)
            .scan(256, |next, b| {
                let plain = matches!(b, 33..=126 | 161..=172 | 174..=255);
                let code = if plain { b } else { std::mem::replace(next, *next + 1) };
                char::from_u32(code).map(String::from)
            })
            .collect();
        let source = VocabSource {
            model: "gpt2".into(),
            pre: "glm4".into(),
            token_types: vec![1; tokens.len()],
            tokens,
            ..VocabSource::default()
        };
        let turn = Turn::text(Tokenizer::new(source).unwrap().detokenizer(), Vec::new());
        let options = Options { max_tokens: 5, sampler: SamplerParams::default(), stop_tokens: vec![] };
        Job { id: "job".into(), prompt: vec![1, 2, 3], options, turn, progress: true, reply }
    }

    #[test]
    fn a_client_that_leaves_costs_the_step_it_leaves_in() {
        for at in 1..=6 {
            let (sender, receiver) = mpsc::unbounded_channel();
            let receiver = Mutex::new(Some(receiver));
            let meddle: Meddle = Box::new(move |step| {
                if step == at {
                    drop(receiver.lock().unwrap().take());
                }
            });
            let mut engine = Endless { steps: 0, meddle };
            assert!(run(job(sender), &mut engine, true, &Queue::new(1)));
            assert_eq!(engine.steps, at);
        }
    }

    #[test]
    fn a_cut_ends_the_step_it_comes_in_with_an_error() {
        for at in 1..=6 {
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let queue = Arc::new(Queue::new(1));
            let cutter = Arc::clone(&queue);
            let meddle: Meddle = Box::new(move |step| {
                if step == at {
                    cutter.cut();
                }
            });
            let mut engine = Endless { steps: 0, meddle };
            assert!(run(job(sender), &mut engine, true, &queue));
            assert_eq!(engine.steps, at);
            let mut last = None;
            while let Ok(update) = receiver.try_recv() {
                last = Some(update);
            }
            assert!(matches!(last, Some(Update::Failed(error)) if error.status == 503));
        }
    }
}
