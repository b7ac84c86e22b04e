//! Files of earlier compilations: `<key>.cubin`, each a pack of one, and the version of the compiler that wrote last.

use std::fs;
use std::path::PathBuf;

use crate::cuda::pack::{Entry, Pack, write_whole};
use crate::cuda::unit::{Arch, Key, Unit, Version};

/// Names the compiler's version: it is part of every key, and a machine may have lost the compiler itself.
const COMPILER: &str = "compiler";

/// The folder. Whatever is damaged, missing or not ours is no file; nothing is ever an error.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
}

impl Files {
    /// A folder that need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The compiler that wrote last.
    pub fn compiler(&self) -> Option<Version> {
        let text = fs::read_to_string(self.folder.join(COMPILER)).ok()?;
        let (major, minor) = text.trim().split_once('.')?;
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The unit's code for exactly this architecture, by this compiler.
    pub fn read(&self, unit: &Unit, arch: Arch, compiler: Version) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(unit, arch, compiler)).ok()?;
        let pack = Pack::parse(&bytes).ok().filter(|pack| pack.compiler == compiler)?;
        // Checks name, key and digest once more.
        let found = pack.find(unit, arch).ok()??;
        (found.0 == arch).then(|| found.1.to_vec())
    }

    /// Keeps a compilation; whether it could.
    pub fn write(&self, unit: &Unit, arch: Arch, compiler: Version, cubin: &[u8]) -> bool {
        let entries = vec![Entry::new(unit.name, arch, Key::of(unit, arch, compiler), cubin)];
        let bytes = Pack { compiler, entries }.to_bytes();
        fs::create_dir_all(&self.folder).is_ok()
            && write_whole(&self.path(unit, arch, compiler), &bytes).is_ok()
            && (self.compiler() == Some(compiler)
                || write_whole(&self.folder.join(COMPILER), format!("{compiler}\n").as_bytes()).is_ok())
    }

    fn path(&self, unit: &Unit, arch: Arch, compiler: Version) -> PathBuf {
        self.folder.join(format!("{}.cubin", Key::of(unit, arch, compiler)))
    }
}
