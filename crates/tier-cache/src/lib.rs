//! Where each expert is and what must move.

mod arena_error;
mod budget;
mod entry;
mod host_arena;
mod host_layout;
mod host_map;
mod huge_pages;
mod id;
mod ring;
mod route;
mod shares;
mod table;
mod usage;
mod usage_file;

pub use arena_error::{ArenaError, WrongLease};
pub use budget::{Budget, BudgetError, LayerNeed, SlotRules};
pub use entry::{BadEntry, Entry, EntryKind};
pub use host_arena::{ArenaOptions, ClassSpec, HostArena};
pub use host_layout::{MAX_CHUNK_BYTES, MAX_SLOTS};
pub use huge_pages::HugePages;
pub use id::{ExpertId, HostSlot};
pub use ring::{
    Consumer, Patience, Producer, RING_HEAD_WORDS, ReplyReader, ReplyWriter, RingError, Word, reply_words,
    ring_words,
};
pub use route::{Claim, Lane, MAX_ROUTE, RECORD_WORDS, RecordError, ReplyRecord, RouteRecord};
pub use shares::Shares;
pub use table::{
    ABI_VERSION, BatchHeader, EditEntry, EditOffer, MAX_OFFERS, TABLE_MAGIC, TableError, TableHeader,
    TableLayout,
};
pub use usage::{Ignored, MAX_IDENTITY, Owner, Usage};
pub use usage_file::{Loaded, SaveError};
