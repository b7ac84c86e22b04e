//! The outcome of comparisons: one row each, with the worst value found and the most that is allowed.

use anyhow::Result;
use serde_json::{Value, json};

use crate::output::Out;

/// How a comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Within the limit.
    Passed,
    /// Beyond it.
    Missed,
    /// Its data or its instruction set is not here.
    Skipped,
}

impl Outcome {
    /// The word in the table and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Missed => "MISSED",
            Self::Skipped => "skipped",
        }
    }
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// Level of the comparison, as in `--level`.
    pub level: &'static str,
    /// File, type or instruction set.
    pub subject: String,
    /// What was compared.
    pub what: String,
    /// The worst value found.
    pub worst: Option<f64>,
    /// The most (or, for agreements, the least) that is allowed.
    pub limit: Option<f64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Where the worst value lies, what was excused, why it was skipped.
    pub note: String,
}

/// The rows of a run.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
    excused: Vec<String>,
}

impl Table {
    /// A value that may be at most `limit`. NaN passes nothing.
    pub fn at_most(
        &mut self,
        level: &'static str,
        subject: &str,
        what: impl Into<String>,
        worst: f64,
        limit: f64,
        note: impl Into<String>,
    ) {
        self.push(level, subject, what, Some(worst), Some(limit), worst <= limit, note);
    }

    /// A value that must be at least `limit`. NaN passes nothing.
    pub fn at_least(
        &mut self,
        level: &'static str,
        subject: &str,
        what: impl Into<String>,
        worst: f64,
        limit: f64,
        note: impl Into<String>,
    ) {
        self.push(level, subject, what, Some(worst), Some(limit), worst >= limit, note);
    }

    /// Notes, once, a prompt of which a row beyond its limit was excused.
    pub fn excuse(&mut self, subject: &str, prompt: usize) {
        let name = format!("{subject} p{prompt}");
        if !self.excused.contains(&name) {
            self.excused.push(name);
        }
    }

    /// The prompts with an excuse.
    pub fn excused(&self) -> &[String] {
        &self.excused
    }

    /// Something that holds or not.
    pub fn holds(
        &mut self,
        level: &'static str,
        subject: &str,
        what: impl Into<String>,
        holds: bool,
        note: impl Into<String>,
    ) {
        self.push(level, subject, what, None, None, holds, note);
    }

    /// A comparison that cannot be made here.
    pub fn skipped(&mut self, level: &'static str, subject: &str, why: impl Into<String>) {
        self.rows.push(Row {
            level,
            subject: subject.to_owned(),
            what: String::new(),
            worst: None,
            limit: None,
            outcome: Outcome::Skipped,
            note: why.into(),
        });
    }

    #[allow(clippy::too_many_arguments, reason = "the private end of three calls that name their arguments")]
    fn push(
        &mut self,
        level: &'static str,
        subject: &str,
        what: impl Into<String>,
        worst: Option<f64>,
        limit: Option<f64>,
        passed: bool,
        note: impl Into<String>,
    ) {
        let outcome = if passed { Outcome::Passed } else { Outcome::Missed };
        let (subject, what, note) = (subject.to_owned(), what.into(), note.into());
        self.rows.push(Row { level, subject, what, worst, limit, outcome, note });
    }

    /// Number of rows that ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.rows.iter().filter(|r| r.outcome == outcome).count()
    }

    /// The rows, and their counts, as one object.
    pub fn json(&self) -> Value {
        let row = |r: &Row| {
            json!({
                "level": r.level,
                "subject": r.subject,
                "what": r.what,
                "worst": r.worst,
                "limit": r.limit,
                "outcome": r.outcome.word().to_lowercase(),
                "note": r.note,
            })
        };
        json!({
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "passed": self.count(Outcome::Passed),
            "missed": self.count(Outcome::Missed),
            "skipped": self.count(Outcome::Skipped),
            "excused": self.excused,
        })
    }

    /// The rows from number `from` on, one line each.
    pub fn print(&self, from: usize, out: &mut Out) -> Result<()> {
        let number = |v: Option<f64>| v.map(|v| format!("{v:9.2e}")).unwrap_or_default();
        for r in self.rows.iter().skip(from) {
            let (worst, limit) = (number(r.worst), number(r.limit));
            let (outcome, level) = (r.outcome.word(), r.level);
            out.line(
                format!(
                    "{outcome:7} {level:6} {:22} {:34} {worst:>9} {limit:>9}  {}",
                    r.subject, r.what, r.note
                )
                .trim_end(),
            )?;
        }
        Ok(())
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_decide_and_nan_never_passes() {
        let mut table = Table::default();
        table.at_most("op", "a", "x", 1.0, 1.0, "");
        table.at_most("op", "a", "x", 1.1, 1.0, "");
        table.at_most("op", "a", "x", f64::NAN, 1.0, "");
        table.at_least("op", "a", "x", 0.9, 0.9, "");
        table.at_least("op", "a", "x", f64::NAN, 0.9, "");
        table.holds("op", "a", "x", false, "");
        table.skipped("op", "a", "absent");
        let outcomes: Vec<&str> = table.rows.iter().map(|r| r.outcome.word()).collect();
        assert_eq!(outcomes, ["passed", "MISSED", "MISSED", "passed", "MISSED", "MISSED", "skipped"]);
        assert_eq!(table.json()["missed"], 4);
    }
}
