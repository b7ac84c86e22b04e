//! When a result may differ: a selection (of experts or pools) closer than f32 rounding was decided the other way.

use anyhow::Result;

use super::golden::Golden;
use super::tolerance::limit;

/// For each position of a prompt, the closest selection at it or before it.
#[derive(Debug)]
pub struct Gaps {
    closest: Vec<f32>,
    limit: f64,
}

impl Gaps {
    /// Reads the router's and the indexer's gaps, `[layer, position]` each.
    pub fn read(golden: &Golden, prompt: usize) -> Result<Self> {
        let mut closest = vec![f32::INFINITY; prompt];
        for key in ["router_gap", "indexer_gap"] {
            let key = format!("p{prompt}.{key}");
            let gaps = golden.f32s(&key)?;
            // A prompt shorter than a pool has one row for each layer that selects nothing.
            let positions = golden.shape(&key)?.last().copied().unwrap_or_default().max(1);
            for row in gaps.chunks_exact(positions) {
                for (closest, gap) in closest.iter_mut().zip(row) {
                    *closest = closest.min(*gap);
                }
            }
        }
        for i in 1..closest.len() {
            closest[i] = closest[i].min(closest[i - 1]);
        }
        Ok(Self { closest, limit: limit("model.excuse-gap")? })
    }

    /// Whether a result at `position` may differ.
    pub fn excuses(&self, position: usize) -> bool {
        self.closest.get(position).is_some_and(|gap| f64::from(*gap) < self.limit)
    }

    /// Whether any result of the prompt or after it may differ.
    pub fn excuses_what_follows(&self) -> bool {
        self.excuses(self.closest.len().saturating_sub(1))
    }
}

/// Errors by row, split into the worst that must be within the limit and the excused rows beyond it.
#[derive(Debug, Default, PartialEq)]
pub struct Judged {
    /// The largest error of a row that has no excuse, or is within the limit anyway.
    pub worst: f64,
    /// Position of that row.
    pub at: usize,
    /// Positions beyond the limit, with an excuse.
    pub excused: Vec<usize>,
}

impl Judged {
    /// Judges the errors of the rows at `positions`.
    pub fn new(errors: &[(usize, f64)], limit: f64, gaps: &Gaps) -> Self {
        let mut judged = Self::default();
        for &(position, error) in errors {
            let is_beyond = error > limit || error.is_nan();
            if is_beyond && gaps.excuses(position) {
                judged.excused.push(position);
            } else if error > judged.worst || error.is_nan() {
                (judged.worst, judged.at) = (error, position);
            }
        }
        judged
    }

    /// What a row of the table says about it.
    pub fn note(&self) -> String {
        if self.excused.is_empty() {
            return format!("at {}", self.at);
        }
        let rows: Vec<String> = self.excused.iter().map(ToString::to_string).collect();
        format!("at {}; excused by a close selection: rows {}", self.at, rows.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excuse_counts_from_its_position_on() {
        let gaps = Gaps { closest: vec![1.0, 1.0, 1e-6, 1e-6], limit: 5e-6 };
        assert!(!gaps.excuses(1) && gaps.excuses(2) && gaps.excuses(3) && !gaps.excuses(9));
        let errors = [(0, 0.5), (1, 2.0), (2, 3.0), (3, 0.7)];
        let judged = Judged::new(&errors, 1.0, &gaps);
        assert_eq!(judged, Judged { worst: 2.0, at: 1, excused: vec![2] });
        assert_eq!(judged.note(), "at 1; excused by a close selection: rows 2");
        assert!(Judged::new(&[(0, f64::NAN), (1, 0.1)], 1.0, &gaps).worst.is_nan());
    }

    #[test]
    fn gaps_are_read_over_layers_and_carried_forward() {
        let Some(path) = golden::file("tiny-b.maya.golden.safetensors") else { return };
        let golden = Golden::read(&path).unwrap();
        // The README's table: router 1.6e-06 somewhere in the 515 tokens, 9.7e-06 in the 203.
        assert!(Gaps::read(&golden, 515).unwrap().excuses_what_follows());
        assert!(!Gaps::read(&golden, 203).unwrap().excuses_what_follows());
        assert!(!Gaps::read(&golden, 515).unwrap().excuses(0));
    }
}
