//! The README's table of failures names tests that exist.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a test of that name runs: by its attribute, or because the list of tests for both back-ends has it.
fn is_test(path: &str, name: &str) -> bool {
    let source = read(path);
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    if let Some(module) = path.strip_prefix("tests/both_backends/").and_then(|file| file.strip_suffix(".rs"))
    {
        let main = read("tests/both_backends/main.rs");
        let list = main.split("both! {").nth(1).and_then(|list| list.split(&format!("{module}:")).nth(1));
        let listed = list.and_then(|list| list.split(';').next()).unwrap_or_default();
        return listed.split_whitespace().any(|listed| listed == name)
            && lines.iter().any(|line| line.starts_with(&format!("pub fn {name}(")));
    }
    lines.windows(2).any(|pair| pair[0] == "#[test]" && pair[1].starts_with(&format!("fn {name}(")))
}

#[test]
fn every_test_of_the_table_is_there() {
    let readme = read("README.md");
    let section = readme.split("## Failures others had").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = section
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| seen in"));
    let mut named = 0;
    for row in rows {
        assert_eq!(row.matches(" | ").count(), 2, "three columns: {row}");
        for (path, name) in row.split('`').filter_map(|word| word.split_once("::")) {
            assert!(is_test(path, name), "{path} has no test {name}");
            named += 1;
        }
    }
    assert!(named >= 12, "the table names {named} tests");
    assert!(!is_test("tests/both_backends/faults.rs", "with"), "a function is not a test");
    assert!(!is_test("src/queue/tests.rs", "error"), "a function is not a test");
}
