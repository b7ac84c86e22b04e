//! A kernel that touches memory which is not there ends its context, and every later call says so. Alone in its
//! process: the device's context is everybody's.

#![cfg(feature = "cuda")]

use quant_kernels::cuda::{
    Args, Buffer, Context, DriverError, Grid, KernelStore, PROBE, StoreError, StoreOptions, Stream,
};

#[test]
fn the_first_fatal_error_stays() {
    let context = match Context::new(0) {
        Ok(context) => context,
        Err(error) => return println!("skipped the_first_fatal_error_stays: {error}"),
    };
    let pack = std::env::var_os("MAYA_TEST_KERNEL_PACK")
        .map(|path| &*std::fs::read(path).expect("the pack is readable").leak());
    let store = KernelStore::open(&context, StoreOptions { pack, ..StoreOptions::default() });
    let module = match store.load(&PROBE) {
        Ok(module) => module,
        Err(error @ StoreError::Missing { .. }) => {
            return println!("skipped the_first_fatal_error_stays: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let kernel = module.kernel("probe_widen").expect("entry");
    let stream = Stream::new(&context).expect("stream");
    let mut args = Args::new().pointer(0x10).pointer(0x20).u32(32);
    // SAFETY: broken on purpose: nothing lies at these addresses, and the device's own protection refuses them.
    unsafe { kernel.launch(&stream, Grid::new(1, 32), &mut args).expect("queued") };
    let first = stream.synchronize().expect_err("refused by the device");
    println!("{first}");
    assert!(
        matches!(first, DriverError::Dead { .. }) && first.to_string().contains("since cuStreamSynchronize")
    );
    assert_eq!(context.synchronize(), Err(first.clone()));
    assert_eq!(context.health(), Err(first.clone()));
    assert_eq!(Buffer::new(&context, 16).err(), Some(first.clone()));
    assert_eq!(module.kernel("probe_axpy").err(), Some(first.clone()));
    // Another thread learns it without asking the driver.
    let again = std::thread::spawn(move || stream.synchronize()).join().expect("no panic");
    assert_eq!(again, Err(first));
}
