//! The files of a reader: opened, compared with their mirrors, and sorted by drive.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::compare::{Copy, compare};
use crate::error::{OpenError, WhyBuffered};
use crate::options::{FileSet, Options};
use crate::probe;

/// Most paths of a set: one bit of a mask each.
const MAX_MIRRORS: usize = 32;
/// Most sets.
const MAX_SETS: usize = 1 << 16;

/// One path.
#[derive(Debug)]
pub struct OpenFile {
    /// Its name in errors and reports.
    pub path: Arc<Path>,
    /// Through the page cache.
    pub buffered: OwnedFd,
    /// Around it, if that works.
    pub direct: Result<probe::DirectFile, WhyBuffered>,
    /// Index of its drive.
    pub drive: usize,
}

impl OpenFile {
    /// The descriptor to read from.
    pub fn fd(&self, direct: bool) -> &OwnedFd {
        match &self.direct {
            Ok(file) if direct => &file.fd,
            _ => &self.buffered,
        }
    }

    /// Its length now.
    pub fn len(&self) -> Option<u64> {
        rustix::fs::fstat(&self.buffered).ok().and_then(|s| u64::try_from(s.st_size).ok())
    }
}

/// The files of one set, by their index among all.
#[derive(Clone, Debug)]
pub struct OpenSet {
    /// Its files: `first..first + n`.
    pub first: usize,
    /// How many.
    pub n: usize,
    /// What reads of it are widened to; 1 if none of its files is read directly.
    pub alignment: usize,
    /// Bytes of one I/O.
    pub piece: u64,
}

/// All files.
#[derive(Debug, Default)]
pub struct Files {
    /// Set after set.
    pub files: Vec<OpenFile>,
    /// As the caller numbers them.
    pub sets: Vec<OpenSet>,
    /// How many drives they are on.
    pub n_drives: usize,
}

impl Files {
    /// Opens and compares.
    pub fn open(sets: &[FileSet], options: &Options) -> Result<Self, OpenError> {
        if sets.len() > MAX_SETS {
            return Err(OpenError::SetCount { count: sets.len(), max: MAX_SETS });
        }
        let mut all = Self::default();
        // A drive is a file system and how often the set named it before: two paths of a set on one file system are
        // meant as two drives, or the second would have no purpose.
        let mut drives: Vec<(u64, usize)> = Vec::new();
        for (i, set) in sets.iter().enumerate() {
            let count = set.paths.len();
            if !(1..=MAX_MIRRORS).contains(&count) {
                return Err(OpenError::PathCount { set: i, count, max: MAX_MIRRORS });
            }
            let first = all.files.len();
            let mut seen: Vec<u64> = Vec::new();
            let mut model: Option<(File, u64)> = None;
            for path in &set.paths {
                let (file, len, device) = open(path)?;
                let drive = (device, seen.iter().filter(|d| **d == device).count());
                seen.push(device);
                let known = drives.iter().position(|d| *d == drive);
                let drive = known.unwrap_or_else(|| {
                    drives.push(drive);
                    drives.len() - 1
                });
                match &model {
                    Some((model, model_len)) => {
                        let first = Copy { path: &set.paths[0], file: model, len: *model_len };
                        compare(first, Copy { path, file: &file, len })?;
                    }
                    None => {
                        let error = |error| OpenError::Open { path: path.clone(), error };
                        model = Some((file.try_clone().map_err(error)?, len));
                    }
                }
                let buffered = OwnedFd::from(file);
                let direct = probe::direct(path, &buffered, len, options.direct);
                if options.drop_cache {
                    no_read_ahead(&buffered);
                }
                all.files.push(OpenFile { path: path.as_path().into(), buffered, direct, drive });
            }
            let aligned = all.files[first..].iter().filter_map(|f| f.direct.as_ref().ok());
            let alignment = aligned.map(|d| d.alignment).max().unwrap_or(1);
            let piece = u64::from(options.piece).next_multiple_of(alignment as u64);
            all.sets.push(OpenSet { first, n: count, alignment, piece });
        }
        all.n_drives = drives.len();
        Ok(all)
    }
}

fn open(path: &Path) -> Result<(File, u64, u64), OpenError> {
    let error = |error| OpenError::Open { path: path.into(), error };
    // Opening a pipe would wait for a writer: look before.
    if !std::fs::metadata(path).map_err(error)?.is_file() {
        return Err(OpenError::NotAFile(path.into()));
    }
    let file = File::open(path).map_err(error)?;
    let metadata = file.metadata().map_err(error)?;
    if !metadata.is_file() {
        return Err(OpenError::NotAFile(path.into()));
    }
    Ok((file, metadata.len(), metadata.dev()))
}

/// Reading ahead fills the cache with bytes that nobody asked for. A file system that does not know the advice is used
/// without it.
#[cfg(target_os = "linux")]
fn no_read_ahead(file: &OwnedFd) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
}

/// There is no such advice here.
#[cfg(not(target_os = "linux"))]
fn no_read_ahead(_: &OwnedFd) {}

/// Drops what was read from the page cache, whole pages around it too. It is advice: a failure changes nothing.
#[cfg(target_os = "linux")]
pub fn drop_cache(file: &OwnedFd, offset: u64, len: usize) {
    const PAGE: u64 = 4096;
    let begin = offset / PAGE * PAGE;
    let end = offset.saturating_add(len as u64).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    if let Some(len) = std::num::NonZeroU64::new(end - begin) {
        let _ = rustix::fs::fadvise(file, begin, Some(len), rustix::fs::Advice::DontNeed);
    }
}

/// There is no such advice here.
#[cfg(not(target_os = "linux"))]
pub fn drop_cache(_: &OwnedFd, _: u64, _: usize) {}
