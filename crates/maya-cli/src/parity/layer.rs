//! Level `layer`: each trunk layer alone, from the golden streams before it to the golden streams after it.

use anyhow::{Result, ensure};
use glm_graph::{CpuExecutor, Kv, probe};
use quant_kernels::Precision;

use super::golden::{Fixtures, Golden};
use super::subject::{Loaded, SUBJECTS};
use super::table::Table;
use super::tolerance::limit;

const LEVEL: &str = "layer";

/// Compares every layer of every model, exact and fast.
pub fn run(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    for subject in &SUBJECTS {
        if let Some(loaded) = subject.load(LEVEL, fixtures, table)? {
            compare(&loaded, Precision::Exact, Kv::F32, table)?;
            compare(&loaded, Precision::Fast, Kv::F16, table)?;
        }
    }
    Ok(())
}

fn compare(loaded: &Loaded, precision: Precision, kv: Kv, table: &mut Table) -> Result<()> {
    let (name, config) = (loaded.subject.name, loaded.model.config());
    let prompts: Vec<Prompt> = loaded
        .golden
        .prompts()
        .into_iter()
        .filter(|n| loaded.golden.has(&format!("p{n}.hidden")))
        .map(|n| Prompt::read(&loaded.golden, n))
        .collect::<Result<_>>()?;
    ensure!(!prompts.is_empty(), "the golden values of {name} hold no streams");
    let mut executor = loaded.executor(precision, kv)?;
    for layer in 0..config.trunk {
        let mut worst = Worst::default();
        for prompt in &prompts {
            prompt.layer(&mut executor, layer, config.residual(), &mut worst, precision)?;
        }
        let kind = if config.is_moe(layer) { "MoE" } else { "dense" };
        match precision {
            Precision::Exact => {
                let what = format!("{layer} {kind}, exact");
                table.at_most(LEVEL, name, what, worst.error, limit("layer.exact")?, worst.note());
            }
            Precision::Fast => {
                let what = format!("{layer} {kind}, fast, relative RMS");
                table.at_most(LEVEL, name, what, worst.error, limit("layer.fast")?, worst.note());
            }
        }
        if worst.compared == 0 {
            table.holds(LEVEL, name, format!("{layer} {kind}"), false, "no position could be compared");
        }
    }
    Ok(())
}

/// The worst error of a layer, and how much was compared.
#[derive(Debug, Default)]
struct Worst {
    error: f64,
    prompt: usize,
    position: usize,
    compared: usize,
    left_out: usize,
}

impl Worst {
    fn add(&mut self, error: f64, prompt: usize, position: usize) {
        self.compared += 1;
        if error > self.error || error.is_nan() {
            (self.error, self.prompt, self.position) = (error, prompt, position);
        }
    }

    fn note(&self) -> String {
        let left_out = match self.left_out {
            0 => String::new(),
            n => format!(", {n} left out by their router gap"),
        };
        format!("{} positions{left_out}; p{} at {}", self.compared, self.prompt, self.position)
    }
}

/// The first positions of a prompt.
struct Prompt {
    length: usize,
    /// Positions with streams.
    n: usize,
    tokens: Vec<u32>,
    /// `[layer][n][streams * hidden]`
    streams: Vec<f32>,
    router_layers: Vec<i32>,
    /// `[router layer][length]`
    router_gap: Vec<f32>,
}

impl Prompt {
    fn read(golden: &Golden, length: usize) -> Result<Self> {
        let key = |name: &str| format!("p{length}.{name}");
        let n = golden.shape(&key("hidden"))?.get(1).copied().unwrap_or_default();
        Ok(Self {
            length,
            n,
            tokens: golden.tokens(&key("tokens"))?.into_iter().take(n).collect(),
            streams: golden.f32s(&key("hidden"))?,
            router_layers: golden.i32s(&key("router_layers"))?,
            router_gap: golden.f32s(&key("router_gap"))?,
        })
    }

    fn layer(
        &self,
        executor: &mut CpuExecutor,
        layer: usize,
        width: usize,
        worst: &mut Worst,
        precision: Precision,
    ) -> Result<()> {
        let of = |layer: usize| &self.streams[layer * self.n * width..(layer + 1) * self.n * width];
        let input = match layer.checked_sub(1) {
            Some(before) => of(before).to_vec(),
            None => probe::embedding(executor, &self.tokens)?,
        };
        let found = probe::layer(executor, layer, &input)?;
        let rows = found.chunks_exact(width).zip(of(layer).chunks_exact(width));
        let least_gap = limit("layer.router-gap")?;
        for (position, (found, expected)) in rows.enumerate() {
            match precision {
                Precision::Exact => worst.add(largest_error(found, expected), self.length, position),
                Precision::Fast if self.gap(layer, position).is_none_or(|gap| gap > least_gap) => {
                    worst.add(relative_rms(found, expected), self.length, position);
                }
                Precision::Fast => worst.left_out += 1,
            }
        }
        Ok(())
    }

    /// How close the choice of experts is; `None` in a dense layer.
    fn gap(&self, layer: usize, position: usize) -> Option<f64> {
        let row = self.router_layers.iter().position(|l| usize::try_from(*l) == Ok(layer))?;
        self.router_gap.get(row * self.length + position).map(|gap| f64::from(*gap))
    }
}

/// Largest absolute difference; NaN if there is one.
pub fn largest_error(found: &[f32], expected: &[f32]) -> f64 {
    let errors = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - f64::from(*e)).abs());
    errors.fold(0.0, |worst: f64, error| if error > worst || error.is_nan() { error } else { worst })
}

/// Root mean square of the difference over that of what is expected.
fn relative_rms(found: &[f32], expected: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let error: f64 = found.iter().zip(expected).map(|(f, e)| square(f64::from(*f) - f64::from(*e))).sum();
    let size: f64 = expected.iter().map(|e| square(f64::from(*e))).sum();
    (error / size).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_measured() {
        assert_eq!(largest_error(&[1.0, -2.0], &[1.5, -2.0]), 0.5);
        assert!(largest_error(&[f32::NAN, 9.0], &[0.0, 0.0]).is_nan());
        assert!((relative_rms(&[3.0, 4.4], &[3.0, 4.0]) - 0.08).abs() < 1e-6);
    }
}
