//! Words and bytes that do not belong into the tree: places of one machine, hosts of registries, unfinished work,
//! leftovers of merges.

use super::{Problem, Text};

/// What is refused anywhere in text, and why. Each is written in two parts, or this file would refuse itself.
const REFUSED: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "unfinished work; finish it or leave it out"),
    (concat!("FIX", "ME"), "unfinished work; finish it or leave it out"),
    (concat!("X", "XX"), "unfinished work; finish it or leave it out"),
    (concat!("\"/wo", "rk/"), "an absolute path of one machine"),
    (concat!(" /wo", "rk/"), "an absolute path of one machine"),
    (concat!("`/wo", "rk/"), "an absolute path of one machine"),
    (concat!("=/wo", "rk/"), "an absolute path of one machine"),
    (concat!("/ro", "ot/"), "an absolute path of one machine"),
    (concat!("/ho", "me/"), "an absolute path of one machine"),
    (concat!("/Us", "ers/"), "an absolute path of one machine"),
    (concat!("crates", ".io"), "the host of a registry; say `the registry`"),
    (concat!("pypi", ".org"), "the host of a registry; say `the registry`"),
    (concat!("pythonhosted", ".org"), "the host of a registry; say `the registry`"),
    (concat!("npmjs", ".org"), "the host of a registry; say `the registry`"),
    (concat!("deb.deb", "ian.org"), "the host of a registry; say `the registry`"),
    (concat!("<<<<", "<<<"), "a leftover of a merge"),
    (concat!(">>>>", ">>>"), "a leftover of a merge"),
];

/// Refused words, carriage returns, spaces at line ends, a missing last newline.
pub fn check(file: &Text) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (i, line) in file.text.split('\n').enumerate() {
        let mut problem = |text: String| problems.push(Problem::new(&file.path, i + 1, text));
        for (word, why) in REFUSED.iter().filter(|(word, _)| line.contains(word)) {
            problem(format!("`{}`: {why}", word.trim()));
        }
        if line.ends_with('\r') {
            problem("a carriage return at the line's end".to_owned());
        } else if line.ends_with([' ', '\t']) {
            problem("white space at the line's end".to_owned());
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        problems.push(Problem::new(&file.path, 0, "the last line has no newline"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Problem> {
        check(&Text { path: "a.md".to_owned(), text: text.to_owned() })
    }

    #[test]
    fn ordinary_text_passes() {
        assert_eq!(found("# maya\n\nworks under target/work/ and says so.\n"), []);
        assert_eq!(found(""), []);
    }

    #[test]
    fn every_refused_word_is_found_on_its_line() {
        for (word, _) in REFUSED {
            let problems = found(&format!("fine\nsee {word}x here\n"));
            assert!(problems.iter().any(|p| p.line == 2), "{word}");
        }
    }

    #[test]
    fn line_ends_are_checked() {
        assert!(found("a \n")[0].text.contains("white space"));
        assert!(found("a\r\n")[0].text.contains("carriage return"));
        assert!(found("a")[0].text.contains("no newline"));
    }
}
