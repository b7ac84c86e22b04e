//! Calls that are refused, and what they leave behind; NaN and infinity in weights.

use std::ops::ControlFlow;
use std::sync::Arc;

use glm_graph::{
    CpuExecutor, ExecError, Executor, Finish, GenerateEvent, GenerateOptions, Input, Kv, Model,
    SamplerParams, SeqId, Step, Want, generate,
};
use quant_kernels::Precision;

use crate::edit::Edit;
use crate::fixture::{executor, fixture, options};

fn greedy(seq: SeqId, input: Input) -> Step {
    Step { seq, input, want: Want::Sample(SamplerParams::greedy()) }
}

#[test]
fn refused_calls_change_nothing() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let small = glm_graph::CpuOptions { ctx: 20, ..options(Precision::Fast, Kv::F16, 1) };
    let mut exec = CpuExecutor::new(Arc::clone(&fixture.model), small).unwrap();
    let seq = exec.open_sequence().unwrap();
    exec.prefill(seq, &[1, 2, 3]).unwrap();
    let before = exec.save(seq).unwrap();

    let out_of_range = ExecError::TokenRange { token: 512, at: 1, vocab: 512 };
    assert_eq!(exec.prefill(seq, &[7, 512]), Err(out_of_range.clone()));
    assert_eq!(exec.score(seq, &[7, 512], &mut |_, _| {}), Err(out_of_range));
    let sentence = exec.prefill(seq, &[1; 18]).unwrap_err().to_string();
    assert_eq!(sentence, "21 tokens do not fit the context of 20 tokens");
    let step = |input| Step { seq, input, want: Want::Logits };
    assert_eq!(exec.submit(&[step(Input::LastSampled)]), Err(ExecError::NothingSampled(seq)));
    assert_eq!(exec.submit(&[step(Input::Token(1)), step(Input::Token(2))]), Err(ExecError::Twice(seq)));
    assert!(matches!(
        exec.submit(&[step(Input::Token(9999))]),
        Err(ExecError::TokenRange { token: 9999, .. })
    ));
    let hot = Want::Sample(SamplerParams { temperature: -1.0, ..SamplerParams::default() });
    let bad = exec.submit(&[Step { seq, input: Input::Token(1), want: hot }]);
    assert!(matches!(bad, Err(ExecError::Sampler { name: "temperature", .. })));
    assert_eq!(exec.save(seq).unwrap(), before);

    let closed = exec.open_sequence().unwrap();
    exec.close_sequence(closed).unwrap();
    let unknown = ExecError::UnknownSequence(closed);
    assert_eq!(exec.close_sequence(closed), Err(unknown.clone()));
    assert_eq!(exec.prefill(closed, &[1]), Err(unknown.clone()));
    assert_eq!(exec.restore(closed, &before), Err(unknown.clone()));
    assert_eq!(exec.len(closed), Err(ExecError::UnknownSequence(closed)));
    assert_eq!(
        exec.submit(&[greedy(seq, Input::Token(1)), greedy(closed, Input::Token(1))]).unwrap_err(),
        unknown
    );
    assert_eq!(exec.len(seq), Ok(3));

    let ticket = exec.submit(&[greedy(seq, Input::Token(4))]).unwrap();
    assert_eq!(exec.poll(ticket).unwrap().len(), 1);
    assert_eq!(exec.counters().decoded, 1);
    assert_eq!(exec.counters().open, 1);
}

#[test]
fn foreign_checkpoints_are_refused() {
    let (Some(a), Some(b)) = (fixture("tiny-a.maya"), fixture("tiny-b.maya")) else { return };
    let mut ours = executor(&a.model, Precision::Fast, Kv::F16, 1);
    let mut wide = executor(&a.model, Precision::Fast, Kv::F32, 1);
    let mut other = executor(&b.model, Precision::Fast, Kv::F16, 1);
    let seq = ours.open_sequence().unwrap();
    ours.prefill(seq, &[1, 2, 3, 4, 5]).unwrap();
    let checkpoint = ours.save(seq).unwrap();
    assert_eq!((checkpoint.len(), checkpoint.tokens()), (5, &[1, 2, 3, 4, 5][..]));
    let (in_wide, in_other) = (wide.open_sequence().unwrap(), other.open_sequence().unwrap());
    assert_eq!(wide.restore(in_wide, &checkpoint), Err(ExecError::ForeignCheckpoint));
    assert_eq!(other.restore(in_other, &checkpoint), Err(ExecError::ForeignCheckpoint));
    let small = glm_graph::CpuOptions { ctx: 4, ..options(Precision::Fast, Kv::F16, 1) };
    let mut small = CpuExecutor::new(Arc::clone(&a.model), small).unwrap();
    let in_small = small.open_sequence().unwrap();
    assert_eq!(small.restore(in_small, &checkpoint), Err(ExecError::Context { wanted: 5, ctx: 4 }));
}

fn run(
    exec: &mut dyn Executor,
    prompt: &[u32],
    options: &GenerateOptions,
    cancel_after: usize,
) -> (Result<Finish, ExecError>, Vec<u32>) {
    let seq = exec.open_sequence().unwrap();
    let mut tokens = Vec::new();
    let finish = generate(exec, seq, prompt, options, &mut |event| {
        if let GenerateEvent::Token(token) = event {
            tokens.push(token);
        }
        if tokens.len() >= cancel_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    exec.close_sequence(seq).unwrap();
    (finish, tokens)
}

#[test]
fn generating_ends_as_it_should() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let small = glm_graph::CpuOptions { ctx: 20, ..options(Precision::Fast, Kv::F16, 1) };
    let mut exec = CpuExecutor::new(Arc::clone(&fixture.model), small).unwrap();
    let base =
        GenerateOptions { max_tokens: 6, sampler: SamplerParams::greedy(), stop_tokens: vec![], chunk: 2 };
    let prompt = [5, 6, 7, 8, 9];
    let (finish, tokens) = run(&mut exec, &prompt, &base, usize::MAX);
    assert_eq!((finish, tokens.len()), (Ok(Finish::Length), 6));
    let stop = GenerateOptions { stop_tokens: vec![tokens[3]], ..base.clone() };
    let first = tokens.iter().position(|token| *token == tokens[3]).unwrap();
    assert_eq!(
        run(&mut exec, &prompt, &stop, usize::MAX),
        (Ok(Finish::Stop(tokens[3])), tokens[..first].to_vec())
    );
    assert_eq!(run(&mut exec, &prompt, &base, 2), (Ok(Finish::Cancelled), tokens[..2].to_vec()));
    assert_eq!(run(&mut exec, &prompt, &base, 0), (Ok(Finish::Cancelled), vec![]));
    let none = GenerateOptions { max_tokens: 0, ..base.clone() };
    assert_eq!(run(&mut exec, &prompt, &none, usize::MAX), (Ok(Finish::Length), vec![]));
    // The context ends it: 5 prompt tokens and 15 fed ones leave the 16th unfed.
    let long = GenerateOptions { max_tokens: 100, ..base.clone() };
    let (finish, all) = run(&mut exec, &prompt, &long, usize::MAX);
    assert_eq!((finish, all.len()), (Ok(Finish::Length), 16));
    assert_eq!(all[..6], tokens);

    assert_eq!(run(&mut exec, &[], &base, usize::MAX).0, Err(ExecError::EmptyPrompt));
    let beyond = run(&mut exec, &[1; 21], &base, usize::MAX).0.unwrap_err().to_string();
    assert_eq!(beyond, "21 tokens do not fit the context of 20 tokens");
    assert!(matches!(
        run(&mut exec, &[1, 600], &base, usize::MAX).0,
        Err(ExecError::TokenRange { at: 1, .. })
    ));
    assert_eq!(exec.counters().open, 0);
}

#[test]
fn a_seed_reproduces_a_text() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let mut text = |seed| {
        let sampler = SamplerParams { seed, temperature: 1.5, top_p: 1.0, ..SamplerParams::default() };
        let options = GenerateOptions { max_tokens: 12, sampler, stop_tokens: vec![], chunk: 64 };
        run(&mut exec, &[3, 1, 4], &options, usize::MAX).1
    };
    let first = text(1);
    assert_eq!(text(1), first);
    assert_ne!(text(2), first);
}

/// A model in which one weight of `name` is not finite: its first float, which in a quantised block is a scale. In routed
/// experts that of every expert, since the router decides which ones a token meets.
fn poisoned(name: &str, at: usize, bytes: &[u8]) -> Option<Arc<Model>> {
    let mut edit = Edit::tiny_a()?;
    let tensor = edit.tensor(name);
    let experts = if name.contains("_exps") { tensor.dims[2] as usize } else { 1 };
    let each = tensor.bytes.len() / experts;
    for expert in tensor.bytes.chunks_exact_mut(each) {
        expert[at..at + bytes.len()].copy_from_slice(bytes);
    }
    Some(Arc::new(Model::load(edit.file()).expect("matrices are not looked at when loading")))
}

/// NaN or infinity anywhere fails the sequence that met it, names layer and values, and leaves the process and other
/// sequences alone.
#[test]
fn weights_that_are_not_finite() {
    const HALF_NAN: [u8; 2] = [0x00, 0x7e];
    const HALF_INF: [u8; 2] = [0x00, 0x7c];
    // Q6_K keeps its scale in the last 2 of 210 bytes; IQ2_XXS and Q8_0 in the first 2.
    let cases: [(&str, usize, &[u8], usize, &str); 12] = [
        ("blk.0.attn_q.weight", 208, &HALF_NAN, 0, "attn_q"),
        ("blk.0.ssm_f_b.weight", 0, &HALF_INF, 0, "ssm_f_b"),
        ("blk.1.ffn_gate.weight", 208, &HALF_NAN, 1, "ffn_gate"),
        ("blk.3.attn_k_b.weight", 208, &HALF_INF, 3, "attn_k_b"),
        ("blk.3.ffn_gate_inp.weight", 0, &f32::NAN.to_le_bytes(), 3, "router"),
        ("blk.3.hc_ffn_fn.weight", 0, &f32::INFINITY.to_le_bytes(), 3, "mixing"),
        ("blk.3.indexer.attn_k.weight", 0, &HALF_NAN, 3, "indexer.attn_k"),
        ("blk.4.ffn_gate_exps.weight", 0, &HALF_NAN, 4, "ffn_gate_exps"),
        ("blk.4.ffn_up_exps.weight", 0, &HALF_INF, 4, "ffn_up_exps"),
        ("blk.4.ffn_down_exps.weight", 0, &HALF_NAN, 4, "ffn_down_exps"),
        ("blk.4.ffn_down_shexp.weight", 208, &HALF_NAN, 4, "ffn_down_shexp"),
        ("output.weight", 208, &HALF_NAN, 5, "logits"),
    ];
    for (name, at, bytes, layer, what) in cases {
        let Some(model) = poisoned(name, at, bytes) else { return };
        for precision in [Precision::Exact, Precision::Fast] {
            for tokens in [&[1u32, 2, 3][..], &[9]] {
                let mut exec = executor(&model, precision, Kv::F16, 2);
                let seq = exec.open_sequence().unwrap();
                let error = exec.score(seq, tokens, &mut |_, _| {}).unwrap_err();
                let ExecError::NotFinite { seq: failed, layer: at_layer, what: named, position } = &error
                else {
                    panic!("{name}: {error}")
                };
                assert_eq!((*failed, *at_layer), (seq, layer), "{name} {precision:?}: {error}");
                // Experts run on several threads, and the first of the rows is named whichever of them was faster.
                assert_eq!(*position, 0, "{name} {precision:?}: {error}");
                assert!(named.contains(what), "{name} {precision:?}: {error}");
                assert_eq!(exec.prefill(seq, &[1]), Err(ExecError::Broken(seq)));
                assert!(matches!(exec.save(seq), Err(ExecError::Broken(_))));
                exec.close_sequence(seq).unwrap();
            }
        }
    }
}

/// A poisoned embedding row fails the sequence that feeds it and not the one beside it in the batch.
#[test]
fn only_the_sequence_that_met_it_fails() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let mut edit = Edit::tiny_a().unwrap();
    let row_bytes = edit.tensor("token_embd.weight").bytes.len() / 512;
    edit.tensor("token_embd.weight").bytes[7 * row_bytes + 208..][..2].copy_from_slice(&[0x00, 0x7e]);
    let model = Arc::new(Model::load(edit.file()).unwrap());
    let mut sound = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let mut exec = executor(&model, Precision::Fast, Kv::F16, 2);
    let (a, b) = (exec.open_sequence().unwrap(), exec.open_sequence().unwrap());
    exec.prefill(a, &[1, 2]).unwrap();
    exec.prefill(b, &[3]).unwrap();
    let saved = exec.save(a).unwrap();
    let step = |seq, token| Step { seq, input: Input::Token(token), want: Want::Logits };
    let ticket = exec.submit(&[step(a, 7), step(b, 4)]).unwrap();
    let rows = exec.poll(ticket).unwrap();
    assert!(matches!(
        rows[0].error,
        Some(ExecError::NotFinite { layer: 0, what: "token_embd", position: 2, .. })
    ));
    assert!(rows[0].logits.is_none());
    let alone = sound.open_sequence().unwrap();
    let mut expected = Vec::new();
    sound.score(alone, &[3, 4], &mut |_, row| expected = row.to_vec()).unwrap();
    assert_eq!(rows[1].logits.as_deref(), Some(&expected[..]));
    // A restore heals.
    assert_eq!(exec.prefill(a, &[1]), Err(ExecError::Broken(a)));
    exec.restore(a, &saved).unwrap();
    exec.prefill(a, &[1]).unwrap();
}
