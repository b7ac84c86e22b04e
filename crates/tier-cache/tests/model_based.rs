//! Random life of a directory against a naive model: routes that run ahead, completions out of order, abandoned and
//! cancelled transfers, late acknowledgements, budgets that change, pins, look-ahead and background filling.
//!
//! 50,000 operations; `TIER_CACHE_OPERATIONS` sets another number for long runs, `TIER_CACHE_SEED` another beginning.

mod model;

use model::World;
use tier_cache::{Admission, Geometry};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |it| it.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Three tiers; two of them; small, tight and odd.
fn geometries() -> Vec<(&'static str, Geometry, Admission)> {
    let three = Geometry {
        experts: 12,
        near: vec![6, 4, 3],
        class: vec![0, 0, 1],
        host: vec![6, 3],
        spares: 2,
        offers: 3,
        yielding: false,
        host_spares: 1,
        scratch: 6,
        landings: 4,
        direct: false,
        window: 2,
        half_life: 40,
    };
    let tight = Geometry { host: vec![1, 0], landings: 4, host_spares: 0, offers: 1, ..three.clone() };
    let no_near = Geometry { near: vec![0, 0, 0], ..three.clone() };
    let ample = Geometry { near: vec![14, 12, 12], host: vec![12, 12], ..three.clone() };
    let yielding = Geometry { yielding: true, offers: 5, ..three.clone() };
    let yielding_tight = Geometry { yielding: true, ..tight.clone() };
    let two = Geometry { half_life: 40, offers: 4, ..Geometry::two_tiers(12, vec![6, 4, 0, 1], 4) };
    vec![
        ("three tiers", three.clone(), Admission::All),
        ("three tiers, second touch", three, Admission::SecondTouch(4)),
        ("hardly any host memory", tight, Admission::All),
        ("three tiers, slots kept until they are claimed", yielding, Admission::All),
        ("hardly any host memory, slots kept until they are claimed", yielding_tight, Admission::All),
        ("no near memory", no_near, Admission::All),
        ("room for everything", ample, Admission::All),
        ("two tiers", two.clone(), Admission::All),
        ("two tiers, empty spares", Geometry { yielding: false, ..two.clone() }, Admission::All),
        ("two tiers, second touch", two, Admission::SecondTouch(6)),
    ]
}

#[test]
fn any_order_of_events_keeps_every_expert_whole() {
    let operations = number("TIER_CACHE_OPERATIONS", 50_000);
    let seed = number("TIER_CACHE_SEED", 1);
    let geometries = geometries();
    // Lives of a few hundred steps: new directories meet other beginnings than old ones.
    let life = 500;
    let mut left = operations;
    let mut round = 0;
    let (mut served, mut lost, mut moved) = (0, 0, 0);
    while left > 0 {
        let (name, geometry, admission) = &geometries[round as usize % geometries.len()];
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(round);
        let mut world = World::new(geometry.clone(), *admission, 4, seed);
        let life = if round % 9 == 8 { 10 * life } else { life };
        let steps = life.min(left);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..steps).for_each(|_| world.step());
            world.settle();
        }));
        assert!(run.is_ok(), "{name}: life {round} (seed {seed}) broke");
        served += world.served;
        lost += world.lost;
        moved += world.moved;
        left -= steps;
        round += 1;
    }
    println!(
        "{operations} operations in {round} lives: {served} served, {moved} transfers, {lost} lost to failures"
    );
    assert!(served > operations / 4 && moved > operations / 10, "hardly anything happened");
}
