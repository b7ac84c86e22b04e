//! What is in a GGUF file and where its bytes are.
//!
//! [`Model`] opens one file, a split set by any of its shards, or a folder, and answers with typed metadata,
//! [`TensorInfo`] and [`Extent`]s; [`Header::parse`] is the pure parser below it; [`Layout`] and [`Writer`] write the
//! same format. Types are sizes here ([`GgmlType`]): no weight is decoded. The README of this crate has the rules.
//!
//! ```no_run
//! # fn main() -> Result<(), gguf::Error> {
//! let model = gguf::Model::open("GLM-5.3-Flash-00001-of-00003.gguf".as_ref())?;
//! let hidden = model.u32("glm5-next.embedding_length")?;
//! if let Some(info) = model.tensor("token_embd.weight") {
//!     let bytes: &[u8] = model.bytes(info.extent)?;
//!     println!("{} {hidden:?} {}", info.ty.name(), bytes.len());
//! }
//! # Ok(())
//! # }
//! ```

mod cursor;
mod error;
mod folder;
mod ggml_type;
mod header;
mod index;
mod layout;
pub mod limits;
mod map;
mod metadata;
mod model;
mod phrase;
mod shards;
mod tensor;
mod value;
mod writer;

pub use error::{Error, Fault, HeaderError, MetadataError, Place, ValueFault, WriteError};
pub use ggml_type::GgmlType;
pub use header::Header;
pub use layout::Layout;
pub use metadata::Metadata;
pub use model::{Model, Shard};
pub use phrase::{Dims, Names, Quoted};
pub use tensor::{Extent, TensorInfo};
pub use value::{Array, Value};
pub use writer::Writer;
