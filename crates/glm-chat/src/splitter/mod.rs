//! The streaming splitter: token ids in, reasoning, text and tool calls out.

mod event;

pub use event::{ChatEvent, Ending, FinishReason, merge};

use crate::detokenizer::Detokenizer;
use crate::tokenizer::Tokenizer;
use event::push_merged;
use serde_json::Value;

/// What a splitter has to know about the request.
#[derive(Clone, Debug, Default)]
pub struct SplitterOptions {
    /// The tools of the request, as in [`crate::ChatRequest::tools`]. Without any, a call in the text stays text.
    pub tools: Vec<Value>,
    /// Whether the prompt ended in an open `<think>` ([`crate::Prompt::thinking_open`]).
    pub thinking_open: bool,
    /// Stop strings of the request; empty ones are ignored.
    pub stop: Vec<String>,
}

/// Splits a stream of tokens.
pub struct Splitter {
    detokenizer: Detokenizer,
    think_end: Option<u32>,
    reasoning: bool,
    stop_tokens: Vec<u32>,
    finish: Option<FinishReason>,
}

impl Splitter {
    /// A splitter for one answer.
    pub fn new(tokenizer: &Tokenizer, options: SplitterOptions) -> Self {
        Self {
            detokenizer: tokenizer.detokenizer(),
            think_end: tokenizer.special("</think>"),
            reasoning: options.thinking_open,
            stop_tokens: tokenizer.stop_tokens().to_vec(),
            finish: None,
        }
    }

    /// Takes the next token and returns what it completes. After a stop ([`Splitter::stopped`]) tokens are ignored.
    pub fn push(&mut self, id: u32) -> Vec<ChatEvent> {
        let mut events = Vec::new();
        if self.finish.is_some() {
            return events;
        }
        if self.stop_tokens.contains(&id) {
            self.finish = Some(FinishReason::Stop);
            return events;
        }
        if Some(id) == self.think_end && self.reasoning {
            let rest = self.detokenizer.finish();
            self.emit(rest, &mut events);
            self.reasoning = false;
            return events;
        }
        let text = self.detokenizer.push(id);
        self.emit(text, &mut events);
        events
    }

    fn emit(&self, text: String, events: &mut Vec<ChatEvent>) {
        if !text.is_empty() {
            let event = if self.reasoning { ChatEvent::Reasoning(text) } else { ChatEvent::Text(text) };
            push_merged(events, event);
        }
    }

    /// Whether generation should end now: a stop string, or a stop token that was pushed or spelled in ordinary pieces.
    pub fn stopped(&self) -> bool {
        self.finish.is_some()
    }

    /// Ends the stream: what was held back, and the reason to report.
    pub fn finish(&mut self, ending: Ending) -> (Vec<ChatEvent>, FinishReason) {
        let mut events = Vec::new();
        let rest = self.detokenizer.finish();
        self.emit(rest, &mut events);
        let reason = self.finish.clone().unwrap_or(match ending {
            Ending::Turn => FinishReason::Stop,
            Ending::Cut => FinishReason::Length,
        });
        (events, reason)
    }
}
