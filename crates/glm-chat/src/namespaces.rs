//! No namespace inside of another one.
//!
//! A namespace is the only value of a template that can change, so it is the only one that can become part of itself. The
//! engine recurses over values when it compares, joins, sorts or prints them, without an end over such a one, and no stack
//! is large enough for that. So every `{% set name.attribute = value %}` is compiled as `value` behind a filter that refuses
//! what holds a namespace (or the variable `loop`, which changes as well). Templates put numbers and texts there.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Name of the filter. A template that calls it by itself gains nothing.
pub(crate) const FILTER: &str = "without_namespace";

/// What one step pays for, in values that are looked at. Templates gather messages in a namespace one by one, so that this
/// grows with the square of a conversation; a step a value would be more than its fuel.
const VALUES_PER_STEP: u64 = 64;
const VALUES_PER_CONTAINER: u64 = 4;

/// `source` with the filter at the end of every assignment to an attribute.
///
/// # Errors
/// Text that is no template.
pub(crate) fn guard(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let mut out = String::with_capacity(source.len() + 256);
    let mut copied = 0;
    let mut insert = |at: u32, text: &str| {
        if let Some(piece) = source.get(copied..at as usize) {
            out.push_str(piece);
            out.push_str(text);
            copied = at as usize;
        }
    };
    let mut place = Place::Elsewhere;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        place = match (place, token) {
            (_, Token::BlockStart) => Place::Start,
            (Place::Start, Token::Ident("set")) => Place::Target { dotted: false },
            (Place::Target { .. }, Token::Dot) => Place::Target { dotted: true },
            (Place::Target { dotted: true }, Token::Assign) => {
                insert(span.end_offset, "(");
                Place::Value
            }
            // `{% set name.attribute | filter %}`: what the filter returns is assigned.
            (Place::Target { dotted: true }, Token::Pipe) => Place::Filter,
            (Place::Target { dotted: false }, Token::Assign | Token::Pipe) => Place::Elsewhere,
            (Place::Value, Token::BlockEnd) => {
                insert(span.start_offset, &format!(")|{FILTER}"));
                Place::Elsewhere
            }
            (Place::Filter, Token::BlockEnd) => {
                insert(span.start_offset, &format!("|{FILTER}"));
                Place::Elsewhere
            }
            (_, Token::BlockEnd) | (Place::Start, _) => Place::Elsewhere,
            (place, _) => place,
        };
    }
    out.push_str(&source[copied..]);
    Ok(out)
}

/// Where in a template a token stands.
#[derive(Clone, Copy)]
enum Place {
    Elsewhere,
    /// After `{%`.
    Start,
    /// After `set`.
    Target {
        dotted: bool,
    },
    /// After the `=` of an assignment to an attribute.
    Value,
    /// After the `|` of one that captures a block.
    Filter,
}

/// The filter: `value` itself, unless a namespace can be reached from it.
pub(crate) fn without_namespace(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    // A list, not recursion: fuel bounds how deep a value can be, and that is deeper than a small stack.
    let mut open: Vec<(Value, ValueIter)> = Vec::new();
    let mut due = 0;
    let mut pay = |values: u64| {
        due += values;
        let steps = due / VALUES_PER_STEP;
        due %= VALUES_PER_STEP;
        if steps > 0 { state.consume_fuel(steps) } else { Ok(()) }
    };
    let mut next = vec![value.clone()];
    loop {
        for container in next.drain(..).filter(is_container) {
            pay(VALUES_PER_CONTAINER)?;
            let kind = container.as_object().map_or("", |object| object.type_name());
            if kind.ends_with("::Namespace") || kind.ends_with("::Loop") {
                let message = "a namespace (or the variable loop) cannot be put into a namespace";
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
            let items = container.try_iter()?;
            open.push((container, items));
        }
        let Some((container, items)) = open.last_mut() else { return Ok(value) };
        let Some(item) = items.next() else {
            open.pop();
            continue;
        };
        pay(1)?;
        if container.kind() == ValueKind::Map {
            next.push(container.get_item(&item)?);
        }
        next.push(item);
    }
}

fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}
