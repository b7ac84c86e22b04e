//! Host memory that the device reaches: allocated for it, or registered.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use bytemuck::Pod;
use cudarc::driver::sys;

use super::context::Context;
use super::failure::DriverError;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`. Not write-combined: the CPU reads it, and reads of
/// write-combined memory go around the caches.
const ALLOCATE: u32 = 0x01 | 0x02;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTER: u32 = 0x01 | 0x02;

/// Page-locked, zeroed host memory, mapped for every device, freed when dropped.
///
/// Its slices are ordinary memory: the contracts of launches and copies forbid that the device changes it while a slice
/// is borrowed. Words that both sides touch at once go through [`as_ptr`](Self::as_ptr) and volatile accesses.
pub struct Pinned {
    context: Context,
    at: NonNull<u8>,
    bytes: usize,
    device: u64,
}

// SAFETY: the memory belongs to the value, not to a thread.
unsafe impl Send for Pinned {}
// SAFETY: a shared borrow only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates at least one byte.
    pub fn new(context: &Context, bytes: usize) -> Result<Self, DriverError> {
        let bytes = bytes.max(1);
        let mut at: *mut c_void = std::ptr::null_mut();
        context.make_current()?;
        // SAFETY: a context is current; `at` is a place for one pointer.
        let result = unsafe { sys::cuMemHostAlloc(&mut at, bytes, ALLOCATE) };
        context.judge("cuMemHostAlloc", result).map_err(|failure| {
            if failure.is_out_of_memory() {
                return DriverError::Lock { asked: bytes, name: failure.name };
            }
            context.error(failure)
        })?;
        let Some(at) = NonNull::new(at.cast::<u8>()) else {
            return Err(DriverError::Lock { asked: bytes, name: "a null pointer" });
        };
        // SAFETY: `bytes` bytes were allocated there, and nobody else knows them.
        unsafe { at.as_ptr().write_bytes(0, bytes) };
        let mut pinned = Self { context: context.clone(), at, bytes, device: 0 };
        pinned.device = device_address(context, at)?;
        Ok(pinned)
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the device finds it.
    pub fn device_address(&self) -> u64 {
        self.device
    }

    /// Where the host finds it.
    pub fn as_ptr(&self) -> *const u8 {
        self.at.as_ptr()
    }

    /// Where the host finds it, to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// As many whole elements as fit.
    pub fn slice<T: Pod>(&self) -> &[T] {
        // SAFETY: initialised in `new`; any bytes are a `T`; the driver's allocations are aligned to pages.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast::<T>(), self.fitting::<T>()) }
    }

    /// As many whole elements as fit, to write.
    pub fn slice_mut<T: Pod>(&mut self) -> &mut [T] {
        // SAFETY: as in `slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast::<T>(), self.fitting::<T>()) }
    }

    fn fitting<T: Pod>(&self) -> usize {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096) };
        self.bytes / size_of::<T>()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: our allocation, freed once.
        self.context.free("cuMemFreeHost", || unsafe { sys::cuMemFreeHost(self.at.as_ptr().cast()) });
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes, device {:#x})", self.bytes, self.device)
    }
}

/// Memory of somebody else's, page-locked and mapped for every device until this is dropped.
pub struct HostRegistration {
    context: Context,
    at: NonNull<u8>,
    bytes: usize,
    device: u64,
}

// SAFETY: it holds an address and a length; locking and unlocking may happen on any thread.
unsafe impl Send for HostRegistration {}
// SAFETY: a shared borrow reads the address only.
unsafe impl Sync for HostRegistration {}

impl HostRegistration {
    /// Registers `bytes` bytes at `at`.
    ///
    /// # Safety
    ///
    /// The range is mapped, readable and writable, and stays so until the registration is dropped.
    pub unsafe fn new(context: &Context, at: NonNull<u8>, bytes: usize) -> Result<Self, DriverError> {
        context.make_current()?;
        // SAFETY: the caller keeps the range mapped.
        let result = unsafe { sys::cuMemHostRegister_v2(at.as_ptr().cast(), bytes, REGISTER) };
        context.judge("cuMemHostRegister", result).map_err(|failure| {
            if failure.is_out_of_memory() {
                return DriverError::Lock { asked: bytes, name: failure.name };
            }
            context.error(failure)
        })?;
        let mut registration = Self { context: context.clone(), at, bytes, device: 0 };
        registration.device = device_address(context, at)?;
        Ok(registration)
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the device finds it.
    pub fn device_address(&self) -> u64 {
        self.device
    }
}

impl Drop for HostRegistration {
    fn drop(&mut self) {
        // SAFETY: registered once in `new`, and the caller of `new` kept it mapped.
        self.context
            .free("cuMemHostUnregister", || unsafe { sys::cuMemHostUnregister(self.at.as_ptr().cast()) });
    }
}

impl fmt::Debug for HostRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostRegistration({} bytes, device {:#x})", self.bytes, self.device)
    }
}

fn device_address(context: &Context, at: NonNull<u8>) -> Result<u64, DriverError> {
    let mut device = 0;
    // SAFETY: the memory was mapped for devices; `device` is a place for one address.
    let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut device, at.as_ptr().cast(), 0) };
    context.check("cuMemHostGetDevicePointer", result)?;
    Ok(device)
}
