//! `unsafe`: only in listed files, each block with its `SAFETY:` line; crate roots that promise to forbid it do.

use super::map::{Map, PATH, matches};
use super::{Problem, Text};
use crate::source::{Line, lines};
use crate::workspace::Package;

/// The word and the reasons in one Rust file.
pub fn check(map: &Map, file: &Text) -> Vec<Problem> {
    let mut problems = Vec::new();
    let allowed = map.unsafe_files.iter().any(|p| matches(p, &file.path));
    let lines = lines(&file.text);
    for (i, line) in lines.iter().enumerate() {
        if !line.has_word("unsafe") {
            continue;
        }
        if !allowed {
            let text = format!("`unsafe` in a file that the table in {PATH} does not list");
            problems.push(Problem::new(&file.path, i + 1, text));
        } else if needs_reason(&lines, i) && !has_reason(&lines, i) {
            let text = "an unsafe block without a `SAFETY:` comment above it";
            problems.push(Problem::new(&file.path, i + 1, text));
        }
    }
    problems
}

/// Whether line `i` opens an unsafe block or implementation; declarations of unsafe functions carry their contract in
/// `# Safety` documentation instead, which clippy asks for.
fn needs_reason(lines: &[Line], i: usize) -> bool {
    let code = &lines[i].code;
    let after = code.split("unsafe").skip(1).map(str::trim_start);
    after.into_iter().any(|rest| {
        let next = if rest.is_empty() { lines.get(i + 1).map_or("", |l| l.code.trim_start()) } else { rest };
        next.starts_with('{') || next.starts_with("impl")
    })
}

/// Whether a `SAFETY:` comment stands on the line, or above it with only comments, attributes and the beginning of the
/// same statement between.
fn has_reason(lines: &[Line], i: usize) -> bool {
    let is_reason = |line: &Line| line.comment.contains("SAFETY:");
    if is_reason(&lines[i]) {
        return true;
    }
    for line in lines[..i].iter().rev() {
        if is_reason(line) {
            return true;
        }
        let code = line.code.trim();
        if code.is_empty() {
            // An empty line ends the search, a comment line does not.
            if line.comment.is_empty() {
                return false;
            }
        } else if !code.starts_with("#[") && code.ends_with([';', '{', '}', ',']) {
            return false;
        }
    }
    false
}

/// Entries of the table that name no file of the tree.
pub fn check_listed(map: &Map, paths: &[String]) -> Vec<Problem> {
    let gone = map.unsafe_files.iter().filter(|pattern| !paths.iter().any(|p| matches(pattern, p)));
    gone.map(|p| Problem::new(PATH, 0, format!("the table of unsafe files lists {p}, which does not exist")))
        .collect()
}

/// Roots of crates that the map says forbid unsafe code.
pub fn check_roots(map: &Map, packages: &[Package], texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in packages.iter().filter(|p| map.forbidding.contains(&p.name)) {
        for root in &package.roots {
            let text = texts.iter().find(|t| t.path == *root);
            let forbids = text
                .is_some_and(|t| lines(&t.text).iter().any(|l| l.code.trim() == "#![forbid(unsafe_code)]"));
            if !forbids {
                problems.push(Problem::new(root, 0, "the crate root does not say `#![forbid(unsafe_code)]`"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::map::{parse, tests::EXAMPLE};

    fn found(path: &str, text: &str) -> Vec<usize> {
        let map = parse(EXAMPLE).expect("complete");
        check(&map, &Text { path: path.to_owned(), text: text.to_owned() }).iter().map(|p| p.line).collect()
    }

    const NONE: [usize; 0] = [];
    const LISTED: &str = "crates/leaf/src/x86/dot.rs";

    #[test]
    fn a_file_that_is_not_listed_may_only_talk_about_it() {
        assert_eq!(
            found("crates/top/src/a.rs", "// unsafe {\nlet a = \"unsafe\";\n#![forbid(unsafe_code)]\n"),
            NONE
        );
        assert_eq!(
            found("crates/top/src/a.rs", "fn f() {\n    // SAFETY: said\n    unsafe { g() }\n}\n"),
            [3]
        );
    }

    #[test]
    fn a_block_needs_a_reason_right_above() {
        for good in [
            "// SAFETY: held by f\nunsafe { g() }\n",
            "// SAFETY: held by f\n#[rustfmt::skip]\nlet x =\n    unsafe { g() };\n",
            "// SAFETY: held by f,\n// which is long\nunsafe impl Send for X {}\n",
            "let x = unsafe { g() }; // SAFETY: held\n",
            "pub unsafe fn f() {}\n",
            "#[unsafe(no_mangle)]\n",
        ] {
            assert_eq!(found(LISTED, good), NONE, "{good}");
        }
        for bad in [
            "unsafe { g() }\n",
            "// held by f\nunsafe { g() }\n",
            "// SAFETY: of the other\nf();\nunsafe { g() }\n",
            "// SAFETY: far away\n\nunsafe { g() }\n",
            "unsafe impl Send for X {}\n",
            "let x = unsafe\n{ g() };\n",
        ] {
            assert_eq!(found(LISTED, bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_promised_forbid_must_be_code() {
        let map = parse(EXAMPLE).expect("complete");
        let package = Package {
            name: "top".to_owned(),
            roots: vec!["top/src/lib.rs".to_owned()],
            ..Package::default()
        };
        let root = |text: &str| [Text { path: "top/src/lib.rs".to_owned(), text: text.to_owned() }];
        assert_eq!(
            check_roots(&map, std::slice::from_ref(&package), &root("//! x\n#![forbid(unsafe_code)]\n")),
            []
        );
        assert_eq!(
            check_roots(&map, std::slice::from_ref(&package), &root("// #![forbid(unsafe_code)]\n")).len(),
            1
        );
        assert_eq!(check_roots(&map, &[package], &[]).len(), 1);
    }

    #[test]
    fn a_listed_file_that_is_gone_is_refused() {
        let map = parse(EXAMPLE).expect("complete");
        assert_eq!(check_listed(&map, &[LISTED.to_owned()]), []);
        assert_eq!(check_listed(&map, &["crates/leaf/src/lib.rs".to_owned()]).len(), 1);
    }
}
