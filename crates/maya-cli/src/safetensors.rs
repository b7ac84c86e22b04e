//! F32 matrices in safetensors files, written and read a row at a time: a whole one may be larger than memory.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::output::{AtomicFile, excerpt};

/// Largest header that is read; ours are under a kilobyte.
const HEADER_LIMIT: u64 = 1 << 24;

/// Writes tensor `logits` F32 [rows, cols], and before it, where given, `ids` U32, one a row.
pub struct LogitsWriter {
    file: AtomicFile,
    rows_left: usize,
    cols: usize,
    bytes: Vec<u8>,
}

impl LogitsWriter {
    /// Starts the file at `path`.
    pub fn create(path: &Path, rows: usize, cols: usize, ids: Option<&[u32]>) -> Result<Self> {
        let size = rows.checked_mul(cols).and_then(|n| n.checked_mul(4));
        let Some(size) = size else { bail!("{rows} rows of {cols} logits are larger than any file") };
        let mut header = serde_json::Map::new();
        let at = ids.map_or(0, |ids| ids.len() * 4);
        if let Some(ids) = ids {
            header
                .insert("ids".into(), json!({"dtype": "U32", "shape": [ids.len()], "data_offsets": [0, at]}));
        }
        let logits = json!({"dtype": "F32", "shape": [rows, cols], "data_offsets": [at, at + size]});
        header.insert("logits".into(), logits);
        let mut header = serde_json::to_vec(&Value::Object(header)).context("the header is not JSON")?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = AtomicFile::create(path)?;
        let say = || format!("{} cannot be written", path.display());
        file.write_all(&(header.len() as u64).to_le_bytes()).with_context(say)?;
        file.write_all(&header).with_context(say)?;
        for id in ids.unwrap_or_default() {
            file.write_all(&id.to_le_bytes()).with_context(say)?;
        }
        Ok(Self { file, rows_left: rows, cols, bytes: Vec::with_capacity(cols * 4) })
    }

    /// Appends a row.
    pub fn row(&mut self, row: &[f32]) -> Result<()> {
        assert!(row.len() == self.cols && self.rows_left > 0, "rows are announced at the start");
        self.rows_left -= 1;
        self.bytes.clear();
        self.bytes.extend(row.iter().flat_map(|v| v.to_le_bytes()));
        let written = self.file.write_all(&self.bytes);
        written.with_context(|| format!("{} cannot be written", self.file.target().display()))
    }

    /// Gives the file its name.
    pub fn commit(self) -> Result<()> {
        assert_eq!(self.rows_left, 0, "every announced row is written");
        self.file.commit()
    }
}

/// Reads `logits` F32 [rows, cols] in order.
pub struct LogitsReader {
    path: PathBuf,
    file: BufReader<File>,
    /// Rows of the tensor.
    pub rows: usize,
    /// Values of a row.
    pub cols: usize,
    /// Tensor `ids`, if the file has it.
    pub ids: Option<Vec<u32>>,
    bytes: Vec<u8>,
}

impl LogitsReader {
    /// Opens the file and checks its header against its size.
    pub fn open(path: &Path) -> Result<Self> {
        let mut opened = Opened::new(path)?;
        let (at, shape) = opened.tensor("logits", "F32", 2)?;
        let (rows, cols) = (usize::try_from(shape[0])?, usize::try_from(shape[1])?);
        let mut ids = None;
        if opened.header.get("ids").is_some() {
            let (at, shape) = opened.tensor("ids", "U32", 1)?;
            let mut bytes = vec![0; usize::try_from(shape[0] * 4)?];
            opened.seek(at)?;
            let read = opened.file.read_exact(&mut bytes);
            read.with_context(|| format!("{} cannot be read", path.display()))?;
            ids = Some(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect());
        }
        opened.seek(at)?;
        let file = BufReader::with_capacity(1 << 20, opened.file);
        Ok(Self { path: path.to_owned(), file, rows, cols, ids, bytes: Vec::new() })
    }

    /// The next row into `row`, `cols` long.
    pub fn next_row(&mut self, row: &mut Vec<f32>) -> Result<()> {
        self.bytes.resize(self.cols * 4, 0);
        let say = || format!("{} cannot be read", self.path.display());
        self.file.read_exact(&mut self.bytes).with_context(say)?;
        row.clear();
        row.extend(self.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
        Ok(())
    }
}

/// A file whose header was read.
pub struct Opened {
    path: PathBuf,
    /// The file.
    pub file: File,
    /// The header: tensors by name, and `__metadata__`.
    pub header: Value,
    /// Where the data begins.
    data_at: u64,
    data_len: u64,
}

impl Opened {
    /// Opens the file and reads its header.
    pub fn new(path: &Path) -> Result<Self> {
        let name = path.display();
        // Before it is opened: opening a pipe waits for its writer. A header is judged by the length that a pipe has not.
        let meta = fs::metadata(path).with_context(|| format!("{name} cannot be opened"))?;
        if !meta.is_file() {
            bail!("{name} is not a safetensors file: a folder, pipe or device is there");
        }
        let mut file = File::open(path).with_context(|| format!("{name} cannot be opened"))?;
        let len = file.metadata().with_context(|| format!("{name} cannot be read"))?.len();
        let mut size = [0u8; 8];
        file.read_exact(&mut size)
            .with_context(|| format!("{name} is not a safetensors file: it has {len} bytes"))?;
        let size = u64::from_le_bytes(size);
        if size > HEADER_LIMIT || len.checked_sub(8).is_none_or(|rest| size > rest) {
            bail!("{name} is not a safetensors file: its header would have {size} bytes, the file has {len}");
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).with_context(|| format!("{name} cannot be read"))?;
        let header: Value =
            serde_json::from_slice(&header).with_context(|| format!("{name}: the header is not JSON"))?;
        Ok(Self { path: path.to_owned(), file, header, data_at: 8 + size, data_len: len - 8 - size })
    }

    /// Offset in the file and shape of a tensor of `dims` dimensions whose bytes lie inside the file.
    pub fn tensor(&self, name: &str, dtype: &str, dims: usize) -> Result<(u64, Vec<u64>)> {
        let entry = entry(&self.header, name, dtype, dims, self.data_len);
        let (at, shape) = entry.with_context(|| format!("{}: tensor {name}", self.path.display()))?;
        Ok((self.data_at + at, shape))
    }

    /// Goes to an offset in the file.
    pub fn seek(&mut self, at: u64) -> Result<()> {
        let sought = self.file.seek(SeekFrom::Start(at));
        sought.with_context(|| format!("{} cannot be read", self.path.display())).map(drop)
    }
}

/// Offset in the data and shape of a tensor whose bytes lie inside the data.
fn entry(header: &Value, name: &str, dtype: &str, dims: usize, data_len: u64) -> Result<(u64, Vec<u64>)> {
    let Some(tensor) = header.get(name) else { bail!("the file does not have it") };
    let found = tensor.get("dtype").and_then(Value::as_str).unwrap_or("nothing");
    if found != dtype {
        bail!("its type is {}, not {dtype}", excerpt(found));
    }
    let numbers = |field: &str| -> Option<Vec<u64>> {
        tensor.get(field)?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()
    };
    let (Some(shape), Some(offsets)) = (numbers("shape"), numbers("data_offsets")) else {
        bail!("its shape or data_offsets are not lists of whole numbers");
    };
    let width = if dtype == "U16" { 2 } else { 4u64 };
    let bytes = shape.iter().try_fold(width, |n, &d| n.checked_mul(d));
    match (bytes, offsets.as_slice()) {
        (Some(bytes), &[from, to])
            if shape.len() == dims && to.checked_sub(from) == Some(bytes) && to <= data_len =>
        {
            Ok((from, shape))
        }
        _ => bail!(
            "shape {} and data_offsets {} do not fit {data_len} bytes of data",
            excerpt(&format!("{shape:?}")),
            excerpt(&format!("{offsets:?}"))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let mut writer = LogitsWriter::create(&path, 2, 3, Some(&[7, 8])).unwrap();
        writer.row(&[1.0, 2.0, 3.0]).unwrap();
        writer.row(&[4.0, 5.0, f32::MIN]).unwrap();
        writer.commit().unwrap();
        let mut reader = LogitsReader::open(&path).unwrap();
        assert_eq!((reader.rows, reader.cols, reader.ids.as_deref()), (2, 3, Some(&[7, 8][..])));
        let mut row = Vec::new();
        reader.next_row(&mut row).unwrap();
        assert_eq!(row, [1.0, 2.0, 3.0]);
        reader.next_row(&mut row).unwrap();
        assert_eq!(row, [4.0, 5.0, f32::MIN]);
        assert!(reader.next_row(&mut row).is_err());
    }

    #[test]
    fn hostile_headers_get_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let check = |bytes: &[u8], wanted: &str| {
            fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", LogitsReader::open(&path).err().unwrap());
            assert!(error.contains(wanted), "{error}");
        };
        check(b"", "not a safetensors file");
        check(&[255; 9], "not a safetensors file");
        let with = |json: &str| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
        check(&with("{"), "not JSON");
        check(&with("{}"), "does not have it");
        check(&with(r#"{"logits":{"dtype":"F16","shape":[1,1],"data_offsets":[0,2]}}"#), "F16");
        // A megabyte of it was quoted whole.
        let long = with(&format!(r#"{{"logits":{{"dtype":"{}"}}}}"#, "x".repeat(1 << 20)));
        check(&long, "its type is xxx");
        assert!(LogitsReader::open(&path).err().unwrap().root_cause().to_string().len() < 200);
        check(&with(r#"{"logits":{"dtype":"F32","shape":[1,-1],"data_offsets":[0,4]}}"#), "whole numbers");
        check(&with(r#"{"logits":{"dtype":"F32","shape":[9,9],"data_offsets":[0,324]}}"#), "do not fit");
        check(
            &with(r#"{"logits":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#),
            "do not fit",
        );
    }
}
