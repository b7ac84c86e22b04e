//! Page-locked buffers that a reader fills and a device copies from.

#![allow(unsafe_code)]

use std::ops::Range;

use quant_kernels::cuda::{Context, DriverError, Event, Pinned, Stream, Timing};

use super::ring::Device;
use crate::cuda::memory::{Memory, Place};
use crate::error::ExecError;

/// What the driver's allocations of host memory begin at a multiple of, at least.
const PAGE: usize = 4096;

/// A page-locked buffer.
#[derive(Debug)]
pub(super) struct Staging {
    pinned: Pinned,
    /// Where it begins, and its length.
    range: Range<usize>,
    /// The end of the copies from it.
    copied: Event,
}

impl Staging {
    fn new(context: &Context, bytes: usize, alignment: usize) -> Result<Self, DriverError> {
        let pinned = Pinned::new(context, bytes + alignment.saturating_sub(PAGE))?;
        let skip = pinned.as_ptr().align_offset(alignment);
        Ok(Self { pinned, range: skip..skip + bytes, copied: Event::new(context, Timing::Off)? })
    }
}

// SAFETY: the value owns page-locked memory, which is where it is until the value is dropped, and initialised. A device
// reads it only while an `Upload` owns the value.
unsafe impl nvme_reader::Memory for Staging {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.pinned.slice_mut()[self.range.clone()]
    }
}

/// A buffer that a device may be copying from.
#[derive(Debug)]
pub(super) struct Upload(Option<Staging>);

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(staging) = self.0.take()
            && staging.copied.synchronize().is_err()
        {
            // Nobody knows whether the device has ended. Memory that is never freed is the lesser evil.
            std::mem::forget(staging);
        }
    }
}

/// A device's memory and the stream on which weights come there.
#[derive(Debug)]
pub(super) struct Uploader<'a> {
    memory: &'a mut Memory,
    stream: Stream,
}

impl<'a> Uploader<'a> {
    pub(super) fn new(context: &Context, memory: &'a mut Memory) -> Result<Self, DriverError> {
        Ok(Self { memory, stream: Stream::new(context)? })
    }

    fn queue(&self, from: &Staging, copies: &[(Range<usize>, Place)]) -> Result<(), DriverError> {
        let bytes = &from.pinned.slice::<u8>()[from.range.clone()];
        for (range, to) in copies {
            let (from, room) = (&bytes[range.clone()], self.memory.buffer.bytes() as u64);
            assert!(to.0 + from.len() as u64 <= room, "a copy to {to:?} of {room} bytes");
            // SAFETY: both ranges were checked. The buffer is an `Upload`'s until the device is past the copy (`send`), and
            // the device's memory is borrowed by `self`, which outlives its uploads; the plan gives each copy a place of
            // its own.
            unsafe { self.stream.copy_to_device(self.memory.at(*to), from.as_ptr(), from.len())? };
        }
        from.copied.record(&self.stream)
    }
}

impl Drop for Uploader<'_> {
    /// Nothing is on its way any more when the memory can be used otherwise.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

impl Device for Uploader<'_> {
    type Memory = Staging;
    type Upload = Upload;

    fn buffer(&self, bytes: usize, alignment: usize) -> Result<Staging, ExecError> {
        Ok(Staging::new(self.stream.context(), bytes, alignment)?)
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), ExecError> {
        Ok(self.memory.buffer.write(to.0 as usize, bytes)?)
    }

    fn send(&mut self, from: Staging, copies: &[(Range<usize>, Place)]) -> Result<Upload, ExecError> {
        match self.queue(&from, copies) {
            Ok(()) => Ok(Upload(Some(from))),
            Err(error) => {
                // Some copies may be queued, and the event is not behind them.
                if self.stream.synchronize().is_err() {
                    std::mem::forget(from);
                }
                Err(error.into())
            }
        }
    }

    fn is_done(&self, upload: &Upload) -> Result<bool, ExecError> {
        Ok(match &upload.0 {
            Some(staging) => staging.copied.is_done()?,
            None => true,
        })
    }

    fn wait(&mut self, mut upload: Upload) -> Result<Staging, ExecError> {
        if let Some(staging) = &upload.0 {
            staging.copied.synchronize()?;
        }
        Ok(upload.0.take().expect("an upload has its buffer until it is waited for"))
    }
}
