//! Buffers between files and the device: read into, on their way up, free again. Nothing here knows a driver.
//!
//! A buffer is in one place at a time, and its owner says which: the reader has it while a drive may write to it, an upload
//! has it while the device may read it.

use std::collections::VecDeque;
use std::ops::Range;

use nvme_reader::{Completion, Memory, Outcome, Priority, Read, ReadError, Reader};

use super::chunks::Chunk;
use crate::cuda::memory::Place;
use crate::error::ExecError;

/// Where bytes go.
pub(super) trait Device {
    /// What reads land in.
    type Memory: Memory;
    /// A buffer on its way up. Dropped, it waits.
    type Upload;

    /// A buffer of `bytes` bytes that begins at a multiple of `alignment`.
    fn buffer(&self, bytes: usize, alignment: usize) -> Result<Self::Memory, ExecError>;

    /// Copies bytes at once.
    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), ExecError>;

    /// Begins to copy ranges of a buffer. Uploads end in the order in which they began.
    fn send(
        &mut self,
        from: Self::Memory,
        copies: &[(Range<usize>, Place)],
    ) -> Result<Self::Upload, ExecError>;

    /// Whether an upload has ended.
    fn is_done(&self, upload: &Self::Upload) -> Result<bool, ExecError>;

    /// Waits for its end and gives the buffer back.
    fn wait(&mut self, upload: Self::Upload) -> Result<Self::Memory, ExecError>;
}

/// Why the ring stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// A part of chunks could not be read.
    Read {
        /// Number of its file.
        set: u32,
        /// What, and why.
        error: ReadError,
    },
    /// Anything else.
    Other(ExecError),
}

impl From<ExecError> for Stop {
    fn from(error: ExecError) -> Self {
        Self::Other(error)
    }
}

/// Reads the chunks in order into `free` buffers and sends each up as it has landed; `told` hears of bytes that are there.
///
/// # Errors
/// The first read or copy that fails; whoever drops the reader then waits for the others.
pub(super) fn run<D: Device>(
    device: &mut D,
    reader: &mut Reader<D::Memory>,
    mut free: Vec<D::Memory>,
    chunks: &[Chunk],
    told: &mut dyn FnMut(u64),
) -> Result<(), Stop> {
    assert!(!free.is_empty() || chunks.is_empty(), "a ring of no buffers");
    let mut next = 0;
    let mut sent: VecDeque<(D::Upload, u64)> = VecDeque::new();
    let mut landed = Vec::new();
    loop {
        while let Some((upload, _)) = sent.front()
            && device.is_done(upload)?
        {
            receive(device, &mut sent, &mut free, told)?;
        }
        if free.is_empty() && reader.in_flight() == 0 {
            receive(device, &mut sent, &mut free, told)?;
        }
        while next < chunks.len() {
            let Some(into) = free.pop() else { break };
            let parts = chunks[next].parts[..].into();
            let read = Read { set: 0, parts, into, priority: Priority::Demand, tag: next as u64 };
            reader.start(read).map_err(|refused| ExecError::Load(refused.to_string()))?;
            next += 1;
        }
        if reader.in_flight() == 0 {
            while !sent.is_empty() {
                receive(device, &mut sent, &mut free, told)?;
            }
            debug_assert_eq!(next, chunks.len());
            return Ok(());
        }
        reader.wait(1, &mut landed);
        for completion in landed.drain(..) {
            let chunk = &chunks[completion.tag as usize];
            sent.push_back((send(device, chunk, completion)?, chunk.bytes()));
        }
    }
}

/// Takes the oldest upload back.
fn receive<D: Device>(
    device: &mut D,
    sent: &mut VecDeque<(D::Upload, u64)>,
    free: &mut Vec<D::Memory>,
    told: &mut dyn FnMut(u64),
) -> Result<(), ExecError> {
    if let Some((upload, bytes)) = sent.pop_front() {
        free.push(device.wait(upload)?);
        told(bytes);
    }
    Ok(())
}

fn send<D: Device>(
    device: &mut D,
    chunk: &Chunk,
    completion: Completion<D::Memory>,
) -> Result<D::Upload, Stop> {
    let places = match completion.outcome {
        Outcome::Read(places) => places,
        Outcome::Failed(failed) => {
            let first = failed.first().map(|(part, error)| (chunk.parts[part].0, error.clone()));
            let (set, error) = first.ok_or_else(|| ExecError::Load("a read failed".to_owned()))?;
            return Err(Stop::Read { set, error });
        }
        Outcome::Cancelled => return Err(ExecError::Load("a read was called back".to_owned()).into()),
    };
    let copies: Vec<_> = chunk
        .copies
        .iter()
        .map(|copy| {
            let begin = places[copy.part].start + copy.at;
            (begin..begin + copy.len, Place(copy.to))
        })
        .collect();
    Ok(device.send(completion.memory, &copies)?)
}
