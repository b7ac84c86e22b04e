//! What a file to be written will hold: metadata and tensor table.

use crate::error::{Fault, HeaderError, Place, WriteError};
use crate::ggml_type::GgmlType;
use crate::header::{self, Header};
use crate::limits;
use crate::metadata::Metadata;
use crate::phrase::{Dims, Quoted};
use crate::value::{ARRAY_ID, Array, Value};
use crate::writer::Writer;
use crate::{Model, TensorInfo};

/// Metadata and tensor table of a file, in the order in which they will stand in it.
///
/// ```
/// # fn main() -> Result<(), gguf::WriteError> {
/// let mut layout = gguf::Layout::new();
/// layout.set("general.architecture", "glm5-next");
/// layout.set("glm5-next.block_count", 46_u32);
/// layout.tensor("output_norm.weight", gguf::GgmlType::F32, &[4])?;
/// let mut writer = layout.write_to(Vec::new())?;
/// writer.tensor("output_norm.weight", &[0; 16])?;
/// let file = writer.finish()?;
/// assert_eq!(file.len() % 32, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pairs: Vec<(Box<str>, Value)>,
    tensors: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Box<str>,
    ty: GgmlType,
    dims: [u64; 4],
    n_dims: u8,
    len: u64,
}

impl Layout {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key. One that is already there keeps its place and gets the new value. `general.alignment` also sets the
    /// alignment of the file, which is 32 without it.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.pairs.iter_mut().find(|(it, _)| **it == *key) {
            Some((_, old)) => *old = value,
            None => self.pairs.push((key.into(), value)),
        }
        self
    }

    /// Takes all keys of a model but those of its splitting (`split.*`), which would not be true of the new file.
    pub fn copy_metadata(&mut self, model: &Model) -> &mut Self {
        for (key, value) in model.metadata().filter(|(key, _)| !key.starts_with("split.")) {
            self.set(key, value.clone());
        }
        self
    }

    /// Appends a tensor to the table; its data must later come in the same order. `dims`: fastest axis first.
    ///
    /// # Errors
    /// No or more than four dimensions, one that is 0, rows that are not whole blocks, or a size beyond 63 bits.
    pub fn tensor(&mut self, name: &str, ty: GgmlType, dims: &[u64]) -> Result<&mut Self, WriteError> {
        let wrong = |fault| HeaderError { place: Place::Tensor(Quoted::new(name)), fault };
        let n_dims = u32::try_from(dims.len()).unwrap_or(u32::MAX);
        if !(1..=limits::DIMS).contains(&n_dims) {
            return Err(wrong(Fault::DimCount(n_dims)).into());
        }
        let mut padded = [1; 4];
        padded[..dims.len()].copy_from_slice(dims);
        let len = header::tensor_bytes(ty, padded).map_err(wrong)?;
        self.tensors.push(Entry { name: name.into(), ty, dims: padded, n_dims: n_dims as u8, len });
        Ok(self)
    }

    /// Bytes of the finished file, padding included; what a disk must have room for.
    ///
    /// # Errors
    /// As [`write_to`](Self::write_to).
    pub fn file_len(&self) -> Result<u64, WriteError> {
        self.encode().map(|encoded| encoded.file_len)
    }

    /// The header alone, padded to where data begins.
    ///
    /// # Errors
    /// As [`write_to`](Self::write_to).
    pub fn header(&self) -> Result<Vec<u8>, WriteError> {
        self.encode().map(|encoded| encoded.header)
    }

    /// Writes the header and returns the writer that takes the data. `out` gets few and large writes, so that it needs
    /// no buffer of its own.
    ///
    /// # Errors
    /// What a reader would refuse: a name twice, an empty or over-long name, a limit exceeded, a bad alignment. Or the
    /// write fails.
    pub fn write_to<W: std::io::Write>(&self, out: W) -> Result<Writer<W>, WriteError> {
        let Encoded { header, tensors, alignment, .. } = self.encode()?;
        Writer::start(out, &header, tensors, alignment)
    }

    /// The header, padded to where data begins. It is parsed again: that is the check, so that nothing can be written
    /// that cannot be read, and it tells the absolute place of every tensor.
    fn encode(&self) -> Result<Encoded, WriteError> {
        let metadata = Metadata::new(self.pairs.clone())
            .map_err(|key| HeaderError { place: Place::Key(Quoted::new(&key)), fault: Fault::Twice })?;
        let alignment = header::alignment(&metadata)?;
        let mut out = Vec::new();
        out.extend_from_slice(b"GGUF");
        out.extend_from_slice(&3_u32.to_le_bytes());
        put_len(&mut out, self.tensors.len());
        put_len(&mut out, self.pairs.len());
        for (key, value) in &self.pairs {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0_u64;
        for Entry { name, ty, dims, n_dims, len } in &self.tensors {
            put_string(&mut out, name);
            out.extend_from_slice(&u32::from(*n_dims).to_le_bytes());
            for dim in &dims[..usize::from(*n_dims)] {
                out.extend_from_slice(&dim.to_le_bytes());
            }
            out.extend_from_slice(&ty.id().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            offset = offset
                .checked_add(*len)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| HeaderError {
                    place: Place::Tensor(Quoted::new(name)),
                    fault: Fault::TooLarge(Dims::from(*dims)),
                })?;
        }
        out.resize(out.len().next_multiple_of(alignment as usize), 0); // alignment is at most 1 MiB
        let Some(file_len) = offset.checked_add(out.len() as u64) else {
            return Err(HeaderError { place: Place::File, fault: Fault::Offset(offset) }.into());
        };
        let tensors = Header::parse(&out, file_len)?.tensors;
        Ok(Encoded { header: out, tensors, alignment, file_len })
    }
}

struct Encoded {
    header: Vec<u8>,
    tensors: Vec<TensorInfo>,
    alignment: u64,
    file_len: u64,
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&(len as u64).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

macro_rules! put_numbers {
    ($out:expr, $items:expr) => {
        for it in $items {
            $out.extend_from_slice(&it.to_le_bytes());
        }
    };
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(&value.type_id().to_le_bytes());
    match value {
        Value::U8(it) => put_numbers!(out, [it]),
        Value::I8(it) => put_numbers!(out, [it]),
        Value::U16(it) => put_numbers!(out, [it]),
        Value::I16(it) => put_numbers!(out, [it]),
        Value::U32(it) => put_numbers!(out, [it]),
        Value::I32(it) => put_numbers!(out, [it]),
        Value::U64(it) => put_numbers!(out, [it]),
        Value::I64(it) => put_numbers!(out, [it]),
        Value::F32(it) => put_numbers!(out, [it]),
        Value::F64(it) => put_numbers!(out, [it]),
        Value::Bool(it) => out.push(u8::from(*it)),
        Value::String(it) => put_string(out, it),
        Value::Array(array) => {
            debug_assert_eq!(value.type_id(), ARRAY_ID);
            put_array(out, array);
        }
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend_from_slice(&array.type_id().to_le_bytes());
    put_len(out, array.len());
    match array {
        Array::U8(it) => out.extend_from_slice(it),
        Array::I8(it) => put_numbers!(out, it),
        Array::U16(it) => put_numbers!(out, it),
        Array::I16(it) => put_numbers!(out, it),
        Array::U32(it) => put_numbers!(out, it),
        Array::I32(it) => put_numbers!(out, it),
        Array::U64(it) => put_numbers!(out, it),
        Array::I64(it) => put_numbers!(out, it),
        Array::F32(it) => put_numbers!(out, it),
        Array::F64(it) => put_numbers!(out, it),
        Array::Bool(it) => out.extend(it.iter().map(|&it| u8::from(it))),
        Array::String(it) => it.iter().for_each(|it| put_string(out, it)),
    }
}
