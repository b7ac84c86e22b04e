//! What a router may ask for.

use tier_cache::{
    Claim, Directory, Geometry, Lane, Lfu, MAX_ROUTE, Plan, RECORD_WORDS, RouteError, RouteRecord, Routed,
};

use crate::scene::{Scene, three_tiers};

/// Router scores that were not numbers chose the expert of the largest integer, and tables were indexed with it.
///
/// Here every number of a route is looked at before anything changes, the request fails with a sentence, and the next one
/// is served as if nothing had been.
#[test]
fn an_expert_that_is_not_there_is_refused_and_nothing_changes() {
    let mut scene = Scene::new(three_tiers(4, 4));
    scene.compute(0, &[0, 1]);
    let before = scene.state();
    for (layer, expert) in [(0, 8), (0, u16::MAX), (1, 0), (u16::MAX, u16::MAX)] {
        for lane in [Lane::Hit, Lane::Cpu, Lane::Pull(Claim::Spare(0)), Lane::Disk(Claim::Scratch(0))] {
            let route = [Routed { expert: 0, lane: Lane::Hit }, Routed { expert, lane }];
            let mut plan = Plan::default();
            let refused = scene.directory.route(layer, &route, &mut plan).expect_err("out of range");
            assert!(matches!(refused, RouteError::Layer { .. } | RouteError::Expert { .. }), "{refused}");
            assert!(plan.serves.is_empty() && plan.transfers.is_empty());
            let guessed = scene.directory.look_ahead(layer, &route[1..], &mut plan.transfers);
            assert_eq!(guessed, Err(refused));
        }
    }
    assert_eq!(scene.state(), before);
    scene.compute(0, &[0, 1, 2]);
}

/// As before, one step earlier: the record that the device sends is itself out of range.
#[test]
fn a_record_of_too_many_experts_is_refused() {
    let mut words: [u64; RECORD_WORDS] = RouteRecord::default().to_words();
    for n in 0..=255 {
        let record = RouteRecord { n, ..RouteRecord::default() };
        words.copy_from_slice(&record.to_words());
        assert_eq!(RouteRecord::from_words(&words).is_ok(), usize::from(n) <= MAX_ROUTE, "{n} experts");
    }
}

/// Start-up staged every expert in host memory before the first upload: at its peak RAM held all of what was meant for
/// the device.
///
/// Here bytes on their way to the near tier have a landing or a host slot, of which there are as many as the geometry
/// says. A route that needs more is refused and may be made again.
#[test]
fn loading_takes_no_more_host_memory_than_its_landings() {
    let geometry = Geometry { landings: 2, offers: 8, spares: 7, ..three_tiers(8, 0) };
    let mut directory = Directory::new(geometry.clone(), Lfu).expect("a geometry");
    let spare = |n: u16| Routed { expert: n, lane: Lane::Disk(Claim::Scratch(n)) };
    let all: Vec<Routed> = (0..8).map(spare).collect();
    let mut plan = Plan::default();
    let refused = directory.route(0, &all, &mut plan);
    assert_eq!(refused, Err(RouteError::NoLanding { needed: 8, free: 2 }));
    assert_eq!((directory.in_flight(), plan.transfers.len()), (0, 0));

    let mut most = 0;
    let mut scene = Scene::new(geometry);
    for pair in [[0, 1], [2, 3], [4, 5], [6, 7]] {
        let serves = scene.route(0, &pair);
        most = most.max(scene.flying.iter().filter(|it| it.via.is_some()).count());
        let third: Vec<Routed> = vec![spare((pair[0] + 2) % 8)];
        if scene.directory.in_transit(crate::scene::expert(third[0].expert)).is_none() && pair[0] < 6 {
            let full = scene.directory.route(0, &third, &mut Plan::default());
            assert_eq!(full, Err(RouteError::NoLanding { needed: 1, free: 0 }));
        }
        scene.land_all();
        serves.into_iter().for_each(|serve| scene.computed(serve));
    }
    assert_eq!(most, 2);
    assert!((0..8).all(|n| scene.is_in_memory(n)), "and everything was loaded");
}
