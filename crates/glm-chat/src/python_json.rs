//! JSON as Python writes it, byte for byte.

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Called with the length of the text so far.
pub(crate) type Charge<'a> = dyn FnMut(usize) -> Result<(), Error> + 'a;

/// Arguments of `json.dumps`.
#[derive(Clone, Debug)]
pub(crate) struct Dumps {
    pub(crate) ensure_ascii: bool,
    pub(crate) sort_keys: bool,
    /// One level of indentation; `None` for one line.
    pub(crate) indent: Option<String>,
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    /// A character that is written as it is, whatever `ensure_ascii` says.
    pub(crate) verbatim: Option<char>,
}

impl Dumps {
    /// `value` as JSON text. `charge` is told how long the text is after every value, and may stop it: a small value that
    /// holds one list many times over has a text without bound.
    ///
    /// # Errors
    /// What Python raises (a value or a key that is not serialisable), and what `charge` returns.
    pub(crate) fn write(&self, value: &Value, charge: &mut Charge<'_>) -> Result<String, Error> {
        let mut out = String::new();
        self.value(value, 0, &mut out, charge)?;
        Ok(out)
    }

    fn value(
        &self,
        value: &Value,
        depth: usize,
        out: &mut String,
        charge: &mut Charge<'_>,
    ) -> Result<(), Error> {
        charge(out.len())?;
        // A request is at most 128 levels deep; a template could nest deeper by building values in a loop.
        if depth > 256 {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested deeper than 256 levels"));
        }
        if let Some(big) = value.downcast_object_ref::<BigInt>() {
            out.push_str(&big.0);
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, out),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let mut open = false;
                for item in value.try_iter()? {
                    out.push_str(if open { &self.item_separator } else { "[" });
                    open = true;
                    self.new_line(depth + 1, out);
                    self.value(&item, depth + 1, out, charge)?;
                }
                self.close(open, "[", "]", depth, out);
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                let mut open = false;
                for key in keys {
                    out.push_str(if open { &self.item_separator } else { "{" });
                    open = true;
                    self.new_line(depth + 1, out);
                    self.key(&key, out)?;
                    out.push_str(&self.key_separator);
                    self.value(&value.get_item(&key)?, depth + 1, out, charge)?;
                }
                self.close(open, "{", "}", depth, out);
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("tojson: a value of kind {kind} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn close(&self, open: bool, opening: &str, closing: &str, depth: usize, out: &mut String) {
        if open {
            self.new_line(depth, out);
        } else {
            out.push_str(opening);
        }
        out.push_str(closing);
    }

    fn key(&self, key: &Value, out: &mut String) -> Result<(), Error> {
        let mut text = String::new();
        match key.kind() {
            ValueKind::String => {
                self.string(key.as_str().unwrap_or_default(), out);
                return Ok(());
            }
            ValueKind::None => text.push_str("null"),
            ValueKind::Bool => text.push_str(if key.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(key, &mut text),
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("tojson: keys must be str, int, float, bool or None, not {kind}"),
                ));
            }
        }
        self.string(&text, out);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if Some(c) == self.verbatim => out.push(c),
                '\0'..='\u{1f}' => unit(u16::try_from(u32::from(c)).unwrap_or_default(), out),
                ' '..='~' => out.push(c),
                c if self.ensure_ascii => {
                    for &mut code in c.encode_utf16(&mut [0; 2]) {
                        unit(code, out);
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn unit(code: u16, out: &mut String) {
    write!(out, "\\u{code:04x}").expect("a string takes any text");
}

fn number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => out.push_str(&float_repr(float)),
        _ => write!(out, "{value}").expect("a string takes any text"),
    }
}

/// A float as Python's `repr` and `json.dumps` write it: the shortest digits that read back, an exponent of at least
/// two digits from 1e16 upwards and below 1e-4, else plain with at least one decimal.
pub(crate) fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the e format writes an e");
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(rest) => ('-', rest),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// An integer beyond 128 bits, which the template engine has no number for: its decimal digits.
#[derive(Debug)]
pub(crate) struct BigInt(pub(crate) Box<str>);

impl Object for BigInt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
