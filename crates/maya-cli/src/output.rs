//! What leaves the process: standard output, sentences on standard error, and files that exist whole or not at all.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

/// The reader of standard output went away (`maya … | head`). The program ends quietly with exit code 0.
#[derive(Debug)]
pub struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// Standard output, buffered; a closed pipe becomes [`StdoutClosed`].
pub struct Out(BufWriter<Box<dyn Write>>);

impl Out {
    /// A writer of its own; one at a time is used.
    pub fn new() -> Self {
        Self::to(Box::new(io::stdout()))
    }

    /// The same before another writer: tests read what was shown.
    pub fn to(writer: Box<dyn Write>) -> Self {
        Self(BufWriter::with_capacity(64 << 10, writer))
    }

    /// Writes text as it is.
    pub fn text(&mut self, text: &str) -> Result<()> {
        closed(self.0.write_all(text.as_bytes()))
    }

    /// Writes a line and flushes it, so that a reader of a pipe sees it at once.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        closed(writeln!(self.0, "{line}").and_then(|()| self.0.flush()))
    }

    /// Hands everything over.
    pub fn flush(&mut self) -> Result<()> {
        closed(self.0.flush())
    }
}

fn closed(result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        other => other.context("standard output cannot be written"),
    }
}

static JSON_LOG: AtomicBool = AtomicBool::new(false);

/// With `--log-format json` every line on standard error is a JSON object, sentences included.
pub fn sentences_as_json() {
    JSON_LOG.store(true, Ordering::Relaxed);
}

/// A sentence for the user on standard error. A closed standard error is ignored.
pub fn note(sentence: impl fmt::Display) {
    let sentence = printable(&sentence.to_string());
    if JSON_LOG.load(Ordering::Relaxed) {
        tracing::info!(target: "maya", "{sentence}");
    } else {
        let _ = writeln!(io::stderr(), "maya: {sentence}");
    }
}

/// The sentence of a failure on standard error.
pub fn failure(sentence: impl fmt::Display) {
    let sentence = printable(&sentence.to_string());
    if JSON_LOG.load(Ordering::Relaxed) {
        tracing::error!(target: "maya", "{sentence}");
    } else {
        let _ = writeln!(io::stderr(), "maya: {sentence}");
    }
}

/// One line without control characters: a name from a hostile file must not steer a terminal or break a log line.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Files being written, so that a second Ctrl-C can remove them before it ends the process.
static TEMPORARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes what unfinished [`AtomicFile`]s left. For the way out only.
pub fn remove_temporaries() {
    let paths = TEMPORARIES.lock().map(|mut list| std::mem::take(&mut *list)).unwrap_or_default();
    for path in paths {
        let _ = fs::remove_file(path);
    }
}

/// A file that appears under its name whole (written beside it, synced, renamed) or not at all.
///
/// A device or pipe (`/dev/null`, `/dev/stdout`) is written directly: it cannot be replaced by a rename.
pub struct AtomicFile {
    file: BufWriter<File>,
    target: PathBuf,
    temporary: Option<PathBuf>,
}

impl AtomicFile {
    /// Starts a file that will be `target`.
    pub fn create(target: &Path) -> Result<Self> {
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let say = || format!("{} cannot be written", target.display());
        match fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => bail!("{}: it is a folder, not a file", say()),
            Ok(meta) if !meta.is_file() => {
                let file = File::options().write(true).open(&target).with_context(say)?;
                return Ok(Self { file: BufWriter::with_capacity(1 << 20, file), target, temporary: None });
            }
            _ => {}
        }
        let Some(name) = target.file_name() else { bail!("{}: it has no file name", say()) };
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(temporary_name);
        let file =
            File::options().write(true).create(true).truncate(true).open(&temporary).with_context(say)?;
        if let Ok(mut list) = TEMPORARIES.lock() {
            list.push(temporary.clone());
        }
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), target, temporary: Some(temporary) })
    }

    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Writes `bytes` over the beginning of what was written: a header whose numbers are known only at the end.
    pub fn rewrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        let say = || format!("{} cannot be written", self.target.display());
        if self.temporary.is_none() {
            bail!("{}: its beginning is written last, which a pipe or device does not allow", say());
        }
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

/// Bytes for people, in powers of 1000 as drives and model cards count them: `1.45 GB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A count for people: `1,048,576`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_450_000_000), "1.45 GB");
        assert_eq!(bytes(96_460_000_000), "96.5 GB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(count(1_048_576), "1,048,576");
        assert_eq!(count(512), "512");
    }

    #[test]
    fn a_hostile_name_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\rb\nc\n"), "a\\u{1b}[2J\\rb c");
    }

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
}
