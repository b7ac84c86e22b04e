//! Token ids back to text.

use crate::byte_level;
use std::sync::Arc;

/// The bytes of every token.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// Token `i` is `bytes[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
    longest: usize,
}

impl Pieces {
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self { bytes: Vec::with_capacity(tokens * 7), ends: Vec::with_capacity(tokens), longest: 0 }
    }

    /// Appends the next token, given as its text.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.close();
    }

    /// Appends the next token, given in the byte alphabet. A token with a character outside it is taken as text.
    pub(crate) fn push_encoded(&mut self, token: &str) {
        let start = self.bytes.len();
        for c in token.chars() {
            match byte_level::byte_of(c) {
                Some(byte) => self.bytes.push(byte),
                None => {
                    self.bytes.truncate(start);
                    return self.push_text(token);
                }
            }
        }
        self.close();
    }

    fn close(&mut self) {
        let start = self.ends.last().map_or(0, |&end| end as usize);
        self.longest = self.longest.max(self.bytes.len().saturating_sub(start));
        // A vocabulary is bounded by the file's metadata, far below 4 GiB; saturating keeps lookups in range anyway.
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Bytes of the longest token.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The bytes of token `id`; empty for an id outside the vocabulary.
    pub(crate) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        self.bytes.get(start as usize..end as usize).unwrap_or(&[])
    }
}

/// Decodes a stream of tokens, never splitting a character.
///
/// The concatenation of all [`Detokenizer::push`] results and of [`Detokenizer::finish`] equals
/// [`crate::Tokenizer::decode`] of the same ids, however the stream is cut.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    pieces: Arc<Pieces>,
    tail: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn new(pieces: Arc<Pieces>) -> Self {
        Self { pieces, tail: Vec::new() }
    }

    /// The text that token `id` completes. A character that is not whole yet is held back; bytes that can never become
    /// one give U+FFFD. An id outside the vocabulary gives nothing.
    pub fn push(&mut self, id: u32) -> String {
        self.tail.extend_from_slice(self.pieces.get(id));
        let mut out = String::new();
        let mut done = 0;
        loop {
            match std::str::from_utf8(&self.tail[done..]) {
                Ok(text) => {
                    out.push_str(text);
                    self.tail.clear();
                    return out;
                }
                Err(error) => {
                    let valid = done + error.valid_up_to();
                    out.push_str(std::str::from_utf8(&self.tail[done..valid]).expect("valid up to here"));
                    match error.error_len() {
                        Some(bad) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            done = valid + bad;
                        }
                        None => {
                            self.tail.drain(..valid);
                            return out;
                        }
                    }
                }
            }
        }
    }

    /// What is held back, as U+FFFD. The decoder is then as new.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.tail).into_owned();
        self.tail.clear();
        text
    }
}
