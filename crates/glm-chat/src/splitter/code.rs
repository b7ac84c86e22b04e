//! Whether a place in Markdown text is code: there, markup of the model is a quotation.

/// Follows fences and inline code through a stream of characters.
///
/// A fence is a line that starts (after any indentation) with three or more backticks or tildes, up to a line of at least
/// as many with nothing behind. Inline code lies between two runs of equally many backticks on one line: a run without a
/// partner ends with its line, so that one stray backtick does not hide everything after it.
#[derive(Clone, Debug)]
pub(crate) struct CodeSpans {
    /// Nothing but white space on this line so far.
    line_start: bool,
    fence: Option<(char, usize)>,
    /// The fence was opened on this line.
    opening: bool,
    /// A closing fence was read on this line, and nothing after it.
    closing: bool,
    /// Backticks that opened inline code on this line.
    inline: Option<usize>,
    /// The run of backticks or tildes being read, and whether it began the line.
    run: Option<(char, usize, bool)>,
}

impl CodeSpans {
    pub(crate) fn new() -> Self {
        Self { line_start: true, fence: None, opening: false, closing: false, inline: None, run: None }
    }

    /// Reads one character.
    pub(crate) fn push(&mut self, c: char) {
        if let Some((mark, length, at_start)) = self.run {
            if c == mark {
                self.run = Some((mark, length + 1, at_start));
                return;
            }
            self.end_run();
        }
        match c {
            '\n' => {
                if self.closing {
                    self.fence = None;
                }
                self.line_start = true;
                self.opening = false;
                self.closing = false;
                self.inline = None;
            }
            '`' | '~' => {
                self.run = Some((c, 1, self.line_start));
                self.line_start = false;
            }
            c if c.is_whitespace() => {}
            _ => {
                self.line_start = false;
                self.closing = false;
            }
        }
    }

    /// Whether the next character would be code. Ends a run of backticks that is being read.
    pub(crate) fn inside(&mut self) -> bool {
        self.end_run();
        self.inline.is_some() || self.fence.is_some() && !self.closing
    }

    fn end_run(&mut self) {
        let Some((mark, length, at_start)) = self.run.take() else { return };
        self.closing = false;
        match self.fence {
            // An opening fence has no backtick behind it on its line: it was inline code after all.
            Some(('`', opened)) if self.opening && mark == '`' => {
                self.fence = None;
                self.opening = false;
                self.inline = (length != opened).then_some(opened);
            }
            Some(_) if self.opening => {}
            Some((fence, opened)) => self.closing = at_start && mark == fence && length >= opened,
            None if at_start && length >= 3 && self.inline.is_none() => {
                self.fence = Some((mark, length));
                self.opening = true;
            }
            None if mark == '`' => {
                self.inline = match self.inline {
                    None => Some(length),
                    Some(open) if open == length => None,
                    open => open,
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with every `^` replaced by what `inside` says there.
    fn places(text: &str) -> String {
        let mut spans = CodeSpans::new();
        let mut out = String::new();
        for c in text.chars() {
            if c == '^' {
                out.push(if spans.inside() { '1' } else { '0' });
            } else {
                spans.push(c);
                out.push(c);
            }
        }
        out
    }

    #[test]
    fn fences_and_inline_code() {
        for (text, expected) in [
            ("^a `^b^` ^c", "0a `1b1` 0c"),
            ("``a ` ^ b`` ^", "``a ` 1 b`` 0"),
            ("a ` b ^\n^", "a ` b 1\n0"),
            ("```\n^\n```\n^", "```\n1\n```\n0"),
            ("```xml\n^\n  ``` \n^", "```xml\n1\n  ``` \n0"),
            ("x ```\n^", "x ```\n0"),
            ("```rust fn``` ^\n^", "```rust fn``` 0\n0"),
            ("````\n```\n^\n````\n^", "````\n```\n1\n````\n0"),
            ("```\n``` x\n^", "```\n``` x\n1"),
            ("~~~\n```\n^\n~~~^\n^", "~~~\n```\n1\n~~~0\n0"),
            ("1. x\n   ```\n   ^\n   ```\n^", "1. x\n   ```\n   1\n   ```\n0"),
            ("a ~ ^ ~~ ^", "a ~ 0 ~~ 0"),
            ("`^", "`1"),
            ("``^", "``1"),
            ("``` ^", "``` 1"),
        ] {
            assert_eq!(places(text), expected);
        }
    }
}
