//! Key-value pairs, and typed access that forgives how a writer spelt a value.
//!
//! The rules (model-spec 9.1): a scalar may be stored as an array whose elements are all equal, and an array as a
//! scalar; integers in any width that holds the value; bool as an integer 0 or 1 and the reverse; a float as f32, f64
//! or an integer that f32 holds exactly, never NaN or infinite. Everything else is an error that names the key.

use crate::error::{MetadataError, ValueFault};
use crate::index::Index;
use crate::phrase::Quoted;
use crate::value::{Array, Scalar, Value};

/// The key-value pairs of a file, in its order; no key occurs twice.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    pairs: Vec<(Box<str>, Value)>,
    index: Index,
}

const INTEGER: &str = "an integer";
const FLOAT: &str = "a number";
const TEXT: &str = "a string";
const BOOL: &str = "a bool";

impl Metadata {
    /// Err: a key that occurs twice.
    pub(crate) fn new(pairs: Vec<(Box<str>, Value)>) -> Result<Self, Box<str>> {
        match Index::new(pairs.len(), |i| &pairs[i].0) {
            Ok(index) => Ok(Self { pairs, index }),
            Err((i, _)) => Err(pairs[i].0.clone()),
        }
    }

    /// The value of a whole key, as stored.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.find(key, |i| &self.pairs[i].0).map(|i| &self.pairs[i].1)
    }

    /// All pairs in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(key, value)| (&**key, value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// One integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// The value is of another type, out of range, or an array of different values. `None`: there is no such key.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, MetadataError> {
        self.one(key, to_u32)
    }

    /// One integer from 0 to 2^64 - 1; else as [`u32`](Self::u32).
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn u64(&self, key: &str) -> Result<Option<u64>, MetadataError> {
        self.one(key, to_u64)
    }

    /// One finite number.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn f32(&self, key: &str) -> Result<Option<f32>, MetadataError> {
        self.one(key, to_f32)
    }

    /// One bool, stored as such or as 0 or 1.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn bool(&self, key: &str) -> Result<Option<bool>, MetadataError> {
        self.one(key, to_bool)
    }

    /// One string.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn str(&self, key: &str) -> Result<Option<&str>, MetadataError> {
        self.one(key, to_str)
    }

    /// Integers from 0 to 2^32 - 1; a scalar gives one element, which the caller expands.
    ///
    /// # Errors
    /// An element is of another type or out of range. `None`: there is no such key.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, MetadataError> {
        self.many(key, to_u32)
    }

    /// Finite numbers; else as [`u32s`](Self::u32s).
    ///
    /// # Errors
    /// As [`u32s`](Self::u32s).
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, MetadataError> {
        self.many(key, to_f32)
    }

    /// Bools, stored as such or as 0 and 1; else as [`u32s`](Self::u32s).
    ///
    /// # Errors
    /// As [`u32s`](Self::u32s).
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, MetadataError> {
        self.many(key, to_bool)
    }

    /// Strings, borrowed; a scalar gives one element.
    ///
    /// # Errors
    /// The elements are of another type. `None`: there is no such key.
    pub fn strs(&self, key: &str) -> Result<Option<&[Box<str>]>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(one)) => Ok(Some(std::slice::from_ref(one))),
            Some(Value::Array(Array::String(many))) => Ok(Some(many)),
            Some(other) => Err(wrong(key, ValueFault::Type { found: other.type_name(), wanted: TEXT })),
        }
    }

    fn one<'a, T>(&'a self, key: &str, to: Convert<'a, T>) -> Result<Option<T>, MetadataError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let scalar = match value {
            Value::Array(array) => uniform(array).map_err(|fault| wrong(key, fault))?,
            other => other.scalar().expect("only an array is no scalar"),
        };
        to(scalar).map(Some).map_err(|miss| wrong(key, miss.fault(value, scalar, None)))
    }

    fn many<'a, T>(&'a self, key: &str, to: Convert<'a, T>) -> Result<Option<Vec<T>>, MetadataError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value {
            Value::Array(array) => {
                let mut out = Vec::with_capacity(array.len());
                for (at, scalar) in (0..array.len()).filter_map(|i| Some((i, array.scalar(i)?))) {
                    out.push(to(scalar).map_err(|miss| wrong(key, miss.fault(value, scalar, Some(at))))?);
                }
                Ok(Some(out))
            }
            _ => self.one(key, to).map(|it| it.map(|it| vec![it])),
        }
    }
}

fn wrong(key: &str, fault: ValueFault) -> MetadataError {
    MetadataError { key: Quoted::new(key), fault }
}

/// The one value that all elements have.
fn uniform(array: &Array) -> Result<Scalar<'_>, ValueFault> {
    let first = array.scalar(0).ok_or(ValueFault::Empty)?;
    let other = (1..array.len()).filter_map(|i| Some((i, array.scalar(i)?))).find(|(_, it)| *it != first);
    match other {
        None => Ok(first),
        Some((at, other)) => Err(ValueFault::Differ {
            len: array.len(),
            first: Quoted::new(&first.to_string()),
            other: Quoted::new(&other.to_string()),
            at,
        }),
    }
}

/// Why a scalar is not convertible.
enum Miss {
    Type(&'static str),
    Range(&'static str),
}

impl Miss {
    fn fault(self, value: &Value, scalar: Scalar<'_>, at: Option<usize>) -> ValueFault {
        match self {
            Self::Type(wanted) => ValueFault::Type { found: value.type_name(), wanted },
            Self::Range(wanted) => ValueFault::Range { found: Quoted::new(&scalar.to_string()), at, wanted },
        }
    }
}

type Convert<'a, T> = fn(Scalar<'a>) -> Result<T, Miss>;

fn to_u32(it: Scalar<'_>) -> Result<u32, Miss> {
    let Scalar::Int(it) = it else { return Err(Miss::Type(INTEGER)) };
    u32::try_from(it).map_err(|_| Miss::Range("an integer from 0 to 4294967295"))
}

fn to_u64(it: Scalar<'_>) -> Result<u64, Miss> {
    let Scalar::Int(it) = it else { return Err(Miss::Type(INTEGER)) };
    u64::try_from(it).map_err(|_| Miss::Range("an integer from 0 to 18446744073709551615"))
}

fn to_f32(it: Scalar<'_>) -> Result<f32, Miss> {
    match it {
        Scalar::Float(wide) if (wide as f32).is_finite() => Ok(wide as f32),
        Scalar::Float(_) => Err(Miss::Range("a finite number")),
        Scalar::Int(int) if (int as f32) as i128 == int => Ok(int as f32),
        Scalar::Int(_) => Err(Miss::Range("a number that fits 24 bits")),
        Scalar::Text(_) => Err(Miss::Type(FLOAT)),
    }
}

fn to_bool(it: Scalar<'_>) -> Result<bool, Miss> {
    match it {
        Scalar::Int(0) => Ok(false),
        Scalar::Int(1) => Ok(true),
        Scalar::Int(_) => Err(Miss::Range("0 or 1")),
        _ => Err(Miss::Type(BOOL)),
    }
}

fn to_str(it: Scalar<'_>) -> Result<&str, Miss> {
    match it {
        Scalar::Text(it) => Ok(it),
        _ => Err(Miss::Type(TEXT)),
    }
}
