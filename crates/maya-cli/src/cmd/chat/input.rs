//! Lines of a conversation, from a person or from a script.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;

use crate::interrupt;
use crate::output::note;

/// Lines from a person with an editor, or plain lines.
pub enum Input {
    Editor(Box<rustyline::DefaultEditor>),
    Plain { number: u64 },
}

impl Input {
    /// An editor where a person types, else plain lines.
    pub fn open() -> Result<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
        if dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Self::Plain { number: 0 });
        }
        let editor = rustyline::DefaultEditor::new().context("the line editor cannot be started")?;
        Ok(Self::Editor(Box::new(editor)))
    }

    /// Whether a person types.
    pub fn interactive(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    /// The next line; a sentence for one that is no text; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Result<String, String>>> {
        match self {
            Self::Editor(editor) => loop {
                match editor.readline("> ") {
                    Ok(line) => {
                        let _ = editor.add_history_entry(&line);
                        return Ok(Some(Ok(line)));
                    }
                    Err(ReadlineError::Interrupted) => note("Ctrl-D or /exit leaves"),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(e) => return Err(e).context("the terminal cannot be read"),
                }
            },
            Self::Plain { number } => {
                let mut bytes = Vec::new();
                let n = io::stdin()
                    .lock()
                    .read_until(b'\n', &mut bytes)
                    .context("standard input cannot be read")?;
                if n == 0 || interrupt::pressed() {
                    return Ok(None);
                }
                *number += 1;
                Ok(Some(String::from_utf8(bytes).map_err(|e| {
                    format!("line {number}: byte {} is not UTF-8", e.utf8_error().valid_up_to() + 1)
                })))
            }
        }
    }
}
