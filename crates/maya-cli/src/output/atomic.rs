//! Files that exist whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

/// Files being written, so that a second Ctrl-C can remove them before it ends the process.
static TEMPORARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes what unfinished [`AtomicFile`]s left. For the way out only.
pub fn remove_temporaries() {
    let paths = TEMPORARIES.lock().map(|mut list| std::mem::take(&mut *list)).unwrap_or_default();
    for path in paths {
        let _ = fs::remove_file(path);
    }
}

/// A file that appears under its name whole (written beside it, synced, renamed) or not at all. What a process that was
/// killed left of an earlier one of the same name is removed.
///
/// A device or pipe (`/dev/null`, `/dev/stdout`) is written directly: it cannot be replaced by a rename.
pub struct AtomicFile {
    file: BufWriter<File>,
    target: PathBuf,
    temporary: Option<PathBuf>,
}

impl AtomicFile {
    /// Starts a file that will be `target`, or what it links to.
    pub fn create(target: &Path) -> Result<Self> {
        let path = tier_cache::end_of_links(target)
            .with_context(|| format!("{} cannot be written", target.display()))?;
        let say = || format!("{} cannot be written", path.display());
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => bail!("{}: it is a folder, not a file", say()),
            Ok(meta) if meta.file_type().is_block_device() => bail!("{}: it is a whole drive", say()),
            Ok(meta) if !meta.is_file() => {
                let file = open_special(&path).with_context(say)?;
                return Ok(Self {
                    file: BufWriter::with_capacity(1 << 20, file),
                    target: path,
                    temporary: None,
                });
            }
            _ => {}
        }
        if path.file_name().is_none() {
            bail!("{}: it has no file name", say());
        }
        let (temporary, file) = tier_cache::create_beside(&path).with_context(say)?;
        if let Ok(mut list) = TEMPORARIES.lock() {
            list.push(temporary.clone());
        }
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { file, target: path, temporary: Some(temporary) })
    }

    /// As [`create`](Self::create), for a file whose beginning is written last. A pipe or device is not even opened.
    pub fn create_seekable(target: &Path) -> Result<Self> {
        if fs::metadata(target).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            bail!(
                "{} cannot be written: its beginning is written last, which a pipe or device does not allow",
                target.display()
            );
        }
        Self::create(target)
    }

    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Writes `bytes` over the beginning of what was written: a header whose numbers are known only at the end. Of files that
    /// [`create_seekable`](Self::create_seekable) made.
    pub fn rewrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        let say = || format!("{} cannot be written", self.target.display());
        self.file.flush().with_context(say)?;
        self.file.seek(SeekFrom::Start(0)).with_context(say)?;
        self.file.write_all(bytes).with_context(say)?;
        self.file.seek(SeekFrom::End(0)).with_context(say).map(drop)
    }

    /// Makes it whole: flush, sync, rename, sync of the folder.
    pub fn commit(mut self) -> Result<()> {
        let say = || format!("{} cannot be written", self.target.display());
        self.file.flush().with_context(say)?;
        let Some(temporary) = self.temporary.clone() else { return Ok(()) };
        self.file.get_ref().sync_all().with_context(say)?;
        fs::rename(&temporary, &self.target).with_context(say)?;
        self.temporary = None;
        forget(&temporary);
        if let Some(folder) = self.target.parent().filter(|p| !p.as_os_str().is_empty()) {
            // Some filesystems refuse to sync a folder; the file itself is safe by then.
            let _ = File::open(folder).and_then(|f| f.sync_all());
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = fs::remove_file(&temporary);
            forget(&temporary);
        }
    }
}

fn forget(path: &Path) {
    if let Ok(mut list) = TEMPORARIES.lock() {
        list.retain(|p| p != path);
    }
}

/// Opens a pipe or device. A pipe that nobody reads is an error: waiting for a reader looks as if the work took long.
fn open_special(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = match File::options().write(true).custom_flags(nonblocking).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            return Err(io::Error::other("nobody reads the other end of this pipe"));
        }
        file => file?,
    };
    // From now on a full pipe is waited for.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_file_leaves_nothing_and_keeps_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Two files that were written to one path at once had one temporary file, and gave a mixture of both.
    #[test]
    fn files_of_one_name_do_not_meet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut two = [(); 2].map(|()| AtomicFile::create(&path).unwrap());
        two[0].write_all(b"a whole file").unwrap();
        two[1].write_all(b"another").unwrap();
        for (file, bytes) in two.into_iter().zip([&b"a whole file"[..], b"another"]) {
            file.commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_keeps_leading_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (link, end) = (folder.path().join("link"), folder.path().join("end"));
        std::os::unix::fs::symlink("end", &link).unwrap();
        for bytes in ["first, where nothing was", "then, over it"] {
            let mut file = AtomicFile::create(&link).unwrap();
            file.write_all(bytes.as_bytes()).unwrap();
            file.commit().unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(&end).unwrap(), bytes);
        }
    }

    /// It waited for ever for a reader of the pipe.
    #[test]
    fn a_pipe_that_nobody_reads_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        if !std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
            golden::skipped(format_args!("a pipe that nobody reads: mkfifo is not here"));
            return;
        }
        let error = format!("{:#}", AtomicFile::create(&pipe).err().unwrap());
        assert!(error.contains("pipe cannot be written: nobody reads"), "{error}");
        let error = AtomicFile::create_seekable(&pipe).err().unwrap().to_string();
        assert!(error.contains("a pipe or device does not allow"), "{error}");
        // With a reader more goes through than a pipe holds.
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap().len()
        });
        let mut file = loop {
            match AtomicFile::create(&pipe) {
                Ok(file) => break file,
                Err(_) => std::thread::yield_now(),
            }
        };
        file.write_all(&vec![7; 3 << 20]).unwrap();
        file.commit().unwrap();
        assert_eq!(reader.join().unwrap(), 3 << 20);
    }
}
