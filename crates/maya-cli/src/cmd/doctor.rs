//! `maya doctor`: what was found on this machine, what was not, and why, and what maya would do with it.

mod drive;
mod files;
mod gpu;
mod memory;
mod model;
mod outlook;
mod processor;

use anyhow::Result;
use serde_json::{Map, Value as Json, json};

use crate::args::DoctorArgs;
use crate::machine::{Memory, System};
use crate::output::{Out, printable};

/// Prints the report. A finding is not a failure: the exit code is 0 whatever was found.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let path = args.model.model.as_deref().filter(|p| !p.as_os_str().is_empty());
    let system = System::here();
    let memory = Memory::of(&system);
    let mut groups =
        vec![processor::findings(&system), memory::findings(&system, &memory), gpu::findings(&system)];
    groups.extend(model::findings(&system, &memory, path, args.thorough));
    let mut out = Out::new();
    if args.json {
        out.line(as_json(&groups))?;
    } else {
        out.text(&as_text(&groups))?;
    }
    out.flush()
}

/// One line of the report: a sentence for people and the same for programs.
#[derive(Clone, Debug)]
struct Finding {
    /// What it is about; the key of the JSON object, with `_` for blanks.
    what: &'static str,
    /// The sentence.
    found: String,
    /// Its numbers. The names are a contract.
    facts: Json,
}

impl Finding {
    fn new(what: &'static str, found: impl Into<String>, facts: Json) -> Self {
        Self { what, found: found.into(), facts }
    }
}

fn as_json(groups: &[Vec<Finding>]) -> Json {
    let findings: Map<String, Json> = groups
        .iter()
        .flatten()
        .map(|f| (f.what.replace(' ', "_"), json!({"found": f.found, "facts": f.facts})))
        .collect();
    json!({"findings": findings})
}

/// A group a paragraph, a finding a line, sentences below each other.
fn as_text(groups: &[Vec<Finding>]) -> String {
    let width = groups.iter().flatten().map(|f| f.what.len()).max().unwrap_or(0) + 2;
    let paragraphs = groups.iter().filter(|group| !group.is_empty()).map(|group| {
        let line = |f: &Finding| format!("{:<width$}{}\n", format!("{}:", f.what), printable(&f.found));
        group.iter().map(line).collect::<String>()
    });
    paragraphs.collect::<Vec<_>>().join("\n")
}

/// `1 file`, `3 files`.
fn several(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_in_paragraphs() {
        let f = |what| Finding::new(what, "a\u{1b}b", json!({"n": 1}));
        let groups = [vec![f("gpu"), f("two words")], Vec::new(), vec![f("x")]];
        let text = "gpu:       a\\u{1b}b\ntwo words: a\\u{1b}b\n\nx:         a\\u{1b}b\n";
        assert_eq!(as_text(&groups), text);
        let json = as_json(&groups);
        assert_eq!(json["findings"]["two_words"]["facts"]["n"], 1);
        assert_eq!(json["findings"].as_object().unwrap().len(), 3);
    }

    /// Every made-up machine gets a report, the one without any file too.
    #[test]
    fn no_machine_is_too_strange() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path());
        let memory = Memory::of(&system);
        let all = [processor::findings(&system), memory::findings(&system, &memory), gpu::findings(&system)];
        for finding in all.iter().flatten() {
            assert!(!finding.found.is_empty() && finding.facts.is_object(), "{finding:?}");
        }
    }
}
