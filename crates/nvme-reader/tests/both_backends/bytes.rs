//! The right bytes in the right places.

use nvme_reader::{
    Aligned, Choice, Direct, Options, Outcome, Part, Priority, Read, ReadFault, Reader, WhyBuffered,
};

use crate::scene::{Scene, check, check_part, is_direct, lease, part, read, skipped, start, write};

pub fn ends_of_every_kind(scene: &Scene) {
    const LEN: u64 = 3 * 4096 + 777;
    let path = scene.file(LEN);
    let edges = [0, 1, 511, 512, 513, 4095, 4096, 4097, 8191, 8192, LEN - 777, LEN - 512, LEN - 1, LEN];
    for options in scene.direct_and_not() {
        for piece in [1, 4096, 1 << 20] {
            // Pieces of one byte are for the page cache, where they are not rounded up.
            let mut reader = scene.open(&path, &Options { piece, ..options.clone() });
            for (i, from) in edges.iter().enumerate() {
                for to in edges[i..].iter().filter(|to| piece > 1 || **to - from < 600) {
                    let parts = [part(*from, (to - from) as u32)];
                    check(&read(&mut reader, &parts), &parts);
                }
            }
        }
    }
}

pub fn parts_do_not_overlap(scene: &Scene) {
    let path = scene.file(100_000);
    for options in scene.direct_and_not() {
        let mut reader = scene.open(&path, &Options { piece: 8192, ..options });
        let parts = [part(99_000, 1000), part(5, 30_000), part(5, 30_000), part(30_004, 1)];
        check(&read(&mut reader, &parts), &parts);
        let report = reader.report();
        assert_eq!(report.counters.bytes, 61_001);
        assert!(report.files[0].bytes >= 61_001);
    }
}

/// An expert whose parts were split over shards is one request all the same, and an error names the right file.
pub fn parts_of_one_request_in_several_files(scene: &Scene) {
    let (first, second) = (scene.file(50_000), scene.file(20_000));
    for options in scene.direct_and_not() {
        let sets = [first.clone().into(), second.clone().into()];
        let mut reader = Reader::<Aligned>::open_with(&sets, &options).unwrap();
        let parts = [(1, part(777, 9000)), (0, part(45_000, 5000)), (1, part(0, 1))];
        let mut ask = |parts: [(u32, Part); 3]| {
            let room = reader.room(0, parts).unwrap();
            let into = Aligned::new(room, reader.alignment()).unwrap();
            reader
                .start(Read { set: 0, parts: parts.into(), into, priority: Priority::Demand, tag: 1 })
                .unwrap();
            let mut done = Vec::new();
            reader.wait(1, &mut done);
            done.pop().unwrap()
        };
        check(&ask(parts), &parts.map(|(_, part)| part));
        let completion = ask([(0, part(0, 10)), (1, part(19_999, 2)), (0, part(3, 4))]);
        let Outcome::Failed(failed) = &completion.outcome else { panic!("{:?}", completion.outcome) };
        let (at, error) = failed.first().unwrap();
        assert_eq!((at, &*error.path), (1, second.as_path()));
        assert!(reader.room(0, [(2, part(0, 1))]).is_none(), "there is no third set");
    }
}

pub fn the_end_of_the_file_is_an_error_only_inside_the_range(scene: &Scene) {
    let path = scene.file(5000);
    for options in scene.direct_and_not() {
        let mut reader = scene.open(&path, &options);
        let parts = [part(4000, 1000), part(4500, 501), part(9000, 10), part(0, 100)];
        let completion = read(&mut reader, &parts);
        let Outcome::Failed(failed) = &completion.outcome else { panic!("{:?}", completion.outcome) };
        check_part(&completion.memory[failed.parts[0].clone().unwrap()], &parts[0]);
        check_part(&completion.memory[failed.parts[3].clone().unwrap()], &parts[3]);
        let inside = failed.parts[1].clone().unwrap_err();
        assert_eq!((inside.offset, inside.len), (5000, 1));
        assert_eq!(inside.fault, ReadFault::End { file_len: 5000 });
        let text =
            format!("{}: 10 bytes at offset 9000 cannot be read: the file ends at byte 5000", path.display());
        assert_eq!(failed.parts[2].clone().unwrap_err().to_string(), text);
        // Far behind the end, where sums of offsets nearly overflow: still only an end, and no reason to give up direct
        // reads.
        let direct = is_direct(&reader);
        let far = part(i64::MAX as u64 - 100_000, 10);
        let Outcome::Failed(failed) = read(&mut reader, &[far]).outcome else { panic!() };
        assert_eq!(failed.first().unwrap().1.fault, ReadFault::End { file_len: 5000 });
        assert_eq!(is_direct(&reader), direct);
    }
}

pub fn empty_files_and_empty_parts(scene: &Scene) {
    let path = scene.file(0);
    for options in scene.direct_and_not() {
        let mut reader = scene.open(&path, &options);
        let parts = [part(0, 0), part(77, 0)];
        check(&read(&mut reader, &parts), &parts);
        assert!(matches!(read(&mut reader, &[part(0, 1)]).outcome, Outcome::Failed(_)));
    }
}

pub fn memory_file_systems_are_read_through_the_cache(scene: &Scene) {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return skipped("/dev/shm is not here") };
    let path = folder.path().join("a");
    write(&path, 10_000);
    let mut reader = scene.open(&path, &scene.options());
    assert_eq!((reader.alignment(), reader.room(0, [part(1, 2)])), (1, Some(2)));
    let parts = [part(1, 9_999)];
    check(&read(&mut reader, &parts), &parts);
    let report = reader.report();
    assert_eq!(report.files[0].why_buffered, Some(WhyBuffered::InMemory));
    assert!(report.to_string().contains("tmpfs"), "{report}");
}

pub fn what_the_page_cache_holds_is_read_from_there(scene: &Scene) {
    let path = scene.file(1 << 20);
    let options = Options { direct: Direct::IfCold, ..scene.options() };
    let whole = [part(3, (1 << 20) - 3)];
    let why = || {
        let mut reader = scene.open(&path, &options);
        check(&read(&mut reader, &whole), &whole);
        reader.report().files[0].why_buffered
    };
    match why() {
        Some(WhyBuffered::Cached { found, of }) => assert_eq!(found, of, "the file was written just now"),
        Some(why) => return skipped(&why.to_string()),
        None => return skipped("this file system does not say what is in the page cache"),
    }
    let file = std::fs::File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(why(), None, "nothing is in the page cache");
}

pub fn dropping_the_cache_changes_no_byte(scene: &Scene) {
    let path = scene.file(300_001);
    let options = Options { direct: Direct::Never, drop_cache: true, piece: 65_536, ..scene.options() };
    let mut reader = scene.open(&path, &options);
    for _ in 0..2 {
        let parts = [part(3, 299_998), part(0, 5)];
        check(&read(&mut reader, &parts), &parts);
    }
}

pub fn leases_of_registered_memory(scene: &Scene) {
    const LEASE: usize = 64 << 10;
    let path = scene.file(1 << 20);
    let mut reader: Reader<&'static mut [u8]> =
        Reader::open_with(&[path.as_path().into()], &scene.options()).unwrap();
    let arena = lease(4 * LEASE, 4096);
    let registered = reader.register(&[(&arena[..]).into()]);
    match scene.backend {
        Choice::Threads => assert!(registered.why_not.is_some()),
        _ if registered.why_not.is_some() => skipped(&format!("registration: {registered:?}")),
        _ => assert_eq!((registered.pieces, registered.bytes), (1, 4 * LEASE as u64)),
    }
    let mut leases: Vec<&'static mut [u8]> = arena.chunks_exact_mut(LEASE).collect();
    let mut done = Vec::new();
    for round in 0..4_u64 {
        for (i, into) in leases.drain(..).enumerate() {
            let tag = round * 100_000 + 10_000 * i as u64;
            let parts = part(tag, 50_000).into();
            reader.start(Read { set: 0, parts, into, priority: Priority::Demand, tag }).unwrap();
        }
        reader.wait(4, &mut done);
        for completion in done.drain(..) {
            let Outcome::Read(places) = completion.outcome else { panic!("{:?}", completion.outcome) };
            check_part(&completion.memory[places[0].clone()], &part(completion.tag, 50_000));
            leases.push(completion.memory);
        }
        assert_eq!(leases.len(), 4);
    }
    let report = reader.report();
    let expected = if registered.why_not.is_none() { report.counters.ios } else { 0 };
    assert_eq!(report.counters.fixed, expected);
    // Registered anew, reads go on.
    reader.register(&[]);
    let into = leases.remove(0);
    let parts = part(7, 7).into();
    reader.start(Read { set: 0, parts, into, priority: Priority::Demand, tag: 1 }).unwrap();
    reader.wait(1, &mut done);
    assert!(matches!(done[0].outcome, Outcome::Read(_)));
    assert_eq!(reader.report().counters.fixed, expected);
}

/// Reads through the page cache failed with `ECANCELED` when the thread that had started them was gone: the kernel cancels
/// what its own threads have not begun.
pub fn a_reader_moves_between_threads(scene: &Scene) {
    let path = scene.file(1 << 20);
    let parts = [part(100, 900_000)];
    for options in scene.direct_and_not() {
        let mut reader = scene.open(&path, &Options { piece: 4096, depth: 8, ..options });
        for _ in 0..10 {
            reader = std::thread::spawn(move || {
                let mut done = Vec::new();
                reader.poll(&mut done);
                done.iter().for_each(|c| check(c, &parts));
                if reader.in_flight() == 0 {
                    start(&mut reader, &parts, Priority::Demand, 1);
                }
                reader
            })
            .join()
            .unwrap();
        }
        let mut done = Vec::new();
        reader.wait(1, &mut done);
        check(&done[0], &parts);
    }
}
