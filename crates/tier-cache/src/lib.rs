//! Where each expert is and what must move.

mod host_arena;
mod host_layout;
mod host_map;
mod id;

pub use host_arena::{ArenaError, ArenaOptions, ClassSpec, HostArena, HugePages, WrongLease};
pub use host_layout::{MAX_CHUNK_BYTES, MAX_SLOTS};
pub use id::{ExpertId, HostSlot};
