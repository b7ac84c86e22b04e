//! What maya would do: how the weights divide, what of them stays in memory, what a token then reads from the drive, and
//! the command line that follows.

use std::path::Path;

use glm_graph::weights::{Ffn, Stack};
use glm_graph::{CpuExecutor, CpuOptions, Kv, Model, TierOptions, TierPlan};
use quant_kernels::Precision;
use serde_json::json;

use super::Finding;
use crate::group::Group;
use crate::machine::Memory;
use crate::output::{bytes, count};
use crate::survey::Survey;
use crate::tiers::{Spare, reserve};

/// Context without --ctx, as the engine chooses it.
const CTX: usize = 32_768;
/// The least context that is worth suggesting.
const CTX_LEAST: usize = 2048;
/// Seconds of a cold start beside reading.
const START_SECONDS: f64 = 2.0;

/// How the weights divide, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weights {
    /// What every token reads, and the embedding.
    dense: u64,
    /// Routed experts of the trunk.
    experts: u64,
    /// The NextN block.
    nextn: u64,
    n_experts: u64,
    /// Experts of a token, all layers.
    token: u64,
}

impl Weights {
    /// What the engine keeps in memory before it gives any to experts.
    fn kept(&self) -> u64 {
        self.dense.saturating_add(self.nextn)
    }
}

/// Where the routed experts would be.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// There are none.
    Nowhere,
    /// The model is inside the program.
    Program,
    /// How much memory there is is not known.
    Unknown,
    /// All of them, through the file's map.
    Memory,
    /// Some of them in slots; `None` if the tiers cannot be planned, with the reason.
    Tiers { ram: u64, plan: Result<TierPlan, String> },
    /// Not even the dense weights and the caches leave room for one.
    Drive,
    /// The caches alone are too large.
    Refused,
}

/// What would be done with a model.
pub(super) struct Outlook<'a> {
    weights: Weights,
    place: Place,
    /// Memory that could be had.
    room: Option<u64>,
    /// State, caches, buffers.
    beside: u64,
    ctx: usize,
    /// Whether the context is smaller than usual for the sake of memory.
    is_shortened: bool,
    /// Experts of a layer, and bytes of one, for each MoE layer.
    layers: Vec<(u32, u64)>,
    used: u64,
    /// Bytes a second of the drive.
    rate: Option<f64>,
    path: Option<&'a Path>,
    runs: bool,
}

impl<'a> Outlook<'a> {
    /// Of a model that was opened, and loaded if the engine accepts it.
    pub(super) fn of(
        survey: &Survey,
        model: Option<&Model>,
        memory: &Memory,
        rate: Option<f64>,
        path: Option<&'a Path>,
    ) -> Self {
        let (experts, nextn) = (survey.group(Group::Experts).bytes, survey.group(Group::NextN).bytes);
        let weights = Weights {
            dense: survey.total.bytes.saturating_sub(experts).saturating_sub(nextn),
            experts,
            nextn,
            n_experts: survey.n_experts(),
            token: survey.token.experts,
        };
        let mut it = Self {
            weights,
            place: Place::Unknown,
            room: memory.room(),
            beside: 0,
            ctx: CTX,
            is_shortened: false,
            layers: model.map(layers).unwrap_or_default(),
            used: survey.size("expert_used_count").unwrap_or(0),
            rate,
            path,
            runs: model.is_some(),
        };
        if let Some(model) = model {
            (it.ctx, it.beside) = context(model, it.room);
            it.is_shortened = it.ctx < model.config().context_length.min(CTX);
            it.place = it.place(|ram| {
                let options = TierOptions { ram, ..TierOptions::default() };
                TierPlan::of(model, &options).map_err(|e| e.to_string())
            });
        }
        it
    }

    fn place(&self, plan: impl FnOnce(u64) -> Result<TierPlan, String>) -> Place {
        match self.room {
            Some(room) if room < self.beside => Place::Refused,
            _ if self.path.is_none() => Place::Program,
            _ if self.weights.experts == 0 => Place::Nowhere,
            None => Place::Unknown,
            Some(room) => match Spare::of(room, self.beside, self.weights.kept(), self.weights.experts) {
                Spare::Nothing => Place::Drive,
                Spare::All => Place::Memory,
                Spare::Slots(ram) => Place::Tiers { ram, plan: plan(ram) },
            },
        }
    }

    /// What is left to everybody else.
    fn reserve(&self) -> u64 {
        self.room.map_or(0, reserve)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut list = vec![self.weights()];
        if self.runs {
            list.extend([self.experts(), self.token()]);
        }
        list.push(self.suggestion());
        list
    }

    fn weights(&self) -> Finding {
        let w = self.weights;
        let mut found = format!("{} dense (every token reads them)", bytes(w.dense));
        if w.experts > 0 {
            found.push_str(&format!(
                ", {} in {} routed experts (a token reads {} of them)",
                bytes(w.experts),
                count(w.n_experts),
                bytes(w.token)
            ));
        }
        if w.nextn > 0 {
            found.push_str(&format!(", {} in the NextN block, which only drafts would read", bytes(w.nextn)));
        }
        let facts = json!({
            "dense": w.dense,
            "experts": w.experts,
            "nextn": w.nextn,
            "n_experts": w.n_experts,
            "experts_per_token": w.token,
        });
        Finding::new("weights", found, facts)
    }

    fn experts(&self) -> Finding {
        let room = self.room.map_or("memory of unknown size".to_owned(), bytes);
        let beside = format!(
            "{} of weights that are no routed experts, {} of state, caches ({} tokens of context) and buffers, and {} of \
             reserve",
            bytes(self.weights.kept()),
            bytes(self.beside),
            count(self.ctx as u64),
            bytes(self.reserve())
        );
        let found = match &self.place {
            Place::Nowhere => "the model has none".to_owned(),
            Place::Program => "all in memory: the model is inside the program".to_owned(),
            Place::Unknown => {
                "how many fit is not known, since this system does not say how much memory it has".to_owned()
            }
            Place::Memory => {
                format!("all fit: {room} can be had, and beside them go {beside}; no tiers are needed")
            }
            Place::Tiers { ram, plan: Err(why) } => {
                format!(
                    "{room} can be had, and {beside} leave {}; slots cannot be planned: {why}",
                    bytes(*ram)
                )
            }
            Place::Tiers { ram, plan: Ok(plan) } => {
                let (least, most) =
                    (plan.slots.iter().min().unwrap_or(&0), plan.slots.iter().max().unwrap_or(&0));
                let each = if least == most { format!("{least}") } else { format!("{least} to {most}") };
                let of = self.layers.first().map_or(0, |(experts, _)| *experts);
                format!(
                    "not all fit: {room} can be had, and {beside} leave {}; --ram auto makes that {} slots, {each} of {of} in \
                     every layer, and the drive has the others",
                    bytes(*ram),
                    count(plan.slots.iter().map(|n| u64::from(*n)).sum())
                )
            }
            Place::Drive => format!(
                "none fits: {room} can be had, less than {beside}; every token reads its experts, and what does not fit of the \
                 dense weights, from the drive"
            ),
            Place::Refused => format!(
                "none fits: {room} can be had, and state, caches and buffers alone take {} at {} tokens of context: maya refuses \
                 to start",
                bytes(self.beside),
                count(self.ctx as u64)
            ),
        };
        let (ram, slots) = match &self.place {
            Place::Tiers { ram, plan } => (Some(*ram), plan.as_ref().ok().map(|p| p.slots.clone())),
            _ => (None, None),
        };
        let facts = json!({
            "room": self.room,
            "beside": self.beside,
            "reserve": self.reserve(),
            "ctx": self.ctx,
            "all_fit": matches!(self.place, Place::Memory | Place::Program | Place::Nowhere),
            "ram_auto": ram,
            "slots": slots,
        });
        Finding::new("experts", found, facts)
    }

    /// Bytes that a token reads from the drive if every expert is equally likely; `None` where that is not known.
    fn drive_bytes(&self) -> Option<u64> {
        match &self.place {
            Place::Nowhere | Place::Program | Place::Memory => Some(0),
            Place::Unknown | Place::Refused => None,
            Place::Drive => {
                let left = self.room?.saturating_sub(self.beside).saturating_sub(self.reserve());
                Some(self.weights.token.saturating_add(self.weights.dense.saturating_sub(left)))
            }
            Place::Tiers { plan, .. } => {
                let plan = plan.as_ref().ok()?;
                let misses = self.layers.iter().zip(&plan.slots).map(|(&(experts, blob), &slots)| {
                    let missing = 1.0 - f64::from(slots.min(experts)) / f64::from(experts.max(1));
                    self.used as f64 * blob as f64 * missing
                });
                Some(misses.sum::<f64>() as u64)
            }
        }
    }

    fn token(&self) -> Finding {
        let drive = self.drive_bytes();
        let per_second = self.rate.zip(drive.filter(|&b| b > 0)).map(|(rate, b)| rate / b as f64);
        let cold = self.weights.dense.saturating_add(self.weights.token);
        let first = self.rate.map(|rate| cold as f64 / rate + START_SECONDS);
        let mut found = match drive {
            _ if self.place == Place::Program => "nothing from a drive".to_owned(),
            None => "what the drive must bring is not known".to_owned(),
            Some(0) => "nothing from the drive once all was read".to_owned(),
            Some(b) => format!("{} from the drive if every expert is equally likely", bytes(b)),
        };
        match (per_second, self.rate) {
            (Some(bound), Some(rate)) => found.push_str(&format!(
                ": at {:.2} GB/s no more than {} tokens a second (text prefers some experts, and those that stay in memory catch \
                 more than their share)",
                rate / 1e9,
                significant(bound)
            )),
            (None, None) if drive.is_some_and(|b| b > 0) => {
                found.push_str("; how many tokens a second that allows is not known, since the drive was not measured");
            }
            _ => {}
        }
        if let Some(first) = first {
            found.push_str(&format!(
                "; the first token after a cold start takes about {} s, for {}",
                significant(first),
                bytes(cold)
            ));
        }
        let facts = json!({
            "drive_bytes": drive,
            "tokens_per_second_bound": per_second,
            "cold_start_bytes": cold,
            "first_token_seconds": first,
        });
        Finding::new("per token", found, facts)
    }

    /// The command line, if there is one.
    fn command(&self) -> Option<String> {
        if !self.runs || self.place == Place::Refused {
            return None;
        }
        let mut line = "maya chat".to_owned();
        if let Some(path) = self.path {
            line.push_str(&format!(" --model {}", quoted(&path.display().to_string())));
        }
        if matches!(self.place, Place::Tiers { .. }) {
            line.push_str(" --ram auto");
        }
        if self.is_shortened {
            line.push_str(&format!(" --ctx {}", self.ctx));
        }
        Some(line)
    }

    fn suggestion(&self) -> Finding {
        let command = self.command();
        let found = match (&command, &self.place) {
            (Some(line), Place::Drive) => format!(
                "{line} works, and is slow here: a machine with {} of free memory keeps at least the dense weights",
                bytes(self.weights.kept().saturating_add(self.beside).saturating_add(self.reserve()))
            ),
            (Some(line), _) => line.clone(),
            (None, Place::Refused) => {
                format!("none: a machine with more than {} of free memory is needed", bytes(self.beside))
            }
            (None, _) => "none: the engine refuses this model".to_owned(),
        };
        Finding::new("suggestion", found, json!({"command": command}))
    }
}

/// Two digits that count.
fn significant(x: f64) -> String {
    match x {
        x if x >= 100.0 => count(x as u64),
        x if x >= 10.0 => format!("{x:.0}"),
        x if x >= 1.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

/// As a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+=:@%,".contains(c);
    if path.chars().all(is_plain) && !path.is_empty() {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

/// The context that the engine would take, made smaller until its caches fit, and what they need with state and buffers.
fn context(model: &Model, room: Option<u64>) -> (usize, u64) {
    let need = |ctx| {
        let options = CpuOptions {
            precision: Precision::Fast,
            kv: Kv::F16,
            threads: None,
            ctx,
            isa: None,
            tiers: None,
        };
        CpuExecutor::plan(model, &options).anonymous()
    };
    let wanted = model.config().context_length.min(CTX);
    let mut ctx = wanted;
    while room.is_some_and(|room| need(ctx) > room) {
        match ctx.checked_next_power_of_two().map(|n| n / 2) {
            Some(less) if less >= CTX_LEAST => ctx = less,
            _ => return (wanted, need(wanted)),
        }
    }
    (ctx, need(ctx))
}

/// Experts, and bytes of one, of each MoE layer of the trunk.
fn layers(model: &Model) -> Vec<(u32, u64)> {
    let bytes = |stack: &Stack| stack.extent(0).len;
    let blocks = &model.weights().blocks;
    blocks
        .iter()
        .take(model.config().trunk)
        .filter_map(|block| match &block.ffn {
            Ffn::Moe(moe) => {
                Some((model.config().experts as u32, bytes(&moe.gate) + bytes(&moe.up) + bytes(&moe.down)))
            }
            Ffn::Dense(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::synth::write;

    const GB: u64 = 1_000_000_000;

    /// About the published model: 42 layers of 288 experts of 7.1 MB.
    fn outlook(room: Option<u64>, rate: Option<f64>) -> Outlook<'static> {
        let mut it = Outlook {
            weights: Weights {
                dense: 8 * GB,
                experts: 86 * GB,
                nextn: 2 * GB,
                n_experts: 12_096,
                token: 2_389_000_000,
            },
            place: Place::Unknown,
            room,
            beside: GB,
            ctx: CTX,
            is_shortened: false,
            layers: vec![(288, 7_110_000); 42],
            used: 8,
            rate,
            path: Some(Path::new("/m/a b.gguf")),
            runs: true,
        };
        it.place = it.place(|ram| {
            let slots = vec![(ram / 42 / 7_110_000) as u32; 42];
            let slot_bytes = slots.iter().map(|n| u64::from(*n) * 7_110_000).sum();
            Ok(TierPlan {
                slots,
                slot_bytes,
                landings: 16,
                landing_bytes: 0,
                landing_inside: true,
                all_bytes: 86 * GB,
            })
        });
        it
    }

    #[track_caller]
    fn check(it: &Outlook<'_>, says: &[&str], command: Option<&str>) {
        let list = it.findings();
        let text: Vec<String> = list.iter().map(|f| format!("{}: {}", f.what, f.found)).collect();
        let text = text.join("\n");
        for part in says {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        let suggestion = list.iter().find(|f| f.what == "suggestion").unwrap();
        assert_eq!(suggestion.facts["command"].as_str(), command, "{text}");
    }

    #[test]
    fn by_how_much_memory_there_is() {
        let chat = Some("maya chat --model '/m/a b.gguf'");
        let tiers = Some("maya chat --model '/m/a b.gguf' --ram auto");
        let rate = Some(3e9);
        check(
            &outlook(Some(128 * GB), rate),
            &["all fit: 128 GB", "nothing from the drive once all was read"],
            chat,
        );
        let some = outlook(Some(32 * GB), rate);
        check(
            &some,
            &[
                "not all fit: 32.0 GB",
                "slots, 64 of 288",
                "1.86 GB from the drive",
                "at 3.00 GB/s no more than 1.6 tokens",
            ],
            tiers,
        );
        check(&outlook(Some(32 * GB), None), &["since the drive was not measured"], tiers);
        check(
            &outlook(Some(4 * GB), rate),
            &["none fits: 4.00 GB", "works, and is slow here", "11.5 GB"],
            chat,
        );
        check(&outlook(Some(GB / 2), rate), &["maya refuses to start", "more than 1.00 GB"], None);
        check(&outlook(None, rate), &["is not known, since this system"], chat);
        check(
            &Outlook { path: None, place: Place::Program, ..outlook(None, None) },
            &["inside the program", "nothing from a drive"],
            Some("maya chat"),
        );
        check(&Outlook { runs: false, ..outlook(None, None) }, &["the engine refuses"], None);
    }

    /// 8 experts of 42 layers at 7.11 MB are 2.39 GB: a layer with 64 slots misses 224 of 288.
    #[test]
    fn uniform_routing_misses_what_has_no_slot() {
        let it = outlook(Some(32 * GB), Some(3e9));
        let all = 42.0 * 8.0 * 7_110_000.0;
        let wanted = all * 224.0 / 288.0;
        let found = it.drive_bytes().unwrap() as f64;
        assert!((found - wanted).abs() < 2.0, "{found} {wanted}");
        let token = it.token();
        assert_eq!(token.facts["drive_bytes"], json!(it.drive_bytes()));
        let first = token.facts["first_token_seconds"].as_f64().unwrap();
        assert!((first - (10.389 / 3.0 + 2.0)).abs() < 1e-3, "{first}");
    }

    #[test]
    fn paths_as_a_shell_takes_them() {
        for (path, wanted) in
            [("/m/a-1.gguf", "/m/a-1.gguf"), ("", "''"), ("a'b", "'a'\\''b'"), ("$x", "'$x'")]
        {
            assert_eq!(quoted(path), wanted);
        }
        assert_eq!([123.0, 12.3, 1.23, 0.123].map(significant), ["123", "12", "1.2", "0.12"]);
    }

    /// The published model, as a header over a file of holes, on machines that cannot hold it.
    #[test]
    fn the_full_model_on_small_machines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full.gguf");
        let Some(file) = write::full_of_holes(&path, "the full model on small machines") else { return };
        let source = gguf::Model::open(&path).unwrap();
        // The one vector whose zeros the engine would refuse.
        for tensor in source.tensors().iter().filter(|t| t.name.ends_with(".ssm_a")) {
            file.write_all_at(
                &(-1f32).to_le_bytes().repeat(tensor.n_elements() as usize),
                tensor.extent.offset,
            )
            .unwrap();
        }
        let survey = Survey::of(&source);
        let model = Model::load(source).unwrap();
        let of = |room, rate| {
            let memory = Memory { available: Some(room), ..Memory::default() };
            Outlook::of(&survey, Some(&model), &memory, rate, Some(&path))
        };
        let command = |end: &str| Some(format!("maya chat --model {}{end}", path.display()));
        let half = of(48 * GB, Some(3e9));
        check(
            &half,
            &["12,096 routed experts", "not all fit: 48.0 GB", "of 288 in every layer"],
            command(" --ram auto").as_deref(),
        );
        let slots = facts(&half)["slots"].as_array().unwrap().clone();
        assert!(
            slots.len() == 42 && slots.iter().all(|n| (8..288).contains(&n.as_u64().unwrap())),
            "{slots:?}"
        );
        let drive = half.drive_bytes().unwrap();
        assert!((1_000_000_000..1_800_000_000).contains(&drive), "{drive}");
        check(&of(128 * GB, None), &["all fit: 128 GB"], command("").as_deref());
        check(&of(6 * GB, None), &["none fits: 6.00 GB", "works, and is slow here"], command("").as_deref());
        // Caches shrink with the context before anything is refused.
        let tight = of(of(128 * GB, None).beside - 1, None);
        assert!(tight.is_shortened, "{}", tight.ctx);
        check(&tight, &["none fits"], command(&format!(" --ctx {}", tight.ctx)).as_deref());
        check(&of(1000, None), &["maya refuses to start"], None);
    }

    fn facts(it: &Outlook<'_>) -> serde_json::Value {
        it.experts().facts
    }

    #[test]
    fn facts_of_the_slots() {
        let it = outlook(Some(32 * GB), None);
        assert_eq!(facts(&it)["slots"].as_array().unwrap().len(), 42);
        assert_eq!(
            (&facts(&it)["all_fit"], &facts(&it)["reserve"]),
            (&json!(false), &json!(1_600_000_000_u64))
        );
        assert_eq!(facts(&outlook(Some(128 * GB), None))["all_fit"], json!(true));
    }
}
