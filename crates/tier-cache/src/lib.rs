//! Where each expert of a mixture of experts is, and what must move.
//!
//! An engine whose experts do not fit into the memory that its processors compute from keeps some of them there, some in
//! host memory, and all of them on a drive. [`Directory`] is the state machine that knows which: it answers a router's
//! decisions with [`Transfer`]s and tells the router's table what changed. It does no I/O, knows no model, no file format
//! and no GPU, and trusts nobody: a decision that the router's table could not have led to is a named error.

mod claimer;
mod directory;
mod error;
mod geometry;
mod id;
mod policy;
mod plan;
mod view;

pub use claimer::{Admission, Claimer};
pub use directory::Directory;
pub use error::{AckError, Broken, ConfigError, RouteError, TicketError};
pub use geometry::{Geometry, Limits, half_life};
pub use id::{DeviceSlot, ExpertId, HostSlot, Pin, Slot, Ticket};
pub use policy::{Candidate, Clock, Lfu, Lru, Policy, Pool};
pub use plan::{
    Boundary, Claim, Lane, Plan, Ready, Residence, Routed, Serve, Source, Staging, Target, Transfer,
};
pub use view::{Edit, View};
