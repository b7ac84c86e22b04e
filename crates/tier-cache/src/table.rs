//! What kernels read and write: the table of where each expert is, and the batches that edit it.
//!
//! A table is one block of memory: a [`TableHeader`], then one [`Entry`] for each expert by layer and then by expert,
//! then for each layer [`TableHeader::offers`] records of [`TableOffer`], its spare slots. Everything is little-endian and naturally aligned. `include/tier_abi.h` says the same in C; `tests/abi.rs` compares the two.

use std::mem::{offset_of, size_of};

use crate::entry::Entry;
use crate::id::ExpertId;

/// The first word of a table: `TIERTAB` and a zero byte.
pub const TABLE_MAGIC: u64 = 0x0042_4154_5245_4954;
/// The version of everything in this file and in `route.rs`. Both sides compare it before they use anything else.
pub const ABI_VERSION: u32 = 1;
/// The most spare slots that a layer can offer at a time.
pub const MAX_OFFERS: u32 = 16;

const OFFER_BYTES: u64 = size_of::<TableOffer>() as u64;

/// The beginning of a table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableHeader {
    /// [`TABLE_MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`].
    pub version: u32,
    /// Layers that have experts.
    pub layers: u32,
    /// Experts of each layer.
    pub experts: u32,
    /// Offers of each layer, at most [`MAX_OFFERS`].
    pub offers: u32,
    /// Sequence number of the last batch that was applied; 0 before the first.
    pub applied: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// The beginning of a batch of edits: it is followed by its entries and then by its offers. A batch is complete when
/// its sequence number, written last, is there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// From 1; each batch has the next number.
    pub sequence: u64,
    /// Number of [`EditEntry`] records.
    pub n_entries: u32,
    /// Number of [`EditOffer`] records.
    pub n_offers: u32,
    /// Zero.
    pub reserved: [u64; 6],
}

/// An edit of one expert's entry. A batch has each key at most once, so its edits can be applied in any order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditEntry {
    /// `layer * experts + expert`.
    pub key: u32,
    /// Zero.
    pub reserved: u32,
    /// What the table must hold before. Where it does not, a claim was made since the edit was written: the edit is void,
    /// and the host finds the same when it replays the claim.
    pub from: u64,
    /// What it holds afterwards.
    pub to: u64,
}

/// One of a layer's offers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOffer {
    /// The offered slot; 0 where there is none or it was claimed.
    pub value: u64,
    /// What the entry of the expert that the slot still holds becomes when it is claimed.
    pub fallback: u64,
    /// That expert of the layer, plus 1; 0 for an empty slot. A route that it is part of does not claim the slot.
    pub owner: u32,
    /// Zero.
    pub reserved: u32,
}

/// An edit of one of a layer's offers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditOffer {
    /// The layer.
    pub layer: u16,
    /// Which of its offers.
    pub place: u16,
    /// As [`TableOffer::owner`].
    pub owner: u32,
    /// As [`TableOffer::value`]; 0 takes an offer back.
    pub value: u64,
    /// As [`TableOffer::fallback`].
    pub fallback: u64,
}

const _: () = {
    assert!(cfg!(target_endian = "little"), "devices are little-endian, and the table is shared with them");
    assert!(size_of::<Entry>() == 8);
    assert!(size_of::<TableHeader>() == 64 && offset_of!(TableHeader, applied) == 24);
    assert!(size_of::<BatchHeader>() == 64 && offset_of!(BatchHeader, n_offers) == 12);
    assert!(size_of::<EditEntry>() == 24 && offset_of!(EditEntry, from) == 8);
    assert!(size_of::<TableOffer>() == 24 && offset_of!(TableOffer, owner) == 16);
    assert!(size_of::<EditOffer>() == 24 && offset_of!(EditOffer, value) == 8);
};

/// Why there can be no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A side is too long, or the entries do not fit a table's numbers.
    #[error("a table of {layers} layers of {experts} experts is not possible; each may be up to 65536")]
    Shape {
        /// Layers asked for.
        layers: u32,
        /// Experts of a layer asked for.
        experts: u32,
    },
    /// A layer would have more offers than a table has words for.
    #[error("{offers} offers of a layer are more than the limit of {MAX_OFFERS}")]
    Offers {
        /// Offers of a layer asked for.
        offers: u32,
    },
    /// The first word is not that of a table.
    #[error("the table begins with {found:#018x}, which is no table")]
    Magic {
        /// The word that is there.
        found: u64,
    },
    /// The table was laid out by another version.
    #[error("the table has version {found}, and this program knows {ABI_VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
}

/// The shape of a table, and where its words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLayout {
    layers: u32,
    experts: u32,
    offers: u32,
}

impl TableLayout {
    /// A table of this shape.
    ///
    /// # Errors
    /// Numbers that the words of a table do not hold.
    pub fn new(layers: u32, experts: u32, offers: u32) -> Result<Self, TableError> {
        if layers > 1 << 16 || experts > 1 << 16 || layers.checked_mul(experts).is_none() {
            return Err(TableError::Shape { layers, experts });
        }
        if offers > MAX_OFFERS {
            return Err(TableError::Offers { offers });
        }
        Ok(Self { layers, experts, offers })
    }

    /// The shape that a header tells.
    ///
    /// # Errors
    /// A header of something else, of another version, or of an impossible shape.
    pub fn of(header: &TableHeader) -> Result<Self, TableError> {
        if header.magic != TABLE_MAGIC {
            return Err(TableError::Magic { found: header.magic });
        }
        if header.version != ABI_VERSION {
            return Err(TableError::Version { found: header.version });
        }
        Self::new(header.layers, header.experts, header.offers)
    }

    /// The header of a new table of this shape.
    pub fn header(&self) -> TableHeader {
        let Self { layers, experts, offers } = *self;
        TableHeader {
            magic: TABLE_MAGIC,
            version: ABI_VERSION,
            layers,
            experts,
            offers,
            ..TableHeader::default()
        }
    }

    /// The key of an expert, `layer * experts + expert`. None if it is not in the table.
    pub fn key(&self, id: ExpertId) -> Option<u32> {
        let (layer, expert) = (u32::from(id.layer), u32::from(id.expert));
        (layer < self.layers && expert < self.experts).then(|| layer * self.experts + expert)
    }

    /// The expert of a key. None if it is not in the table.
    pub fn id(&self, key: u32) -> Option<ExpertId> {
        let layer = key.checked_div(self.experts).filter(|layer| *layer < self.layers)?;
        Some(ExpertId { layer: layer as u16, expert: (key % self.experts) as u16 })
    }

    /// Bytes from the table's beginning to an expert's entry.
    pub fn entry_offset(&self, id: ExpertId) -> Option<u64> {
        Some(size_of::<TableHeader>() as u64 + u64::from(self.key(id)?) * 8)
    }

    /// Bytes from the table's beginning to one of a layer's offers.
    pub fn offer_offset(&self, layer: u16, place: u16) -> Option<u64> {
        let (layer, place) = (u64::from(layer), u64::from(place));
        let inside = layer < u64::from(self.layers) && place < u64::from(self.offers);
        inside.then(|| self.offers_start() + (layer * u64::from(self.offers) + place) * OFFER_BYTES)
    }

    /// Bytes of the whole table.
    pub fn bytes(&self) -> u64 {
        self.offers_start() + u64::from(self.layers) * u64::from(self.offers) * OFFER_BYTES
    }

    fn offers_start(&self) -> u64 {
        size_of::<TableHeader>() as u64 + u64::from(self.layers) * u64::from(self.experts) * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_each_other() {
        let table = TableLayout::new(42, 288, 3).expect("small");
        let id = |layer, expert| ExpertId { layer, expert };
        assert_eq!(table.entry_offset(id(0, 0)), Some(64));
        assert_eq!(table.entry_offset(id(1, 2)), Some(64 + 290 * 8));
        assert_eq!(table.entry_offset(id(41, 287)), Some(64 + (42 * 288 - 1) * 8));
        assert_eq!(table.offer_offset(0, 0), Some(64 + 42 * 288 * 8));
        assert_eq!(table.offer_offset(41, 2), Some(table.bytes() - 24));
        assert_eq!(
            (table.key(id(42, 0)), table.key(id(0, 288)), table.offer_offset(0, 3)),
            (None, None, None)
        );
        for key in 0..42 * 288 {
            assert_eq!(table.id(key).and_then(|id| table.key(id)), Some(key));
        }
        assert_eq!(table.id(42 * 288), None);
    }

    #[test]
    fn a_header_tells_its_shape() {
        let table = TableLayout::new(2, 3, 16).expect("small");
        assert_eq!(TableLayout::of(&table.header()), Ok(table));
        let of = |change: &dyn Fn(&mut TableHeader)| {
            let mut header = table.header();
            change(&mut header);
            TableLayout::of(&header).expect_err("changed").to_string()
        };
        assert_eq!(of(&|h| h.magic = 1), "the table begins with 0x0000000000000001, which is no table");
        assert_eq!(of(&|h| h.version = 2), "the table has version 2, and this program knows 1");
        assert_eq!(of(&|h| h.offers = 17), "17 offers of a layer are more than the limit of 16");
        assert!(of(&|h| h.layers = 1 << 20).contains("1048576 layers"));
        assert!(TableLayout::new(1 << 16, 1 << 16, 0).is_err());
        assert_eq!(TableLayout::new(0, 0, 0).map(|t| (t.bytes(), t.id(0))), Ok((64, None)));
    }
}
