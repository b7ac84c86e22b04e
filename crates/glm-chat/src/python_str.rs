//! White space as Python's strings see it.

/// Whether `str.strip` takes `c` off: Unicode white space, and the four separators U+001C to U+001F besides.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// `str.strip`, `str.lstrip` or `str.rstrip` without an argument; `None` for another method.
pub(crate) fn strip<'a>(method: &str, text: &'a str) -> Option<&'a str> {
    match method {
        "strip" => Some(text.trim_matches(is_space)),
        "lstrip" => Some(text.trim_start_matches(is_space)),
        "rstrip" => Some(text.trim_end_matches(is_space)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_stripped() {
        let text = "\u{1f}\u{1c} \u{a0}\u{85}x\u{200b}\u{1d}\n";
        assert_eq!(strip("strip", text), Some("x\u{200b}"));
        assert_eq!(strip("lstrip", text), Some("x\u{200b}\u{1d}\n"));
        assert_eq!(strip("rstrip", text), Some("\u{1f}\u{1c} \u{a0}\u{85}x\u{200b}"));
        assert_eq!(strip("split", text), None);
    }
}
