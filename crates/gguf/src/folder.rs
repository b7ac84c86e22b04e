//! From a folder to the one model in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::model::Part;
use crate::phrase::Names;
use crate::shards::SplitName;

/// A file of the folder's one model: the whole file, or the first shard that is there.
///
/// Vision projectors (architecture `clip`) are passed over when another model is beside them; hidden files always.
pub(crate) fn model_in(folder: &Path) -> Result<PathBuf, Error> {
    let mut models = BTreeMap::new();
    let entries = std::fs::read_dir(folder).map_err(|error| Error::io(folder, error))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| Error::io(folder, error))?.path());
    }
    paths.sort();
    for path in paths {
        let Some(name) = path.file_name().and_then(|it| it.to_str()) else { continue };
        if name.starts_with('.') || !name.to_ascii_lowercase().ends_with(".gguf") || !path.is_file() {
            continue;
        }
        let label = match SplitName::parse(name) {
            Some(split) if split.count > 1 => format!("{} (a set of {})", split.set(), split.count),
            _ => name.to_owned(),
        };
        models.entry(label).or_insert(path);
    }
    if models.len() > 1 && models.values().any(|path| !is_projector(path)) {
        models.retain(|_, path| !is_projector(path));
    }
    let names = Names(models.keys().cloned().collect());
    let mut paths = models.into_values();
    match (paths.next(), paths.next()) {
        (None, _) => Err(Error::EmptyFolder(folder.into())),
        (Some(only), None) => Ok(only),
        _ => Err(Error::ManyModels { path: folder.into(), names }),
    }
}

/// A file that cannot be read is none: it then counts as a model, and opening it says what is wrong.
fn is_projector(path: &Path) -> bool {
    Part::open(path)
        .is_ok_and(|part| part.header.metadata.str("general.architecture").ok().flatten() == Some("clip"))
}
