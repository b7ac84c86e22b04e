//! Cache policies on a routing trace: the walk over it, the clairvoyant bound, and the seam for policies of a cache.

mod belady;
mod policy;
mod walk;

pub use policy::{Policy, Setup, simulated};
pub use walk::{Outcome, walk};
