//! What can be wrong, in sentences. The parts they are made of are in `phrase.rs`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::ggml_type::GgmlType;
use crate::limits;
use crate::phrase::{Are, At, Count, Dims, MissingTensors, Names, Quoted};

/// What a [`HeaderError`] is about: the subject of its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The file itself.
    File,
    /// The key-value pair at this position (from 1), whose name could not be read.
    KeyNumber(u64),
    /// The key of this name, or its value.
    Key(Quoted),
    /// The tensor entry at this position (from 1), whose name could not be read.
    TensorNumber(u64),
    /// The tensor of this name.
    Tensor(Quoted),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("the file"),
            Self::KeyNumber(n) => write!(f, "key number {n}"),
            Self::Key(name) => write!(f, "key {name}"),
            Self::TensorNumber(n) => write!(f, "tensor number {n}"),
            Self::Tensor(name) => write!(f, "tensor {name}"),
        }
    }
}

/// What is wrong with it: the predicate of the sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Fault {
    #[error("is empty")]
    Empty,
    #[error("is not a GGUF file: it begins with \"{0}\", not with \"GGUF\"")]
    Magic(Box<str>),
    #[error("is a big-endian GGUF file; only little-endian files can be read")]
    BigEndian,
    #[error("has GGUF version {0}; versions 2 and 3 can be read")]
    Version(u32),
    #[error("is cut off: {need} bytes are needed at byte {at}, and the file ends at byte {end}")]
    CutOff { at: u64, need: u64, end: u64 },
    #[error("has {}, more than the limit of {limit}", Count(*count, what))]
    Limit { what: &'static str, count: u64, limit: u64 },
    #[error("claims {}, which need at least {}, and only {left} are left", Count(*count, what), Count(*need, "byte"))]
    Claims { what: &'static str, count: u64, need: u64, left: u64 },
    #[error("has no name")]
    Unnamed,
    #[error("is not valid UTF-8 at byte {at}")]
    Utf8 { at: u64 },
    #[error("has value type {0}, which does not exist")]
    ValueType(u32),
    #[error("is an array of arrays, which is not supported")]
    Nested,
    #[error("is a bool with the value {0}; only 0 and 1 are allowed")]
    Bool(u8),
    #[error("appears twice")]
    Twice,
    #[error("is {0}; an alignment is a power of two from {min} to {max}", min = limits::ALIGNMENT.start(), max = limits::ALIGNMENT.end())]
    Alignment(Box<str>),
    #[error("has {0} dimensions; 1 to {max} are allowed", max = limits::DIMS)]
    DimCount(u32),
    #[error("has a zero dimension ({0})")]
    ZeroDim(Dims),
    #[error("is impossibly large ({0})")]
    TooLarge(Dims),
    #[error("has type id {0}, which is not supported")]
    Type(u32),
    #[error("has rows of {row} weights, which are not whole {ty} blocks of {block}", block = ty.block_len())]
    PartialBlock { ty: GgmlType, row: u64 },
    #[error("begins at offset {offset}, which is not a multiple of the alignment {alignment}")]
    Misaligned { offset: u64, alignment: u64 },
    #[error("overlaps tensor {0}")]
    Overlap(Quoted),
    #[error("ends at byte {end}, but the file ends at byte {file_len}: {} missing ({} cut)", Are(*missing, "byte"), Are(*n_tensors, "tensor"))]
    PastEnd { end: u64, file_len: u64, missing: u64, n_tensors: u64 },
    #[error("begins at offset {0}, beyond any file")]
    Offset(u64),
}

/// A header that cannot be used: what, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} {fault}")]
pub struct HeaderError {
    /// Subject.
    pub place: Place,
    /// Predicate.
    pub fault: Fault,
}

/// Why a value is not what was asked for: the rest of a sentence that begins with the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ValueFault {
    #[error("is missing")]
    Missing,
    #[error("is of type {found}, where {wanted} is wanted")]
    Type { found: &'static str, wanted: &'static str },
    #[error("is {found}{}, where {wanted} is wanted", At(*at))]
    Range { found: Quoted, at: Option<usize>, wanted: &'static str },
    #[error("is an empty array, where one value is wanted")]
    Empty,
    #[error(
        "is an array of {len} values that differ ({first}, then {other} at index {at}), where one value is wanted"
    )]
    Differ { len: usize, first: Quoted, other: Quoted, at: usize },
}

/// A metadata value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} {fault}")]
pub struct MetadataError {
    /// The whole key.
    pub key: Quoted,
    /// What is wrong.
    pub fault: ValueFault,
}

/// Why a model cannot be opened or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    #[error("{}: there is no such file or folder", .0.display())]
    NotFound(PathBuf),
    #[error("{}: cannot be read: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: is neither a file nor a folder", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: {error}", path.display())]
    Header { path: PathBuf, error: HeaderError },
    #[error("{}: there is no .gguf file in this folder", .0.display())]
    EmptyFolder(PathBuf),
    #[error("{}: there are {} models in this folder ({names}): name one of them", path.display(), names.0.len())]
    ManyModels { path: PathBuf, names: Names },
    #[error("{}: {error}", path.display())]
    Metadata { path: PathBuf, error: MetadataError },
    #[error("{}: is shard {no} of {count} by its metadata, but its name does not end in -{no:05}-of-{count:05}.gguf, so the other shards cannot be found", path.display())]
    ShardName { path: PathBuf, no: u64, count: u64 },
    #[error("{}: shard {no} of {count} is missing: there is no such file{}", path.display(), MissingTensors(*n_tensors))]
    ShardMissing { path: PathBuf, no: u64, count: u64, n_tensors: Option<u64> },
    #[error("{}: is named shard {named}, but its metadata says shard {found} (split.no {}): a foreign or misnamed file", path.display(), found - 1)]
    ShardNumber { path: PathBuf, named: u64, found: u64 },
    #[error("{}: is a second copy of shard {of} ({}): both hold tensor {tensor}", path.display(), first.display())]
    ShardTwice { path: PathBuf, of: u64, first: PathBuf, tensor: Quoted },
    #[error("{}: belongs to another model: its {key} is {found}, and {wanted} in {}", path.display(), first.display())]
    ShardForeign { path: PathBuf, key: &'static str, found: Quoted, wanted: Quoted, first: PathBuf },
    #[error("{}: says split.count {found}, but its name says {named} shards", path.display())]
    ShardCount { path: PathBuf, found: u64, named: u64 },
    #[error("{}: has {count} shards, and the limit is {}", path.display(), limits::SHARDS)]
    ManyShards { path: PathBuf, count: u64 },
    #[error("{}: split.tensors.count is {wanted}, but the {count} shards hold {found} tensors: one of them is foreign", path.display())]
    ShardTensors { path: PathBuf, wanted: u64, found: u64, count: u64 },
    #[error("{}: tensor {tensor} is also in {}", path.display(), first.display())]
    TensorTwice { path: PathBuf, tensor: Quoted, first: PathBuf },
    #[error("{}: is one shard of {count}, and an embedded model must be whole", path.display())]
    EmbeddedShard { path: PathBuf, count: u64 },
    #[error("tensor {tensor} ({dims}) has no slice {index} along its third axis")]
    Slice { tensor: Quoted, dims: Dims, index: u64 },
    #[error("tensor {tensor} ({dims}) has a fourth axis, so it cannot be cut along its third")]
    FourAxes { tensor: Quoted, dims: Dims },
    #[error("{}: there are no {len} bytes at byte {offset} of shard {}", path.display(), shard + 1)]
    Extent { path: PathBuf, shard: usize, offset: u64, len: u64 },
}

impl Error {
    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Self::NotFound(path.into()),
            _ => Self::Io { path: path.into(), error },
        }
    }
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WriteError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("tensor {0} cannot be written: it is not in the table")]
    Unknown(Quoted),
    #[error("tensor {0} cannot be written: it is written already")]
    Done(Quoted),
    #[error("tensor {got} cannot be written now: tensor {wanted} comes next")]
    Order { got: Quoted, wanted: Quoted },
    #[error("tensor {tensor} needs {wanted} bytes and got {got}")]
    Short { tensor: Quoted, wanted: u64, got: u64 },
    #[error("tensor {tensor} has {wanted} bytes and was given {got}")]
    Long { tensor: Quoted, wanted: u64, got: u64 },
    #[error("no tensor was begun, so there is no place for {0} bytes")]
    NotBegun(usize),
    #[error("tensor {0} and those after it were not written")]
    Missing(Quoted),
    #[error("the file cannot be continued: an earlier write failed")]
    Failed,
    #[error("writing failed after byte {at}: {error}")]
    Io { at: u64, error: std::io::Error },
}
