//! What a chat template may use. It comes from a file that may be hostile.

use serde_json::Value;

/// Bytes of source that are compiled. Published chat templates have 2 to 30 KB.
const LONGEST_SOURCE: usize = 64 << 10;

/// Bytes of one tag, `{{ … }}` or `{% … %}`. The longest literals of published templates have 3 KB. The engine folds
/// constant expressions in time that grows with the cube of their length: seconds at this limit, minutes at the one above.
const LONGEST_TAG: usize = 8 << 10;

/// Stack for compiling, a byte of source: the engine recurses at most once a byte and takes under 400 bytes for it.
const STACK_PER_BYTE: usize = 1 << 10;

/// Steps that any render may take, and more for each value and kilobyte of the request. The templates of the model family
/// take at most 28 a value and 139 a kilobyte (measured; up to four times that where every character gets a sentinel), so
/// that this is met only by a template that loops.
const FUEL: u64 = 50_000;
const FUEL_PER_VALUE: u64 = 120;
const FUEL_PER_KILOBYTE: u64 = 600;
const MOST_FUEL: u64 = 4_000_000;

/// Stack for rendering, a step: a step can make a value one level deeper, and a level takes under 450 bytes.
const STACK_PER_STEP: u64 = 512;

/// Stack that is there anyway.
const STACK: usize = 2 << 20;

/// Levels of a list or dictionary that a template may print.
pub(crate) const DEEPEST: usize = 128;

/// A source that is longer than that of any chat template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TooLong {
    /// The source.
    #[error("tokenizer.chat_template has {0} bytes; at most {LONGEST_SOURCE} are taken")]
    Source(usize),
    /// One tag of it.
    #[error(
        "tokenizer.chat_template has a tag of {bytes} bytes at byte {at}; at most {LONGEST_TAG} are taken"
    )]
    Tag {
        /// Where the tag begins.
        at: usize,
        /// Its length.
        bytes: usize,
    },
}

/// Checks the lengths of a source and of its tags.
pub(crate) fn check(source: &str) -> Result<(), TooLong> {
    if source.len() > LONGEST_SOURCE {
        return Err(TooLong::Source(source.len()));
    }
    let bytes = source.as_bytes();
    let mut at = 0;
    while let Some(open) = source[at..].find('{').map(|found| at + found) {
        let close = match bytes.get(open + 1) {
            Some(b'#') => {
                at = source[open..].find("#}").map_or(source.len(), |end| open + end + 2);
                continue;
            }
            Some(b'{') => b"}}",
            Some(b'%') => b"%}",
            _ => {
                at = open + 1;
                continue;
            }
        };
        at = end_of_tag(bytes, open + 2, close);
        if at - open > LONGEST_TAG {
            return Err(TooLong::Tag { at: open, bytes: at - open });
        }
    }
    Ok(())
}

/// The byte after `close`, or the end of the source. What stands in string literals or in a dictionary is no end.
fn end_of_tag(bytes: &[u8], from: usize, close: &[u8; 2]) -> usize {
    let mut at = from;
    let mut braces = 0usize;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' => braces += 1,
            b'}' if braces > 0 => braces -= 1,
            _ if braces == 0 && bytes[at..].starts_with(close) => return at + 2,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Bytes of stack for compiling a source.
pub(crate) fn compile_stack(source: &str) -> usize {
    STACK + source.len() * STACK_PER_BYTE
}

/// Steps for rendering with these variables.
pub(crate) fn fuel<'a>(variables: impl Iterator<Item = &'a Value>) -> u64 {
    variables.fold(FUEL, |fuel, value| fuel.saturating_add(fuel_for(value))).min(MOST_FUEL)
}

fn fuel_for(value: &Value) -> u64 {
    let inside = match value {
        Value::String(text) => (text.len() as u64 / 1024).saturating_mul(FUEL_PER_KILOBYTE),
        Value::Array(items) => items.iter().map(fuel_for).fold(0, u64::saturating_add),
        Value::Object(map) => map.values().map(fuel_for).fold(0, u64::saturating_add),
        _ => 0,
    };
    inside.saturating_add(FUEL_PER_VALUE)
}

/// Bytes of stack for rendering with this fuel: at most 2 GiB and a little, of which only what is touched takes memory.
pub(crate) fn render_stack(fuel: u64) -> usize {
    STACK + usize::try_from(fuel.min(MOST_FUEL) * STACK_PER_STEP).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_measured_to_their_end() {
        let long = "x".repeat(LONGEST_TAG);
        for source in [
            format!("{{{{ a }}}}{long}{{{{ b }}}}"),
            format!("{{# {long} #}}"),
            format!("{{ {long} }}"),
            format!("{{{{ {{'a': {{'b': 1}}}} }}}}{long}"),
            "{{".to_owned(),
            "{% '".to_owned(),
            "é{".to_owned(),
        ] {
            assert_eq!(check(&source), Ok(()), "{source}");
        }
        for (source, at) in [
            (format!("{{{{ '{long}' }}}}"), 0),
            (format!("éa{{% set a = '%}}' ~ '{long}' %}}"), 3),
            (format!("{{{{ \"}}}}\\\"}}}}\" ~ '{long}' }}}}"), 0),
            (format!("{{{{ {{'a': {{'b': 1}}}} ~ '{long}' }}}}"), 0),
            (format!("{{{{ {long}"), 0),
        ] {
            let found = check(&source);
            assert!(matches!(found, Err(TooLong::Tag { at: begin, .. }) if begin == at), "{found:?}");
        }
        assert_eq!(check(&" ".repeat(LONGEST_SOURCE + 1)), Err(TooLong::Source(LONGEST_SOURCE + 1)));
    }
}
