//! docs/TRAPS.md: every known mistake has its row, and the tests that the rows name exist.

use super::{Problem, Text};

/// Where the table is.
pub const PATH: &str = "docs/TRAPS.md";
/// The specification's numbers of mistakes in text inference.
const NUMBERS: std::ops::RangeInclusive<usize> = 1..=70;

/// Compares the rows with the Rust files of the tree.
pub fn check(document: &Text, rust: &[&Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for (i, line) in document.text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", number, _, tests, ""] = cells.as_slice() else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        seen.push(number);
        let mut problem = |text: String| problems.push(Problem::new(PATH, i + 1, text));
        if tests.is_empty() {
            problem(format!("mistake {number} has no test"));
        }
        for (krate, name) in names(tests) {
            let folder = format!("crates/{krate}/");
            let wanted = format!("fn {name}(");
            if !rust.iter().any(|t| t.path.starts_with(&folder) && t.text.contains(&wanted)) {
                problem(format!("mistake {number}: {krate} has no test {name}"));
            }
        }
    }
    for number in NUMBERS.filter(|n| seen.iter().filter(|s| *s == n).count() != 1) {
        problems.push(Problem::new(PATH, 0, format!("mistake {number} has no row of its own")));
    }
    problems
}

/// Crate and function of every test in a cell such as "glm-graph `a::tests::{b, c}`, `d::e`; parity (`kda_state`)". A
/// span belongs to the crate named last; spans in parentheses are golden values, not tests.
fn names(cell: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut krate = String::new();
    let mut depth = 0;
    for (i, part) in cell.split('`').enumerate() {
        if i % 2 == 0 {
            for c in part.chars() {
                depth += i32::from(c == '(') - i32::from(c == ')');
            }
            // A clause ends at a semicolon; what follows names its own crate.
            if part.contains(';') {
                krate.clear();
            }
            let last = part.split([' ', ';', ',', '(']).rfind(|w| !w.is_empty()).unwrap_or_default();
            if !last.is_empty() && last.chars().all(|c| c.is_ascii_lowercase() || c == '-') && last != "and" {
                krate = last.to_owned();
            }
        } else if depth == 0 && !krate.is_empty() {
            let path = part.trim_end_matches('}');
            let names = path.rsplit_once("::").map_or(path, |(_, names)| names);
            let names = names.trim_start_matches('{').split(',').map(str::trim);
            found.extend(names.filter(|n| !n.is_empty()).map(|n| (krate.clone(), n.to_owned())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn cells_name_crates_and_functions() {
        let cell = "glm-graph `a::tests::{b, c}`, `d::e`; parity (`kda_state`); quant-kernels `f`";
        let expected = [("glm-graph", "b"), ("glm-graph", "c"), ("glm-graph", "e"), ("quant-kernels", "f")];
        assert_eq!(names(cell), own(&expected));
        assert_eq!(names("parity (`kda_state`, logits)"), []);
        assert_eq!(
            names("the same, and glm-graph `b::v` (a `thing` is refused)"),
            own(&[("glm-graph", "v")])
        );
    }

    fn found(table: &str) -> Vec<String> {
        let rust = Text { path: "crates/a/src/x.rs".to_owned(), text: "#[test]\nfn good() {}\n".to_owned() };
        let document = Text { path: PATH.to_owned(), text: table.to_owned() };
        check(&document, &[&rust]).into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn a_missing_row_a_missing_test_and_an_empty_cell_are_refused() {
        let rows: String = NUMBERS.map(|n| format!("| {n} | mistake | a `x::good` |\n")).collect();
        assert_eq!(found(&rows), Vec::<String>::new());
        assert_eq!(found(&rows.replace("| 70 |", "| 71 |")), ["mistake 70 has no row of its own"]);
        assert_eq!(found(&rows.replacen("x::good", "x::gone", 1)), ["mistake 1: a has no test gone"]);
        assert_eq!(found(&rows.replacen("a `x::good`", "", 1)), ["mistake 1 has no test"]);
        assert_eq!(found(&rows.replacen("a `x::good`", "b `x::good`", 1)), ["mistake 1: b has no test good"]);
    }
}
