//! The order of the places, without a device.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::StoreError;
use super::files::Files;
use crate::cuda::nvrtc::{Nvrtc, NvrtcError};
use crate::cuda::pack::Pack;
use crate::cuda::unit::{Arch, Unit, Version};

/// A place that code comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The pack in the binary.
    Pack,
    /// A file that an earlier run compiled.
    Cache,
    /// Compiled now.
    Nvrtc,
}

impl Origin {
    /// Its name in `MAYA_KERNELS` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Cache => "cache",
            Self::Nvrtc => "nvrtc",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Code for a device, and where it came from.
#[derive(Debug)]
pub struct Found {
    pub cubin: Cow<'static, [u8]>,
    pub origin: Origin,
}

/// What the store asks of a compiler. Tests have one without a library.
trait Compile: Send + Sync {
    fn version(&self) -> Version;
    fn archs(&self) -> Result<Vec<Arch>, NvrtcError>;
    fn compile(&self, unit: &Unit, arch: Arch) -> Result<Vec<u8>, NvrtcError>;
}

impl Compile for Nvrtc {
    fn version(&self) -> Version {
        self.version()
    }

    fn archs(&self) -> Result<Vec<Arch>, NvrtcError> {
        self.archs()
    }

    fn compile(&self, unit: &Unit, arch: Arch) -> Result<Vec<u8>, NvrtcError> {
        self.compile(unit, arch).map(|compiled| compiled.cubin)
    }
}

type Open = Box<dyn Fn() -> Result<Box<dyn Compile>, NvrtcError> + Send + Sync>;

/// All places.
pub struct Cubins {
    pack: Option<&'static [u8]>,
    parsed: OnceLock<Result<Pack<'static>, String>>,
    files: Option<Files>,
    /// Opened when it is first needed: the library is 100 MB.
    open: Open,
    compiler: OnceLock<Result<Box<dyn Compile>, NvrtcError>>,
    only: Option<Origin>,
}

impl Cubins {
    pub fn new(
        pack: Option<&'static [u8]>,
        files: Option<Files>,
        nvrtc: Option<PathBuf>,
        only: Option<Origin>,
    ) -> Self {
        let open: Open = Box::new(move || Ok(Box::new(Nvrtc::find(nvrtc.as_deref())?) as Box<dyn Compile>));
        Self::with(pack, files, open, only)
    }

    fn with(pack: Option<&'static [u8]>, files: Option<Files>, open: Open, only: Option<Origin>) -> Self {
        Self { pack, parsed: OnceLock::new(), files, open, compiler: OnceLock::new(), only }
    }

    /// The unit's code for a device of architecture `device`, from the first place that has it.
    pub fn find(&self, unit: &'static Unit, device: Arch) -> Result<Found, StoreError> {
        let mut tried = Vec::new();
        for place in [Origin::Pack, Origin::Cache, Origin::Nvrtc] {
            if self.only.is_some_and(|only| only != place) {
                continue;
            }
            let answer = match place {
                Origin::Pack => self.in_pack(unit, device).map(Cow::Borrowed),
                Origin::Cache => self.in_files(unit, device).map(Cow::Owned),
                Origin::Nvrtc => self.by_compiler(unit, device).map(Cow::Owned),
            };
            match answer {
                Ok(cubin) => return Ok(Found { cubin, origin: place }),
                Err(why) => tried.push(format!("{place}: {why}")),
            }
        }
        Err(StoreError::Missing { unit: unit.name, arch: device, tried: tried.join("; ") })
    }

    fn in_pack(&self, unit: &Unit, device: Arch) -> Result<&'static [u8], String> {
        let bytes = self.pack.ok_or("this binary has none")?;
        let pack = self.parsed.get_or_init(|| Pack::parse(bytes).map_err(|e| e.to_string()));
        let found = pack.as_ref().map_err(Clone::clone)?.find(unit, device).map_err(|e| e.to_string())?;
        found.map(|(_, cubin)| cubin).ok_or_else(|| "it has no such entry".to_owned())
    }

    fn in_files(&self, unit: &Unit, device: Arch) -> Result<Vec<u8>, String> {
        let files = self.files.as_ref().ok_or("there is no cache folder")?;
        // The compiler that wrote last, which may be gone; else the one that is here.
        let mut versions: Vec<Version> = files.compiler().into_iter().collect();
        if let Some(Ok(compiler)) = self.compiler.get() {
            versions.push(compiler.version());
        }
        let archs = (device.number() / 10 * 10..=device.number()).rev().map(Arch::new);
        let mut pairs = archs.flat_map(|arch| versions.iter().map(move |version| (arch, *version)));
        pairs
            .find_map(|(arch, version)| files.read(unit, arch, version))
            .ok_or_else(|| "it has no such file".to_owned())
    }

    fn by_compiler(&self, unit: &Unit, device: Arch) -> Result<Vec<u8>, String> {
        let compiler = self.compiler.get_or_init(|| (self.open)());
        let compiler = compiler.as_ref().map_err(ToString::to_string)?;
        let archs = compiler.archs().map_err(|e| e.to_string())?;
        let arch = Arch::best(device, archs)
            .ok_or_else(|| format!("version {} does not know {device}", compiler.version()))?;
        let cubin = compiler.compile(unit, arch).map_err(|e| e.to_string())?;
        if let Some(files) = self.files.as_ref().filter(|_| self.only.is_none()) {
            // A full or read-only disk costs the next start its time and this one nothing.
            let _ = files.write(unit, arch, compiler.version(), &cubin);
        }
        Ok(cubin)
    }
}

#[cfg(test)]
#[path = "cubins_tests.rs"]
mod tests;
