//! A call that is refused says why, and nothing has changed.

use proptest::prelude::*;
use tier_cache::{
    Admission, Claim, ConfigError, Directory, Geometry, HostSlot, Lane, Lfu, Limits, Plan, RouteError,
    Routed, Ticket, TicketError, View,
};

use crate::scene::{Scene, expert, three_tiers, two_tiers};

fn lane() -> impl Strategy<Value = Lane> {
    let claim = prop_oneof![(0_u32..6).prop_map(Claim::Spare), (0_u16..10).prop_map(Claim::Scratch)];
    prop_oneof![
        Just(Lane::Hit),
        Just(Lane::Cpu),
        claim.clone().prop_map(Lane::Pull),
        claim.prop_map(Lane::Disk),
    ]
}

fn routed() -> impl Strategy<Value = Vec<Routed>> {
    prop::collection::vec((0_u16..9, lane()).prop_map(|(expert, lane)| Routed { expert, lane }), 1..5)
}

/// A directory in the middle of its life: things in flight, a batch that waits.
fn busy(geometry: Geometry, life: &[u16]) -> Scene {
    let mut scene = Scene::new(geometry);
    for (step, n) in life.iter().enumerate() {
        scene.compute(0, &[*n]);
        match step % 3 {
            0 => scene.token(),
            1 => drop(scene.boundary()),
            _ => scene.apply(),
        }
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Any route at all: it is carried out whole, or refused with a sentence and to the last bit without effect.
    #[test]
    fn a_refused_route_changes_nothing(
        life in prop::collection::vec(0_u16..8, 0..12), layer in 0_u16..2, route in routed(), two in any::<bool>(),
    ) {
        let geometry = if two { two_tiers(4) } else { Geometry { landings: 1, ..three_tiers(4, 2) } };
        let mut scene = busy(geometry, &life);
        let before = scene.state();
        let mut plan = Plan::default();
        let ahead = scene.directory.look_ahead(layer, &route, &mut plan.transfers);
        if let Err(error) = ahead {
            prop_assert!(plan.transfers.is_empty());
            prop_assert_eq!(scene.state(), before.clone());
            prop_assert!(error.to_string().len() > 20);
            match scene.directory.route(layer, &route, &mut plan) {
                Ok(()) => prop_assert_eq!(plan.serves.len(), route.len()),
                Err(error) => {
                    prop_assert!(plan.serves.is_empty() && plan.transfers.is_empty());
                    prop_assert_eq!(scene.state(), before);
                    prop_assert!(error.to_string().len() > 20);
                }
            }
        }
        prop_assert_eq!(scene.directory.check(), Ok(()));
    }

    /// Tickets that were never given out, from any bits.
    #[test]
    fn an_unknown_ticket_changes_nothing(life in prop::collection::vec(0_u16..8, 0..9), bits in any::<u64>()) {
        let mut scene = busy(three_tiers(4, 2), &life);
        let ticket = Ticket::from_bits(bits);
        prop_assume!(!scene.flying.iter().any(|it| it.ticket == ticket));
        prop_assert_eq!(ticket.to_bits(), bits);
        let before = scene.state();
        prop_assert_eq!(scene.directory.complete(ticket), Err(TicketError::Unknown(ticket)));
        prop_assert_eq!(scene.directory.abandon(ticket), Err(TicketError::Unknown(ticket)));
        prop_assert!(!scene.directory.is_awaited(ticket));
        prop_assert_eq!(scene.state(), before);
    }
}

/// Each way of disagreeing with the table has a name that says both sides.
#[test]
fn every_disagreement_has_a_name() {
    let mut scene = Scene::new(three_tiers(4, 4));
    scene.compute(0, &[0]);
    let read = scene.directory.read_ahead(expert(1)).expect("a free host slot");
    scene.start(read);
    scene.land_all();
    scene.token();
    let View::Device(held) = scene.claimer.entry(0, 0) else { panic!("0 was promoted") };
    let View::Host(HostSlot(_)) = scene.claimer.entry(0, 1) else { panic!("1 is in RAM") };
    let (near, host, nothing) = (0, 1, 2);
    let spare = Claim::Spare(99);
    let mut refuse = |routes: &[(u16, Lane)]| {
        let routes: Vec<Routed> =
            routes.iter().map(|(expert, lane)| Routed { expert: *expert, lane: *lane }).collect();
        scene.directory.route(0, &routes, &mut Plan::default()).expect_err("refused")
    };
    for (n, lane) in [
        (near, Lane::Cpu),
        (near, Lane::Pull(Claim::Scratch(0))),
        (near, Lane::Disk(Claim::Scratch(0))),
        (host, Lane::Hit),
        (host, Lane::Disk(Claim::Scratch(0))),
        (nothing, Lane::Hit),
        (nothing, Lane::Cpu),
        (nothing, Lane::Pull(Claim::Scratch(0))),
    ] {
        let refused = refuse(&[(n, lane)]);
        assert!(matches!(refused, RouteError::Mismatch { lane: l, .. } if l == lane), "{refused}");
    }
    for slot in [99, held] {
        let refused = refuse(&[(nothing, Lane::Disk(Claim::Spare(slot)))]);
        assert!(matches!(refused, RouteError::Claim { next: Some(_), .. }), "{refused}");
    }
    assert!(refuse(&[(nothing, Lane::Disk(spare))]).to_string().contains("next spare of its layer is Some("));
    let scratch = refuse(&[(2, Lane::Disk(Claim::Scratch(3))), (4, Lane::Disk(Claim::Scratch(3)))]);
    assert_eq!(scratch, RouteError::Scratch { id: expert(4), scratch: 3 }, "one blob for two experts");
    let scratch = refuse(&[(2, Lane::Disk(Claim::Scratch(8)))]);
    assert_eq!(scratch.to_string(), "scratch blob 8 for expert 2 of layer 0 is not there or not free");
    assert_eq!(refuse(&[(0, Lane::Hit), (0, Lane::Hit)]), RouteError::Twice(expert(0)));
}

/// A guess into a blob that another guess is filling was called a disagreement about the expert's entry.
#[test]
fn a_guess_into_a_taken_blob_names_the_blob() {
    let mut scene = Scene::new(two_tiers(0));
    let guess = [Routed { expert: 1, lane: Lane::Disk(Claim::Scratch(2)) }];
    let mut transfers = Vec::new();
    scene.directory.look_ahead(0, &guess, &mut transfers).expect("free");
    let before = scene.state();
    let again = scene.directory.look_ahead(0, &guess, &mut transfers);
    assert_eq!(again, Err(RouteError::Scratch { id: expert(1), scratch: 2 }));
    let hit = [Routed { expert: 2, lane: Lane::Hit }];
    let refused = scene.directory.look_ahead(0, &hit, &mut transfers);
    assert!(matches!(refused, Err(RouteError::Mismatch { .. })), "{refused:?}");
    assert_eq!((scene.state(), transfers.len()), (before, 1));
}

/// Sizes that contradict each other, or that would exhaust memory before anything is computed.
#[test]
fn impossible_geometries_are_sentences() {
    let good = three_tiers(4, 4);
    let cases: Vec<(Geometry, &str)> = vec![
        (Geometry { near: vec![], class: vec![], ..good.clone() }, "layers"),
        (Geometry { experts: 0, ..good.clone() }, "at least one expert"),
        (Geometry { class: vec![0, 0], ..good.clone() }, "2 layers, and there are 1"),
        (Geometry { class: vec![1], ..good.clone() }, "size class 1"),
        (Geometry { direct: true, ..good.clone() }, "no host tier"),
        (Geometry { near: vec![u32::MAX], ..good.clone() }, "4194304"),
        (Geometry { host: vec![u32::MAX, u32::MAX], ..good.clone() }, "4194304"),
        (Geometry { scratch: 0, ..good.clone() }, "scratch"),
        (Geometry { landings: 0, ..good.clone() }, "landing"),
        (Geometry { offers: 0, ..good.clone() }, "spare"),
    ];
    for (geometry, part) in cases {
        let error = Directory::new(geometry, Lfu).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Each layer's slots were below the limit, and all of them together were two hundred thousand times the memory of the
/// machine: making the directory ended the process.
#[test]
fn many_layers_of_many_slots_are_refused() {
    let many = Geometry { near: vec![1 << 22; 60_000], class: vec![0; 60_000], ..three_tiers(0, 1) };
    assert_eq!(Directory::new(many, Lfu).expect_err("too many"), ConfigError::TooMany);
    let experts =
        Geometry { experts: u16::MAX, near: vec![0; 60_000], class: vec![0; 60_000], ..three_tiers(0, 1) };
    assert_eq!(Directory::new(experts, Lfu).expect_err("too many"), ConfigError::TooMany);
}

#[test]
fn limits_of_another_geometry_are_refused() {
    let mut scene = Scene::new(two_tiers(4));
    scene.compute(0, &[1]);
    let before = scene.state();
    for (near, host) in [(vec![5], vec![]), (vec![], vec![]), (vec![4, 4], vec![]), (vec![4], vec![1])] {
        assert_eq!(scene.directory.set_budget(Limits { near, host }), Err(ConfigError::Limits));
    }
    assert_eq!(scene.state(), before);
    assert_eq!(Admission::default(), Admission::All);
}
