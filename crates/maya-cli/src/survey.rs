//! What a file holds and what a token costs, from header and metadata alone: no weight is read.

use std::collections::{BTreeMap, BTreeSet};

use gguf::{Array, GgmlType, Model, TensorInfo, Value};

use crate::group::{Group, Layers};

/// The standard spelling of the architecture.
pub const ARCHITECTURE: &str = "glm5-next";
/// Its other spelling in files.
const OTHER_SPELLING: &str = "glm5next";

/// Tensors, weights and bytes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Tensors.
    pub tensors: u64,
    /// Weights.
    pub parameters: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Bytes by type.
    pub types: BTreeMap<GgmlType, u64>,
}

impl Sum {
    fn add(&mut self, tensor: &TensorInfo) {
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(tensor.n_elements());
        self.bytes = self.bytes.saturating_add(tensor.extent.len);
        *self.types.entry(tensor.ty).or_default() += tensor.extent.len;
    }
}

/// The facts.
pub struct Survey {
    /// `general.architecture` as the file spells it; `None` where it is missing or no text.
    pub spelling: Option<String>,
    /// Whether that is a spelling of this family.
    pub is_family: bool,
    /// Sizes that were found, by the key without its prefix.
    pub sizes: BTreeMap<&'static str, u64>,
    /// Which layer is what; `None` without a block count.
    pub layers: Option<Layers>,
    /// By group, every group that has a tensor.
    pub groups: BTreeMap<Group, Sum>,
    /// All tensors.
    pub total: Sum,
    /// What a token reads of the trunk's weights, in bytes.
    pub token: TokenBytes,
    /// Required tensors that the file lacks.
    pub missing: Vec<String>,
    /// Tensors that the family does not know.
    pub unknown: Vec<String>,
    /// Where a count or a key contradicts the family, in sentences.
    pub remarks: Vec<String>,
}

/// Bytes that one token moves, and weights that it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBytes {
    /// Weights read whatever the token is: everything of the trunk but experts and the embedding.
    pub always: u64,
    /// Routed experts of the token, all layers, on average over experts.
    pub experts: u64,
    /// Delta-attention states, read and written.
    pub state: u64,
    /// Parameters used, the embedding's row not counted.
    pub parameters: u64,
}

impl TokenBytes {
    /// All of it.
    pub fn total(self) -> u64 {
        // The state of a file that lies about its sizes is already the largest number.
        self.always.saturating_add(self.experts).saturating_add(self.state)
    }
}

/// Sizes that are shown, in this order.
pub const SIZES: &[&str] = &[
    "block_count",
    "nextn_predict_layers",
    "leading_dense_block_count",
    "context_length",
    "embedding_length",
    "vocab_size",
    "feed_forward_length",
    "attention.head_count",
    "attention.q_lora_rank",
    "attention.kv_lora_rank",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.indexer.head_count",
    "attention.indexer.key_length",
    "attention.indexer.top_k",
    "attention.indexer.kpool",
    "kda.head_dim",
    "ssm.conv_kernel",
    "hyper_connection.count",
    "expert_count",
    "expert_used_count",
    "expert_shared_count",
    "expert_feed_forward_length",
];

/// Metadata of this family under either prefix.
pub fn key<'a>(model: &'a Model, name: &str) -> Option<&'a Value> {
    [ARCHITECTURE, OTHER_SPELLING].iter().find_map(|prefix| model.get(&format!("{prefix}.{name}")))
}

fn size(model: &Model, name: &str) -> Option<u64> {
    [ARCHITECTURE, OTHER_SPELLING]
        .iter()
        .find_map(|prefix| model.u32(&format!("{prefix}.{name}")).ok().flatten().map(u64::from))
}

impl Survey {
    /// Takes it.
    pub fn of(model: &Model) -> Self {
        let spelling = model.architecture().ok().map(str::to_owned);
        let is_family = matches!(spelling.as_deref(), Some(ARCHITECTURE | OTHER_SPELLING));
        let sizes: BTreeMap<&'static str, u64> =
            SIZES.iter().filter_map(|&name| Some((name, size(model, name)?))).collect();
        let mut it = Self {
            spelling,
            is_family,
            layers: layers(model, &sizes),
            sizes,
            groups: BTreeMap::new(),
            total: Sum::default(),
            token: TokenBytes::default(),
            missing: Vec::new(),
            unknown: Vec::new(),
            remarks: Vec::new(),
        };
        it.sum(model);
        it.compare(model);
        it.token = it.token_bytes();
        it
    }

    /// A size, where the file has it.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name).copied()
    }

    /// Tensors of a group.
    pub fn group(&self, group: Group) -> Sum {
        self.groups.get(&group).cloned().unwrap_or_default()
    }

    /// Routed experts of the trunk: how many (experts x layers).
    pub fn n_experts(&self) -> u64 {
        let layers = self.layers.as_ref().map_or(0, |l| l.kda.len().saturating_sub(l.dense) as u64);
        layers.saturating_mul(self.size("expert_count").unwrap_or(0))
    }

    fn sum(&mut self, model: &Model) {
        for tensor in model.tensors() {
            let group = self.layers.as_ref().map_or(Group::Other, |l| l.group(&tensor.name));
            self.groups.entry(group).or_default().add(tensor);
            self.total.add(tensor);
        }
    }

    fn compare(&mut self, model: &Model) {
        if !self.is_family {
            let found = self.spelling.as_deref().map_or("missing".to_owned(), |s| format!("{s:?}"));
            self.remarks.push(format!(
                "general.architecture is {found}; this program runs {ARCHITECTURE:?} (also spelt {OTHER_SPELLING:?})"
            ));
            return;
        }
        let Some(layers) = &self.layers else {
            self.remarks.push(match self.size("block_count") {
                None => "block_count is missing, so tensors cannot be assigned to layers".to_owned(),
                Some(n) => format!(
                    "block_count is {n}, above the {BLOCKS_LIMIT} that are believed, so tensors cannot be assigned to layers"
                ),
            });
            return;
        };
        let required = layers.required();
        let mut known: BTreeSet<&str> = required.iter().map(String::as_str).collect();
        known.insert("output.weight");
        self.missing = required.iter().filter(|name| model.tensor(name).is_none()).cloned().collect();
        let optional =
            |name: &str| name.contains(".nextn.embed_tokens") || name.contains(".nextn.shared_head_head");
        self.unknown = model
            .tensors()
            .iter()
            .map(|t| t.name.as_ref())
            .filter(|name| !known.contains(name) && !optional(name))
            .map(str::to_owned)
            .collect();
    }

    fn token_bytes(&self) -> TokenBytes {
        let of = |group| self.group(group);
        let always = [
            Group::Head,
            Group::Attention,
            Group::Kda,
            Group::Dense,
            Group::Shared,
            Group::Router,
            Group::Mhc,
            Group::Norms,
        ]
        .map(of);
        let (used, n) = (self.size("expert_used_count").unwrap_or(0), self.size("expert_count").unwrap_or(0));
        let share = |whole: u64| {
            if n == 0 { 0 } else { (u128::from(whole) * u128::from(used.min(n)) / u128::from(n)) as u64 }
        };
        let experts = of(Group::Experts);
        // Without a matrix of its own the head is the embedding.
        let tied = if of(Group::Head).parameters <= self.size("embedding_length").unwrap_or(0) {
            of(Group::Embedding)
        } else {
            Sum::default()
        };
        let (heads, dim) =
            (self.size("attention.head_count").unwrap_or(0), self.size("kda.head_dim").unwrap_or(0));
        let kda_layers = self.layers.as_ref().map_or(0, |l| l.kda.iter().filter(|&&k| k).count() as u64);
        // A head's state is dim x dim values of 4 bytes, read and written.
        let state = [kda_layers, heads, dim, dim, 8].iter().fold(1u64, |n, &x| n.saturating_mul(x));
        TokenBytes {
            always: always.iter().map(|s| s.bytes).sum::<u64>() + tied.bytes,
            experts: share(experts.bytes),
            state,
            parameters: always.iter().map(|s| s.parameters).sum::<u64>()
                + tied.parameters
                + share(experts.parameters),
        }
    }
}

/// Largest block count that is believed, the engine's own limit (the published model has 46): a header must not make this
/// program name a billion tensors.
const BLOCKS_LIMIT: u64 = 1024;

fn layers(model: &Model, sizes: &BTreeMap<&'static str, u64>) -> Option<Layers> {
    let blocks = sizes.get("block_count").copied().filter(|&n| n <= BLOCKS_LIMIT)?;
    let nextn = sizes.get("nextn_predict_layers").copied().unwrap_or(0).min(blocks);
    let trunk = (blocks - nextn) as usize;
    let kv_heads = match key(model, "attention.head_count_kv") {
        Some(Value::Array(Array::I32(list))) => list.iter().map(|&n| n == 0).collect(),
        Some(Value::Array(Array::U32(list))) => list.iter().map(|&n| n == 0).collect(),
        Some(Value::Array(Array::U8(list))) => list.iter().map(|&n| n == 0).collect(),
        Some(Value::Array(Array::Bool(list))) => list.iter().map(|&n| !n).collect(),
        _ => Vec::new(),
    };
    // Without the list, a layer that has delta-attention tensors is one.
    let kda = (0..trunk)
        .map(|i| {
            kv_heads.get(i).copied().unwrap_or_else(|| model.tensor(&format!("blk.{i}.ssm_a")).is_some())
        })
        .collect();
    let dense = sizes.get("leading_dense_block_count").copied().unwrap_or(0).min(blocks) as usize;
    Some(Layers { kda, dense, nextn: nextn as usize })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::write;

    /// The full model, as a header over a file of holes: the sums are those of the published one.
    #[test]
    fn a_token_of_the_full_model_reads_9_52_gb_of_weights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full.gguf");
        if write::full_of_holes(&path, "the full model's sums").is_none() {
            return;
        }
        let survey = Survey::of(&Model::open(&path).unwrap());
        assert!(survey.missing.is_empty() && survey.unknown.is_empty() && survey.remarks.is_empty());
        assert_eq!(survey.n_experts(), 12_096);
        let gb = |bytes: u64| format!("{:.2}", bytes as f64 / 1e9);
        assert_eq!(gb(survey.total.bytes), "96.46");
        let token = survey.token;
        assert_eq!(gb(token.always + token.experts), "9.52", "{token:?}");
        assert_eq!(gb(token.experts), "2.39", "{token:?}");
        // 34 layers of 64 heads with 128 x 128 values of 4 bytes, both ways.
        assert_eq!(token.state, 34 * 64 * 128 * 128 * 4 * 2);
        // 16.11 B active, and the output matrix: 16.74 B (the embedding row is not counted).
        assert_eq!(gb(token.parameters), "16.74", "{token:?}");
        assert_eq!(survey.group(Group::NextN).tensors, 29);
    }
}
