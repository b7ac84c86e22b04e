//! What leaves the process: standard output, sentences on standard error, and files that exist whole or not at all.

mod atomic;

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

pub use atomic::{AtomicFile, remove_temporaries};

/// The reader of standard output went away (`maya … | head`). The program ends quietly with exit code 0.
#[derive(Debug)]
pub struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// Standard output, buffered; a closed pipe becomes [`StdoutClosed`].
pub struct Out(BufWriter<Box<dyn Write>>);

impl Out {
    /// A writer of its own; one at a time is used.
    pub fn new() -> Self {
        Self::to(Box::new(io::stdout()))
    }

    /// The same before another writer: tests read what was shown.
    pub fn to(writer: Box<dyn Write>) -> Self {
        Self(BufWriter::with_capacity(64 << 10, writer))
    }

    /// Writes text as it is.
    pub fn text(&mut self, text: &str) -> Result<()> {
        closed(self.0.write_all(text.as_bytes()))
    }

    /// Writes a line and flushes it, so that a reader of a pipe sees it at once.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        closed(writeln!(self.0, "{line}").and_then(|()| self.0.flush()))
    }

    /// Hands everything over.
    pub fn flush(&mut self) -> Result<()> {
        closed(self.0.flush())
    }
}

fn closed(result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        other => other.context("standard output cannot be written"),
    }
}

static JSON_LOG: AtomicBool = AtomicBool::new(false);

/// With `--log-format json` every line on standard error is a JSON object, sentences included.
pub fn sentences_as_json() {
    JSON_LOG.store(true, Ordering::Relaxed);
}

/// A sentence for the user on standard error. A closed standard error is ignored.
pub fn note(sentence: impl fmt::Display) {
    let sentence = printable(&sentence.to_string());
    if JSON_LOG.load(Ordering::Relaxed) {
        tracing::info!(target: "maya", "{sentence}");
    } else {
        let _ = writeln!(io::stderr(), "maya: {sentence}");
    }
}

/// The sentence of a failure on standard error.
pub fn failure(sentence: impl fmt::Display) {
    let sentence = printable(&sentence.to_string());
    if JSON_LOG.load(Ordering::Relaxed) {
        tracing::error!(target: "maya", "{sentence}");
    } else {
        let _ = writeln!(io::stderr(), "maya: {sentence}");
    }
}

/// One line without control characters: a name from a hostile file must not steer a terminal or break a log line.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Text from a file, at most 80 characters of it: a hostile one must not fill a screen.
pub fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], count(text.len() as u64)),
        None => text.to_owned(),
    }
}

/// Bytes for people, in powers of 1000 as drives and model cards count them: `1.45 GB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A count for people: `1,048,576`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_450_000_000), "1.45 GB");
        assert_eq!(bytes(96_460_000_000), "96.5 GB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(count(1_048_576), "1,048,576");
        assert_eq!(count(512), "512");
    }

    #[test]
    fn a_hostile_name_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\rb\nc\n"), "a\\u{1b}[2J\\rb c");
    }

    #[test]
    fn what_is_quoted_is_short() {
        assert_eq!(excerpt("short"), "short");
        let long = excerpt(&"ü".repeat(1 << 20));
        assert_eq!(
            (long.chars().filter(|c| *c == 'ü').count(), long.ends_with("… (2,097,152 bytes)")),
            (80, true)
        );
    }
}
