//! An opened model: all shards, one tensor table, the metadata of shard 1.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, MetadataError, ValueFault};
use crate::header::Header;
use crate::index::Index;
use crate::map::Bytes;
use crate::metadata::Metadata;
use crate::phrase::Quoted;
use crate::tensor::{Extent, TensorInfo};
use crate::value::Value;
use crate::{folder, shards};

/// One file of a model.
pub struct Shard {
    /// Where it is, or the name given to [`Model::from_static`].
    pub path: PathBuf,
    /// Bytes of the file.
    pub len: u64,
    /// Tensors in it.
    pub n_tensors: usize,
    /// Format version, 2 or 3.
    pub version: u32,
    /// Alignment of its tensor data.
    pub alignment: u64,
    /// Where its tensor data begins.
    pub data_start: u64,
    bytes: Bytes,
}

/// A file with its header, not yet part of a model.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    bytes: Bytes,
}

impl Part {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let kind = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
        if !kind.is_file() {
            return Err(Error::NotAFile(path.into()));
        }
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let bytes = Bytes::map(&file).map_err(|error| Error::io(path, error))?;
        Self::new(path.into(), bytes)
    }

    fn new(path: PathBuf, bytes: Bytes) -> Result<Self, Error> {
        let slice = bytes.as_slice();
        match Header::parse(slice, slice.len() as u64) {
            Ok(header) => Ok(Self { path, header, bytes }),
            Err(error) => Err(Error::Header { path, error }),
        }
    }
}

/// A whole model, one file or several. Bytes are read from memory maps in place.
pub struct Model {
    shards: Vec<Shard>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: Index,
}

impl Model {
    /// Opens a file, any shard of a split set (the others are found beside it), or a folder that holds exactly one
    /// model (a vision projector beside it is passed over).
    ///
    /// Maps the files and parses their headers; no weight is read.
    ///
    /// # Errors
    /// A sentence that begins with the path: nothing there, not GGUF, a broken header, a tensor that ends beyond its
    /// file, a shard that is missing, misnamed, doubled or foreign, or a folder with no or several models.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let kind = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let part = if kind.is_dir() { Part::open(&folder::model_in(path)?)? } else { Part::open(path)? };
        Self::from_parts(shards::complete(part)?)
    }

    /// A model in static memory, such as one embedded in the program. `name` stands for the path in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open); the model must be one whole file.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Self, Error> {
        let part = Part::new(name.into(), Bytes::Static(bytes))?;
        match shards::declared_count(&part)? {
            Some(count) if count > 1 => Err(Error::EmbeddedShard { path: part.path, count }),
            _ => Self::from_parts(vec![part]),
        }
    }

    /// Parts in order of shard number.
    fn from_parts(parts: Vec<Part>) -> Result<Self, Error> {
        let total = shards::declared_tensors(&parts)?;
        let mut shards = Vec::with_capacity(parts.len());
        let mut tensors = Vec::new();
        let mut metadata = None;
        for (no, Part { path, header, bytes }) in parts.into_iter().enumerate() {
            let no = u16::try_from(no).expect("the number of shards is limited");
            shards.push(Shard {
                path,
                len: bytes.as_slice().len() as u64,
                n_tensors: header.tensors.len(),
                version: header.version,
                alignment: header.alignment,
                data_start: header.data_start,
                bytes,
            });
            tensors.extend(header.tensors.into_iter().map(|mut info| {
                info.extent.shard = no;
                info
            }));
            metadata.get_or_insert(header.metadata);
        }
        let index = Index::new(tensors.len(), |i| &tensors[i].name).map_err(|(i, j)| {
            let path = |i: usize| shards[usize::from(tensors[i].extent.shard)].path.clone();
            Error::TensorTwice { path: path(j), tensor: Quoted::new(&tensors[j].name), first: path(i) }
        })?;
        if let Some(wanted) = total.filter(|&it| it != tensors.len() as u64) {
            let (found, count) = (tensors.len() as u64, shards.len() as u64);
            return Err(Error::ShardTensors { path: shards.swap_remove(0).path, wanted, found, count });
        }
        Ok(Self { shards, metadata: metadata.unwrap_or_default(), tensors, index })
    }

    /// `general.architecture`.
    ///
    /// # Errors
    /// It is missing or not a string.
    pub fn architecture(&self) -> Result<&str, Error> {
        const KEY: &str = "general.architecture";
        let missing = || self.wrong(MetadataError { key: Quoted::new(KEY), fault: ValueFault::Missing });
        self.str(KEY)?.ok_or_else(missing)
    }

    /// The value of a whole key, as stored.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// All pairs of shard 1 in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter()
    }

    /// See [`Metadata::u32`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.metadata.u32(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::u64`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.metadata.u64(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::f32`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.metadata.f32(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::bool`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.metadata.bool(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::str`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.metadata.str(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::u32s`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        self.metadata.u32s(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::f32s`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.metadata.f32s(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::bools`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        self.metadata.bools(key).map_err(|error| self.wrong(error))
    }

    /// See [`Metadata::strs`].
    ///
    /// # Errors
    /// As there, with the path.
    pub fn strs(&self, key: &str) -> Result<Option<&[Box<str>]>, Error> {
        self.metadata.strs(key).map_err(|error| self.wrong(error))
    }

    /// Every tensor, in file order, shard after shard.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensor_index(name).map(|i| &self.tensors[i])
    }

    /// The place in [`tensors`](Self::tensors) of the tensor called `name`.
    #[must_use]
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        self.index.find(name, |i| &self.tensors[i].name)
    }

    /// The bytes of an extent, in place.
    ///
    /// # Errors
    /// The extent is not inside a shard of this model; those in [`tensors`](Self::tensors) always are.
    pub fn bytes(&self, extent: Extent) -> Result<&[u8], Error> {
        let Extent { shard, offset, len } = extent;
        let bytes = self.shards.get(usize::from(shard)).and_then(|shard| {
            let start = usize::try_from(offset).ok()?;
            let end = usize::try_from(offset.checked_add(len)?).ok()?;
            shard.bytes.as_slice().get(start..end)
        });
        bytes.ok_or_else(|| {
            let shard = usize::from(shard);
            let path = self.shards.get(shard).or(self.shards.first()).map(|it| it.path.clone());
            Error::Extent { path: path.unwrap_or_default(), shard, offset, len }
        })
    }

    /// Asks the system to bring an extent into memory; it is only advice. Returns when the reads are queued, which may be
    /// when most of them are done: a thread of its own should ask for much.
    pub fn will_need(&self, extent: Extent) {
        if let (Ok(bytes), Some(shard)) = (self.bytes(extent), self.shards.get(usize::from(extent.shard))) {
            // `bytes` has checked that both are sizes within the file.
            let start = extent.offset as usize;
            shard.bytes.will_need(start..start + bytes.len());
        }
    }

    /// The files, in order.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    fn wrong(&self, error: MetadataError) -> Error {
        let path = self.shards.first().map(|shard| shard.path.clone()).unwrap_or_default();
        Error::Metadata { path, error }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("path", &self.path).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Short on purpose: metadata holds a whole vocabulary.
impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("shards", &self.shards)
            .field("n_keys", &self.metadata.len())
            .field("n_tensors", &self.tensors.len())
            .finish()
    }
}
