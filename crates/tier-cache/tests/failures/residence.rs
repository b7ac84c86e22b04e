//! One expert, one home, and the right one to leave it.

use tier_cache::{
    Boundary, DeviceSlot, Geometry, Limits, Ready, Residence, Slot, Source, Target, TicketError, Transfer,
};

use crate::scene::{Scene, expert, three_tiers};

/// A layer with one spare left and an expert on its way out: its copy to the host is in flight, and the batch that tells
/// the claimer is not applied. The demoted expert and the copy.
fn demoting() -> (Scene, u16, Transfer) {
    let mut scene = Scene::new(Geometry { spares: 2, ..three_tiers(4, 4) });
    for n in 0..4 {
        scene.compute(0, &[n]);
        scene.token();
        // Shadows would make a demotion free.
        scene.directory.set_budget(Limits { near: vec![4], host: vec![0] }).expect("no host slots");
        scene.settle();
        scene.directory.set_budget(Limits::all(&three_tiers(4, 4))).expect("all");
    }
    scene.compute(0, &[4]);
    scene.boundary();
    let copy = *scene.flying.iter().find(|it| it.from != Source::Disk).expect("one is demoted");
    assert!(matches!((copy.from, copy.to), (Source::Slot(Slot::Device(_)), Target::Slot(Slot::Host(_)))));
    (scene, copy.id.expert, copy)
}

/// One expert in eight was in no tier at all and RAM was full of copies that nobody could find: an expert had been promoted
/// while it was being demoted, and each move had undone the other's bookkeeping.
///
/// Here the promotion takes its bytes from where the demotion brings them, after it. Whichever way both end, the expert
/// has one home and every slot an owner (`look` runs the invariants after each step).
#[test]
fn a_promotion_that_meets_a_demotion_leaves_no_orphan() {
    // Both arrive.
    let (mut scene, n, copy) = demoting();
    let reads = scene.drive_reads;
    scene.apply();
    let serves = scene.route(0, &[n]);
    let promotion =
        *scene.flying.iter().find(|it| it.id == expert(n) && it.ticket != copy.ticket).expect("begun");
    assert!(matches!(promotion.to, Target::Slot(Slot::Device(_))), "{promotion:?}");
    assert_eq!((promotion.from, promotion.after), (slot_of(copy.to), Some(copy.ticket)));
    scene.land_all();
    serves.into_iter().for_each(|serve| scene.computed(serve));
    assert!(matches!(scene.residence(n), Residence::Device(_)));
    scene.settle();
    assert_eq!(scene.drive_reads, reads, "everything came from memory");

    // The demotion fails; the promotion that wanted its bytes can only fail too, and the request with it.
    let (mut scene, n, copy) = demoting();
    scene.apply();
    let serves = scene.route(0, &[n]);
    scene.fail(copy.ticket);
    let Ready::When(ticket) = serves[0].ready else { panic!("{serves:?}") };
    assert_eq!(scene.directory.complete(ticket), Err(TicketError::SourceLost(ticket)));
    scene.fail(ticket);
    scene.settle();
    scene.compute(0, &[n]);

    // The demotion fails and nobody asked: the expert stays where it was.
    let (mut scene, n, copy) = demoting();
    scene.apply();
    scene.fail(copy.ticket);
    assert!(matches!(scene.residence(n), Residence::Device(_)));
    scene.settle();
    scene.compute(0, &[n]);
}

/// An expert was read from the drive again while the copy that demoted it was still landing in RAM.
///
/// Here the copy is waited for and the expert served from it, on every lane; a driver that calls it complete too early is
/// told what it has to wait for.
#[test]
fn an_expert_is_served_from_ram_while_its_demotion_lands() {
    let (mut scene, n, copy) = demoting();
    let reads = scene.drive_reads;
    scene.apply();
    // Take the spare away, so that the miss goes to scratch.
    let first = scene.route(0, &[7]);
    let serves = scene.route(0, &[n]);
    let pull = *scene.flying.last().expect("begun");
    assert_eq!((pull.id, pull.from, pull.after), (expert(n), slot_of(copy.to), Some(copy.ticket)));
    let early = scene.directory.complete(pull.ticket);
    assert_eq!(early, Err(TicketError::TooEarly { ticket: pull.ticket, after: copy.ticket }));
    scene.land_all();
    first.into_iter().chain(serves).for_each(|serve| scene.computed(serve));
    assert_eq!(scene.drive_reads, reads + 1, "only the other expert was read");

    // Before the claimer has acknowledged, the expert is still a hit where it was.
    let (mut scene, n, copy) = demoting();
    let serves = scene.route(0, &[n]);
    assert_eq!(serves[0].ready, Ready::Now);
    assert_eq!(Source::Slot(slot(serves[0].place)), copy.from);
}

/// RAM evicted by counts alone: an expert that had just become hot had been used once, so it went before others that had
/// been popular an hour ago.
///
/// Here what was used within the window goes only when everything was; then the one used longest ago does.
#[test]
fn the_window_protects_what_was_used_just_now() {
    let survivors = |window: u64| {
        // No near tier: what is routed is computed from scratch and stays in RAM.
        let geometry = Geometry { window, host_spares: 1, ..three_tiers(0, 2) };
        let mut scene = Scene::new(geometry);
        scene.compute(0, &[0]);
        scene.directory.credit(expert(0), 1000);
        for _ in 0..6 {
            scene.token();
        }
        scene.compute(0, &[1]);
        // What the claimer was not told of is no candidate anyway.
        scene.publish();
        scene.apply();
        scene.settle();
        (scene.is_in_memory(0), scene.is_in_memory(1))
    };
    assert_eq!(survivors(0), (true, false), "counts alone: the new one goes");
    assert_eq!(survivors(5), (false, true), "the new one is protected");
    assert_eq!(survivors(100), (false, true), "all are protected: the oldest goes");
    assert_eq!(survivors(u64::MAX), (false, true), "a window without an end is no overflow");
}

/// Lending slots to a prompt dropped up to a hundred and forty-five warm experts to the drive, while RAM kept colder ones.
///
/// Here an expert that leaves the near tier takes the slot of a colder one in RAM.
#[test]
fn shrinking_the_near_tier_parks_its_experts_in_ram() {
    let mut scene = Scene::new(Geometry { spares: 0, ..three_tiers(4, 4) });
    // Shadows go first, so that RAM is full of others: 4 to 7, each used once and read ahead.
    for n in 0..4 {
        scene.compute(0, &[n]);
        scene.directory.credit(expert(n), 10);
        scene.token();
    }
    for n in 4..8 {
        let read = scene.directory.read_ahead(expert(n)).expect("a shadow's slot");
        scene.start(read);
        scene.land_all();
        scene.directory.credit(expert(n), 1);
    }
    scene.settle();
    assert!((0..4).all(|n| matches!(scene.residence(n), Residence::Device(_))));
    assert!((4..8).all(|n| matches!(scene.residence(n), Residence::Host(_))));

    scene.directory.set_budget(Limits { near: vec![1], host: vec![4] }).expect("fewer slots");
    let reads = scene.drive_reads;
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
    assert!((0..4).all(|n| scene.is_in_memory(n)), "the warm ones are all in memory");
    assert_eq!((4..8).filter(|n| scene.is_in_memory(*n)).count(), 1, "three cold ones made room");
    assert_eq!(scene.drive_reads, reads);
}

/// Two caches of one engine held the same two thousand experts: memory for them was paid for twice.
///
/// Here an expert lives in one slot, and a copy beside it is a shadow in a slot that counts as free.
#[test]
fn an_expert_lives_in_one_slot() {
    let mut scene = Scene::new(three_tiers(4, 4));
    // Through a host slot into the near tier: the copy in RAM stays, and is no home.
    scene.compute(0, &[0]);
    scene.settle();
    assert!(matches!(scene.residence(0), Residence::Device(_)));
    assert!(scene.directory.read_ahead(expert(0)).is_none(), "it is there already");
    for n in 1..5 {
        let read = scene.directory.read_ahead(expert(n)).expect("four slots are free, one of them a shadow");
        scene.start(read);
        scene.land_all();
    }
    assert!(scene.directory.read_ahead(expert(5)).is_none(), "RAM is full");
    // `look` compares homes with slots after each step of a long life.
    for token in 0..300_u16 {
        let (first, second) = (token % 8, (token / 3 + 1) % 8);
        let both = [first, second];
        scene.compute(0, &both[..if first == second { 1 } else { 2 }]);
        scene.token();
    }
    let homes = (0..8).filter(|n| scene.is_in_memory(*n)).count();
    assert_eq!(homes, 7, "three near slots and a spare, four host slots, and no expert twice");
}

/// Another process took memory and the pool shrank to a fifth, without a word.
///
/// Here no limit changes but by `set_budget`: not by failures, not by full slots.
#[test]
fn only_the_caller_changes_the_limits() {
    let mut scene = Scene::new(three_tiers(4, 2));
    let limits = scene.directory.limits().clone();
    for token in 0..60_u16 {
        let serves = scene.route(0, &[token * 3 % 8]);
        match serves[0].ready {
            Ready::When(ticket) if token % 4 == 0 => scene.fail(ticket),
            _ => scene.land_all(),
        }
        if let Target::Scratch(n) = serves[0].place {
            scene.claimer.release(n);
        }
        scene.token();
        assert_eq!(scene.directory.limits(), &limits);
    }
    let before = scene.state();
    for wrong in [(vec![5], vec![2]), (vec![4], vec![3]), (vec![4, 4], vec![2]), (vec![4], vec![])] {
        let refused = scene.directory.set_budget(Limits { near: wrong.0, host: wrong.1 });
        assert!(refused.is_err(), "{refused:?}");
    }
    assert_eq!(scene.state(), before);
    scene.directory.token_boundary(&mut Boundary::default());
}

fn slot(place: Target) -> Slot {
    match place {
        Target::Slot(slot) => slot,
        Target::Scratch(n) => Slot::Device(DeviceSlot { layer: u16::MAX, index: n.into() }),
    }
}

fn slot_of(place: Target) -> Source {
    Source::Slot(slot(place))
}
