//! Metadata and tensor table of a file of a given shape: names, order, dimensions and the type mix of Maya-S.

use anyhow::{Result, bail};
use gguf::{GgmlType, Value};

use super::shape::Shape;

/// What a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Random blocks of its type.
    Blocks,
    /// Normal values around 1.
    Norm,
    /// Small normal values.
    Bias,
    /// Bases of the hyper-connections.
    HcBase,
    /// Scales of the hyper-connections.
    HcScale,
    /// A matrix whose rows give products of unit size, scaled by 0.5.
    HcFn,
    /// Convolution taps.
    Conv,
    /// -exp of a normal value.
    SsmA,
    /// A matrix whose rows give products of unit size.
    Router,
    /// Selection bias of the router: how popular an expert is.
    Popularity,
}

/// One tensor of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: GgmlType,
    /// Its dimensions, fastest first.
    pub dims: Vec<u64>,
    /// What it is filled with.
    pub fill: Fill,
}

/// The metadata in file order.
pub fn metadata(shape: &Shape) -> Vec<(String, Value)> {
    let total = total_layers(shape);
    let kv_heads: Vec<i32> = (0..total).map(|i| i32::from(!is_kda(shape, i))).collect();
    let clamp = vec![10.0f32; total as usize];
    let mut list: Vec<(String, Value)> = vec![
        ("general.architecture".into(), shape.arch.as_str().into()),
        ("general.name".into(), "synthetic GLM-5.3-Flash shape".into()),
        ("general.alignment".into(), 32u32.into()),
        ("general.quantization_version".into(), 2u32.into()),
    ];
    let mut add = |key: &str, value: Value| list.push((format!("{}.{key}", shape.arch), value));
    add("block_count", total.into());
    add("context_length", 1_048_576u32.into());
    add("embedding_length", shape.hidden.into());
    add("feed_forward_length", shape.ff.into());
    add("attention.head_count", shape.heads.into());
    add("attention.head_count_kv", kv_heads.into());
    add("attention.layer_norm_rms_epsilon", 1e-5f32.into());
    add("attention.layer_norm_epsilon", 1e-6f32.into());
    add("vocab_size", shape.vocab.into());
    add("ssm.conv_kernel", 4u32.into());
    add("kda.head_dim", shape.kda_dim.into());
    add("kda.gate_lower_bound", (-5.0f32).into());
    add("attention.q_lora_rank", shape.q_lora.into());
    add("attention.kv_lora_rank", shape.kv_lora.into());
    add("rope.dimension_count", 0u32.into());
    add("attention.key_length", shape.kv_lora.into());
    add("attention.value_length", shape.kv_lora.into());
    add("attention.key_length_mla", shape.head_dim.into());
    add("attention.value_length_mla", shape.head_dim.into());
    add("attention.indexer.head_count", shape.index_heads.into());
    add("attention.indexer.key_length", shape.index_dim.into());
    add("attention.indexer.top_k", shape.topk.into());
    add("attention.indexer.kpool", shape.kpool.into());
    add("attention.indexer.kpool_select_tail", true.into());
    add("hyper_connection.count", (STREAMS as u32).into());
    add("hyper_connection.sinkhorn_iterations", 20u32.into());
    add("hyper_connection.epsilon", 1e-6f32.into());
    add("leading_dense_block_count", shape.dense.into());
    add("expert_feed_forward_length", shape.moe_ff.into());
    add("expert_count", shape.experts.into());
    add("expert_used_count", shape.topk_experts.into());
    add("expert_shared_count", 1u32.into());
    add("expert_weights_scale", 2.5f32.into());
    add("expert_weights_norm", true.into());
    add("expert_gating_func", 2u32.into());
    add("swiglu_clamp_exp", clamp.clone().into());
    add("swiglu_clamp_shexp", clamp.into());
    list.push(("tokenizer.ggml.model".into(), "none".into()));
    if !shape.no_nextn {
        list.push((format!("{}.nextn_predict_layers", shape.arch), 1u32.into()));
    }
    list
}

/// Hyper-connection streams.
const STREAMS: u64 = 4;
/// Rows of a hyper-connection matrix: pre, post, and the mixing matrix.
const MIX: u64 = (2 + STREAMS) * STREAMS;

fn total_layers(shape: &Shape) -> u32 {
    shape.layers.saturating_add(u32::from(!shape.no_nextn))
}

fn is_kda(shape: &Shape, layer: u32) -> bool {
    layer % 4 != 3 && layer < shape.layers
}

/// The tensor table in file order.
pub fn tensors(shape: &Shape) -> Vec<Tensor> {
    use GgmlType::{F32, Q6K};
    let mut table = Table { list: Vec::new(), block: String::new() };
    let (hidden, vocab) = (u64::from(shape.hidden), u64::from(shape.vocab));
    table.add("token_embd.weight", &[hidden, vocab], Q6K, Fill::Blocks);
    table.add("output_norm.weight", &[hidden], F32, Fill::Norm);
    table.add("output.weight", &[hidden, vocab], Q6K, Fill::Blocks);
    for layer in 0..total_layers(shape) {
        table.block = format!("blk.{layer}.");
        let nextn = layer >= shape.layers;
        table.add("attn_norm.weight", &[hidden], F32, Fill::Norm);
        table.add("ffn_norm.weight", &[hidden], F32, Fill::Norm);
        if !nextn {
            for site in ["attn", "ffn"] {
                table.add(&format!("hc_{site}_fn.weight"), &[STREAMS * hidden, MIX], F32, Fill::HcFn);
                table.add(&format!("hc_{site}_base.weight"), &[MIX], F32, Fill::HcBase);
                table.add(&format!("hc_{site}_scale.weight"), &[3], F32, Fill::HcScale);
            }
        }
        if is_kda(shape, layer) {
            table.kda(shape);
        } else {
            table.attention(shape);
        }
        if layer < shape.dense {
            let ff = u64::from(shape.ff);
            table.add("ffn_gate.weight", &[hidden, ff], Q6K, Fill::Blocks);
            table.add("ffn_down.weight", &[ff, hidden], Q6K, Fill::Blocks);
            table.add("ffn_up.weight", &[hidden, ff], Q6K, Fill::Blocks);
        } else {
            table.experts(shape, layer, nextn);
        }
        if nextn {
            table.add("nextn.eh_proj.weight", &[2 * hidden, hidden], Q6K, Fill::Blocks);
            table.add("nextn.enorm.weight", &[hidden], F32, Fill::Norm);
            table.add("nextn.hnorm.weight", &[hidden], F32, Fill::Norm);
            table.add("nextn.shared_head_norm.weight", &[hidden], F32, Fill::Norm);
        }
    }
    table.list
}

struct Table {
    list: Vec<Tensor>,
    block: String,
}

impl Table {
    fn add(&mut self, name: &str, dims: &[u64], ty: GgmlType, fill: Fill) {
        let name = format!("{}{name}", self.block);
        self.list.push(Tensor { name, ty, dims: dims.to_vec(), fill });
    }

    fn kda(&mut self, shape: &Shape) {
        use GgmlType::{F32, Q6K, Q8_0};
        let (hidden, heads, dim) =
            (u64::from(shape.hidden), u64::from(shape.heads), u64::from(shape.kda_dim));
        let inner = dim * heads;
        for part in ["q", "k", "v"] {
            self.add(&format!("ssm_conv1d_{part}.weight"), &[4, 1, inner, 1], F32, Fill::Conv);
            self.add(&format!("attn_{part}.weight"), &[hidden, inner], Q6K, Fill::Blocks);
        }
        self.add("ssm_f_a.weight", &[hidden, dim], Q8_0, Fill::Blocks);
        self.add("ssm_f_b.weight", &[dim, inner], Q8_0, Fill::Blocks);
        self.add("ssm_beta.weight", &[hidden, heads], Q8_0, Fill::Blocks);
        self.add("ssm_a", &[heads], F32, Fill::SsmA);
        self.add("ssm_dt.bias", &[inner], F32, Fill::Bias);
        self.add("ssm_g_a.weight", &[hidden, dim], Q8_0, Fill::Blocks);
        self.add("ssm_g_b.weight", &[dim, inner], Q8_0, Fill::Blocks);
        self.add("ssm_norm.weight", &[dim], F32, Fill::Norm);
        self.add("attn_output.weight", &[inner, hidden], Q6K, Fill::Blocks);
    }

    fn attention(&mut self, shape: &Shape) {
        use GgmlType::{F32, Q6K, Q8_0};
        let (hidden, heads, dim) =
            (u64::from(shape.hidden), u64::from(shape.heads), u64::from(shape.head_dim));
        let (q_lora, kv_lora) = (u64::from(shape.q_lora), u64::from(shape.kv_lora));
        let (index_heads, index_dim) = (u64::from(shape.index_heads), u64::from(shape.index_dim));
        self.add("attn_q_a_norm.weight", &[q_lora], F32, Fill::Norm);
        self.add("attn_kv_a_norm.weight", &[kv_lora], F32, Fill::Norm);
        self.add("attn_q_a.weight", &[hidden, q_lora], Q6K, Fill::Blocks);
        self.add("attn_q_b.weight", &[q_lora, heads * dim], Q6K, Fill::Blocks);
        self.add("attn_kv_a_mqa.weight", &[hidden, kv_lora], Q6K, Fill::Blocks);
        self.add("attn_k_b.weight", &[dim, kv_lora, heads], Q6K, Fill::Blocks);
        self.add("attn_v_b.weight", &[kv_lora, dim, heads], Q6K, Fill::Blocks);
        self.add("attn_output.weight", &[heads * dim, hidden], Q6K, Fill::Blocks);
        self.add("indexer.k_norm.weight", &[index_dim], F32, Fill::Norm);
        self.add("indexer.k_norm.bias", &[index_dim], F32, Fill::Bias);
        self.add("indexer.proj.weight", &[hidden, index_heads], Q8_0, Fill::Blocks);
        self.add("indexer.attn_k.weight", &[hidden, index_dim], Q8_0, Fill::Blocks);
        self.add("indexer.attn_q_b.weight", &[q_lora, index_heads * index_dim], Q8_0, Fill::Blocks);
        self.add("indexer_compressor_gate.weight", &[hidden, index_dim], Q8_0, Fill::Blocks);
        self.add("indexer_compressor_ape.weight", &[index_dim, u64::from(shape.kpool)], F32, Fill::Bias);
    }

    fn experts(&mut self, shape: &Shape, layer: u32, nextn: bool) {
        use GgmlType::{F32, Iq2S, Iq2Xxs, Iq3Xxs, Q2K, Q3K, Q6K};
        let (hidden, ff, n) = (u64::from(shape.hidden), u64::from(shape.moe_ff), u64::from(shape.experts));
        let (gate_up, down) = match layer {
            _ if nextn => (Q2K, Q3K),
            3..=6 | 41..=44 => (Iq2Xxs, Iq3Xxs),
            _ => (Iq2Xxs, Iq2S),
        };
        self.add("ffn_gate_inp.weight", &[hidden, n], F32, Fill::Router);
        self.add("exp_probs_b.bias", &[n], F32, Fill::Popularity);
        self.add("ffn_gate_exps.weight", &[hidden, ff, n], gate_up, Fill::Blocks);
        self.add("ffn_down_exps.weight", &[ff, hidden, n], down, Fill::Blocks);
        self.add("ffn_up_exps.weight", &[hidden, ff, n], gate_up, Fill::Blocks);
        self.add("ffn_gate_shexp.weight", &[hidden, ff], Q6K, Fill::Blocks);
        self.add("ffn_down_shexp.weight", &[ff, hidden], Q6K, Fill::Blocks);
        self.add("ffn_up_shexp.weight", &[hidden, ff], Q6K, Fill::Blocks);
    }
}

/// Bytes of a tensor; a sentence when its rows are not whole blocks or the count overflows.
pub fn bytes(tensor: &Tensor) -> Result<u64> {
    let row = tensor.dims.first().copied().unwrap_or(0);
    let block = u64::from(tensor.ty.block_len());
    if row % block != 0 {
        bail!(
            "tensor {}: its rows of {row} values are not whole {} blocks of {block}; choose sizes that are",
            tensor.name,
            tensor.ty.name()
        );
    }
    let n = tensor.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    match n.and_then(|n| tensor.ty.bytes_for(n)) {
        Some(bytes) if bytes < 1 << 50 => Ok(bytes),
        _ => bail!("tensor {}: {:?} is larger than any drive", tensor.name, tensor.dims),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }

    fn shape(flags: &str) -> Shape {
        Line::parse_from(std::iter::once("synth").chain(flags.split_whitespace())).shape
    }

    #[test]
    fn the_full_size_is_the_published_one() {
        let table = tensors(&shape(""));
        assert_eq!(table.len(), 1412);
        let total: u64 = table.iter().map(|t| bytes(t).unwrap()).sum();
        assert_eq!(format!("{:.2}", total as f64 / 1e9), "96.46");
    }

    #[test]
    fn rows_that_are_no_whole_blocks_are_named() {
        let table = tensors(&shape("--hidden 100"));
        let error = table.iter().find_map(|t| bytes(t).err()).unwrap().to_string();
        assert!(
            error.contains("token_embd.weight") && error.contains("100") && error.contains("256"),
            "{error}"
        );
    }
}
