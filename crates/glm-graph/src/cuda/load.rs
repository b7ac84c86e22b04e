//! The weights on their way to the device: from files through a reader and page-locked buffers, or as they lie in memory.

mod chunks;
mod ring;
mod staging;
mod wanted;

use std::time::{Duration, Instant};

use nvme_reader::{BackendName, Choice, Direct, FileSet, Options, Part, Reader, Report};
use quant_kernels::cuda::{Context, DriverError};

use super::memory::{Memory, Place};
use super::weights::Weights;
use crate::error::ExecError;
use crate::model::Model;
use chunks::Chunk;
use ring::{Device, Stop};
use staging::Uploader;
use wanted::Wanted;

/// How files are read and how much is on its way.
#[derive(Clone, Debug)]
struct LoadOptions {
    backend: Choice,
    direct: Direct,
    /// Bytes of a buffer.
    buffer: usize,
    /// Buffers, at most.
    buffers: usize,
    /// Bytes of a read.
    piece: u32,
    /// Reads at a drive at once.
    depth: u32,
    /// Threads, if threads read.
    threads: usize,
    faults: Option<nvme_reader::faults::Faults>,
}

impl Default for LoadOptions {
    /// A copy of 8 MiB takes 150 us at a link's 55 GB/s, which is much beside the 10 us that it takes to begin one. 32
    /// reads of 1 MiB keep a drive busy and give two to each of sixteen threads: they fill four buffers, two are on their
    /// way up, and two are between.
    ///
    /// What is in memory already is copied by one core at 4 to 8 GB/s, so that up to sixteen share the work; fewer than
    /// eight would leave a drive idle that threads read.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            backend: Choice::Auto,
            direct: Direct::IfCold,
            buffer: 8 << 20,
            buffers: 8,
            piece: 1 << 20,
            depth: 32,
            threads: cores.clamp(8, 16),
            faults: None,
        }
    }
}

/// How the weights came to the device.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Bytes that came.
    pub bytes: u64,
    /// From the first read to the last byte on the device.
    pub took: Duration,
    /// What read the files; `None` for a model that is in the program's own memory.
    pub reader: Option<Report>,
    /// Threads that read, where threads do.
    pub threads: Option<usize>,
}

impl LoadReport {
    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Brings every weight to its place. `told` hears of bytes that are there.
///
/// # Errors
/// The file cannot be read, or the driver's.
pub(super) fn load(
    places: &Weights,
    model: &Model,
    context: &Context,
    memory: &mut Memory,
    told: &mut dyn FnMut(u64),
) -> Result<LoadReport, ExecError> {
    let wanted = Wanted::of(places, model, memory.buffer.address());
    let mut device = Uploader::new(context, memory)?;
    bring(&wanted, model, &LoadOptions::default(), &mut device, told)
}

fn bring<D: Device>(
    wanted: &Wanted<'_>,
    model: &Model,
    options: &LoadOptions,
    device: &mut D,
    told: &mut dyn FnMut(u64),
) -> Result<LoadReport, ExecError> {
    let begun = Instant::now();
    let reader = if model.gguf().shards().iter().all(|shard| shard.path.is_file()) {
        Some(from_files(wanted, model, options, device, told)?)
    } else {
        from_memory(wanted, model, device, told)?;
        None
    };
    from_host(wanted, model, device, told)?;
    let threads = reader.as_ref().filter(|report| report.backend == BackendName::Threads);
    let threads = threads.map(|_| options.threads);
    Ok(LoadReport { bytes: wanted.bytes(), took: begun.elapsed(), reader, threads })
}

fn from_files<D: Device>(
    wanted: &Wanted<'_>,
    model: &Model,
    options: &LoadOptions,
    device: &mut D,
    told: &mut dyn FnMut(u64),
) -> Result<Report, ExecError> {
    let mut reader = open(model, options)?;
    let alignment = reader.alignment();
    let chunks = chunks::chunks(&wanted.transfers, options.buffer.next_multiple_of(alignment), alignment);
    let buffers = buffers(device, &chunks, options, alignment)?;
    match ring::run(device, &mut reader, buffers, &chunks, told) {
        Ok(()) => Ok(reader.report()),
        Err(Stop::Other(error)) => Err(error),
        Err(Stop::Read { set, error }) => {
            // The first tensor that ends behind the place: bytes between tensors are lost for the one that follows.
            let of_set = wanted.transfers.iter().flatten().filter(|it| u32::from(it.from.shard) == set);
            let behind = of_set.filter(|it| it.from.offset + it.from.len > error.offset);
            let tensor = behind.min_by_key(|it| it.from.offset).map_or("", |it| it.tensor);
            Err(ExecError::Load(format!("tensor {tensor}: {error}")))
        }
    }
}

/// A reader over the model's files.
///
/// What is in memory already, as a tmpfs or in the page cache, is brought by copying, and copying wants cores. The kernel
/// chooses for itself how many of its own threads work for a ring; of ours there are as many as were asked for.
fn open<M: nvme_reader::Memory>(model: &Model, options: &LoadOptions) -> Result<Reader<M>, ExecError> {
    let sets: Vec<FileSet> =
        model.gguf().shards().iter().map(|shard| FileSet::from(shard.path.clone())).collect();
    let with = |backend: Choice| {
        let with = Options {
            backend,
            direct: options.direct,
            depth: options.depth,
            piece: options.piece,
            threads: options.threads,
            capacity: options.buffers.max(1),
            faults: options.faults.clone(),
            ..Options::default()
        };
        Reader::open_with(&sets, &with).map_err(|error| ExecError::Load(error.to_string()))
    };
    let reader = with(options.backend)?;
    let report = reader.report();
    let copies = report.files.iter().any(|file| !file.is_direct());
    if copies && options.backend == Choice::Auto && report.backend != BackendName::Threads {
        drop(reader);
        return with(Choice::Threads);
    }
    Ok(reader)
}

/// No more buffers than there are chunks, and none larger than it needs to be. A system that locks little memory gives
/// some of them.
fn buffers<D: Device>(
    device: &D,
    chunks: &[Chunk],
    options: &LoadOptions,
    alignment: usize,
) -> Result<Vec<D::Memory>, ExecError> {
    let room = |(_, part): &(u32, Part)| part.len as usize + 2 * alignment;
    let largest = chunks.iter().map(|chunk| chunk.parts.iter().map(room).sum()).max().unwrap_or(0);
    let bytes = largest.min(options.buffer.next_multiple_of(alignment));
    let mut all = Vec::new();
    for _ in 0..options.buffers.clamp(1, chunks.len().max(1)) {
        match device.buffer(bytes, alignment) {
            Ok(buffer) => all.push(buffer),
            Err(ExecError::Device(DriverError::Lock { .. })) if !all.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The model's bytes are in memory: there is nothing to read.
fn from_memory<D: Device>(
    wanted: &Wanted<'_>,
    model: &Model,
    device: &mut D,
    told: &mut dyn FnMut(u64),
) -> Result<(), ExecError> {
    for transfer in wanted.transfers.iter().flatten() {
        let bytes = model.gguf().bytes(transfer.from).map_err(ExecError::file)?;
        device.write(transfer.to, bytes)?;
        told(transfer.from.len);
    }
    Ok(())
}

/// What the host has, or has to make: little beside the rest.
fn from_host<D: Device>(
    wanted: &Wanted<'_>,
    model: &Model,
    device: &mut D,
    told: &mut dyn FnMut(u64),
) -> Result<(), ExecError> {
    let mut write = |to: Place, bytes: &[u8]| {
        device.write(to, bytes)?;
        told(bytes.len() as u64);
        Ok::<_, ExecError>(())
    };
    for (to, values) in &wanted.vectors {
        write(*to, bytemuck::cast_slice(values))?;
    }
    for (to, entries) in &wanted.tables {
        write(*to, bytemuck::cast_slice(entries))?;
    }
    let mut values = Vec::new();
    for (to, tensor) in &wanted.converted {
        values.resize(tensor.rows * tensor.cols, 0.0);
        for (row, values) in values.chunks_exact_mut(tensor.cols).enumerate() {
            tensor.row(model.gguf(), row, values);
        }
        write(*to, bytemuck::cast_slice(&values))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
