//! Large pages: those that the kernel makes by itself, and those that were set aside.

use super::System;

/// When the kernel makes large pages by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transparent {
    /// Everywhere.
    Always,
    /// Where a program asks for them, as expert slots do.
    Asked,
    /// Nowhere.
    Never,
}

impl Transparent {
    /// The kernel's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Asked => "madvise",
            Self::Never => "never",
        }
    }
}

/// What was found of both kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// `None` where the kernel does not say.
    pub transparent: Option<Transparent>,
    /// Sizes in bytes that can be set aside, with how many are and how many of them are free.
    pub reserved: Vec<(u64, u64, u64)>,
}

impl HugePages {
    /// Those of a system.
    pub fn of(system: &System) -> Self {
        let state = system.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let chosen = state.split('[').nth(1).and_then(|rest| rest.split(']').next());
        let transparent = match chosen {
            Some("always") => Some(Transparent::Always),
            Some("madvise") => Some(Transparent::Asked),
            Some("never") => Some(Transparent::Never),
            _ => None,
        };
        const FOLDER: &str = "sys/kernel/mm/hugepages";
        let size = |name: String| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = |file: &str| system.number(format!("{FOLDER}/{name}/{file}"));
            Some((kib.checked_mul(1024)?, count("nr_hugepages")?, count("free_hugepages")?))
        };
        let mut reserved: Vec<_> = system.names(FOLDER).into_iter().filter_map(size).collect();
        reserved.sort_unstable();
        Self { transparent, reserved }
    }

    /// Bytes that were set aside and that nobody uses: lost for everyone who does not ask for such pages.
    pub fn idle(&self) -> u64 {
        self.reserved.iter().fold(0, |sum, (size, _, free)| sum.saturating_add(size.saturating_mul(*free)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::made_up::system;
    use super::*;

    #[test]
    fn both_kinds() {
        for (text, wanted) in [
            ("always [madvise] never\n", Some(Transparent::Asked)),
            ("[always] madvise never\n", Some(Transparent::Always)),
            ("always madvise [never]\n", Some(Transparent::Never)),
            ("[", None),
            ("", None),
        ] {
            let (_folder, system) = system(&[
                ("sys/kernel/mm/transparent_hugepage/enabled", text),
                ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "4\n"),
                ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n"),
                ("sys/kernel/mm/hugepages/hugepages-x/free_hugepages", "3\n"),
            ]);
            let found = HugePages::of(&system);
            assert_eq!(found, HugePages { transparent: wanted, reserved: vec![(2 << 20, 4, 3)] }, "{text}");
            assert_eq!(found.idle(), 6 << 20);
        }
        let (_folder, system) = system(&[]);
        assert_eq!(HugePages::of(&system), HugePages { transparent: None, reserved: Vec::new() });
    }
}
