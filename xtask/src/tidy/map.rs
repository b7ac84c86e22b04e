//! What docs/ARCHITECTURE.md promises: the edge table, the table of files with `unsafe`, the crates that forbid it.

use anyhow::{Result, bail};

/// Where the promises are written.
pub const PATH: &str = "docs/ARCHITECTURE.md";

/// The promises that tidy checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Map {
    pub crates: Vec<Row>,
    /// Paths that may hold `unsafe`; a `*` stands for anything but `/`.
    pub unsafe_files: Vec<String>,
    /// Crates whose roots say `#![forbid(unsafe_code)]`.
    pub forbidding: Vec<String>,
}

/// A row of the edge table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub normal: Vec<String>,
    pub dev: Vec<String>,
}

/// Reads both tables and the sentence about `forbid`; a table that is not found is an error, never an empty promise.
pub fn parse(text: &str) -> Result<Map> {
    let mut map = Map::default();
    for cells in table(text, "crate") {
        let [name, normal, dev] = cells.as_slice() else {
            bail!("{PATH}: the edge table has a row of {} columns, not 3", cells.len());
        };
        map.crates.push(Row { name: name.clone(), normal: names(normal), dev: names(dev) });
    }
    map.unsafe_files = table(text, "file").into_iter().filter_map(|c| c.into_iter().next()).collect();
    for paragraph in text.split("\n\n").filter(|p| p.contains("#![forbid(unsafe_code)]")) {
        let spans = paragraph.split('`').skip(1).step_by(2);
        map.forbidding.extend(spans.filter(|s| map.crates.iter().any(|c| c.name == **s)).map(str::to_owned));
    }
    if map.crates.is_empty() || map.unsafe_files.is_empty() || map.forbidding.is_empty() {
        bail!("{PATH}: the edge table, the table of unsafe files or the sentence about forbid is missing");
    }
    Ok(map)
}

/// The cells of the rows of the table whose first heading is `heading`, without heading and rule.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let mut rows =
        text.lines().map(str::trim).skip_while(|l| cells(l).first().map(String::as_str) != Some(heading));
    rows.by_ref().take(2).for_each(drop);
    rows.take_while(|l| l.starts_with('|')).map(cells).collect()
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').and_then(|l| l.strip_suffix('|'));
    inner.map(|l| l.split('|').map(|c| c.trim().trim_matches('`').to_owned()).collect()).unwrap_or_default()
}

fn names(cell: &str) -> Vec<String> {
    cell.split(',').map(|n| n.trim().trim_matches('`').to_owned()).filter(|n| !n.is_empty()).collect()
}

/// Whether `path` matches `pattern`, in which each `*` stands for any run of characters but `/`.
pub fn matches(pattern: &str, path: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(head) else { return false };
    let reach = rest.find('/').unwrap_or(rest.len());
    (0..=reach).filter(|i| rest.is_char_boundary(*i)).any(|i| matches(tail, &rest[i..]))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const EXAMPLE: &str = "\
| crate | may depend on | dev only |
|---|---|---|
| leaf | | golden |
| top | leaf, `other` | |

text

| file | why |
|---|---|
| crates/leaf/src/x86/*.rs | vectors |

Every other file is free of it; `top` and
`nobody` say `#![forbid(unsafe_code)]`.
";

    #[test]
    fn both_tables_and_the_sentence_are_read() {
        let map = parse(EXAMPLE).expect("complete");
        assert_eq!(map.crates.len(), 2);
        assert_eq!(map.crates[0].dev, ["golden"]);
        assert_eq!(map.crates[1].normal, ["leaf", "other"]);
        assert_eq!(map.unsafe_files, ["crates/leaf/src/x86/*.rs"]);
        assert_eq!(map.forbidding, ["top"]);
    }

    #[test]
    fn a_missing_table_is_an_error() {
        assert!(parse(&EXAMPLE.replace("| file |", "| files |")).is_err());
        assert!(parse(&EXAMPLE.replace("| crate |", "| crates |")).is_err());
        assert!(parse(&EXAMPLE.replace("forbid(", "allow(")).is_err());
        assert!(parse(&EXAMPLE.replace("| leaf | | golden |", "| leaf | golden |")).is_err());
    }

    #[test]
    fn a_star_stays_in_its_folder() {
        assert!(
            matches("a/*.rs", "a/b.rs") && matches("a/b.rs", "a/b.rs") && matches("a/*/c.rs", "a/b/c.rs")
        );
        assert!(
            !matches("a/*.rs", "a/b/c.rs") && !matches("a/*.rs", "a/b.rsx") && !matches("a/b.rs", "a/c.rs")
        );
    }
}
