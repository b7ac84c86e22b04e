//! Where each expert of a mixture of experts is, and what must move.
//!
//! An engine whose experts do not fit into the memory that its processors compute from keeps some of them there, some in
//! host memory, and all of them on a drive. [`Directory`] is the state machine that knows which: it answers a router's
//! decisions with [`Transfer`]s and tells the router's table what changed. It does no I/O, knows no model, no file format
//! and no GPU, and trusts nobody: a decision that the router's table could not have led to is a named error.
//!
//! Around it: [`Claimer`], the router's table in software; [`Budget`], how many slots each layer gets; [`HostArena`], the
//! memory of host slots; [`Usage`], what is kept for the next run; and what a device shares with the host, the table
//! ([`TableLayout`]) and the rings of routes and replies ([`Producer`], [`Consumer`]).

mod arena_error;
mod beside;
mod budget;
mod claimer;
mod directory;
mod entry;
mod error;
mod geometry;
mod host_arena;
mod host_layout;
mod host_map;
mod huge_pages;
mod id;
mod plan;
mod policy;
mod ring;
mod ring_error;
mod route;
mod shares;
mod table;
mod usage;
mod usage_file;
mod view;

pub use arena_error::{ArenaError, WrongLease};
pub use beside::{create_beside, end_of_links};
pub use budget::{Budget, BudgetError, LayerNeed, SlotRules};
pub use claimer::{Admission, Claimer};
pub use directory::Directory;
pub use entry::{BadEntry, Entry, EntryKind};
pub use error::{AckError, Broken, ConfigError, RouteError, TicketError};
pub use geometry::{Geometry, Limits, half_life};
pub use host_arena::{ArenaOptions, ClassSpec, HostArena};
pub use host_layout::{MAX_CHUNK_BYTES, MAX_SLOTS};
pub use huge_pages::HugePages;
pub use id::{DeviceSlot, ExpertId, HostSlot, Pin, Slot, Ticket};
pub use plan::{
    Boundary, Claim, Lane, Plan, Ready, Residence, Routed, Serve, Source, Staging, Target, Transfer,
};
pub use policy::{Candidate, Clock, Lfu, Lru, Policy, Pool};
pub use ring::{
    Consumer, Patience, Producer, RING_HEAD_WORDS, ReplyReader, ReplyWriter, Word, reply_words, ring_words,
};
pub use ring_error::RingError;
pub use route::{MAX_ROUTE, RECORD_WORDS, RecordClaim, RecordError, RecordLane, ReplyRecord, RouteRecord};
pub use shares::Shares;
pub use table::{
    ABI_VERSION, BatchHeader, EditEntry, EditOffer, MAX_OFFERS, TABLE_MAGIC, TableError, TableHeader,
    TableLayout, TableOffer,
};
pub use usage::{Ignored, MAX_IDENTITY, Owner, Usage};
pub use usage_file::{Loaded, SaveError};
pub use view::{Edit, View};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
