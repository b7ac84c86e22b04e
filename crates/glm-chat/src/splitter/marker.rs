//! Finding marker strings in a stream of characters, holding back no more than what can still become one.

/// A string that is looked for.
#[derive(Clone, Debug)]
struct Pattern<M> {
    bytes: Box<[u8]>,
    /// `borders[k]`: length of the longest proper border of the first `k` bytes.
    borders: Vec<usize>,
    /// How many bytes of the pattern the text read so far ends with.
    state: usize,
    meaning: M,
}

impl<M> Pattern<M> {
    fn new(text: &str, meaning: M) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        let mut borders = vec![0; bytes.len() + 1];
        let mut border = 0;
        for at in 1..bytes.len() {
            while border > 0 && bytes[at] != bytes[border] {
                border = borders[border];
            }
            if bytes[at] == bytes[border] {
                border += 1;
            }
            borders[at + 1] = border;
        }
        Self { bytes, borders, state: 0, meaning }
    }

    /// Reads one byte; true if the pattern is complete.
    fn step(&mut self, byte: u8) -> bool {
        while self.state > 0 && self.bytes[self.state] != byte {
            self.state = self.borders[self.state];
        }
        if self.bytes[self.state] == byte {
            self.state += 1;
        }
        if self.state == self.bytes.len() {
            self.state = self.borders[self.state];
            return true;
        }
        false
    }
}

/// Reads characters and releases them as soon as they cannot be part of a marker any more.
///
/// Of several markers that end at the same character the longest counts, and a marker that ends earlier wins over one that
/// starts earlier: the result depends on the text alone, not on how it was cut. Time per character is amortised constant
/// for each pattern (Knuth, Morris, Pratt).
#[derive(Clone, Debug)]
pub(crate) struct Markers<M> {
    patterns: Vec<Pattern<M>>,
    held: String,
}

impl<M: Clone> Markers<M> {
    /// Empty strings are ignored.
    pub(crate) fn new<S: AsRef<str>>(patterns: impl IntoIterator<Item = (S, M)>) -> Self {
        let patterns = patterns
            .into_iter()
            .filter(|(text, _)| !text.as_ref().is_empty())
            .map(|(text, meaning)| Pattern::new(text.as_ref(), meaning))
            .collect();
        Self { patterns, held: String::new() }
    }

    /// Reads `c`. Appends to `out` what is free, or, if a marker for which `counts` holds ends here, everything before it;
    /// the marker itself is dropped and its meaning returned.
    pub(crate) fn push(&mut self, c: char, counts: impl Fn(&M) -> bool, out: &mut String) -> Option<M> {
        self.held.push(c);
        let mut found: Option<(usize, M)> = None;
        for pattern in &mut self.patterns {
            let mut complete = false;
            for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
                complete = pattern.step(byte);
            }
            let length = pattern.bytes.len();
            if complete
                && found.as_ref().is_none_or(|(longest, _)| length > *longest)
                && counts(&pattern.meaning)
            {
                found = Some((length, pattern.meaning.clone()));
            }
        }
        if let Some((length, meaning)) = found {
            self.held.truncate(self.held.len() - length);
            self.flush(out);
            return Some(meaning);
        }
        let keep = self.patterns.iter().map(|p| p.state).max().unwrap_or(0);
        let free = self.held.len() - keep;
        out.push_str(&self.held[..free]);
        self.held.drain(..free);
        None
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Releases what is held, which then is no part of a marker any more.
    pub(crate) fn flush(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        for pattern in &mut self.patterns {
            pattern.state = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(patterns: &[&str], text: &str) -> (String, Option<usize>) {
        let mut markers = Markers::new(patterns.iter().enumerate().map(|(i, p)| (*p, i)));
        let mut out = String::new();
        for c in text.chars() {
            if let Some(found) = markers.push(c, |_| true, &mut out) {
                return (out, Some(found));
            }
        }
        markers.flush(&mut out);
        (out, None)
    }

    #[test]
    fn the_marker_that_ends_first_counts_then_the_longest() {
        assert_eq!(read(&["own fox"], "The quick brown fox"), ("The quick br".to_owned(), Some(0)));
        assert_eq!(read(&["own fox", "own"], "The quick brown fox"), ("The quick br".to_owned(), Some(1)));
        assert_eq!(read(&["n", "own"], "brown"), ("br".to_owned(), Some(1)));
        assert_eq!(read(&["aab", ""], "aaab"), ("a".to_owned(), Some(0)));
        assert_eq!(read(&["日本"], "x日日本"), ("x日".to_owned(), Some(0)));
        assert_eq!(read(&["<|user|>"], "a <|b|> x<|use"), ("a <|b|> x<|use".to_owned(), None));
    }

    #[test]
    fn only_a_suffix_that_can_grow_is_held() {
        let mut markers = Markers::new([("abab!", ()), ("bc", ())]);
        let mut out = String::new();
        for (c, free) in [('a', ""), ('b', ""), ('a', ""), ('b', ""), ('a', "ab"), ('x', "ababax")] {
            assert_eq!(markers.push(c, |()| true, &mut out), None);
            assert_eq!(out, free);
        }
    }

    proptest! {
        #[test]
        fn equal_to_a_search_in_the_whole_text(
            patterns in prop::collection::vec("[abé]{1,4}", 1..4),
            text in "[abé]{0,24}",
        ) {
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let ends: Vec<usize> = text.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
            let expected = ends.iter().find_map(|&end| {
                let longest = patterns.iter().filter(|p| text[..end].ends_with(**p)).map(|p| p.len()).max()?;
                Some((text[..end - longest].to_owned(), longest))
            });
            let (out, found) = read(&patterns, &text);
            match expected {
                Some((before, length)) => {
                    prop_assert_eq!(out, before);
                    prop_assert_eq!(found.map(|i| patterns[i].len()), Some(length));
                }
                None => prop_assert_eq!((out, found), (text.clone(), None)),
            }
        }
    }
}
