//! What a router decided, and what that sets in motion.

use crate::id::{DeviceSlot, ExpertId, HostSlot, Pin, Slot, Ticket};

/// Where an expert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residence {
    /// In the near tier.
    Device(DeviceSlot),
    /// In host memory.
    Host(HostSlot),
    /// Only on the drive.
    Disk,
    /// On its way into a slot.
    InTransit,
}

/// What a miss took to put the expert in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// A spare of its layer: the expert is promoted.
    Spare(u32),
    /// A transit blob: it is computed from there and not kept.
    Scratch(u16),
}

/// How a routed expert is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// In place, in the near tier.
    Hit,
    /// Copied from host memory.
    Pull(Claim),
    /// Computed by the processor from host memory, in place.
    Cpu,
    /// Not known to be in memory: fetched by the service.
    Disk(Claim),
}

/// One expert of a route with the claimer's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Routed {
    /// The expert within the routed layer.
    pub expert: u16,
    /// The decision.
    pub lane: Lane,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The drive.
    Disk,
    /// A slot.
    Slot(Slot),
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A slot.
    Slot(Slot),
    /// A transit blob beside the near tier.
    Scratch(u16),
}

/// Host memory that drive bytes pass on their way to a target that the drive does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Staging {
    /// A host slot: the copy stays, as the expert's residence or as a shadow.
    Host(HostSlot),
    /// A transit blob beside the host tier.
    Landing(u16),
}

/// One movement that the driver carries out, then completes or abandons. The directory moves nothing itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// To be completed or abandoned, once.
    pub ticket: Ticket,
    /// Whose bytes.
    pub id: ExpertId,
    /// From here.
    pub from: Source,
    /// Through here.
    pub via: Option<Staging>,
    /// To here.
    pub to: Target,
    /// Not to be started before this one is complete: it brings the source's bytes.
    pub after: Option<Ticket>,
}

/// When a routed expert can be computed.
#[derive(Debug, PartialEq, Eq)]
pub enum Ready {
    /// At once.
    Now,
    /// At once; the slot is held until the pin is given back.
    Pinned(Pin),
    /// When this transfer is complete.
    When(Ticket),
    /// Never: the transfer into the slot that was claimed for it was abandoned, and the claimer does not know yet. The
    /// request fails.
    Lost,
}

/// Where a routed expert is computed from.
#[derive(Debug, PartialEq, Eq)]
pub struct Serve {
    /// The expert.
    pub id: ExpertId,
    /// Its place.
    pub place: Target,
    /// From when on.
    pub ready: Ready,
}

/// The answer to a route. Cleared by the caller, appended to by the directory.
#[derive(Debug, Default)]
pub struct Plan {
    /// One for each routed expert, in the order of the route.
    pub serves: Vec<Serve>,
    /// To be started.
    pub transfers: Vec<Transfer>,
}

impl Plan {
    /// Empties it for the next route, keeping its memory.
    pub fn clear(&mut self) {
        self.serves.clear();
        self.transfers.clear();
    }
}

/// What happens between two tokens.
#[derive(Debug, Default)]
pub struct Boundary {
    /// Number of the batch that `edits` are, to be acknowledged. `None` when there is nothing to change or the last batch
    /// has not been acknowledged.
    pub batch: Option<u64>,
    /// To be applied by the claimer.
    pub edits: Vec<crate::view::Edit>,
    /// To be started.
    pub transfers: Vec<Transfer>,
}

impl Boundary {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.batch = None;
        self.edits.clear();
        self.transfers.clear();
    }
}
