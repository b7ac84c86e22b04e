//! Where a unit's code comes from: the pack in the binary, files of earlier runs, or the compiler.

mod cubins;
mod files;

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use cubins::Origin;

use super::driver::{Context, DriverError, Module};
use super::unit::{Arch, Unit};
use cubins::Cubins;
use files::Files;

/// Forces one place.
const VARIABLE: &str = "MAYA_KERNELS";

/// Why a unit has no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// `MAYA_KERNELS` says something else.
    #[error("{VARIABLE} is `{text}`; it may be pack, cache or nvrtc")]
    Variable {
        /// What it says.
        text: String,
    },
    /// No place had it.
    #[error(
        "there is no code of unit {unit} for {arch}: {tried}. Use a release binary, which has kernels built in; or \
         install NVRTC 12 or newer; or set MAYA_NVRTC to its libnvrtc.so"
    )]
    Missing {
        /// The unit.
        unit: &'static str,
        /// The device's architecture.
        arch: Arch,
        /// What each place said.
        tried: String,
    },
    /// The driver refused the code.
    #[error("the code of unit {unit} from {origin} cannot be loaded: {source}")]
    Load {
        /// The unit.
        unit: &'static str,
        /// Where it came from.
        origin: Origin,
        /// The driver's word.
        source: DriverError,
    },
}

/// Where code may come from.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// The pack that the binary carries.
    pub pack: Option<&'static [u8]>,
    /// The folder of earlier compilations; created when the first is written.
    pub cache: Option<PathBuf>,
    /// The compiler's library, or the folder that it lies in; without it, the usual places.
    pub nvrtc: Option<PathBuf>,
    /// The only place to ask.
    pub only: Option<Origin>,
}

impl StoreOptions {
    /// What the environment says: `XDG_CACHE_HOME` or `HOME`, and `MAYA_KERNELS`.
    pub fn from_environment(pack: Option<&'static [u8]>) -> Result<Self, StoreError> {
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let only = match std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
            Some(text) => Some(text.to_string_lossy().parse()?),
            None => None,
        };
        Ok(Self { pack, cache: cache.map(|c| c.join("maya").join("kernels")), nvrtc: None, only })
    }
}

impl FromStr for Origin {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let all = [Self::Pack, Self::Cache, Self::Nvrtc];
        all.into_iter()
            .find(|o| o.name() == text)
            .ok_or_else(|| StoreError::Variable { text: text.to_owned() })
    }
}

/// Loaded units of one device. Several threads may load at once: units are then compiled side by side.
pub struct KernelStore {
    context: Context,
    arch: Arch,
    cubins: Cubins,
    loaded: Mutex<HashMap<&'static str, (Module, Origin)>>,
}

impl KernelStore {
    /// A store for a device. Nothing is read or compiled yet.
    pub fn open(context: &Context, options: StoreOptions) -> Self {
        Self {
            context: context.clone(),
            arch: Arch::new(context.device().arch()),
            cubins: Cubins::new(options.pack, options.cache.map(Files::new), options.nvrtc, options.only),
            loaded: Mutex::default(),
        }
    }

    /// The unit's module, loaded once.
    pub fn load(&self, unit: &'static Unit) -> Result<Module, StoreError> {
        if let Some((module, _)) = self.loaded().get(unit.name) {
            return Ok(module.clone());
        }
        // Not under the lock: it may take seconds.
        let found = self.cubins.find(unit, self.arch)?;
        let module = Module::load(&self.context, &found.cubin).map_err(|source| StoreError::Load {
            unit: unit.name,
            origin: found.origin,
            source,
        })?;
        Ok(self.loaded().entry(unit.name).or_insert((module, found.origin)).0.clone())
    }

    /// Loads all of `units`. Those that have to be compiled are on all cores at once, 0.1 to 0.3 GB of memory each, in the order given: the
    /// one that takes longest should be the first.
    pub fn load_all(&self, units: &[&'static Unit]) -> Result<(), StoreError> {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.load(unit)?;
            }
            Ok(())
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(units.len());
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            others.into_iter().fold(own, |result, other| {
                result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }

    /// Where a loaded unit came from.
    pub fn origin(&self, unit: &Unit) -> Option<Origin> {
        self.loaded().get(unit.name).map(|(_, origin)| *origin)
    }

    /// Whose code it is.
    pub fn context(&self) -> &Context {
        &self.context
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, (Module, Origin)>> {
        // Every change is one insertion, so a panic elsewhere leaves it whole.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
