//! A Rust file: its name, its opening words, its length.

use super::{Problem, Text};

/// Above this many lines a file is probably two nouns.
const LONG: usize = 300;
/// Above this many lines it is refused.
const TOO_LONG: usize = 800;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "prelude", "types", "stuff"];

/// Name, opening documentation, and the length that is refused.
pub fn check(file: &Text) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |line: usize, text: String| problems.push(Problem::new(&file.path, line, text));
    for part in file.path.trim_end_matches(".rs").split('/') {
        if EMPTY_NAMES.contains(&part) {
            problem(0, format!("`{part}` names no noun; name the module after what it holds"));
        }
    }
    let opening = file.text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
    if opening.trim_start_matches("//!").trim().is_empty() || !opening.starts_with("//!") {
        problem(1, "the file does not begin with a line of `//!` documentation".to_owned());
    }
    let lines = file.text.lines().count();
    if lines > TOO_LONG {
        problem(0, format!("{lines} lines; at most {TOO_LONG} are allowed"));
    }
    for (i, line) in file.text.lines().enumerate() {
        // Written in two parts, or this line would refuse itself.
        if line.trim_start().starts_with(concat!("#[", "ignore")) {
            problem(i + 1, "a test that is never run proves nothing; run it or remove it".to_owned());
        }
    }
    problems
}

/// A warning if the file is long.
pub fn long(file: &Text) -> Option<Problem> {
    let lines = file.text.lines().count();
    (LONG < lines && lines <= TOO_LONG)
        .then(|| Problem::new(&file.path, 0, format!("{lines} lines; aim for {LONG}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Text {
        Text { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_documented_noun_passes() {
        let good = file("crates/gguf/src/header.rs", "//! The header.\n");
        assert_eq!(check(&good), []);
        assert_eq!(long(&good), None);
    }

    #[test]
    fn empty_names_are_refused_for_files_and_folders() {
        for path in ["src/utils.rs", "src/common/mod.rs", "helpers/src/lib.rs"] {
            assert!(check(&file(path, "//! x\n"))[0].text.contains("names no noun"), "{path}");
        }
    }

    #[test]
    fn a_file_without_opening_words_is_refused() {
        for text in ["", "use std::fmt;\n", "//!\n", "// comment\n//! late\n", "/// item\nfn f() {}\n"] {
            assert!(check(&file("src/a.rs", text))[0].text.contains("does not begin"), "{text:?}");
        }
    }

    #[test]
    fn length_warns_then_refuses() {
        let of = |lines: usize| file("src/a.rs", &format!("//! x\n{}", "x\n".repeat(lines - 1)));
        assert!(long(&of(300)).is_none() && long(&of(301)).is_some());
        assert!(check(&of(800)).is_empty());
        assert!(check(&of(801))[0].text.contains("801 lines") && long(&of(801)).is_none());
    }

    #[test]
    fn an_ignored_test_is_refused() {
        let text = format!("//! x\n#[test]\n{}]\nfn f() {{}}\n", concat!("#[", "ignore"));
        assert_eq!(check(&file("src/a.rs", &text))[0].line, 3);
    }
}
