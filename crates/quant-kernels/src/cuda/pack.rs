//! Packs: compiled units in one file, for several architectures.
//!
//! | bytes | content, little endian |
//! |---|---|
//! | 8 | `MAYAPACK` |
//! | 4 | format, 1 |
//! | 4, 4 | the compiler's version, before and after the dot |
//! | 4 | number of entries |
//! | 8 | bytes of the table |
//! | 32 | SHA-256 of everything above and of the table |
//! | table | an entry each: 2 bytes length of the name, name, 4 architecture, 32 key, 32 SHA-256 of the cubin, 8 its length |
//! | rest | the cubins in the table's order, nothing between and nothing after |
//!
//! Cubins lie as they are: nothing that maya links compresses better than half, and a pack is read where it is mapped.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::unit::{Arch, Key, Unit, Version};

const MAGIC: &[u8; 8] = b"MAYAPACK";
const FORMAT: u32 = 1;
const HEADER: usize = 32;
const DIGEST: usize = 32;
/// Bytes of an entry without its name.
const ENTRY: usize = 2 + 4 + 32 + 32 + 8;

/// Why bytes are no pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// Other bytes at the beginning.
    #[error("it is no kernel pack: it does not begin with MAYAPACK")]
    Magic,
    /// A format of another time.
    #[error("the kernel pack has format {format}; this maya reads format {FORMAT}")]
    Format {
        /// What it says.
        format: u32,
    },
    /// Bytes that end too early.
    #[error("the kernel pack ends at byte {len}, inside its {part}")]
    Short {
        /// Its length.
        len: usize,
        /// What was being read.
        part: &'static str,
    },
    /// A table that does not fit its digest.
    #[error("the kernel pack's table is damaged: its SHA-256 is another")]
    Table,
    /// A table whose digest fits and whose content does not.
    #[error("entry {entry} of the kernel pack has a bad {field}")]
    Entry {
        /// From 0.
        entry: u32,
        /// What is wrong.
        field: &'static str,
    },
    /// Bytes that belong to nothing.
    #[error("{extra} bytes follow the kernel pack's {part}")]
    Extra {
        /// How many.
        extra: usize,
        /// Behind what.
        part: &'static str,
    },
    /// A cubin that does not fit its digest.
    #[error("the kernel pack's cubin {unit} for {arch} is damaged: its SHA-256 is another")]
    Cubin {
        /// Its unit, as far as this binary knows it.
        unit: &'static str,
        /// Its architecture.
        arch: Arch,
    },
}

/// A cubin in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The unit's name.
    pub unit: &'a str,
    /// The architecture.
    pub arch: Arch,
    /// What it was compiled from.
    pub key: Key,
    digest: Key,
    cubin: &'a [u8],
}

impl<'a> Entry<'a> {
    /// An entry to be written.
    pub fn new(unit: &'a str, arch: Arch, key: Key, cubin: &'a [u8]) -> Self {
        Self { unit, arch, key, digest: Key::of_bytes(cubin), cubin }
    }

    /// Bytes of the cubin.
    pub fn bytes(&self) -> usize {
        self.cubin.len()
    }

    /// The cubin, if it is undamaged.
    pub fn cubin(&self) -> Option<&'a [u8]> {
        (Key::of_bytes(self.cubin) == self.digest).then_some(self.cubin)
    }
}

/// A pack's table, over its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack<'a> {
    /// The compiler that made all of it.
    pub compiler: Version,
    /// What is in it.
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Pack<'a> {
    /// Reads the table. Cubins are looked at when they are taken.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take(MAGIC.len(), "header").map_err(|_| PackError::Magic)? != MAGIC {
            return Err(PackError::Magic);
        }
        let format = reader.u32("header")?;
        if format != FORMAT {
            return Err(PackError::Format { format });
        }
        let compiler = Version { major: reader.u32("header")?, minor: reader.u32("header")? };
        let n_entries = reader.u32("header")?;
        let table_len = usize::try_from(reader.u64("header")?).unwrap_or(usize::MAX);
        let digest = reader.take(DIGEST, "header")?;
        let table = reader.take(table_len, "table")?;
        let described = bytes.get(..HEADER).unwrap_or_default();
        if Key::of_bytes(&[described, table].concat()).0 != digest {
            return Err(PackError::Table);
        }
        let mut table = Reader { bytes: table, at: 0 };
        // No more entries than the table has room for, whatever the count says.
        let mut entries: Vec<Entry<'a>> = Vec::with_capacity((n_entries as usize).min(table_len / ENTRY));
        for number in 0..n_entries {
            let bad = |field| PackError::Entry { entry: number, field };
            let cut = |_| bad("length");
            let name_len = table.u16("table").map_err(cut)?;
            let name = table.take(usize::from(name_len), "table").map_err(cut)?;
            let unit = std::str::from_utf8(name).map_err(|_| bad("name"))?;
            let arch = Arch::new(table.u32("table").map_err(cut)?);
            let key = Key(table.array("table").map_err(cut)?);
            let digest = Key(table.array("table").map_err(cut)?);
            let len = usize::try_from(table.u64("table").map_err(cut)?).map_err(|_| bad("cubin length"))?;
            let cubin = reader.take(len, "cubins")?;
            if entries.iter().any(|e| e.unit == unit && e.arch == arch) {
                return Err(bad("name: unit and architecture stand in it twice"));
            }
            entries.push(Entry { unit, arch, key, digest, cubin });
        }
        table.end("entries")?;
        reader.end("cubins")?;
        Ok(Self { compiler, entries })
    }

    /// The best cubin of a unit for a device. An entry that was compiled from other text is none.
    pub fn find(&self, unit: &Unit, device: Arch) -> Result<Option<(Arch, &'a [u8])>, PackError> {
        let fits = |e: &&Entry<'a>| e.unit == unit.name && e.key == Key::of(unit, e.arch, self.compiler);
        let of_unit: Vec<&Entry<'a>> = self.entries.iter().filter(fits).collect();
        let Some(arch) = Arch::best(device, of_unit.iter().map(|e| e.arch)) else { return Ok(None) };
        let Some(entry) = of_unit.iter().find(|e| e.arch == arch) else { return Ok(None) };
        let cubin = entry.cubin().ok_or(PackError::Cubin { unit: unit.name, arch })?;
        Ok(Some((arch, cubin)))
    }

    /// The pack as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for entry in &self.entries {
            // Names are identifiers of this crate; a longer one would be refused when the pack is read.
            table.extend_from_slice(&(entry.unit.len() as u16).to_le_bytes());
            table.extend_from_slice(entry.unit.as_bytes());
            table.extend_from_slice(&entry.arch.number().to_le_bytes());
            table.extend_from_slice(&entry.key.0);
            table.extend_from_slice(&entry.digest.0);
            table.extend_from_slice(&(entry.cubin.len() as u64).to_le_bytes());
        }
        let mut bytes = MAGIC.to_vec();
        for number in [FORMAT, self.compiler.major, self.compiler.minor, self.entries.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(table.len() as u64).to_le_bytes());
        let digest = Key::of_bytes(&[&bytes[..], &table].concat());
        bytes.extend_from_slice(&digest.0);
        bytes.extend_from_slice(&table);
        self.entries.iter().for_each(|entry| bytes.extend_from_slice(entry.cubin));
        bytes
    }
}

/// Bytes, read from the front.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize, part: &'static str) -> Result<&'a [u8], PackError> {
        let end = self.at.checked_add(len);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(PackError::Short { len: self.bytes.len(), part })?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], PackError> {
        let short = PackError::Short { len: self.bytes.len(), part };
        self.take(N, part)?.try_into().map_err(|_| short)
    }

    fn u16(&mut self, part: &'static str) -> Result<u16, PackError> {
        self.array(part).map(u16::from_le_bytes)
    }

    fn u32(&mut self, part: &'static str) -> Result<u32, PackError> {
        self.array(part).map(u32::from_le_bytes)
    }

    fn u64(&mut self, part: &'static str) -> Result<u64, PackError> {
        self.array(part).map(u64::from_le_bytes)
    }

    fn end(&self, part: &'static str) -> Result<(), PackError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            extra => Err(PackError::Extra { extra, part }),
        }
    }
}

/// Writes a file that appears whole or not at all: beside its place, synced, renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    };
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let beside = path.with_file_name(beside);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
        return written;
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        // Some filesystems refuse to sync a folder; the file itself is safe by then.
        let _ = File::open(folder).and_then(|f| f.sync_all());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V: Version = Version { major: 12, minor: 9 };
    const A: Unit = Unit { name: "a", source: "a", headers: &[], entries: &[] };
    const B: Unit = Unit { name: "b", source: "b", headers: &[], entries: &[] };

    fn entry<'a>(unit: &'a Unit, arch: u32, cubin: &'a [u8]) -> Entry<'a> {
        let arch = Arch::new(arch);
        Entry::new(unit.name, arch, Key::of(unit, arch, V), cubin)
    }

    fn example() -> Vec<u8> {
        let entries = vec![
            entry(&A, 80, b"a80"),
            entry(&A, 86, b""),
            entry(&B, 80, b"b-eighty"),
            entry(&A, 90, b"a90"),
        ];
        Pack { compiler: V, entries }.to_bytes()
    }

    #[test]
    fn what_was_written_is_found() {
        let bytes = example();
        let pack = Pack::parse(&bytes).expect("whole");
        assert_eq!((pack.compiler, pack.entries.len()), (V, 4));
        assert_eq!(pack.to_bytes(), bytes);
        let found = |unit, device| pack.find(unit, Arch::new(device)).expect("undamaged");
        assert_eq!(found(&A, 80), Some((Arch::new(80), &b"a80"[..])));
        assert_eq!(found(&B, 89), Some((Arch::new(80), &b"b-eighty"[..])));
        assert_eq!((found(&B, 90), found(&A, 75)), (None, None));
        let edited = Unit { source: "a2", ..A };
        assert_eq!(found(&edited, 80), None);
    }

    #[test]
    fn damage_is_named() {
        let bytes = example();
        assert_eq!(Pack::parse(b"MAYA"), Err(PackError::Magic));
        assert_eq!(Pack::parse(b"\x7fELF567890"), Err(PackError::Magic));
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            bytes
        };
        assert_eq!(Pack::parse(&with(8, 2)), Err(PackError::Format { format: 2 }));
        assert_eq!(Pack::parse(&with(20, 200)), Err(PackError::Table));
        assert_eq!(Pack::parse(&with(31, 255)), Err(PackError::Short { len: bytes.len(), part: "table" }));
        let long = [&bytes[..], b"x"].concat();
        assert_eq!(Pack::parse(&long), Err(PackError::Extra { extra: 1, part: "cubins" }));
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(Pack::parse(cut), Err(PackError::Short { len: cut.len(), part: "cubins" }));
        let last = with(bytes.len() - 1, b'x');
        let pack = Pack::parse(&last).expect("the table is whole");
        let damaged = PackError::Cubin { unit: "a", arch: Arch::new(90) };
        assert_eq!(pack.find(&A, Arch::new(90)), Err(damaged));
        let twice = Pack { compiler: V, entries: vec![entry(&A, 80, b"1"), entry(&A, 80, b"2")] }.to_bytes();
        assert!(matches!(Pack::parse(&twice), Err(PackError::Entry { entry: 1, .. })));
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("pack");
        write_whole(&path, b"one").expect("written");
        write_whole(&path, b"two").expect("replaced");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert!(write_whole(&folder.path().join("no/pack"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Pack::parse(&bytes);
            let _ = Pack::parse(&[&example()[..24], &bytes].concat());
        }

        /// One changed byte is found: by the parser, or when the cubin is taken.
        #[test]
        fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = example();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if let Ok(pack) = Pack::parse(&bytes) {
                prop_assert!(pack.entries.iter().any(|e| e.cubin().is_none()), "byte {at}");
            }
        }

        #[test]
        fn a_cut_pack_is_refused(at in any::<prop::sample::Index>()) {
            let bytes = example();
            prop_assert!(Pack::parse(&bytes[..at.index(bytes.len())]).is_err());
        }

        /// A table with a right digest and any content: counts and lengths that lie are refused without a large
        /// allocation.
        #[test]
        fn a_lying_table_is_refused(
            n_entries in any::<u32>(),
            table in proptest::collection::vec(prop_oneof![Just(0u8), Just(255u8), any::<u8>()], 0..200),
        ) {
            let mut bytes = example()[..20].to_vec();
            bytes.extend_from_slice(&n_entries.to_le_bytes());
            bytes.extend_from_slice(&(table.len() as u64).to_le_bytes());
            let digest = Key::of_bytes(&[&bytes[..], &table].concat());
            bytes.extend_from_slice(&digest.0);
            bytes.extend_from_slice(&table);
            if let Ok(pack) = Pack::parse(&bytes) {
                prop_assert_eq!(pack.entries.len(), n_entries as usize);
            }
        }
    }
}
