//! Usage on the drive: what comes back, what is ignored, and what a kill leaves behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tier_cache::{ExpertId, Ignored, Loaded, MAX_IDENTITY, Owner, Usage};

const MODEL: &[u8] = b"fingerprint of a model";

fn example() -> Usage {
    let mut usage = Usage::new(3, 5).expect("small");
    for (i, count) in usage.counts_mut().iter_mut().enumerate() {
        *count = (i as u32 + 1) << (2 * i);
    }
    usage.owners_mut()[4] = Owner::Host;
    usage.owners_mut()[14] = Owner::Device;
    usage
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn what_is_saved_is_loaded() {
    let folder = folder();
    let path = folder.path().join("usage");
    assert!(matches!(Usage::load(&path, MODEL), Loaded::Absent));
    example().save(&path, MODEL).expect("saves");
    example().save(&path, MODEL).expect("saves over the old one");
    let Loaded::Usage(usage) = Usage::load(&path, MODEL) else { panic!("not loaded") };
    assert_eq!((&usage, usage.owners()[14]), (&example(), Owner::Device));
    assert_eq!((usage.layers(), usage.experts()), (3, 5));
    assert_eq!(usage.layer_counts(2), &example().counts()[10..]);
    assert_eq!(usage.layer_counts(3), [0_u32; 0]);
    assert_eq!(usage.index(ExpertId { layer: 2, expert: 4 }), Some(14));
    assert_eq!(usage.index(ExpertId { layer: 0, expert: 5 }), None);
    assert_eq!(usage.index(ExpertId { layer: 3, expert: 0 }), None);
    assert_eq!(names(folder.path()), ["usage"]);
}

#[test]
fn sizes_that_cannot_be_saved_are_not_made() {
    assert!(Usage::new(u32::MAX, u32::MAX).is_none() && Usage::new(1 << 16, 1 << 16).is_none());
    let empty = Usage::new(0, 7).expect("empty");
    assert_eq!(Usage::decode(&empty.encode(b""), b"").expect("empty"), empty);
    let long = [7; MAX_IDENTITY + 9];
    assert!(Usage::decode(&example().encode(&long), &long).is_ok());
}

#[test]
fn what_is_of_no_use_says_why() {
    let whole = example().encode(MODEL);
    // With a checksum that is right, as a file of another program version has.
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole[..whole.len() - 8].to_vec();
        change(&mut bytes);
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    };
    let n = whole.len();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "it does not begin as a usage file does"),
        (b"GGUF and other files".to_vec(), "it does not begin as a usage file does"),
        (whole[..8].to_vec(), "it has 8 bytes and should have 32"),
        (whole[..31].to_vec(), "it has 31 bytes and should have 32"),
        (whole[..n - 1].to_vec(), "it has 128 bytes and should have 129"),
        ([&whole[..], &[0]].concat(), "it has 130 bytes and should have 129"),
        (sealed(&|bytes| bytes[8] = 2), "it has version 2, and this program knows 1"),
        (sealed(&|bytes| bytes[12..16].fill(255)), "it claims 4294967295 layers of 5 experts"),
        (sealed(&|bytes| bytes[20..24].fill(255)), "it claims an identity of 4294967295 bytes"),
        (sealed(&|bytes| bytes[30] ^= 1), "it is of another model"),
        (
            sealed(&|bytes| *bytes.last_mut().expect("bytes") = 3),
            "the owner at byte 120 is 3, which means nothing",
        ),
    ];
    for (bytes, sentence) in cases {
        let why = Usage::decode(&bytes, MODEL).expect_err(sentence).to_string();
        assert!(why.starts_with(sentence), "{why}");
    }
    // Damage of any one byte is found.
    for at in 0..n {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(Usage::decode(&bytes, MODEL).is_err(), "byte {at}");
    }
    for end in 0..n {
        assert!(Usage::decode(&whole[..end], MODEL).is_err(), "{end} bytes");
    }
}

#[test]
fn a_file_that_is_of_no_use_is_reported_and_replaced() {
    let folder = folder();
    let path = folder.path().join("usage");
    std::fs::write(&path, b"TIERUSE\0nonsense").expect("writes");
    assert!(matches!(Usage::load(&path, MODEL), Loaded::Ignored(Ignored::Version { .. })));
    example().save(&path, MODEL).expect("saves");
    assert!(matches!(Usage::load(&path, MODEL), Loaded::Usage(_)));
    assert!(matches!(Usage::load(&path, b"another"), Loaded::Ignored(Ignored::Foreign)));
    assert!(matches!(Usage::load(folder.path(), MODEL), Loaded::Ignored(Ignored::NotAFile)));
    let huge = std::fs::File::create(folder.path().join("huge")).expect("creates");
    huge.set_len(1 << 40).expect("sparse");
    let loaded = Usage::load(&folder.path().join("huge"), MODEL);
    assert!(matches!(loaded, Loaded::Ignored(Ignored::TooLarge { bytes: 0x100_0000_0000 })), "{loaded:?}");
}

#[test]
fn a_save_that_fails_names_the_path() {
    let folder = folder();
    let error = example().save(&folder.path().join("no/usage"), MODEL).expect_err("no folder").to_string();
    assert!(error.contains("/no could not be given a new file: "), "{error}");
    let error = example().save(folder.path(), MODEL).expect_err("a folder").to_string();
    assert!(error.contains("could not be replaced"), "{error}");
    assert_eq!(names(folder.path()), [""; 0]);
}

/// A save replaced whatever its path named by a rename: the model itself, notes, a pipe, `/dev/null`, and a link in place of
/// what it led to.
#[test]
fn what_is_not_usage_is_never_replaced() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let refused = |path: &Path| {
        let before = Usage::may_save(path).expect_err("refused before the work").to_string();
        let error = example().save(path, MODEL).expect_err("refused at the save").to_string();
        assert_eq!(before, error);
        error
    };
    for (name, bytes) in
        [("model.gguf", &b"GGUF\x03\0\0\0"[..]), ("notes", b"TIERUSE, notes"), ("short", b"TIER")]
    {
        std::fs::write(at(name), bytes).expect("writes");
        let error = refused(&at(name));
        assert!(error.contains(name) && error.ends_with("a file that is not usage is there"), "{error}");
        std::os::unix::fs::symlink(name, at("link")).expect("links");
        assert!(refused(&at("link")).contains(name), "the target is judged, not the link");
        std::fs::remove_file(at("link")).expect("removes");
        assert_eq!(std::fs::read(at(name)).expect("is there"), bytes);
    }
    if Command::new("mkfifo").arg(at("pipe")).status().is_ok_and(|status| status.success()) {
        assert!(refused(&at("pipe")).ends_with("a folder, pipe or device is there"));
        assert!(!at("pipe").is_file());
    }
    std::os::unix::fs::symlink("circle", at("circle")).expect("links");
    assert!(refused(&at("circle")).contains("circle"));
}

#[test]
fn links_stay_links_and_an_empty_file_is_a_first_run() {
    let folder = folder();
    let (link, elsewhere) = (folder.path().join("link"), folder.path().join("elsewhere"));
    std::fs::create_dir(&elsewhere).expect("a folder");
    std::os::unix::fs::symlink("elsewhere/usage", &link).expect("links");
    // What the link leads to: nothing, an empty file, usage.
    Usage::may_save(&link).expect("nothing is there");
    example().save(&link, MODEL).expect("saves");
    std::fs::write(elsewhere.join("usage"), b"").expect("writes");
    assert!(matches!(Usage::load(&link, MODEL), Loaded::Absent));
    for _ in 0..2 {
        example().save(&link, MODEL).expect("saves");
        assert!(link.is_symlink() && matches!(Usage::load(&link, MODEL), Loaded::Usage(_)));
    }
    assert_eq!(names(&elsewhere), ["usage"]);
}

/// Ids come back, above all in containers, where the program's is the same at each start.
#[test]
fn files_left_behind_are_removed_and_others_are_not() {
    let folder = folder();
    let path = folder.path().join("usage");
    let write = |name: &str| std::fs::write(folder.path().join(name), b"half").expect("writes");
    let own = format!(".usage.{}-999999.tmp", std::process::id());
    let alive = ".usage.1-0.tmp";
    let kept = [alive, ".usage.x-0.tmp", ".usage.1.tmp", ".other.2147483647-0.tmp", "usage.2147483647-0.tmp"];
    for name in kept {
        write(name);
    }
    write(".usage.2147483647-0.tmp");
    write(&own);
    example().save(&path, MODEL).expect("saves");
    let mut left = names(folder.path());
    left.retain(|name| name != "usage");
    left.sort();
    let mut kept: Vec<String> = kept.iter().map(|name| name.to_string()).collect();
    kept.sort();
    assert_eq!(left, kept);
}

#[test]
fn threads_that_save_to_one_path_do_not_meet() {
    let folder = folder();
    let path = folder.path().join("usage");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    example().save(&path, MODEL).expect("saves");
                }
            });
        }
    });
    assert_eq!(names(folder.path()), ["usage"]);
}

/// In every file that the child writes all counts are the same, so half a file would show.
fn generation(number: u32) -> Usage {
    let mut usage = Usage::new(42, 288).expect("small");
    usage.counts_mut().fill(number);
    usage
}

const CHILD: &str = "TIER_CACHE_SAVES_TO";

/// Not a test by itself: the process that [`a_kill_at_any_moment_leaves_a_whole_file`] kills.
#[test]
fn child_that_saves_in_a_loop() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let start = Instant::now();
    // Ends by itself should its parent die first.
    for number in 0.. {
        generation(number).save(&path, MODEL).expect("saves");
        if start.elapsed() > Duration::from_secs(30) {
            return;
        }
    }
}

/// 20 kills; `TIER_CACHE_KILLS=200` is the long run.
#[test]
fn a_kill_at_any_moment_leaves_a_whole_file() {
    let kills = std::env::var("TIER_CACHE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    let folder = folder();
    let path = folder.path().join("usage");
    let (mut loaded, mut half_written) = (0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child_that_saves_in_a_loop"])
            .env(CHILD, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // From before its first save to many saves later.
        std::thread::sleep(Duration::from_micros(random % 60_000));
        child.kill().expect("kills");
        child.wait().expect("ends");
        match Usage::load(&path, MODEL) {
            Loaded::Usage(usage) => {
                assert_eq!(usage, generation(usage.counts()[0]), "kill {kill}");
                loaded += 1;
            }
            Loaded::Absent => assert_eq!(loaded, 0, "kill {kill}: the file is gone"),
            Loaded::Ignored(why) => panic!("kill {kill}: {why}"),
        }
        half_written += names(folder.path()).iter().filter(|name| name.ends_with(".tmp")).count();
        assert!(half_written <= kill as usize + 1, "files left behind pile up");
        generation(0).save(&path, MODEL).expect("saves");
        loaded += 1;
        assert_eq!(names(folder.path()), ["usage"], "kill {kill}");
    }
    println!("{kills} kills: {loaded} files loaded, {half_written} caught before the rename");
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), magic: bool) {
        let bytes = if magic { [&b"TIERUSE\0\x01\0\0\0"[..], &bytes].concat() } else { bytes };
        prop_assert!(Usage::decode(&bytes, MODEL).is_err());
    }

    #[test]
    fn any_change_is_answered(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = example().encode(MODEL);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(usage) = Usage::decode(&bytes, MODEL) {
            prop_assert_eq!(usage, example());
        }
    }

    #[test]
    fn any_usage_comes_back(
        side in (0_u32..6, 0_u32..9), seed in any::<u32>(), identity in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut usage = Usage::new(side.0, side.1).expect("small");
        for (i, count) in usage.counts_mut().iter_mut().enumerate() {
            *count = seed.wrapping_mul(i as u32 + 1);
        }
        for (i, owner) in usage.owners_mut().iter_mut().enumerate() {
            *owner = [Owner::Drive, Owner::Host, Owner::Device][(seed as usize).wrapping_add(i * i) % 3];
        }
        prop_assert_eq!(Usage::decode(&usage.encode(&identity), &identity).expect("its own"), usage);
    }
}
