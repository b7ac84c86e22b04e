//! `cargo xtask tidy`: rules about the tree itself that neither rustc nor clippy checks.

mod edges;
mod files;
mod links;
mod map;
mod traps;
mod unsafety;
mod words;

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// A broken rule: where, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub path: String,
    /// From 1; 0 if the whole file is meant.
    pub line: usize,
    pub text: String,
}

impl Problem {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// A text file of the tree.
#[derive(Debug, Clone)]
pub struct Text {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl Text {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// Checks everything; a broken rule is an error, a long file a warning.
pub fn run(workspace: &Workspace) -> Result<()> {
    let paths = workspace.files()?;
    let texts = read(workspace, &paths)?;
    let architecture =
        texts.iter().find(|t| t.path == map::PATH).context("docs/ARCHITECTURE.md is missing")?;
    let map = map::parse(&architecture.text)?;

    let mut problems = edges::check(&map, &workspace.packages()?);
    problems.extend(unsafety::check_roots(&map, &workspace.packages()?, &texts));
    problems.extend(unsafety::check_listed(&map, &paths));
    let mut warnings = Vec::new();
    for text in &texts {
        if text.is_rust() {
            problems.extend(files::check(text));
            warnings.extend(files::long(text));
            problems.extend(unsafety::check(&map, text));
        }
        if text.is_markdown() {
            problems.extend(links::check(text, &|path| workspace.root.join(path).exists()));
        }
        problems.extend(words::check(text));
    }
    let traps = texts.iter().find(|t| t.path == traps::PATH).context("docs/TRAPS.md is missing")?;
    let rust: Vec<&Text> = texts.iter().filter(|t| t.is_rust()).collect();
    problems.extend(traps::check(traps, &rust));
    problems.sort();
    for warning in &warnings {
        println!("warning: {warning}");
    }
    for problem in &problems {
        println!("error: {problem}");
    }
    println!("tidy: {} text files, {} errors, {} warnings", texts.len(), problems.len(), warnings.len());
    if !problems.is_empty() {
        bail!("the tree breaks {} rules of tidy", problems.len());
    }
    Ok(())
}

/// All files that are text, except golden data and lock files, which other programs wrote.
fn read(workspace: &Workspace, paths: &[String]) -> Result<Vec<Text>> {
    let mut texts = Vec::new();
    for path in paths.iter().filter(|p| !p.starts_with("fixtures/data/") && !p.ends_with("Cargo.lock")) {
        let bytes = std::fs::read(workspace.root.join(path)).with_context(|| path.clone())?;
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => texts.push(Text { path: path.clone(), text }),
            Err(_) if path.ends_with(".rs") || path.ends_with(".md") => bail!("{path} is not UTF-8"),
            _ => {}
        }
    }
    Ok(texts)
}
