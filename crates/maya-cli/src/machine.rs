//! What this machine has: processor, memory and its limits, the drive below a path, GPUs. Linux files only; elsewhere the
//! answers are `None`.

mod cgroup;
mod locked;
mod memory;
mod mount;
mod nvidia;
mod own;
mod pages;
mod processor;
mod system;

pub use cgroup::Cgroup;
pub use locked::Locked;
pub use memory::Memory;
pub use mount::Mount;
#[cfg(test)]
pub use nvidia::Gpu;
pub use nvidia::Nvidia;
pub use own::{Peak, anonymous};
pub use pages::{HugePages, Transparent};
#[cfg(test)]
pub use processor::Node;
pub use processor::Processor;
pub use system::System;
