//! Fast precision and f16 latents: how far they may be from the reference.

use glm_graph::{Executor, Kv, probe};
use quant_kernels::Precision;

use crate::fixture::{Fixture, argmax, distance, executor, fixture};

/// Relative RMS error that one layer may have at a position (fixtures' README).
const LAYER_ERROR: f64 = 0.03;
/// Router gap below which an expert may flip.
const SURE_GAP: f32 = 0.01;

/// Feed the golden streams before a layer, compare with those after it: dense layers at every position, MoE layers where
/// the router's gap is wide.
fn check_layers(name: &str) {
    let Some(fixture) = fixture(name) else { return };
    let prompt = "p7";
    let golden = fixture.get(prompt, "hidden");
    let config = fixture.model.config();
    let (rows, width) = (golden.shape[1], config.residual());
    let gaps = fixture.get(prompt, "router_gap");
    let moe = fixture.get(prompt, "router_layers").ints;
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let mut before = probe::embedding(&mut exec, &fixture.tokens(prompt)[..rows]).unwrap();
    let (mut worst, mut seen) = (0.0f64, 0);
    for (layer, golden) in golden.floats.chunks(rows * width).enumerate() {
        let mine = probe::layer(&mut exec, layer, &before).unwrap();
        let gap_row = moe.iter().position(|moe| *moe as usize == layer);
        for row in 0..rows {
            let gap = gap_row.map_or(f32::INFINITY, |i| gaps.floats[i * gaps.shape[1] + row]);
            if gap < SURE_GAP {
                continue;
            }
            let range = row * width..(row + 1) * width;
            let error = relative_rms(&mine[range.clone()], &golden[range]);
            assert!(error < LAYER_ERROR, "{name}: layer {layer}, position {row} is off by {error}");
            worst = worst.max(error);
            seen += 1;
        }
        before = golden.to_vec();
    }
    eprintln!("{name}: worst of {seen} rows {worst:.4}");
    assert!(seen > 2 * rows, "{name}: gaps left almost nothing to compare");
}

fn relative_rms(mine: &[f32], golden: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value) * f64::from(value);
    let error: f64 = mine.iter().zip(golden).map(|(a, b)| square(a - b)).sum();
    (error / golden.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
}

#[test]
fn layers_of_tiny_a() {
    check_layers("tiny-a.maya");
}

#[test]
fn layers_of_tiny_b() {
    check_layers("tiny-b.maya");
}

#[test]
fn layers_of_tiny_a_q8_0() {
    check_layers("tiny-a.q8_0");
}

/// End to end: mean distance at most twice llama.cpp's with 8-bit activations, argmax agreement at least its own less 0.1
/// (fixtures' README).
fn check_end_to_end(name: &str, prompt: &str, llama_mean: f64, llama_argmax: f64) {
    let Some(fixture) = fixture(name) else { return };
    let golden = fixture.get(prompt, "logits");
    let logits = logits(&fixture, prompt, Precision::Fast, Kv::F16);
    let rows = golden.shape[0];
    let logits = &logits[logits.len() - rows..];
    let (mut sum, mut agree) = (0.0, 0);
    for (mine, golden) in logits.iter().zip(golden.floats.chunks(golden.shape[1])) {
        sum +=
            mine.iter().zip(golden).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / golden.len() as f64;
        agree += usize::from(argmax(mine) == argmax(golden));
    }
    let (mean, agree) = (sum / rows as f64, agree as f64 / rows as f64);
    eprintln!(
        "{name} {prompt}: mean {mean:.3} (llama.cpp {llama_mean}), argmax {agree:.2} (llama.cpp {llama_argmax})"
    );
    assert!(mean <= 2.0 * llama_mean, "{name} {prompt}: mean distance {mean}");
    assert!(agree >= llama_argmax - 0.1, "{name} {prompt}: argmax agreement {agree}");
}

fn logits(fixture: &Fixture, prompt: &str, precision: Precision, kv: Kv) -> Vec<Vec<f32>> {
    let mut exec = executor(&fixture.model, precision, kv, 2);
    let seq = exec.open_sequence().unwrap();
    let mut logits = Vec::new();
    exec.score(seq, &fixture.tokens(prompt), &mut |_, row| logits.push(row.to_vec())).unwrap();
    logits
}

#[test]
fn end_to_end_yardstick() {
    check_end_to_end("tiny-a.maya", "p7", 2.6e-1, 1.00);
    check_end_to_end("tiny-a.maya", "p64", 3.0e-1, 0.81);
    check_end_to_end("tiny-a.maya", "p203", 3.4e-1, 0.80);
    check_end_to_end("tiny-b.maya", "p64", 4.1e-1, 0.77);
    check_end_to_end("tiny-a.q8_0", "p64", 1.8e-1, 0.89);
}

/// F16 latents on exact arithmetic: at most twice llama.cpp's distance with an f16 cache.
#[test]
fn f16_latents() {
    let Some(fixture) = fixture("tiny-a.f32") else { return };
    for (prompt, llama) in [("p1", 1.0e-3), ("p7", 1.9e-3), ("p64", 3.0e-3)] {
        let golden = fixture.get(prompt, "logits");
        let mine = logits(&fixture, prompt, Precision::Exact, Kv::F16);
        let worst = distance(&mine.concat(), &golden.floats);
        eprintln!("{prompt}: {worst:.1e} (llama.cpp {llama:.1e})");
        assert!(worst <= 2.0 * llama, "{prompt}: {worst}");
    }
}
