//! Documents: relative links lead somewhere, and so do names of files of this repository.

use super::{Problem, Text};

/// Folders whose files documents name; a name under one of them must exist.
const FOLDERS: &[&str] = &["bench-results/", "crates/", "docs/", "fixtures/", "kernels/", "xtask/"];

/// Links and names of one document; `exists` answers for paths relative to the root.
pub fn check(file: &Text, exists: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut in_code = false;
    for (i, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        let mut problem = |text: String| problems.push(Problem::new(&file.path, i + 1, text));
        for target in targets(line) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let is_url = target.contains("://") || target.starts_with("mailto:");
            if !path.is_empty() && !is_url && !resolve(folder, path).is_some_and(|p| exists(&p)) {
                problem(format!("the link to {target} leads nowhere"));
            }
        }
        for name in names(line) {
            // A crate's own documents name files from their own folder, too.
            let here = resolve(folder, name).is_some_and(|p| exists(&p));
            if !exists(name) && !here {
                problem(format!("{name} does not exist"));
            }
        }
    }
    problems
}

/// Targets of `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let Some(end) = rest.find(')') else { break };
        found.push(rest[..end].split_whitespace().next().unwrap_or_default());
        rest = &rest[end..];
    }
    if let Some((name, target)) = line.split_once("]: ")
        && name.starts_with('[')
        && !name.starts_with("[^")
    {
        found.push(target.split_whitespace().next().unwrap_or_default());
    }
    found
}

/// Names of files of this repository: words under one of `FOLDERS`, without patterns and placeholders.
fn names(line: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || "`()[]\"',;|".contains(c);
    let words = line.split(ends).map(|w| w.trim_end_matches(['.', ':']));
    // A line number or item after the name: `crates/gguf/src/map.rs:12`, `crates/x/src/y.rs::test`.
    let words = words.map(|w| w.split(':').next().unwrap_or_default());
    let is_name =
        |w: &&str| FOLDERS.iter().any(|f| w.starts_with(f)) && !w.contains(['*', '<', '{', '$', '…', '=']);
    words.filter(is_name).collect()
}

/// `path` seen from `folder`, relative to the root; `None` if it leaves the root.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let exists = |p: &str| {
            ["docs/A.md", "crates/gguf/src/map.rs", "bench-results/x.json", "docs", ""].contains(&p)
        };
        let file = Text { path: path.to_owned(), text: text.to_owned() };
        check(&file, &exists).into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn good_links_and_names_pass() {
        for text in [
            "[a](A.md#part) and [b](../docs/A.md) and [c](https://example.org/x) and [d](#here)",
            "`crates/gguf/src/map.rs:12`, (bench-results/x.json).",
            "files `bench-results/<date>-<host>.json` and `crates/*/src`",
            "```\n[a](gone.md)\ncrates/gone/x.rs\n```",
            "[a]: A.md",
        ] {
            assert_eq!(found("docs/B.md", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("crates/gguf/README.md", "`src/gone.rs`"), Vec::<String>::new());
    }

    #[test]
    fn dead_links_and_names_are_refused() {
        for text in [
            "[a](gone.md)",
            "[a](../../A.md)",
            "[a](docs/A.md)",
            "[a]: gone.md",
            "a speed (bench-results/gone.json)",
            "see `crates/gguf/src/gone.rs`",
        ] {
            assert_eq!(found("docs/B.md", text).len(), 1, "{text}");
        }
    }
}
