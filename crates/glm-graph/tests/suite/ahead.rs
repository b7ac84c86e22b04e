//! Steps that run ahead, and their undoing.

use glm_graph::{
    CpuExecutor, ExecError, Executor, Input, Kv, SamplerParams, SeqId, Step, Ticket, Token, Want,
};
use quant_kernels::Precision;

use crate::fixture::{executor, fixture};

const PROMPT: [Token; 5] = [3, 1, 4, 1, 5];

fn hot() -> SamplerParams {
    SamplerParams { temperature: 1.5, frequency_penalty: 0.3, seed: 9, ..SamplerParams::default() }
}

fn step(seq: SeqId, input: Input) -> Step {
    Step { seq, input, want: Want::Sample(hot()) }
}

fn start(exec: &mut CpuExecutor) -> SeqId {
    let seq = exec.open_sequence().unwrap();
    exec.prefill(seq, &PROMPT[..4]).unwrap();
    seq
}

fn tokens(exec: &mut CpuExecutor, ticket: Ticket) -> Vec<Token> {
    exec.poll(ticket).unwrap().into_iter().map(|row| row.token.unwrap()).collect()
}

/// One step after the other: each is answered before the next is submitted.
fn plain(exec: &mut CpuExecutor, seq: SeqId, first: Input, n: usize) -> Vec<Token> {
    let mut input = first;
    let one = |_| {
        let ticket = exec.submit(&[step(seq, std::mem::replace(&mut input, Input::LastSampled))]).unwrap();
        tokens(exec, ticket)[0]
    };
    (0..n).map(one).collect()
}

/// The same tokens, each step submitted before the answer to the one before is asked for; at every step `undo` says what is
/// tried and undone before and after that answer.
fn interleaved(
    exec: &mut CpuExecutor,
    seq: SeqId,
    n: usize,
    undo: impl Fn(usize) -> (bool, bool),
) -> Vec<Token> {
    let mut found = Vec::new();
    let mut ticket = exec.submit(&[step(seq, Input::Token(PROMPT[4]))]).unwrap();
    for i in 0..n {
        let (before, after) = undo(i);
        if before {
            let other = exec.submit(&[step(seq, Input::Token(7))]).unwrap();
            exec.undo(seq).unwrap();
            assert!(matches!(exec.poll(other), Err(ExecError::UnknownTicket(_))));
        }
        let mut ahead = exec.submit(&[step(seq, Input::LastSampled)]).unwrap();
        assert_eq!(exec.len(seq), Ok(PROMPT.len() + i + 1));
        found.extend(tokens(exec, ticket));
        if after || i + 1 == n {
            exec.undo(seq).unwrap();
            assert_eq!(exec.undo(seq), Err(ExecError::NotAhead(seq)));
            if i + 1 == n {
                break;
            }
            ahead = exec.submit(&[step(seq, Input::LastSampled)]).unwrap();
        }
        ticket = ahead;
    }
    found
}

#[test]
fn steps_ahead_give_the_same_tokens_whatever_is_undone() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let n = 24;
    let seq = start(&mut exec);
    let expected = plain(&mut exec, seq, Input::Token(PROMPT[4]), n);
    let state = exec.save(seq).unwrap();
    for undone in 0..4 {
        let seq = start(&mut exec);
        let script = |i: usize| match undone {
            0 => (false, false),
            1 => (true, true),
            _ => (i.is_multiple_of(undone), i % 3 == 1),
        };
        let found = interleaved(&mut exec, seq, n, script);
        assert_eq!(found, expected, "script {undone}");
        assert!(exec.save(seq).unwrap() == state, "script {undone}");
        assert_eq!(exec.counters().open, 2);
        exec.close_sequence(seq).unwrap();
    }
}

#[test]
fn what_a_step_without_an_answer_forbids() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 1);
    let seq = start(&mut exec);
    let saved = exec.save(seq).unwrap();
    let first = exec.submit(&[step(seq, Input::Token(5))]).unwrap();
    assert_eq!(exec.undo(seq), Err(ExecError::NotAhead(seq)));
    let unanswered = ExecError::Unanswered(seq);
    assert_eq!(exec.prefill(seq, &[1]), Err(unanswered.clone()));
    assert_eq!(exec.score(seq, &[1], &mut |_, _| {}), Err(unanswered.clone()));
    assert_eq!(exec.save(seq).unwrap_err(), unanswered);
    let second = exec.submit(&[step(seq, Input::LastSampled)]).unwrap();
    assert_eq!(exec.submit(&[step(seq, Input::LastSampled)]).unwrap_err(), ExecError::TooFarAhead(seq));
    assert_eq!(exec.len(seq), Ok(6));
    tokens(&mut exec, first);
    exec.restore(seq, &saved).unwrap();
    assert!(matches!(exec.poll(second), Err(ExecError::UnknownTicket(_))));
    assert_eq!(exec.len(seq), Ok(4));
    assert!(exec.save(seq).unwrap() == saved);
    // Closed with steps on their way.
    let left = exec.submit(&[step(seq, Input::Token(5))]).unwrap();
    exec.close_sequence(seq).unwrap();
    assert!(matches!(exec.poll(left), Err(ExecError::UnknownTicket(_))));
    assert_eq!(exec.undo(seq), Err(ExecError::UnknownSequence(seq)));
}

/// Logits sample nothing, so nothing can be fed after them.
#[test]
fn a_token_must_be_on_its_way() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 1);
    let seq = start(&mut exec);
    let logits = Step { seq, input: Input::Token(5), want: Want::Logits };
    let first = exec.submit(&[logits]).unwrap();
    assert_eq!(exec.submit(&[step(seq, Input::LastSampled)]).unwrap_err(), ExecError::NothingSampled(seq));
    let known = exec.submit(&[step(seq, Input::Token(6))]).unwrap();
    assert_eq!(exec.poll(known).unwrap().len(), 1, "it computes what it follows");
    assert!(exec.poll(first).unwrap()[0].logits.is_some());
    assert_eq!(exec.len(seq), Ok(6));
}

#[test]
fn one_of_a_batch_is_undone() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let mut exec = executor(&fixture.model, Precision::Fast, Kv::F16, 2);
    let alone = start(&mut exec);
    let expected = plain(&mut exec, alone, Input::Token(5), 3);
    let (a, b) = (start(&mut exec), start(&mut exec));
    let first = exec.submit(&[step(a, Input::Token(5)), step(b, Input::Token(5))]).unwrap();
    let second = exec.submit(&[step(a, Input::LastSampled), step(b, Input::LastSampled)]).unwrap();
    assert_eq!(tokens(&mut exec, first), [expected[0]; 2]);
    exec.undo(a).unwrap();
    let rows = exec.poll(second).unwrap();
    assert_eq!((rows[0].token, rows[0].error.clone()), (None, Some(ExecError::Undone(a))));
    assert_eq!(rows[1].token, Some(expected[1]));
    let third = exec.submit(&[step(b, Input::LastSampled), step(a, Input::LastSampled)]).unwrap();
    assert_eq!(tokens(&mut exec, third), [expected[2], expected[1]]);
}
