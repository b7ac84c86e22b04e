//! Parts of sentences: names from files, sizes, counts with their nouns.

use std::fmt;

/// A name from a file, safe to print: escaped unless it is plain, cut at 80 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(Box<str>);

impl Quoted {
    /// Keeps `name`, or its beginning.
    pub fn new(name: &str) -> Self {
        match name.char_indices().nth(80) {
            Some((at, _)) => Self(format!("{}...", &name[..at]).into()),
            None => Self(name.into()),
        }
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = !self.0.is_empty() && self.0.chars().all(|c| c.is_ascii_graphic() && c != '"');
        if plain { f.write_str(&self.0) } else { write!(f, "{:?}", self.0) }
    }
}

/// Sizes printed as `4 x 0 x 1`, fastest axis first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims([u64; 4]);

impl From<[u64; 4]> for Dims {
    fn from(dims: [u64; 4]) -> Self {
        Self(dims)
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.iter().rposition(|&d| d != 1).map_or(1, |last| last + 1);
        for (i, d) in self.0[..n].iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { " x " })?;
        }
        Ok(())
    }
}

/// Names in a sentence: at most ten are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub(crate) Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().take(10).enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        if self.0.len() > 10 {
            write!(f, " and {} more", self.0.len() - 10)?;
        }
        Ok(())
    }
}

/// `1 byte`, `2 bytes`.
pub(crate) struct Count<'a>(pub(crate) u64, pub(crate) &'a str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(n, noun) = self;
        write!(f, "{n} {noun}{}", if *n == 1 { "" } else { "s" })
    }
}

/// `1 byte is`, `2 bytes are`.
pub(crate) struct Are<'a>(pub(crate) u64, pub(crate) &'a str);

impl fmt::Display for Are<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(n, noun) = *self;
        write!(f, "{} {}", Count(n, noun), if n == 1 { "is" } else { "are" })
    }
}

/// ` at index 3` in an array, nothing for a scalar.
pub(crate) struct At(pub(crate) Option<usize>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |at| write!(f, " at index {at}"))
    }
}

/// What is known of the tensors in missing shards.
pub(crate) struct MissingTensors(pub(crate) Option<u64>);

impl fmt::Display for MissingTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |n| write!(f, " ({} in what is missing)", Are(n, "tensor")))
    }
}
