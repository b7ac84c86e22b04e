//! Device code that is loaded, and its entries.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attribute};

use super::Handle;
use super::context::Context;
use super::failure::DriverError;

/// A loaded cubin. Clones share it; it is unloaded with the last clone and the last kernel.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    context: Context,
    handle: Handle<sys::CUmod_st>,
}

impl Module {
    /// Loads a cubin. Bytes that are none are refused by the driver; they come from our own compiler or a file whose
    /// digest was checked.
    pub fn load(context: &Context, cubin: &[u8]) -> Result<Self, DriverError> {
        // The driver reads the length from the image itself, so a short one must not end at a page's end.
        let mut image = Vec::with_capacity(cubin.len() + 4096);
        image.extend_from_slice(cubin);
        image.resize(cubin.len() + 4096, 0);
        context.make_current()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context is current; the image is copied before the call returns.
        let result = unsafe { sys::cuModuleLoadData(&mut handle, image.as_ptr().cast()) };
        context.check("cuModuleLoadData", result)?;
        Ok(Self(Arc::new(Inner { context: context.clone(), handle: Handle(handle) })))
    }

    /// One of its entries.
    pub fn kernel(&self, entry: &str) -> Result<Kernel, DriverError> {
        let missing = || DriverError::NoEntry { entry: entry.to_owned() };
        let name = CString::new(entry).map_err(|_| missing())?;
        let context = &self.0.context;
        context.make_current()?;
        let mut function = std::ptr::null_mut();
        // SAFETY: a loaded module and a terminated name; `function` is a place for one pointer.
        let result = unsafe { sys::cuModuleGetFunction(&mut function, self.0.handle.0, name.as_ptr()) };
        match context.judge("cuModuleGetFunction", result) {
            Ok(()) => Ok(Kernel { module: self.clone(), function: Handle(function) }),
            Err(failure) if failure.is_not_found() => Err(missing()),
            Err(failure) => Err(context.error(failure)),
        }
    }

    /// Address and bytes of a variable of the module.
    pub fn global(&self, name: &str) -> Result<(u64, usize), DriverError> {
        let missing = || DriverError::NoEntry { entry: name.to_owned() };
        let text = CString::new(name).map_err(|_| missing())?;
        let context = &self.0.context;
        context.make_current()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: a loaded module and a terminated name; both are places for one number.
        let result =
            unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.0.handle.0, text.as_ptr()) };
        match context.judge("cuModuleGetGlobal", result) {
            Ok(()) => Ok((address, bytes)),
            Err(failure) if failure.is_not_found() => Err(missing()),
            Err(failure) => Err(context.error(failure)),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: our handle, unloaded once, after the last kernel.
        self.context.free("cuModuleUnload", || unsafe { sys::cuModuleUnload(self.handle.0) });
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({:?})", self.0.context)
    }
}

/// An entry of a module, to be launched.
#[derive(Clone)]
pub struct Kernel {
    module: Module,
    function: Handle<sys::CUfunc_st>,
}

impl Kernel {
    /// Allows launches with up to this many bytes of dynamic shared memory. Needed above 48 KB.
    pub fn set_max_dynamic_smem(&self, bytes: u32) -> Result<(), DriverError> {
        let context = self.context();
        context.make_current()?;
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: an entry of a loaded module.
        let result = unsafe { sys::cuFuncSetAttribute(self.function.0, which, value) };
        context.check("cuFuncSetAttribute", result)
    }

    /// Registers of a thread.
    pub fn n_registers(&self) -> Result<u32, DriverError> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// Local memory of a thread, in bytes: spills and arrays.
    pub fn local_bytes(&self) -> Result<u32, DriverError> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }

    /// Most threads of a block.
    pub fn max_threads(&self) -> Result<u32, DriverError> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    }

    /// How many blocks of `threads` threads and `smem` bytes of dynamic shared memory one multiprocessor holds.
    pub fn max_active_blocks(&self, threads: u32, smem: u32) -> Result<u32, DriverError> {
        let context = self.context();
        context.make_current()?;
        let mut blocks = 0;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        // SAFETY: an entry of a loaded module; `blocks` is a place for one number.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function.0,
                threads,
                smem as usize,
            )
        };
        context.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    fn attribute(&self, which: Attribute) -> Result<u32, DriverError> {
        let context = self.context();
        context.make_current()?;
        let mut value = 0;
        // SAFETY: an entry of a loaded module; `value` is a place for one number.
        let result = unsafe { sys::cuFuncGetAttribute(&mut value, which, self.function.0) };
        context.check("cuFuncGetAttribute", result)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    pub(super) fn context(&self) -> &Context {
        &self.module.0.context
    }

    pub(super) fn raw(&self) -> sys::CUfunction {
        self.function.0
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({:?})", self.module.0.context)
    }
}
