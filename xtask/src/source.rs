//! Rust source split into code and comments, line by line, so that rules can look at one without the other.

/// One line of source with the other part and the contents of literals blanked out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Code; string and character contents and comments are gone.
    pub code: String,
    /// Text of comments, without their marks.
    pub comment: String,
}

impl Line {
    /// Whether `word` stands in the code as a whole identifier.
    pub fn has_word(&self, word: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        self.code.match_indices(word).any(|(at, _)| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
    }
}

/// Splits `text` into lines. Understands nested block comments, raw and byte strings, and tells lifetimes from characters;
/// source that does not compile may be split wrongly, but never panics.
pub fn lines(text: &str) -> Vec<Line> {
    let mut splitter = Splitter { rest: text, lines: vec![Line::default()] };
    splitter.run();
    splitter.lines
}

struct Splitter<'a> {
    rest: &'a str,
    lines: Vec<Line>,
}

impl Splitter<'_> {
    fn run(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                let comment = self.rest[..end].trim_start_matches(['/', '!']).to_owned();
                self.comment(&comment);
                self.rest = &self.rest[end..];
            } else if self.rest.starts_with("/*") {
                self.block_comment();
            } else if let Some(hashes) = raw_string(self.rest) {
                let open = self.rest.find('"').map_or(self.rest.len(), |q| q + 1);
                let close = format!("\"{}", "#".repeat(hashes));
                let end = self.rest[open..].find(&close).map_or(self.rest.len(), |e| open + e + close.len());
                self.literal(end);
            } else if c == '"' {
                self.literal(quoted(self.rest, '"'));
            } else if c == '\'' && is_character(self.rest) {
                self.literal(quoted(self.rest, '\''));
            } else if c.is_alphanumeric() || c == '_' {
                // Whole words, so that the `r` of `for"` is not taken for the start of a raw string.
                let word = |c: char| c.is_alphanumeric() || c == '_';
                let end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
                self.code(end);
            } else {
                self.code(c.len_utf8());
            }
        }
    }

    fn line(&mut self) -> &mut Line {
        if self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.lines.last_mut().expect("a line was pushed above")
    }

    fn code(&mut self, len: usize) {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        for c in taken.chars() {
            if c == '\n' {
                self.lines.push(Line::default());
            } else {
                self.line().code.push(c);
            }
        }
    }

    fn comment(&mut self, text: &str) {
        for (i, part) in text.split('\n').enumerate() {
            if i > 0 {
                self.lines.push(Line::default());
            }
            self.line().comment.push_str(part);
        }
    }

    /// Replaces a literal of `len` bytes by a pair of quotes, keeping its line breaks.
    fn literal(&mut self, len: usize) {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.line().code.push('"');
        for _ in taken.matches('\n') {
            self.lines.push(Line::default());
        }
        self.line().code.push('"');
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        let mut at = 0;
        while at < self.rest.len() {
            let here = &self.rest[at..];
            if here.starts_with("/*") {
                depth += 1;
                at += 2;
            } else if here.starts_with("*/") {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            } else {
                at += here.chars().next().map_or(1, char::len_utf8);
            }
        }
        let (taken, rest) = self.rest.split_at(at);
        self.rest = rest;
        let text = taken.to_owned();
        self.comment(&text);
    }
}

/// The number of `#` if `text` begins a raw string.
fn raw_string(text: &str) -> Option<usize> {
    let after = ["r", "br", "cr"].iter().find_map(|p| {
        let rest = text.strip_prefix(p)?;
        rest.starts_with(['#', '"']).then_some(rest)
    })?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// Length of a literal that begins with `quote`, up to and with its closing quote.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Whether an apostrophe begins a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        lines(text).into_iter().map(|l| l.code).collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        assert_eq!(code("let a = \"unsafe \\\" {\"; // unsafe"), ["let a = \"\"; "]);
        assert_eq!(code("a /* x /* y */ unsafe */ b"), ["a  b"]);
        assert_eq!(code("r#\"unsafe \" x\"# + br\"y\""), ["\"\" + \"\""]);
        assert_eq!(code("let r = for_r\"x\";"), ["let r = for_r\"\";"]);
        assert_eq!(
            lines("x // SAFETY: held").first().map(|l| l.comment.trim().to_owned()).as_deref(),
            Some("SAFETY: held")
        );
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(
            code("fn f<'a>(x: &'a str) { '\\'' ; 'x'; b'\"' }"),
            ["fn f<'a>(x: &'a str) { \"\" ; \"\"; b\"\" }"]
        );
    }

    #[test]
    fn literals_over_several_lines_keep_their_lines() {
        assert_eq!(lines("a(\"x\ny\");\nunsafe {}").len(), 3);
        assert_eq!(lines("/* x\ny */ z\n").len(), 3);
    }

    #[test]
    fn words_are_whole() {
        let line = &lines("#![forbid(unsafe_code)]")[0];
        assert!(!line.has_word("unsafe") && line.has_word("unsafe_code"));
        assert!(lines("unsafe{")[0].has_word("unsafe"));
    }

    #[test]
    fn broken_source_does_not_panic() {
        for text in ["\"", "'", "r##\"", "/* /*", "'\\", "r", "é'é\"é", ""] {
            lines(text);
        }
    }
}
