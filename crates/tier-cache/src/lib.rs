//! Where each expert is and what must move.

mod budget;
mod host_arena;
mod host_layout;
mod host_map;
mod id;
mod shares;
mod usage;
mod usage_file;

pub use budget::{Budget, BudgetError, LayerNeed, SlotRules};
pub use host_arena::{ArenaError, ArenaOptions, ClassSpec, HostArena, HugePages, WrongLease};
pub use host_layout::{MAX_CHUNK_BYTES, MAX_SLOTS};
pub use id::{ExpertId, HostSlot};
pub use shares::Shares;
pub use usage::{Ignored, MAX_IDENTITY, Owner, Usage};
pub use usage_file::{Loaded, SaveError};
