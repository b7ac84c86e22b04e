//! A rendered prompt that knows which of its text the template wrote.

use std::ops::Range;

/// Text of a prompt and the places where the template put a special token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    /// Ascending and disjoint, on character boundaries.
    specials: Vec<Range<usize>>,
}

impl Prompt {
    /// `specials` must be ascending, disjoint and on character boundaries.
    pub(crate) fn new(text: String, specials: Vec<Range<usize>>) -> Self {
        Self { text, specials }
    }

    /// The prompt as the plain template renders it.
    pub fn text(&self) -> String {
        self.text.clone()
    }

    /// As [`Prompt::text`], borrowed.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Byte ranges of [`Prompt::as_str`] that are special tokens: their text comes from the template. The same text
    /// anywhere else came with the request and is ordinary text.
    pub fn specials(&self) -> &[Range<usize>] {
        &self.specials
    }

    /// Whether the prompt ends in an open `<think>` (white space may follow), so that the answer starts as reasoning.
    pub fn thinking_open(&self) -> bool {
        self.ends_with_special("<think>")
    }

    /// Whether `special` is the last special token and only white space follows it.
    pub(crate) fn ends_with_special(&self, special: &str) -> bool {
        self.specials
            .last()
            .is_some_and(|r| &self.text[r.clone()] == special && self.text[r.end..].trim().is_empty())
    }

    /// Appends a special token.
    pub(crate) fn push_special(&mut self, special: &str) {
        let start = self.text.len();
        self.text.push_str(special);
        self.specials.push(start..self.text.len());
    }
}
