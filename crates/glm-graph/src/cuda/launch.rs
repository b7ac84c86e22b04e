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
    // SAFETY: arguments are the entry's structures (`abi`, `span`; sizes are asserted there); addresses and sizes come from the
    // plan (kept by `Planner`, `Scratch` and `SpanPlaces`); one stream runs everything, so nothing is used by two launches at once.
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

/// Two words of pinned memory that a kernel wrote, at a multiple of four.
pub(super) fn heard(from: &Pinned, at: usize) -> [u32; 2] {
    assert!(at + 8 <= from.bytes() && at.is_multiple_of(4), "8 at {at} of {} pinned bytes", from.bytes());
    let words = from.as_ptr().wrapping_add(at).cast::<u32>();
    // SAFETY: inside the pinned memory; the executor has waited for the event behind the kernel that wrote them. Other words
    // may be written meanwhile, so there is no slice of all.
    unsafe { [words.read_volatile(), words.wrapping_add(1).read_volatile()] }
}

/// `len` floats of pinned memory from float `first` on, that a copy wrote.
pub(super) fn heard_floats(from: &Pinned, first: usize, len: usize) -> Vec<f32> {
    assert!(4 * (first + len) <= from.bytes(), "{len} floats at {first} of {} pinned bytes", from.bytes());
    // SAFETY: as in `heard`; no later copy to them is put on the stream before this one was heard.
    unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<f32>().wrapping_add(first), len) }.to_vec()
}

/// Puts a fill with zero of device memory on the stream.
pub(super) fn clear(stream: &Stream, at: u64, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the range is a buffer of the plan, and everything that uses it is on the same stream, or waits for it.
    unsafe { stream.fill_zero(at, bytes) }
}
