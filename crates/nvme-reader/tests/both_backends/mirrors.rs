//! The same bytes on several drives.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use nvme_reader::faults::{Faults, Injected};
use nvme_reader::{Aligned, FileSet, OpenError, Options, Outcome, ReadFault, Reader};

use crate::scene::{Scene, check, part, read};

const EIO: i32 = 5;

pub fn different_files_are_refused(scene: &Scene) {
    const LEN: u64 = 1 << 20;
    let open = |paths: &[_]| {
        Reader::<Aligned>::open_with(&[FileSet { paths: paths.to_vec() }], &scene.options()).map(drop)
    };
    let first = scene.file(LEN);
    let short = scene.file(LEN - 1);
    let error = open(&[first.clone(), short.clone()]).unwrap_err();
    assert!(matches!(error, OpenError::Lengths { .. }));
    let text = error.to_string();
    assert!(text.contains(short.to_str().unwrap()) && text.contains(first.to_str().unwrap()), "{text}");
    for offset in [0, LEN / 2, LEN - 1] {
        let other = scene.file(LEN);
        open(&[first.clone(), other.clone()]).unwrap();
        let file = OpenOptions::new().write(true).open(&other).unwrap();
        file.write_all_at(&[!crate::scene::byte(offset)], offset).unwrap();
        let error = open(&[first.clone(), other.clone()]).unwrap_err();
        assert!(matches!(&error, OpenError::Differ { path, .. } if *path == other), "{error}");
    }
    assert!(matches!(open(&[]).unwrap_err(), OpenError::PathCount { count: 0, .. }));
    let gone = scene.folder.path().join("gone");
    let text = open(&[first, gone.clone()]).unwrap_err().to_string();
    assert!(text.starts_with(&format!("{}: cannot be opened", gone.display())), "{text}");
    let folder = open(&[scene.folder.path().to_path_buf()]).unwrap_err();
    assert!(matches!(folder, OpenError::NotAFile(_)), "{folder}");
}

/// Only three blocks of 4 KiB were compared: a copy with a gap anywhere else gave other bytes, and nobody knew.
pub fn an_unfinished_copy_is_refused(scene: &Scene) {
    const LEN: u64 = 40 << 20;
    let first = scene.file(LEN);
    let open = |other: &std::path::Path| {
        let set = FileSet { paths: vec![first.clone(), other.to_owned()] };
        Reader::<Aligned>::open_with(&[set], &scene.options()).map(drop)
    };
    let other = scene.file(LEN);
    open(&other).unwrap();
    let file = OpenOptions::new().write(true).open(&other).unwrap();
    // A gap of zeros that takes its room: whatever the file system says of holes.
    let zeros = vec![0; 9 << 20];
    file.write_all_at(&zeros, 25 << 20).unwrap();
    let error = open(&other).unwrap_err();
    assert!(
        matches!(&error, OpenError::Differ { offset, .. } if (25 << 20..34 << 20).contains(offset)),
        "{error}"
    );
    // What a copy that grows out of order looks like: all but one MiB, which was never written.
    let bytes: Vec<u8> = (0..LEN).map(crate::scene::byte).collect();
    let (gap, end) = (7 << 20, 8 << 20);
    let other = scene.folder.path().join("holed");
    let file = std::fs::File::create(&other).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(&bytes[..gap], 0).unwrap();
    file.write_all_at(&bytes[end..], end as u64).unwrap();
    file.sync_all().unwrap();
    if rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).is_ok_and(|hole| hole < LEN) {
        let error = open(&other).unwrap_err();
        assert!(matches!(&error, OpenError::Differ { offset, .. } if *offset == gap as u64), "{error}");
    } else {
        crate::scene::skipped("holes: the file system of temporary files does not tell of them");
    }
}

/// Zeros are zeros, written or not.
pub fn a_copy_whose_zeros_are_holes_is_a_copy(scene: &Scene) {
    const LEN: u64 = 40 << 20;
    let [first, copy] = ["zeros", "holes"].map(|name| scene.folder.path().join(name));
    for (path, from) in [(&first, 0), (&copy, 30 << 20)] {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(LEN).unwrap();
        file.write_all_at(&vec![0; (LEN - from) as usize], from).unwrap();
    }
    scene.mirrored(&[first, copy], &scene.options());
}

/// A reader of two mirrors of 200,000 bytes whose I/Os `decide` changes.
fn two(scene: &Scene, decide: fn(usize, u64) -> Injected) -> Reader<Aligned> {
    let paths = [scene.file(200_000), scene.file(200_000)];
    let faults = Some(Faults::new(move |attempt| decide(attempt.path, attempt.offset)));
    scene.mirrored(&paths, &Options { piece: 4096, depth: 4, faults, ..scene.options() })
}

pub fn a_failing_mirror_is_made_up_for(scene: &Scene) {
    let decide = |path, _| if path == 0 { Injected::Error(EIO) } else { Injected::Real };
    let mut reader = two(scene, decide);
    let parts = [part(1000, 150_000), part(0, 1)];
    check(&read(&mut reader, &parts), &parts);
    let report = reader.report();
    assert!(report.counters.moved > 0 && report.files[0].errors == report.counters.moved);
    assert_eq!((report.files[1].errors, report.counters.failed), (0, 0));
}

pub fn a_truncated_mirror_is_made_up_for(scene: &Scene) {
    let mut reader = two(scene, |_, _| Injected::Real);
    let path = reader.report().files[1].path.clone();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(100_100).unwrap();
    let parts = [part(90_000, 110_000)];
    check(&read(&mut reader, &parts), &parts);
    assert!(reader.report().files[1].errors > 0);
}

pub fn when_all_fail_the_last_is_told(scene: &Scene) {
    let decide = |_, offset| if offset >= 8192 { Injected::Error(EIO) } else { Injected::Real };
    let mut reader = two(scene, decide);
    let Outcome::Failed(failed) = read(&mut reader, &[part(8200, 10), part(9, 9)]).outcome else { panic!() };
    assert!(failed.parts[1].is_ok());
    let (_, error) = failed.first().unwrap();
    assert_eq!((error.fault, error.mirrors, error.offset), (ReadFault::System(EIO), 2, 8200));
    assert!(error.to_string().ends_with("(the last of 2 mirrors)"), "{error}");
}

pub fn equal_mirrors_share(scene: &Scene) {
    let mut reader = two(scene, |_, _| Injected::Real);
    for _ in 0..10 {
        check(&read(&mut reader, &[part(0, 200_000)]), &[part(0, 200_000)]);
    }
    // How equal depends on the machine's mood, and is tested with simulated drives; none is left out.
    let report = reader.report();
    assert!(report.files.iter().all(|f| f.reads > 0), "{report}");
    assert_ne!(report.files[0].drive, report.files[1].drive);
}

pub fn a_slow_mirror_gets_less(scene: &Scene) {
    let slow = Injected::Slow(Duration::from_millis(500));
    let decide = move |path, _| if path == 0 { slow } else { Injected::Real };
    let mut reader = {
        let paths = [scene.file(200_000), scene.file(200_000)];
        let faults = Some(Faults::new(move |a| decide(a.path, a.offset)));
        scene.mirrored(&paths, &Options { piece: 4096, depth: 4, faults, ..scene.options() })
    };
    for _ in 0..10 {
        check(&read(&mut reader, &[part(0, 200_000)]), &[part(0, 200_000)]);
    }
    let report = reader.report();
    let (slow, quick) = (report.files[0].reads, report.files[1].reads);
    assert!(slow >= 1 && quick > 4 * slow, "{slow} {quick}");
}
