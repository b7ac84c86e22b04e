//! Units of device code: what is compiled together, and the options that keep its arithmetic ours.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::matvec::MATVECS;
use super::rows;

/// Text that is compiled by itself, embedded in the binary.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name: that of its file, without the extension.
    pub name: &'static str,
    /// Its text.
    pub source: &'static str,
    /// Headers that it includes, by the name in the `#include` line.
    pub headers: &'static [(&'static str, &'static str)],
    /// Its `extern "C"` entries.
    pub entries: &'static [&'static str],
}

/// A file of the folder `kernels/`.
macro_rules! device_code {
    ($path:literal) => {
        include_str!(concat!("../../../../kernels/", $path))
    };
}

const BASE: (&str, &str) = ("base.cuh", device_code!("include/base.cuh"));

/// The smallest unit, for self-tests.
pub static PROBE: Unit = Unit {
    name: "probe",
    source: device_code!("quant/probe.cu"),
    headers: &[BASE],
    entries: &["probe_axpy", "probe_widen"],
};

/// The units of this crate: the probe, and the products.
#[must_use]
pub fn units() -> Vec<&'static Unit> {
    let matvecs = MATVECS.iter().map(|(_, unit)| unit);
    std::iter::once(&PROBE).chain(matvecs).chain(rows::UNITS).collect()
}

/// A real architecture: `sm_90` is 90.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch(u32);

impl Arch {
    /// What a pack holds: from a V100 to an RTX 50.
    pub const SHIPPED: [Self; 8] =
        [Self(70), Self(75), Self(80), Self(86), Self(89), Self(90), Self(100), Self(120)];

    /// The architecture of this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether a device of architecture `device` runs code for this one: same major number, not newer.
    pub const fn runs_on(self, device: Self) -> bool {
        self.0 / 10 == device.0 / 10 && self.0 <= device.0
    }

    /// The best of `offered` for a device: its own, or else the newest that it runs.
    pub fn best(device: Self, offered: impl IntoIterator<Item = Self>) -> Option<Self> {
        offered.into_iter().filter(|arch| arch.runs_on(device)).max()
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.0)
    }
}

/// Text that names no architecture.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no architecture; write it as sm_90")]
pub struct ArchError {
    /// The text.
    pub text: String,
}

impl FromStr for Arch {
    type Err = ArchError;

    fn from_str(text: &str) -> Result<Self, ArchError> {
        let digits = text.strip_prefix("sm_").unwrap_or(text);
        let number = digits.parse().ok().filter(|n| (30..1000).contains(n) && !digits.starts_with('+'));
        number.map(Self).ok_or_else(|| ArchError { text: text.to_owned() })
    }
}

/// A compiler's version: 12.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Before the dot.
    pub major: u32,
    /// After it.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The compiler's options. docs/ARITHMETIC.md's results depend on the four about rounding.
pub fn options(arch: Arch) -> Vec<String> {
    let fixed = [
        "--std=c++17",
        "--fmad=false",
        "--ftz=false",
        "--prec-div=true",
        "--prec-sqrt=true",
        "-default-device",
        // Registers and spills of every entry go to the log.
        "--ptxas-options=-v",
    ];
    std::iter::once(format!("--gpu-architecture={arch}")).chain(fixed.map(str::to_owned)).collect()
}

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// Of everything that decides a cubin's bytes. Every part goes in with its length, so that no two lists of parts
    /// give the same bytes.
    pub fn of(unit: &Unit, arch: Arch, compiler: Version) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(b"maya kernel 1");
        part(unit.source.as_bytes());
        part(&(unit.headers.len() as u64).to_le_bytes());
        for (name, text) in unit.headers {
            part(name.as_bytes());
            part(text.as_bytes());
        }
        for option in options(arch) {
            part(option.as_bytes());
        }
        part(compiler.to_string().as_bytes());
        Self(hash.finalize().into())
    }

    /// Of bytes as they are.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: Version = Version { major: 12, minor: 9 };
    const A: Unit = Unit { name: "a", source: "int x;", headers: &[("h", "text")], entries: &[] };

    #[test]
    fn names_and_entries_are_unique() {
        let units = units();
        for (i, a) in units.iter().enumerate() {
            assert!(!a.entries.is_empty(), "{} has no entries", a.name);
            for b in &units[..i] {
                assert_ne!(a.name, b.name);
                assert!(a.entries.iter().all(|e| !b.entries.contains(e)), "{} and {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn every_entry_and_header_stands_in_the_source() {
        for unit in units() {
            for entry in unit.entries {
                assert!(unit.source.contains(entry), "{}: {entry}", unit.name);
            }
            let texts = unit.headers.iter().map(|(_, text)| *text).chain([unit.source]);
            for text in texts {
                for line in text.lines().filter(|l| l.trim_start().starts_with("#include")) {
                    let name = line.split('"').nth(1).unwrap_or(line);
                    assert!(unit.headers.iter().any(|(h, _)| *h == name), "{}: {line}", unit.name);
                }
            }
        }
    }

    #[test]
    fn options_never_allow_fast_arithmetic() {
        let options = options(Arch::new(90));
        for wanted in ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"] {
            assert!(options.iter().any(|o| o == wanted), "{wanted}");
        }
        assert_eq!(options[0], "--gpu-architecture=sm_90");
        assert!(!options.iter().any(|o| o.contains("fast")));
    }

    /// A key that changed would throw away every cache; one that did not would keep stale code.
    #[test]
    fn a_key_follows_everything_that_decides_the_bytes() {
        let key = Key::of(&A, Arch::new(90), V);
        assert_eq!(key.to_string(), "874863ff48a864ae4b7f97e87f729c52b8d4bd9a44943b94e5601033e6770943");
        assert_eq!(key, Key::of(&Unit { name: "b", entries: &["x"], ..A }, Arch::new(90), V));
        for other in [
            Key::of(&Unit { source: "int y;", ..A }, Arch::new(90), V),
            Key::of(&Unit { headers: &[("h", "Text")], ..A }, Arch::new(90), V),
            Key::of(&Unit { headers: &[("ht", "ext")], ..A }, Arch::new(90), V),
            Key::of(&Unit { headers: &[], ..A }, Arch::new(90), V),
            Key::of(&A, Arch::new(89), V),
            Key::of(&A, Arch::new(90), Version { minor: 8, ..V }),
        ] {
            assert_ne!(key, other);
        }
    }

    #[test]
    fn a_device_runs_its_own_and_older_code_of_its_major_number() {
        let best = |device, offered: &[u32]| {
            Arch::best(Arch::new(device), offered.iter().map(|n| Arch::new(*n))).map(Arch::number)
        };
        assert_eq!(best(86, &[70, 80, 86, 89]), Some(86));
        assert_eq!(best(87, &[80, 86, 89, 90]), Some(86));
        assert_eq!(best(121, &[100, 120]), Some(120));
        assert_eq!(best(103, &[90, 120]), None);
        assert_eq!(best(75, &[80]), None);
    }

    #[test]
    fn architectures_are_read() {
        assert_eq!(("sm_120".parse(), "90".parse()), (Ok(Arch::new(120)), Ok(Arch::new(90))));
        for text in ["", "sm_", "sm_+90", "sm_90a", "compute_90", "1", "99999"] {
            assert!(text.parse::<Arch>().is_err(), "{text}");
        }
    }
}
