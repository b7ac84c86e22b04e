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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use glm_chat::{ParseSpecial, SplitterOptions, Tokenizer};

    use super::*;
    use crate::{demo, text};

    /// What was shown.
    #[derive(Clone, Default)]
    struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Write for Shown {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn tokenizer() -> Tokenizer {
        let file = gguf::Model::from_static(demo::NAME, demo::bytes()).unwrap();
        text::tokenizer(&file, demo::NAME, "chat").unwrap()
    }

    /// Pushes until the printer has enough, ends, and gives what was shown, the message, and how many were pushed.
    fn show(
        tokenizer: &Tokenizer,
        thinking_open: bool,
        ids: &[u32],
        ending: Ending,
    ) -> (String, Json, usize) {
        let options = SplitterOptions { thinking_open, ..SplitterOptions::default() };
        let mut printer = Printer::new(Splitter::new(tokenizer, options));
        let shown = Shown::default();
        let mut out = Out::to(Box::new(shown.clone()));
        let mut pushed = 0;
        for &id in ids {
            pushed += 1;
            if printer.push(id, &mut out).unwrap().is_break() {
                break;
            }
        }
        printer.end(ending, &mut out).unwrap();
        let text = String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
        (text, printer.message().unwrap_or_default(), pushed)
    }

    /// A turn end that the model spells in ordinary pieces ends the answer as the token does.
    #[test]
    fn a_turn_end_in_ordinary_pieces_ends_the_answer() {
        let tokenizer = tokenizer();
        for marker in ["<|user|>", "<|observation|>", "<|endoftext|>"] {
            let mut ids = tokenizer.encode("It is Paris.", ParseSpecial::No);
            let spelled = tokenizer.encode(marker, ParseSpecial::No);
            assert!(spelled.len() > 1 && spelled.iter().all(|&id| !tokenizer.is_special(id)), "{marker}");
            ids.extend(spelled);
            let end = ids.len();
            ids.extend(tokenizer.encode("And what is the capital of Japan?", ParseSpecial::No));
            let (shown, message, pushed) = show(&tokenizer, false, &ids, Ending::Cut);
            assert_eq!((shown.as_str(), pushed), ("It is Paris.\n", end), "{marker}");
            assert_eq!(message, json!({"role": "assistant", "content": "It is Paris."}));
        }
        // What only looks like one is text.
        let ids = tokenizer.encode("a <|b|> and <|use", ParseSpecial::No);
        let (shown, _, pushed) = show(&tokenizer, false, &ids, Ending::Turn);
        assert_eq!((shown.as_str(), pushed), ("a <|b|> and <|use\n", ids.len()));
    }

    /// Reasoning without an answer is the answer where the model ended its turn, and stays reasoning where it was cut.
    #[test]
    fn reasoning_that_was_cut_stays_reasoning() {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode("It may be Paris", ParseSpecial::No);
        let (_, turn, _) = show(&tokenizer, true, &ids, Ending::Turn);
        let (_, cut, _) = show(&tokenizer, true, &ids, Ending::Cut);
        assert_eq!(turn["content"], "It may be Paris");
        assert_eq!(cut["content"], "");
        assert_eq!(cut["reasoning_content"], "It may be Paris");
        let (_, nothing, _) = show(&tokenizer, true, &[], Ending::Cut);
        assert_eq!(nothing, Json::Null);
    }
}
