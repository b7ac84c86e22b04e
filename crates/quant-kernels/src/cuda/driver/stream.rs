//! Streams, and events on them.

use std::fmt;

use cudarc::driver::sys;

use super::Handle;
use super::context::Context;
use super::failure::DriverError;

/// `CU_STREAM_NON_BLOCKING`: the default stream, which nothing of ours uses, is not waited for.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// `CU_STREAM_WAIT_VALUE_GEQ`, compared modulo 2^32.
const AT_LEAST: u32 = 0;

/// Which of two streams with work the device prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// As most streams.
    #[default]
    Normal,
    /// Before those.
    High,
}

/// Work that the device does in order.
pub struct Stream {
    context: Context,
    handle: Handle<sys::CUstream_st>,
}

impl Stream {
    /// A stream of normal priority.
    pub fn new(context: &Context) -> Result<Self, DriverError> {
        Self::with_priority(context, Priority::Normal)
    }

    /// A stream.
    pub fn with_priority(context: &Context, priority: Priority) -> Result<Self, DriverError> {
        context.make_current()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: a context is current; both are places for one number.
        let result = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        context.check("cuCtxGetStreamPriorityRange", result)?;
        let level = if priority == Priority::High { greatest } else { least };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context is current; `handle` is a place for one pointer.
        let result = unsafe { sys::cuStreamCreateWithPriority(&mut handle, NON_BLOCKING, level) };
        context.check("cuStreamCreateWithPriority", result)?;
        Ok(Self { context: context.clone(), handle: Handle(handle) })
    }

    /// Whose it is.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for all of its work.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: our handle.
        self.context.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle.0) })
    }

    /// Whether all of its work is done.
    pub fn is_idle(&self) -> Result<bool, DriverError> {
        self.context.make_current()?;
        // SAFETY: our handle.
        match self.context.judge("cuStreamQuery", unsafe { sys::cuStreamQuery(self.handle.0) }) {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_not_ready() => Ok(false),
            Err(failure) => Err(self.context.error(failure)),
        }
    }

    /// Later work waits for what the event recorded, also on another device.
    pub fn wait_event(&self, event: &Event) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: both are live handles.
        let result = unsafe { sys::cuStreamWaitEvent(self.handle.0, event.handle.0, 0) };
        self.context.check("cuStreamWaitEvent", result)
    }

    /// Puts a copy from host memory on the stream.
    ///
    /// # Safety
    ///
    /// `bytes` bytes at `from` can be read and as many at `to` are device memory (or mapped host memory), and both stay
    /// so, unused by others, until the stream has passed the copy; captured, at each run of the graph.
    pub unsafe fn copy_to_device(&self, to: u64, from: *const u8, bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the caller's contract.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.handle.0) };
        self.context.check("cuMemcpyHtoDAsync", result)
    }

    /// Puts a copy to host memory on the stream.
    ///
    /// # Safety
    ///
    /// As for [`copy_to_device`](Self::copy_to_device), with the sides exchanged.
    pub unsafe fn copy_to_host(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the caller's contract.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.handle.0) };
        self.context.check("cuMemcpyDtoHAsync", result)
    }

    /// Puts a copy inside device memory on the stream.
    ///
    /// # Safety
    ///
    /// As for [`copy_to_device`](Self::copy_to_device); the ranges do not overlap.
    pub unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the caller's contract.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle.0) };
        self.context.check("cuMemcpyDtoDAsync", result)
    }

    /// Puts a fill of `bytes` bytes at `at` with zero on the stream.
    ///
    /// # Safety
    ///
    /// The range is device memory that nothing else uses until the stream has passed the fill.
    pub unsafe fn fill_zero(&self, at: u64, bytes: usize) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the caller's contract.
        let result = unsafe { sys::cuMemsetD8Async(at, 0, bytes, self.handle.0) };
        self.context.check("cuMemsetD8Async", result)
    }

    /// Later work waits until the word at `at` is `value` or more, modulo 2^32.
    ///
    /// # Safety
    ///
    /// `at` is the device address of an aligned word that stays mapped until the stream has passed the wait.
    pub unsafe fn wait_word(&self, at: u64, value: u32) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the caller's contract.
        let result = unsafe { sys::cuStreamWaitValue32_v2(self.handle.0, at, value, AT_LEAST) };
        self.context.check("cuStreamWaitValue32", result)
    }

    /// Writes a word when earlier work is done and its writes are visible.
    ///
    /// # Safety
    ///
    /// As for [`wait_word`](Self::wait_word), and whoever reads the word does so with volatile accesses.
    pub unsafe fn write_word(&self, at: u64, value: u32) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: the caller's contract.
        let result = unsafe { sys::cuStreamWriteValue32_v2(self.handle.0, at, value, 0) };
        self.context.check("cuStreamWriteValue32", result)
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.handle.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: our handle, destroyed once; the driver finishes work that is still on it.
        self.context.free("cuStreamDestroy", || unsafe { sys::cuStreamDestroy_v2(self.handle.0) });
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.context)
    }
}

/// Whether an event keeps a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// It can be given to [`Event::elapsed_ms`].
    On,
    /// It only orders, which costs less.
    Off,
}

/// A point in a stream's work.
pub struct Event {
    context: Context,
    handle: Handle<sys::CUevent_st>,
}

impl Event {
    /// An event that recorded nothing.
    pub fn new(context: &Context, timing: Timing) -> Result<Self, DriverError> {
        context.make_current()?;
        let flags = if timing == Timing::On { 0 } else { NO_TIMING };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context is current; `handle` is a place for one pointer.
        context.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(Self { context: context.clone(), handle: Handle(handle) })
    }

    /// Records what the stream holds now.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: both are live handles.
        self.context.check("cuEventRecord", unsafe { sys::cuEventRecord(self.handle.0, stream.raw()) })
    }

    /// Waits until the device is past it.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: our handle.
        self.context.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle.0) })
    }

    /// Whether the device is past it.
    pub fn is_done(&self) -> Result<bool, DriverError> {
        self.context.make_current()?;
        // SAFETY: our handle.
        match self.context.judge("cuEventQuery", unsafe { sys::cuEventQuery(self.handle.0) }) {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_not_ready() => Ok(false),
            Err(failure) => Err(self.context.error(failure)),
        }
    }

    /// Milliseconds from `since` to this one. Both keep time and are done.
    pub fn elapsed_ms(&self, since: &Self) -> Result<f32, DriverError> {
        self.context.make_current()?;
        let mut elapsed = 0.0;
        // SAFETY: both are live handles; `elapsed` is a place for one number.
        let result = unsafe { sys::cuEventElapsedTime(&mut elapsed, since.handle.0, self.handle.0) };
        self.context.check("cuEventElapsedTime", result)?;
        Ok(elapsed)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: our handle, destroyed once; the driver keeps what still waits for it.
        self.context.free("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(self.handle.0) });
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.context)
    }
}
