//! Names of experts and of the places that hold them.

use std::fmt;

/// An expert of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpertId {
    /// The layer, counted over the layers that have experts.
    pub layer: u16,
    /// The expert within its layer.
    pub expert: u16,
}

impl fmt::Display for ExpertId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expert {} of layer {}", self.expert, self.layer)
    }
}

/// A slot of a layer's own partition of the near tier: the memory that the lanes compute from in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSlot {
    /// The layer that owns the partition.
    pub layer: u16,
    /// The slot within it.
    pub index: u32,
}

/// A slot of the host arena, counted over all size classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostSlot(pub u32);

/// One movement of bytes, until it is completed or abandoned. Each is used once: a number that comes back is a new ticket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// The ticket as a number, to travel as the tag of an asynchronous read.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The ticket that [`to_bits`](Self::to_bits) turned into `bits`. A number that was none is refused where it is used.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({}.{})", self.index, self.generation)
    }
}

/// A promise that a slot is not overwritten while a lane reads it in place, until
/// [`Directory::unpin`](crate::Directory::unpin).
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a pin that is lost keeps its slot for ever"]
pub struct Pin {
    pub(crate) place: Slot,
    pub(crate) id: ExpertId,
}

impl Pin {
    /// What is read.
    #[must_use]
    pub fn id(&self) -> ExpertId {
        self.id
    }

    /// Where it lies.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.place
    }
}

/// A slot of either tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// Of the near tier.
    Device(DeviceSlot),
    /// Of the host arena.
    Host(HostSlot),
}
