//! Experts on two tiers: the same bits at any budget, from any drive, with and without look-ahead; failures that stay
//! where they belong.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glm_graph::{
    CpuExecutor, CpuOptions, ExecError, Executor, Input, Kv, Model, Step, TierCounters, TierOptions,
    TierPlan, Token, Want,
};
use nvme_reader::Choice;
use nvme_reader::faults::{Faults, Injected};
use quant_kernels::Precision;

use crate::edit::Edit;
use crate::fixture::{exact, fixture, open, options};

type Bits = Vec<Vec<u32>>;

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

fn tiered(model: &Arc<Model>, precision: Precision, tiers: TierOptions) -> CpuExecutor {
    let options = CpuOptions { tiers: Some(tiers), ..options(precision, Kv::F16, 2) };
    CpuExecutor::new(Arc::clone(model), options).unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes of slots that hold `percent` of all experts.
fn share(model: &Model, percent: u64) -> u64 {
    TierPlan::of(model, &TierOptions::default()).unwrap().all_bytes * percent / 100
}

/// A prompt in pieces, then tokens one by one and in batches of two sequences, then everything in one piece.
fn run(exec: &mut CpuExecutor, tokens: &[Token]) -> Bits {
    let (prompt, decode) = tokens.split_at(tokens.len() / 2);
    let seq = exec.open_sequence().unwrap();
    let mut rows = Vec::new();
    for piece in prompt.chunks(7) {
        exec.score(seq, piece, &mut |_, row| rows.push(bits(row))).unwrap();
    }
    let other = exec.open_sequence().unwrap();
    exec.prefill(other, &tokens[..3]).unwrap();
    for token in decode {
        for seqs in [&[seq][..], &[seq, other][..]].into_iter().skip(rows.len() % 2).take(1) {
            let step = |seq: &_| Step { seq: *seq, input: Input::Token(*token), want: Want::Logits };
            let ticket = exec.submit(&seqs.iter().map(step).collect::<Vec<_>>()).unwrap();
            let answer = exec.poll(ticket).unwrap();
            rows.extend(answer.iter().map(|row| bits(row.logits.as_ref().unwrap())));
        }
    }
    // A batch that takes most experts of every layer, many more than there are transit blobs.
    let all = exec.open_sequence().unwrap();
    exec.score(all, tokens, &mut |_, row| rows.push(bits(row))).unwrap();
    for seq in [seq, other, all] {
        exec.close_sequence(seq).unwrap();
    }
    rows
}

fn same(what: &str, mine: &Bits, whole: &Bits) {
    assert_eq!(mine.len(), whole.len(), "{what}");
    for (at, (mine, whole)) in mine.iter().zip(whole).enumerate() {
        assert!(mine == whole, "{what}: row {at} has other bits");
    }
}

/// Every shard copied into a folder.
fn copies(model: &Model, folder: &std::path::Path) -> Vec<PathBuf> {
    let copy = |shard: &gguf::Shard| {
        let to = folder.join(shard.path.file_name().unwrap());
        std::fs::copy(&shard.path, &to).unwrap();
        to
    };
    model.gguf().shards().iter().map(copy).collect()
}

/// A prompt of two pieces and as many tokens one by one: enough for a batch of all of them to overflow the landing area.
const TOKENS: Token = 24;

fn every_setting(name: &str) {
    let Some(fixture) = fixture(name) else { return };
    // All different: a prompt that repeats itself takes few experts.
    let vocab = exact(&fixture.model).vocab() as Token;
    let tokens: Vec<Token> = (0..TOKENS).map(|i| (11 + 37 * i) % vocab).collect();
    let landings = u32::from(TierPlan::of(&fixture.model, &TierOptions::default()).unwrap().landings);
    let folder = tempfile::tempdir().unwrap();
    let mirror = copies(&fixture.model, folder.path());
    for precision in [Precision::Fast, Precision::Exact] {
        let mut whole = CpuExecutor::new(Arc::clone(&fixture.model), options(precision, Kv::F16, 2)).unwrap();
        let whole = run(&mut whole, &tokens);
        // The store is the same for both precisions: the dear one sees the ends and a middle.
        let percents: &[u64] = if precision == Precision::Fast { &[100, 50, 20, 5, 0] } else { &[50, 0] };
        for &percent in percents {
            for (look_ahead, backend, mirrored) in [
                (true, Choice::Auto, false),
                (false, Choice::Auto, true),
                (true, Choice::Threads, true),
                (false, Choice::Threads, false),
            ] {
                let mirrors = if mirrored { vec![mirror.clone()] } else { Vec::new() };
                let ram = share(&fixture.model, percent);
                let tiers = TierOptions { ram, look_ahead, backend, mirrors, ..TierOptions::default() };
                let mut exec = tiered(&fixture.model, precision, tiers);
                let what = format!(
                    "{name} {precision:?} {percent} % ahead {look_ahead} {backend:?} mirror {mirrored}"
                );
                same(&what, &run(&mut exec, &tokens), &whole);
                same(&format!("{what}, again"), &run(&mut exec, &tokens), &whole);
                // The last pass was all tokens at once: more experts than land at a time, or no waves were tested.
                let widest = exec.last_pass().iter().map(|layer| layer.experts).max().unwrap();
                assert!(widest > landings, "{what}: {widest} experts, and {landings} transit blobs");
                let resident = exec.tier_resident_bytes().unwrap();
                assert!(
                    resident <= ram && (resident > 0) == (percent > 0),
                    "{what}: {resident} of {ram} bytes"
                );
                let counters = exec.tier_counters().unwrap();
                plausible(&what, &counters, percent, look_ahead);
            }
        }
    }
}

fn plausible(what: &str, counters: &TierCounters, percent: u64, look_ahead: bool) {
    let c = counters;
    match percent {
        0 => assert!(c.promoted == 0 && (c.hits == 0 || look_ahead), "{what}: {c:?}"),
        100 => assert!(c.promoted == c.misses && c.hits > 5 * c.misses, "{what}: {c:?}"),
        _ => {}
    }
    assert!(c.misses >= c.promoted && c.bytes > 0, "{what}: {c:?}");
    assert!(c.executed_mass == c.routed_mass && c.routed_mass > 0.0, "{what}: {c:?}");
    let ahead = c.ahead_useful + c.ahead_wasted + c.ahead_cancelled;
    assert!(look_ahead || ahead == 0, "{what}: {c:?}");
}

#[test]
fn any_budget_gives_the_same_bits() {
    every_setting("tiny-a.maya");
}

#[test]
fn any_budget_gives_the_same_bits_from_several_files() {
    every_setting("tiny-b.maya");
}

/// Shards may be cut between the parts of an expert; then one expert comes from several files.
#[test]
fn parts_of_an_expert_in_several_files() {
    let Some(edit) = Edit::tiny_a() else { return };
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens: Vec<Token> = fixture.tokens("p1").into_iter().cycle().take(30).collect();
    let folder = tempfile::tempdir().unwrap();
    let model = open(&edit.shards(folder.path(), 4));
    let files = |part: &str| {
        let name = format!("blk.{}.ffn_{part}_exps.weight", model.config().trunk - 1);
        model.gguf().tensor(&name).unwrap().extent.shard
    };
    assert!(
        files("gate") != files("up") || files("up") != files("down"),
        "the shards are cut within a layer"
    );
    let mut whole =
        CpuExecutor::new(Arc::clone(&fixture.model), options(Precision::Fast, Kv::F16, 2)).unwrap();
    let whole = run(&mut whole, &tokens);
    let mut exec =
        tiered(&model, Precision::Fast, TierOptions { ram: share(&model, 20), ..TierOptions::default() });
    same("four shards", &run(&mut exec, &tokens), &whole);
}

/// A drive that fails fails the request that needed it, by path and offset, in decode as in a prompt; the next one is
/// answered, and what was not computed is counted as that.
#[test]
fn a_drive_error_fails_one_request() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let tokens: Vec<Token> = fixture.tokens("p1").into_iter().cycle().take(24).collect();
    let mut whole =
        CpuExecutor::new(Arc::clone(&fixture.model), options(Precision::Fast, Kv::F16, 2)).unwrap();
    let whole = run(&mut whole, &tokens);

    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let faults = Faults::new(move |_| {
        const EIO: i32 = 5;
        if broken.load(Ordering::Relaxed) { Injected::Error(EIO) } else { Injected::Real }
    });
    let path = fixture.model.gguf().shards()[0].path.display().to_string();
    for backend in [Choice::Auto, Choice::Threads] {
        let tiers = TierOptions { backend, faults: Some(faults.clone()), ..TierOptions::default() };
        let mut exec = tiered(&fixture.model, Precision::Fast, tiers);
        let seq = exec.open_sequence().unwrap();
        exec.prefill(seq, &tokens[..4]).unwrap();

        is_broken.store(true, Ordering::Relaxed);
        let step = Step { seq, input: Input::Token(tokens[4]), want: Want::Logits };
        let ticket = exec.submit(std::slice::from_ref(&step)).unwrap();
        let row = exec.poll(ticket).unwrap().remove(0);
        assert_eq!(row.logits, None);
        let error = row.error.unwrap();
        let ExecError::Read { why, .. } = &error else { panic!("{error}") };
        assert!(why.contains(&path) && why.contains("offset"), "{error}");
        assert!(matches!(exec.submit(&[step]), Err(ExecError::Broken(_))));
        let other = exec.open_sequence().unwrap();
        assert!(matches!(exec.prefill(other, &tokens), Err(ExecError::Read { .. })));
        let counters = exec.tier_counters().unwrap();
        assert!(counters.executed_mass < counters.routed_mass, "{counters:?}");

        is_broken.store(false, Ordering::Relaxed);
        exec.close_sequence(seq).unwrap();
        exec.close_sequence(other).unwrap();
        same("after the failure", &run(&mut exec, &tokens), &whole);
    }
}

#[test]
fn copies_that_are_not_copies_are_refused() {
    let Some(fixture) = fixture("tiny-a.maya") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut mirror = copies(&fixture.model, folder.path());
    std::fs::File::options().write(true).open(&mirror[0]).unwrap().set_len(4096).unwrap();
    let refused = |mirrors: Vec<Vec<PathBuf>>| {
        let tiers = Some(TierOptions { mirrors, ..TierOptions::default() });
        let options = CpuOptions { tiers, ..options(Precision::Fast, Kv::F16, 1) };
        match CpuExecutor::new(Arc::clone(&fixture.model), options) {
            Err(ExecError::Tiers(why)) => why,
            _ => panic!("a foreign copy is taken"),
        }
    };
    assert!(refused(vec![mirror.clone()]).contains("not the same file"));
    mirror.push(mirror[0].clone());
    assert!(refused(vec![mirror]).contains("has 2 files and the model has 1"));
}
