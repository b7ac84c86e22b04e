//! Devices behind NVIDIA's driver: their memory, streams and graphs, and the device code that runs there.
//!
//! `driver` holds what owns the driver's handles, `unit` names the device code under `kernels/`, `nvrtc` compiles it,
//! `pack` keeps what was compiled, `store` finds it for a device. Libraries are looked for when the program runs, so a
//! machine without them gets a sentence.

mod driver;
mod matvec;
mod nvrtc;
mod pack;
mod probe;
mod rows;
mod store;
mod tables;
mod unit;

pub use driver::{
    Args, Buffer, Context, Device, DeviceSlice, DriverError, Event, Graph, Grid, HostRegistration, Kernel,
    Module, Pinned, Priority, Start, Stream, Timing,
};
pub use matvec::{matvec_pair_unit, matvec_smem, matvec_unit};
pub use nvrtc::{Compiled, Nvrtc, NvrtcError, Resources};
pub use pack::{Entry, Pack, PackError, write_whole};
pub use probe::{ProbeError, self_test};
pub use rows::{FEW, Few, FewShape, QUANTIZE, RowsShape, rows_format, rows_shape, rows_units};
pub use store::{KernelStore, Origin, StoreError, StoreOptions};
pub use tables::matvec_tables;
pub use unit::{Arch, ArchError, Key, PROBE, Unit, Version, options, units};
