//! The arena from outside: leases, parts, memory that goes back.

use proptest::prelude::*;
use tier_cache::{ArenaOptions, ClassSpec, HostArena, HostSlot, HugePages};

fn arena(specs: &[(usize, u32)]) -> HostArena {
    let specs: Vec<ClassSpec> =
        specs.iter().map(|&(slot_bytes, slots)| ClassSpec { slot_bytes, slots }).collect();
    // Miri knows no advice about pages.
    let options = ArenaOptions { huge_pages: !cfg!(miri), ..ArenaOptions::default() };
    HostArena::new(&specs, &options).expect("small")
}

#[test]
fn a_slot_is_lent_written_and_read() {
    let mut arena = arena(&[(5000, 2), (100, 3)]);
    assert_eq!((arena.n_slots(), arena.class_slots(1), arena.class_slots(2)), (5, 2..5, 0..0));
    assert_eq!((arena.slot_bytes(HostSlot(0)), arena.slot_bytes(HostSlot(2))), (Some(8192), Some(4096)));
    assert_eq!((arena.class_of(HostSlot(1)), arena.class_of(HostSlot(2))), (Some(0), Some(1)));

    let slot = HostSlot(1);
    let lease = arena.take(slot).expect("home");
    assert_eq!(Some(lease.as_ptr().addr()), arena.address(slot));
    assert!(arena.take(slot).is_none() && arena.bytes(slot).is_none() && !arena.is_home(slot));
    lease[40..44].copy_from_slice(b"gate");
    arena.set_parts(slot, &[40..44, 0..0]).expect("within");
    assert!(arena.part(slot, 0).is_none());
    arena.put(slot, lease).expect("its own");
    assert_eq!(arena.part(slot, 0), Some(&b"gate"[..]));
    assert_eq!(arena.part(slot, 1), Some(&b""[..]));
    assert_eq!(arena.part(slot, 2), None);
    assert_eq!(arena.bytes(HostSlot(0)).map(|bytes| bytes.iter().all(|b| *b == 0)), Some(true));

    let lease = arena.take(slot).expect("home");
    arena.put(slot, lease).expect("its own");
    assert_eq!(arena.part(slot, 0), None, "a slot that was out has no parts");
}

/// A lease that goes back to the wrong slot would make two owners of one memory and none of the other.
#[test]
fn only_the_lease_itself_goes_back() {
    let mut arena = arena(&[(4096, 3)]);
    let a = arena.take(HostSlot(0)).expect("home");
    let b = arena.take(HostSlot(1)).expect("home");
    let wrong = arena.put(HostSlot(0), b).expect_err("another slot's");
    assert!(wrong.to_string().contains("are not slot 0, which has 4096 bytes at"), "{wrong}");
    let wrong = arena.put(HostSlot(2), wrong.lease).expect_err("not out");
    assert!(format!("{wrong:?}").contains("which is not handed out"), "{wrong}");
    let wrong = arena.put(HostSlot(3), wrong.lease).expect_err("does not exist");
    assert!(wrong.to_string().ends_with("which does not exist; there are 3"), "{wrong}");
    arena.put(HostSlot(1), wrong.lease).expect("its own");
    let (half, _) = a.split_at_mut(2048);
    assert!(arena.put(HostSlot(0), half).is_err());
    assert!(arena.put(HostSlot(0), Box::leak(Box::new([0; 4096]))).is_err());
}

/// The arena of a failed engine may be dropped while a disk read is still under way into one of its slots.
#[test]
fn a_lease_outlives_its_arena() {
    let mut arena = arena(&[(8192, 4)]);
    let lease = arena.take(HostSlot(2)).expect("home");
    drop(arena);
    lease.fill(3);
    assert!(lease.iter().all(|byte| *byte == 3));
}

/// By address space: a thousand arenas of a gigabyte, one after the other, beside the few that other tests have.
#[test]
fn memory_of_an_arena_that_is_whole_is_unmapped() {
    let before = pages(0);
    for _ in 0..1000 {
        let mut arena = arena(&[(64 << 20, 16), (5000, 3)]);
        let lease = arena.take(HostSlot(17)).expect("home");
        arena.put(HostSlot(17), lease).expect("its own");
    }
    assert!(pages(0).saturating_sub(before) < 100 << 18, "address space grew by more than 100 GiB");
}

#[test]
fn released_memory_reads_as_zero_and_can_be_used_again() {
    let mut arena = arena(&[(10_000, 3)]);
    for slot in 0..3 {
        let lease = arena.take(HostSlot(slot)).expect("home");
        lease.fill(slot as u8 + 1);
        arena.put(HostSlot(slot), lease).expect("its own");
    }
    arena.set_parts(HostSlot(1), &[0..10, 10..12]).expect("within");
    assert_eq!(arena.release(HostSlot(1)).expect("home"), 12_288);
    assert!(arena.part(HostSlot(1), 0).is_none());
    let all = |arena: &HostArena, slot, value| {
        arena.bytes(HostSlot(slot)).is_some_and(|bytes| bytes.iter().all(|byte| *byte == value))
    };
    assert!(all(&arena, 0, 1) && all(&arena, 1, 0) && all(&arena, 2, 3));

    let lease = arena.take(HostSlot(2)).expect("home");
    let error = arena.give_back(0..3).expect_err("one is out");
    assert_eq!(error.to_string(), "slot 2 is handed out, so its memory cannot be given back");
    assert!(all(&arena, 0, 1), "nothing was released");
    lease[0] = 7;
    arena.put(HostSlot(2), lease).expect("its own");
    assert!(arena.give_back(2..4).is_err());
    assert_eq!(arena.give_back(0..3).expect("all home"), 3 * 12_288);
    assert!(all(&arena, 2, 0));
}

#[test]
fn parts_stay_within_their_slot() {
    let mut arena = arena(&[(4096, 1)]);
    let slot = HostSlot(0);
    arena.set_parts(slot, &[0..4096, 4096..4096, 1..2, 3..4]).expect("four, within");
    for (parts, sentence) in [
        (vec![0..1; 5], "slot 0 can remember 4 parts, not 5"),
        (vec![0..1, 0..4097], "part 1 of slot 0 is bytes 0 to 4097, and the slot has 4096 bytes"),
        #[allow(clippy::reversed_empty_ranges)]
        (vec![2..1, 0..0], "part 0 of slot 0 is bytes 2 to 1, and the slot has 4096 bytes"),
    ] {
        assert_eq!(arena.set_parts(slot, &parts).expect_err(sentence).to_string(), sentence);
    }
    assert_eq!(arena.part(slot, 0).map(<[u8]>::len), Some(4096), "the old parts stay");
    assert!(arena.set_parts(HostSlot(1), &[]).is_err());
}

#[test]
fn memory_that_is_not_there_is_an_error_with_the_bytes() {
    // 16 Mi slots of 1 GiB: more than any address space, and below the limit of slots.
    let specs = [ClassSpec { slot_bytes: 1 << 30, slots: 1 << 24 }];
    let error = HostArena::new(&specs, &ArenaOptions::default()).expect_err("too much").to_string();
    assert!(
        error.starts_with("the system refused 18014398509481984 bytes of memory for expert slots: "),
        "{error}"
    );
}

#[test]
fn an_arena_without_slots_is_legal() {
    let mut arena = arena(&[(4096, 0)]);
    assert_eq!((arena.n_slots(), arena.bytes_mapped(), arena.chunks().len()), (0, 0, 0));
    assert!(arena.take(HostSlot(0)).is_none());
    assert_eq!(arena.huge_pages(), HugePages::NotAsked);
}

/// Gigabytes of slots cost address space only; every chunk can be registered as it is.
#[test]
fn pages_are_not_touched_before_they_are_used() {
    let before = pages(1);
    let arena = arena(&[(7_110_656, 600)]);
    let after = pages(1);
    assert!(arena.bytes_mapped() > 4_000_000_000 && arena.chunks().len() == 4);
    assert!(arena.chunks().iter().all(|&(start, len)| start % 4096 == 0 && len <= 1 << 30));
    assert!(after.saturating_sub(before) < 500_000, "{before} pages were resident, then {after}");
}

/// A column of the system's account of this process: 0 is address space, 1 is memory. 0 if there is no such account.
fn pages(column: usize) -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(column).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[test]
fn prefaulted_memory_is_resident() {
    let options = ArenaOptions { prefault: true, huge_pages: false, ..ArenaOptions::default() };
    let before = pages(1);
    let arena = HostArena::new(&[ClassSpec { slot_bytes: 1 << 20, slots: 64 }], &options).expect("64 MiB");
    if before != 0 {
        let n = arena.bytes_mapped() / rustix::param::page_size();
        assert!(pages(1).saturating_sub(before) > n / 2);
    }
}

/// Where the system has huge pages and they are advised, memory that was used says how much of it has them.
#[test]
fn huge_pages_are_reported() {
    let mut arena = arena(&[(8 << 20, 2)]);
    let lease = arena.take(HostSlot(0)).expect("home");
    lease.fill(1);
    println!("{}: {:?} bytes", arena.huge_pages(), arena.huge_page_bytes());
    if let Some(bytes) = arena.huge_page_bytes() {
        assert!(arena.huge_pages() != HugePages::SwitchedOff || bytes == 0);
    }
    arena.put(HostSlot(0), lease).expect("its own");
    assert!(HostArena::new(&[], &ArenaOptions::default()).expect("empty").huge_page_bytes().is_none());
}

#[test]
fn an_arena_can_be_moved_to_another_thread() {
    fn check<T: Send + Sync>() {}
    check::<HostArena>();
}

proptest! {
    /// Against a naive model: a slot is home or out, and its bytes are the last that were written.
    #[test]
    fn any_order_of_calls_keeps_slots_apart(
        calls in prop::collection::vec((0_u32..7, 0_u8..4, any::<u8>()), 0..120),
        align in prop::sample::select(vec![512_usize, 4096]),
    ) {
        let specs = [ClassSpec { slot_bytes: 700, slots: 4 }, ClassSpec { slot_bytes: 4097, slots: 2 }];
        let options = ArenaOptions { align, chunk_bytes: 8192 + 4096, ..ArenaOptions::default() };
        let mut arena = HostArena::new(&specs, &options).expect("small");
        let mut out: Vec<(u32, &'static mut [u8])> = Vec::new();
        let mut model = [0_u8; 6];
        for (slot, call, value) in calls {
            let held = out.iter().position(|(held, _)| *held == slot);
            match call {
                0 => match arena.take(HostSlot(slot)) {
                    Some(lease) => {
                        prop_assert!(held.is_none() && slot < 6);
                        prop_assert!(lease.iter().all(|b| *b == model[slot as usize]));
                        out.push((slot, lease));
                    }
                    None => prop_assert!(held.is_some() || slot == 6),
                },
                1 => if let Some(held) = held {
                    out[held].1.fill(value);
                    model[slot as usize] = value;
                },
                2 => if let Some(held) = held {
                    let (_, lease) = out.swap_remove(held);
                    prop_assert!(arena.put(HostSlot(slot), lease).is_ok());
                },
                _ => match arena.bytes(HostSlot(slot)) {
                    Some(bytes) => prop_assert!(bytes.iter().all(|b| *b == model[slot as usize])),
                    None => prop_assert!(held.is_some() || slot == 6),
                },
            }
        }
        for (slot, lease) in out {
            arena.put(HostSlot(slot), lease).expect("its own");
        }
    }
}
