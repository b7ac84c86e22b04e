//! Names of things.

/// An expert of the model: which of which layer.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct ExpertId {
    /// The layer, counted as the caller counts layers that have experts.
    pub layer: u16,
    /// The expert within its layer.
    pub expert: u16,
}

/// A slot of a [`HostArena`](crate::HostArena): a global index over the slots of all its size classes.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct HostSlot(pub u32);
