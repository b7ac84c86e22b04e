//! The one place that puts work on a stream. Kernels trust addresses and sizes; what is said here is what they rest on.

#![allow(unsafe_code)]

use quant_kernels::cuda::{Args, DriverError, Graph, Grid, Kernel, Pinned, Stream};

/// Puts one launch on the stream.
///
/// All addresses that a pass hands to kernels are made by `memory.rs` from the executor's one allocation, with the sizes of
/// the same plan; the executor owns allocation, modules and stream, and drops them after it has waited for the stream.
pub(super) fn kernel(
    stream: &Stream,
    kernel: &Kernel,
    grid: Grid,
    mut args: Args,
) -> Result<(), DriverError> {
    // SAFETY: arguments are the `abi` structures of the entry (sizes are asserted there); addresses and sizes come from the
    // plan (kept by `Planner` and `Scratch`); one stream runs everything, so nothing is used by two launches at once.
    unsafe { kernel.launch(stream, grid, &mut args) }
}

/// Puts a run of a recorded pass on the stream.
pub(super) fn graph(stream: &Stream, graph: &Graph) -> Result<(), DriverError> {
    // SAFETY: the graph holds launches and copies that were made in this file, for memory that lives as long as the graph.
    unsafe { graph.launch(stream) }
}

/// Puts a copy of pinned memory to the device on the stream.
pub(super) fn up(stream: &Stream, from: &Pinned, bytes: usize, to: u64) -> Result<(), DriverError> {
    assert!(bytes <= from.bytes(), "{bytes} of {} pinned bytes", from.bytes());
    // SAFETY: the range is inside the pinned memory, and `to` is a buffer of at least as many bytes in the plan; the host
    // writes the memory only between passes (`Executor` waits for the stream before).
    unsafe { stream.copy_to_device(to, from.as_ptr(), bytes) }
}

/// Puts a copy from the device into pinned memory on the stream.
pub(super) fn down(
    stream: &Stream,
    from: u64,
    bytes: usize,
    to: &mut Pinned,
    at: usize,
) -> Result<(), DriverError> {
    assert!(at + bytes <= to.bytes(), "{bytes} at {at} of {} pinned bytes", to.bytes());
    // SAFETY: as in `up`, the other way round; the host reads only after it has waited for the stream.
    unsafe { stream.copy_to_host(to.as_mut_ptr().wrapping_add(at), from, bytes) }
}

/// Puts a fill with zero of device memory on the stream.
pub(super) fn clear(stream: &Stream, at: u64, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the range is a buffer of the plan, and everything that uses it is on the same stream, or waits for it.
    unsafe { stream.fill_zero(at, bytes) }
}
