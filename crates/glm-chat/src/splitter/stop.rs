//! Stop strings over plain text.

use super::marker::Markers;

/// Watches streamed text for stop strings. No part of a stop string that was found is ever let through, and only a tail
/// that can still grow into one is held back.
///
/// The one that ends first counts, and of two that end together the longer. What comes out does not depend on how the text
/// is cut into pieces. [`crate::Splitter`] looks for stop strings itself; this is for text without a splitter.
#[derive(Debug)]
pub struct StopStrings {
    markers: Markers<()>,
    matched: bool,
}

impl StopStrings {
    /// Empty strings are ignored.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Self {
        Self { markers: Markers::new(stops.into_iter().map(|stop| (stop, ()))), matched: false }
    }

    /// Takes the next piece and returns what is free to be shown. Once a stop string was found nothing more comes out.
    pub fn push(&mut self, text: &str) -> String {
        let mut free = String::new();
        for c in text.chars() {
            if self.matched {
                break;
            }
            self.matched = self.markers.push(c, |()| true, &mut free).is_some();
        }
        free
    }

    /// What is held back, for when nothing can follow it any more.
    pub fn flush(&mut self) -> String {
        let mut held = String::new();
        self.markers.flush(&mut held);
        held
    }

    /// Whether a stop string was found.
    pub fn matched(&self) -> bool {
        self.matched
    }
}

#[cfg(test)]
mod tests {
    use super::StopStrings;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut watch = StopStrings::new(stops);
        let mut out: String = pieces.iter().map(|piece| watch.push(piece)).collect();
        out.push_str(&watch.flush());
        (out, watch.matched())
    }

    #[test]
    fn every_cut_gives_the_same_text() {
        let text = "The quick brown fox über die own Füße";
        let lists: [&[&str]; 6] =
            [&["own fox"], &["own", "own fox"], &["own fox", "ow"], &["ZZZ"], &["ß"], &["ü", "quick brown "]];
        for stops in lists {
            let whole = run(stops, &[text]);
            let marks: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
            for (i, &a) in marks.iter().enumerate() {
                for &b in &marks[i..] {
                    assert_eq!(
                        run(stops, &[&text[..a], &text[a..b], &text[b..]]),
                        whole,
                        "{stops:?} {a} {b}"
                    );
                }
            }
            let single: Vec<&str> = marks.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            assert_eq!(run(stops, &single), whole, "{stops:?}");
        }
    }

    #[test]
    fn the_match_that_ends_first_wins() {
        assert_eq!(run(&["own", "own fox"], &["brown fox"]), ("br".into(), true));
        assert_eq!(run(&["abcd", "bc"], &["xabcd"]), ("xa".into(), true));
        assert_eq!(run(&["bc", "abc"], &["xabcd"]), ("x".into(), true));
    }

    #[test]
    fn only_a_growing_tail_is_held() {
        let mut watch = StopStrings::new(["own fox"]);
        assert_eq!(watch.push("br"), "br");
        assert_eq!(watch.push("own"), "");
        assert_eq!(watch.push(" f"), "");
        assert_eq!(watch.push("ish"), "own fish");
        assert_eq!(watch.push("ow"), "");
        assert_eq!(watch.flush(), "ow");
        assert!(!watch.matched());
    }
}
