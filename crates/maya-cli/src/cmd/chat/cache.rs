//! The sequence of a conversation, kept between its messages.

use std::ops::ControlFlow;

use anyhow::Result;
use glm_graph::{Checkpoint, Executor, Finish, GenerateEvent, GenerateOptions, SeqId, generate};

use crate::engine::Engine;
use crate::interrupt;
use crate::progress::Progress;

/// The sequence of the conversation. A next prompt that begins with what was fed goes on from there; one that differs in
/// the last answer (the template drops its reasoning) goes back to the checkpoint before it.
#[derive(Default)]
pub struct Cache {
    seq: Option<SeqId>,
    fed: Vec<u32>,
    before_answer: Option<Checkpoint>,
}

impl Cache {
    /// Feeds what is new of `prompt` and decodes after it; `on` hears each token of the answer and may end it. Says how it
    /// ended.
    ///
    /// # Errors
    /// What the executor meets or `on` answers; the sequence is given up then.
    pub fn decode(
        &mut self,
        engine: &mut Engine,
        prompt: &[u32],
        options: &GenerateOptions,
        on: &mut dyn FnMut(u32) -> Result<ControlFlow<()>>,
    ) -> Result<Finish> {
        let result = self.feed_and_decode(engine, prompt, options, on);
        if result.is_err()
            && let Some(seq) = self.seq.take()
        {
            // Whatever state it is in, the next message starts anew.
            engine.exec.close_sequence(seq)?;
            *self = Self::default();
        }
        result
    }

    fn feed_and_decode(
        &mut self,
        engine: &mut Engine,
        prompt: &[u32],
        options: &GenerateOptions,
        on: &mut dyn FnMut(u32) -> Result<ControlFlow<()>>,
    ) -> Result<Finish> {
        let seq = self.rewind(engine, prompt)?;
        let exec = &mut engine.exec;
        let (last, head) = (prompt.len() - 1, self.fed.len());
        let mut progress =
            (last > head).then(|| Progress::new("reading the conversation", "tokens", (last - head) as u64));
        for chunk in prompt[head..last].chunks(options.chunk.max(exec.span())) {
            if interrupt::pressed() {
                return Ok(Finish::Cancelled);
            }
            exec.prefill(seq, chunk)?;
            self.fed.extend_from_slice(chunk);
            if let Some(progress) = &mut progress {
                progress.at((self.fed.len() - head) as u64);
            }
        }
        if let Some(mut progress) = progress {
            progress.finish();
        }
        self.before_answer = Some(exec.save(seq)?);
        let mut fed = prompt.to_vec();
        let mut failed = None;
        let finish = generate(exec, seq, &prompt[last..], options, &mut |event| {
            if let GenerateEvent::Token(id) = event {
                fed.push(id);
                match on(id) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return ControlFlow::Break(()),
                    Err(e) => {
                        failed = Some(e);
                        return ControlFlow::Break(());
                    }
                }
            }
            if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // The last token was drawn and may not have been fed.
        fed.truncate(exec.len(seq)?);
        self.fed = fed;
        match failed {
            Some(e) => Err(e),
            None => finish.map_err(Into::into),
        }
    }

    /// A sequence that holds a proper prefix of `prompt`, as long as possible.
    fn rewind(&mut self, engine: &mut Engine, prompt: &[u32]) -> Result<SeqId> {
        let prefix = |fed: &[u32]| fed.len() < prompt.len() && prompt.starts_with(fed);
        if let Some(seq) = self.seq {
            if prefix(&self.fed) {
                return Ok(seq);
            }
            if let Some(checkpoint) = self.before_answer.as_ref().filter(|c| prefix(c.tokens())) {
                engine.exec.restore(seq, checkpoint)?;
                self.fed = checkpoint.tokens().to_vec();
                return Ok(seq);
            }
            engine.exec.close_sequence(seq)?;
            *self = Self::default();
        }
        let seq = engine.exec.open_sequence()?;
        self.seq = Some(seq);
        Ok(seq)
    }
}
