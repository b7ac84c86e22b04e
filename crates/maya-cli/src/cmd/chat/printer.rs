//! An answer on standard output.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use anyhow::Result;
use glm_chat::{ChatEvent, Ending, Splitter};
use serde_json::{Value as Json, json};

use crate::output::Out;
use crate::progress;

/// Shows an answer as it comes, reasoning dimmed where the terminal can, and keeps it for the conversation.
pub struct Printer {
    splitter: Splitter,
    reasoning: String,
    text: String,
    dim: bool,
    fancy: bool,
}

impl Printer {
    /// Prints what `splitter` makes of the tokens.
    pub fn new(splitter: Splitter) -> Self {
        let fancy = progress::fancy() && io::stdout().is_terminal();
        Self { splitter, reasoning: String::new(), text: String::new(), dim: false, fancy }
    }

    /// The next token. `Break` once the model has ended its turn in ordinary pieces instead of with a stop token: what
    /// it would go on to write is nobody's answer.
    pub fn push(&mut self, id: u32, out: &mut Out) -> Result<ControlFlow<()>> {
        let events = self.splitter.push(id);
        self.show(events, out)?;
        Ok(if self.splitter.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn show(&mut self, events: Vec<ChatEvent>, out: &mut Out) -> Result<()> {
        for event in events {
            match event {
                ChatEvent::Reasoning(piece) => {
                    if self.fancy && !self.dim {
                        self.dim = true;
                        out.text("\u{1b}[2m")?;
                    }
                    out.text(&piece)?;
                    self.reasoning.push_str(&piece);
                }
                ChatEvent::Text(piece) => {
                    if self.text.is_empty() && !self.reasoning.is_empty() {
                        self.bright(out)?;
                        out.text("\n\n")?;
                    }
                    out.text(&piece)?;
                    self.text.push_str(&piece);
                }
                // No tools are declared here, so a call stays text.
                ChatEvent::ToolStart { .. } | ChatEvent::ToolArguments { .. } | ChatEvent::ToolEnd { .. } => {
                }
            }
        }
        out.flush()
    }

    fn bright(&mut self, out: &mut Out) -> Result<()> {
        if self.dim {
            self.dim = false;
            out.text("\u{1b}[0m")?;
        }
        Ok(())
    }

    /// The end of the answer. `Ending::Cut` unless the model ended its turn: reasoning that was cut stays reasoning.
    pub fn end(&mut self, ending: Ending, out: &mut Out) -> Result<()> {
        let (events, _) = self.splitter.finish(ending);
        self.show(events, out)?;
        self.bright(out)?;
        out.line("")
    }

    /// The answer as a message of the conversation; none if nothing came.
    pub fn message(self) -> Option<Json> {
        if self.text.is_empty() && self.reasoning.is_empty() {
            return None;
        }
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.into();
        }
        Some(message)
    }
}
