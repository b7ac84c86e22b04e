//! The driver with owners: each handle is freed by whoever holds it, and each call's answer is looked at.
//!
//! | file | holds |
//! |---|---|
//! | failure | errors, and which of them a context does not survive |
//! | device | what devices there are |
//! | context | a device's context, and its first fatal error |
//! | buffer, pinned | memory of the device, memory of the host that the device reads |
//! | stream, graph | order of work, and work recorded once |
//! | module, launch | code, and its arguments |
//!
//! The driver is safe to call from several threads; a context is made current for the calling thread before each call
//! that needs one. Results are `cudarc`'s enum of CUDA 12.0.

mod buffer;
mod context;
mod device;
mod failure;
mod graph;
mod launch;
mod module;
mod pinned;
mod stream;
#[cfg(test)]
mod tests;

pub use buffer::{Buffer, DeviceSlice};
pub use context::Context;
pub use device::Device;
pub use failure::DriverError;
pub use graph::Graph;
pub use launch::{Args, Grid, Start};
pub use module::{Kernel, Module};
pub use pinned::{HostRegistration, Pinned};
pub use stream::{Event, Priority, Stream, Timing};

/// A handle of the driver's.
struct Handle<T>(*mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: the driver's handles belong to a context, not to a thread; every call locks what it needs.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above; we never look behind the pointer.
unsafe impl<T> Sync for Handle<T> {}
