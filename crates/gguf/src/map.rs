//! The bytes of a file: a memory map or a static slice. The only file of this crate with `unsafe`.

use std::fs::File;

/// A file's bytes, wherever they are.
pub(crate) enum Bytes {
    Map(memmap2::Mmap),
    Static(&'static [u8]),
}

impl Bytes {
    /// Maps a whole file for reading. An empty file gives no bytes.
    pub(crate) fn map(file: &File) -> std::io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::Static(&[]));
        }
        // SAFETY: a map is only sound while nobody shortens or rewrites the file under it. Nothing in this process
        // does: model files are opened for reading only, and writers make a new file and rename it. Against other
        // processes there is no guard; the README of this crate tells the user not to overwrite a file in use.
        let map = unsafe { memmap2::Mmap::map(file)? };
        Ok(Self::Map(map))
    }

    /// Asks the system to bring a range into memory, which is inside the bytes. Without a map there is nothing to ask.
    pub(crate) fn will_need(&self, range: std::ops::Range<usize>) {
        if let Self::Map(map) = self {
            // Advice only: what it does not bring is read when it is touched.
            let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Static(bytes) => bytes,
        }
    }
}
