//! Checked little-endian reads from a header.

use crate::error::Fault;

/// A position in the header's bytes; every read is checked against their end.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

macro_rules! numbers {
    ($($name:ident)*) => { $(
        pub(crate) fn $name(&mut self) -> Result<$name, Fault> {
            Ok($name::from_le_bytes(self.array()?))
        }
    )* };
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> u64 {
        self.at as u64
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// Everything not yet read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: u64) -> Result<&'a [u8], Fault> {
        if n > self.left() {
            return Err(Fault::CutOff { at: self.at(), need: n, end: self.bytes.len() as u64 });
        }
        let end = self.at + n as usize; // n is at most left(), which came from a usize
        let out = &self.bytes[self.at..end];
        self.at = end;
        Ok(out)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("take gives what was asked for"))
    }

    numbers! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

    /// A count of items of at least `each` bytes: limited, and no more than the bytes left can hold. What it returns
    /// may be allocated.
    pub(crate) fn count(&mut self, what: &'static str, limit: u64, each: u64) -> Result<usize, Fault> {
        let count = self.u64()?;
        if count > limit {
            return Err(Fault::Limit { what, count, limit });
        }
        let need = count.saturating_mul(each);
        if need > self.left() {
            return Err(Fault::Claims { what, count, need, left: self.left() });
        }
        Ok(count as usize) // at most left()
    }

    /// A string: length and UTF-8 bytes.
    pub(crate) fn string(&mut self, limit: u64) -> Result<&'a str, Fault> {
        let len = self.u64()?;
        if len > limit {
            return Err(Fault::Limit { what: "string byte", count: len, limit });
        }
        let start = self.at();
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes).map_err(|e| Fault::Utf8 { at: start + e.valid_up_to() as u64 })
    }
}
