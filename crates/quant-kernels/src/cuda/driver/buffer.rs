//! Memory of the device: bytes, and elements.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use cudarc::driver::sys;

use super::context::Context;
use super::failure::DriverError;
use super::pinned::Pinned;
use super::stream::Stream;

/// Device memory without a type, freed when dropped. It is not initialised: what is read before it is written is
/// whatever was there.
///
/// Work that still uses it when it is dropped breaks the contract of the launch that began this work.
pub struct Buffer {
    context: Context,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates; none are no allocation, at address 0. The driver aligns to 256 bytes.
    pub fn new(context: &Context, bytes: usize) -> Result<Self, DriverError> {
        let mut address = 0;
        if bytes > 0 {
            context.make_current()?;
            // SAFETY: a context is current; `address` is a place for one address.
            let result = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
            if let Err(failure) = context.judge("cuMemAlloc", result) {
                if !failure.is_out_of_memory() {
                    return Err(context.error(failure));
                }
                let (free, total) = context.memory()?;
                let ordinal = context.device().ordinal;
                return Err(DriverError::OutOfMemory { ordinal, asked: bytes, free, total });
            }
        }
        Ok(Self { context: context.clone(), address, bytes })
    }

    /// Where it is, for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whose memory it is.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Sets every byte to zero, and waits.
    pub fn fill_zero(&mut self) -> Result<(), DriverError> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.context.make_current()?;
        // SAFETY: the range is our allocation.
        let result = unsafe { sys::cuMemsetD8_v2(self.address, 0, self.bytes) };
        self.context.check("cuMemsetD8", result)?;
        // Filling device memory does not wait for the device by itself.
        self.context.finish()
    }

    /// Copies bytes to `offset`, and waits. Work on streams is not waited for: synchronize first.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), DriverError> {
        let at = self.place(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        self.context.make_current()?;
        // SAFETY: `place` checked the device's range; the host's is borrowed until the call has copied it.
        let result = unsafe { sys::cuMemcpyHtoD_v2(at, from.as_ptr().cast::<c_void>(), from.len()) };
        self.context.check("cuMemcpyHtoD", result)?;
        // Up to 64 KB may be staged and still be on its way when the call returns.
        self.context.finish()
    }

    /// Copies bytes from `offset`, and waits. Work on streams is not waited for: synchronize first.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let at = self.place(offset, to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        self.context.make_current()?;
        // SAFETY: `place` checked the device's range; the host's is borrowed until the call has filled it.
        let result = unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast::<c_void>(), at, to.len()) };
        self.context.check("cuMemcpyDtoH", result)
    }

    /// The address of a range inside.
    pub(super) fn place(&self, offset: usize, bytes: usize) -> Result<u64, DriverError> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        if end.is_none() {
            return Err(DriverError::Length { host: bytes, device: self.bytes.saturating_sub(offset) });
        }
        Ok(self.address + offset as u64)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: our allocation, freed once.
            self.context.free("cuMemFree", || unsafe { sys::cuMemFree_v2(self.address) });
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes at {:#x})", self.bytes, self.address)
    }
}

/// Elements in device memory.
#[derive(Debug)]
pub struct DeviceSlice<T> {
    buffer: Buffer,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> DeviceSlice<T> {
    /// Allocates `len` elements, all bits zero.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, DriverError> {
        let mut slice = Self::uninitialised(context, len)?;
        slice.buffer.fill_zero()?;
        Ok(slice)
    }

    /// Allocates `len` elements that hold whatever was there.
    pub fn uninitialised(context: &Context, len: usize) -> Result<Self, DriverError> {
        let each = size_of::<T>();
        let bytes = len.checked_mul(each).ok_or(DriverError::TooLong { elements: len, each })?;
        Ok(Self { buffer: Buffer::new(context, bytes)?, len, elements: PhantomData })
    }

    /// Allocates and copies.
    pub fn of(context: &Context, from: &[T]) -> Result<Self, DriverError> {
        let mut slice = Self::uninitialised(context, from.len())?;
        slice.copy_from(from)?;
        Ok(slice)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it is, for kernels.
    pub fn address(&self) -> u64 {
        self.buffer.address
    }

    /// Where element `index` is, for kernels; `index` may be the length.
    pub fn address_of(&self, index: usize) -> u64 {
        assert!(index <= self.len, "element {index} of {}", self.len);
        self.buffer.address + (index * size_of::<T>()) as u64
    }

    /// The memory without its type.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Sets every bit to zero, and waits.
    pub fn fill_zero(&mut self) -> Result<(), DriverError> {
        self.buffer.fill_zero()
    }

    /// Copies as many elements as there are from the host, and waits. Streams are not waited for.
    pub fn copy_from(&mut self, from: &[T]) -> Result<(), DriverError> {
        self.same_length(from.len())?;
        self.buffer.write(0, bytemuck::cast_slice(from))
    }

    /// Copies all elements to the host, and waits. Streams are not waited for.
    pub fn copy_to(&self, to: &mut [T]) -> Result<(), DriverError> {
        self.same_length(to.len())?;
        self.buffer.read(0, bytemuck::cast_slice_mut(to))
    }

    /// Copies all elements into a new vector, and waits. Streams are not waited for.
    pub fn to_vec(&self) -> Result<Vec<T>, DriverError> {
        let mut elements = vec![T::zeroed(); self.len];
        self.copy_to(&mut elements)?;
        Ok(elements)
    }

    /// Puts a copy of the first elements of `from`, as many as there are here, on a stream.
    ///
    /// # Safety
    ///
    /// Until the stream has passed the copy (and, captured, at each run of the graph) `from` is neither written nor
    /// dropped, and nothing else uses or drops `self`.
    pub unsafe fn copy_from_on(&mut self, stream: &Stream, from: &Pinned) -> Result<(), DriverError> {
        self.fits_in(from)?;
        // SAFETY: both ranges are as long as this buffer; the caller keeps them.
        unsafe { stream.copy_to_device(self.buffer.address, from.as_ptr(), self.buffer.bytes) }
    }

    /// Puts a copy of all elements into the beginning of `to` on a stream.
    ///
    /// # Safety
    ///
    /// Until the stream has passed the copy (and, captured, at each run of the graph) `to` is neither read, written nor
    /// dropped, and nothing else writes or drops `self`.
    pub unsafe fn copy_to_on(&self, stream: &Stream, to: &mut Pinned) -> Result<(), DriverError> {
        self.fits_in(to)?;
        // SAFETY: both ranges are as long as this buffer; the caller keeps them.
        unsafe { stream.copy_to_host(to.as_mut_ptr(), self.buffer.address, self.buffer.bytes) }
    }

    fn same_length(&self, host: usize) -> Result<(), DriverError> {
        if host == self.len { Ok(()) } else { Err(DriverError::Length { host, device: self.len }) }
    }

    fn fits_in(&self, pinned: &Pinned) -> Result<(), DriverError> {
        if self.buffer.bytes <= pinned.bytes() {
            return Ok(());
        }
        Err(DriverError::Length { host: pinned.bytes() / size_of::<T>().max(1), device: self.len })
    }
}
