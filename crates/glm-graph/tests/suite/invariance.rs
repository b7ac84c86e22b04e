//! A token's logits have the same bits however its prompt is cut, on any number of threads, beside other sequences, and
//! after a restore.

use std::sync::Arc;

use glm_graph::{CpuExecutor, CpuOptions, Executor, Input, Kv, Model, SeqId, Step, Token, Want};
use quant_kernels::{Isa, Precision};

use crate::fixture::{executor, fixture, options};

const SETTINGS: [(Precision, Kv); 4] = [
    (Precision::Exact, Kv::F32),
    (Precision::Exact, Kv::F16),
    (Precision::Fast, Kv::F32),
    (Precision::Fast, Kv::F16),
];

type Bits = Vec<Vec<u32>>;

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

fn score(exec: &mut CpuExecutor, seq: SeqId, tokens: &[Token], rows: &mut Bits) {
    exec.score(seq, tokens, &mut |_, row| rows.push(bits(row))).unwrap();
}

/// Logits of every position, the prompt cut into `chunk` tokens a call.
fn in_chunks(exec: &mut CpuExecutor, tokens: &[Token], chunk: usize) -> Bits {
    let seq = exec.open_sequence().unwrap();
    let mut rows = Vec::new();
    tokens.chunks(chunk).for_each(|chunk| score(exec, seq, chunk, &mut rows));
    exec.close_sequence(seq).unwrap();
    rows
}

fn step(exec: &mut CpuExecutor, feeds: &[(SeqId, Token)]) -> Bits {
    let steps: Vec<Step> = feeds
        .iter()
        .map(|(seq, token)| Step { seq: *seq, input: Input::Token(*token), want: Want::Logits })
        .collect();
    let ticket = exec.submit(&steps).unwrap();
    exec.poll(ticket).unwrap().iter().map(|row| bits(row.logits.as_ref().unwrap())).collect()
}

fn same(what: &str, mine: &Bits, whole: &Bits) {
    assert_eq!(mine.len(), whole.len(), "{what}");
    for (at, (mine, whole)) in mine.iter().zip(whole).enumerate() {
        assert!(mine == whole, "{what}: position {at} has other bits");
    }
}

/// Every way of feeding `tokens`, against feeding them whole on two threads.
fn check(model: &Arc<Model>, precision: Precision, kv: Kv, tokens: &[Token], chunks: &[usize]) {
    let named = |what: &str| format!("{precision:?} {kv:?} {what}");
    let mut exec = executor(model, precision, kv, 2);
    let whole = in_chunks(&mut exec, tokens, tokens.len());
    for chunk in chunks {
        same(&named(&format!("chunks of {chunk}")), &in_chunks(&mut exec, tokens, *chunk), &whole);
    }
    let mut single = executor(model, precision, kv, 1);
    same(&named("one thread"), &in_chunks(&mut single, tokens, tokens.len()), &whole);

    // Prefill answers nothing and leaves out the last layer's feed-forward; what follows must not notice. Then steps, in
    // a batch with another sequence at another position, a checkpoint, and the same again from the checkpoint.
    let (head, tail) = tokens.split_at(tokens.len() * 3 / 4);
    let (seq, other) = (exec.open_sequence().unwrap(), exec.open_sequence().unwrap());
    let mut other_tokens = tokens.iter().rev().copied().cycle();
    exec.prefill(other, &[other_tokens.next().unwrap(), other_tokens.next().unwrap()]).unwrap();
    head.chunks(31).for_each(|chunk| exec.prefill(seq, chunk).unwrap());
    let checkpoint = exec.save(seq).unwrap();
    let expected = whole[head.len()..].to_vec();
    let interleaved: Bits = tail
        .iter()
        .map(|token| step(&mut exec, &[(other, other_tokens.next().unwrap()), (seq, *token)]).remove(1))
        .collect();
    same(&named("interleaved steps"), &interleaved, &expected);
    exec.close_sequence(other).unwrap();

    exec.restore(seq, &checkpoint).unwrap();
    let restored: Bits = tail.iter().map(|token| step(&mut exec, &[(seq, *token)]).remove(0)).collect();
    same(&named("steps after a restore"), &restored, &expected);

    // Into a fresh sequence of another executor, on one thread, as one span.
    let fresh = single.open_sequence().unwrap();
    single.restore(fresh, &checkpoint).unwrap();
    let mut span = Vec::new();
    score(&mut single, fresh, tail, &mut span);
    same(&named("a span after a restore elsewhere"), &span, &expected);
}

/// Prompts beyond the selection budget (32 + 3 and 64 + 3), so that pools compete (traps 20, 26, 41, 43).
fn check_fixture(name: &str) {
    let Some(fixture) = fixture(name) else { return };
    for (precision, kv) in SETTINGS {
        check(&fixture.model, precision, kv, &fixture.tokens("p203"), &[1, 7, 64, 200]);
    }
    check(&fixture.model, Precision::Fast, Kv::F16, &fixture.tokens("p515"), &[200]);
}

#[test]
fn tiny_a_bits() {
    check_fixture("tiny-a.maya");
}

#[test]
fn tiny_b_bits() {
    check_fixture("tiny-b.maya");
}

/// Every instruction set that this processor has, against the scalar definition.
#[test]
fn instruction_sets_have_the_same_bits() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens = &fixture.tokens("p64")[..48];
    for (precision, kv) in [(Precision::Exact, Kv::F16), (Precision::Fast, Kv::F32)] {
        let with = |isa| {
            let options = CpuOptions { isa: Some(isa), ..options(precision, kv, 2) };
            let mut exec = CpuExecutor::new(Arc::clone(&fixture.model), options).unwrap();
            assert_eq!(exec.isa(), isa);
            in_chunks(&mut exec, tokens, 40)
        };
        let scalar = with(Isa::Scalar);
        for isa in Isa::ALL {
            if isa.is_available() {
                same(&format!("{precision:?} {isa}"), &with(isa), &scalar);
            } else {
                golden::skipped(format_args!("{isa}: this processor does not have it"));
            }
        }
    }
}

/// Trap 44: going back over a pool border and on again is a fresh run.
#[test]
fn going_back_over_a_pool_border() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens = fixture.tokens("p64");
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let whole = in_chunks(&mut exec, &tokens, 64);
    let seq = exec.open_sequence().unwrap();
    exec.prefill(seq, &tokens[..46]).unwrap();
    let checkpoint = exec.save(seq).unwrap();
    // Other tokens complete the open pool and one more.
    exec.prefill(seq, &[5, 6, 7, 8, 9, 10, 11]).unwrap();
    exec.restore(seq, &checkpoint).unwrap();
    let mut rows = Vec::new();
    score(&mut exec, seq, &tokens[46..], &mut rows);
    same("after going back", &rows, &whole[46..].to_vec());
}

/// Trap 26: a new sequence knows nothing of an old one.
#[test]
fn sequences_start_empty() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens = fixture.tokens("p7");
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 1);
    let first = in_chunks(&mut exec, &tokens, 7);
    in_chunks(&mut exec, &fixture.tokens("p64"), 64);
    same("a later sequence", &in_chunks(&mut exec, &tokens, 7), &first);
}

/// Draft rows one by one, or all at once, or after a restore.
#[test]
fn drafts_have_the_same_bits() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens = fixture.tokens("p64");
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let seq = exec.open_sequence().unwrap();
    let mut hidden = Vec::new();
    exec.score_hidden(seq, &tokens, &mut |_, row, _| hidden.extend_from_slice(row)).unwrap();
    let width = hidden.len() / tokens.len();
    let empty = exec.save(seq).unwrap();
    let mut whole = Vec::new();
    exec.draft_logits(seq, &hidden, &tokens, &mut |_, _, row| whole.push(bits(row))).unwrap();
    exec.restore(seq, &empty).unwrap();
    let mut single = Vec::new();
    for (hidden, token) in hidden.chunks(width).zip(&tokens) {
        exec.draft_logits(seq, hidden, &[*token], &mut |_, _, row| single.push(bits(row))).unwrap();
    }
    same("drafts one by one", &single, &whole);
}
