//! Typed access to a JSON request in which every complaint names the field.

use std::ops::RangeInclusive;

use glm_chat::plain_text;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// One place in a request body: its path (`messages[2].content`) and the value there. `null` counts as not given.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    pub path: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    /// The whole body, which must be an object.
    pub fn root(body: &'a Value) -> Result<Self, ApiError> {
        let root = Self { path: String::new(), value: Some(body) };
        match body {
            Value::Object(_) => Ok(root),
            other => Err(ApiError::invalid(format!(
                "The request body must be a JSON object, and it is {}.",
                kind_of(other)
            ))),
        }
    }

    /// The member `key`; absent when this is not an object that has it.
    pub fn get(&self, key: &str) -> Self {
        let value = self.value.and_then(|v| v.get(key)).filter(|v| !v.is_null());
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, value }
    }

    /// The first of these members that is given, else the first as absent. For a field with several spellings.
    pub fn first_of(&self, keys: &[&str]) -> Self {
        let mut found = keys.iter().map(|key| self.get(key));
        let first = found.next();
        match first {
            Some(first) if first.value.is_none() => found.find(|f| f.value.is_some()).unwrap_or(first),
            Some(first) => first,
            None => self.clone(),
        }
    }

    /// The value, unless absent or null.
    pub fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// Whether something other than null is there.
    pub fn is_given(&self) -> bool {
        self.value.is_some()
    }

    /// A 400 that says what was expected here and what was found.
    pub fn expected(&self, what: &str) -> ApiError {
        let found = self.value.map_or("nothing", kind_of);
        ApiError::field(&self.path, format_args!("expected {what}, found {found}"))
    }

    /// This value or a 400.
    pub fn required(&self, what: &str) -> Result<&'a Value, ApiError> {
        self.value.ok_or_else(|| self.expected(what))
    }

    /// A string.
    pub fn string(&self) -> Result<Option<&'a str>, ApiError> {
        match self.value {
            None => Ok(None),
            Some(value) => text_of(value).map(Some).ok_or_else(|| self.expected("a string")),
        }
    }

    /// Whether a string is here.
    pub fn is_text(&self) -> bool {
        self.value.and_then(text_of).is_some()
    }

    /// A boolean.
    pub fn bool(&self) -> Result<Option<bool>, ApiError> {
        match self.value {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.expected("true or false")),
        }
    }

    /// A number that is finite as f32 and inside `range`.
    pub fn number(&self, range: RangeInclusive<f32>) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.value else { return Ok(None) };
        let Value::Number(number) = value else { return Err(self.expected("a number")) };
        let wide = number.as_f64().unwrap_or(f64::NAN);
        // The range is checked before narrowing, so that 1e300 is out of range and not infinite.
        if wide >= f64::from(*range.start()) && wide <= f64::from(*range.end()) {
            return Ok(Some(wide as f32));
        }
        Err(ApiError::field(&self.path, format_args!("{number} is not in {}", spell(&range))))
    }

    /// A whole number inside `range`; `2.0` is one, `"2"` is not.
    pub fn integer(&self, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.value else { return Ok(None) };
        let Value::Number(number) = value else { return Err(self.expected("a whole number")) };
        let Some(whole) = whole(number) else {
            return Err(ApiError::field(&self.path, format_args!("expected a whole number, found {number}")));
        };
        match i64::try_from(whole) {
            Ok(fits) if range.contains(&fits) => Ok(Some(fits)),
            _ => Err(ApiError::field(&self.path, format_args!("{number} is not in {}", spell(&range)))),
        }
    }

    /// A seed: any whole number of 64 bits, signed or not.
    pub fn seed(&self) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.value else { return Ok(None) };
        let Value::Number(number) = value else { return Err(self.expected("a whole number")) };
        let bits = whole(number)
            .and_then(|n| u64::try_from(n).ok().or_else(|| i64::try_from(n).ok().map(i64::cast_unsigned)));
        match bits {
            Some(bits) => Ok(Some(bits)),
            None => Err(ApiError::field(
                &self.path,
                format_args!("expected a whole number of 64 bits, found {number}"),
            )),
        }
    }

    /// An object.
    pub fn object(&self) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        match self.value {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.expected("an object")),
        }
    }

    /// An array, element by element; a null element is given as absent. No more than one element's path is held: a body
    /// of 64 MiB can hold 32 million elements.
    pub fn array(&self) -> Result<Option<impl Iterator<Item = Field<'a>> + use<'a>>, ApiError> {
        match self.value {
            None => Ok(None),
            Some(Value::Array(items)) => {
                let path = self.path.clone();
                Ok(Some(items.iter().enumerate().map(move |(i, value)| Field {
                    path: format!("{path}[{i}]"),
                    value: Some(value).filter(|v| !v.is_null()),
                })))
            }
            Some(_) => Err(self.expected("an array")),
        }
    }
}

/// The text of a string; none for an integer that the parser hands on as one because no number type holds it.
pub(crate) fn text_of(value: &Value) -> Option<&str> {
    value.as_str().and_then(plain_text)
}

/// A number without a fraction, exactly.
fn whole(number: &serde_json::Number) -> Option<i128> {
    if let Some(n) = number.as_i64() {
        return Some(i128::from(n));
    }
    if let Some(n) = number.as_u64() {
        return Some(i128::from(n));
    }
    // Beyond 2^53 a float no longer says which whole number was meant.
    number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0).map(|n| n as i128)
}

/// A range in words; the ends that stand for "no limit" are left out.
fn spell<T: PartialOrd + std::fmt::Display + Copy + Limit>(range: &RangeInclusive<T>) -> String {
    match (*range.start() == T::LOWEST, *range.end() == T::HIGHEST) {
        (false, true) => format!("{} and above", range.start()),
        (true, false) => format!("{} and below", range.end()),
        _ => format!("{} to {}", range.start(), range.end()),
    }
}

trait Limit {
    const LOWEST: Self;
    const HIGHEST: Self;
}

impl Limit for f32 {
    const LOWEST: Self = f32::MIN;
    const HIGHEST: Self = f32::MAX;
}

impl Limit for i64 {
    const LOWEST: Self = i64::MIN;
    const HIGHEST: Self = i64::MAX;
}

/// A JSON type in words.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(text) if plain_text(text).is_none() => "a number of more than 64 bits",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
