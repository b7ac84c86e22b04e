//! What of a request could take part in the text of a special token.

use crate::special::SpecialSet;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;

/// Special texts in lower case (ASCII), to be asked about strings of a request in lower case.
///
/// Tables of places in the texts, not of copies: all beginnings and ends of a text together have the square of its bytes.
#[derive(Debug)]
pub(crate) struct Shapes {
    whole: SpecialSet,
    firsts: HashSet<char>,
    texts: Vec<Box<str>>,
    /// Proper beginnings: whole texts, ascending.
    heads: Vec<Place>,
    /// Proper ends, ascending.
    tails: Vec<Place>,
    /// What follows a first character, without the last one, ascending: whatever begins one of these lies strictly inside
    /// of a text.
    middles: Vec<Place>,
}

/// A piece of a text: which one, and its bytes there.
#[derive(Clone, Debug)]
struct Place {
    text: usize,
    bytes: Range<usize>,
}

impl Shapes {
    /// Takes memory by the bytes of `specials`, and time by what a sort of their ends takes. ([`crate::Tokenizer`] bounds
    /// the length of one and of all.)
    pub(crate) fn new(specials: &[String]) -> Self {
        let texts: Vec<Box<str>> = specials.iter().map(|text| text.to_ascii_lowercase().into()).collect();
        let (mut heads, mut tails, mut middles) = (Vec::new(), Vec::new(), Vec::new());
        for (text, string) in texts.iter().enumerate() {
            heads.push(Place { text, bytes: 0..string.len() });
            let last = string.char_indices().next_back().map_or(0, |(at, _)| at);
            for (at, _) in string.char_indices().skip(1) {
                tails.push(Place { text, bytes: at..string.len() });
                if at < last {
                    middles.push(Place { text, bytes: at..last });
                }
            }
        }
        for places in [&mut heads, &mut tails, &mut middles] {
            places.sort_unstable_by(|a, b| bytes_of(&texts, a).cmp(bytes_of(&texts, b)));
        }
        let firsts = texts.iter().filter_map(|text| text.chars().next()).collect();
        Self { whole: SpecialSet::new(&texts), firsts, texts, heads, tails, middles }
    }

    /// The special texts themselves.
    pub(crate) fn whole(&self) -> &SpecialSet {
        &self.whole
    }

    /// Whether a special text begins with `c`.
    pub(crate) fn begins_with(&self, c: char) -> bool {
        self.firsts.contains(&c)
    }

    /// Whether `text` is a proper beginning of a special text.
    pub(crate) fn is_head(&self, text: &str) -> bool {
        // Ascending: the text itself, if it is one, then what it begins.
        let from = self.heads.partition_point(|place| self.compare(place, text) != Ordering::Greater);
        self.begins(&self.heads, from, text)
    }

    /// Whether `text` is a proper end of a special text.
    pub(crate) fn is_tail(&self, text: &str) -> bool {
        self.tails.binary_search_by(|place| self.compare(place, text)).is_ok()
    }

    /// Whether `text` lies strictly inside of a special text.
    pub(crate) fn is_middle(&self, text: &str) -> bool {
        let from = self.middles.partition_point(|place| self.compare(place, text) == Ordering::Less);
        self.begins(&self.middles, from, text)
    }

    fn compare(&self, place: &Place, text: &str) -> Ordering {
        bytes_of(&self.texts, place).cmp(text.as_bytes())
    }

    fn begins(&self, places: &[Place], at: usize, text: &str) -> bool {
        let found =
            places.get(at).is_some_and(|place| bytes_of(&self.texts, place).starts_with(text.as_bytes()));
        found && !text.is_empty()
    }
}

fn bytes_of<'a>(texts: &'a [Box<str>], place: &Place) -> &'a [u8] {
    &texts[place.text].as_bytes()[place.bytes.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_of_a_megabyte_takes_no_square_of_it() {
        // Copies of its beginnings alone would be 500 GB.
        let mut state = 1_u32;
        let mut letter = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (state >> 28) as u8)
        };
        let text: String = (0..1 << 20).map(|_| letter()).collect();
        let shapes = Shapes::new(std::slice::from_ref(&text));
        assert!(
            shapes.is_head(&text[..1000]) && shapes.is_tail(&text[1000..]) && shapes.is_middle(&text[5..900])
        );
        assert!(!shapes.is_head(&text) && !shapes.is_tail(&text) && !shapes.is_middle(&text[1..]));
    }

    proptest! {
        #[test]
        fn equal_to_a_search_in_every_text(
            specials in prop::collection::vec("[aé<]{0,5}", 0..5),
            text in "[aé<]{0,5}",
        ) {
            let shapes = Shapes::new(&specials);
            let proper = |special: &String| special.len() > text.len() && !text.is_empty();
            prop_assert_eq!(shapes.is_head(&text), specials.iter().any(|s| proper(s) && s.starts_with(&text)));
            prop_assert_eq!(shapes.is_tail(&text), specials.iter().any(|s| proper(s) && s.ends_with(&text)));
            let inside = specials.iter().any(|s| {
                let mut chars = s.chars();
                let ends = (chars.next(), chars.next_back());
                !text.is_empty() && ends.1.is_some() && chars.as_str().contains(&text)
            });
            prop_assert_eq!(shapes.is_middle(&text), inside);
        }
    }
}
