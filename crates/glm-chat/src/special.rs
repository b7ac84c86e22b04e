//! Special tokens by their text.

use std::ops::Range;

/// A set of special texts, searched leftmost first and longest first.
#[derive(Clone, Debug)]
pub(crate) struct SpecialSet {
    /// Texts in the order they were given.
    texts: Vec<Box<str>>,
    /// For each first byte the indexes of its texts, longest first.
    by_first: Vec<Vec<u32>>,
    /// Length of the longest text in bytes.
    longest: usize,
}

impl SpecialSet {
    /// Empty texts are left out, as they would match everywhere.
    pub(crate) fn new<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Self {
        let texts: Vec<Box<str>> =
            texts.into_iter().filter(|t| !t.as_ref().is_empty()).map(|t| t.as_ref().into()).collect();
        let mut by_first = vec![Vec::new(); 256];
        for (index, text) in texts.iter().enumerate() {
            by_first[usize::from(text.as_bytes()[0])].push(index as u32);
        }
        for list in &mut by_first {
            list.sort_by_key(|&i| std::cmp::Reverse(texts[i as usize].len()));
        }
        let longest = texts.iter().map(|t| t.len()).max().unwrap_or(0);
        Self { texts, by_first, longest }
    }

    pub(crate) fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The special text that starts exactly at byte `at`, the longest if there are several.
    pub(crate) fn at(&self, text: &str, at: usize) -> Option<usize> {
        let rest = text.as_bytes().get(at..)?;
        let list = &self.by_first[usize::from(*rest.first()?)];
        list.iter().map(|&i| i as usize).find(|&i| rest.starts_with(self.texts[i].as_bytes()))
    }

    /// The leftmost special text at or after byte `from`: its bytes and its index in [`SpecialSet::texts`].
    pub(crate) fn next(&self, text: &str, from: usize) -> Option<(Range<usize>, usize)> {
        let bytes = text.as_bytes();
        (from..bytes.len())
            .filter(|&at| !self.by_first[usize::from(bytes[at])].is_empty())
            .find_map(|at| self.at(text, at).map(|i| (at..at + self.texts[i].len(), i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftmost_then_longest() {
        let set = SpecialSet::new(["<a>", "<a>b", "", "é"]);
        assert_eq!(set.next("x<a>b<a>é", 0), Some((1..5, 1)));
        assert_eq!(set.next("x<a>b<a>é", 5), Some((5..8, 0)));
        assert_eq!(set.next("x<a>b<a>é", 8), Some((8..10, 2)));
        assert_eq!(set.next("x<a>b<a>é", 10), None);
        assert_eq!(SpecialSet::new([""; 0]).next("abc", 0), None);
    }
}
