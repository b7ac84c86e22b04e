//! Reading what is expected, before it is asked for.

use tier_cache::{Claim, Geometry, Lane, Ready, Residence, Routed, Target, Transfer};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

fn guess(scene: &mut Scene, experts: &[u16], keep: usize) -> Vec<Transfer> {
    let (mut routed, mut transfers) = (Vec::new(), Vec::new());
    scene.claimer.look_ahead(0, experts, keep, &mut routed);
    scene.directory.look_ahead(0, &routed, &mut transfers).expect("a guess");
    transfers.iter().for_each(|it| scene.start(*it));
    scene.look();
    transfers
}

/// Only what is on the drive, only into a free host slot, and not where the drive has its own way.
#[test]
fn read_ahead_brings_drive_experts_to_ram() {
    let mut scene = Scene::new(three_tiers(4, 2));
    scene.compute(0, &[0]);
    let read = scene.directory.read_ahead(expert(1)).expect("a vacancy");
    scene.start(read);
    assert!(scene.directory.read_ahead(expert(1)).is_none(), "on its way");
    assert!(scene.directory.read_ahead(expert(0)).is_none(), "in the near tier");
    let read = scene.directory.read_ahead(expert(2)).expect("the shadow of 0 makes room");
    scene.start(read);
    assert!(scene.directory.read_ahead(expert(3)).is_none(), "no room");
    scene.land_all();
    scene.token();
    assert!([1, 2].iter().all(|n| matches!(scene.residence(*n), Residence::Host(_))));
    let reads = scene.drive_reads;
    scene.compute(0, &[1, 2]);
    assert_eq!(scene.drive_reads, reads);

    let mut direct = Scene::new(two_tiers(4));
    assert!(direct.directory.read_ahead(expert(1)).is_none());
}

/// A read ahead that is still under way is what the miss waits for.
#[test]
fn a_miss_joins_the_read_ahead() {
    let mut scene = Scene::new(three_tiers(4, 2));
    let read = scene.directory.read_ahead(expert(1)).expect("a vacancy");
    scene.start(read);
    let serves = scene.route(0, &[1]);
    assert_eq!(scene.flying[1].after, Some(read.ticket));
    assert!(scene.directory.is_awaited(read.ticket), "it is not to be cancelled any more");
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));
    assert_eq!(scene.drive_reads, 1);
}

/// Spares first, then scratch down to what the token keeps for its own misses.
#[test]
fn guesses_leave_scratch_for_misses() {
    let mut scene = Scene::new(Geometry { scratch: 6, ..two_tiers(4) });
    let begun = guess(&mut scene, &[0, 1, 2, 3, 4, 5, 6, 7], 4);
    let scratch = begun.iter().filter(|it| matches!(it.to, Target::Scratch(_))).count();
    assert_eq!((begun.len(), scratch), (4, 2), "two spares were offered, and two of six blobs may go");
    assert!(guess(&mut scene, &[2, 3], 0).is_empty(), "guessed already");
    scene.land_all();
    // A guess that lies in scratch is a hit of that blob, once.
    let serves = scene.route(0, &[2]);
    assert_eq!(serves[0].ready, Ready::Now);
    serves.into_iter().for_each(|serve| scene.computed(serve));
    let serves = scene.route(0, &[2]);
    assert!(matches!(serves[0].ready, Ready::When(_)), "it was not kept");
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));
}

/// A guess that nobody took is gone with its token, and its blob is free for a miss.
#[test]
fn a_wrong_guess_ends_with_its_token() {
    let mut scene = Scene::new(two_tiers(0));
    let begun = guess(&mut scene, &[1, 2], 0);
    scene.land_all();
    let Target::Scratch(first) = begun[0].to else { panic!("{begun:?}") };
    scene.directory.forget_ahead(first);
    scene.directory.forget_ahead(first);
    scene.directory.forget_ahead(u16::MAX);
    scene.claimer.forget(0, 1);
    scene.boundary();
    scene.claimer.forget(0, 2);
    for n in [1, 2] {
        let serves = scene.route(0, &[n]);
        assert!(matches!(serves[0].ready, Ready::When(_)), "{serves:?}");
        scene.land_all();
        serves.into_iter().for_each(|serve| scene.computed(serve));
    }
}

/// A blob that a guess fills for one expert is not another's.
#[test]
fn a_guess_serves_its_own_expert_only() {
    let mut scene = Scene::new(two_tiers(0));
    guess(&mut scene, &[1], 0);
    for landed in [false, true] {
        let other = [Routed { expert: 2, lane: Lane::Disk(Claim::Scratch(0)) }];
        let refused = scene.directory.route(0, &other, &mut tier_cache::Plan::default());
        assert!(refused.is_err(), "landed: {landed}");
        scene.land_all();
    }
}
