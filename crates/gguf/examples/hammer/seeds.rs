//! Small headers to start from: one of each feature of the format.

use gguf::{GgmlType, Layout, Value};

/// Names and bytes, all of them valid headers of files that go on.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let strings = |it: &[&str]| Value::from(it.iter().map(|&it| Box::from(it)).collect::<Vec<Box<str>>>());
    vec![
        ("empty", header(|_| {})),
        (
            "scalars",
            header(|it| {
                it.set("general.architecture", "glm5-next")
                    .set("u8", 1_u8)
                    .set("i8", -1_i8)
                    .set("u16", 2_u16);
                it.set("i16", -2_i16)
                    .set("u32", 3_u32)
                    .set("i32", -3_i32)
                    .set("f32", 0.5_f32)
                    .set("yes", true);
                it.set("u64", 4_u64).set("i64", -4_i64).set("f64", 0.25_f64);
            }),
        ),
        (
            "arrays",
            header(|it| {
                it.set("head_count_kv", vec![0_i32, 0, 0, 1]).set("clamp", vec![10.0_f32; 4]);
                it.set("types", vec![true, false])
                    .set("bytes", vec![1_u8, 2, 3])
                    .set("none", Vec::<u64>::new());
                it.set("tokens", strings(&["!", "\u{120}a", "<|user|>", ""])).set("f64", vec![1.0_f64]);
            }),
        ),
        (
            "tensors",
            header(|it| {
                tensor(it, "output_norm.weight", GgmlType::F32, &[4096]);
                tensor(it, "blk.3.ffn_up_exps.weight", GgmlType::Iq2Xxs, &[512, 16, 8]);
                tensor(it, "blk.0.ssm_conv1d_q.weight", GgmlType::F32, &[4, 1, 64, 1]);
                tensor(it, "token_embd.weight", GgmlType::Q6K, &[256, 16]);
            }),
        ),
        (
            "aligned",
            header(|it| {
                it.set("general.alignment", 64_u32);
                tensor(it, "a", GgmlType::Q8_0, &[32, 3]);
                tensor(it, "b", GgmlType::Bf16, &[7]);
            }),
        ),
        (
            "shard",
            header(|it| {
                it.set("split.no", 1_u16).set("split.count", 3_u16).set("split.tensors.count", 291_i32);
                tensor(it, "blk.1.attn_norm.weight", GgmlType::F32, &[8]);
            }),
        ),
    ]
}

fn tensor(layout: &mut Layout, name: &str, ty: GgmlType, dims: &[u64]) {
    layout.tensor(name, ty, dims).expect("a seed is valid");
}

fn header(fill: impl FnOnce(&mut Layout)) -> Vec<u8> {
    let mut layout = Layout::new();
    fill(&mut layout);
    layout.header().expect("a seed is valid")
}
