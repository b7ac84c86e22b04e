//! Who may write to a slot, and when it may be lent.

use tier_cache::{ExpertId, Limits, Ready, Residence, Slot, Source, Target};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

/// Kernels read a slot through a table that still named its old expert, while the new one was being copied in.
///
/// Here the claimer is told first. Until it has acknowledged that, the expert is a hit in its old slot, whole, and nothing
/// is written there, however many misses want a slot.
#[test]
fn a_slot_is_not_overwritten_before_its_removal_is_acknowledged() {
    let mut scene = Scene::new(two_tiers(4));
    for fill in 0..4 {
        scene.compute(0, &[fill]);
        scene.token();
    }
    scene.compute(0, &[5]);
    scene.land_all();
    let held: Vec<(u16, Residence)> = (0..8).map(|n| (n, scene.residence(n))).collect();
    scene.boundary();
    let serves = scene.route(0, &[6, 7]);
    for it in &scene.flying {
        let target = it.to;
        let taken = held.iter().any(|(_, at)| match at {
            Residence::Device(slot) => target == Target::Slot(Slot::Device(*slot)),
            _ => false,
        });
        assert!(!taken, "{it:?} writes to a slot that the claimer knows");
    }
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));
    for (n, _) in held.iter().filter(|(_, at)| matches!(at, Residence::Device(_))) {
        // Still a hit, and `computed` compares the bytes.
        let serves = scene.route(0, &[*n]);
        assert!(matches!(serves[0].ready, Ready::Now), "{serves:?}");
        serves.into_iter().for_each(|serve| scene.computed(serve));
    }
    let before = scene.drive_reads;
    scene.apply();
    scene.compute(0, &[6]);
    assert!(matches!(scene.residence(6), Residence::Device(_)), "the slot is a spare now");
    assert_eq!(scene.drive_reads, before + 1);
}

/// A move that had been started in the background landed in a slot that had just been lent to a prompt, and the prompt
/// computed from an expert's weights.
///
/// Here a slot counts as closing until its moves, in and out, have ended and the claimer has forgotten it. Nothing is
/// started into it from the moment the limits say that it goes.
#[test]
fn a_slot_is_lent_only_when_its_moves_have_retired() {
    let mut scene = Scene::new(three_tiers(4, 8));
    scene.compute(0, &[0, 1]);
    scene.token();
    let serves = scene.route(0, &[2]);
    let into = scene.flying[0].to;
    scene.directory.set_budget(Limits { near: vec![0], host: vec![8] }).expect("fewer slots");
    assert_eq!(scene.directory.closing().0, 4, "all four are in use, offered, or not asked back yet");

    scene.boundary();
    scene.apply();
    assert!(scene.directory.closing().0 > 0, "a transfer fills one, others are copied out");
    assert!(scene.flying.iter().any(|it| it.to == into));
    let more = scene.route(0, &[3, 4, 5]);
    for it in &scene.flying {
        assert!(
            it.to == into || !matches!(it.to, Target::Slot(Slot::Device(_))),
            "{it:?} enters a closing slot"
        );
    }
    scene.land_all();
    assert!(scene.directory.closing().0 > 0, "the claimer still finds an expert there");
    serves.into_iter().chain(more).for_each(|serve| scene.computed(serve));
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0), "now it may be lent");
    assert!(scene.directory.fill().is_none(), "and nothing fills it");

    scene.directory.set_budget(Limits::all(&three_tiers(4, 8))).expect("all slots");
    scene.settle();
    scene.compute(0, &[6]);
    assert!(matches!(scene.residence(6), Residence::Device(_)), "it is used again once it is back");
}

/// A lane that computes from a slot in place is a reader like a copy is: the slot neither closes nor changes under it.
#[test]
fn a_slot_is_not_lent_while_a_lane_reads_it() {
    let mut scene = Scene::new(three_tiers(4, 8));
    scene.compute(0, &[0]);
    scene.token();
    let pin = scene.directory.pin(expert(0)).expect("it is resident");
    scene.directory.set_budget(Limits { near: vec![0], host: vec![0] }).expect("fewer slots");
    scene.settle();
    assert_eq!(scene.directory.closing().0, 1, "the one that is read");
    scene.directory.unpin(pin);
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
}

/// A device kernel marked a slot resident by itself, before its data arrived, and pages of zeros were multiplied.
///
/// Here an expert is in transit until its transfer is completed: no edit names its slot, no lane can pin it, and whoever
/// is routed to it is told which transfer to wait for.
#[test]
fn nothing_is_resident_before_its_last_byte() {
    let mut scene = Scene::new(three_tiers(4, 4));
    let read = scene.directory.read_ahead(expert(1)).expect("a free host slot");
    scene.start(read);
    scene.directory.credit(expert(2), 1);
    let fill = scene.directory.fill().expect("a free near slot");
    scene.start(fill);
    let serves = scene.route(0, &[3]);
    for n in [1, 2, 3] {
        assert_eq!(scene.residence(n), Residence::InTransit);
        assert_eq!(scene.directory.pin(expert(n)), None);
    }
    let edits = scene.boundary();
    let told = |edits: &[tier_cache::Edit], n| {
        edits.iter().any(|edit| matches!(edit, tier_cache::Edit::Entry { id, .. } if *id == expert(n)))
    };
    assert!(![1, 2, 3].iter().any(|n| told(&edits, *n)), "{edits:?}");
    scene.apply();
    let again = scene.route(0, &[3]);
    assert_eq!(again[0].ready, Ready::When(scene.directory.in_transit(expert(3)).expect("a transfer")));

    scene.land_all();
    serves.into_iter().chain(again).for_each(|serve| scene.computed(serve));
    let edits = scene.boundary();
    assert!([1, 2].iter().all(|n| told(&edits, *n)), "{edits:?}");
}

/// A guess whose expert lay outside of RAM was "copied" from a dummy blob of zeros, matched the route as a hit, and was
/// computed.
///
/// Here a guess is claimed and fetched like a miss. Until it has landed a route waits for it, and one that never landed
/// is fetched again or fails the request.
#[test]
fn a_guess_that_has_not_landed_is_no_hit() {
    let mut scene = Scene::new(two_tiers(4));
    let guess = |scene: &mut Scene, n: u16| {
        let (mut routed, mut transfers) = (Vec::new(), Vec::new());
        scene.claimer.look_ahead(0, &[n], 0, &mut routed);
        scene.directory.look_ahead(0, &routed, &mut transfers).expect("a guess");
        transfers.iter().for_each(|it| scene.start(*it));
        transfers[0]
    };
    // Into a spare, asked for early, landed late.
    let begun = guess(&mut scene, 0);
    let serves = scene.route(0, &[0]);
    assert_eq!(serves[0].ready, Ready::When(begun.ticket));
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));

    // Into a spare, and it never lands: the claimer believes in the slot until it is told, so the request fails.
    let begun = guess(&mut scene, 1);
    scene.fail(begun.ticket);
    let serves = scene.route(0, &[1]);
    assert_eq!(serves[0].ready, Ready::Lost);
    scene.boundary();
    scene.apply();

    // Into scratch, and it never lands: the next route reads it anew.
    scene.compute(0, &[2]);
    let (mut at, mut begun) = (3, guess(&mut scene, 3));
    while matches!(begun.to, Target::Slot(_)) {
        at += 1;
        begun = guess(&mut scene, at);
    }
    scene.fail(begun.ticket);
    scene.claimer.forget(0, at);
    let serves = scene.route(0, &[at]);
    let Ready::When(ticket) = serves[0].ready else { panic!("{serves:?}") };
    assert_ne!(ticket, begun.ticket);
    let it = scene.flying.iter().find(|it| it.ticket == ticket).expect("begun");
    assert_eq!((it.from, it.id), (Source::Disk, ExpertId { layer: 0, expert: at }));
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));
}
