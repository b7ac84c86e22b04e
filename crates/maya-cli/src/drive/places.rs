//! Where blobs are read: at random, every place of every file equally likely.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// Places are multiples of this, the largest block of usual drives: no read is widened.
const STEP: u64 = 4096;

/// An endless row of places.
#[derive(Clone, Debug)]
pub struct Places {
    /// Of each file: its number and how many places it has.
    files: Vec<(u32, u64)>,
    total: u64,
    state: u64,
}

impl Places {
    /// For blobs of `blob` bytes that lie whole in one of the files.
    ///
    /// # Errors
    /// There is no such file, or one cannot be asked.
    pub fn of(paths: &[PathBuf], blob: u32, seed: u64) -> Result<Self> {
        if paths.is_empty() {
            bail!("there is no file to read");
        }
        let mut files = Vec::new();
        for (i, path) in paths.iter().enumerate() {
            let meta = fs::metadata(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
            if !meta.is_file() {
                bail!("{}: is not a file", path.display());
            }
            if let Some(last) = meta.len().checked_sub(u64::from(blob)) {
                files.push((i as u32, last / STEP + 1));
            }
        }
        let total = files.iter().map(|(_, n)| n).sum();
        if total == 0 {
            bail!("every file is shorter than the {blob} bytes of one read");
        }
        Ok(Self { files, total, state: seed })
    }

    /// The next place: which file, and where.
    pub fn draw(&mut self) -> (u32, u64) {
        let mut place = self.random() % self.total;
        for &(file, n) in &self.files {
            if place < n {
                return (file, place * STEP);
            }
            place -= n;
        }
        (self.files[0].0, 0)
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_by_its_length_and_none_that_is_too_short() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = [100_000, 5_000, 20_000]
            .into_iter()
            .enumerate()
            .map(|(i, len)| {
                let path = folder.path().join(i.to_string());
                fs::write(&path, vec![0; len]).unwrap();
                path
            })
            .collect();
        let mut places = Places::of(&paths, 10_000, 3).unwrap();
        let mut counts = [0; 3];
        for _ in 0..1000 {
            let (file, offset) = places.draw();
            let len = [100_000, 5_000, 20_000][file as usize];
            assert!(offset.is_multiple_of(STEP) && offset + 10_000 <= len, "{file} {offset}");
            counts[file as usize] += 1;
        }
        // 22 places and 3.
        assert!(counts[1] == 0 && counts[0] > 700 && counts[2] > 40, "{counts:?}");
    }
}
