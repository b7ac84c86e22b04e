//! From metadata to `Config`, with the tolerance rules of model-spec 9.1 and 9.5.

use std::fmt::Display;

use gguf::Model;

use super::{Config, MixerKind};
use crate::error::LoadError;

/// Largest counts that are believed. They only keep products of counts far from overflow: the real model has 46 blocks,
/// hidden size 4,096, 64 heads of at most 256, 288 experts.
const MAX_BLOCKS: usize = 1 << 10;
const MAX_WIDTH: usize = 1 << 24;
const MAX_HEAD_DIM: usize = 1 << 12;
const MAX_HEADS: usize = 1 << 12;
const MAX_EXPERTS: usize = 1 << 16;
const MAX_VOCAB: usize = 1 << 28;
const MAX_CONTEXT: usize = 1 << 40;
const MAX_POOL: usize = 1 << 10;

/// Clamp of the SwiGLU where the file has none, or 0 (model-spec 5.1).
const DEFAULT_CLAMP: f32 = 10.0;
/// Epsilon of the indexer's layer norm where the file has none, or 0.
const DEFAULT_LN_EPS: f32 = 1e-6;

struct Keys<'a> {
    model: &'a Model,
    arch: &'a str,
}

impl Keys<'_> {
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.arch)
    }

    fn has(&self, suffix: &str) -> bool {
        self.model.get(&self.key(suffix)).is_some()
    }

    fn refuse<T>(
        &self,
        suffix: &str,
        value: impl Display,
        problem: impl Into<String>,
    ) -> Result<T, LoadError> {
        Err(LoadError::Value { key: self.key(suffix), value: value.to_string(), problem: problem.into() })
    }

    fn missing(&self, suffix: &str) -> LoadError {
        LoadError::MissingKey { key: self.key(suffix) }
    }

    fn optional(&self, suffix: &str) -> Result<Option<usize>, LoadError> {
        Ok(self.model.u32(&self.key(suffix))?.map(|value| value as usize))
    }

    /// A count from 1 to `limit`.
    fn count(&self, suffix: &str, limit: usize) -> Result<usize, LoadError> {
        let value = self.optional(suffix)?.ok_or_else(|| self.missing(suffix))?;
        self.within(suffix, value, limit)
    }

    fn count_or(&self, suffix: &str, default: usize, limit: usize) -> Result<usize, LoadError> {
        let value = self.optional(suffix)?.unwrap_or(default);
        self.within(suffix, value, limit)
    }

    fn within(&self, suffix: &str, value: usize, limit: usize) -> Result<usize, LoadError> {
        match value {
            0 => self.refuse(suffix, 0, "it must be at least 1"),
            _ if value > limit => self.refuse(suffix, value, format!("more than {limit} is not believed")),
            _ => Ok(value),
        }
    }

    fn float(&self, suffix: &str) -> Result<f32, LoadError> {
        let value = self.model.f32(&self.key(suffix))?.ok_or_else(|| self.missing(suffix))?;
        if value.is_finite() { Ok(value) } else { self.refuse(suffix, value, "it must be a number") }
    }

    fn positive(&self, suffix: &str) -> Result<f32, LoadError> {
        let value = self.float(suffix)?;
        if value > 0.0 { Ok(value) } else { self.refuse(suffix, value, "it must be above 0") }
    }

    /// A value that the model fixes: absent or exactly `expected`.
    fn fixed(&self, suffix: &str, expected: usize, problem: &str) -> Result<(), LoadError> {
        match self.optional(suffix)? {
            Some(value) if value != expected => self.refuse(suffix, value, problem),
            _ => Ok(()),
        }
    }

    fn flag(&self, suffix: &str, problem: &str) -> Result<(), LoadError> {
        match self.model.bool(&self.key(suffix))? {
            Some(false) => self.refuse(suffix, false, problem),
            _ => Ok(()),
        }
    }

    /// One clamp a block from a scalar or an array; 0 and absence mean 10.
    fn clamps(&self, suffix: &str, blocks: usize, trunk: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(values) = self.model.f32s(&self.key(suffix))? else { return Ok(None) };
        if values.len() != 1 && values.len() < trunk {
            return self.refuse(
                suffix,
                format!("an array of {}", values.len()),
                format!("the trunk has {trunk} layers"),
            );
        }
        if let Some(bad) = values.iter().find(|value| !value.is_finite() || **value < 0.0) {
            return self.refuse(suffix, bad, "a clamp must be a number that is not negative");
        }
        let last = values.last().copied().unwrap_or(DEFAULT_CLAMP);
        let clamp = |block: usize| match values.get(block).copied().unwrap_or(last) {
            0.0 => DEFAULT_CLAMP,
            value => value,
        };
        Ok(Some((0..blocks).map(clamp).collect()))
    }

    /// `head_count_kv`: 0 is KDA, 1 is DSA. Entries of the NextN block are not trusted (model-spec 9.5, rule 10).
    fn mixers(&self, blocks: usize, trunk: usize) -> Result<Vec<MixerKind>, LoadError> {
        const SUFFIX: &str = "attention.head_count_kv";
        let values = self.model.u32s(&self.key(SUFFIX))?.ok_or_else(|| self.missing(SUFFIX))?;
        if values.len() != 1 && values.len() < trunk {
            return self.refuse(
                SUFFIX,
                format!("an array of {}", values.len()),
                format!("the trunk has {trunk} layers"),
            );
        }
        let kind = |block: usize| {
            if block >= trunk {
                return Ok(MixerKind::Dsa);
            }
            match values.get(block).or(values.first()).copied() {
                Some(0) => Ok(MixerKind::Kda),
                Some(1) => Ok(MixerKind::Dsa),
                other => self.refuse(
                    SUFFIX,
                    format!("{} for layer {block}", other.unwrap_or_default()),
                    "only 0 (KDA) and 1 (DSA) are known",
                ),
            }
        };
        (0..blocks).map(kind).collect()
    }
}

pub(super) fn config(model: &Model) -> Result<Config, LoadError> {
    let arch = model.architecture()?;
    if !matches!(arch, "glm5-next" | "glm5next") {
        return Err(LoadError::Architecture { found: arch.to_owned() });
    }
    let keys = Keys { model, arch };
    for suffix in ["layer_types", "linear_attention.head_count", "trunk_block_count"] {
        if keys.has(suffix) {
            return Err(LoadError::Dialect { key: keys.key(suffix) });
        }
    }

    let blocks = keys.count("block_count", MAX_BLOCKS)?;
    let nextn = keys.optional("nextn_predict_layers")?.unwrap_or(0);
    if nextn > 1 || nextn >= blocks {
        return keys.refuse("nextn_predict_layers", nextn, format!("0 or 1 of {blocks} blocks can be NextN"));
    }
    let trunk = blocks - nextn;
    let dense_layers = keys.optional("leading_dense_block_count")?.unwrap_or(0);
    if dense_layers > trunk {
        return keys.refuse(
            "leading_dense_block_count",
            dense_layers,
            format!("the trunk has {trunk} layers"),
        );
    }
    let vocab = match keys.optional("vocab_size")? {
        Some(value) => Some(keys.within("vocab_size", value, MAX_VOCAB)?),
        None => None,
    };
    variant(&keys, trunk)?;

    let latent = keys.count("attention.kv_lora_rank", MAX_WIDTH)?;
    for suffix in ["attention.key_length", "attention.value_length"] {
        keys.fixed(
            suffix,
            latent,
            &format!("without rotation it equals the latent width {latent} (attention.kv_lora_rank)"),
        )?;
    }
    let (index_topk, kpool) = selection(&keys)?;
    let gate_bound = keys.float("kda.gate_lower_bound")?;
    if gate_bound >= 0.0 {
        return keys.refuse("kda.gate_lower_bound", gate_bound, "it must be negative");
    }
    let experts = keys.count("expert_count", MAX_EXPERTS)?;
    let experts_used = keys.count("expert_used_count", MAX_EXPERTS)?;
    if experts_used > experts {
        return keys.refuse(
            "expert_used_count",
            experts_used,
            format!("there are only {experts} experts (expert_count)"),
        );
    }
    let expert_ff = keys.count("expert_feed_forward_length", MAX_WIDTH)?;
    let n_shared = keys.count_or("expert_shared_count", 1, MAX_EXPERTS)?;
    let clamp_exp =
        keys.clamps("swiglu_clamp_exp", blocks, trunk)?.unwrap_or_else(|| vec![DEFAULT_CLAMP; blocks]);
    let clamp_shared = keys.clamps("swiglu_clamp_shexp", blocks, trunk)?.unwrap_or_else(|| clamp_exp.clone());
    let ln_eps = match model.f32(&keys.key("attention.layer_norm_epsilon"))? {
        None | Some(0.0) => DEFAULT_LN_EPS,
        Some(_) => keys.positive("attention.layer_norm_epsilon")?,
    };
    Ok(Config {
        architecture: arch.into(),
        blocks,
        trunk,
        context_length: keys.count("context_length", MAX_CONTEXT)?,
        hidden: keys.count("embedding_length", MAX_WIDTH)?,
        vocab,
        mixers: keys.mixers(blocks, trunk)?,
        dense_layers,
        dense_ff: if dense_layers > 0 { keys.count("feed_forward_length", MAX_WIDTH)? } else { 0 },
        heads: keys.count("attention.head_count", MAX_HEADS)?,
        q_rank: keys.count("attention.q_lora_rank", MAX_WIDTH)?,
        latent,
        key_dim: keys.count("attention.key_length_mla", MAX_HEAD_DIM)?,
        value_dim: keys.count("attention.value_length_mla", MAX_HEAD_DIM)?,
        index_heads: keys.count("attention.indexer.head_count", MAX_HEADS)?,
        index_dim: keys.count("attention.indexer.key_length", MAX_HEAD_DIM)?,
        index_topk,
        kpool,
        kda_dim: keys.count("kda.head_dim", MAX_HEAD_DIM)?,
        conv_taps: keys.count("ssm.conv_kernel", 64)?,
        gate_bound,
        streams: keys.count("hyper_connection.count", crate::MAX_STREAMS)?,
        sinkhorn: keys.count("hyper_connection.sinkhorn_iterations", 1 << 10)?,
        hc_eps: keys.positive("hyper_connection.epsilon")?,
        experts,
        experts_used,
        expert_ff,
        shared_ff: keys.count_or("expert_shared_feed_forward_length", expert_ff * n_shared, MAX_WIDTH)?,
        expert_scale: keys.positive("expert_weights_scale")?,
        clamp_exp,
        clamp_shared,
        rms_eps: keys.positive("attention.layer_norm_rms_epsilon")?,
        ln_eps,
    })
}

/// Refuses what would be another model.
fn variant(keys: &Keys<'_>, trunk: usize) -> Result<(), LoadError> {
    keys.fixed("rope.dimension_count", 0, "this model rotates nothing")?;
    keys.fixed("expert_gating_func", 2, "only 2 (sigmoid) is this model's router")?;
    keys.fixed("expert_group_count", 1, "grouped routing is not this model's")?;
    keys.fixed("expert_group_used_count", 1, "grouped routing is not this model's")?;
    keys.flag("expert_weights_norm", "this model normalises the routing weights")?;
    keys.flag("attention.indexer.kpool_select_tail", "this model always selects the tail")?;
    const TYPES: &str = "attention.indexer.types";
    let types = keys.model.u32s(&keys.key(TYPES))?.unwrap_or_default();
    if let Some(layer) = types.iter().take(trunk).position(|kind| *kind == 0) {
        return keys.refuse(TYPES, format!("0 (shared) for layer {layer}"), "only full indexers are known");
    }
    Ok(())
}

/// `(topk, kpool)`.
fn selection(keys: &Keys<'_>) -> Result<(usize, usize), LoadError> {
    const TOP_K: &str = "attention.indexer.top_k";
    let pool_key = ["attention.indexer.kpool", "attention.indexer.block_size"]
        .into_iter()
        .find(|suffix| keys.has(suffix))
        .unwrap_or("attention.indexer.kpool");
    let kpool = keys.count(pool_key, MAX_POOL)?;
    let topk = keys.count(TOP_K, MAX_WIDTH)?;
    if topk % kpool != 0 {
        return keys.refuse(
            TOP_K,
            topk,
            format!("it must be a multiple of the pool size {kpool} ({pool_key})"),
        );
    }
    Ok((topk, kpool))
}
