//! NVIDIA's run-time compiler, looked for when it is needed.

mod library;
mod resources;

use std::path::{Path, PathBuf};

pub use resources::Resources;

use super::unit::{Arch, Unit, Version, options};
use library::Library;

/// Overrides where the library is looked for: a file or a folder.
pub const VARIABLE: &str = "MAYA_NVRTC";
/// Names of the library, the pack's own major version first.
const NAMES: [&str; 3] = ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"];
/// Folders of toolkits that the loader does not search by itself.
const FOLDERS: [&str; 4] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/opt/cuda/lib64",
    "/usr/lib/cuda/lib64",
];

/// Why there is no cubin from the compiler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvrtcError {
    /// The library that was asked for.
    #[error("NVRTC cannot be loaded from {}: {why}", path.display())]
    Load {
        /// The file or folder.
        path: PathBuf,
        /// What the loader said.
        why: String,
    },
    /// No library anywhere.
    #[error("no NVRTC was found (libnvrtc.so.12); install it or set {VARIABLE} to its file or folder")]
    NotFound,
    /// A library without a function.
    #[error("the NVRTC library has no function {function}")]
    NoFunction {
        /// The function.
        function: &'static str,
    },
    /// Text that cannot be handed over.
    #[error("unit {unit} holds a zero byte")]
    ZeroByte {
        /// The unit.
        unit: &'static str,
    },
    /// A refused source.
    #[error("unit {unit} does not compile for {arch}:\n{log}")]
    Compile {
        /// The unit.
        unit: &'static str,
        /// For which architecture.
        arch: Arch,
        /// What the compiler wrote.
        log: String,
    },
    /// Another call that failed.
    #[error("{call} failed: {why}")]
    Call {
        /// The compiler's function.
        call: &'static str,
        /// Its result's name.
        why: String,
    },
}

/// What the compiler made of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Code for one architecture.
    pub cubin: Vec<u8>,
    /// Everything the compiler wrote.
    pub log: String,
    /// What each entry takes, as the log says.
    pub resources: Vec<Resources>,
}

impl Compiled {
    /// The log without reports of resources and without the word that old architectures are deprecated. Not empty is a
    /// warning: 12.9 has no option that turns warnings into errors.
    pub fn warnings(&self) -> String {
        resources::warnings(&self.log)
    }
}

/// The compiler.
#[derive(Debug)]
pub struct Nvrtc {
    library: Library,
    version: Version,
    path: PathBuf,
}

impl Nvrtc {
    /// The library at `given`, else at what `MAYA_NVRTC` names, else wherever toolkits put it.
    pub fn find(given: Option<&Path>) -> Result<Self, NvrtcError> {
        let named = given.map(Path::to_owned);
        let named = named.or_else(|| std::env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from));
        if let Some(path) = named {
            return Self::open_named(&path);
        }
        let installed = FOLDERS.iter().flat_map(|f| NAMES.map(|name| Path::new(f).join(name)));
        let places = NAMES.into_iter().map(PathBuf::from).chain(installed.filter(|p| p.is_file()));
        places.into_iter().find_map(|path| Self::open(&path).ok()).ok_or(NvrtcError::NotFound)
    }

    fn open_named(path: &Path) -> Result<Self, NvrtcError> {
        if !path.is_dir() {
            return Self::open(path);
        }
        match NAMES.iter().map(|name| path.join(name)).find(|file| file.is_file()) {
            Some(file) => Self::open(&file),
            None => Err(NvrtcError::Load {
                path: path.to_owned(),
                why: format!("the folder holds none of {}", NAMES.join(", ")),
            }),
        }
    }

    fn open(path: &Path) -> Result<Self, NvrtcError> {
        let library = Library::open(path)?;
        let version = library.version()?;
        Ok(Self { library, version, path: path.to_owned() })
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it was found; a bare name was found by the loader.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The architectures that it compiles for, ascending.
    pub fn archs(&self) -> Result<Vec<Arch>, NvrtcError> {
        self.library.archs()
    }

    /// Compiles a unit for one real architecture.
    pub fn compile(&self, unit: &Unit, arch: Arch) -> Result<Compiled, NvrtcError> {
        let (cubin, log) = self.library.compile(unit, arch, &options(arch))?;
        Ok(Compiled { cubin, resources: resources::parse(&log), log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_sentence() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("libnvrtc.so.12");
        let error = Nvrtc::find(Some(folder.path())).expect_err("an empty folder");
        assert!(error.to_string().contains("holds none of libnvrtc.so.12"), "{error}");
        assert!(matches!(Nvrtc::find(Some(&file)), Err(NvrtcError::Load { .. })));
        std::fs::write(&file, "no library").expect("written");
        let error = Nvrtc::find(Some(folder.path())).expect_err("a text");
        assert!(error.to_string().starts_with("NVRTC cannot be loaded from "), "{error}");
    }

    /// Compiles the probe where there is a compiler: its bytes are reproducible, its log is understood.
    #[test]
    fn the_probe_compiles() {
        let nvrtc = match Nvrtc::find(None) {
            Ok(nvrtc) => nvrtc,
            Err(error) => return println!("skipped the_probe_compiles: {error}"),
        };
        let unit = &crate::cuda::PROBE;
        let arch = Arch::new(90);
        let compiled = nvrtc.compile(unit, arch).expect("compiles");
        assert!(compiled.cubin.starts_with(b"\x7fELF"));
        assert_eq!(compiled.warnings(), "");
        assert_eq!(compiled.resources.len(), unit.entries.len(), "{}", compiled.log);
        assert_eq!(nvrtc.compile(unit, arch).expect("again").cubin, compiled.cubin);
        let broken = Unit { name: "broken", source: "int f() { return x; }", headers: &[], entries: &[] };
        let error = nvrtc.compile(&broken, arch).expect_err("no x").to_string();
        assert!(error.contains("broken does not compile for sm_90") && error.contains("\"x\""), "{error}");
        assert!(nvrtc.compile(unit, Arch::new(31)).is_err());
    }
}
