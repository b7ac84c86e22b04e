//! Keeping special tokens out of what a request says.
//!
//! A chat template is one program that mixes its own text with strings of the request, and its output does not tell them
//! apart. So before rendering, every place of a request string that could take part in the text of a special token gets a
//! character that occurs nowhere else (the sentinel). In the output a special token counts only where its text is
//! unbroken, and then the sentinels are dropped.
//!
//! A special text needs its first character, and then all that follows. So a sentinel comes after every character of a
//! string that begins a special text, in any case (a template may change the case, or drop characters); before the start
//! of a string that a special text could continue into, and after the end of one that it could continue from (two
//! neighbouring strings, or a string and the template's own text, must not join into one); and after a short string that
//! lies inside a special text (the template may put `<|` and `|>` around a name). Sentinels stand beside characters that
//! are not white space, so that stripping white space works as without them.

use crate::python_str::is_space;
use crate::shapes::Shapes;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Byte positions of `text` where a sentinel has to stand, ascending.
fn places(shapes: &Shapes, text: &str, grip: Grip) -> Vec<usize> {
    let lower = text.to_ascii_lowercase();
    let mut places = Vec::new();
    if grip == Grip::Full {
        let begins = lower.char_indices().filter(|(_, c)| shapes.begins_with(*c));
        places.extend(begins.map(|(at, c)| at + c.len_utf8()));
    } else {
        let mut at = 0;
        while let Some((range, _)) = shapes.whole().next(&lower, at) {
            at = range.start + lower[range.start..].chars().next().map_or(1, char::len_utf8);
            places.push(at);
        }
    }
    if grip != Grip::Whole {
        let end = lower.trim_end_matches(is_space).len();
        let start = lower.len() - lower.trim_start_matches(is_space).len();
        let longest = shapes.whole().longest();
        for edge in [start, 0] {
            let ends = (edge + 1..=lower.len().min(edge + longest)).filter(|&to| lower.is_char_boundary(to));
            if ends.into_iter().any(|to| shapes.is_tail(&lower[edge..to])) {
                places.push(edge);
            }
        }
        for edge in [end, lower.len()] {
            let starts = (edge.saturating_sub(longest)..edge).filter(|&from| lower.is_char_boundary(from));
            if starts.into_iter().any(|from| shapes.is_head(&lower[from..edge])) {
                places.push(edge);
            }
        }
        if grip == Grip::Full && shapes.is_middle(lower.trim_matches(is_space)) {
            places.push(end);
        }
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// How firmly one string is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grip {
    /// Special texts inside it.
    Whole,
    /// And its ends.
    Ends,
    /// Every character that begins a special text, its ends, and the whole string where it lies inside a special text.
    Full,
}

/// How firmly a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Strings fully, keys of objects with their ends.
    Full,
    /// Strings with their ends, keys only where they hold a whole special text: for a template that looks up a key or
    /// compares a string which the other level breaks.
    Close,
}

impl Level {
    fn text(self) -> Grip {
        match self {
            Self::Full => Grip::Full,
            Self::Close => Grip::Ends,
        }
    }

    fn key(self) -> Grip {
        match self {
            Self::Full => Grip::Ends,
            Self::Close => Grip::Whole,
        }
    }

    /// For the value of `key`. Roles are checked before, and the type of a content part or of a schema is a word that
    /// templates compare.
    fn value(self, key: &str) -> Grip {
        if matches!(key, "role" | "type") { Grip::Whole } else { self.text() }
    }
}

/// What is done to an assistant's content that holds its reasoning inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inline {
    /// It is taken apart at the tags, as the model family's templates do: they look for `</think>` in the string and
    /// would not find a broken one.
    Split,
    /// The same, and line breaks beside the tags are dropped.
    SplitLines,
    /// It is left alone.
    Leave,
}

/// Every character that could serve as a sentinel is in the request.
#[derive(Debug)]
pub(crate) struct NoSentinel;

/// Breaks special texts in the strings of one request.
#[derive(Debug)]
pub(crate) struct Shield<'a> {
    shapes: &'a Shapes,
    sentinel: char,
}

impl<'a> Shield<'a> {
    /// `None` if nothing in `variables` could take part in a special token, so that plain rendering is safe; else a shield
    /// whose sentinel is neither in `variables` nor in `source`.
    pub(crate) fn raise(
        shapes: &'a Shapes,
        source: &str,
        variables: &Map<String, Value>,
    ) -> Result<Option<Self>, NoSentinel> {
        let mut danger = false;
        let mut used = HashSet::new();
        let mut note = |text: &str| used.extend(text.chars().filter(|&c| c >= '\u{FDD0}'));
        note(source);
        let mut see = |text: &str, grip| {
            danger = danger || !places(shapes, text, grip).is_empty();
            note(text);
        };
        for (name, value) in variables {
            visit(value, Level::Full, Level::Full.value(name), &mut see);
        }
        if !danger {
            return Ok(None);
        }
        // Noncharacters, which no text should hold; private characters after them.
        let mut candidates = ('\u{FDD0}'..='\u{FDEF}').chain('\u{F0000}'..='\u{10FFFD}');
        let sentinel = candidates.find(|c| !used.contains(c)).ok_or(NoSentinel)?;
        Ok(Some(Self { shapes, sentinel }))
    }

    pub(crate) fn sentinel(&self) -> char {
        self.sentinel
    }

    /// The variables with every dangerous place broken.
    pub(crate) fn cover(
        &self,
        variables: &Map<String, Value>,
        level: Level,
        inline: Inline,
    ) -> Map<String, Value> {
        let mut variables = variables.clone();
        if let Some(Value::Array(messages)) = variables.get_mut("messages") {
            messages.iter_mut().for_each(|message| take_apart(message, inline));
        }
        // Names of variables are the template's own words.
        for (name, value) in &mut variables {
            *value = self.cover_value(value, level, level.value(name));
        }
        variables
    }

    fn cover_map(&self, map: &Map<String, Value>, level: Level) -> Map<String, Value> {
        map.iter()
            .map(|(key, value)| {
                (self.cover_text(key, level.key()), self.cover_value(value, level, level.value(key)))
            })
            .collect()
    }

    fn cover_value(&self, value: &Value, level: Level, grip: Grip) -> Value {
        match value {
            Value::String(text) => Value::String(self.cover_text(text, grip)),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.cover_value(item, level, level.text())).collect())
            }
            Value::Object(map) => Value::Object(self.cover_map(map, level)),
            plain => plain.clone(),
        }
    }

    fn cover_text(&self, text: &str, grip: Grip) -> String {
        let places = places(self.shapes, text, grip);
        let mut out = String::with_capacity(text.len() + places.len() * self.sentinel.len_utf8());
        let mut done = 0;
        for place in places {
            out.push_str(&text[done..place]);
            out.push(self.sentinel);
            done = place;
        }
        out.push_str(&text[done..]);
        out
    }
}

/// Shows every string of `map`, keys included, with its grip.
fn visit_map(map: &Map<String, Value>, level: Level, see: &mut impl FnMut(&str, Grip)) {
    for (key, value) in map {
        see(key, level.key());
        visit(value, level, level.value(key), see);
    }
}

fn visit(value: &Value, level: Level, grip: Grip, see: &mut impl FnMut(&str, Grip)) {
    match value {
        Value::String(text) => see(text, grip),
        Value::Array(items) => items.iter().for_each(|item| visit(item, level, level.text(), see)),
        Value::Object(map) => visit_map(map, level, see),
        _ => {}
    }
}

/// Moves the inline reasoning of an assistant's message to `reasoning_content`: what stands before the first `</think>`
/// and after the last `<think>` there; the content is what follows the last `</think>`. Reasoning with an image in it is
/// left alone.
fn take_apart(message: &mut Value, inline: Inline) {
    let Some(message) = message.as_object_mut().filter(|m| m.get("role").is_some_and(|r| r == "assistant"))
    else {
        return;
    };
    if inline == Inline::Leave || message.get("reasoning_content").is_some_and(Value::is_string) {
        return;
    }
    let runs = runs_of(message.get("content").unwrap_or(&Value::Null));
    let Some((first, before)) =
        runs.iter().enumerate().find_map(|(i, run)| Some((i, run.text()?.split_once(CLOSE)?.0)))
    else {
        return;
    };
    let reasoning = match before.rsplit_once(OPEN) {
        Some((_, after)) => after,
        None if first == 0 => before,
        None => return,
    };
    let Some((last, after)) =
        runs.iter().enumerate().rev().find_map(|(i, run)| Some((i, run.text()?.rsplit_once(CLOSE)?.1)))
    else {
        return;
    };
    let (reasoning, after) = match inline {
        Inline::SplitLines => (reasoning.trim_matches('\n'), after.trim_start_matches('\n')),
        _ => (reasoning, after),
    };
    let content = if last + 1 == runs.len() {
        Value::from(after)
    } else {
        let head = std::iter::once(text_part(after));
        Value::Array(head.chain(runs[last + 1..].iter().map(Run::to_part)).collect())
    };
    let reasoning = Value::from(reasoning);
    message.insert("reasoning_content".to_owned(), reasoning);
    message.insert("content".to_owned(), content);
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Neighbouring text parts of a content joined, or a part that is no text.
enum Run {
    Text(String),
    Other(Value),
}

impl Run {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(_) => None,
        }
    }

    fn to_part(&self) -> Value {
        match self {
            Self::Text(text) => text_part(text),
            Self::Other(part) => part.clone(),
        }
    }
}

fn text_part(text: &str) -> Value {
    Value::Object(Map::from_iter([("type".to_owned(), "text".into()), ("text".to_owned(), text.into())]))
}

fn runs_of(content: &Value) -> Vec<Run> {
    let mut runs = Vec::new();
    let parts = match content {
        Value::Array(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    for part in parts {
        let text = match part {
            Value::String(text) => Some(text.as_str()),
            part if part["type"] == "text" => part["text"].as_str(),
            _ => None,
        };
        match (runs.last_mut(), text) {
            (Some(Run::Text(run)), Some(text)) => run.push_str(text),
            (_, Some(text)) => runs.push(Run::Text(text.to_owned())),
            (_, None) => runs.push(Run::Other(part.clone())),
        }
    }
    runs
}
