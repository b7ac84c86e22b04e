//! A device's primary context: made current where it is needed, and dead after its first fatal error.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;

use super::Handle;
use super::device::{self, Device};
use super::failure::{DriverError, Failure, judge};

/// A device made ready for work. Clones share it; everything made from it keeps it.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    device: Device,
    raw: sys::CUdevice,
    handle: Handle<sys::CUctx_st>,
    /// Tells this context from an earlier one of the same device, whose handle may have been the same.
    id: u64,
    dead: OnceLock<Failure>,
    /// The first error of a `drop`, which has nobody to tell.
    dropped: OnceLock<Failure>,
}

thread_local! {
    /// The context that this thread made current last.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

impl Context {
    /// Takes the device of this number.
    pub fn new(ordinal: u32) -> Result<Self, DriverError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let device = Device::of(ordinal)?;
        let raw = device::handle(ordinal)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the driver is started and `raw` is its handle; `handle` is a place for one pointer.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, raw) };
        judge("cuDevicePrimaryCtxRetain", result).map_err(|f| f.error())?;
        let context = Self(Arc::new(Inner {
            device,
            raw,
            handle: Handle(handle),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            dead: OnceLock::new(),
            dropped: OnceLock::new(),
        }));
        context.make_current()?;
        Ok(context)
    }

    /// What it was made from.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Free and total bytes of the device's memory.
    pub fn memory(&self) -> Result<(usize, usize), DriverError> {
        let (mut free, mut total) = (0, 0);
        self.make_current()?;
        // SAFETY: a context is current; both are places for one size.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Waits for everything that was given to the device; refused while a stream of it records a graph.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.make_current()?;
        // SAFETY: a context is current.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Waits for copies and fills outside of streams. Waiting for the whole device would also wait for every stream, and
    /// is refused while any of them records a graph.
    pub(super) fn finish(&self) -> Result<(), DriverError> {
        self.make_current()?;
        // SAFETY: a context is current; null is its default stream.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) })
    }

    /// The first fatal error, or the first of a `drop`; `Ok` if there was none.
    pub fn health(&self) -> Result<(), DriverError> {
        if let Some(first) = self.0.dead.get() {
            return Err(first.dead(self.0.device.ordinal));
        }
        self.0.dropped.get().map_or(Ok(()), |first| Err(first.error()))
    }

    /// Makes it the calling thread's context; refuses once it is dead.
    pub(super) fn make_current(&self) -> Result<(), DriverError> {
        if let Some(first) = self.0.dead.get() {
            return Err(first.dead(self.0.device.ordinal));
        }
        if CURRENT.get() == self.0.id {
            return Ok(());
        }
        // SAFETY: the handle is retained as long as `self` lives.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.0.handle.0) })?;
        CURRENT.set(self.0.id);
        Ok(())
    }

    /// Looks at a result; a fatal one is remembered, and whoever comes later gets the first.
    pub(super) fn judge(&self, call: &'static str, result: sys::CUresult) -> Result<(), Failure> {
        judge(call, result).inspect_err(|failure| {
            if failure.is_fatal() {
                self.0.dead.get_or_init(|| *failure);
            }
        })
    }

    /// [`judge`](Self::judge) as an error.
    pub(super) fn check(&self, call: &'static str, result: sys::CUresult) -> Result<(), DriverError> {
        self.judge(call, result).map_err(|f| self.error(f))
    }

    /// The error of a failure: the first fatal one if there was one.
    pub(super) fn error(&self, failure: Failure) -> DriverError {
        match self.0.dead.get() {
            Some(first) => first.dead(self.0.device.ordinal),
            None => failure.error(),
        }
    }

    /// Frees something in a `drop`: what goes wrong is kept for [`health`](Self::health). A dead context's handles are
    /// gone with it.
    pub(super) fn free(&self, call: &'static str, free: impl FnOnce() -> sys::CUresult) {
        if self.make_current().is_ok()
            && let Err(failure) = self.judge(call, free())
        {
            self.0.dropped.get_or_init(|| failure);
        }
    }

    /// Whether both are of the same device.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `new`, and nothing made from it is left. An error has nobody to tell any more.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.raw) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(GPU {}, {})", self.0.device.ordinal, self.0.device.name)
    }
}
