//! A file of blobs whose bytes follow from their number, so that every byte that arrives can be checked.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use nvme_reader::Part;
use tier_cache::ExpertId;

/// Blobs come in groups, each with slots of its own.
pub const GROUPS: u16 = 5;
/// Blobs of a group.
pub const BLOBS: u16 = 48;
/// Bytes of a blob's parts: no multiple of anything that a drive likes.
pub const PARTS: [u32; 3] = [20_011, 7_001, 12_345];

/// The file, removed when this is dropped.
pub struct Blobs {
    pub path: PathBuf,
}

impl Blobs {
    /// Part by part and then blob by blob, as files of weights are.
    pub fn write(path: PathBuf) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create_new(&path)?);
        let blobs = Self { path };
        for part in 0..PARTS.len() {
            for blob in 0..u32::from(GROUPS) * u32::from(BLOBS) {
                file.write_all(&contents(blob, part))?;
            }
        }
        file.into_inner()?.sync_all()?;
        Ok(blobs)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Blobs {
    fn drop(&mut self) {
        // It lies in the folder for temporary files: if it stays, the system removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where a blob's parts lie in the file.
pub fn parts(id: ExpertId) -> [Part; 3] {
    let all = u64::from(GROUPS) * u64::from(BLOBS);
    let mut start = 0;
    PARTS.map(|len| {
        let offset = start + u64::from(number(id)) * u64::from(len);
        start += all * u64::from(len);
        Part { offset, len }
    })
}

/// Whether these are the bytes of a blob's part.
pub fn is_part(id: ExpertId, part: usize, bytes: &[u8]) -> bool {
    bytes == contents(number(id), part)
}

fn number(id: ExpertId) -> u32 {
    u32::from(id.layer) * u32::from(BLOBS) + u32::from(id.expert)
}

fn contents(blob: u32, part: usize) -> Vec<u8> {
    let seed = u64::from(blob) << 2 | part as u64;
    let byte = |at: u64| ((seed << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..u64::from(PARTS[part])).map(byte).collect()
}
