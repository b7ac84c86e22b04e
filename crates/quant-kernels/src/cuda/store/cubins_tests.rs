//! The order of the places, with a compiler that only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::cuda::pack::Entry;
use crate::cuda::unit::Key;

const V: Version = Version { major: 12, minor: 9 };
static A: Unit = Unit { name: "a", source: "a", headers: &[], entries: &[] };
static B: Unit = Unit { name: "b", source: "b", headers: &[], entries: &[] };

/// Knows sm_80 and sm_90; its code says for which.
struct Fake(Arc<AtomicUsize>);

impl Compile for Fake {
    fn version(&self) -> Version {
        V
    }

    fn archs(&self) -> Result<Vec<Arch>, NvrtcError> {
        Ok(vec![Arch::new(80), Arch::new(90)])
    }

    fn compile(&self, unit: &Unit, arch: Arch) -> Result<Vec<u8>, NvrtcError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{} {arch}", unit.name).into_bytes())
    }
}

struct Bench {
    folder: tempfile::TempDir,
    compilations: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("folder"), compilations: Arc::default() }
    }

    /// A new process: everything but the files is forgotten.
    fn start(&self, pack: Option<&'static [u8]>, compiler: bool, only: Option<Origin>) -> Cubins {
        let counter = Arc::clone(&self.compilations);
        let open: Open = Box::new(move || {
            if compiler { Ok(Box::new(Fake(Arc::clone(&counter)))) } else { Err(NvrtcError::NotFound) }
        });
        let folder = self.folder.path().join("deep/kernels");
        Cubins::with(pack, Some(Files::new(folder)), open, only)
    }

    fn compiled(&self) -> usize {
        self.compilations.load(Ordering::Relaxed)
    }
}

fn pack() -> &'static [u8] {
    let arch = Arch::new(80);
    let entries = vec![Entry::new("a", arch, Key::of(&A, arch, V), b"packed")];
    Pack { compiler: V, entries }.to_bytes().leak()
}

fn get(cubins: &Cubins, unit: &'static Unit, device: u32) -> (String, Origin) {
    let found = cubins.find(unit, Arch::new(device)).expect("found");
    (String::from_utf8_lossy(&found.cubin).into_owned(), found.origin)
}

#[test]
fn the_pack_is_first_then_the_cache_then_the_compiler() {
    let bench = Bench::new();
    let cubins = bench.start(Some(pack()), true, None);
    assert_eq!(get(&cubins, &A, 86), ("packed".to_owned(), Origin::Pack));
    assert_eq!(get(&cubins, &A, 90), ("a sm_90".to_owned(), Origin::Nvrtc));
    assert_eq!(get(&cubins, &B, 89), ("b sm_80".to_owned(), Origin::Nvrtc));
    assert_eq!(get(&cubins, &B, 89), ("b sm_80".to_owned(), Origin::Cache));
    assert_eq!(bench.compiled(), 2);
    // Another process, and the compiler was removed meanwhile.
    let later = bench.start(None, false, None);
    assert_eq!(get(&later, &A, 90), ("a sm_90".to_owned(), Origin::Cache));
    assert_eq!(get(&later, &B, 89), ("b sm_80".to_owned(), Origin::Cache));
}

#[test]
fn a_damaged_file_is_built_anew() {
    let bench = Bench::new();
    get(&bench.start(None, true, None), &A, 90);
    let folder = bench.folder.path().join("deep/kernels");
    let name = format!("{}.cubin", Key::of(&A, Arch::new(90), V));
    let good = std::fs::read(folder.join(&name)).expect("kept");
    for damaged in [&b""[..], b"text", &good[..good.len() - 1], &[&good[..], b"x"].concat()] {
        std::fs::write(folder.join(&name), damaged).expect("written");
        assert_eq!(get(&bench.start(None, true, None), &A, 90).1, Origin::Nvrtc);
        assert_eq!(std::fs::read(folder.join(&name)).expect("kept"), good);
    }
    std::fs::write(folder.join("compiler"), "nonsense").expect("written");
    assert_eq!(get(&bench.start(None, true, None), &A, 90).1, Origin::Nvrtc);
    assert_eq!(get(&bench.start(None, false, None), &A, 90).1, Origin::Cache);
}

#[test]
fn one_place_can_be_forced() {
    let bench = Bench::new();
    let forced = |origin| bench.start(Some(pack()), true, Some(origin));
    assert_eq!(get(&forced(Origin::Nvrtc), &A, 80), ("a sm_80".to_owned(), Origin::Nvrtc));
    assert!(forced(Origin::Cache).find(&A, Arch::new(80)).is_err(), "a forced compiler wrote a file");
    assert_eq!(get(&forced(Origin::Pack), &A, 80).1, Origin::Pack);
    let error = forced(Origin::Pack).find(&B, Arch::new(80)).expect_err("not packed").to_string();
    assert!(error.contains("pack: it has no such entry") && !error.contains("cache:"), "{error}");
}

#[test]
fn nothing_anywhere_names_three_remedies() {
    let bench = Bench::new();
    let error = bench.start(None, false, None).find(&A, Arch::new(90)).expect_err("nothing").to_string();
    for part in ["sm_90", "release binary", "install NVRTC", "set MAYA_NVRTC", "cache: it has no such file"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = bench.start(Some(b"no pack"), true, None).find(&A, Arch::new(120)).expect_err("too new");
    let text = error.to_string();
    assert!(text.contains("12.9 does not know sm_120") && text.contains("MAYAPACK"), "{text}");
}

#[test]
fn places_are_read_by_name() {
    assert_eq!("nvrtc".parse(), Ok(Origin::Nvrtc));
    let error = "disk".parse::<Origin>().expect_err("no place").to_string();
    assert_eq!(error, "MAYA_KERNELS is `disk`; it may be pack, cache or nvrtc");
}
