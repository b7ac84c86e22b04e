//! Cache policies on a routing trace: the walk over it, the clairvoyant bound, and the engine's own directory under each policy.

mod belady;
mod cached;
mod policy;
mod walk;

pub use policy::{Policy, Setup, simulated};
pub use walk::{Outcome, walk};
