//! Limits while running, spares, pins.

use tier_cache::{Geometry, Limits, Ready, Residence, Slot, SlotRules, Target};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

/// A budget divided by one rule for spares and the directory kept them by another: a layer with as many slots as experts
/// was divided as if it had none, and then filled in the background as if it had three.
#[test]
fn budgets_and_directories_agree_on_spares() {
    for spares in 0..6 {
        let rules = SlotRules { experts_per_token: 2, spares, yielding: false };
        for slots in 0..12 {
            let geometry = Geometry { spares, near: vec![slots], ..two_tiers(0) };
            let kept = geometry.spares_of(slots);
            assert_eq!(kept, rules.spares_of(slots, 8), "{spares} of {slots}");
            assert_eq!(rules.residents_of(slots, 8), slots.min(8) - kept);
            let yielding = SlotRules { yielding: true, ..rules };
            assert_eq!(yielding.residents_of(slots, 8), slots.min(8), "a spare that yields holds an expert");
            assert!(kept == 0 || ((4..8).contains(&slots) && kept < slots));
        }
    }
}

/// See [`budgets_and_directories_agree_on_spares`]: nothing is kept empty where nothing can miss.
#[test]
fn a_layer_with_a_slot_for_every_expert_is_filled() {
    let mut scene = Scene::new(Geometry { offers: 1, ..two_tiers(8) });
    (0..8).for_each(|n| scene.directory.credit(expert(n), 1));
    while let Some(fill) = scene.directory.fill() {
        scene.start(fill);
    }
    scene.land_all();
    // One slot was offered before and is the claimer's to give.
    assert_eq!(scene.directory.residents(0), 7);
    scene.token();
    let missing = (0..8).find(|n| !scene.is_in_memory(*n)).expect("one");
    scene.compute(0, &[missing]);
    scene.token();
    assert!(
        (0..8).all(|n| matches!(scene.residence(n), Residence::Device(_))),
        "and nobody is evicted for a spare"
    );
}

/// Spares are there again after each boundary, and only they are empty.
#[test]
fn a_boundary_restores_the_spares() {
    let mut scene = Scene::new(Geometry { spares: 2, offers: 4, ..two_tiers(6) });
    for token in 0..40_u16 {
        scene.compute(0, &[token * 3 % 8, (token * 3 + 1) % 8]);
        scene.token();
        if token > 6 {
            assert_eq!(scene.directory.residents(0), 4, "token {token}");
        }
    }
}

/// A boundary keeps what the token that ends used, even if there is no spare for the next then.
#[test]
fn what_a_token_used_stays_at_its_boundary() {
    let mut scene = Scene::new(two_tiers(4));
    for pair in [[0, 1], [2, 3]] {
        scene.compute(0, &pair);
        scene.publish();
        scene.apply();
    }
    scene.token();
    assert_eq!(scene.directory.residents(0), 4);
    scene.compute(0, &[0, 1, 2]);
    scene.token();
    assert_eq!(scene.directory.residents(0), 3);
    assert_eq!(scene.residence(3), Residence::Disk, "the one that the second token did not use");
}

/// A slot that goes while its expert has only just arrived: the claimer was never told of it, so it cannot be taken back
/// from the claimer either before it was.
#[test]
fn an_expert_that_nobody_was_told_of_leaves_a_closing_slot() {
    let mut scene = Scene::new(two_tiers(4));
    scene.directory.seed(&[9]);
    let fill = scene.directory.fill().expect("a free slot");
    scene.start(fill);
    scene.land_all();
    scene.directory.set_budget(Limits { near: vec![0], host: vec![] }).expect("fewer");
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
    assert_eq!(scene.residence(0), Residence::Disk);
    scene.compute(0, &[0]);
}

#[test]
fn limits_of_nothing_empty_both_tiers() {
    let mut scene = Scene::new(three_tiers(4, 4));
    (0..8).for_each(|n| scene.compute(0, &[n]));
    scene.token();
    scene.directory.set_budget(Limits { near: vec![0], host: vec![0] }).expect("fewer");
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
    assert!((0..8).all(|n| scene.residence(n) == Residence::Disk));
    // Everything is still computed, from scratch by way of landings.
    (0..8).for_each(|n| scene.compute(0, &[n]));
    scene.directory.set_budget(Limits::all(&three_tiers(4, 4))).expect("all");
    scene.settle();
    (0..8).for_each(|n| scene.compute(0, &[n]));
    scene.settle();
    assert!((0..8).filter(|n| scene.is_in_memory(*n)).count() >= 6);
}

/// A limit that comes back before the claimer has answered to its going.
#[test]
fn limits_may_change_while_a_batch_waits() {
    let mut scene = Scene::new(three_tiers(4, 4));
    (0..6).for_each(|n| scene.compute(0, &[n]));
    scene.token();
    for round in 0..12_u32 {
        scene
            .directory
            .set_budget(Limits { near: vec![round % 5], host: vec![(round * 3) % 5] })
            .expect("fits");
        if round % 2 == 0 {
            scene.boundary();
        }
        scene.directory.set_budget(Limits::all(&three_tiers(4, 4))).expect("all");
        scene.apply();
        scene.land_all();
        scene.compute(0, &[(round % 8) as u16]);
    }
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
}

/// Several lanes read one slot; it leaves when the last is done, not before.
#[test]
fn a_pinned_slot_stays_until_the_last_pin_is_back() {
    let mut scene = Scene::new(two_tiers(4));
    for n in 0..3 {
        scene.compute(0, &[n]);
        scene.token();
    }
    let pins =
        [scene.directory.pin(expert(0)), scene.directory.pin(expert(0))].map(|pin| pin.expect("resident"));
    assert_eq!((pins[0].id(), pins[0].slot()), (expert(0), pins[1].slot()));
    assert_eq!(scene.directory.pin(expert(7)), None, "on the drive");
    // 0 is used least, and stays; the others go round.
    for round in 0..9 {
        scene.compute(0, &[3 + round % 5]);
        scene.token();
        assert!(matches!(scene.residence(0), Residence::Device(_)), "round {round}");
    }
    let [first, second] = pins;
    scene.directory.unpin(first);
    scene.compute(0, &[3]);
    scene.token();
    assert!(matches!(scene.residence(0), Residence::Device(_)));
    scene.directory.unpin(second);
    for n in 3..8 {
        scene.compute(0, &[n, (n + 1) % 5 + 3]);
        scene.token();
    }
    assert_eq!(scene.residence(0), Residence::Disk);
}

/// A lane of the processor reads an expert in RAM while the tier is emptied.
#[test]
fn a_slot_that_the_processor_reads_outlives_its_eviction() {
    let mut scene = Scene::new(three_tiers(0, 2));
    scene.compute(0, &[0]);
    scene.token();
    scene.claimer.compute_host_on_cpu(true);
    scene.boundary();
    let mut serves = scene.route(0, &[0]);
    let serve = serves.pop().expect("one");
    let Target::Slot(Slot::Host(_)) = serve.place else { panic!("{serve:?}") };
    assert!(matches!(serve.ready, Ready::Pinned(_)), "{serve:?}");
    scene.directory.set_budget(Limits { near: vec![0], host: vec![0] }).expect("fewer");
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 1));
    scene.computed(serve);
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
}
