//! Background filling, shadows, promises.

use tier_cache::{Geometry, Residence, Slot, Source, Staging, Target};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

/// The most used first, each layer in turn, spares left alone, and nothing that was never used.
#[test]
fn filling_takes_the_most_used_and_leaves_spares() {
    let geometry = Geometry { near: vec![6, 6], class: vec![0, 0], ..two_tiers(0) };
    let mut scene = Scene::new(geometry);
    scene.directory.seed(&[1, 0, 9, 3, 0, 0, 7, 5, 2, 2]);
    let mut order = Vec::new();
    while let Some(fill) = scene.directory.fill() {
        order.push((fill.id.layer, fill.id.expert));
        scene.start(fill);
    }
    // Six slots: two are offered to the claimer, four can be filled.
    assert_eq!(order, [(0, 2), (1, 0), (0, 6), (1, 1), (0, 7), (0, 3)]);
    scene.land_all();
    scene.token();
    let reads = scene.drive_reads;
    scene.compute(0, &[2, 6, 7, 3]);
    assert_eq!(scene.drive_reads, reads);
}

/// Filling needs somewhere to land, and waits for it.
#[test]
fn filling_without_a_landing_waits() {
    let mut scene = Scene::new(Geometry { landings: 1, ..three_tiers(6, 0) });
    scene.directory.seed(&[4, 3, 2]);
    let fill = scene.directory.fill().expect("one landing");
    assert_eq!(fill.via, Some(Staging::Landing(0)));
    scene.start(fill);
    assert!(scene.directory.fill().is_none());
    scene.land_all();
    let second = scene.directory.fill().expect("it is free again");
    assert_eq!(second.id, expert(1));
    scene.start(second);
    // A fill that failed leaves nothing behind.
    scene.fail(second.ticket);
    assert_eq!(scene.residence(1), Residence::Disk);
    let again = scene.directory.fill().expect("once more");
    scene.start(again);
    scene.land_all();
    assert!((0..2).all(|n| matches!(scene.residence(n), Residence::Device(_))));
}

/// What RAM holds is filled from there, and the copy that stays is a shadow: its slot is free, and going back costs no
/// copy while it stands.
#[test]
fn a_shadow_makes_a_demotion_free() {
    let mut scene = Scene::new(three_tiers(4, 4));
    let read = scene.directory.read_ahead(expert(0)).expect("a vacancy");
    scene.start(read);
    scene.land_all();
    scene.directory.credit(expert(0), 1);
    let fill = scene.directory.fill().expect("a free slot");
    let Source::Slot(Slot::Host(host)) = fill.from else { panic!("{fill:?}") };
    scene.start(fill);
    scene.settle();
    assert!(matches!(scene.residence(0), Residence::Device(_)));
    scene.directory.set_budget(tier_cache::Limits { near: vec![0], host: vec![4] }).expect("fewer");
    scene.boundary();
    assert!(scene.flying.is_empty(), "nothing is copied");
    scene.apply();
    assert_eq!(scene.residence(0), Residence::Host(host), "it is where it was");
}

/// RAM is full: the demoted expert waits in its slot for a colder one's to become free, which takes the claimer's answer.
#[test]
fn a_promised_slot_is_filled_after_its_owner_was_forgotten() {
    let mut scene = Scene::new(Geometry { spares: 0, ..three_tiers(4, 1) });
    for n in [0, 1, 2, 3] {
        scene.compute(0, &[n]);
        scene.directory.credit(expert(n), 5);
        scene.token();
    }
    let read = scene.directory.read_ahead(expert(4)).expect("a shadow's slot");
    scene.start(read);
    scene.settle();
    let Residence::Host(host) = scene.residence(4) else { panic!("4 is in RAM") };
    scene.directory.set_budget(tier_cache::Limits { near: vec![3], host: vec![1] }).expect("fewer");
    scene.boundary();
    assert!(scene.flying.is_empty(), "nothing is written to a slot that the claimer knows");
    scene.apply();
    let copy = scene.flying[0];
    assert_eq!(copy.to, Target::Slot(Slot::Host(host)));
    assert_eq!(scene.residence(4), Residence::Disk, "the colder one is gone");
    scene.land_all();
    assert_eq!(scene.residence(copy.id.expert), Residence::Host(host));
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
}

/// As before, and the promised slot is lost meanwhile: the expert goes to the drive, and nothing is left half done.
#[test]
fn a_promise_that_cannot_be_kept_is_dropped() {
    let mut scene = Scene::new(Geometry { spares: 0, ..three_tiers(4, 1) });
    for n in [0, 1, 2, 3] {
        scene.compute(0, &[n]);
        scene.directory.credit(expert(n), 5);
        scene.token();
    }
    let read = scene.directory.read_ahead(expert(4)).expect("a shadow's slot");
    scene.start(read);
    scene.settle();
    scene.directory.set_budget(tier_cache::Limits { near: vec![3], host: vec![1] }).expect("fewer");
    scene.boundary();
    scene.directory.set_budget(tier_cache::Limits { near: vec![3], host: vec![0] }).expect("fewer still");
    scene.apply();
    assert!(scene.flying.is_empty());
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
    assert_eq!((0..8).filter(|n| scene.is_in_memory(*n)).count(), 3);
    (0..8).for_each(|n| scene.compute(0, &[n]));
}
