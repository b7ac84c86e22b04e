//! kernels/budgets.toml: most registers of each entry on each architecture, and the spills that have a reason.
//!
//! The file is a small part of TOML, read and written here alone:
//!
//! ```toml
//! [unit.entry]
//! registers = { sm_70 = 40, sm_90 = 38 }
//! spills = { sm_70 = 16 }
//! reason = "the table does not fit 64 registers there"
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What an entry takes on one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// `unit.entry`.
    pub name: String,
    pub arch: String,
    pub registers: u32,
    /// Bytes written to local memory and bytes read back, together.
    pub spills: u32,
}

/// The entries of a line of `maya kernels check --json`.
pub fn uses(row: &Value) -> Vec<Use> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX);
    let entries = row["entries"].as_array().into_iter().flatten();
    let one = |entry: &Value| Use {
        name: format!("{}.{}", text(&row["unit"]), text(&entry["entry"])),
        arch: text(&row["arch"]),
        registers: number(&entry["registers"]),
        spills: number(&entry["spill_store_bytes"]).saturating_add(number(&entry["spill_load_bytes"])),
    };
    entries.map(one).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Budget {
    registers: BTreeMap<u32, u32>,
    spills: BTreeMap<u32, u32>,
    reason: String,
}

/// The whole file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Budgets(BTreeMap<String, Budget>);

impl Budgets {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self> {
        let mut budgets = Self::default();
        let mut name = None;
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = || format!("kernels/budgets.toml:{}: `{line}`", i + 1);
            if let Some(header) = line.strip_prefix('[') {
                let header = header.strip_suffix(']').with_context(at)?;
                if budgets.0.insert(header.to_owned(), Budget::default()).is_some() {
                    bail!("{}: it stands there twice", at());
                }
                name = Some(header);
                continue;
            }
            let budget = name.and_then(|n| budgets.0.get_mut(n)).with_context(at)?;
            match line.split_once(" = ").with_context(at)? {
                ("registers", table) => budget.registers = numbers(table).with_context(at)?,
                ("spills", table) => budget.spills = numbers(table).with_context(at)?,
                ("reason", quoted) => {
                    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
                    budget.reason = inner.with_context(at)?.to_owned();
                }
                _ => bail!("{}: the keys are registers, spills and reason", at()),
            }
        }
        Ok(budgets)
    }

    /// What was found, as budgets; reasons are taken over.
    pub fn of(found: &[Use], old: &Self) -> Self {
        let mut budgets = Self::default();
        for one in found {
            let Some(arch) = number_of(&one.arch) else { continue };
            let budget = budgets.0.entry(one.name.clone()).or_default();
            budget.registers.insert(arch, one.registers);
            if one.spills > 0 {
                budget.spills.insert(arch, one.spills);
                budget.reason = old.0.get(&one.name).map(|b| b.reason.clone()).unwrap_or_default();
            }
        }
        budgets
    }

    /// The file's text.
    pub fn to_text(&self) -> String {
        let mut text = "# Most registers of a thread, and bytes spilled, by entry and architecture. A spill needs a reason.\n\
            # `cargo xtask kernels check` compares; with `--bless` it writes this file.\n"
            .to_owned();
        let table = |numbers: &BTreeMap<u32, u32>| {
            let cells: Vec<String> = numbers.iter().map(|(arch, n)| format!("sm_{arch} = {n}")).collect();
            format!("{{ {} }}", cells.join(", "))
        };
        for (name, budget) in &self.0 {
            let _ = write!(text, "\n[{name}]\nregisters = {}\n", table(&budget.registers));
            if !budget.spills.is_empty() {
                let _ = write!(text, "spills = {}\nreason = \"{}\"\n", table(&budget.spills), budget.reason);
            }
        }
        text
    }

    /// What is not as the file says, a sentence each.
    pub fn compare(&self, found: &[Use]) -> Vec<String> {
        let mut problems = Vec::new();
        for one in found {
            let Use { name, arch, registers, spills } = one;
            let budget = self.0.get(name);
            let number = number_of(arch);
            let Some((budget, number)) = budget.zip(number).filter(|(b, n)| b.registers.contains_key(n))
            else {
                problems.push(format!("{name} has no budget for {arch}"));
                continue;
            };
            let most = budget.registers.get(&number).copied().unwrap_or(0);
            if *registers > most {
                problems.push(format!("{name} takes {registers} registers on {arch}; its budget is {most}"));
            }
            let accepted = budget.spills.get(&number).copied().unwrap_or(0);
            if *spills > accepted {
                problems.push(format!("{name} spills {spills} bytes on {arch}; its budget is {accepted}"));
            }
        }
        for (name, budget) in &self.0 {
            if !found.iter().any(|one| one.name == *name) {
                problems.push(format!("{name} has a budget, and no unit has such an entry"));
            }
            if !budget.spills.is_empty() && budget.reason.trim().is_empty() {
                problems.push(format!("{name} may spill without a reason; write one"));
            }
        }
        problems
    }
}

/// `{ sm_70 = 40, sm_90 = 38 }`
fn numbers(table: &str) -> Result<BTreeMap<u32, u32>> {
    let inner = table.strip_prefix('{').and_then(|t| t.strip_suffix('}')).context("no table in braces")?;
    let mut numbers = BTreeMap::new();
    for cell in inner.split(',').map(str::trim).filter(|cell| !cell.is_empty()) {
        let (arch, number) = cell.split_once(" = ").context("a cell without ` = `")?;
        let arch = number_of(arch).with_context(|| format!("{arch} is no architecture"))?;
        if numbers.insert(arch, number.parse().with_context(|| number.to_owned())?).is_some() {
            bail!("sm_{arch} stands there twice");
        }
    }
    Ok(numbers)
}

/// Sorted by number: sm_120 comes after sm_90.
fn number_of(arch: &str) -> Option<u32> {
    arch.strip_prefix("sm_")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# comment

[a.one]
registers = { sm_70 = 40, sm_120 = 38 }
spills = { sm_70 = 16 }
reason = \"a table\"

[b.two]
registers = { sm_70 = 10 }
";

    fn used(name: &str, arch: &str, registers: u32, spills: u32) -> Use {
        Use { name: name.to_owned(), arch: arch.to_owned(), registers, spills }
    }

    fn good() -> Vec<Use> {
        vec![used("a.one", "sm_70", 40, 16), used("a.one", "sm_120", 38, 0), used("b.two", "sm_70", 9, 0)]
    }

    #[test]
    fn what_fits_passes() {
        let budgets = Budgets::parse(TEXT).expect("read");
        assert_eq!(budgets.compare(&good()), Vec::<String>::new());
        assert_eq!(Budgets::parse(&budgets.to_text()).expect("read again"), budgets);
        assert!(budgets.to_text().contains("{ sm_70 = 40, sm_120 = 38 }"));
        let blessed = Budgets::of(&good(), &budgets);
        assert_eq!(blessed.0["a.one"], budgets.0["a.one"]);
        assert_eq!(blessed.0["b.two"].registers[&70], 9);
    }

    #[test]
    fn what_grew_or_came_or_went_is_told() {
        let budgets = Budgets::parse(TEXT).expect("read");
        let told = |change: fn(&mut Vec<Use>)| {
            let mut found = good();
            change(&mut found);
            budgets.compare(&found)
        };
        assert_eq!(told(|f| f[0].registers = 41), ["a.one takes 41 registers on sm_70; its budget is 40"]);
        assert_eq!(told(|f| f[1].spills = 8), ["a.one spills 8 bytes on sm_120; its budget is 0"]);
        assert_eq!(told(|f| f[2].arch = "sm_75".to_owned()), ["b.two has no budget for sm_75"]);
        assert_eq!(told(|f| drop(f.pop())), ["b.two has a budget, and no unit has such an entry"]);
        let without = Budgets::parse(&TEXT.replace("a table", "")).expect("read");
        assert_eq!(without.compare(&good()), ["a.one may spill without a reason; write one"]);
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for line in
            ["x", "[a", "other = 1", "registers = 5", "registers = { sm_x = 5 }", "[a.one]", "reason = a"]
        {
            let text = format!("{TEXT}{line}\n");
            assert!(Budgets::parse(&text).is_err(), "{line}");
        }
        assert!(Budgets::parse("registers = { sm_70 = 1 }\n").is_err());
    }

    #[test]
    fn rows_are_read() {
        let row = serde_json::json!({ "unit": "u", "arch": "sm_90", "entries": [
            { "entry": "e", "registers": 12, "spill_store_bytes": 4, "spill_load_bytes": 8 },
        ] });
        assert_eq!(uses(&row), [used("u.e", "sm_90", 12, 12)]);
    }
}
