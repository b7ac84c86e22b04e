//! Partitions: never too large, never less for more, everything when everything fits.

use proptest::prelude::*;
use tier_cache::{Budget, BudgetError, LayerNeed, Shares, SlotRules};

const RULES: SlotRules = SlotRules { experts_per_token: 8, spares: 3, yielding: false };
const FLOOR: u32 = 8 + 3 + 16;

fn layer(slot_bytes: u64, experts: u32, counts: &[u32]) -> LayerNeed {
    LayerNeed { slot_bytes, experts, shares: Shares::from_counts(counts) }
}

fn split(bytes: u64, layers: &[LayerNeed]) -> Budget {
    Budget::for_layers(bytes, layers, RULES).expect("slots have bytes")
}

#[test]
fn layers_without_data_stay_level() {
    let layers = vec![layer(10, 288, &[]); 4];
    assert_eq!(split(4 * 100 * 10, &layers).slots, [100; 4]);
    assert_eq!(split(4 * 100 * 10 + 25, &layers).slots, [101, 101, 100, 100]);
    assert_eq!(split(7 * 10, &layers).slots, [2, 2, 2, 1], "below the floor too");
}

#[test]
fn zero_bytes_give_zero_slots() {
    assert_eq!(split(0, &[layer(10, 288, &[1, 2])]), Budget { slots: vec![0], bytes: 0 });
    assert_eq!(split(100, &[]), Budget::default());
}

/// The steep layer needs fewer slots for the same part of its routing.
#[test]
fn a_layer_with_flat_routing_gets_more_slots() {
    let steep: Vec<u32> = (0..100).map(|rank| 1_000_000 >> (rank / 5)).collect();
    let layers = [layer(10, 100, &steep), layer(10, 100, &[1000; 100])];
    let given = split(10 * 120, &layers);
    assert!(given.slots[1] > 80 && given.slots[0] >= FLOOR, "{given:?}");
    assert_eq!(given.total(), 120);
}

/// A slot that was weighed by its bytes went to the smaller blobs first, and left 27 slots to a layer where others had 154:
/// but the larger blob that is missed costs the drive as much more.
#[test]
fn a_larger_blob_is_worth_its_bytes() {
    let given = split(20 * 100, &[layer(10, 288, &[1; 288]), layer(20, 288, &[1; 288])]);
    assert_eq!(given.slots, [67, 66]);
}

#[test]
fn a_layer_without_data_is_taken_for_the_mean() {
    let counts: Vec<u32> = (0..100).map(|rank| 100_000 / (rank + 1)).collect();
    let layers = [layer(10, 100, &counts), layer(10, 100, &[]), layer(10, 100, &counts)];
    let given = split(10 * 180, &layers);
    assert_eq!(given.slots, [60; 3]);
}

#[test]
fn room_for_all_is_exactly_all_and_no_spares() {
    let layers = [layer(7, 288, &[1]), layer(9, 288, &[]), layer(9, 2, &[])];
    let all = 288 * 7 + 290 * 9;
    assert_eq!(split(all, &layers), Budget { slots: vec![288, 288, 2], bytes: all });
    assert_eq!(split(u64::MAX, &layers).slots, [288, 288, 2]);
    assert!(split(all - 1, &layers).total() < 578);
}

#[test]
fn spares_are_kept_only_where_they_are_of_use() {
    let cases = [(0, 0), (1, 0), (3, 0), (4, 3), (100, 3), (287, 3), (288, 0)];
    for (slots, spares) in cases {
        assert_eq!(RULES.spares_of(slots, 288), spares, "{slots} slots");
        assert_eq!(RULES.residents_of(slots, 288), slots - spares, "{slots} slots");
    }
}

#[test]
fn sizes_that_overflow_do_not() {
    let layers = [layer(u64::MAX, 288, &[]), layer(u64::MAX / 2, 288, &[])];
    assert_eq!(split(u64::MAX, &layers).slots, [1, 0]);
}

#[test]
fn slots_without_bytes_are_an_error() {
    let error = Budget::for_layers(10, &[layer(1, 1, &[]), layer(0, 1, &[])], RULES).expect_err("0 bytes");
    assert_eq!(error, BudgetError::LayerSlotBytes { layer: 1 });
    assert_eq!(error.to_string(), "layer 1 has slots of 0 bytes");
    assert!(Budget::for_classes(10, &[(0, 3)]).is_err());
    let error = Budget::for_layers(10, &[layer(1, u32::MAX, &[])], RULES).expect_err("not numbered");
    assert_eq!(error.to_string(), "layer 0 has 4294967295 experts, more than the limit of 65536");
    assert!(Budget::for_classes(10, &[(1, u32::MAX)]).is_err());
}

#[test]
fn classes_are_filled_evenly() {
    let classes = [(10, 100), (20, 50)];
    assert_eq!(Budget::for_classes(1000, &classes).expect("bytes").slots, [50, 25]);
    assert_eq!(Budget::for_classes(0, &classes).expect("bytes").slots, [0, 0]);
    assert_eq!(Budget::for_classes(2000, &classes).expect("bytes").slots, [100, 50]);
    assert_eq!(Budget::for_classes(u64::MAX, &classes).expect("bytes").slots, [100, 50]);
}

/// The real size, with the sharpest steps: far below what starting the program costs otherwise.
#[test]
fn forty_layers_are_divided_at_once() {
    let counts = |l: u32| (0..288).map(|rank| 1_000_000 / (rank + 1 + l)).collect::<Vec<u32>>();
    let layers: Vec<LayerNeed> =
        (0..42).map(|l| layer(6_000_000 + u64::from(l % 3), 288, &counts(l))).collect();
    let start = std::time::Instant::now();
    let given = split(6_000_000 * 42 * 200, &layers);
    assert!(given.total() > 42 * 199);
    assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());
}

fn needs() -> impl Strategy<Value = Vec<LayerNeed>> {
    let counts = prop::collection::vec(prop_oneof![Just(0_u32), 0_u32..50, any::<u32>()], 0..50);
    let one = (1_u64..60, 0_u32..60, counts);
    prop::collection::vec(one.prop_map(|(bytes, experts, counts)| layer(bytes, experts, &counts)), 0..7)
}

proptest! {
    #[test]
    fn more_bytes_never_give_a_layer_less(
        layers in needs(), bytes in 0_u64..20_000, more in 0_u64..2_000, k in 0_u32..9, spares in 0_u32..5,
        yielding: bool,
    ) {
        let rules = SlotRules { experts_per_token: k, spares, yielding };
        let small = Budget::for_layers(bytes, &layers, rules).expect("slots have bytes");
        let large = Budget::for_layers(bytes + more, &layers, rules).expect("slots have bytes");
        prop_assert!(small.bytes <= bytes && large.bytes <= bytes + more);
        let sum: u64 = small.slots.iter().zip(&layers).map(|(n, l)| u64::from(*n) * l.slot_bytes).sum();
        prop_assert_eq!(sum, small.bytes);
        for (layer, need) in layers.iter().enumerate() {
            prop_assert!(small.slots[layer] <= large.slots[layer]);
            prop_assert!(large.slots[layer] <= need.experts);
        }
        // What is left is less than one slot, unless all have what they can use.
        let full = small.slots.iter().zip(&layers).all(|(n, l)| *n == l.experts);
        let largest = layers.iter().map(|l| l.slot_bytes).max().unwrap_or(0);
        prop_assert!(full || bytes - small.bytes < largest);
        prop_assert_eq!(&small, &Budget::for_layers(bytes, &layers, rules).expect("slots have bytes"));
    }

    #[test]
    fn everything_fits_when_everything_fits(layers in needs(), more in 0_u64..100) {
        let all: u64 = layers.iter().map(|l| l.slot_bytes * u64::from(l.experts)).sum();
        let given = split(all + more, &layers);
        prop_assert_eq!(given.bytes, all);
        prop_assert!(given.slots.iter().zip(&layers).all(|(n, l)| *n == l.experts));
    }

    #[test]
    fn classes_never_get_less_for_more(
        classes in prop::collection::vec((1_u64..60, 0_u32..80), 0..6), bytes in 0_u64..9_000, more in 0_u64..900,
    ) {
        let small = Budget::for_classes(bytes, &classes).expect("slots have bytes");
        let large = Budget::for_classes(bytes + more, &classes).expect("slots have bytes");
        prop_assert!(small.bytes <= bytes);
        for (class, (_, experts)) in classes.iter().enumerate() {
            prop_assert!(small.slots[class] <= large.slots[class] && large.slots[class] <= *experts);
        }
    }
}
