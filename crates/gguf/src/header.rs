//! The header of one file: pure, from bytes to a checked table.

use crate::cursor::Cursor;
use crate::error::{Fault, HeaderError, Place};
use crate::ggml_type::GgmlType;
use crate::index::Index;
use crate::limits;
use crate::metadata::Metadata;
use crate::phrase::Quoted;
use crate::tensor::{Extent, TensorInfo};
use crate::value::{ARRAY_ID, Array, Scalar, Value};

/// A parsed header. Every extent in it lies inside the file and overlaps no other.
#[derive(Clone, Debug)]
pub struct Header {
    /// Format version, 2 or 3 (3 only added big-endian files).
    pub version: u32,
    /// Key-value pairs in file order.
    pub metadata: Metadata,
    /// Tensor table in file order; every extent has shard 0.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensor data, 32 unless `general.alignment` says otherwise.
    pub alignment: u64,
    /// Where tensor data begins: the header's end rounded up. A file without tensors may end before it.
    pub data_start: u64,
}

impl Header {
    /// Parses the header of a file of `file_len` bytes that begins with `bytes` (the whole file or enough of it).
    ///
    /// Allocates no more than a small multiple of the header's own bytes, and never more than 64 MB at once.
    ///
    /// # Errors
    /// The first thing that is wrong, see [`HeaderError`]; nothing is repaired.
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Self, HeaderError> {
        let known =
            bytes.len().min(usize::try_from(file_len.min(limits::HEADER_BYTES)).unwrap_or(usize::MAX));
        let mut cursor = Cursor::new(&bytes[..known]);
        let mut parsed = parse_parts(&mut cursor).map_err(|error| match error.fault {
            Fault::CutOff { at, need, .. }
                if known as u64 == limits::HEADER_BYTES && file_len > known as u64 =>
            {
                let fault = Fault::Limit {
                    what: "header byte",
                    count: at.saturating_add(need),
                    limit: limits::HEADER_BYTES,
                };
                HeaderError { place: Place::File, fault }
            }
            _ => error,
        })?;
        parsed.place_tensors(file_len)?;
        Ok(parsed)
    }

    /// Turns offsets into extents of the file and checks them against it and each other.
    fn place_tensors(&mut self, file_len: u64) -> Result<(), HeaderError> {
        for info in &mut self.tensors {
            let offset = info.extent.offset;
            let name = || Place::Tensor(Quoted::new(&info.name));
            if !offset.is_multiple_of(self.alignment) {
                let fault = Fault::Misaligned { offset, alignment: self.alignment };
                return Err(HeaderError { place: name(), fault });
            }
            let end =
                offset.checked_add(self.data_start).and_then(|start| start.checked_add(info.extent.len));
            if end.is_none_or(|end| end > i64::MAX as u64) {
                return Err(HeaderError { place: name(), fault: Fault::Offset(offset) });
            }
            info.extent.offset += self.data_start;
        }
        let mut order: Vec<&TensorInfo> = self.tensors.iter().collect();
        order.sort_by_key(|info| info.extent.offset);
        for pair in order.windows(2) {
            if end(pair[0]) > pair[1].extent.offset {
                let place = Place::Tensor(Quoted::new(&pair[1].name));
                return Err(HeaderError { place, fault: Fault::Overlap(Quoted::new(&pair[0].name)) });
            }
        }
        if let Some(first) = order.iter().position(|info| end(info) > file_len) {
            let last = order.last().map_or(0, |info| end(info));
            let fault = Fault::PastEnd {
                end: end(order[first]),
                file_len,
                missing: last - file_len,
                n_tensors: (order.len() - first) as u64,
            };
            return Err(HeaderError { place: Place::Tensor(Quoted::new(&order[first].name)), fault });
        }
        Ok(())
    }
}

fn end(info: &TensorInfo) -> u64 {
    info.extent.offset + info.extent.len
}

/// Everything up to the tensor data, with offsets still relative to it.
fn parse_parts(cursor: &mut Cursor<'_>) -> Result<Header, HeaderError> {
    let file = |fault| HeaderError { place: Place::File, fault };
    let version = parse_version(cursor).map_err(file)?;
    // An entry of the table has at least a name length, a name byte, a dimension count, a dimension, a type and an
    // offset; a key at least its length, a byte, a type and a byte of value.
    let n_tensors = cursor.count("tensor", limits::TENSORS, 8 + 1 + 4 + 8 + 4 + 8).map_err(file)?;
    let n_keys = cursor.count("key", limits::KEYS, 8 + 1 + 4 + 1).map_err(file)?;
    let mut pairs = Vec::with_capacity(n_keys);
    for number in 1..=n_keys as u64 {
        let key = parse_name(cursor, limits::KEY_BYTES)
            .map_err(|fault| HeaderError { place: Place::KeyNumber(number), fault })?;
        let value = parse_value(cursor)
            .map_err(|fault| HeaderError { place: Place::Key(Quoted::new(key)), fault })?;
        pairs.push((Box::from(key), value));
    }
    let metadata = Metadata::new(pairs)
        .map_err(|key| HeaderError { place: Place::Key(Quoted::new(&key)), fault: Fault::Twice })?;
    let alignment = alignment(&metadata)?;
    let mut tensors = Vec::with_capacity(n_tensors);
    for number in 1..=n_tensors as u64 {
        let name = parse_name(cursor, limits::NAME_BYTES)
            .map_err(|fault| HeaderError { place: Place::TensorNumber(number), fault })?;
        let info = parse_tensor(cursor, name)
            .map_err(|fault| HeaderError { place: Place::Tensor(Quoted::new(name)), fault })?;
        tensors.push(info);
    }
    Index::new(tensors.len(), |i| &tensors[i].name).map_err(|(i, _)| HeaderError {
        place: Place::Tensor(Quoted::new(&tensors[i].name)),
        fault: Fault::Twice,
    })?;
    let data_start = cursor.at().next_multiple_of(alignment); // both are small: see limits
    Ok(Header { version, metadata, tensors, alignment, data_start })
}

fn parse_version(cursor: &mut Cursor<'_>) -> Result<u32, Fault> {
    let magic = cursor.take(4).map_err(|_| Fault::Empty);
    let magic = match magic {
        Ok(magic) => magic,
        Err(empty) => {
            let rest = cursor.rest();
            return Err(if rest.is_empty() {
                empty
            } else {
                Fault::Magic(rest.escape_ascii().to_string().into())
            });
        }
    };
    match magic {
        b"GGUF" => {}
        b"FUGG" => return Err(Fault::BigEndian),
        _ => return Err(Fault::Magic(magic.escape_ascii().to_string().into())),
    }
    match cursor.u32()? {
        version @ 2..=3 => Ok(version),
        swapped if (1..=0xffff).contains(&swapped.swap_bytes()) => Err(Fault::BigEndian),
        version => Err(Fault::Version(version)),
    }
}

fn parse_name<'a>(cursor: &mut Cursor<'a>, limit: u64) -> Result<&'a str, Fault> {
    match cursor.string(limit)? {
        "" => Err(Fault::Unnamed),
        name => Ok(name),
    }
}

fn parse_bool(byte: u8) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::Bool(other)),
    }
}

macro_rules! numbers {
    ($cursor:expr, $variant:ident, $ty:ty) => {{
        const EACH: usize = size_of::<$ty>();
        let n = $cursor.count("element", limits::ARRAY_LEN, EACH as u64)?;
        let bytes = $cursor.take((n * EACH) as u64)?;
        let (items, _) = bytes.as_chunks::<EACH>();
        Array::$variant(items.iter().map(|&it| <$ty>::from_le_bytes(it)).collect())
    }};
}

fn parse_array(cursor: &mut Cursor<'_>) -> Result<Array, Fault> {
    Ok(match cursor.u32()? {
        0 => numbers!(cursor, U8, u8),
        1 => numbers!(cursor, I8, i8),
        2 => numbers!(cursor, U16, u16),
        3 => numbers!(cursor, I16, i16),
        4 => numbers!(cursor, U32, u32),
        5 => numbers!(cursor, I32, i32),
        6 => numbers!(cursor, F32, f32),
        7 => {
            let n = cursor.count("element", limits::ARRAY_LEN, 1)?;
            Array::Bool(cursor.take(n as u64)?.iter().map(|&it| parse_bool(it)).collect::<Result<_, _>>()?)
        }
        8 => {
            let n = cursor.count("element", limits::ARRAY_LEN, 8)?;
            let mut items = Vec::with_capacity(n);
            for _ in 0..n {
                items.push(Box::from(cursor.string(limits::STRING_BYTES)?));
            }
            Array::String(items)
        }
        ARRAY_ID => return Err(Fault::Nested),
        10 => numbers!(cursor, U64, u64),
        11 => numbers!(cursor, I64, i64),
        12 => numbers!(cursor, F64, f64),
        other => return Err(Fault::ValueType(other)),
    })
}

fn parse_value(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    Ok(match cursor.u32()? {
        0 => Value::U8(cursor.u8()?),
        1 => Value::I8(cursor.i8()?),
        2 => Value::U16(cursor.u16()?),
        3 => Value::I16(cursor.i16()?),
        4 => Value::U32(cursor.u32()?),
        5 => Value::I32(cursor.i32()?),
        6 => Value::F32(cursor.f32()?),
        7 => Value::Bool(parse_bool(cursor.u8()?)?),
        8 => Value::String(cursor.string(limits::STRING_BYTES)?.into()),
        ARRAY_ID => Value::Array(parse_array(cursor)?),
        10 => Value::U64(cursor.u64()?),
        11 => Value::I64(cursor.i64()?),
        12 => Value::F64(cursor.f64()?),
        other => return Err(Fault::ValueType(other)),
    })
}

/// `general.alignment`, in any integer width, or the format's 32.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u64, HeaderError> {
    const KEY: &str = "general.alignment";
    let Some(value) = metadata.get(KEY) else { return Ok(32) };
    let found = metadata.u64(KEY).ok().flatten();
    match found {
        Some(it) if it.is_power_of_two() && limits::ALIGNMENT.contains(&it) => Ok(it),
        _ => {
            let shown = match value.scalar() {
                Some(Scalar::Int(it)) => it.to_string(),
                _ => format!("of type {}", value.type_name()),
            };
            let fault = Fault::Alignment(shown.into());
            Err(HeaderError { place: Place::Key(Quoted::new(KEY)), fault })
        }
    }
}

fn parse_tensor(cursor: &mut Cursor<'_>, name: &str) -> Result<TensorInfo, Fault> {
    let n_dims = cursor.u32()?;
    if !(1..=limits::DIMS).contains(&n_dims) {
        return Err(Fault::DimCount(n_dims));
    }
    let mut dims = [1; 4];
    for dim in &mut dims[..n_dims as usize] {
        *dim = cursor.u64()?;
    }
    let type_id = cursor.u32()?;
    let offset = cursor.u64()?;
    let ty = GgmlType::from_id(type_id).ok_or(Fault::Type(type_id))?;
    let len = tensor_bytes(ty, dims)?;
    let extent = Extent { shard: 0, offset, len };
    Ok(TensorInfo { name: name.into(), ty, dims, n_dims: n_dims as u8, extent })
}

/// Bytes of a tensor, or why there can be no such tensor.
pub(crate) fn tensor_bytes(ty: GgmlType, dims: [u64; 4]) -> Result<u64, Fault> {
    if dims.contains(&0) {
        return Err(Fault::ZeroDim(dims.into()));
    }
    let n = dims.iter().try_fold(1_u64, |n, &dim| n.checked_mul(dim)).filter(|&n| i64::try_from(n).is_ok());
    let n = n.ok_or(Fault::TooLarge(dims.into()))?;
    if !dims[0].is_multiple_of(u64::from(ty.block_len())) {
        return Err(Fault::PartialBlock { ty, row: dims[0] });
    }
    ty.bytes_for(n).filter(|&bytes| i64::try_from(bytes).is_ok()).ok_or(Fault::TooLarge(dims.into()))
}
