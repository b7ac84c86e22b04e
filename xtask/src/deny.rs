//! deny.toml against `cargo metadata`: licences, banned crates and sources of what is linked on each platform.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::output;
use crate::workspace::Workspace;

/// Where the rules are.
const RULES: &str = "deny.toml";
/// The registry: the only source beside this workspace.
const REGISTRY: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// The lists of deny.toml.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    platforms: Vec<String>,
    licences: Vec<String>,
    banned: Vec<String>,
}

/// Checks every package that some platform builds, dev-dependencies included, with all features.
pub fn check(workspace: &Workspace) -> Result<()> {
    let text = std::fs::read_to_string(workspace.root.join(RULES)).context(RULES)?;
    let rules = Rules::parse(&text)?;
    let (mut problems, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for platform in &rules.platforms {
        let words = ["metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform"];
        let metadata = output(workspace.command("cargo").args(words).arg(platform))?;
        let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata printed no JSON")?;
        for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
            seen.insert(name(package));
            problems.extend(rules.problems(package));
        }
    }
    println!("deny: {} packages on {} platforms", seen.len(), rules.platforms.len());
    problems.iter().for_each(|problem| println!("error: {problem}"));
    if !problems.is_empty() {
        bail!("{} packages are not as {RULES} says", problems.len());
    }
    Ok(())
}

fn name(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("{} {}", text("name"), text("version"))
}

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        let list = |section: &str, key: &str| {
            let found = list(text, section, key);
            if found.is_empty() { bail!("{RULES}: [{section}] has no list `{key}`") } else { Ok(found) }
        };
        Ok(Self {
            platforms: list("graph", "targets")?,
            licences: list("licenses", "allow")?,
            banned: list("bans", "deny")?,
        })
    }

    /// What is wrong with one package, a sentence each.
    fn problems(&self, package: &Value) -> Vec<String> {
        let (name, mut problems) = (name(package), Vec::new());
        if self.banned.iter().any(|banned| package["name"] == **banned) {
            problems.push(format!("{name} is banned"));
        }
        let expression = package["license"].as_str().unwrap_or_default();
        if !is_met(expression, |licence| self.licences.iter().any(|l| l == licence)) {
            problems.push(format!("{name} is under {expression:?}, which is not allowed"));
        }
        match package["source"].as_str() {
            // A folder of this workspace. Its own dependencies on registries must name versions.
            None => {
                let dependencies = package["dependencies"].as_array().into_iter().flatten();
                let any = dependencies.filter(|d| d["req"] == "*" && d["path"].is_null());
                problems.extend(any.map(|d| format!("{name} takes any version of {}", d["name"])));
            }
            Some(REGISTRY) => {}
            Some(other) => problems.push(format!("{name} comes from {other}, not from the registry")),
        }
        problems
    }
}

/// The first string of each row of a list in a section of TOML: `key = [`, rows, `]`, on one line or more.
fn list(text: &str, section: &str, key: &str) -> Vec<String> {
    let header = format!("[{section}]");
    let inside = text.lines().skip_while(|l| l.trim() != header).skip(1);
    let inside: Vec<&str> = inside.take_while(|l| !l.starts_with('[')).collect();
    let Some(at) = inside.iter().position(|l| l.starts_with(&format!("{key} = ["))) else {
        return Vec::new();
    };
    let strings = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    if inside[at].ends_with(']') {
        return strings(inside[at]);
    }
    let rows = inside[at + 1..].iter().take_while(|l| l.trim() != "]" && !l.is_empty());
    rows.filter(|l| !l.trim_start().starts_with('#')).filter_map(|l| strings(l).into_iter().next()).collect()
}

/// Whether an SPDX expression can be met with allowed licences. Brackets are not read: all that stands between two ANDs is
/// one choice, which may refuse what is fine and never the other way round. `/` is an old way to write OR.
fn is_met(expression: &str, allowed: impl Fn(&str) -> bool) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    flat.split(" AND ").all(|choice| choice.split(" OR ").any(|licence| allowed(licence.trim())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> Rules {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let licences = owned(&["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]);
        Rules { platforms: owned(&["a-b-c"]), licences, banned: owned(&["cmake"]) }
    }

    #[test]
    fn expressions_are_met_or_not() {
        let met = |expression: &str| is_met(expression, |l| rules().licences.iter().any(|a| a == l));
        for good in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(GPL-3.0 OR MIT) AND ISC", "MIT AND ISC"] {
            assert!(met(good), "{good}");
        }
        assert!(met("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "Apache-2.0", "ISC WITH X"]
        {
            assert!(!met(bad), "{bad}");
        }
    }

    #[test]
    fn packages_are_judged() {
        let told = |change: fn(&mut Value)| {
            let mut package =
                json!({ "name": "p", "version": "1.0.0", "license": "MIT", "source": REGISTRY });
            change(&mut package);
            rules().problems(&package)
        };
        assert_eq!(told(|_| ()), Vec::<String>::new());
        assert_eq!(told(|p| p["license"] = "X".into()), ["p 1.0.0 is under \"X\", which is not allowed"]);
        assert_eq!(told(|p| p["license"] = Value::Null).len(), 1);
        assert_eq!(told(|p| p["name"] = "cmake".into()), ["cmake 1.0.0 is banned"]);
        assert!(told(|p| p["source"] = "git+https://x".into())[0].contains("git+https://x"));
        let any =
            json!([{ "name": "q", "req": "*", "path": null }, { "name": "r", "req": "*", "path": "/r" }]);
        let package = json!({ "name": "p", "version": "1", "license": "MIT", "dependencies": any });
        assert_eq!(rules().problems(&package), ["p 1 takes any version of \"q\""]);
    }

    #[test]
    fn lists_are_read() {
        let text = "[graph]\ntargets = [\"a-b-c\"]\n[licenses]\nallow = [\n    \"MIT\",\n    # old\n    \"ISC\",\n    \
            \"Apache-2.0 WITH LLVM-exception\",\n]\n[bans]\ndeny = [\n    { crate = \"cmake\", reason = \"no\" },\n]\n";
        assert_eq!(Rules::parse(text).expect("complete"), rules());
        for key in ["targets", "allow", "deny"] {
            assert!(Rules::parse(&text.replace(&format!("{key} ="), "other =")).is_err(), "{key}");
        }
    }
}
