//! Which file is meant: `--model`, `MAYA_MODEL`, or the demo model inside the binary.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{demo, output};

/// An opened file.
pub struct Source {
    /// How messages call it.
    pub name: String,
    /// Its path; `None` for the demo model, which is read from the binary itself.
    pub path: Option<PathBuf>,
    /// Header and bytes.
    pub model: gguf::Model,
}

impl Source {
    /// Opens what the user named, or the demo model with a line that says so.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let is_empty = path.is_some_and(|p| p.as_os_str().is_empty());
        // An empty MAYA_MODEL counts as unset; an empty argument is most likely a variable that is not set.
        if is_empty && !std::env::var_os("MAYA_MODEL").is_some_and(|value| value.is_empty()) {
            bail!("the path of the model is empty");
        }
        let Some(path) = path.filter(|_| !is_empty) else {
            output::note(
                "no --model given, so this is the small demo model inside the program (28 M parameters, simple English); \
                 point to a real file with --model PATH or MAYA_MODEL=PATH",
            );
            let model = gguf::Model::from_static(demo::NAME, demo::bytes())
                .context("the demo model inside this program is damaged")?;
            return Ok(Self { name: demo::NAME.to_owned(), path: None, model });
        };
        // gguf's errors name the file themselves.
        let model = gguf::Model::open(path)?;
        Ok(Self { name: path.display().to_string(), path: Some(path.to_owned()), model })
    }

    /// Bytes of all shards.
    pub fn len(&self) -> u64 {
        self.model.shards().iter().map(|s| s.len).sum()
    }
}
