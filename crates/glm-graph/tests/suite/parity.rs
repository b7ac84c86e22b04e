//! Exact precision with f32 latents against transformers in f64.

use glm_graph::Executor;

use crate::fixture::{Fixture, distance, exact, fixture};

fn logits_of(fixture: &Fixture, prompt: &str) -> Vec<Vec<f32>> {
    let mut exec = exact(&fixture.model);
    let seq = exec.open_sequence().unwrap();
    let mut logits = Vec::new();
    exec.score(seq, &fixture.tokens(prompt), &mut |_, row| logits.push(row.to_vec())).unwrap();
    logits
}

#[test]
fn tiny_a_logits() {
    let Some(fixture) = fixture("tiny-a.f32") else { return };
    for prompt in ["p1", "p7", "p64", "p203"] {
        let golden = fixture.get(prompt, "logits");
        let logits = logits_of(&fixture, prompt);
        let rows = golden.shape[0];
        let mine: Vec<f32> = logits[logits.len() - rows..].concat();
        let worst = distance(&mine, &golden.floats);
        println!("{prompt}: {worst:e}");
        assert!(worst < 1e-4);
    }
}
