//! Reading JSON without losing digits.

use serde_json::Value;

/// Opens a string that stands for an integer which `serde_json::Number` cannot hold. A text that begins with this
/// noncharacter gets another one in front, so that it stands for nothing but itself.
const MARK: char = '\u{10FFFE}';
/// The same as JSON may spell it, in either case of the digits.
const ESCAPED: &[u8] = br"\udbff\udffe";

/// Parses JSON and keeps integers of any size.
///
/// `serde_json` turns integers beyond 64 bits into floats, and `-0` too, so that a prompt would not show the digits that
/// the client sent. Here such an integer becomes a marked string, which [`crate::Template::render`] writes as the number
/// it was; [`plain_text`] tells the two apart. Everything else is as `serde_json::from_str` gives it.
///
/// # Errors
/// As `serde_json::from_str`; depth is limited to 128 levels.
pub fn parse_json(text: &str) -> serde_json::Result<Value> {
    match mark_integers(text) {
        Some(marked) => serde_json::from_str(&marked),
        None => serde_json::from_str(text),
    }
}

/// The digits of an integer that [`parse_json`] keeps as a string; `None` for any other string.
pub fn marked_integer(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(MARK)?;
    is_integer(digits.as_bytes()).then_some(digits)
}

/// The text that a string of [`parse_json`] stands for; `None` where it stands for an integer.
pub fn plain_text(text: &str) -> Option<&str> {
    match text.strip_prefix(MARK) {
        Some(rest) if rest.starts_with(MARK) => Some(rest),
        Some(rest) if is_integer(rest.as_bytes()) => None,
        _ => Some(text),
    }
}

/// `-?(0|[1-9][0-9]*)`
fn is_integer(token: &[u8]) -> bool {
    match token.strip_prefix(b"-").unwrap_or(token) {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The text with every integer literal beyond 64 bits replaced by a marked string, `-0` by `0`, and a second mark before
/// strings that begin with one; `None` if there is nothing of that.
///
/// Only where JSON has a value: after `:`, `,`, `[` or nothing, and not before `:`. Elsewhere a literal stays what it is, so
/// that the reader refuses it (a string would do as the key of an object).
fn mark_integers(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
                if begins_with_mark(&bytes[start..]) && next(&bytes[at.min(bytes.len())..]) != Some(b':') {
                    out.push_str(&text[copied..start]);
                    out.push(MARK);
                    copied = start;
                }
            }
            b'-' | b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                {
                    at += 1;
                }
                let token = &text[start..at];
                if !is_integer(token.as_bytes()) || !is_value(&bytes[..start], &bytes[at..]) {
                    continue;
                }
                if token == "-0" {
                    out.push_str(&text[copied..start]);
                    out.push('0');
                    copied = at;
                } else if token.parse::<i64>().is_err() && token.parse::<u64>().is_err() {
                    out.push_str(&text[copied..start]);
                    out.extend(['"', MARK]);
                    out.push_str(token);
                    out.push('"');
                    copied = at;
                }
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(&text[copied..]);
    Some(out)
}

/// Whether what stands between `before` and `after` is in the place of a value.
fn is_value(before: &[u8], after: &[u8]) -> bool {
    let last = before.iter().rev().find(|b| !is_blank(**b));
    matches!(last, None | Some(b':' | b',' | b'[')) && next(after) != Some(b':')
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The first byte that is no blank.
fn next(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|b| !is_blank(*b))
}

/// Whether a string literal's inside begins with the mark.
fn begins_with_mark(inside: &[u8]) -> bool {
    let raw = MARK.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
    inside.starts_with(&raw) || inside.get(..ESCAPED.len()).is_some_and(|b| b.eq_ignore_ascii_case(ESCAPED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_integers_keep_their_digits() {
        let text = r#"{"a":[18446744073709551616,-9223372036854775809,18446744073709551615,"18446744073709551616\"",-0,-0.0,1e3],"b":1}"#;
        let value = parse_json(text).unwrap();
        assert_eq!(marked_integer(value["a"][0].as_str().unwrap()), Some("18446744073709551616"));
        assert_eq!(marked_integer(value["a"][1].as_str().unwrap()), Some("-9223372036854775809"));
        assert_eq!(value["a"][2], u64::MAX);
        assert_eq!(value["a"][3], "18446744073709551616\"");
        assert_eq!(value["a"][4], 0);
        assert_eq!(value["a"][4].to_string(), "0");
        assert_eq!(value["a"][5].to_string(), "-0.0");
        assert_eq!(value["a"][6], 1000.0);
    }

    /// A text that looks like a marked integer once became that integer: the first character was lost.
    #[test]
    fn a_text_is_never_taken_for_an_integer() {
        for text in ["\u{10FFFE}5", "\u{10FFFE}", "\u{10FFFE}\u{10FFFE}5", "\u{10FFFE}x", "5", ""] {
            let raw = serde_json::to_string(text).unwrap();
            let escaped = raw.replace('\u{10FFFE}', "\\uDbFF\\udFFe");
            for json in [raw, escaped] {
                let value = parse_json(&format!("[{json}, 18446744073709551616]")).unwrap();
                assert_eq!(plain_text(value[0].as_str().unwrap()), Some(text), "{json}");
                assert_eq!(plain_text(value[1].as_str().unwrap()), None);
            }
        }
        let key = parse_json("{\"\u{10FFFE}5\" : 1}").unwrap();
        assert_eq!(key["\u{10FFFE}5"], 1);
        assert!(parse_json("\"\u{10FFFE}").is_err() && parse_json("[\"\\udbff\\udffe").is_err());
    }

    #[test]
    fn what_is_no_json_stays_no_json() {
        for text in [
            "00018446744073709551616",
            "18446744073709551616x",
            "--18446744073709551616",
            "\"\\",
            "\"abc",
            "{18446744073709551616:1}",
            "{\"a\": 1, 18446744073709551616 : 1}",
            "[1] 18446744073709551616",
            "-",
            "",
        ] {
            assert!(parse_json(text).is_err(), "{text}");
        }
        assert!(parse_json("[ 18446744073709551616 , {\"a\" :\n18446744073709551616}]").is_ok());
        assert_eq!(marked_integer("\u{10FFFE}12a"), None);
        assert_eq!(marked_integer("12"), None);
    }
}
