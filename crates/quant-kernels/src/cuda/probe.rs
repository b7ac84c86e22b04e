//! The smallest program on a device: shows that code loads, runs, and rounds as the CPU does.

use super::driver::{Args, DeviceSlice, DriverError, Grid, Stream};
use super::store::{KernelStore, StoreError};
use super::unit::PROBE;

/// What a self-test found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No code.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Another number than the CPU's.
    #[error(
        "the GPU computes {found:#010x} where the CPU computes {wanted:#010x}: element {element} of {array}"
    )]
    Value {
        /// Which array.
        array: &'static str,
        /// Which element.
        element: usize,
        /// The device's bits.
        found: u32,
        /// The right bits.
        wanted: u32,
    },
}

const N: usize = 4099;
const THREADS: u32 = 256;

/// Runs both entries of the probe on the store's device and compares every bit.
pub fn self_test(store: &KernelStore) -> Result<(), ProbeError> {
    let context = store.context();
    let module = store.load(&PROBE)?;
    let (axpy, widen) = (module.kernel("probe_axpy")?, module.kernel("probe_widen")?);
    // Products need 46 bits, so a fused sum would differ; signs and small numbers are among them.
    let value = |i: usize, step: f32| ((i % 2003) as f32 - 1001.0) * step;
    let xs: Vec<f32> = (0..N).map(|i| value(i * 7, 0.123_456_7)).collect();
    let ys: Vec<f32> = (0..N).map(|i| value(i * 13, 1.7e-3)).collect();
    let a = 1.234_567_9f32;

    let stream = Stream::new(context)?;
    let x = DeviceSlice::of(context, &xs)?;
    let y = DeviceSlice::of(context, &ys)?;
    let h = DeviceSlice::<u16>::zeroed(context, N)?;
    let wide = DeviceSlice::<f32>::zeroed(context, N)?;
    let n = N as u32;
    let grid = Grid::new(n.div_ceil(THREADS), THREADS);
    let mut args = Args::new().f32(a).pointer(x.address()).pointer(y.address()).pointer(h.address()).u32(n);
    // SAFETY: the arguments are those of probe.cu; every array has `n` elements and lives until `synchronize`.
    unsafe { axpy.launch(&stream, grid, &mut args)? };
    let mut args = Args::new().pointer(h.address()).pointer(wide.address()).u32(n);
    // SAFETY: as above, on the same stream.
    unsafe { widen.launch(&stream, grid.early(), &mut args)? };
    stream.synchronize()?;

    let sums: Vec<f32> = xs.iter().zip(&ys).map(|(x, y)| a * x + y).collect();
    let halves: Vec<half::f16> = sums.iter().map(|s| half::f16::from_f32(*s)).collect();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let narrow = |values: Vec<u16>| values.into_iter().map(u32::from).collect::<Vec<_>>();
    compare("sums", &bits(&y.to_vec()?), &bits(&sums))?;
    compare("halves", &narrow(h.to_vec()?), &narrow(halves.iter().map(|h| h.to_bits()).collect()))?;
    let widened: Vec<f32> = halves.iter().map(|h| h.to_f32()).collect();
    compare("widened halves", &bits(&wide.to_vec()?), &bits(&widened))
}

fn compare(array: &'static str, found: &[u32], wanted: &[u32]) -> Result<(), ProbeError> {
    match found.iter().zip(wanted).position(|(f, w)| f != w) {
        Some(element) => {
            Err(ProbeError::Value { array, element, found: found[element], wanted: wanted[element] })
        }
        None => Ok(()),
    }
}
