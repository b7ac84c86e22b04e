//! What can be wrong, a sentence each.

use thiserror::Error;

use crate::id::{ExpertId, Ticket};
use crate::plan::{Claim, Lane};
use crate::view::View;

/// A geometry or limits that no directory can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No layers, or more than have numbers: this many.
    #[error("a directory has 1 to 65535 layers, not {0}")]
    Layers(usize),
    /// Layers of no experts.
    #[error("a layer has at least one expert")]
    NoExperts,
    /// Another number of size classes than of layers.
    #[error("size classes are given for {found} layers, and there are {layers}")]
    Classes {
        /// Given.
        found: usize,
        /// Of the geometry.
        layers: usize,
    },
    /// A layer's size class does not exist.
    #[error("layer {layer} is of size class {class}, and there are {classes}")]
    Class {
        /// The layer.
        layer: usize,
        /// Its class.
        class: u8,
        /// How many there are.
        classes: usize,
    },
    /// Host slots beside a near tier that the drive reaches by itself.
    #[error("a directory whose near tier the drive reaches by itself has no host tier")]
    DirectHost,
    /// More experts or slots than any model has: a wrong number.
    #[error("more than 4194304 experts, near slots or host slots")]
    TooMany,
    /// No blob for a miss that finds no spare.
    #[error("there is no scratch blob: a miss without a spare could not be computed")]
    NoScratch,
    /// No blob for a drive read that finds no free host slot.
    #[error("there is no landing blob: a drive read without a free host slot could not land")]
    NoLandings,
    /// No place in which the claimer could find a spare.
    #[error("the claimer must be able to know of at least one spare")]
    NoOffers,
    /// Limits of another shape than the geometry, or beyond it.
    #[error("the limits name other layers or classes than the geometry, or more slots than there are")]
    Limits,
}

/// A route that the directory did not expect. Nothing of the call was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A layer that is not there.
    #[error("layer {layer} is routed, and there are {layers}")]
    Layer {
        /// The layer.
        layer: u16,
        /// How many there are.
        layers: u16,
    },
    /// An expert that is not there.
    #[error("layer {layer} routes to expert {expert}, and it has {experts}")]
    Expert {
        /// The layer.
        layer: u16,
        /// The expert.
        expert: u16,
        /// How many there are.
        experts: u16,
    },
    /// An expert is named more than once.
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
    /// A claim of a scratch blob that does not exist or is in use.
    #[error("scratch blob {scratch} for {id} is not there or not free")]
    Scratch {
        /// The expert.
        id: ExpertId,
        /// The blob.
        scratch: u16,
    },
    /// Drive reads have no place to land: not an error but back-pressure.
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
    /// A ticket that stands for no transfer.
    #[error("{0:?} is not a transfer in flight: it was completed, abandoned or never given out")]
    Unknown(Ticket),
    /// A transfer whose source has not landed.
    #[error("{ticket:?} cannot be complete: it starts after {after:?}, which is not")]
    TooEarly {
        /// The transfer.
        ticket: Ticket,
        /// What it waits for.
        after: Ticket,
    },
    /// A transfer whose source will never land.
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
