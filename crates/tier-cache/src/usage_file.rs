//! Usage on the drive. A save is a new file, synchronised and then renamed, so that whenever the program dies the file
//! is the old one or the new one. It takes the place of nothing but usage: a file that holds something else, a pipe or a
//! device stays, and the save is refused.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::beside::{create_beside, end_of_links, folder_of};
use crate::usage::{Ignored, MAGIC, MAX_FILE_BYTES, Usage};

/// What loading found.
#[derive(Debug)]
pub enum Loaded {
    /// A file of this model.
    Usage(Usage),
    /// No file, or an empty one: a first run.
    Absent,
    /// A file that is of no use, and why. The next save replaces it.
    Ignored(Ignored),
}

/// Why usage was not saved. The file at its path is whole: the old one, or the new one if only the folder could not be
/// synchronised.
#[derive(Debug, thiserror::Error)]
#[error("usage was not saved: {} could not be {step}: {source}", path.display())]
pub struct SaveError {
    /// The file or folder that the step was about.
    pub path: Box<Path>,
    /// What the system said.
    pub source: io::Error,
    step: &'static str,
}

impl Usage {
    /// Loads the file at `path`, if it is of the model that `identity` names (see [`Usage::encode`]).
    pub fn load(path: &Path, identity: &[u8]) -> Loaded {
        match read(path) {
            Ok(bytes) if bytes.is_empty() => Loaded::Absent,
            Ok(bytes) => Self::decode(&bytes, identity).map_or_else(Loaded::Ignored, Loaded::Usage),
            Err(Ignored::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => Loaded::Absent,
            Err(why) => Loaded::Ignored(why),
        }
    }

    /// Whether [`save`](Self::save) may put a file at `path`: nothing is there, an empty file, or one that begins as usage
    /// does, of whatever model and however damaged. To be asked before the work whose result is to be saved.
    ///
    /// # Errors
    /// What is there is something else, or cannot be looked at.
    pub fn may_save(path: &Path) -> Result<(), SaveError> {
        let path = resolve(path)?;
        replaceable(&path).map_err(failed("replaced", &path))
    }

    /// Replaces the file at `path`, or the one that it links to, and removes what processes that died while they saved
    /// left beside it. Returns when the drive has it.
    ///
    /// # Errors
    /// As [`may_save`](Self::may_save), and what the system refuses, with the path and the step.
    pub fn save(&self, path: &Path, identity: &[u8]) -> Result<(), SaveError> {
        let path = &*resolve(path)?;
        replaceable(path).map_err(failed("replaced", path))?;
        let folder = folder_of(path);
        let bytes = self.encode(identity);
        let (new, file) = create_beside(path).map_err(failed("given a new file", folder))?;
        let written = write(&new, file, &bytes, path);
        if written.is_err() {
            // If this fails too the next save removes it.
            let _ = std::fs::remove_file(&new);
        }
        written?;
        sync_folder(folder).map_err(failed("synchronised", folder))
    }
}

fn resolve(path: &Path) -> Result<PathBuf, SaveError> {
    end_of_links(path).map_err(failed("found", path))
}

fn replaceable(path: &Path) -> io::Result<()> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    let data = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        data => data?,
    };
    // Before it is opened: opening a pipe waits for its other end.
    if !data.is_file() {
        return refused("a folder, pipe or device is there");
    }
    let mut start = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    if start.is_empty() || start == MAGIC { Ok(()) } else { refused("a file that is not usage is there") }
}

fn read(path: &Path) -> Result<Vec<u8>, Ignored> {
    // Before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Ignored::NotAFile);
    }
    let mut bytes = Vec::new();
    // One more than allowed, since the file may have grown meanwhile.
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Ignored::TooLarge { bytes: std::fs::metadata(path)?.len() });
    }
    Ok(bytes)
}

fn write(new: &Path, mut file: File, bytes: &[u8], path: &Path) -> Result<(), SaveError> {
    file.write_all(bytes).map_err(failed("written", new))?;
    file.sync_all().map_err(failed("synchronised", new))?;
    std::fs::rename(new, path).map_err(failed("replaced", path))
}

/// Makes the rename last. Not every file system can synchronise a folder; those that cannot say so.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        done => done,
    }
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SaveError {
    let path = path.into();
    move |source| SaveError { path, source, step }
}
