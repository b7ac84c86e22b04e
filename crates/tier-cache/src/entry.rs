//! One word of the device's table: where an expert is, as a kernel reads it.

/// Where the memory behind an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Nothing is known, so the expert is on the drive.
    Drive,
    /// In device memory.
    Device,
    /// In host memory, at an address that the device can read.
    Host,
}

/// An address or a slot with its kind, in one word that is read and written whole.
///
/// Bits 0 and 1 are the kind (0 nothing, 1 device, 2 host), bits 2 and 3 are zero, and the word without these four is the
/// address, a multiple of 16. A slot number is an address of 16 times the number, so slot 0 is not "nothing" either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Entry(u64);

/// A word that is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{raw:#018x} is no table entry")]
pub struct BadEntry {
    /// The word.
    pub raw: u64,
}

impl Entry {
    /// Nothing is known: a place of the table that was never written.
    pub const NOTHING: Self = Self(0);

    const DEVICE: u64 = 1;
    const HOST: u64 = 2;
    /// What an address has no bits of.
    const LOW: u64 = 15;

    /// Device memory at this address. None if it is not a multiple of 16.
    pub fn device(address: u64) -> Option<Self> {
        (address & Self::LOW == 0).then_some(Self(address | Self::DEVICE))
    }

    /// Host memory at this address, as the device sees it. None if it is not a multiple of 16.
    pub fn host(address: u64) -> Option<Self> {
        (address & Self::LOW == 0).then_some(Self(address | Self::HOST))
    }

    /// A device slot by its number.
    pub fn device_slot(slot: u32) -> Self {
        Self(u64::from(slot) << 4 | Self::DEVICE)
    }

    /// A host slot by its number.
    pub fn host_slot(slot: u32) -> Self {
        Self(u64::from(slot) << 4 | Self::HOST)
    }

    /// From a word of the table.
    ///
    /// # Errors
    /// A word that none of the functions above makes.
    pub fn from_raw(raw: u64) -> Result<Self, BadEntry> {
        match raw & Self::LOW {
            Self::DEVICE | Self::HOST => Ok(Self(raw)),
            0 if raw == 0 => Ok(Self::NOTHING),
            _ => Err(BadEntry { raw }),
        }
    }

    /// The word for the table.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// What the address is an address of.
    pub fn kind(self) -> EntryKind {
        match self.0 & Self::LOW {
            Self::DEVICE => EntryKind::Device,
            Self::HOST => EntryKind::Host,
            _ => EntryKind::Drive,
        }
    }

    /// The address; 0 if nothing is known.
    pub fn address(self) -> u64 {
        self.0 & !Self::LOW
    }

    /// The slot, if the entry was made of one. None if nothing is known, or if the address is too large for a slot.
    pub fn slot(self) -> Option<u32> {
        if self == Self::NOTHING { None } else { u32::try_from(self.0 >> 4).ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_its_parts() {
        let cases = [
            (Entry::NOTHING, EntryKind::Drive, 0, None),
            (Entry::device_slot(0), EntryKind::Device, 0, Some(0)),
            (Entry::host_slot(0), EntryKind::Host, 0, Some(0)),
            (Entry::host_slot(u32::MAX), EntryKind::Host, 0xf_ffff_fff0, Some(u32::MAX)),
            (Entry::device(0x7f00_1234_5670).expect("aligned"), EntryKind::Device, 0x7f00_1234_5670, None),
            (Entry::host(!15).expect("aligned"), EntryKind::Host, !15, None),
        ];
        for (entry, kind, address, slot) in cases {
            assert_eq!((entry.kind(), entry.address(), entry.slot()), (kind, address, slot), "{entry:?}");
            assert_eq!(Entry::from_raw(entry.raw()), Ok(entry));
        }
        assert_ne!(Entry::device_slot(0), Entry::NOTHING);
    }

    #[test]
    fn other_words_are_refused() {
        for address in [1, 8, 15, u64::MAX] {
            assert_eq!((Entry::device(address), Entry::host(address)), (None, None), "{address}");
        }
        for raw in [16, 3, 4, 5, 9, 0x13, u64::MAX] {
            assert_eq!(Entry::from_raw(raw), Err(BadEntry { raw }));
        }
        assert_eq!(BadEntry { raw: 16 }.to_string(), "0x0000000000000010 is no table entry");
    }
}
