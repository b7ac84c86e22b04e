//! From the tokens of an answer to what its client sees.

use std::ops::ControlFlow;
use std::sync::Arc;

use glm_chat::{ChatEvent, Detokenizer, Ending, FinishReason, Splitter, StopStrings};

use crate::id::Ids;
use crate::outcome::{Clock, Outcome};

/// A piece of an answer. A whole reply is the sum of the same pieces that a stream carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    Reasoning(String),
    Text(String),
    /// A call begins. Indexes count from 0 without gaps.
    Call {
        index: usize,
        id: String,
        name: String,
    },
    /// More of the JSON text of a call's arguments.
    Arguments {
        index: usize,
        json: String,
    },
}

/// The reader of one answer.
pub(crate) enum Turn {
    /// A chat answer: reasoning, text, calls.
    Chat(Box<ChatTurn>),
    /// Plain text.
    Text { characters: Detokenizer, stops: StopStrings },
}

impl Turn {
    /// Reads a chat answer. `thinking`: it starts as reasoning, up to the token `think_end`.
    pub fn chat(
        splitter: Splitter,
        thinking: bool,
        think_end: Option<u32>,
        single_call: bool,
        ids: Arc<Ids>,
    ) -> Self {
        Self::Chat(Box::new(ChatTurn {
            splitter,
            thinking,
            think_end,
            single_call,
            ids,
            reasoning: 0,
            call_ended: false,
        }))
    }

    /// Reads plain text up to a stop string.
    pub fn text(characters: Detokenizer, stops: Vec<String>) -> Self {
        Self::Text { characters, stops: StopStrings::new(stops) }
    }

    /// Takes the next token and adds what it brings to `out`. Breaks when the answer is complete.
    pub fn push(&mut self, token: u32, out: &mut Vec<Delta>) -> ControlFlow<()> {
        let complete = match self {
            Self::Chat(chat) => chat.push(token, out),
            Self::Text { characters, stops } => {
                push_text(out, stops.push(&characters.push(token)));
                stops.matched()
            }
        };
        if complete { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Takes the end of the tokens: adds what was held back to `out` and says how the answer ended.
    pub fn finish(&mut self, ending: Ending, out: &mut Vec<Delta>, clock: &Clock) -> Outcome {
        let (finish, reasoning) = match self {
            Self::Chat(chat) => (chat.finish(ending, out), chat.reasoning),
            Self::Text { characters, stops } => {
                push_text(out, stops.push(&characters.finish()));
                if !stops.matched() {
                    push_text(out, stops.flush());
                }
                let stopped = stops.matched() || ending == Ending::Turn;
                (if stopped { "stop" } else { "length" }, 0)
            }
        };
        let (usage, timings) = clock.measure(reasoning);
        Outcome { finish, usage, timings }
    }
}

/// The reader of one chat answer.
pub(crate) struct ChatTurn {
    splitter: Splitter,
    /// The next token is reasoning, as far as is known.
    thinking: bool,
    think_end: Option<u32>,
    /// The answer ends with its first call.
    single_call: bool,
    ids: Arc<Ids>,
    /// Tokens that were reasoning.
    reasoning: usize,
    call_ended: bool,
}

/// What a token brought.
#[derive(Default)]
struct Brought {
    reasoning: bool,
    answer: bool,
}

impl ChatTurn {
    fn push(&mut self, token: u32, out: &mut Vec<Delta>) -> bool {
        let events = self.splitter.push(token);
        let brought = self.take(events, out);
        self.reasoning += usize::from(self.thinking || brought.reasoning);
        // The splitter holds text back, so that silence says nothing; the mark itself is never text.
        self.thinking =
            (self.thinking || brought.reasoning) && !brought.answer && Some(token) != self.think_end;
        self.splitter.stopped() || (self.single_call && self.call_ended)
    }

    fn finish(&mut self, ending: Ending, out: &mut Vec<Delta>) -> &'static str {
        let (events, reason) = self.splitter.finish(ending);
        self.take(events, out);
        match reason {
            FinishReason::Stop | FinishReason::StopString(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
        }
    }

    fn take(&mut self, events: Vec<ChatEvent>, out: &mut Vec<Delta>) -> Brought {
        let mut brought = Brought::default();
        for event in events {
            // What comes after the one call that was allowed is not shown.
            if self.single_call && self.call_ended {
                break;
            }
            match event {
                ChatEvent::Reasoning(text) => {
                    brought.reasoning = true;
                    out.push(Delta::Reasoning(text));
                }
                ChatEvent::Text(text) => {
                    brought.answer = true;
                    out.push(Delta::Text(text));
                }
                ChatEvent::ToolStart { index, name } => {
                    brought.answer = true;
                    out.push(Delta::Call { index, id: self.ids.name("call_"), name });
                }
                ChatEvent::ToolArguments { index, json } => out.push(Delta::Arguments { index, json }),
                ChatEvent::ToolEnd { .. } => self.call_ended = true,
            }
        }
        brought
    }
}

fn push_text(out: &mut Vec<Delta>, text: String) {
    if !text.is_empty() {
        out.push(Delta::Text(text));
    }
}
