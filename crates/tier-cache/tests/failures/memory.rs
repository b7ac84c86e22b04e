//! Sizes, limits and what is kept: budgets, the host arena, the usage file.

use tier_cache::{
    ArenaOptions, Budget, ClassSpec, DeviceSlot, HostArena, Ignored, LayerNeed, Limits, Loaded,
    MAX_CHUNK_BYTES, Residence, Shares, SlotRules, Usage,
};

use crate::scene::{Scene, two_tiers};

const RULES: SlotRules = SlotRules { experts_per_token: 8, spares: 3, yielding: false };

/// The near tier was half empty at any budget: the planner took every expert for 25.2 MB, and they had 13.4.
///
/// Here a slot's bytes are the layer's own, and at least 95 hundredths of any budget that holds a token's experts become
/// slots.
#[test]
fn budgets_are_filled_with_records_of_their_real_size() {
    // Sizes as mixed quantisation has them: from 5.1 to 13.4 MB.
    let sizes = [5_111_808_u64, 7_110_656, 6_488_064, 9_437_184, 13_369_344];
    let layers: Vec<LayerNeed> = (0..42)
        .map(|layer| LayerNeed { slot_bytes: sizes[layer % 5], experts: 288, shares: Shares::unknown() })
        .collect();
    let all: u64 = layers.iter().map(|need| need.slot_bytes * 288).sum();
    let classes: Vec<(u64, u32)> = sizes.iter().map(|size| (*size, 42 / 5 * 288)).collect();
    for gb in [1, 2, 8, 10, 16, 24, 32, 48, 80, 96] {
        let bytes = gb * 1_000_000_000;
        let given = Budget::for_layers(bytes, &layers, RULES).expect("slots have bytes");
        let usable = bytes.min(all);
        assert!(given.bytes <= bytes && given.bytes * 100 >= usable * 95, "{gb} GB: {} B", given.bytes);
        let host = Budget::for_classes(bytes, &classes).expect("slots have bytes");
        let usable = bytes.min(classes.iter().map(|(size, experts)| size * u64::from(*experts)).sum());
        assert!(host.bytes <= bytes && host.bytes * 100 >= usable * 95, "{gb} GB of host: {} B", host.bytes);
    }
}

/// ... and what the arena adds to round the slots and to keep them within chunks is not lost in the sum either.
#[test]
fn an_arena_maps_little_more_than_its_slots() {
    let specs = [
        ClassSpec { slot_bytes: 7_110_656, slots: 100 },
        ClassSpec { slot_bytes: 5_111_808 + 1, slots: 100 },
    ];
    let wanted: usize = specs.iter().map(|spec| spec.slot_bytes * spec.slots as usize).sum();
    let arena = HostArena::new(&specs, &ArenaOptions::default()).expect("address space");
    assert!(wanted * 100 >= arena.bytes_mapped() * 95, "{} B mapped for {wanted}", arena.bytes_mapped());
}

/// A tier of more than 512 GiB was registered in one piece, which the driver refused, and pinned memory could not be
/// given back when the machine began to swap.
///
/// Here memory is in chunks that are registered one by one: at most 1 GiB, whole pages, every slot within one.
#[test]
fn no_piece_for_the_kernel_exceeds_one_gib() {
    let spec = ClassSpec { slot_bytes: 400 << 20, slots: 6 };
    let arena =
        HostArena::new(&[spec], &ArenaOptions::default()).expect("address space, of which nothing is used");
    assert_eq!(arena.chunks().len(), 3, "two slots a chunk: a third would straddle");
    for (address, len) in arena.chunks() {
        assert!(*len <= MAX_CHUNK_BYTES && len % 4096 == 0 && address % 4096 == 0);
    }
    for slot in 0..6 {
        let slot = tier_cache::HostSlot(slot);
        let (at, len) = (arena.address(slot).expect("a slot"), arena.slot_bytes(slot).expect("a slot"));
        let holds = |chunk: &&(usize, usize)| chunk.0 <= at && at + len <= chunk.0 + chunk.1;
        assert_eq!(arena.chunks().iter().filter(holds).count(), 1);
    }
    let larger = ClassSpec { slot_bytes: MAX_CHUNK_BYTES + 1, slots: 1 };
    assert!(HostArena::new(&[larger], &ArenaOptions::default()).is_err(), "a slot is within a chunk");
}

/// The desktop grew, the cache had all memory, and the run ended; elsewhere the machine swapped itself to death.
///
/// Here memory is given back while the engine runs: limits, until nothing closes any more, then the pages. Later it is
/// used again.
#[test]
fn memory_is_given_back_while_running() {
    let mut scene = Scene::new(two_tiers(6));
    let spec = ClassSpec { slot_bytes: 256 << 10, slots: 6 };
    let options = ArenaOptions { huge_pages: false, ..ArenaOptions::default() };
    let mut arena = HostArena::new(&[spec], &options).expect("a little memory");
    for n in 0..8 {
        scene.compute(0, &[n]);
        scene.token();
    }
    for slot in 0..6 {
        let memory = arena.take(tier_cache::HostSlot(slot)).expect("home");
        memory.fill(1);
        arena.put(tier_cache::HostSlot(slot), memory).expect("its own");
    }
    scene.directory.set_budget(Limits { near: vec![2], host: vec![] }).expect("fewer slots");
    assert_ne!(scene.directory.closing(), (0, 0));
    scene.settle();
    assert_eq!(scene.directory.closing(), (0, 0));
    let beyond = |n| match scene.residence(n) {
        Residence::Device(DeviceSlot { index, .. }) => index >= 2,
        _ => false,
    };
    assert!(!(0..8).any(beyond), "nothing lives in what goes");
    assert_eq!(arena.give_back(2..6).expect("home"), 4 * (256 << 10));
    assert!(arena.bytes(tier_cache::HostSlot(1)).is_some_and(|bytes| bytes.iter().all(|b| *b == 1)));
    for n in 0..8 {
        scene.compute(0, &[n]);
        scene.token();
    }
    scene.directory.set_budget(Limits { near: vec![6], host: vec![] }).expect("all slots");
    for n in 0..8 {
        scene.compute(0, &[n]);
        scene.token();
    }
    assert!((0..8).filter(|n| scene.is_in_memory(*n)).count() >= 4, "it grew again");
}

/// State was taken over that belonged to something else: after a restart, and for another request.
///
/// Here what is kept between runs carries an identity; a file of another model, or of another shape of the same, is not
/// used and says so, and a damaged one is not either.
#[test]
fn usage_of_another_model_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("usage");
    let mut usage = Usage::new(2, 8).expect("small");
    usage.counts_mut()[3] = 7;
    usage.save(&path, b"model one, quantised").expect("saved");
    let Loaded::Usage(same) = Usage::load(&path, b"model one, quantised") else { panic!("its own") };
    assert_eq!(same, usage);
    for other in [&b"model one"[..], b"model two, quantised", b"", &[0xff; 300]] {
        assert!(matches!(Usage::load(&path, other), Loaded::Ignored(Ignored::Foreign)));
    }
    let mut bytes = usage.encode(b"model one, quantised");
    bytes[40] ^= 1;
    let damaged = Usage::decode(&bytes, b"model one, quantised");
    assert!(matches!(damaged, Err(Ignored::Checksum { .. })), "{damaged:?}");
}
