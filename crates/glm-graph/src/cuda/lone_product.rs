//! One product on a device, for comparisons with the CPU.

use std::collections::HashMap;

use quant_kernels::Quant;
use quant_kernels::cuda::{
    Args, Buffer, Context, DeviceSlice, Grid, KernelStore, StoreOptions, Stream, matvec_tables, matvec_unit,
};

use super::abi::Task;
use super::launch;
use super::product::{Product, Room, batches};
use crate::error::ExecError;

/// A device that multiplies single matrices.
pub struct DeviceProducts {
    store: KernelStore,
    stream: Stream,
    tables: HashMap<Quant, DeviceSlice<u32>>,
    context: Context,
}

impl DeviceProducts {
    /// Opens a device.
    ///
    /// # Errors
    /// There is no driver or no such device.
    pub fn open(device: u32, store: StoreOptions) -> Result<Self, ExecError> {
        let context = Context::new(device)?;
        let stream = Stream::new(&context)?;
        Ok(Self { store: KernelStore::open(&context, store), stream, tables: HashMap::new(), context })
    }

    /// A matrix of `rows` rows of `cols` weights times `x`, in `fast` precision.
    ///
    /// # Errors
    /// There is no device code for the format, the lengths do not fit, or the driver's.
    pub fn product(
        &mut self,
        quant: Quant,
        rows: usize,
        cols: usize,
        weights: &[u8],
        x: &[f32],
    ) -> Result<Vec<f32>, ExecError> {
        let no_kernel = || ExecError::NoKernel(quant.name().to_owned());
        let row_bytes = quant.row_bytes(cols).ok_or_else(no_kernel)?;
        for (what, found, expected) in
            [("the matrix", weights.len(), rows * row_bytes), ("the vector", x.len(), cols)]
        {
            if found != expected {
                return Err(ExecError::Length { what, found, expected });
            }
        }
        if !self.tables.contains_key(&quant) {
            self.tables.insert(quant, DeviceSlice::of(&self.context, &matvec_tables(quant))?);
        }
        let unit = matvec_unit(quant).ok_or_else(no_kernel)?;
        let kernel = self.store.load(unit)?.kernel(unit.entries[0])?;
        kernel.set_max_dynamic_smem(self.context.device().smem_optin_bytes)?;
        // Copies of whole sixteens may read behind the last row.
        let mut w = Buffer::new(&self.context, weights.len() + 16)?;
        w.write(0, weights)?;
        let x = DeviceSlice::of(&self.context, x)?;
        let y = DeviceSlice::<f32>::of(&self.context, &vec![f32::NAN; rows])?;
        let fault = DeviceSlice::<u32>::zeroed(&self.context, 1)?;
        let task = Task {
            w: w.address(),
            x: x.address(),
            y: y.address(),
            rows: rows as u32,
            k: cols as u32,
            row_bytes: row_bytes as u32,
            ..bytemuck::Zeroable::zeroed()
        };
        let table = self.tables[&quant].address();
        let device = self.context.device();
        let room = Room { processors: device.n_multiprocessors, smem: device.smem_optin_bytes };
        for batch in batches(&[Product { quant, task }], room) {
            let args =
                Args::new().value(&*batch.tasks).pointer(table).pointer(table).pointer(fault.address());
            let grid = Grid::new(batch.blocks, batch.threads).with_smem(batch.smem);
            launch::kernel(&self.stream, &kernel, grid, args)?;
        }
        self.stream.synchronize()?;
        Ok(y.to_vec()?)
    }
}
