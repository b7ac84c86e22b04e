//! What can be wrong, a sentence each.

use thiserror::Error;

use crate::id::{ExpertId, Ticket};
use crate::plan::{Claim, Lane};
use crate::view::View;

/// A geometry or limits that no directory can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// See the message.
    #[error("a directory has 1 to 65535 layers, not {0}")]
    Layers(usize),
    /// See the message.
    #[error("a layer has at least one expert")]
    NoExperts,
    /// See the message.
    #[error("size classes are given for {found} layers, and there are {layers}")]
    Classes {
        /// Given.
        found: usize,
        /// Of the geometry.
        layers: usize,
    },
    /// See the message.
    #[error("layer {layer} is of size class {class}, and there are {classes}")]
    Class {
        /// The layer.
        layer: usize,
        /// Its class.
        class: u8,
        /// How many there are.
        classes: usize,
    },
    /// See the message.
    #[error("a directory whose near tier the drive reaches by itself has no host tier")]
    DirectHost,
    /// See the message.
    #[error("more than 4194304 experts, near slots or host slots")]
    TooMany,
    /// See the message.
    #[error("there is no scratch blob: a miss without a spare could not be computed")]
    NoScratch,
    /// See the message.
    #[error("there is no landing blob: a drive read without a free host slot could not land")]
    NoLandings,
    /// See the message.
    #[error("the claimer must be able to know of at least one spare")]
    NoOffers,
    /// See the message.
    #[error("the limits name other layers or classes than the geometry, or more slots than there are")]
    Limits,
}

/// A route that the directory did not expect. Nothing of the call was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// See the message.
    #[error("layer {layer} is routed, and there are {layers}")]
    Layer {
        /// The layer.
        layer: u16,
        /// How many there are.
        layers: u16,
    },
    /// See the message.
    #[error("layer {layer} routes to expert {expert}, and it has {experts}")]
    Expert {
        /// The layer.
        layer: u16,
        /// The expert.
        expert: u16,
        /// How many there are.
        experts: u16,
    },
    /// See the message.
    #[error("{0} stands twice in one route")]
    Twice(ExpertId),
    /// The claimer acted on an entry that it was never given.
    #[error("the claimer took {id} by lane {lane:?}, and its table says {seen:?}")]
    Mismatch {
        /// The expert.
        id: ExpertId,
        /// The lane it was routed to.
        lane: Lane,
        /// What the claimer's table holds by the directory's account.
        seen: View,
    },
    /// The claimer claimed another slot than the next one offered to it.
    #[error("the claimer took {claim:?} for {id}, and the next spare of its layer is {next:?}")]
    Claim {
        /// The expert.
        id: ExpertId,
        /// What was claimed.
        claim: Claim,
        /// The spare that was to be claimed; `None` when the layer has none.
        next: Option<u32>,
    },
    /// See the message.
    #[error("scratch blob {scratch} for {id} is not there or not free")]
    Scratch {
        /// The expert.
        id: ExpertId,
        /// The blob.
        scratch: u16,
    },
    /// See the message.
    #[error("{needed} drive reads need a place to land and {free} are free: complete transfers first")]
    NoLanding {
        /// Places wanted.
        needed: usize,
        /// Places free.
        free: usize,
    },
}

/// A ticket that cannot be used as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TicketError {
    /// See the message.
    #[error("{0:?} is not a transfer in flight: it was completed, abandoned or never given out")]
    Unknown(Ticket),
    /// See the message.
    #[error("{ticket:?} cannot be complete: it starts after {after:?}, which is not")]
    TooEarly {
        /// The transfer.
        ticket: Ticket,
        /// What it waits for.
        after: Ticket,
    },
    /// See the message.
    #[error("the source of {0:?} was abandoned: it can only be abandoned too")]
    SourceLost(Ticket),
}

/// An acknowledgement of something else than the batch that waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("batch {found} of edits is acknowledged, and {}", match .waiting { Some(n) => format!("batch {n} waits for it"), None => "none waits for it".to_owned() })]
pub struct AckError {
    /// Acknowledged.
    pub found: u64,
    /// Outstanding.
    pub waiting: Option<u64>,
}

/// A broken invariant of the directory: a defect of this crate, found by [`Directory::check`](crate::Directory::check).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Broken(pub(crate) String);
