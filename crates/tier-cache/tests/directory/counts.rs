//! What is remembered of use, and what it decides.

use tier_cache::{Admission, Claim, Claimer, Directory, ExpertId, Geometry, Lane, Lfu, Residence, View};

use crate::scene::{Scene, expert, two_tiers};

fn two_layers(half_life: u64) -> Geometry {
    Geometry { half_life, near: vec![0, 0], class: vec![0, 0], ..two_tiers(0) }
}

/// Counts of a layer are halved by that layer's own events. Halved by all events, a long prompt, which runs layer by
/// layer, forgets the first layers before it comes to the last.
#[test]
fn counts_decay_by_their_own_layers_events() {
    let mut directory = Directory::new(two_layers(10), Lfu).expect("a geometry");
    let at = |layer, expert| ExpertId { layer, expert };
    directory.credit(at(0, 0), 8);
    directory.credit(at(1, 0), 8);
    (0..10).for_each(|_| directory.credit(at(0, 1), 1));
    let counts: Vec<u32> = directory.counts().collect();
    // Layer 0 was halved at its tenth event: 8 and 2 became 4 and 1, and eight more came.
    assert_eq!((counts[0], counts[1]), (4, 9));
    assert_eq!(counts[8], 8, "layer 1 saw eight events and remembers them all");
}

/// A route of many rows was credited at once, and the halvings it was worth were carried out one by one: with a short
/// half-life, four billion rounds through the layer.
#[test]
fn any_number_of_uses_is_counted_at_once() {
    let mut directory = Directory::new(two_layers(1), Lfu).expect("a geometry");
    directory.credit(ExpertId { layer: 0, expert: 3 }, u32::MAX);
    assert!(directory.counts().all(|count| count == 0), "halved out of sight");
    let mut directory = Directory::new(two_layers(0), Lfu).expect("a geometry");
    (0..3).for_each(|_| directory.credit(ExpertId { layer: 1, expert: 7 }, u32::MAX));
    assert_eq!(directory.counts().last(), Some(1 << 24), "never halved, and never over its end");
}

#[test]
fn seeds_are_cut_to_what_fits() {
    let mut directory = Directory::new(two_layers(0), Lfu).expect("a geometry");
    directory.seed(&[5, u32::MAX]);
    assert_eq!(directory.counts().take(3).collect::<Vec<_>>(), [5, 1 << 24, 0]);
    directory.seed(&[1; 1000]);
    assert_eq!(directory.counts().collect::<Vec<_>>(), [1; 16]);
}

/// Seeds decide who is evicted before the run has counted anything itself.
#[test]
fn a_seeded_expert_stays() {
    let mut scene = Scene::new(two_tiers(4));
    scene.directory.seed(&[0, 0, 50]);
    for n in [2, 0, 1] {
        scene.compute(0, &[n]);
        scene.token();
    }
    for n in [3, 4, 5, 6] {
        scene.compute(0, &[n]);
        scene.token();
        assert!(matches!(scene.residence(2), Residence::Device(_)), "evicted for {n}");
    }
    scene.directory.credit(expert(0), 3);
    assert_eq!(scene.directory.counts().next(), Some(4));
}

/// The second miss within the window is promoted; the first, and one too late, are computed from scratch.
#[test]
fn the_second_touch_is_promoted() {
    let geometry = two_tiers(4);
    let mut scene = Scene::new(geometry.clone());
    scene.claimer = Claimer::new(&geometry, Admission::SecondTouch(3));
    let mut fresh = Scene::new(geometry);
    std::mem::swap(&mut scene.directory, &mut fresh.directory);
    // The new table was never told of the spares: a claimer and its directory begin together.
    let mut routed = Vec::new();
    scene.claimer.decide(0, &[1], &mut routed);
    assert_eq!(routed[0].lane, Lane::Disk(Claim::Scratch(0)));

    let mut claimer = Claimer::new(&two_tiers(4), Admission::SecondTouch(3));
    claimer.apply(&[
        tier_cache::Edit::Offer { layer: 0, place: 0, slot: 2, owner: None },
        tier_cache::Edit::Offer { layer: 0, place: 1, slot: 3, owner: None },
    ]);
    let decide = |claimer: &mut Claimer, n| {
        let mut routed = Vec::new();
        claimer.decide(0, &[n], &mut routed);
        if let Lane::Disk(Claim::Scratch(scratch)) = routed[0].lane {
            claimer.release(scratch);
        }
        routed[0].lane
    };
    let scratch = Lane::Disk(Claim::Scratch(0));
    assert_eq!(decide(&mut claimer, 1), scratch, "first touch");
    assert_eq!(decide(&mut claimer, 2), scratch);
    assert_eq!(decide(&mut claimer, 3), scratch);
    assert_eq!(decide(&mut claimer, 1), Lane::Disk(Claim::Spare(2)), "three routes later");
    assert_eq!(decide(&mut claimer, 1), Lane::Hit);
    assert_eq!(decide(&mut claimer, 4), scratch);
    assert_eq!(decide(&mut claimer, 2), scratch, "five routes later is too late, and a first touch again");
    assert_eq!(decide(&mut claimer, 2), Lane::Disk(Claim::Spare(3)));
    assert_eq!(claimer.entry(0, 2), View::Device(3));
}

/// What is left without scratch is decided on later, as the same route.
#[test]
fn a_route_that_ran_out_of_scratch_goes_on() {
    let mut claimer = Claimer::new(&Geometry { scratch: 2, ..two_tiers(0) }, Admission::SecondTouch(0));
    let mut routed = Vec::new();
    assert_eq!(claimer.decide(0, &[0, 1, 2, 3], &mut routed), 2);
    assert_eq!(claimer.go_on(0, &[2, 3], &mut routed), 0);
    claimer.release(1);
    claimer.release(700);
    assert_eq!(claimer.go_on(0, &[2, 3], &mut routed), 1);
    assert_eq!(routed.last().map(|it| it.lane), Some(Lane::Disk(Claim::Scratch(1))));
}
