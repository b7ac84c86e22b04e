//! Stop strings over streamed text.

/// Watches answer text for the request's stop strings. No part of a matched stop string is ever let through, and only a
/// tail that can still grow into one is held back.
///
/// The match that ends first wins, and of two that end together the longer one. That rule does not depend on how the
/// text is cut into pieces.
#[derive(Debug, Default)]
pub(crate) struct StopStrings {
    stops: Vec<String>,
    held: String,
    matched: bool,
}

impl StopStrings {
    /// `stops` are not empty strings.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), matched: false }
    }

    /// Takes the next piece and returns what is safe to show. After a match nothing more comes out.
    pub fn push(&mut self, text: &str) -> String {
        if self.matched {
            return String::new();
        }
        self.held.push_str(text);
        let hit = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|start| (start + stop.len(), start)))
            .min();
        if let Some((_, start)) = hit {
            self.matched = true;
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let keep = self.growing_tail();
        let tail = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, tail)
    }

    /// What is held back, for when nothing can follow it any more.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string has been seen.
    pub fn matched(&self) -> bool {
        self.matched
    }

    /// Bytes of the longest tail that begins a stop string.
    fn growing_tail(&self) -> usize {
        let longest = self.stops.iter().map(|s| s.len() - 1).max().unwrap_or(0).min(self.held.len());
        (1..=longest)
            .rev()
            .find(|&n| {
                let from = self.held.len() - n;
                self.held.is_char_boundary(from)
                    && self.stops.iter().any(|stop| stop.len() > n && stop.starts_with(&self.held[from..]))
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::StopStrings;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut watch = StopStrings::new(stops.iter().map(|s| (*s).to_owned()).collect());
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
        let mut watch = StopStrings::new(vec!["own fox".into()]);
        assert_eq!(watch.push("br"), "br");
        assert_eq!(watch.push("own"), "");
        assert_eq!(watch.push(" f"), "");
        assert_eq!(watch.push("ish"), "own fish");
        assert_eq!(watch.push("ow"), "");
        assert_eq!(watch.flush(), "ow");
        assert!(!watch.matched());
    }
}
