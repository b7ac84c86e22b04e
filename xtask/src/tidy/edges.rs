//! Edges between crates: only those of the table.

use super::Problem;
use super::map::{Map, PATH};
use crate::workspace::Package;

/// Compares the table with what the manifests say, for shipped and for dev edges.
pub fn check(map: &Map, packages: &[Package]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |text: String| problems.push(Problem::new(PATH, 0, text));
    for package in packages {
        let name = &package.name;
        let Some(row) = map.crates.iter().find(|r| r.name == *name) else {
            problem(format!("crate {name} has no row in the edge table"));
            continue;
        };
        for edge in package.normal.iter().filter(|e| !row.normal.contains(e)) {
            problem(format!("{name} depends on {edge}, which its row does not allow"));
        }
        // What may be used in shipped code may be used in its tests.
        for edge in package.dev.iter().filter(|e| !row.dev.contains(e) && !row.normal.contains(e)) {
            problem(format!("the tests of {name} depend on {edge}, which its row does not allow"));
        }
    }
    for row in &map.crates {
        for name in std::iter::once(&row.name).chain(&row.normal).chain(&row.dev) {
            if !packages.iter().any(|p| p.name == *name) {
                problem(format!("the row of {} names {name}, which is no crate of this workspace", row.name));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::map::{parse, tests::EXAMPLE};

    fn package(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        Package { name: name.to_owned(), normal: own(normal), dev: own(dev), roots: Vec::new() }
    }

    fn found(packages: &[Package]) -> Vec<String> {
        check(&parse(EXAMPLE).expect("complete"), packages).into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn allowed_edges_pass() {
        let others = [package("other", &[], &[]), package("golden", &[], &[])];
        let [other, golden] = others;
        let all = [package("leaf", &[], &["golden"]), package("top", &["leaf"], &["other"]), other, golden];
        assert_eq!(
            found(&all),
            ["crate other has no row in the edge table", "crate golden has no row in the edge table"]
        );
    }

    #[test]
    fn an_edge_up_and_a_dev_edge_in_shipped_code_are_refused() {
        let all = [
            package("leaf", &["golden"], &["top"]),
            package("top", &[], &["golden"]),
            package("other", &[], &[]),
            package("golden", &[], &[]),
        ];
        let texts = found(&all);
        for expected in [
            "leaf depends on golden, which its row does not allow",
            "the tests of leaf depend on top, which its row does not allow",
            "the tests of top depend on golden, which its row does not allow",
        ] {
            assert!(texts.iter().any(|t| t == expected), "{expected}: {texts:?}");
        }
    }

    #[test]
    fn a_row_of_a_crate_that_is_gone_is_refused() {
        let texts =
            found(&[package("leaf", &[], &[]), package("top", &[], &[]), package("golden", &[], &[])]);
        assert!(texts.iter().any(|t| t.contains("names other, which is no crate")), "{texts:?}");
    }
}
