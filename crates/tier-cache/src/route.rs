//! The records of the rings: a layer's route from the device, and the host's reply.
//!
//! Both have 128 bytes, a whole number of cache lines on either side. The first word and the last are the record's
//! sequence number, as `ring.rs` wants it.

use std::mem::{offset_of, size_of};

use crate::plan::{Claim, Lane, Routed};

/// The most experts of a route.
pub const MAX_ROUTE: usize = 8;
/// Words of a record.
pub const RECORD_WORDS: usize = 16;

/// How the device gets one routed expert: a [`Lane`] with its kind of claim, in a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordLane {
    /// It was resident.
    #[default]
    Hit = 0,
    /// Pulled from host memory into an offered slot; [`RecordClaim::place`] is which offer, [`RecordClaim::slot`] what
    /// was offered.
    PullSpare = 1,
    /// Pulled from host memory into scratch; [`RecordClaim::place`] is which.
    PullScratch = 2,
    /// The host computes it.
    Cpu = 3,
    /// Not known to be in memory; for an offered slot.
    DiskSpare = 4,
    /// Not known to be in memory; for scratch.
    DiskScratch = 5,
    /// It is left out.
    Skipped = 6,
}

impl RecordLane {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Hit,
            Self::PullSpare,
            Self::PullScratch,
            Self::Cpu,
            Self::DiskSpare,
            Self::DiskScratch,
            Self::Skipped,
        ];
        all.get(usize::from(byte)).copied()
    }
}

/// Where a miss goes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordClaim {
    /// The place among the layer's offers, or the scratch blob.
    pub place: u16,
    /// Zero.
    pub reserved: u16,
    /// The device slot that was claimed; 0 for scratch.
    pub slot: u32,
}

/// What the router of one layer decided.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteRecord {
    /// The ring's number of this record, from 1.
    pub sequence: u64,
    /// The last batch of edits that the device had applied when it looked the experts up.
    pub applied: u64,
    /// The layer.
    pub layer: u16,
    /// Experts of the route, at most [`MAX_ROUTE`]; the rest of the arrays is zero.
    pub n: u16,
    /// Which row of the step, if it has several.
    pub row: u32,
    /// The experts in the order of their rank.
    pub experts: [u16; MAX_ROUTE],
    /// How each is got.
    pub lanes: [RecordLane; MAX_ROUTE],
    /// Where each goes.
    pub claims: [RecordClaim; MAX_ROUTE],
    /// Zero.
    pub reserved: u64,
    /// [`sequence`](Self::sequence) again.
    pub closing: u64,
}

/// What the host answers to a route.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyRecord {
    /// The sequence number of the route.
    pub sequence: u64,
    /// 0 if all is well; otherwise an error of the caller's list, which ends the step.
    pub status: u32,
    /// Experts of the route, at most [`MAX_ROUTE`].
    pub n: u32,
    /// For each the entry (see [`Entry`](crate::Entry)) of the memory that its bytes are in; 0 if the host has nothing
    /// to say.
    pub sources: [u64; MAX_ROUTE],
    /// Zero.
    pub reserved: [u64; 5],
    /// [`sequence`](Self::sequence) again.
    pub closing: u64,
}

const _: () = {
    assert!(size_of::<RouteRecord>() == RECORD_WORDS * 8 && size_of::<ReplyRecord>() == RECORD_WORDS * 8);
    assert!(size_of::<RecordClaim>() == 8 && size_of::<RecordLane>() == 1);
    assert!(offset_of!(RouteRecord, experts) == 24 && offset_of!(RouteRecord, lanes) == 40);
    assert!(offset_of!(RouteRecord, claims) == 48 && offset_of!(RouteRecord, closing) == 120);
    assert!(offset_of!(ReplyRecord, sources) == 16 && offset_of!(ReplyRecord, closing) == 120);
};

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A record claims more experts than it has room for.
    #[error("record {sequence} has {n} experts; up to {MAX_ROUTE} are allowed")]
    TooMany {
        /// Number of the record.
        sequence: u64,
        /// Experts that it claims.
        n: u32,
    },
    /// A lane is none of those that are numbered.
    #[error("expert {rank} of record {sequence} has lane {lane}, which does not exist")]
    Lane {
        /// Number of the record.
        sequence: u64,
        /// Place of the expert in the record, from 0.
        rank: usize,
        /// The byte that stands there.
        lane: u8,
    },
}

impl RouteRecord {
    /// The record as words of memory, lowest address first.
    pub fn to_words(&self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        words[0] = self.sequence;
        words[1] = self.applied;
        words[2] = u64::from(self.layer) | u64::from(self.n) << 16 | u64::from(self.row) << 32;
        for rank in 0..MAX_ROUTE {
            words[3 + rank / 4] |= u64::from(self.experts[rank]) << (rank % 4 * 16);
            words[5] |= (self.lanes[rank] as u64) << (rank * 8);
            let RecordClaim { place, reserved, slot } = self.claims[rank];
            words[6 + rank] = u64::from(place) | u64::from(reserved) << 16 | u64::from(slot) << 32;
        }
        words[14] = self.reserved;
        words[15] = self.closing;
        words
    }

    /// The record of these words.
    ///
    /// # Errors
    /// More experts than a record has, and a lane that does not exist.
    pub fn from_words(words: &[u64; RECORD_WORDS]) -> Result<Self, RecordError> {
        let mut record = Self {
            sequence: words[0],
            applied: words[1],
            layer: words[2] as u16,
            n: (words[2] >> 16) as u16,
            row: (words[2] >> 32) as u32,
            reserved: words[14],
            closing: words[15],
            ..Self::default()
        };
        let sequence = record.sequence;
        if usize::from(record.n) > MAX_ROUTE {
            return Err(RecordError::TooMany { sequence, n: record.n.into() });
        }
        for rank in 0..MAX_ROUTE {
            record.experts[rank] = (words[3 + rank / 4] >> (rank % 4 * 16)) as u16;
            let lane = (words[5] >> (rank * 8)) as u8;
            record.lanes[rank] =
                RecordLane::from_byte(lane).ok_or(RecordError::Lane { sequence, rank, lane })?;
            let claim = words[6 + rank];
            record.claims[rank] = RecordClaim {
                place: claim as u16,
                reserved: (claim >> 16) as u16,
                slot: (claim >> 32) as u32,
            };
        }
        Ok(record)
    }
}

impl RouteRecord {
    /// Appends what the record says to `out`, for [`Directory::route`](crate::Directory::route). Experts that are left out
    /// are.
    pub fn routed(&self, out: &mut Vec<Routed>) {
        for rank in 0..usize::from(self.n).min(MAX_ROUTE) {
            let RecordClaim { place, slot, .. } = self.claims[rank];
            let lane = match self.lanes[rank] {
                RecordLane::Hit => Lane::Hit,
                RecordLane::PullSpare => Lane::Pull(Claim::Spare(slot)),
                RecordLane::PullScratch => Lane::Pull(Claim::Scratch(place)),
                RecordLane::Cpu => Lane::Cpu,
                RecordLane::DiskSpare => Lane::Disk(Claim::Spare(slot)),
                RecordLane::DiskScratch => Lane::Disk(Claim::Scratch(place)),
                RecordLane::Skipped => continue,
            };
            out.push(Routed { expert: self.experts[rank], lane });
        }
    }
}

impl ReplyRecord {
    /// The record as words of memory, lowest address first.
    pub fn to_words(&self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        words[0] = self.sequence;
        words[1] = u64::from(self.status) | u64::from(self.n) << 32;
        words[2..10].copy_from_slice(&self.sources);
        words[10..15].copy_from_slice(&self.reserved);
        words[15] = self.closing;
        words
    }

    /// The record of these words.
    ///
    /// # Errors
    /// More experts than a record has.
    pub fn from_words(words: &[u64; RECORD_WORDS]) -> Result<Self, RecordError> {
        let mut record = Self {
            sequence: words[0],
            status: words[1] as u32,
            n: (words[1] >> 32) as u32,
            closing: words[15],
            ..Self::default()
        };
        if record.n as usize > MAX_ROUTE {
            return Err(RecordError::TooMany { sequence: record.sequence, n: record.n });
        }
        record.sources.copy_from_slice(&words[2..10]);
        record.reserved.copy_from_slice(&words[10..15]);
        Ok(record)
    }
}
