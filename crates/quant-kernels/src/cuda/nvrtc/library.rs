//! The functions of `libnvrtc` that maya calls.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;

use super::NvrtcError;
use crate::cuda::unit::{Arch, Unit, Version};

type Program = *mut c_void;

/// `NVRTC_SUCCESS`.
const SUCCESS: c_int = 0;
/// `NVRTC_ERROR_COMPILATION`.
const REFUSED: c_int = 6;

/// The functions, as long as the library is loaded: to the end of the process. Unloading 100 MB of somebody else's
/// static state is nothing to rely on.
pub struct Library {
    _library: ManuallyDrop<libloading::Library>,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    count_archs: unsafe extern "C" fn(*mut c_int) -> c_int,
    list_archs: unsafe extern "C" fn(*mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
}

impl Library {
    /// Loads the library and looks up every function.
    pub fn open(path: &Path) -> Result<Self, NvrtcError> {
        // SAFETY: runs the initialisers of a library that the user or the system names as NVIDIA's compiler.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|e| NvrtcError::Load { path: path.to_owned(), why: reason(&e) })?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the field's type is the function's in nvrtc.h, unchanged from 11.2 to 13.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|_| NvrtcError::NoFunction { function: $name })?
            };
        }
        Ok(Self {
            version: function!("nvrtcVersion"),
            count_archs: function!("nvrtcGetNumSupportedArchs"),
            list_archs: function!("nvrtcGetSupportedArchs"),
            error_string: function!("nvrtcGetErrorString"),
            create: function!("nvrtcCreateProgram"),
            compile: function!("nvrtcCompileProgram"),
            cubin_size: function!("nvrtcGetCUBINSize"),
            cubin: function!("nvrtcGetCUBIN"),
            log_size: function!("nvrtcGetProgramLogSize"),
            log: function!("nvrtcGetProgramLog"),
            destroy: function!("nvrtcDestroyProgram"),
            _library: ManuallyDrop::new(library),
        })
    }

    /// The library's version.
    pub fn version(&self) -> Result<Version, NvrtcError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are places for one number.
        self.check("nvrtcVersion", unsafe { (self.version)(&mut major, &mut minor) })?;
        let number = |n: c_int| u32::try_from(n).unwrap_or(0);
        Ok(Version { major: number(major), minor: number(minor) })
    }

    /// The architectures that it knows.
    pub fn archs(&self) -> Result<Vec<Arch>, NvrtcError> {
        let mut count = 0;
        // SAFETY: a place for one number.
        self.check("nvrtcGetNumSupportedArchs", unsafe { (self.count_archs)(&mut count) })?;
        let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the array has as many places as the library said it wants.
        self.check("nvrtcGetSupportedArchs", unsafe { (self.list_archs)(numbers.as_mut_ptr()) })?;
        Ok(numbers.into_iter().filter_map(|n| u32::try_from(n).ok()).map(Arch::new).collect())
    }

    /// Compiles; the cubin and the log.
    pub fn compile(
        &self,
        unit: &Unit,
        arch: Arch,
        options: &[String],
    ) -> Result<(Vec<u8>, String), NvrtcError> {
        let own = |text: &str| CString::new(text).map_err(|_| NvrtcError::ZeroByte { unit: unit.name });
        let owned = |texts: &mut dyn Iterator<Item = &str>| texts.map(own).collect::<Result<Vec<_>, _>>();
        let (source, name) = (own(unit.source)?, own(&format!("{}.cu", unit.name))?);
        let texts = owned(&mut unit.headers.iter().map(|(_, text)| *text))?;
        let names = owned(&mut unit.headers.iter().map(|(name, _)| *name))?;
        let options = owned(&mut options.iter().map(String::as_str))?;
        let (texts, names, options) = (pointers(&texts), pointers(&names), pointers(&options));
        let mut program = Owned { library: self, program: std::ptr::null_mut() };
        // SAFETY: every text is terminated and lives past the call; both lists have as many entries as is said.
        let result = unsafe {
            (self.create)(
                &mut program.program,
                source.as_ptr(),
                name.as_ptr(),
                count(&texts),
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", result)?;
        // SAFETY: a program that was created, and a list of terminated texts.
        let result = unsafe { (self.compile)(program.program, count(&options), options.as_ptr()) };
        let log =
            program.bytes(("nvrtcGetProgramLogSize", self.log_size), ("nvrtcGetProgramLog", self.log))?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        if result == REFUSED {
            return Err(NvrtcError::Compile { unit: unit.name, arch, log });
        }
        self.check("nvrtcCompileProgram", result).map_err(|error| match error {
            // An option that is not known is named only there.
            NvrtcError::Call { call, why } => {
                NvrtcError::Call { call, why: format!("{why}: {}", log.trim()) }
            }
            other => other,
        })?;
        let cubin = program.bytes(("nvrtcGetCUBINSize", self.cubin_size), ("nvrtcGetCUBIN", self.cubin))?;
        Ok((cubin, log))
    }

    fn check(&self, call: &'static str, result: c_int) -> Result<(), NvrtcError> {
        if result == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number is answered with a static, terminated text.
        let text = unsafe { (self.error_string)(result) };
        let why = if text.is_null() {
            format!("error {result}")
        } else {
            // SAFETY: not null, so it is that text.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(NvrtcError::Call { call, why })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library(libnvrtc)")
    }
}

/// A program, destroyed when dropped.
struct Owned<'a> {
    library: &'a Library,
    program: Program,
}

impl Owned<'_> {
    /// Bytes that one function measures and another writes.
    fn bytes(
        &self,
        measure: (&'static str, unsafe extern "C" fn(Program, *mut usize) -> c_int),
        write: (&'static str, unsafe extern "C" fn(Program, *mut c_char) -> c_int),
    ) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: a program that was created; `size` is a place for one size.
        self.library.check(measure.0, unsafe { (measure.1)(self.program, &mut size) })?;
        let mut bytes = vec![0; size];
        // SAFETY: as many bytes as the library said it writes.
        self.library.check(write.0, unsafe { (write.1)(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: created by this library, destroyed once. What it says then interests nobody.
            let _ = unsafe { (self.library.destroy)(&mut self.program) };
        }
    }
}

/// What the loader said, with what the system told it.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn count(list: &[*const c_char]) -> c_int {
    c_int::try_from(list.len()).unwrap_or(c_int::MAX)
}
