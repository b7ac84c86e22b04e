//! Tensor data behind a header, streamed in the order of the table.

use std::io::Write;

use crate::error::WriteError;
use crate::phrase::Quoted;
use crate::tensor::TensorInfo;

/// Takes the data of the tensors of a [`Layout`](crate::Layout), in its order, in pieces of any size, and pads between
/// them. Bytes go straight to the output: nothing is copied or looked at.
///
/// The file is complete only when [`finish`](Self::finish) has returned `Ok`. After a failed write the writer refuses
/// to go on, because what reached the output is unknown.
#[derive(Debug)]
#[must_use = "the file is complete only after finish()"]
pub struct Writer<W: Write> {
    out: W,
    tensors: Vec<TensorInfo>,
    alignment: u64,
    /// Tensors that are complete, padding included.
    n_done: usize,
    /// Bytes of the begun tensor, if one is begun.
    begun: Option<u64>,
    /// Bytes of the file so far.
    at: u64,
    failed: bool,
}

impl<W: Write> Writer<W> {
    pub(crate) fn start(
        out: W,
        header: &[u8],
        tensors: Vec<TensorInfo>,
        alignment: u64,
    ) -> Result<Self, WriteError> {
        let mut writer = Self { out, tensors, alignment, n_done: 0, begun: None, at: 0, failed: false };
        writer.put(header)?;
        Ok(writer)
    }

    /// The table, with the place that each tensor has in this file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Begins a tensor, which must be the next of the table; the one before must be complete.
    ///
    /// # Errors
    /// It is not the next, or the one before got too few bytes.
    pub fn begin(&mut self, name: &str) -> Result<(), WriteError> {
        self.end()?;
        match self.tensors.get(self.n_done) {
            Some(next) if *next.name == *name => {
                self.begun = Some(0);
                Ok(())
            }
            next => Err(match next.filter(|_| self.tensors.iter().any(|info| *info.name == *name)) {
                Some(next) => WriteError::Order { got: Quoted::new(name), wanted: Quoted::new(&next.name) },
                None if self.tensors.iter().any(|info| *info.name == *name) => {
                    WriteError::Done(Quoted::new(name))
                }
                None => WriteError::Unknown(Quoted::new(name)),
            }),
        }
    }

    /// Appends bytes to the begun tensor.
    ///
    /// # Errors
    /// They are more than it has room for (then none is written), no tensor is begun, or writing fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let (Some(got), Some(info)) = (self.begun, self.tensors.get(self.n_done)) else {
            return Err(WriteError::NotBegun(bytes.len()));
        };
        let got = got.saturating_add(bytes.len() as u64);
        if got > info.extent.len {
            return Err(WriteError::Long { tensor: Quoted::new(&info.name), wanted: info.extent.len, got });
        }
        self.put(bytes)?;
        self.begun = Some(got);
        Ok(())
    }

    /// A whole tensor at once: [`begin`](Self::begin), [`write`](Self::write), and a check that `bytes` fill it.
    ///
    /// # Errors
    /// As those two, and if `bytes` are too few.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.begin(name)?;
        self.write(bytes)?;
        self.end()
    }

    /// Ends the file, flushes, and gives the output back.
    ///
    /// # Errors
    /// A tensor is incomplete or was never written, or writing fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.end()?;
        if let Some(info) = self.tensors.get(self.n_done) {
            return Err(WriteError::Missing(Quoted::new(&info.name)));
        }
        self.out.flush().map_err(|error| WriteError::Io { at: self.at, error })?;
        Ok(self.out)
    }

    /// Completes the begun tensor, if any: checks its length and pads.
    fn end(&mut self) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }
        let (Some(got), Some(info)) = (self.begun, self.tensors.get(self.n_done)) else { return Ok(()) };
        if got < info.extent.len {
            return Err(WriteError::Short { tensor: Quoted::new(&info.name), wanted: info.extent.len, got });
        }
        let mut padding = self.at.next_multiple_of(self.alignment) - self.at;
        const ZEROS: [u8; 4096] = [0; 4096];
        while padding > 0 {
            let n = padding.min(ZEROS.len() as u64);
            self.put(&ZEROS[..n as usize])?;
            padding -= n;
        }
        self.begun = None;
        self.n_done += 1;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Failed);
        }
        self.out.write_all(bytes).map_err(|error| {
            self.failed = true;
            WriteError::Io { at: self.at, error }
        })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
