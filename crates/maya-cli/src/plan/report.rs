//! A prediction as text, as JSON and as a chart.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::article;
use super::bound::{Bound, Busy};
use super::machine::Machine;
use super::place::{Placement, Tiers};
use super::popularity::Popularity;
use super::sizes::Sizes;
use crate::output::{bytes, count};
use crate::plot::{Chart, Line};

/// Everything that a prediction follows from.
pub struct Plan {
    /// The model.
    pub sizes: Sizes,
    /// The machine.
    pub machine: Machine,
    /// The popularity.
    pub popularity: Popularity,
    /// Where experts lie.
    pub placement: Placement,
    /// By the article's arithmetic or ours.
    pub article: bool,
}

/// What a machine does.
pub struct Predicted {
    /// Milliseconds of a token.
    pub ms: f64,
    /// Milliseconds of the widest lane alone; `None` for the article.
    pub widest_ms: Option<f64>,
    /// Look-ups a token in VRAM, RAM and on the drive.
    pub lookups: [f64; 3],
    /// What each lane does in a token.
    pub busy: Busy,
    /// Experts by tier.
    pub tiers: Tiers,
}

/// Bytes of what can be bought.
const STEP: f64 = 8e9;

impl Plan {
    /// Of a machine with this plan's model and popularity.
    pub fn predict(&self, machine: &Machine) -> Predicted {
        let tiers = self.placement.tiers(machine.vram(), machine.ram.value);
        if self.article
            && let Some(gpu) = &machine.gpu
        {
            let lookups = article::lookups(&self.placement, tiers, &self.popularity.shares);
            let busy = Busy {
                dense: machine.dense_ms.value,
                hit: gpu.token_ms.value - machine.dense_ms.value,
                pull: lookups[1] * gpu.pull_ms.value,
                cpu: 0.0,
                drive: lookups[2] * machine.drive_ms.value,
            };
            return Predicted { ms: article::token_ms(busy), widest_ms: None, lookups, busy, tiers };
        }
        let bound = Bound::new(machine, &self.sizes, &self.popularity, &self.placement, tiers);
        let Bound { serial_ms, widest_ms, lookups, busy } = bound;
        Predicted { ms: serial_ms, widest_ms: Some(widest_ms), lookups, busy, tiers }
    }

    /// What one more part would give, as names and predictions.
    fn next(&self) -> Vec<(&'static str, Predicted)> {
        let with = |vram: f64, ram: f64, drive: f64| self.predict(&self.machine.with(vram, ram, drive));
        let mut list = vec![("16 GB of RAM", with(0.0, 2.0 * STEP, 1.0))];
        if self.machine.gpu.is_some() {
            list.push(("8 GB of VRAM", with(STEP, 0.0, 1.0)));
            list.push(("16 GB of VRAM", with(2.0 * STEP, 0.0, 1.0)));
        }
        list.push(("a drive twice as fast", with(0.0, 0.0, 2.0)));
        list
    }

    fn how(&self) -> &'static str {
        if self.article { "article" } else { "maya" }
    }

    /// For programs.
    pub fn json(&self) -> Json {
        let it = self.predict(&self.machine);
        let [vram, ram, drive] = it.lookups;
        let b = it.busy;
        let next: Vec<Json> = self
            .next()
            .into_iter()
            .map(|(what, p)| json!({"buy": what, "decode_tok_s": p.tok_s(), "gain_tok_s": p.tok_s() - it.tok_s()}))
            .collect();
        json!({
            "decode_tok_s": it.tok_s(),
            "token_ms": it.ms,
            "widest_lane_ms": it.widest_ms,
            "widest_lane_tok_s": it.widest_ms.map(|ms| 1e3 / ms),
            "model_of": self.how(),
            "draft_factor": self.article.then_some(article::DRAFTS),
            "lookups": {"vram": vram, "ram": ram, "drive": drive, "total": vram + ram + drive},
            "lanes": {
                "dense_ms": b.dense, "hit_ms": b.hit, "pull_ms": b.pull, "cpu_ms": b.cpu, "drive_ms": b.drive,
            },
            "experts": {"vram": it.tiers.vram, "ram": it.tiers.ram, "drive": it.tiers.drive},
            "machine": self.machine.name,
            "inputs": self.machine.json(),
            "model": {
                "source": self.sizes.source,
                "moe_layers": self.sizes.layers(),
                "experts": self.sizes.experts,
                "experts_used": self.sizes.k,
                "total_bytes": self.sizes.total_bytes,
                "routed_bytes": self.sizes.routed_bytes(),
                "expert_bytes": self.sizes.mean_expert_bytes(),
                "expert_bytes_by_layer": self.sizes.expert_bytes,
                "always_bytes": self.sizes.always_bytes,
                "state_bytes": self.sizes.state_bytes,
            },
            "popularity": {"source": self.popularity.what, "samples": self.popularity.tokens().len()},
            "next": next,
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let it = self.predict(&self.machine);
        let mut text = String::new();
        let s = &self.sizes;
        let _ = writeln!(
            text,
            "model: {}: {} MoE layers of {} experts, {} used, {} each; {} that every token reads, {} of state",
            s.source,
            s.layers(),
            s.experts,
            s.k,
            bytes(s.mean_expert_bytes() as u64),
            bytes(s.always_bytes),
            bytes(s.state_bytes)
        );
        let _ = writeln!(text, "popularity: {}", self.popularity.what);
        let _ = writeln!(text, "machine: {}", self.machine.name);
        for (name, unit, said) in self.machine.inputs() {
            let _ = writeln!(text, "  {name:<12}{:>12}  {}", unit.show(said.value).to_string(), said.source);
        }
        let _ = writeln!(text, "\n{:<8}{:>10}{:>18}", "tier", "experts", "look-ups a token");
        let tiers = [("VRAM", it.tiers.vram), ("RAM", it.tiers.ram), ("drive", it.tiers.drive)];
        for ((name, n), lookups) in tiers.into_iter().zip(it.lookups) {
            let _ = writeln!(text, "{name:<8}{:>10}{lookups:>18.1}", count(n as u64));
        }
        let _ = writeln!(text, "\n{:<28}{:>14}", "lane", "ms a token");
        for (name, ms) in self.lanes(it.busy) {
            let _ = writeln!(text, "{name:<28}{ms:>14.2}");
        }
        let _ = match it.widest_ms {
            None => writeln!(
                text,
                "\n{:.2} tok/s: lanes add up, times {:.3} with the draft pipeline, {:.1} ms a token",
                it.tok_s(),
                article::DRAFTS,
                it.ms
            ),
            Some(widest) => writeln!(
                text,
                "\n{:.2} tok/s at most: layer after layer, in each the widest lane, {:.2} ms a token ({} sampled)\n\
                 {:.2} tok/s if layers could overlap: the widest lane alone, {widest:.2} ms",
                it.tok_s(),
                it.ms,
                self.popularity.tokens().len(),
                1e3 / widest
            ),
        };
        text.push_str("\nwhat to buy next:\n");
        let mut next = self.next();
        next.sort_by(|a, b| b.1.tok_s().total_cmp(&a.1.tok_s()));
        for (what, p) in next {
            let gain = signed(p.tok_s() - it.tok_s());
            let _ = writeln!(text, "  {what:<24}{gain:>9}  {:>9.2} tok/s", p.tok_s());
        }
        text
    }

    fn lanes(&self, b: Busy) -> Vec<(&'static str, f64)> {
        if self.machine.gpu.is_none() {
            return vec![("CPU, all but experts", b.dense), ("CPU, experts", b.cpu), ("drive", b.drive)];
        }
        let mut list = vec![
            ("GPU, all but experts", b.dense),
            ("GPU, experts in VRAM", b.hit),
            ("bus, experts to GPU", b.pull),
        ];
        if self.machine.cpu_ms.is_some() && !self.article {
            list.push(("CPU, experts in RAM", b.cpu));
        }
        list.push(("drive", b.drive));
        list
    }

    /// Tokens a second against RAM or VRAM, from none to all experts.
    pub fn chart(&self, over_vram: bool) -> Chart {
        const POINTS: usize = 48;
        let all = self.sizes.routed_bytes() as f64;
        let predicted: Vec<(f64, Predicted)> = (0..=POINTS)
            .map(|i| {
                let room = all * i as f64 / POINTS as f64;
                let mut machine = self.machine.clone();
                match &mut machine.gpu {
                    Some(gpu) if over_vram => gpu.vram.value = room,
                    _ => machine.ram.value = room,
                }
                (room / 1e9, self.predict(&machine))
            })
            .collect();
        let mut lines = vec![Line {
            name: if self.article { "lanes added".to_owned() } else { "layer after layer".to_owned() },
            points: predicted.iter().map(|(gb, p)| (*gb, p.tok_s())).collect(),
        }];
        if !self.article {
            let points = predicted.iter().filter_map(|(gb, p)| Some((*gb, 1e3 / p.widest_ms?))).collect();
            lines.push(Line { name: "widest lane".to_owned(), points });
        }
        let tier = if over_vram { "VRAM" } else { "RAM" };
        Chart {
            title: format!("decode on {} ({})", self.machine.name, self.popularity.what),
            x: format!("{tier} for experts, GB"),
            y: "tokens a second".to_owned(),
            lines,
        }
    }
}

impl Predicted {
    /// Tokens a second.
    pub fn tok_s(&self) -> f64 {
        1e3 / self.ms
    }
}

/// With three digits; what rounds to nothing is not less than nothing.
fn signed(gain: f64) -> String {
    let text = format!("{gain:+.3}");
    if text == "-0.000" { "+0.000".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More memory that changes nothing was said to cost `-0.000` tokens a second.
    #[test]
    fn nothing_has_no_sign() {
        assert_eq!([-0.000_4, 0.0, -0.0006].map(signed), ["+0.000", "+0.000", "-0.001"]);
    }
}
