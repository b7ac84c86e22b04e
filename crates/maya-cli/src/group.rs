//! Tensors of this model family by what they do, and the names that a file must have.

use std::collections::BTreeMap;

/// What a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Token embedding: one row a token.
    Embedding,
    /// Output matrix and its norm.
    Head,
    /// Latent attention and its indexer.
    Attention,
    /// Delta attention.
    Kda,
    /// Dense feed-forward parts.
    Dense,
    /// Routed experts.
    Experts,
    /// Shared experts.
    Shared,
    /// Routers.
    Router,
    /// Hyper-connections.
    Mhc,
    /// Norms before mixer and feed-forward part.
    Norms,
    /// The NextN block, whole.
    NextN,
    /// Nothing we know.
    Other,
}

impl Group {
    /// Every group in reading order.
    pub const ALL: [Self; 12] = [
        Self::Embedding,
        Self::Head,
        Self::Attention,
        Self::Kda,
        Self::Dense,
        Self::Experts,
        Self::Shared,
        Self::Router,
        Self::Mhc,
        Self::Norms,
        Self::NextN,
        Self::Other,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Head => "head",
            Self::Attention => "attention",
            Self::Kda => "kda",
            Self::Dense => "dense",
            Self::Experts => "experts",
            Self::Shared => "shared",
            Self::Router => "router",
            Self::Mhc => "mhc",
            Self::Norms => "norms",
            Self::NextN => "nextn",
            Self::Other => "other",
        }
    }
}

/// Which layers are what: enough to name every tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Whether a trunk layer mixes by delta attention.
    pub kda: Vec<bool>,
    /// Leading layers with a dense feed-forward part.
    pub dense: usize,
    /// NextN blocks after the trunk.
    pub nextn: usize,
}

impl Layers {
    /// What a tensor belongs to, by its name.
    pub fn group(&self, name: &str) -> Group {
        match name {
            "token_embd.weight" => return Group::Embedding,
            "output.weight" | "output_norm.weight" => return Group::Head,
            _ => {}
        }
        let Some((block, role)) = block(name) else { return Group::Other };
        if block >= self.kda.len() {
            return if block < self.kda.len() + self.nextn { Group::NextN } else { Group::Other };
        }
        if role.starts_with("hc_") {
            Group::Mhc
        } else if role.starts_with("ssm_") {
            Group::Kda
        } else if role.starts_with("indexer") {
            Group::Attention
        } else if role == "attn_norm.weight" || role == "ffn_norm.weight" {
            Group::Norms
        } else if role.starts_with("attn_") {
            if self.kda[block] { Group::Kda } else { Group::Attention }
        } else if role.contains("_exps.") {
            Group::Experts
        } else if role.contains("_shexp.") {
            Group::Shared
        } else if role.starts_with("ffn_gate_inp.") || role.starts_with("exp_probs_b.") {
            Group::Router
        } else if role.starts_with("ffn_") {
            Group::Dense
        } else {
            Group::Other
        }
    }

    /// Names that must be there. `output.weight` is not among them: without it the embedding serves as the head.
    pub fn required(&self) -> Vec<String> {
        let mut names = vec!["token_embd.weight".to_owned(), "output_norm.weight".to_owned()];
        for block in 0..self.kda.len() + self.nextn {
            let mut add =
                |roles: &[&str]| names.extend(roles.iter().map(|role| format!("blk.{block}.{role}")));
            add(&["attn_norm.weight", "ffn_norm.weight"]);
            match self.kda.get(block) {
                Some(true) => add(KDA),
                Some(false) | None => add(ATTENTION),
            }
            add(if block < self.kda.len() { HYPER_CONNECTIONS } else { NEXTN });
            add(if block < self.dense { DENSE } else { EXPERTS });
        }
        names
    }
}

/// Block number and role of `blk.N.role`.
pub fn block(name: &str) -> Option<(usize, &str)> {
    let (number, role) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, role))
}

const HYPER_CONNECTIONS: &[&str] = &[
    "hc_attn_fn.weight",
    "hc_attn_base.weight",
    "hc_attn_scale.weight",
    "hc_ffn_fn.weight",
    "hc_ffn_base.weight",
    "hc_ffn_scale.weight",
];
const KDA: &[&str] = &[
    "ssm_conv1d_q.weight",
    "ssm_conv1d_k.weight",
    "ssm_conv1d_v.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_beta.weight",
    "ssm_a",
    "ssm_dt.bias",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_norm.weight",
    "attn_output.weight",
];
const ATTENTION: &[&str] = &[
    "attn_q_a_norm.weight",
    "attn_kv_a_norm.weight",
    "attn_q_a.weight",
    "attn_q_b.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
    "attn_output.weight",
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.proj.weight",
    "indexer.attn_k.weight",
    "indexer.attn_q_b.weight",
    "indexer_compressor_gate.weight",
    "indexer_compressor_ape.weight",
];
const DENSE: &[&str] = &["ffn_gate.weight", "ffn_down.weight", "ffn_up.weight"];
const EXPERTS: &[&str] = &[
    "ffn_gate_inp.weight",
    "exp_probs_b.bias",
    "ffn_gate_exps.weight",
    "ffn_down_exps.weight",
    "ffn_up_exps.weight",
    "ffn_gate_shexp.weight",
    "ffn_down_shexp.weight",
    "ffn_up_shexp.weight",
];
const NEXTN: &[&str] =
    &["nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight"];

/// Names shortened for people: `blk.3.x, blk.4.x` become `blk.3-4.x`, at most `limit` entries and a count of the rest.
pub fn brief(names: &[String], limit: usize) -> String {
    let mut by_role: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut parts: Vec<String> = Vec::new();
    for name in names {
        match block(name) {
            Some((number, role)) => by_role.entry(role).or_default().push(number),
            None => parts.push(name.clone()),
        }
    }
    for (role, mut blocks) in by_role {
        blocks.sort_unstable();
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for b in blocks {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == b => *last = b,
                _ => ranges.push((b, b)),
            }
        }
        parts.extend(ranges.into_iter().map(|(from, to)| {
            if from == to { format!("blk.{from}.{role}") } else { format!("blk.{from}-{to}.{role}") }
        }));
    }
    let more = parts.len().saturating_sub(limit);
    parts.truncate(limit);
    let mut text = parts.join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::synth::{plan, shape::Shape};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }

    /// A file of the real shape has the required names, the head, and nothing else; every tensor has a group.
    #[test]
    fn the_required_names_are_those_of_a_whole_file() {
        let layers = Layers { kda: (0..45).map(|i| i % 4 != 3).collect(), dense: 3, nextn: 1 };
        let mut required = layers.required();
        required.push("output.weight".to_owned());
        let mut planned: Vec<String> =
            plan::tensors(&Line::parse_from(["synth"]).shape).into_iter().map(|t| t.name).collect();
        for name in &planned {
            assert_ne!(layers.group(name), Group::Other, "{name}");
        }
        required.sort_unstable();
        planned.sort_unstable();
        assert_eq!(required, planned);
    }

    #[test]
    fn lists_of_names_stay_short() {
        let names = ["a", "blk.3.x", "blk.4.x", "blk.6.x"].map(str::to_owned);
        assert_eq!(brief(&names, 9), "a, blk.3-4.x, blk.6.x");
        assert_eq!(brief(&names, 1), "a and 2 more");
    }
}
