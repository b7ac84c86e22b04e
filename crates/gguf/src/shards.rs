//! Split sets: from any shard to all of them, in order, and only if they belong together (model-spec 9.4).
//!
//! A set is known by its names, `<prefix>-00002-of-00003.gguf` (from 1), and by the keys `split.no` (from 0),
//! `split.count` and `split.tensors.count`, in any integer width. Where both speak they must agree.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits;
use crate::model::Part;
use crate::phrase::Quoted;

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// A file name of the form `<prefix>-<no>-of-<count>.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitName<'a> {
    prefix: &'a str,
    digits: usize,
    extension: &'a str,
    pub(crate) no: u64,
    pub(crate) count: u64,
}

impl<'a> SplitName<'a> {
    /// `None` for any other name, also for a number that is 0 or above the count.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let dot = name.len().checked_sub(5)?;
        let (stem, extension) = name.split_at_checked(dot)?;
        if !extension.eq_ignore_ascii_case(".gguf") {
            return None;
        }
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, no) = rest.rsplit_once('-')?;
        let digits = no.len();
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            if digits { text.parse::<u64>().ok() } else { None }
        };
        let (no, count) = (number(no)?, number(count).filter(|_| count.len() == digits)?);
        (1..=count).contains(&no).then_some(Self { prefix, digits, extension, no, count })
    }

    /// The name of another shard of the set.
    fn sibling(&self, no: u64) -> String {
        let Self { prefix, digits, extension, count, .. } = self;
        format!("{prefix}-{no:0digits$}-of-{count:0digits$}{extension}")
    }

    /// The set's own name: the same for all its shards.
    pub(crate) fn set(&self) -> String {
        self.sibling(1)
    }
}

fn name_of(path: &Path) -> Option<SplitName<'_>> {
    path.file_name()?.to_str().and_then(SplitName::parse)
}

fn key(part: &Part, key: &str) -> Result<Option<u64>, Error> {
    part.header.metadata.u64(key).map_err(|error| Error::Metadata { path: part.path.clone(), error })
}

/// `split.count`; 0 and a missing key mean that the file is whole (0 is what a merge leaves behind).
pub(crate) fn declared_count(part: &Part) -> Result<Option<u64>, Error> {
    Ok(key(part, COUNT)?.filter(|&count| count > 0))
}

/// How many tensors the set should have, if it is one and says so.
pub(crate) fn declared_tensors(parts: &[Part]) -> Result<Option<u64>, Error> {
    match parts {
        [first, _, ..] => key(first, TENSORS),
        _ => Ok(None),
    }
}

/// All parts of the set that `part` belongs to, in order; alone if it is a whole file.
pub(crate) fn complete(part: Part) -> Result<Vec<Part>, Error> {
    let declared = declared_count(&part)?;
    let path = part.path.clone();
    let Some(name) = name_of(&path) else {
        return match declared {
            Some(count) if count > 1 => {
                let no = key(&part, NO)?.unwrap_or(0).saturating_add(1);
                Err(Error::ShardName { path, no, count })
            }
            _ => Ok(vec![part]),
        };
    };
    if let Some(found) = declared.filter(|&found| found != name.count) {
        return Err(Error::ShardCount { path: path.clone(), found, named: name.count });
    }
    if name.count == 1 {
        return Ok(vec![part]);
    }
    if name.count > limits::SHARDS {
        return Err(Error::ManyShards { path: path.clone(), count: name.count });
    }
    let mut given = Some(part);
    let mut missing: Option<(u64, PathBuf)> = None;
    let mut parts = Vec::new();
    for no in 1..=name.count {
        let sibling = if no == name.no { given.take() } else { None };
        let sibling = match sibling {
            Some(part) => part,
            None => {
                let path = path.with_file_name(name.sibling(no));
                match Part::open(&path) {
                    Ok(part) => part,
                    Err(Error::NotFound(_)) => {
                        missing.get_or_insert((no, path));
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        parts.push((no, sibling));
    }
    check(&parts, name.count)?;
    match missing {
        None => Ok(parts.into_iter().map(|(_, part)| part).collect()),
        Some((no, path)) => {
            let here: u64 = parts.iter().map(|(_, part)| part.header.tensors.len() as u64).sum();
            let total = parts.first().map_or(Ok(None), |(_, part)| key(part, TENSORS))?;
            let n_tensors = total.and_then(|total| total.checked_sub(here));
            Err(Error::ShardMissing { path, no, count: name.count, n_tensors })
        }
    }
}

/// The parts that are there agree with their names and with the first of them.
fn check(parts: &[(u64, Part)], count: u64) -> Result<(), Error> {
    let Some((_, first)) = parts.first() else { return Ok(()) };
    for &(named, ref part) in parts {
        if let Some(found) = declared_count(part)?.filter(|&found| found != count) {
            return Err(Error::ShardCount { path: part.path.clone(), found, named: count });
        }
        let found = key(part, NO)?.map(|no| no.saturating_add(1));
        if let Some(found) = found.filter(|&found| found != named) {
            return Err(misnumbered(parts, part, named, found));
        }
        for key_name in [COUNT, TENSORS] {
            foreign(first, part, key_name, &key(first, key_name)?, &key(part, key_name)?, true)?;
        }
        for key_name in ["general.architecture", "general.name"] {
            let text = |part: &Part| part.header.metadata.str(key_name).ok().flatten().map(str::to_owned);
            foreign(first, part, key_name, &text(first), &text(part), false)?;
        }
    }
    Ok(())
}

/// A shard whose `split.no` is another's: a copy of that one if they share a tensor, else simply not the one named.
fn misnumbered(parts: &[(u64, Part)], part: &Part, named: u64, found: u64) -> Error {
    let path = part.path.clone();
    let original = parts.iter().find(|(no, _)| *no == found).map(|(_, part)| part);
    let here: HashSet<&str> = part.header.tensors.iter().map(|info| &*info.name).collect();
    let shared = original.and_then(|original| {
        let tensor = original.header.tensors.iter().find(|info| here.contains(&*info.name))?;
        Some((original, Quoted::new(&tensor.name)))
    });
    match shared {
        Some((original, tensor)) => {
            Error::ShardTwice { path, of: found, first: original.path.clone(), tensor }
        }
        None => Error::ShardNumber { path, named, found },
    }
}

/// Err if the two parts differ in this key. One that lacks it differs only if the key is `required`.
fn foreign<T: PartialEq + std::fmt::Display>(
    first: &Part,
    part: &Part,
    key: &'static str,
    wanted: &Option<T>,
    found: &Option<T>,
    required: bool,
) -> Result<(), Error> {
    let one_lacks = wanted.is_none() || found.is_none();
    if wanted == found || (one_lacks && !required) {
        return Ok(());
    }
    let show = |it: &Option<T>| Quoted::new(&it.as_ref().map_or_else(|| "missing".into(), T::to_string));
    Err(Error::ShardForeign {
        path: part.path.clone(),
        key,
        found: show(found),
        wanted: show(wanted),
        first: first.path.clone(),
    })
}
