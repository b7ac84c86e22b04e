//! Spares that hold an expert until they are claimed.

use tier_cache::{Admission, Boundary, Claimer, Directory, Edit, Geometry, Lfu, Plan, Residence, View};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

fn yielding(near: u32) -> Geometry {
    Geometry { yielding: true, offers: 4, ..two_tiers(near) }
}

/// Fills a layer of `near` slots with experts 0, 1, ... one token each.
fn filled(geometry: Geometry) -> Scene {
    let near = geometry.near[0] as u16;
    let mut scene = Scene::new(geometry);
    for n in 0..near {
        scene.compute(0, &[n]);
        scene.token();
    }
    scene
}

/// Empty spares cost residents: three of seventeen slots were three to four points of hit rate in replay.
#[test]
fn every_slot_is_of_use_until_a_miss_needs_it() {
    let mut scene = filled(yielding(4));
    assert_eq!(scene.directory.residents(0), 4);
    assert!((0..4).all(|n| scene.is_in_memory(n)));
    // The least used and longest unused goes, when the miss comes and not before.
    scene.compute(0, &[5]);
    assert_eq!(scene.residence(0), Residence::Disk);
    assert!(matches!(scene.residence(5), Residence::Device(_)));
    assert_eq!(scene.directory.residents(0), 4);
}

/// The expert of an offered slot may be routed by the very route that misses another: its slot is not taken then.
#[test]
fn a_route_does_not_take_the_slot_that_it_computes_from() {
    let mut scene = filled(yielding(4));
    scene.compute(0, &[5, 0]);
    assert!(scene.is_in_memory(0), "it was offered, and routed");
    assert_eq!(scene.residence(5), Residence::Disk, "there was no other spare: computed from scratch");
}

/// An offered expert that is used after all is no longer the one to evict.
#[test]
fn an_offer_is_taken_back_when_its_expert_is_used() {
    let mut scene = filled(yielding(4));
    scene.compute(0, &[0]);
    let edits = scene.boundary();
    let withdrawn = |edit: &Edit| matches!(edit, Edit::Withdraw { layer: 0, .. });
    let offered = |edit: &Edit| matches!(edit, Edit::Offer { owner: Some((1, View::Nothing)), .. });
    assert!(edits.iter().any(withdrawn) && edits.iter().any(offered), "{edits:?}");
    scene.apply();
    scene.compute(0, &[5]);
    assert!(scene.is_in_memory(0) && !scene.is_in_memory(1));
}

/// Of several offered slots the claimer takes the first place, which is that of the expert that the policy chose first and
/// not that of the first slot.
#[test]
fn victims_leave_in_the_order_in_which_they_were_chosen() {
    let mut scene = filled(Geometry { spares: 2, ..yielding(5) });
    for used in [2, 3, 3] {
        scene.compute(0, &[used]);
        scene.token();
    }
    // 0 and 1 are offered until they are used here; then 4, used once, is to go first and 2, used twice, second.
    scene.compute(0, &[0, 1]);
    scene.token();
    scene.compute(0, &[5]);
    assert!(!scene.is_in_memory(4) && scene.is_in_memory(2), "the last slot holds the first victim");
}

/// With a copy in host memory already, eviction by claim costs nothing: the entry falls back to the copy.
#[test]
fn an_expert_with_a_shadow_falls_back_to_it() {
    let mut scene = Scene::new(Geometry { yielding: true, spares: 1, offers: 4, ..three_tiers(4, 8) });
    for _ in 0..3 {
        for n in 0..4 {
            scene.compute(0, &[n]);
            scene.token();
            scene.settle();
        }
    }
    let moved = |scene: &Scene| (0..8).filter(|n| matches!(scene.residence(*n), Residence::Host(_))).count();
    let before = moved(&scene);
    for n in 4..8 {
        scene.compute(0, &[n]);
        scene.token();
        scene.settle();
    }
    assert!(moved(&scene) > before, "somebody went to the host");
    scene.look();
    assert_eq!(scene.directory.residence(expert(7)), scene.residence(7));
}

/// Two guesses of one call: the first took the slot of an expert that the second named. The claimer then claimed again for
/// an expert that the directory still had in its slot, and the two disagreed from there on.
#[test]
fn a_guess_does_not_take_the_slot_of_another() {
    let geometry = yielding(4);
    let mut claimer = Claimer::new(&geometry, Admission::All);
    let mut directory = Directory::new(geometry, Lfu).expect("a geometry");
    let (mut boundary, mut plan) = (Boundary::default(), Plan::default());
    for n in 0..6_u16 {
        let mut routed = Vec::new();
        claimer.decide(0, &[n % 4], &mut routed);
        plan.clear();
        directory.route(0, &routed, &mut plan).expect("a route");
        plan.transfers.drain(..).for_each(|it| directory.complete(it.ticket).expect("a transfer"));
        directory.token_boundary(&mut boundary);
        claimer.apply(&boundary.edits);
        if let Some(batch) = boundary.batch {
            directory.acknowledge(batch, &mut plan.transfers).expect("the batch");
        }
    }
    // Expert 2 is the coldest that the last route did not use: its slot is the offered one.
    let mut routed = Vec::new();
    claimer.look_ahead(0, &[6, 2, 3, 0, 1], 0, &mut routed);
    directory.look_ahead(0, &routed, &mut plan.transfers).expect("claimer and directory agree");
    assert!((0..4).all(|n| claimer.entry(0, n) != View::Nothing), "no guess lost its slot to another");
}
