//! Files that are refused, with the sentence that says why; and files that look odd and are fine.

use std::sync::Arc;

use gguf::GgmlType;
use glm_graph::{Config, Executor, Model};

use crate::edit::Edit;
use crate::fixture::{exact, fixture};

/// The sentence contains all of these.
fn says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
    }
}

fn keys_only() -> Option<Edit> {
    Edit::tiny_a().map(|edit| Edit { tensors: Vec::new(), ..edit })
}

fn config(edit: &Edit) -> Config {
    Config::from_gguf(&edit.file()).unwrap()
}

/// Each edit of the metadata and what must be said about it.
#[test]
fn impossible_metadata() {
    let Some(_) = keys_only() else { return };
    let edit = || keys_only().unwrap();
    let cases: Vec<(Edit, &[&str])> = vec![
        (edit().set("general.architecture", "llama"), &["\"llama\"", "glm5-next"]),
        (edit().set("layer_types", 1u32), &["ds4", "glm5-next.layer_types"]),
        (edit().set("trunk_block_count", 5u32), &["ds4", "trunk_block_count"]),
        (edit().remove("embedding_length"), &["glm5-next.embedding_length is missing"]),
        (edit().remove("kda.gate_lower_bound"), &["glm5-next.kda.gate_lower_bound is missing"]),
        (edit().set("kda.gate_lower_bound", 0.0f32), &["gate_lower_bound is 0", "negative"]),
        (edit().remove("attention.head_count_kv"), &["attention.head_count_kv is missing"]),
        (edit().set("attention.head_count_kv", vec![0u32, 1]), &["head_count_kv", "array of 2", "5 layers"]),
        (edit().set("attention.head_count_kv", vec![0u32, 0, 0, 2, 0, 1]), &["2 for layer 3"]),
        (edit().set("expert_used_count", 17u32), &["expert_used_count is 17", "only 16 experts"]),
        (edit().set("expert_used_count", 0u32), &["expert_used_count is 0", "at least 1"]),
        (edit().set("expert_count", u32::MAX), &["expert_count", "not believed"]),
        (edit().set("attention.indexer.top_k", 0u32), &["indexer.top_k is 0", "at least 1"]),
        (edit().set("attention.indexer.top_k", 33u32), &["top_k is 33", "multiple of the pool size 4"]),
        (edit().set("attention.indexer.kpool", 0u32), &["indexer.kpool is 0", "at least 1"]),
        (edit().set("attention.indexer.kpool", u32::MAX), &["indexer.kpool", "not believed"]),
        (edit().remove("attention.indexer.kpool"), &["attention.indexer.kpool is missing"]),
        (edit().set("attention.indexer.kpool_select_tail", false), &["kpool_select_tail is false", "tail"]),
        (edit().set("attention.indexer.types", vec![true, true, true, false, true]), &["layer 3", "full"]),
        (edit().set("rope.dimension_count", 64u32), &["rope.dimension_count is 64", "rotates nothing"]),
        (edit().set("expert_gating_func", 1u32), &["expert_gating_func is 1", "sigmoid"]),
        (edit().set("expert_group_count", 8u32), &["expert_group_count is 8", "grouped"]),
        (edit().set("expert_weights_norm", false), &["expert_weights_norm is false", "normalises"]),
        (edit().set("attention.key_length", 320u32), &["attention.key_length is 320", "latent width 256"]),
        (edit().set("attention.head_count", 0u32), &["attention.head_count is 0"]),
        (edit().set("attention.head_count", "four"), &["attention.head_count"]),
        (edit().set("attention.head_count", vec![4u32, 5]), &["attention.head_count"]),
        (edit().set("hyper_connection.count", 9u32), &["hyper_connection.count is 9"]),
        (edit().set("hyper_connection.epsilon", 0.0f32), &["hyper_connection.epsilon is 0"]),
        (edit().set("hyper_connection.sinkhorn_iterations", 0u32), &["sinkhorn_iterations is 0"]),
        (edit().set("block_count", 0u32), &["block_count is 0"]),
        (edit().set("block_count", u32::MAX), &["block_count", "not believed"]),
        (edit().set("nextn_predict_layers", 6u32), &["nextn_predict_layers is 6"]),
        (edit().set("nextn_predict_layers", 2u32), &["nextn_predict_layers is 2"]),
        (edit().set("leading_dense_block_count", 6u32), &["leading_dense_block_count is 6", "5 layers"]),
        (edit().set("swiglu_clamp_exp", vec![10.0f32, -1.0, 10.0, 10.0, 10.0]), &["swiglu_clamp_exp is -1"]),
        (edit().set("swiglu_clamp_exp", vec![10.0f32; 3]), &["swiglu_clamp_exp", "array of 3"]),
        (edit().set("ssm.conv_kernel", 1000u32), &["ssm.conv_kernel is 1000"]),
        (edit().set("vocab_size", 0u32), &["vocab_size is 0"]),
    ];
    for (edit, parts) in cases {
        says(&edit.refused(), parts);
    }
}

/// The must-accept list of model-spec 9.5.
#[test]
fn tolerated_metadata() {
    let Some(plain) = keys_only() else { return };
    let edit = || keys_only().unwrap();
    let expected = config(&plain);
    let same = |edit: Edit, why: &str| assert_eq!(config(&edit), expected, "{why}");
    same(edit().remove("attention.indexer.kpool_select_tail"), "kpool_select_tail absent is true");
    same(edit().remove("attention.indexer.types"), "types absent are full");
    let block_size = edit().remove("attention.indexer.kpool").set("attention.indexer.block_size", 4u32);
    same(block_size, "kpool under block_size");
    same(edit().remove("expert_shared_feed_forward_length"), "shared width by default");
    same(edit().remove("expert_group_count").remove("expert_group_used_count"), "groups absent");
    same(edit().remove("expert_gating_func"), "gating absent is sigmoid");
    same(edit().remove("attention.layer_norm_epsilon"), "layer norm epsilon absent is 1e-6");
    same(edit().set("attention.layer_norm_epsilon", 0.0f32), "layer norm epsilon 0 is 1e-6 (trap 36)");
    same(edit().set("swiglu_clamp_exp", 10.0f32), "clamp as a scalar");
    same(edit().set("swiglu_clamp_exp", vec![10.0f32; 5]), "clamp without NextN");
    same(edit().set("swiglu_clamp_exp", 0.0f32), "clamp 0 is 10");
    same(edit().remove("swiglu_clamp_exp").remove("swiglu_clamp_shexp"), "clamps absent are 10");
    same(
        edit().set("attention.head_count_kv", vec![0i32, 0, 0, 1, 0, 0]),
        "NextN's entry is not read (trap 60)",
    );
    same(edit().set("attention.head_count_kv", vec![0u8, 0, 0, 1, 0]), "no entry for NextN");
    same(edit().set("attention.head_count", vec![4u32; 6]), "a uniform array where one value is used");
    same(edit().set("embedding_length", 256u64), "another integer width");
    let no_vocab = Config { vocab: None, ..expected.clone() };
    assert_eq!(config(&edit().remove("vocab_size")), no_vocab);

    // Only `_exp` given: the dense layers and the shared expert take it too.
    let three = config(&edit().set("swiglu_clamp_exp", 3.0f32).remove("swiglu_clamp_shexp"));
    assert_eq!(three.clamp_shared, [3.0; 6]);
    assert_eq!(expected.mixers[5], glm_graph::MixerKind::Dsa);
    assert_eq!((expected.trunk, expected.blocks), (5, 6));
}

fn with(change: impl FnOnce(&mut Edit)) -> Option<Edit> {
    let mut edit = Edit::tiny_a()?;
    change(&mut edit);
    Some(edit)
}

#[test]
fn tensors_are_named() {
    let Some(edit) = Edit::tiny_a() else { return };
    says(
        &edit.drop_tensor("blk.3.attn_kv_a_mqa.weight").refused(),
        &["blk.3.attn_kv_a_mqa.weight is missing"],
    );

    let unknown = with(|edit| {
        let copy = edit.tensor("blk.0.attn_norm.weight").bytes.clone();
        for name in ["rope_freqs.weight", "blk.9.attn_norm.weight"] {
            let (name, ty) = (name.to_owned(), GgmlType::F32);
            edit.tensors.push(crate::edit::Tensor { name, ty, dims: vec![256], bytes: copy.clone() });
        }
    });
    says(&unknown.unwrap().refused(), &["2 tensor(s)", "rope_freqs.weight", "blk.9.attn_norm.weight"]);

    let turned = with(|edit| edit.tensor("blk.0.ffn_gate.weight").dims.reverse());
    says(
        &turned.unwrap().refused(),
        &["blk.0.ffn_gate.weight", "512 x 256", "256 x 512", "feed_forward_length"],
    );

    // Heads that do not divide: the sizes in the metadata no longer give the tensors' shapes.
    let heads = Edit::tiny_a().unwrap().set("attention.head_count", 3u32);
    says(&heads.refused(), &["blk.0.", "256", "192", "attention.head_count"]);
    let index = Edit::tiny_a().unwrap().set("attention.indexer.head_count", 7u32);
    says(&index.refused(), &["blk.3.indexer.attn_q_b.weight", "512", "448"]);
    let vocab = Edit::tiny_a().unwrap().set("vocab_size", 100_000u32);
    says(&vocab.refused(), &["token_embd.weight", "256 x 512", "256 x 100000", "vocab_size"]);
    let experts = Edit::tiny_a().unwrap().set("expert_count", 15u32);
    says(&experts.refused(), &["blk.3.", "256 x 16", "expert_count"]);
    // Trap 32: the pool size is checked against the compressor's table, not guessed.
    let pool = Edit::tiny_a().unwrap().set("attention.indexer.kpool", 16u32);
    says(&pool.refused(), &["blk.3.indexer_compressor_ape.weight", "64 x 4", "64 x 16"]);
}

#[test]
fn types_without_kernels_are_named() {
    let Some(_) = Edit::tiny_a() else { return };
    for (ty, name) in [
        (GgmlType::Tq1_0, "TQ1_0"),
        (GgmlType::Tq2_0, "TQ2_0"),
        (GgmlType::Nvfp4, "NVFP4"),
        (GgmlType::I32, "I32"),
    ] {
        let edit = with(|edit| {
            let tensor = edit.tensor("blk.0.ffn_up.weight");
            let bytes = ty.bytes_for(tensor.dims.iter().product()).unwrap();
            (tensor.ty, tensor.bytes) = (ty, vec![0; bytes as usize]);
        });
        says(&edit.unwrap().refused(), &["blk.0.ffn_up.weight", name]);
    }
}

#[test]
fn vectors_must_be_finite() {
    let Some(_) = Edit::tiny_a() else { return };
    for (name, at) in
        [("blk.1.attn_norm.weight", 17), ("blk.3.exp_probs_b.bias", 3), ("blk.0.ssm_conv1d_k.weight", 9)]
    {
        for (bad, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let edit = with(|edit| edit.tensor(name).floats(|values| values[at] = bad));
            says(&edit.unwrap().refused(), &[name, word, &format!("element {at}")]);
        }
    }
    // Trap 13: ssm_a is -exp(A_log).
    let sign = with(|edit| edit.tensor("blk.0.ssm_a").floats(|values| values[2] = 0.5));
    says(&sign.unwrap().refused(), &["blk.0.ssm_a", "0.5 for head 2", "negative"]);
}

/// Trap 54: the last row of the last expert, by stack and by hand.
#[test]
fn the_last_expert_is_where_it_should_be() {
    let Some(fixture) = fixture("tiny-b.maya") else { return };
    let (model, file) = (&fixture.model, fixture.model.gguf());
    let mut seen = 0;
    for block in &model.weights().blocks {
        let glm_graph::weights::Ffn::Moe(moe) = &block.ffn else { continue };
        for stack in [&moe.gate, &moe.up, &moe.down] {
            let matrix = stack.matrix(file, stack.n - 1);
            let mut mine = vec![0.0; stack.cols()];
            quant_kernels::dequantize(stack.quant(), matrix.row(stack.rows() - 1), &mut mine).unwrap();
            let info = file.tensor(stack.name()).unwrap();
            let mut all = vec![0.0; info.dims.iter().product::<u64>() as usize];
            quant_kernels::dequantize(stack.quant(), file.bytes(info.extent).unwrap(), &mut all).unwrap();
            assert_eq!(mine, all[all.len() - mine.len()..], "{}", stack.name());
            seen += 1;
        }
    }
    assert_eq!(seen, 3 * 6);
}

/// Trap 8: every stream begins as the embedding.
#[test]
fn all_streams_begin_equal() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let hidden = fixture.model.config().hidden;
    let streams = glm_graph::probe::embedding(&mut exact(&fixture.model), &[3, 500]).unwrap();
    for row in streams.chunks(fixture.model.config().residual()) {
        assert!(row.chunks(hidden).all(|stream| stream == &row[..hidden]));
        assert!(row[..hidden].iter().any(|value| *value != 0.0));
    }
}

fn last_logits(model: &Arc<Model>, tokens: &[u32]) -> Vec<f32> {
    let mut exec = exact(model);
    let seq = exec.open_sequence().unwrap();
    let mut last = Vec::new();
    exec.score(seq, tokens, &mut |_, row| last = row.to_vec()).unwrap();
    last
}

fn load(edit: &Edit) -> Arc<Model> {
    Arc::new(Model::load(edit.file()).unwrap())
}

/// A file without NextN, without its own head, with 4-D convolution taps, and with small tensors in other types.
#[test]
fn other_spellings_of_the_same_model() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens = fixture.tokens("p7");
    let expected = last_logits(&fixture.model, &tokens);

    let mut stripped = Edit::tiny_a().unwrap().set("block_count", 5u32).set("nextn_predict_layers", 0u32);
    stripped.tensors.retain(|tensor| !tensor.name.starts_with("blk.5."));
    let stripped = load(&stripped);
    assert!(!stripped.config().has_nextn());
    assert_eq!(last_logits(&stripped, &tokens), expected);
    let mut exec = exact(&stripped);
    let seq = exec.open_sequence().unwrap();
    let refused = exec.draft_logits(seq, &[], &[], &mut |_, _, _| {});
    assert_eq!(refused, Err(glm_graph::ExecError::NoNextN));

    let conv = with(|edit| {
        for tensor in edit.tensors.iter_mut().filter(|tensor| tensor.name.contains("ssm_conv1d")) {
            tensor.dims = if tensor.dims.len() == 3 {
                [&tensor.dims[..], &[1]].concat()
            } else {
                tensor.dims[..3].to_vec()
            };
        }
    });
    assert_eq!(last_logits(&load(&conv.unwrap()), &tokens), expected);

    // Traps 56 and 64: the hyper-connection weights, the pool gates and the pool bias in whatever type.
    let wide = with(|edit| {
        let names =
            ["hc_attn_fn", "hc_ffn_fn", "indexer_compressor_gate", "indexer.proj", "ssm_f_a", "ssm_beta"];
        for tensor in
            edit.tensors.iter_mut().filter(|tensor| names.iter().any(|name| tensor.name.contains(name)))
        {
            tensor.widen();
        }
    });
    assert_eq!(last_logits(&load(&wide.unwrap()), &tokens), expected);

    let tied = load(&Edit::tiny_a().unwrap().drop_tensor("output.weight"));
    assert_eq!(&*tied.weights().output.name, "token_embd.weight");
    assert_ne!(last_logits(&tied, &tokens), expected);
}
