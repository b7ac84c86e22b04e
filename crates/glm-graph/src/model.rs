//! A file that has been understood: its configuration and its weights, in place.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::config::Config;
use crate::error::LoadError;
use crate::weights::Weights;

/// The model: read-only, shared by every executor.
pub struct Model {
    file: gguf::Model,
    config: Config,
    weights: Weights,
    fingerprint: u64,
}

impl Model {
    /// Understands an opened file.
    ///
    /// Reads the metadata and the small vectors; no matrix is touched.
    ///
    /// # Errors
    /// A sentence naming the key or the tensor that is missing, unknown or does not fit ([`LoadError`]).
    pub fn load(file: gguf::Model) -> Result<Self, LoadError> {
        let config = Config::from_gguf(&file)?;
        let weights = Weights::claim(&file, &config)?;
        let fingerprint = fingerprint(&file, &config);
        Ok(Self { file, config, weights, fingerprint })
    }

    /// Sizes and constants.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file, for its metadata and its tokenizer.
    #[must_use]
    pub fn gguf(&self) -> &gguf::Model {
        &self.file
    }

    /// Tensors by role.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Number of token ids.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.weights.embed.rows
    }

    /// Equal for equal tensor tables and configurations: guards checkpoints, and is no proof of equal weights.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn fingerprint(file: &gguf::Model, config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{config:?}").hash(&mut hasher);
    for tensor in file.tensors() {
        tensor.name.hash(&mut hasher);
        (tensor.ty.id(), tensor.dims, tensor.extent.shard, tensor.extent.offset).hash(&mut hasher);
    }
    hasher.finish()
}
