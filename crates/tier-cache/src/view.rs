//! What the claimer knows of an expert, and how that changes.

use crate::id::{ExpertId, HostSlot};

/// An entry of the claimer's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum View {
    /// Nothing: a miss goes to the drive lane.
    #[default]
    Nothing,
    /// In this slot of the layer's partition, or on its way there by the claimer's own claim.
    Device(u32),
    /// In host memory, where lanes can read it.
    Host(HostSlot),
}

/// One change of the claimer's table. A batch holds an expert and a place at most once, and is applied whole between two
/// tokens: entries, then withdrawals, then offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Sets an entry, if it is still `from`. A claim made since the edit was written wins: the edit is then void, and the
    /// directory finds the same when it replays the claim.
    Entry {
        /// The expert.
        id: ExpertId,
        /// The entry when the edit was written.
        from: View,
        /// The entry from now on.
        to: View,
    },
    /// Takes an offered slot back, if it has not been claimed.
    Withdraw {
        /// The layer.
        layer: u16,
        /// Where the offer stands.
        place: u16,
        /// The slot.
        slot: u32,
    },
    /// Offers a slot.
    Offer {
        /// The layer.
        layer: u16,
        /// Where the offer stands. Claimers take the first place that they may.
        place: u16,
        /// The slot.
        slot: u32,
        /// The expert that the slot still holds, with what its entry becomes when the slot is claimed. Not to be claimed by
        /// a route that the expert is part of.
        owner: Option<(u16, View)>,
    },
}
