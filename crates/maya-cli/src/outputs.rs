//! Which files a command writes. None of them may take the place of what the command reads, or of one another.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::engine::Engine;

/// Outputs by their flags, as far as they were given.
pub type Outputs<'a> = [(&'a str, Option<&'a Path>)];

/// Refuses outputs that name one of `inputs` (what it is, and its path), or the same file twice. To be asked before
/// anything is computed.
///
/// # Errors
/// A sentence with the flag and the path.
pub fn check(outputs: &Outputs<'_>, inputs: &[(&str, &Path)]) -> Result<()> {
    let places: Vec<_> = inputs.iter().map(|(what, path)| (*what, Place::of(path))).collect();
    let mut seen: Vec<(&str, Place)> = Vec::new();
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        // A device or pipe is not replaced; whoever names it twice gets what comes.
        if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            continue;
        }
        let place = Place::of(path);
        if let Some((what, _)) = places.iter().find(|(_, input)| input.is(&place)) {
            bail!("{flag} {}: this is {what}, and would be replaced", path.display());
        }
        if let Some((other, _)) = seen.iter().find(|(_, other)| other.is(&place)) {
            bail!("{other} and {flag} name the same file: {}", path.display());
        }
        seen.push((flag, place));
    }
    Ok(())
}

/// As [`check`], with the files of the running model and its mirrors among the inputs.
///
/// # Errors
/// As there.
pub fn check_beside(engine: &Engine, outputs: &Outputs<'_>, inputs: &[(&str, &Path)]) -> Result<()> {
    let mut all = inputs.to_vec();
    all.extend(engine.model.gguf().shards().iter().map(|shard| ("a file of the model", &*shard.path)));
    let mirrors = engine.options.tiers.iter().flat_map(|tiers| tiers.mirrors.iter().flatten());
    all.extend(mirrors.map(|path| ("a file of a mirror of the model", path.as_path())));
    check(outputs, &all)
}

/// Where a file is or would be: by any name that leads there.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Device and inode of what is there.
    file: Option<(u64, u64)>,
}

impl Place {
    fn of(path: &Path) -> Self {
        let mut end = tier_cache::end_of_links(path).unwrap_or_else(|_| path.to_owned());
        let folder = end.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let (Ok(folder), Some(name)) = (fs::canonicalize(folder), end.file_name()) {
            end = folder.join(name);
        }
        Self { file: device_and_inode(&end), path: end }
    }

    fn is(&self, other: &Self) -> bool {
        self.path == other.path || (self.file.is_some() && self.file == other.file)
    }
}

/// Device and inode of what is at `path`: equal for all names of one file. `None` where nothing can be looked at.
pub fn device_and_inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("model"), "weights").unwrap();
        fs::create_dir(at("sub")).unwrap();
        std::os::unix::fs::symlink("../model", at("sub/link")).unwrap();
        std::os::unix::fs::symlink("later", at("dangling")).unwrap();
        fs::hard_link(at("model"), at("hard")).unwrap();
        let refused = |outputs: &[(&str, &str)]| {
            let paths: Vec<_> = outputs.iter().map(|(flag, name)| (*flag, at(name))).collect();
            let outputs: Vec<_> = paths.iter().map(|(flag, path)| (*flag, Some(path.as_path()))).collect();
            check(&outputs, &[("the model", &at("model"))]).err().map(|error| error.to_string())
        };
        for name in ["model", "sub/../model", "sub/link", "hard"] {
            let error = refused(&[("--out", name)]).unwrap();
            assert!(error.contains("this is the model, and would be replaced"), "{name}: {error}");
        }
        for (a, b) in [("new", "new"), ("new", "sub/../new"), ("dangling", "later")] {
            let error = refused(&[("--out", a), ("--dump-routes", b)]).unwrap();
            assert!(error.starts_with("--out and --dump-routes name the same file"), "{error}");
        }
        assert_eq!(refused(&[("--out", "new"), ("--dump-routes", "newer")]), None);
        check(&[("--out", Some(Path::new("/dev/null"))), ("--save", Some(Path::new("/dev/null")))], &[])
            .unwrap();
        check(&[("--out", None)], &[]).unwrap();
    }
}
