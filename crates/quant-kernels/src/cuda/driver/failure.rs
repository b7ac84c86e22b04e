//! What the driver says when it refuses, and which refusals end a context.

use std::ffi::CStr;

use cudarc::driver::sys;

/// Why a device cannot be used, or stopped being usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// No driver library.
    #[error("there is no NVIDIA driver: libcuda.so.1 was not found; install the driver (R525 or newer)")]
    NoLibrary,
    /// A driver from before CUDA 12.0.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {major}.{minor}, and maya needs 12.0 (driver R525 or newer)"
    )]
    TooOld {
        /// Its CUDA version.
        major: u32,
        /// The part after the dot.
        minor: u32,
    },
    /// An ordinal that no device has.
    #[error("there is no GPU {ordinal}: the driver shows {devices}")]
    NoDevice {
        /// What was asked for.
        ordinal: u32,
        /// How many there are.
        devices: u32,
    },
    /// Device memory ran out.
    #[error("GPU {ordinal} has no {asked} bytes left: {free} of {total} bytes are free")]
    OutOfMemory {
        /// The device.
        ordinal: u32,
        /// Bytes that were asked for.
        asked: usize,
        /// Bytes that were free afterwards.
        free: usize,
        /// All its memory.
        total: usize,
    },
    /// Page-locked memory ran out.
    #[error(
        "{asked} bytes of host memory cannot be locked for the GPU ({name}); free memory or raise `ulimit -l`"
    )]
    Lock {
        /// Bytes that were asked for.
        asked: usize,
        /// The driver's name of the error.
        name: &'static str,
    },
    /// A module without the entry that was asked for.
    #[error("the GPU module has no entry {entry}")]
    NoEntry {
        /// Its name.
        entry: String,
    },
    /// Two lengths that must be equal.
    #[error("a copy of {host} elements does not fit {device} elements of GPU memory")]
    Length {
        /// Elements on the host.
        host: usize,
        /// Elements on the device.
        device: usize,
    },
    /// A length whose bytes do not fit a `usize`.
    #[error("{elements} elements of {each} bytes are more than there can be")]
    TooLong {
        /// How many.
        elements: usize,
        /// Their size.
        each: usize,
    },
    /// More arguments than [`Args`](super::Args) holds.
    #[error("a kernel was given more arguments than fit")]
    TooManyArguments,
    /// A call that failed.
    #[error("{call} failed: {name} ({code})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The result's name.
        name: &'static str,
    },
    /// A context after an error that it does not survive.
    #[error("GPU {ordinal} cannot be used any more since {call} reported {name} ({code})")]
    Dead {
        /// The device.
        ordinal: u32,
        /// The first call that reported it.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The result's name.
        name: &'static str,
    },
}

/// A result that is not success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub call: &'static str,
    pub code: u32,
    pub name: &'static str,
}

impl Failure {
    pub fn error(self) -> DriverError {
        DriverError::Call { call: self.call, code: self.code, name: self.name }
    }

    pub fn dead(self, ordinal: u32) -> DriverError {
        DriverError::Dead { ordinal, call: self.call, code: self.code, name: self.name }
    }

    /// Whether no later call of the context can succeed.
    pub fn is_fatal(self) -> bool {
        is_fatal(self.code)
    }

    pub fn is_out_of_memory(self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
    }

    pub fn is_no_device(self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NO_DEVICE as u32
    }

    pub fn is_not_ready(self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NOT_READY as u32
    }

    pub fn is_not_found(self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NOT_FOUND as u32
    }
}

/// Success, or who failed and how.
pub(super) fn judge(call: &'static str, result: sys::CUresult) -> Result<(), Failure> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Failure { call, code: result as u32, name: name(result) })
}

fn name(result: sys::CUresult) -> &'static str {
    let mut text = std::ptr::null();
    // SAFETY: a result exists, so the library is there; `text` is a place for one pointer.
    let known = unsafe { sys::cuGetErrorName(result, &mut text) };
    if known != sys::CUresult::CUDA_SUCCESS || text.is_null() {
        return "an error without a name";
    }
    // SAFETY: the driver answers with a static, terminated string.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("an error without a name")
}

/// The errors after which the driver's manual says that the context must be destroyed, and loss of the device. All
/// others leave it usable: a full memory, a wrong argument, an unknown name.
fn is_fatal(code: u32) -> bool {
    match code {
        // Deinitialized, device unavailable, ECC, NVLink.
        4 | 46 | 214 | 220 => true,
        // Illegal address, timeout, destroyed context, assertion.
        700 | 702 | 709 | 710 => true,
        // Stack, instruction, alignment, address space, program counter, launch failure.
        714..=719 => true,
        // Contained error (from CUDA 12.8 on), unknown.
        721 | 999 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_errors_are_those_of_running_kernels() {
        use sys::CUresult as R;
        for fatal in [R::CUDA_ERROR_ILLEGAL_ADDRESS, R::CUDA_ERROR_LAUNCH_FAILED, R::CUDA_ERROR_UNKNOWN] {
            assert!(is_fatal(fatal as u32), "{fatal:?}");
        }
        for mild in [
            R::CUDA_ERROR_OUT_OF_MEMORY,
            R::CUDA_ERROR_NOT_FOUND,
            R::CUDA_ERROR_NOT_READY,
            R::CUDA_ERROR_INVALID_VALUE,
            R::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            R::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        ] {
            assert!(!is_fatal(mild as u32), "{mild:?}");
        }
    }

    #[test]
    fn a_dead_context_names_the_first_error() {
        let first = Failure { call: "cuStreamSynchronize", code: 700, name: "CUDA_ERROR_ILLEGAL_ADDRESS" };
        let text = first.dead(1).to_string();
        assert_eq!(
            text,
            "GPU 1 cannot be used any more since cuStreamSynchronize reported CUDA_ERROR_ILLEGAL_ADDRESS (700)"
        );
    }
}
