//! The README's table of failures and these tests belong together.

use std::collections::BTreeSet;
use std::path::Path;

/// Every test that the table names is there, and every test here is named by the table.
#[test]
fn every_test_of_the_table_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let readme = read("README.md");
    let section = readme.split("## Failures others had").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let mut named = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(
            row.matches('|').count(),
            5,
            "number, source, what happened, and what is done here: {row}"
        );
        // `tests/file.rs::name`, in back quotes.
        for (path, test) in row.split('`').filter_map(|word| word.split_once("::")) {
            assert!(is_test(&read(path), test), "{path}: {test} is not there, or no test");
            named.insert((path.to_owned(), test.to_owned()));
        }
    }
    assert!(named.len() >= 20, "the table names {} tests", named.len());
    for file in ["batches", "memory", "residence", "routes", "slots"] {
        let path = format!("tests/failures/{file}.rs");
        for test in read(&path).split("#[test]\nfn ").skip(1).filter_map(|it| it.split('(').next()) {
            let pair = (path.clone(), test.to_owned());
            assert!(named.contains(&pair), "{path}: the table does not name {test}");
        }
    }
}

/// Whether a function of this name has the attribute, inside `proptest!` or not.
fn is_test(source: &str, name: &str) -> bool {
    let begin = source.find(&format!("fn {name}("));
    begin.is_some_and(|begin| source[..begin].trim_end().ends_with("#[test]"))
}

#[test]
fn a_function_is_a_test_by_its_attribute_alone() {
    let source =
        "proptest! {\n    #[test]\n    fn drawn(x in 0..9) {}\n}\nfn helper() {}\n#[test]\nfn plain() {}\n";
    assert!(is_test(source, "drawn") && is_test(source, "plain"));
    assert!(!is_test(source, "helper") && !is_test(source, "absent"));
}
