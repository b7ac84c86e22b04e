//! The health of a model's files: whether each is there and as long as its header needs, and whether a download left it
//! unfinished. Works on files that cannot be opened as a model, which is when it matters.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use gguf::{Fault, Header, TensorInfo, limits};
use serde_json::{Value as Json, json};

use super::{Finding, several};
use crate::output::{bytes, count};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) shards: Vec<Shard>,
    /// Paths of shards that the names of the others promise.
    missing: Vec<PathBuf>,
    /// What unfinished downloads left beside them.
    leftovers: Vec<PathBuf>,
}

/// One file.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) len: Option<u64>,
    /// Bytes that its header needs.
    needed: Option<u64>,
    tensors: Option<usize>,
    /// A sentence about what is wrong, without the path.
    trouble: Option<String>,
}

/// Zeros at the end that mean an unfinished download: no megabyte of packed weights is all zero.
const ZEROS: u64 = 1 << 20;
/// Most sentences and names in a line.
const SHOWN: usize = 4;
/// How the usual tools call what they have not finished.
const UNFINISHED: [&str; 8] =
    [".part", ".partial", ".incomplete", ".crdownload", ".download", ".aria2", ".tmp", ".!qb"];

impl Files {
    /// Looks at the files of an opened model.
    pub(super) fn of(shards: &[PathBuf]) -> Self {
        let mut it = Self { shards: shards.iter().map(|p| Shard::of(p)).collect(), ..Self::default() };
        it.leftovers = leftovers(&it.folders());
        it
    }

    /// Looks at what `path` names, a model that cannot be opened: a file, its siblings, or a folder.
    pub(super) fn named(path: &Path) -> Self {
        let given: Vec<PathBuf> = if path.is_dir() {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| is_model(p)).collect();
            found.sort();
            found.truncate(limits::SHARDS as usize);
            found
        } else {
            vec![path.to_owned()]
        };
        let mut paths = given.clone();
        for path in &given {
            paths.extend(siblings(path));
        }
        paths.sort();
        paths.dedup();
        // Whatever is wrong with a path, its own sentence says it; a sibling that is not there is missing.
        let is_here = |path: &PathBuf| given.contains(path) || fs::symlink_metadata(path).is_ok();
        let (here, missing): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(is_here);
        let mut it = Self { shards: here.iter().map(|p| Shard::of(p)).collect(), missing, ..Self::default() };
        let folders = if path.is_dir() { vec![path.to_owned()] } else { it.folders() };
        it.leftovers = leftovers(&folders);
        it
    }

    fn folders(&self) -> Vec<PathBuf> {
        let parent = |s: &Shard| {
            let parent = s.path.parent()?;
            Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
        };
        let mut folders: Vec<PathBuf> = self.shards.iter().filter_map(parent).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// Numbers of file systems that the files are on.
    pub(super) fn devices(&self) -> Vec<u64> {
        let device = |s: &Shard| Some(fs::metadata(&s.path).ok()?.dev());
        let mut devices: Vec<u64> = self.shards.iter().filter_map(device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    pub(super) fn finding(&self) -> Finding {
        let mut said: Vec<String> = self
            .shards
            .iter()
            .filter_map(|s| Some(format!("{} {}", name(&s.path), s.trouble.as_ref()?)))
            .collect();
        if !self.missing.is_empty() {
            let names: Vec<String> = self.missing.iter().map(|p| name(p)).collect();
            let verb = if names.len() == 1 { "is missing" } else { "are missing" };
            said.insert(0, format!("{} {verb}", brief(&names)));
        }
        let mut found = match (said.is_empty(), self.shards.len()) {
            (true, 0) => "no GGUF file is here".to_owned(),
            (true, 1) => "whole: as long as its header needs".to_owned(),
            (true, n) => format!("{} and whole: each as long as its header needs", several(n, "file")),
            (false, _) => brief_with(&said, "; "),
        };
        if !self.leftovers.is_empty() {
            let names: Vec<String> = self.leftovers.iter().map(|p| name(p)).collect();
            let it = if names.len() == 1 { "it" } else { "they" };
            found.push_str(&format!(
                "; beside it lies {}: {it} may belong to a download that is not finished",
                brief(&names)
            ));
        }
        let shards: Vec<Json> = self
            .shards
            .iter()
            .map(|s| {
                json!({
                    "path": s.path.display().to_string(),
                    "bytes": s.len,
                    "needed": s.needed,
                    "tensors": s.tensors,
                    "trouble": s.trouble,
                })
            })
            .collect();
        let list =
            |paths: &[PathBuf]| -> Vec<String> { paths.iter().map(|p| p.display().to_string()).collect() };
        let facts = json!({
            "whole": said.is_empty() && !self.shards.is_empty(),
            "shards": shards,
            "missing": list(&self.missing),
            "unfinished_downloads": list(&self.leftovers),
            "file_systems": self.devices().len(),
        });
        Finding::new("files", found, facts)
    }
}

impl Shard {
    fn of(path: &Path) -> Self {
        let mut it = Self { path: path.to_owned(), len: None, needed: None, tensors: None, trouble: None };
        it.trouble = it.look().unwrap_or_else(|error| Some(format!("cannot be read: {error}")));
        it
    }

    /// What is wrong, if anything.
    fn look(&mut self) -> io::Result<Option<String>> {
        let meta = fs::metadata(&self.path)?;
        // Opening a pipe would wait for a writer: look before.
        if !meta.is_file() {
            let what = if meta.is_dir() { "is a folder, not a file" } else { "is no regular file" };
            return Ok(Some(what.to_owned()));
        }
        let len = meta.len();
        self.len = Some(len);
        let file = File::open(&self.path)?;
        let header = match header(&file, len)? {
            Ok(header) => header,
            Err(error) => {
                let cut = matches!(error.fault, Fault::CutOff { .. } | Fault::Claims { .. });
                let hint = if cut { ": a download that did not get beyond the header" } else { "" };
                return Ok(Some(format!("has no usable header ({error}){hint}")));
            }
        };
        let mut tensors: Vec<&TensorInfo> = header.tensors.iter().collect();
        tensors.sort_by_key(|t| end(t));
        let needed = tensors.last().map_or(header.data_start.min(len), |t| end(t));
        (self.needed, self.tensors) = (Some(needed), Some(tensors.len()));
        let Some(last) = tensors.last() else { return Ok(None) };
        if needed > len {
            let cut: Vec<&&TensorInfo> = tensors.iter().filter(|t| end(t) > len).collect();
            return Ok(Some(format!(
                "ends at byte {}, and its header needs {}: {} are missing, from tensor {} on ({}), as after a download that was \
                 interrupted",
                count(len),
                count(needed),
                bytes(needed - len),
                cut[0].name,
                several(cut.len(), "tensor")
            )));
        }
        if let Some(from) = zeros(&file, &tensors)? {
            return Ok(Some(format!(
                "is zero from tensor {from} on, at least at the end of each: a download that reserved the space and did not fill \
                 it"
            )));
        }
        // Writers may fill up to the alignment, no further.
        if len - needed >= header.alignment.max(4096) {
            return Ok(Some(format!(
                "is {} longer than its header needs: its last tensor, {}, ends at byte {}, and what follows is foreign",
                bytes(len - needed),
                last.name,
                count(needed)
            )));
        }
        let stored = meta.blocks().saturating_mul(512);
        if needed > ZEROS && stored < needed / 10 * 9 {
            return Ok(Some(format!(
                "has only {} of its {} stored: it has holes, as a download in several pieces leaves them, or its file system \
                 compresses",
                bytes(stored),
                bytes(len)
            )));
        }
        Ok(None)
    }
}

fn end(tensor: &TensorInfo) -> u64 {
    tensor.extent.offset.saturating_add(tensor.extent.len)
}

/// The header, of a file that may be cut: tensors may lie beyond its end.
fn header(file: &File, len: u64) -> io::Result<Result<Header, gguf::HeaderError>> {
    // The published model's header has about 10 MB, most of it vocabulary.
    let mut known = 4 << 20;
    loop {
        let n = len.min(known);
        let mut head = vec![0; n as usize];
        file.read_exact_at(&mut head, 0)?;
        match Header::parse(&head, i64::MAX as u64) {
            Err(error) if known < len.min(limits::HEADER_BYTES) => match error.fault {
                Fault::CutOff { .. } | Fault::Claims { .. } => known = (known * 4).min(limits::HEADER_BYTES),
                _ => return Ok(Err(error)),
            },
            parsed => return Ok(parsed),
        }
    }
}

/// The first tensor of the zeros at the end, if there are enough of them. `tensors` are sorted by their end.
fn zeros(file: &File, tensors: &[&TensorInfo]) -> io::Result<Option<String>> {
    let (Some(first), Some(last)) = (tensors.first(), tensors.last()) else { return Ok(None) };
    let begin = end(last).saturating_sub(ZEROS);
    if begin < first.extent.offset || !all_zero(file, begin, ZEROS)? {
        return Ok(None);
    }
    let mut from = *last;
    for tensor in tensors.iter().rev() {
        let n = tensor.extent.len.min(4096);
        if !all_zero(file, end(tensor) - n, n)? {
            break;
        }
        from = tensor;
    }
    Ok(Some(from.name.to_string()))
}

fn all_zero(file: &File, from: u64, len: u64) -> io::Result<bool> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes.iter().all(|&b| b == 0))
}

/// Every shard of the set that this one's name belongs to; none for other names.
fn siblings(path: &Path) -> Vec<PathBuf> {
    let parse = || {
        let name = path.file_name()?.to_str()?;
        let (stem, extension) = name.split_at_checked(name.len().checked_sub(5)?)?;
        let (rest, total) = stem.rsplit_once("-of-")?;
        let (prefix, no) = rest.rsplit_once('-')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let fits = extension.eq_ignore_ascii_case(".gguf") && no.len() == total.len();
        let n: u64 = total.parse().ok().filter(|_| fits && is_number(no) && is_number(total))?;
        let digits = no.len();
        let sibling = |no: u64| path.with_file_name(format!("{prefix}-{no:0digits$}-of-{total}{extension}"));
        (2..=limits::SHARDS).contains(&n).then(|| (1..=n).map(sibling).collect())
    };
    parse().unwrap_or_default()
}

fn is_model(path: &Path) -> bool {
    let name = name(path);
    !name.starts_with('.') && name.to_ascii_lowercase().ends_with(".gguf")
}

/// Unfinished downloads in these folders, and where the tools of Hugging Face keep theirs.
fn leftovers(folders: &[PathBuf]) -> Vec<PathBuf> {
    let hidden = folders.iter().map(|f| f.join(".cache/huggingface/download"));
    let mut found = Vec::new();
    for (folder, any) in folders.iter().map(|f| (f.clone(), false)).chain(hidden.map(|f| (f, true))) {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
            let name = name(&path).to_ascii_lowercase();
            let unfinished = UNFINISHED.iter().any(|end| name.ends_with(end));
            if unfinished && (name.contains(".gguf") || any && name.ends_with(".incomplete")) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.truncate(64);
    found
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

fn brief(names: &[String]) -> String {
    brief_with(names, ", ")
}

fn brief_with(list: &[String], between: &str) -> String {
    let shown = list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(between);
    match list.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}{between}and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use gguf::{GgmlType, Layout};

    use super::*;

    /// A file with three tensors of 2 MB each, filled with `byte`.
    fn write(path: &Path, byte: u8) -> u64 {
        let mut layout = Layout::new();
        for name in ["a", "b", "c"] {
            layout.tensor(name, GgmlType::F32, &[1 << 19]).unwrap();
        }
        let mut writer = layout.write_to(File::create(path).unwrap()).unwrap();
        for name in ["a", "b", "c"] {
            let byte = if name == "a" { 1 } else { byte };
            writer.tensor(name, &vec![byte; 2 << 20]).unwrap();
        }
        writer.finish().unwrap();
        fs::metadata(path).unwrap().len()
    }

    #[track_caller]
    fn trouble(path: &Path, says: &[&str]) {
        let finding = Files::named(path).finding();
        for part in says {
            assert!(finding.found.contains(part), "{part:?} is not in: {}", finding.found);
        }
        assert_eq!(finding.facts["whole"], false, "{finding:?}");
    }

    #[test]
    fn whole_cut_long_and_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let len = write(&path, 9);
        let finding = Files::named(&path).finding();
        assert_eq!(finding.found, "whole: as long as its header needs");
        assert_eq!(
            (&finding.facts["shards"][0]["tensors"], &finding.facts["whole"]),
            (&json!(3), &json!(true))
        );
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(len - (3 << 20)).unwrap();
        trouble(
            &path,
            &["m.gguf ends at byte", "3.15 MB are missing", "from tensor b on (2 tensors)", "interrupted"],
        );
        file.set_len(50).unwrap();
        trouble(&path, &["no usable header", "did not get beyond the header"]);
        file.set_len(0).unwrap();
        trouble(&path, &["no usable header"]);
        write(&path, 9);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(len + 5_000_000).unwrap();
        trouble(&path, &["is 5.00 MB longer than its header needs", "its last tensor, c,"]);
        write(&path, 0);
        trouble(&path, &["is zero from tensor b on"]);
        fs::write(&path, "no model").unwrap();
        trouble(&path, &["m.gguf has no usable header"]);
    }

    #[test]
    fn holes_are_told_apart_from_weights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let len = write(&path, 9);
        // The last tensor is there, and what is before it was never written.
        let file = File::create(&path).unwrap();
        let mut layout = Layout::new();
        for name in ["a", "b", "c"] {
            layout.tensor(name, GgmlType::F32, &[1 << 19]).unwrap();
        }
        drop(layout.write_to(&file).unwrap());
        file.set_len(len).unwrap();
        file.write_all_at(&vec![9; 2 << 20], len - (2 << 20)).unwrap();
        if fs::metadata(&path).unwrap().blocks() * 512 > len / 2 {
            golden::skipped(format_args!("holes_are_told_apart_from_weights: this file system has no holes"));
            return;
        }
        trouble(&path, &["m.gguf has only", "holes"]);
    }

    #[test]
    fn sets_folders_and_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let shard = |no: u32| folder.path().join(format!("m-{no:05}-of-00004.gguf"));
        write(&shard(2), 9);
        write(&shard(3), 9);
        File::options().write(true).open(shard(3)).unwrap().set_len(3 << 20).unwrap();
        fs::write(folder.path().join("m-00004-of-00004.gguf.part"), "").unwrap();
        fs::create_dir_all(folder.path().join(".cache/huggingface/download")).unwrap();
        fs::write(folder.path().join(".cache/huggingface/download/abc.incomplete"), "").unwrap();
        fs::write(folder.path().join("notes.part"), "").unwrap();
        for path in [shard(2), folder.path().to_owned()] {
            trouble(
                &path,
                &[
                    "m-00001-of-00004.gguf, m-00004-of-00004.gguf are missing",
                    "m-00003-of-00004.gguf ends at byte",
                    "abc.incomplete, m-00004-of-00004.gguf.part",
                ],
            );
        }
        let finding = Files::named(&shard(2)).finding();
        assert_eq!(finding.facts["missing"].as_array().unwrap().len(), 2);
        assert_eq!(finding.facts["unfinished_downloads"].as_array().unwrap().len(), 2);
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(Files::named(empty.path()).finding().found, "no GGUF file is here");
    }

    #[test]
    fn what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("f.gguf");
        fs::create_dir(&inside).unwrap();
        // A folder is a folder of models; as a shard among others it is none.
        let finding = Files::named(folder.path()).finding();
        assert!(finding.found.contains("f.gguf is a folder, not a file"), "{finding:?}");
        trouble(&folder.path().join("absent.gguf"), &["absent.gguf cannot be read: No such file"]);
        let link = folder.path().join("l.gguf");
        symlink("/nonexistent/blob", &link).unwrap();
        trouble(&link, &["l.gguf cannot be read"]);
        let fifo = folder.path().join("p.gguf");
        if std::process::Command::new("mkfifo").arg(&fifo).status().is_ok_and(|s| s.success()) {
            trouble(&fifo, &["p.gguf is no regular file"]);
        }
        trouble(Path::new("/dev/null"), &["null is no regular file"]);
    }

    #[test]
    fn names_of_sets() {
        let n = |name: &str| siblings(Path::new(name)).len();
        assert_eq!(n("d/m-00002-of-00003.gguf"), 3);
        assert_eq!(siblings(Path::new("d/m-2-of-3.GGUF"))[0], Path::new("d/m-1-of-3.GGUF"));
        for other in
            ["m.gguf", "m-1-of-1.gguf", "m-01-of-3.gguf", "m-x-of-3.gguf", "-of-.gguf", "é.gguf", "", ".."]
        {
            assert_eq!(n(other), 0, "{other}");
        }
        assert_eq!(n("m-00001-of-99999.gguf"), 0, "more than any model has");
    }
}
