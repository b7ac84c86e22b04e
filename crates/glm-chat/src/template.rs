//! The chat template of a model file.

use crate::conversation::{ChatRequest, RequestError};
use crate::exact_json::{marked_integer, plain_text};
use crate::limits::{self, TooLong};
use crate::namespaces;
use crate::prompt::Prompt;
use crate::python_json::{BigInt, Dumps, float_repr};
use crate::python_str;
use crate::shapes::Shapes;
use crate::shield::{Inline, Level, NoSentinel, Shield};
use crate::special::SpecialSet;
use crate::stack;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use serde_json::{Map, Value as Json};

/// Name under which the template is compiled; error messages show it.
const NAME: &str = "chat_template";

/// Why a template cannot be used or a prompt cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source does not compile.
    #[error("tokenizer.chat_template does not compile: {0}")]
    Compile(String),
    /// The source, or one tag of it, is longer than in any chat template.
    #[error(transparent)]
    Long(#[from] TooLong),
    /// A field of the request cannot be used.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The template refused the conversation by `raise_exception`.
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template ran longer than any conversation justifies.
    #[error("tokenizer.chat_template does not come to an end: stopped after {0} steps")]
    Endless(u64),
    /// The template failed.
    #[error("tokenizer.chat_template failed: {0}")]
    Render(String),
}

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    source: String,
    specials: SpecialSet,
    shapes: Shapes,
}

impl Template {
    /// Compiles `source`. `specials` are the texts of the vocabulary's special tokens
    /// ([`crate::Tokenizer::special_texts`]).
    ///
    /// # Errors
    /// [`TemplateError::Compile`] with the line, [`TemplateError::Long`].
    pub fn new(source: &str, specials: &[String]) -> Result<Self, TemplateError> {
        limits::check(source)?;
        let environment =
            stack::run(limits::compile_stack(source), || compile(source).map_err(|error| sentence(&error)));
        let environment = environment.flatten().map_err(TemplateError::Compile)?;
        Ok(Self {
            environment,
            source: source.to_owned(),
            specials: SpecialSet::new(specials),
            shapes: Shapes::new(specials),
        })
    }

    /// Renders a request.
    ///
    /// The text is that of plain rendering, and special tokens are recognised only where the template wrote them. A
    /// template that decides by a special text inside a request string (and not by `</think>` in an assistant's content,
    /// which is provided for) is rendered with that text broken up, since what it then writes could not be told from
    /// what the request says.
    ///
    /// # Errors
    /// A field that cannot be used, or what the template raised.
    pub fn render(&self, request: &ChatRequest) -> Result<Prompt, TemplateError> {
        let variables = request.variables()?;
        let fuel = limits::fuel(variables.values());
        // One thread for all renderings of a request: starting one takes milliseconds on a busy machine.
        let written = stack::run(limits::render_stack(fuel), || self.write(&variables, fuel));
        let mut prompt = written.map_err(TemplateError::Render)??;
        let opens_turn = variables.get("add_generation_prompt").is_some_and(|v| v != &Json::Bool(false));
        if opens_turn && request.thinking_off() {
            close_thinking(&mut prompt);
        }
        Ok(prompt)
    }

    fn write(&self, variables: &Map<String, Json>, fuel: u64) -> Result<Prompt, TemplateError> {
        let plain = self.run(variables, fuel, None)?;
        let shield = Shield::raise(&self.shapes, &self.source, variables).map_err(|NoSentinel| {
            RequestError::new("messages", "every private-use character of Unicode is in the request")
        })?;
        let Some(shield) = shield else {
            return Ok(self.recognise(&plain, None));
        };
        let mut first = None;
        for level in [Level::Full, Level::Close] {
            for inline in [Inline::Split, Inline::SplitLines, Inline::Leave] {
                let covered = shield.cover(variables, level, inline);
                let Ok(marked) = self.run(&covered, fuel, Some(shield.sentinel())) else { continue };
                let prompt = self.recognise(&marked, Some(shield.sentinel()));
                if prompt.as_str() == plain {
                    return Ok(prompt);
                }
                first.get_or_insert(prompt);
            }
        }
        first.ok_or_else(|| {
            TemplateError::Render("it fails on text that looks like a special token".to_owned())
        })
    }

    /// Finds the special tokens of a rendered text and drops its sentinels.
    fn recognise(&self, marked: &str, sentinel: Option<char>) -> Prompt {
        let mut text = String::with_capacity(marked.len());
        let mut specials = Vec::new();
        let mut at = 0;
        let append = |text: &mut String, piece: &str| match sentinel {
            Some(sentinel) => text.extend(piece.split(sentinel)),
            None => text.push_str(piece),
        };
        while let Some((range, _)) = self.specials.next(marked, at) {
            append(&mut text, &marked[at..range.start]);
            let start = text.len();
            text.push_str(&marked[range.clone()]);
            specials.push(start..text.len());
            at = range.end;
        }
        append(&mut text, &marked[at..]);
        Prompt::new(text, specials)
    }

    /// Renders once. Neither the context nor an error of the engine leaves this function: both hold values that may be
    /// nested deeply and have to be dropped on the large stack.
    fn run(
        &self,
        variables: &Map<String, Json>,
        fuel: u64,
        sentinel: Option<char>,
    ) -> Result<String, TemplateError> {
        let given = variables.iter().map(|(key, value)| (key.clone(), to_value(value)));
        let context = Value::from_pairs(given.chain(sentinel.map(|c| (SENTINEL.to_owned(), Value::from(c)))));
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        environment.get_template(NAME).and_then(|t| t.render(context)).map_err(|error| failure(&error, fuel))
    }
}

fn failure(error: &Error, fuel: u64) -> TemplateError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TemplateError::Endless(fuel);
    }
    match error.detail().and_then(|detail| detail.strip_prefix(RAISED)) {
        Some(message) => TemplateError::Refused(message.to_owned()),
        None => TemplateError::Render(sentence(error)),
    }
}

fn compile(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax.clone());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(100);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(float) => Ok(std::fmt::Write::write_str(out, &float_repr(float))?),
            Err(_) => minijinja::escape_formatter(out, state, value),
        },
        ValueKind::Seq | ValueKind::Map => {
            pay_for_printing(state, value, limits::DEEPEST)?;
            minijinja::escape_formatter(out, state, value)
        }
        _ => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    environment.add_filter(namespaces::FILTER, namespaces::without_namespace);
    environment.add_template_owned(NAME, namespaces::guard(source, syntax)?)?;
    Ok(environment)
}

/// Charges for the text of a list or dictionary before it is made: the engine charges afterwards, and the text of a small
/// value can be without bound (one list many times in another).
fn pay_for_printing(state: &State<'_, '_>, value: &Value, levels: usize) -> Result<(), Error> {
    state.consume_fuel(1 + value.as_str().map_or(0, |text| text.len() as u64 / 64))?;
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map) {
        return Ok(());
    }
    let Some(levels) = levels.checked_sub(1) else {
        let message = format!("a value is nested deeper than {} levels", limits::DEEPEST);
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    };
    for item in value.try_iter()? {
        if value.kind() == ValueKind::Map {
            pay_for_printing(state, &value.get_item(&item)?, levels)?;
        }
        pay_for_printing(state, &item, levels)?;
    }
    Ok(())
}

/// Variable that tells filters the sentinel. It is no identifier, so a template cannot name it.
const SENTINEL: &str = " sentinel";

fn sentinel_of(state: &State<'_, '_>) -> Option<char> {
    state.lookup(SENTINEL)?.as_str()?.chars().next()
}

/// Methods of Python's strings, lists and dictionaries. Those that answer a question about a string's ends are asked
/// without sentinels, and stripping takes off what Python takes off.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if args.iter().all(Value::is_none)
        && let Some(stripped) = value.as_str().and_then(|text| python_str::strip(name, text))
    {
        return Ok(Value::from(stripped));
    }
    if matches!(name, "startswith" | "endswith")
        && let (Some(sentinel), Some(text)) = (sentinel_of(state), value.as_str())
        && text.contains(sentinel)
    {
        let bare = Value::from(text.replace(sentinel, ""));
        return minijinja_contrib::pycompat::unknown_method_callback(state, &bare, name, args);
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// Marks an error as raised by the template itself.
const RAISED: &str = "\u{10FFFF}";

fn sentence(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// Appends what is missing for the prompt to end in `<think></think>`.
fn close_thinking(prompt: &mut Prompt) {
    if prompt.ends_with_special("</think>") {
        return;
    }
    if !prompt.thinking_open() {
        prompt.push_special("<think>");
    }
    prompt.push_special("</think>");
}

/// A request's value for the template engine.
fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (None, Some(u)) => Value::from(u),
            (None, None) => Value::from(n.as_f64()),
        },
        Json::String(s) => match marked_integer(s) {
            Some(digits) => match digits.parse::<i128>() {
                Ok(i) => Value::from(i),
                Err(_) => Value::from_object(BigInt(digits.into())),
            },
            None => Value::from(plain_text(s).unwrap_or(s)),
        },
        Json::Array(items) => Value::from(items.iter().map(to_value).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, value)| (key.clone(), to_value(value)))),
    }
}

/// `tojson(ensure_ascii=True, indent=None, separators=None, sort_keys=False)`: Python's `json.dumps`, without the HTML
/// escaping that the template engine's own filter does.
fn to_json(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii: Option<Value> = match ensure_ascii {
        Some(given) => Some(given),
        None => options.get("ensure_ascii")?,
    };
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Value> = options.get("separators")?;
    let sort_keys: Option<Value> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let wrong = |message: &'static str| Error::new(ErrorKind::InvalidOperation, message);
    let indent = match indent.filter(|v| !v.is_none()) {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(width) => {
            let width =
                i64::try_from(width).map_err(|_| wrong("tojson: indent is no number and no string"))?;
            Some(" ".repeat(usize::try_from(width.clamp(0, 64)).unwrap_or_default()))
        }
    };
    let (item_separator, key_separator) = match separators.filter(|v| !v.is_none()) {
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
        Some(pair) => {
            let pair: Vec<Value> = pair.try_iter()?.collect();
            match pair.as_slice() {
                [item, key] => match (item.as_str(), key.as_str()) {
                    (Some(item), Some(key)) => (item.to_owned(), key.to_owned()),
                    _ => return Err(wrong("tojson: separators must be two strings")),
                },
                _ => return Err(wrong("tojson: separators must be two strings")),
            }
        }
    };
    let dumps = Dumps {
        ensure_ascii: ensure_ascii.is_none_or(|v| v.is_true()),
        sort_keys: sort_keys.is_some_and(|v| v.is_true()),
        indent,
        item_separator,
        key_separator,
        verbatim: sentinel_of(state),
    };
    // One step for each value and each 64 bytes of text, as the engine counts.
    let mut paid = 0;
    let mut charge = |length: usize| {
        let due = length / 64 - paid;
        paid += due;
        state.consume_fuel(1 + due as u64)
    };
    dumps.write(value, &mut charge).map(Value::from)
}
