//! What devices the driver shows.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};

use super::failure::{DriverError, judge};

/// The oldest driver's CUDA version: what R525 brought.
const OLDEST: c_int = 12_000;

/// A device, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// Its number among the devices that `CUDA_VISIBLE_DEVICES` leaves.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Compute capability: (9, 0) for an H200.
    pub capability: (u32, u32),
    /// All its memory, in bytes.
    pub memory_bytes: usize,
    /// Number of multiprocessors.
    pub n_multiprocessors: u32,
    /// Most shared memory of a block, in bytes, that a kernel can ask for.
    pub smem_optin_bytes: u32,
    /// Second-level cache, in bytes.
    pub l2_bytes: u32,
    /// Where it sits: `0000:8a:00.0`.
    pub pci_id: String,
    /// CUDA version of the driver: (12, 8).
    pub driver_version: (u32, u32),
}

impl Device {
    /// All devices, at least one. A machine without driver or device is an error that says so.
    pub fn all() -> Result<Vec<Self>, DriverError> {
        let version = start()?;
        (0..count()?).map(|ordinal| Self::describe(ordinal, version)).collect()
    }

    /// The device of one number.
    pub fn of(ordinal: u32) -> Result<Self, DriverError> {
        let version = start()?;
        let devices = count()?;
        if ordinal >= devices {
            return Err(DriverError::NoDevice { ordinal, devices });
        }
        Self::describe(ordinal, version)
    }

    /// The capability as one number, `sm_90` being 90.
    pub fn arch(&self) -> u32 {
        self.capability.0 * 10 + self.capability.1
    }

    fn describe(ordinal: u32, version: c_int) -> Result<Self, DriverError> {
        let device = handle(ordinal)?;
        let mut bytes = 0;
        // SAFETY: the driver is started and `device` is one of its handles; `bytes` is a place for one size.
        judge("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, device) })
            .map_err(|f| f.error())?;
        let attribute = |which| attribute(device, which);
        Ok(Self {
            ordinal,
            // SAFETY: the function writes at most `len` bytes, terminator included, to `at`.
            name: text("cuDeviceGetName", |at, len| unsafe { sys::cuDeviceGetName(at, len, device) })?,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory_bytes: bytes,
            n_multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            smem_optin_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            // SAFETY: the function writes at most `len` bytes, terminator included, to `at`.
            pci_id: text("cuDeviceGetPCIBusId", |at, len| unsafe {
                sys::cuDeviceGetPCIBusId(at, len, device)
            })?,
            driver_version: split(version),
        })
    }
}

/// Starts the driver once; its version.
fn start() -> Result<c_int, DriverError> {
    static STARTED: OnceLock<Result<c_int, DriverError>> = OnceLock::new();
    STARTED.get_or_init(start_now).clone()
}

fn start_now() -> Result<c_int, DriverError> {
    // SAFETY: opens a library by name and closes it again. Every later call would panic without it.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NoLibrary);
    }
    let mut version = 0;
    // SAFETY: the library is there, and this function may be called before `cuInit`.
    judge("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) }).map_err(|f| f.error())?;
    if version < OLDEST {
        let (major, minor) = split(version);
        return Err(DriverError::TooOld { major, minor });
    }
    // SAFETY: the library is there; the function may be called again and again.
    match judge("cuInit", unsafe { sys::cuInit(0) }) {
        Ok(()) => Ok(version),
        Err(failure) if failure.is_no_device() => Err(DriverError::NoDevice { ordinal: 0, devices: 0 }),
        Err(failure) => Err(failure.error()),
    }
}

fn split(version: c_int) -> (u32, u32) {
    let version = u32::try_from(version).unwrap_or(0);
    (version / 1000, version % 1000 / 10)
}

fn count() -> Result<u32, DriverError> {
    let mut count = 0;
    // SAFETY: the driver is started; `count` is a place for one number.
    judge("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) }).map_err(|f| f.error())?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The driver's handle of a device that exists.
pub(super) fn handle(ordinal: u32) -> Result<sys::CUdevice, DriverError> {
    let mut device = 0;
    let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: the driver is started; `device` is a place for one handle.
    judge("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number) }).map_err(|f| f.error())?;
    Ok(device)
}

fn attribute(device: sys::CUdevice, which: Attribute) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: `device` is a handle of the started driver; `value` is a place for one number.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) };
    judge("cuDeviceGetAttribute", result).map_err(|f| f.error())?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The text that `ask` writes.
fn text(
    call: &'static str,
    ask: impl FnOnce(*mut c_char, c_int) -> sys::CUresult,
) -> Result<String, DriverError> {
    let mut bytes = [0u8; 256];
    judge(call, ask(bytes.as_mut_ptr().cast(), 256)).map_err(|f| f.error())?;
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).trim().to_owned())
}
