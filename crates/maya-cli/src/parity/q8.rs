//! Makes the Q8_0 file that is left out of the fixtures for size: what llama.cpp's quantiser makes of an F32 file.
//!
//! Checked against the manifest's SHA-256, so it proves our writer and this quantiser at once.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gguf::{GgmlType, Layout, Model, TensorInfo};
use half::f16;
use sha2::{Digest, Sha256};

use crate::output::AtomicFile;

use super::golden::Fixtures;

/// The file that is made.
pub const FILE: &str = "tiny-b.q8_0.gguf";
/// What it is made from.
pub const SOURCE: &str = "tiny-b.f32.gguf";

/// Roles (names without block and `.weight`) of matrices that become Q8_0. The rest (router, mixing, indexer, gates, latents' factors)
/// stays F32, as in the committed file of the other model.
const QUANTISED: &[&str] = &[
    "output",
    "token_embd",
    "attn_k",
    "attn_output",
    "attn_q",
    "attn_v",
    "attn_q_a",
    "attn_q_b",
    "ffn_down",
    "ffn_gate",
    "ffn_up",
    "ffn_down_shexp",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_exps",
    "ffn_gate_exps",
    "ffn_up_exps",
    "nextn.eh_proj",
];
/// Keys that the quantiser takes out and appends anew, with their values: version of the block formats, mostly Q8_0.
const APPENDED: [(&str, u32); 2] = [("general.quantization_version", 2), ("general.file_type", 7)];

/// Makes `name` in the fixtures' folder from `source`, unless it is there already.
///
/// # Errors
/// The source cannot be read, the target not written, or what was made differs from the manifest.
pub fn make(fixtures: &Fixtures, source: &Path, name: &str) -> Result<()> {
    let target = fixtures.place(name);
    let Some((bytes, sha256)) = fixtures.expected(name)? else { bail!("the manifest has no {name}") };
    if matches(&target, bytes, &sha256) {
        return Ok(());
    }
    write(source, &target).with_context(|| format!("{name} cannot be made from {}", source.display()))?;
    if !matches(&target, bytes, &sha256) {
        bail!("{} was made by our writer and differs from the manifest's SHA-256 {sha256}", target.display());
    }
    Ok(())
}

fn matches(path: &Path, bytes: u64, sha256: &str) -> bool {
    let data = fs::read(path).unwrap_or_default();
    let hex = |hash: &[u8]| hash.iter().map(|b| format!("{b:02x}")).collect::<String>();
    data.len() as u64 == bytes && hex(&Sha256::digest(&data)) == sha256
}

fn write(source: &Path, target: &Path) -> Result<()> {
    let model = Model::open(source)?;
    let mut layout = Layout::new();
    for (key, value) in model.metadata().filter(|(key, _)| APPENDED.iter().all(|(k, _)| k != key)) {
        layout.set(key, value.clone());
    }
    for (key, value) in APPENDED {
        layout.set(key, value);
    }
    let mut tensors: Vec<&TensorInfo> = model.tensors().iter().collect();
    tensors.sort_by(|a, b| order(&a.name).cmp(&order(&b.name)));
    for info in &tensors {
        let ty = if is_quantised(info) { GgmlType::Q8_0 } else { info.ty };
        // The quantiser drops trailing axes of length 1, which the converter wrote for convolutions.
        let n_dims = info.dims.iter().rposition(|d| *d != 1).map_or(1, |last| last + 1);
        layout.tensor(&info.name, ty, &info.dims[..n_dims])?;
    }
    let file = AtomicFile::create(target)?;
    let mut writer = layout.write_to(file)?;
    for info in &tensors {
        let bytes = model.bytes(info.extent)?;
        if is_quantised(info) {
            let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            writer.tensor(&info.name, &quantise(&values))?;
        } else {
            writer.tensor(&info.name, bytes)?;
        }
    }
    writer.finish()?.commit()
}

/// The quantiser's order: tensors outside of blocks, then block by block, by name within.
fn order(name: &str) -> (i64, &str) {
    let block = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
    (block.unwrap_or(-1), name)
}

fn is_quantised(info: &TensorInfo) -> bool {
    let role = info.name.strip_suffix(".weight").map(|name| match name.strip_prefix("blk.") {
        Some(rest) => rest.split_once('.').map_or(rest, |(_, role)| role),
        None => name,
    });
    info.ty == GgmlType::F32 && role.is_some_and(|role| QUANTISED.contains(&role))
}

/// Q8_0 blocks of 32 values: f16 scale amax / 127, then values over the f32 scale, halves rounded away from zero.
fn quantise(values: &[f32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() / 32 * 34);
    for block in values.as_chunks::<32>().0 {
        let amax = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let d = amax / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        out.extend(f16::from_f32(d).to_le_bytes());
        out.extend(block.iter().map(|v| (v * inverse).round() as i8 as u8));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_scaled_by_its_extreme() {
        let mut values = [0.0f32; 32];
        (values[0], values[1], values[2]) = (-127.0, 63.5, 0.5);
        let bytes = quantise(&values);
        assert_eq!(bytes.len(), 34);
        assert_eq!(&bytes[..5], &[0x00, 0x3c, 0x81, 64, 1]);
        assert_eq!(quantise(&[0.0; 32]), [0; 34]);
    }

    #[test]
    fn blocks_are_ordered_by_number() {
        let mut names = ["blk.10.a", "token_embd.weight", "blk.2.b", "blk.2.a", "output.weight"];
        names.sort_by_key(|n| order(n));
        assert_eq!(names, ["output.weight", "token_embd.weight", "blk.2.a", "blk.2.b", "blk.10.a"]);
    }

    #[test]
    fn the_left_out_file_is_made_to_the_byte() {
        let Some(source) = golden::gguf(SOURCE) else { return };
        let Some(manifest) = golden::file("manifest.json") else { return };
        let folder = tempfile::tempdir().unwrap();
        fs::copy(manifest, folder.path().join("manifest.json")).unwrap();
        let fixtures = Fixtures::open(folder.path()).unwrap();
        make(&fixtures, &source, FILE).unwrap();
    }
}
