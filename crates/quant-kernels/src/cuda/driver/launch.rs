//! Launches: the grid, the arguments, the call.

use std::ffi::c_void;

use bytemuck::Pod;
use cudarc::driver::sys;

use super::device::Device;
use super::failure::DriverError;
use super::module::Kernel;
use super::stream::Stream;

/// Most arguments of a launch.
const ARGUMENTS: usize = 40;
/// Room for their values, in words of eight bytes.
const WORDS: usize = 240;

/// When the blocks of a launch may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// When all earlier work of the stream is done.
    #[default]
    AfterPrevious,
    /// Already while the previous kernel drains; the kernel itself waits (`griddepcontrol.wait`) before it reads what
    /// that one wrote. Devices before 9.0, and drivers before CUDA 12.3, which cannot record it, start it after the previous.
    Early,
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub smem: u32,
    /// When it begins.
    pub start: Start,
}

impl Grid {
    /// `blocks` blocks of `threads` threads.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self::of([blocks, 1, 1], [threads, 1, 1])
    }

    /// Blocks and threads in up to three dimensions.
    pub const fn of(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, smem: 0, start: Start::AfterPrevious }
    }

    /// With so much dynamic shared memory.
    pub const fn with_smem(mut self, bytes: u32) -> Self {
        self.smem = bytes;
        self
    }

    /// That may begin while the previous kernel drains.
    pub const fn early(mut self) -> Self {
        self.start = Start::Early;
        self
    }
}

/// Arguments of a launch, packed in order. It allocates nothing; one too many is told at the launch.
pub struct Args {
    words: [u64; WORDS],
    begins: [u8; ARGUMENTS],
    n_words: usize,
    n_arguments: usize,
    full: bool,
}

impl Args {
    /// No arguments.
    pub const fn new() -> Self {
        Self { words: [0; WORDS], begins: [0; ARGUMENTS], n_words: 0, n_arguments: 0, full: false }
    }

    /// Adds an `unsigned`.
    pub fn u32(mut self, value: u32) -> Self {
        self.push(&value);
        self
    }

    /// Adds an `int`.
    pub fn i32(mut self, value: i32) -> Self {
        self.push(&value);
        self
    }

    /// Adds an `unsigned long long`.
    pub fn u64(mut self, value: u64) -> Self {
        self.push(&value);
        self
    }

    /// Adds a `float`.
    pub fn f32(mut self, value: f32) -> Self {
        self.push(&value);
        self
    }

    /// Adds a pointer into memory that the device reaches.
    pub fn pointer(self, address: u64) -> Self {
        self.u64(address)
    }

    /// Adds a structure by value. Its alignment is at most eight.
    pub fn value<T: Pod>(mut self, value: &T) -> Self {
        self.push(value);
        self
    }

    fn push<T: Pod>(&mut self, value: &T) {
        const { assert!(align_of::<T>() <= 8 && size_of::<T>() > 0) };
        let words = size_of::<T>().div_ceil(8);
        if self.n_arguments == ARGUMENTS || self.n_words + words > WORDS {
            self.full = true;
            return;
        }
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words[self.n_words..][..words]);
        room[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(value));
        // WORDS is below 256.
        self.begins[self.n_arguments] = self.n_words as u8;
        self.n_arguments += 1;
        self.n_words += words;
    }

    /// The list that the driver wants: where each value begins.
    fn places(&mut self) -> Result<[*mut c_void; ARGUMENTS], DriverError> {
        if self.full {
            return Err(DriverError::TooManyArguments);
        }
        let base = self.words.as_mut_ptr();
        let mut places = [std::ptr::null_mut(); ARGUMENTS];
        for (place, begin) in places.iter_mut().zip(&self.begins[..self.n_arguments]) {
            *place = base.wrapping_add(usize::from(*begin)).cast();
        }
        Ok(places)
    }
}

impl Default for Args {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernel {
    /// Puts a launch on the stream.
    ///
    /// # Safety
    ///
    /// 1. The arguments are those of the entry: same number, sizes and order.
    /// 2. With this grid the kernel touches only memory that the arguments name, inside its bounds, and that memory
    ///    stays there until the stream has passed the launch; captured, at each run of the graph.
    /// 3. Nobody reads what it writes, or writes what it reads, meanwhile: neither other streams nor the host through a
    ///    slice of [`Pinned`](super::Pinned). Words of a protocol (flags, rings) are excepted.
    pub unsafe fn launch(&self, stream: &Stream, grid: Grid, args: &mut Args) -> Result<(), DriverError> {
        let context = self.context();
        debug_assert!(
            context.is(stream.context()),
            "the kernel was loaded for another device than the stream's"
        );
        context.make_current()?;
        let mut places = args.places()?;
        let [gx, gy, gz] = grid.grid;
        let [bx, by, bz] = grid.block;
        let (function, parameters, none) = (self.raw(), places.as_mut_ptr(), std::ptr::null_mut());
        if grid.start == Start::AfterPrevious || !can_overlap(context.device()) {
            // SAFETY: live handles; each place points at a value; the rest is the caller's contract.
            let result = unsafe {
                sys::cuLaunchKernel(
                    function,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    grid.smem,
                    stream.raw(),
                    parameters,
                    none,
                )
            };
            return context.check("cuLaunchKernel", result);
        }
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: grid.smem,
            hStream: stream.raw(),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        // SAFETY: as above; the attribute outlives the call.
        let result = unsafe { sys::cuLaunchKernelEx(&config, function, parameters, none) };
        context.check("cuLaunchKernelEx", result)
    }
}

/// Whether [`Start::Early`] is known to device and driver.
fn can_overlap(device: &Device) -> bool {
    device.capability >= (9, 0) && device.driver_version >= (12, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads argument `i` back as its first four bytes.
    fn word(args: &Args, i: usize) -> u32 {
        args.words[usize::from(args.begins[i])] as u32
    }

    #[test]
    fn values_lie_in_order_and_aligned() {
        let args = Args::new().u32(7).f32(1.5).pointer(0x1_0000_0002).value(&[1u32, 2, 3]).i32(-1);
        assert_eq!((args.n_arguments, args.n_words), (5, 6));
        assert_eq!((word(&args, 0), word(&args, 1)), (7, 1.5f32.to_bits()));
        assert_eq!(args.words[2], 0x1_0000_0002);
        assert_eq!(args.words[3..5], [0x2_0000_0001, 3]);
        assert_eq!(word(&args, 4), u32::MAX);
    }

    #[test]
    fn one_too_many_is_told_at_the_launch() {
        let mut args = (0..ARGUMENTS).fold(Args::new(), |args, i| args.u32(i as u32));
        assert!(args.places().is_ok());
        args = args.u32(0);
        assert_eq!(args.places().err(), Some(DriverError::TooManyArguments));
        let mut args = Args::new().value(&[0u64; 128]).value(&[0u64; 64]);
        assert!(args.places().is_ok());
        args = args.value(&[0u64; 64]);
        assert_eq!(args.places().err(), Some(DriverError::TooManyArguments));
    }
}
