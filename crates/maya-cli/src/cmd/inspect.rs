//! `maya inspect`: what is in a file, what a token reads from it, what fits where.

use std::fmt::Write as _;

use anyhow::Result;
use gguf::{Array, Model, Value};
use serde_json::{Map, Value as Json, json};

use crate::args::InspectArgs;
use crate::group::{Group, brief};
use crate::machine::Memory;
use crate::output::{Out, bytes, count, printable};
use crate::source::Source;
use crate::survey::{ARCHITECTURE, SIZES, Sum, Survey};

/// Longest text value that the summary shows.
const TEXT_LIMIT: usize = 60;

/// Prints the report.
pub fn run(args: &InspectArgs) -> Result<()> {
    let source = Source::open(args.model.as_deref().or(args.path.as_deref()))?;
    let mut report = Report::of(&source);
    // The engine is asked last: it takes the file.
    report.refused = glm_graph::Model::load(source.model).err().map(|e| e.to_string());
    let mut out = Out::new();
    if args.json {
        out.line(report.json())?;
    } else {
        out.text(&report.text())?;
    }
    out.flush()
}

struct Report {
    name: String,
    shards: Vec<(String, u64)>,
    general: Vec<(String, String)>,
    tokenizer: Tokenizer,
    survey: Survey,
    fits: Fits,
    refused: Option<String>,
}

/// What the file says about text.
struct Tokenizer {
    model: Option<String>,
    pre: Option<String>,
    tokens: usize,
    template: bool,
}

/// Weights against memory.
struct Fits {
    room: Option<u64>,
    /// Everything but routed experts.
    dense: u64,
    experts: u64,
    n_experts: u64,
    /// Routed experts that fit beside the rest; `None` where memory is unknown.
    in_ram: Option<u64>,
}

impl Report {
    fn of(source: &Source) -> Self {
        let model = &source.model;
        let survey = Survey::of(model);
        let text = |key: &str| model.str(key).ok().flatten().map(str::to_owned);
        let tokens = match model.get("tokenizer.ggml.tokens") {
            Some(Value::Array(Array::String(list))) => list.len(),
            _ => 0,
        };
        Self {
            name: source.name.clone(),
            shards: model.shards().iter().map(|s| (s.path.display().to_string(), s.len)).collect(),
            general: general(model),
            tokenizer: Tokenizer {
                model: text("tokenizer.ggml.model"),
                pre: text("tokenizer.ggml.pre"),
                tokens,
                template: model.get("tokenizer.chat_template").is_some(),
            },
            fits: Fits::of(&survey, Memory::read().room()),
            survey,
            refused: None,
        }
    }

    fn json(&self) -> Json {
        let it = &self.survey;
        let sum = |s: &Sum| {
            let types: Map<String, Json> =
                s.types.iter().map(|(t, b)| (t.name().to_owned(), json!(b))).collect();
            json!({"tensors": s.tensors, "parameters": s.parameters, "bytes": s.bytes, "types": types})
        };
        let families: Map<String, Json> =
            it.groups.iter().map(|(f, s)| (f.name().to_owned(), sum(s))).collect();
        let shards: Vec<Json> =
            self.shards.iter().map(|(path, len)| json!({"path": path, "bytes": len})).collect();
        let general: Map<String, Json> = self.general.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        json!({
            "name": self.name,
            "architecture": if it.is_family { Some(ARCHITECTURE) } else { it.spelling.as_deref() },
            "architecture_in_file": it.spelling,
            "shards": shards,
            "metadata": general,
            "sizes": it.sizes,
            "tokenizer": {
                "model": self.tokenizer.model,
                "pre": self.tokenizer.pre,
                "tokens": self.tokenizer.tokens,
                "chat_template": self.tokenizer.template,
            },
            "total": sum(&it.total),
            "families": families,
            "bytes_per_token": {
                "always": it.token.always,
                "experts": it.token.experts,
                "kda_state": it.token.state,
                "total": it.token.total(),
                "parameters": it.token.parameters,
            },
            "fits": {
                "memory_available": self.fits.room,
                "without_experts": self.fits.dense,
                "experts": self.fits.experts,
                "n_experts": self.fits.n_experts,
                "n_experts_in_memory": self.fits.in_ram,
                "sentence": self.fits.sentence(),
            },
            "missing": it.missing,
            "unknown": it.unknown,
            "remarks": it.remarks,
            "runs": self.refused.is_none(),
            "refused": self.refused,
        })
    }

    fn text(&self) -> String {
        let it = &self.survey;
        let mut text = String::new();
        let mut line = |label: &str, value: &str| {
            let _ = writeln!(text, "{label:<22}{}", printable(value));
        };
        line("file", &self.name);
        if self.shards.len() > 1 {
            for (path, len) in &self.shards {
                line("  shard", &format!("{path}  {}", bytes(*len)));
            }
        }
        let spelling = it.spelling.as_deref().unwrap_or("missing");
        line(
            "architecture",
            &match spelling {
                ARCHITECTURE => ARCHITECTURE.to_owned(),
                _ if it.is_family => format!("{ARCHITECTURE} (spelt {spelling:?} in the file)"),
                _ => format!("{spelling}, not {ARCHITECTURE}"),
            },
        );
        for (key, value) in &self.general {
            line(key, value);
        }
        let file_bytes = self.shards.iter().map(|s| s.1).sum();
        line(
            "size",
            &format!(
                "{} in {} file{}, {} tensors, {} parameters, {} used by a token",
                bytes(file_bytes),
                self.shards.len(),
                if self.shards.len() == 1 { "" } else { "s" },
                count(it.total.tensors),
                millions(it.total.parameters),
                millions(it.token.parameters),
            ),
        );
        line(
            "tokenizer",
            &match (&self.tokenizer.model, self.tokenizer.tokens) {
                (_, 0) | (None, _) => "none: this file can only be used with token ids".to_owned(),
                (Some(model), n) => format!(
                    "{model}, pre-tokenizer {}, {} tokens, {}",
                    self.tokenizer.pre.as_deref().unwrap_or("not named"),
                    count(n as u64),
                    if self.tokenizer.template {
                        "with a chat template"
                    } else {
                        "no chat template: it cannot chat"
                    }
                ),
            },
        );
        text.push_str("\nsizes\n");
        for name in SIZES {
            if let Some(value) = it.size(name) {
                let _ = writeln!(text, "  {name:<32}{:>12}", count(value));
            }
        }
        let _ =
            writeln!(text, "\n{:<12}{:>8}{:>12}{:>12}  types", "family", "tensors", "parameters", "bytes");
        let row = |name: &str, s: &Sum| {
            let mut types: Vec<(&str, u64)> = s.types.iter().map(|(t, b)| (t.name(), *b)).collect();
            types.sort_by_key(|t| std::cmp::Reverse(t.1));
            let types: Vec<String> = types.iter().map(|(t, b)| format!("{t} {}", bytes(*b))).collect();
            format!(
                "{name:<12}{:>8}{:>12}{:>12}  {}\n",
                s.tensors,
                millions(s.parameters),
                bytes(s.bytes),
                types.join(", ")
            )
        };
        for group in Group::ALL {
            if let Some(sum) = it.groups.get(&group) {
                text.push_str(&row(group.name(), sum));
            }
        }
        text.push_str(&row("all", &it.total));
        let t = it.token;
        let _ = writeln!(
            text,
            "\na token reads {}: {} whatever it is, {} of routed experts, {} of delta-attention state (read and \
             written), and the latents of the positions it attends to",
            bytes(t.total()),
            bytes(t.always),
            bytes(t.experts),
            bytes(t.state)
        );
        let _ = writeln!(text, "{}", self.fits.sentence());
        for remark in &it.remarks {
            let _ = writeln!(text, "{}", printable(remark));
        }
        for (what, names) in [("missing", &it.missing), ("not known", &it.unknown)] {
            if !names.is_empty() {
                let _ =
                    writeln!(text, "{} tensors are {what}: {}", names.len(), printable(&brief(names, 12)));
            }
        }
        let _ = match &self.refused {
            None => writeln!(text, "the engine accepts this file"),
            Some(why) => writeln!(text, "the engine refuses this file: {}", printable(why)),
        };
        text
    }
}

impl Fits {
    fn of(survey: &Survey, room: Option<u64>) -> Self {
        let experts = survey.group(Group::Experts).bytes;
        let dense = survey.total.bytes - experts;
        let n_experts = survey.n_experts();
        let in_ram = room.map(|room| {
            let left = u128::from(room.saturating_sub(dense));
            if experts == 0 {
                0
            } else {
                (left * u128::from(n_experts) / u128::from(experts)).min(n_experts.into()) as u64
            }
        });
        Self { room, dense, experts, n_experts, in_ram }
    }

    fn sentence(&self) -> String {
        let (dense, experts) = (bytes(self.dense), bytes(self.experts));
        let parts = format!("{dense} without routed experts, {experts} of routed experts");
        let (Some(room), Some(in_ram)) = (self.room, self.in_ram) else {
            return format!("weights: {parts}; how much memory this machine has is not known");
        };
        let room = format!("{} of memory available here", bytes(room));
        if self.room.is_some_and(|r| r < self.dense) {
            format!(
                "weights: {parts}; {room}: not even the part that every token reads fits, so each token waits for the drive"
            )
        } else if in_ram < self.n_experts {
            format!(
                "weights: {parts}; {room}: the part that every token reads fits, and beside it {} of {} routed experts; the \
                 others are read from the drive when a token needs them",
                count(in_ram),
                count(self.n_experts)
            )
        } else {
            format!("weights: {parts}; {room}: all of it fits")
        }
    }
}

/// The `general.` metadata as short texts, without the architecture.
fn general(model: &Model) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (key, value) in model.metadata() {
        let Some(short) = key.strip_prefix("general.") else { continue };
        if short == "architecture" {
            continue;
        }
        let text = match value {
            Value::String(s) => s.chars().take(TEXT_LIMIT).collect(),
            Value::U32(n) => n.to_string(),
            Value::U64(n) => n.to_string(),
            Value::F32(x) => x.to_string(),
            Value::Bool(b) => b.to_string(),
            other => other.type_name().to_owned(),
        };
        list.push((short.chars().take(TEXT_LIMIT).collect(), text));
    }
    list
}

/// Parameters for people: `28.1 M`, `321 B`.
fn millions(n: u64) -> String {
    let (value, unit) = match n {
        0..1_000_000 => return count(n),
        1_000_000..1_000_000_000 => (n as f64 / 1e6, "M"),
        _ => (n as f64 / 1e9, "B"),
    };
    if value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}
