//! The pre-tokenizer: where byte-level BPE may not merge across.
//!
//! The pattern of model-spec 10.1, scanned by hand. A backtracking regular expression engine needs look-ahead for it
//! and gives up (or goes quadratic) on a megabyte of spaces; this scanner looks at each character a bounded number of
//! times and has no limit. Its equality with the regular expression is a test.

use regex_syntax::hir::{Class, HirKind};

/// The pattern, as the published tokenizer writes it. Kept for the test against a regular expression engine.
#[cfg(test)]
pub(crate) const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What the pattern tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Letter,
    Number,
    /// `\r` or `\n`.
    Newline,
    /// Any other white space.
    Space,
    /// Neither white space nor letter nor number.
    Other,
}

/// Splits text into pre-tokens.
#[derive(Debug)]
pub(crate) struct Pretokenizer {
    ascii: [Kind; 128],
    /// Sorted, disjoint, inclusive ranges of the general categories L and N.
    letters: Vec<(char, char)>,
    numbers: Vec<(char, char)>,
}

impl Pretokenizer {
    /// Builds the character tables.
    pub(crate) fn new() -> Self {
        let mut made =
            Self { ascii: [Kind::Other; 128], letters: category(r"\p{L}"), numbers: category(r"\p{N}") };
        for byte in 0..128u8 {
            made.ascii[usize::from(byte)] = made.look_up(char::from(byte));
        }
        made
    }

    fn look_up(&self, c: char) -> Kind {
        if within(&self.letters, c) {
            Kind::Letter
        } else if within(&self.numbers, c) {
            Kind::Number
        } else if c == '\r' || c == '\n' {
            Kind::Newline
        } else if c.is_whitespace() {
            Kind::Space
        } else {
            Kind::Other
        }
    }

    fn kind(&self, c: char) -> Kind {
        if c.is_ascii() { self.ascii[c as usize] } else { self.look_up(c) }
    }

    /// The pre-tokens of `text`, in order; concatenated they are `text`.
    pub(crate) fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let cut = self.first(rest)?;
            let (head, tail) = rest.split_at(cut);
            rest = tail;
            Some(head)
        })
    }

    /// Bytes of the first pre-token, `None` at the end of the text.
    fn first(&self, text: &str) -> Option<usize> {
        let mut chars = text.chars();
        let c = chars.next()?;
        let after = c.len_utf8();
        let next = chars.next();
        if c == '\''
            && let Some(len) = contraction(&text[after..])
        {
            return Some(after + len);
        }
        let kind = self.kind(c);
        let next_kind = next.map(|n| self.kind(n));
        Some(match kind {
            Kind::Letter => self.run(text, 0, Kind::Letter),
            Kind::Space | Kind::Other if next_kind == Some(Kind::Letter) => {
                self.run(text, after, Kind::Letter)
            }
            Kind::Number => text
                .char_indices()
                .take(3)
                .take_while(|&(_, d)| self.kind(d) == Kind::Number)
                .fold(0, |_, (at, d)| at + d.len_utf8()),
            Kind::Other => self.newlines_after(text, self.run(text, 0, Kind::Other)),
            Kind::Space if c == ' ' && next_kind == Some(Kind::Other) => {
                self.newlines_after(text, self.run(text, after, Kind::Other))
            }
            Kind::Space | Kind::Newline => self.white_space(text),
        })
    }

    /// End of the run of `kind` that starts at byte `from`.
    fn run(&self, text: &str, from: usize, kind: Kind) -> usize {
        text[from..]
            .char_indices()
            .find(|&(_, c)| self.kind(c) != kind)
            .map_or(text.len(), |(at, _)| from + at)
    }

    fn newlines_after(&self, text: &str, from: usize) -> usize {
        self.run(text, from, Kind::Newline)
    }

    /// `\s*[\r\n]+`, else `\s+(?!\S)`, else `\s+`, at the start of `text`.
    fn white_space(&self, text: &str) -> usize {
        let mut after_newline = None;
        let mut last = 0;
        let mut end = text.len();
        for (at, c) in text.char_indices() {
            match self.kind(c) {
                Kind::Newline => after_newline = Some(at + 1),
                Kind::Space => {}
                _ => {
                    end = at;
                    break;
                }
            }
            last = at;
        }
        match after_newline {
            Some(cut) => cut,
            // The last space before a word belongs to the word, if another stands before it.
            None if end < text.len() && last > 0 => last,
            None => end,
        }
    }
}

/// `s t re ve m ll d` without case at the start of `text`: its bytes. U+017F folds to s, as in the regular expression.
fn contraction(text: &str) -> Option<usize> {
    let mut chars = text.chars();
    let first = chars.next()?;
    match first {
        's' | 'S' | 'ſ' | 't' | 'T' | 'm' | 'M' | 'd' | 'D' => Some(first.len_utf8()),
        'r' | 'R' | 'v' | 'V' => matches!(chars.next(), Some('e' | 'E')).then_some(2),
        'l' | 'L' => matches!(chars.next(), Some('l' | 'L')).then_some(2),
        _ => None,
    }
}

fn category(pattern: &str) -> Vec<(char, char)> {
    let hir = regex_syntax::parse(pattern).expect("a general category is a valid pattern");
    let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
        unreachable!("a general category parses to one character class")
    };
    class.ranges().iter().map(|r| (r.start(), r.end())).collect()
}

fn within(ranges: &[(char, char)], c: char) -> bool {
    let after = ranges.partition_point(|&(start, _)| start <= c);
    after > 0 && c <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    fn by_regex(text: &str) -> Vec<String> {
        let split =
            Split::new(SplitPattern::Regex(PATTERN.to_owned()), SplitDelimiterBehavior::Isolated, false)
                .unwrap();
        let mut string = PreTokenizedString::from(text);
        split.pre_tokenize(&mut string).unwrap();
        let splits = string.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(piece, _, _)| piece.to_owned()).filter(|piece| !piece.is_empty()).collect()
    }

    fn by_hand(text: &str) -> Vec<String> {
        Pretokenizer::new().split(text).map(str::to_owned).collect()
    }

    #[test]
    fn t1_digits_are_grouped_by_three_from_the_left() {
        assert_eq!(
            by_hand("504 5504 1234567 3.14159"),
            ["504", " ", "550", "4", " ", "123", "456", "7", " ", "3", ".", "141", "59"]
        );
    }

    #[test]
    fn every_alternative_of_the_pattern() {
        for text in [
            "it's IT'S we'Ll 'x 'ſt ''d 're're 'r 'v",
            "\u{3000}字 \u{a0}b\tword\n\n  two\r\n \r x  ",
            " !?\n\n(a)  ... \n  x",
            "a\u{85}b\u{2028}c½Ⅳ٣٤٥६7",
            "   ",
            "\n",
            " \n ",
            "  \n  x",
            "x  ",
            "\u{301}e\u{301}",
            "",
        ] {
            assert_eq!(by_hand(text), by_regex(text), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn equal_to_the_regular_expression(text in "[ \t\r\n\u{a0}\u{85}'sStTlLrReEvVmMdDſ0-9٣½aé字😀.!\u{301}-]{0,40}", any in "\\PC{0,40}") {
            prop_assert_eq!(by_hand(&text), by_regex(&text));
            prop_assert_eq!(by_hand(&any), by_regex(&any));
        }
    }
}
