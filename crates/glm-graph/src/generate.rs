//! The loop from a prompt to tokens.

use std::ops::ControlFlow;

use crate::error::ExecError;
use crate::executor::{Executor, Input, SeqId, Step, Ticket, Token, Want};
use crate::sampler::SamplerParams;

/// How to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Tokens emitted at most.
    pub max_tokens: usize,
    /// How they are drawn.
    pub sampler: SamplerParams,
    /// Tokens that end the text and are not part of it.
    pub stop_tokens: Vec<Token>,
    /// Prompt tokens between two looks at the callback, if the executor's span is not longer; 0 counts as 1.
    pub chunk: usize,
}

/// What happens while generating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerateEvent {
    /// Prompt tokens fed so far: reported before each chunk, and once more when all are.
    Prefill {
        /// Fed.
        done: usize,
        /// Of these.
        total: usize,
    },
    /// A token of the text.
    Token(Token),
}

/// Why generating ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// This stop token was drawn.
    Stop(Token),
    /// `max_tokens` were emitted, or the context is full.
    Length,
    /// The callback broke off.
    Cancelled,
}

/// Feeds `prompt` into `seq`, which may have tokens already, and decodes.
///
/// The stop token ends the text and is not emitted. `on` returning `Break` cancels within one chunk of the prompt (or
/// span of the executor) or one step. Afterwards the sequence holds the prompt and the emitted tokens but the last one, which was drawn and not fed
/// (after [`Finish::Stop`]: all emitted tokens).
///
/// # Errors
/// Before anything is fed: an empty prompt, a prompt beyond the context, a token out of range, meaningless sampling
/// parameters. Later: whatever the executor meets.
pub fn generate(
    exec: &mut dyn Executor,
    seq: SeqId,
    prompt: &[Token],
    options: &GenerateOptions,
    on: &mut dyn FnMut(GenerateEvent) -> ControlFlow<()>,
) -> Result<Finish, ExecError> {
    let (last, head) = prompt.split_last().ok_or(ExecError::EmptyPrompt)?;
    let (ctx, vocab, before) = (exec.ctx(), exec.vocab(), exec.len(seq)?);
    if before + prompt.len() > ctx {
        return Err(ExecError::Context { wanted: before + prompt.len(), ctx });
    }
    if let Some(at) = prompt.iter().position(|token| *token as usize >= vocab) {
        return Err(ExecError::TokenRange { token: prompt[at], at, vocab });
    }
    options.sampler.check(vocab)?;

    let total = prompt.len();
    let mut done = 0;
    for chunk in head.chunks(options.chunk.max(exec.span()).max(1)) {
        if on(GenerateEvent::Prefill { done, total }).is_break() {
            return Ok(Finish::Cancelled);
        }
        exec.prefill(seq, chunk)?;
        done += chunk.len();
    }
    if on(GenerateEvent::Prefill { done, total }).is_break() {
        return Ok(Finish::Cancelled);
    }
    let step = |input| Step { seq, input, want: Want::Sample(options.sampler.clone()) };
    let has_room = |exec: &dyn Executor, emitted| -> Result<bool, ExecError> {
        Ok(emitted < options.max_tokens && exec.len(seq)? < ctx)
    };
    let mut next = has_room(exec, 0)?.then(|| exec.submit(&[step(Input::Token(*last))]));
    let mut emitted = 0;
    while let Some(ticket) = next.take() {
        let ticket = ticket?;
        // The step after this one runs ahead: should this one's token be the last, it is undone. What may refuse it is told
        // after this one's token.
        if has_room(exec, emitted + 1)? {
            next = Some(exec.submit(&[step(Input::LastSampled)]));
        }
        let ended = answer(exec, seq, ticket).map(|token| {
            // The first step has fed the prompt's last token.
            if done < total {
                done = total;
                if on(GenerateEvent::Prefill { done, total }).is_break() {
                    return Some(Finish::Cancelled);
                }
            }
            if options.stop_tokens.contains(&token) {
                return Some(Finish::Stop(token));
            }
            emitted += 1;
            on(GenerateEvent::Token(token)).is_break().then_some(Finish::Cancelled)
        });
        if let Some(finish) = ended.transpose() {
            let undone = if let Some(Ok(_)) = next { exec.undo(seq) } else { Ok(()) };
            return finish.and_then(|finish| undone.map(|()| finish));
        }
    }
    Ok(Finish::Length)
}

/// The token that a step has sampled.
fn answer(exec: &mut dyn Executor, seq: SeqId, ticket: Ticket) -> Result<Token, ExecError> {
    let row = exec.poll(ticket)?.into_iter().next().ok_or(ExecError::NothingSampled(seq))?;
    match row.error {
        Some(error) => Err(error),
        None => row.token.ok_or(ExecError::NothingSampled(seq)),
    }
}
