//! Devices behind NVIDIA's driver: their memory, streams and graphs, and the device code that runs there.
//!
//! `driver` holds everything that is unsafe to call. The libraries are looked for when the program runs, so a machine
//! without them gets a sentence.

mod driver;

pub use driver::{
    Args, Buffer, Context, Device, DeviceSlice, DriverError, Event, Graph, Grid, HostRegistration, Kernel,
    Module, Pinned, Priority, Start, Stream, Timing,
};
