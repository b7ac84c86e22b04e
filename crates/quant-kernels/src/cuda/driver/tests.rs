//! The driver on a real device; each test is skipped by name where there is none.

use std::ptr::NonNull;

use super::*;
use crate::cuda::{KernelStore, PROBE, StoreError, StoreOptions, self_test};

/// The first device, or a line that says which test did not run, and why.
fn device(test: &str) -> Option<Context> {
    match Context::new(0) {
        Ok(context) => Some(context),
        Err(error) => {
            println!("skipped {test}: {error}");
            None
        }
    }
}

/// The probe's code, with a pack that `MAYA_TEST_KERNEL_PACK` names; a machine without compiler and pack skips, too.
fn store(test: &str) -> Option<KernelStore> {
    let context = device(test)?;
    let pack = std::env::var_os("MAYA_TEST_KERNEL_PACK").map(|path| {
        let bytes = std::fs::read(path).expect("the pack that MAYA_TEST_KERNEL_PACK names is readable");
        &*bytes.leak()
    });
    let store = KernelStore::open(&context, StoreOptions { pack, ..StoreOptions::default() });
    match store.load(&PROBE) {
        Ok(_) => Some(store),
        Err(error @ StoreError::Missing { .. }) => {
            println!("skipped {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_machine_without_driver_gets_a_sentence() {
    match Device::all() {
        Ok(devices) => {
            for device in &devices {
                println!("{device:?}");
                assert!(device.arch() >= 50 && device.memory_bytes > 0 && device.n_multiprocessors > 0);
                assert!(!device.name.is_empty() && device.pci_id.contains(':'));
            }
            let past = devices.len() as u32;
            assert_eq!(
                Context::new(past).err(),
                Some(DriverError::NoDevice { ordinal: past, devices: past })
            );
        }
        Err(error) => {
            println!("no device: {error}");
            assert_eq!(Context::new(0).err(), Some(error));
        }
    }
}

#[test]
fn the_probe_rounds_like_the_cpu() {
    let Some(store) = store("the_probe_rounds_like_the_cpu") else { return };
    self_test(&store).expect("equal bits");
    println!("the probe's code came from {}", store.origin(&PROBE).expect("loaded"));
}

#[test]
fn memory_comes_and_goes() {
    let Some(context) = device("memory_comes_and_goes") else { return };
    let numbers: Vec<u32> = (0..10_000).collect();
    let mut slice = DeviceSlice::of(&context, &numbers).expect("allocated");
    assert_eq!(slice.to_vec().expect("read"), numbers);
    assert_eq!(slice.address_of(3), slice.address() + 12);
    assert_eq!(slice.copy_from(&[1]).err(), Some(DriverError::Length { host: 1, device: 10_000 }));
    slice.fill_zero().expect("filled");
    assert_eq!(slice.to_vec().expect("read"), [0; 10_000]);
    let empty = DeviceSlice::<f32>::zeroed(&context, 0).expect("nothing");
    assert!(empty.is_empty() && empty.to_vec().expect("read").is_empty());

    let (free, total) = context.memory().expect("known");
    match Buffer::new(&context, total * 2).err() {
        Some(DriverError::OutOfMemory { asked, total: all, .. }) => {
            assert_eq!((asked, all), (total * 2, total))
        }
        other => panic!("{other:?}"),
    }
    assert!(free <= total);
    assert!(matches!(DeviceSlice::<u64>::zeroed(&context, usize::MAX / 4), Err(DriverError::TooLong { .. })));
    context.health().expect("a full memory is survived");
}

#[test]
fn host_memory_is_seen_by_the_device() {
    let Some(context) = device("host_memory_is_seen_by_the_device") else { return };
    let stream = Stream::with_priority(&context, Priority::High).expect("stream");
    let mut from = Pinned::new(&context, 4096).expect("pinned");
    let mut to = Pinned::new(&context, 4096).expect("pinned");
    assert_eq!(from.slice::<u64>().len(), 512);
    from.slice_mut::<u32>().iter_mut().zip(0..).for_each(|(place, i)| *place = i * 3);
    let mut there = DeviceSlice::<u32>::zeroed(&context, 1024).expect("allocated");
    let (before, after) =
        (Event::new(&context, Timing::On).expect("event"), Event::new(&context, Timing::On).expect("event"));
    before.record(&stream).expect("recorded");
    // SAFETY: all three live until `synchronize`, and nobody else touches them.
    unsafe {
        there.copy_from_on(&stream, &from).expect("queued");
        there.copy_to_on(&stream, &mut to).expect("queued");
    }
    after.record(&stream).expect("recorded");
    stream.synchronize().expect("done");
    assert!(after.is_done().expect("asked") && stream.is_idle().expect("asked"));
    assert!(after.elapsed_ms(&before).expect("timed") >= 0.0);
    assert_eq!(to.slice::<u32>(), from.slice::<u32>());

    let mut memory = vec![7u8; 1 << 20];
    let at = NonNull::new(memory.as_mut_ptr()).expect("a vector");
    // SAFETY: the vector outlives the registration.
    let registration = unsafe { HostRegistration::new(&context, at, memory.len()) }.expect("registered");
    // SAFETY: source and target live until `synchronize`, and are as long as is said.
    unsafe {
        stream.copy_on_device(there.address(), registration.device_address(), 4096).expect("queued");
    }
    stream.synchronize().expect("done");
    assert_eq!(there.to_vec().expect("read"), [0x0707_0707; 1024]);
}

#[test]
fn streams_wait_for_events_and_words() {
    let Some(context) = device("streams_wait_for_events_and_words") else { return };
    let (first, second) = (Stream::new(&context).expect("stream"), Stream::new(&context).expect("stream"));
    let word = DeviceSlice::<u32>::zeroed(&context, 2).expect("word");
    let event = Event::new(&context, Timing::Off).expect("event");
    // SAFETY: the word lives until both streams are done.
    unsafe {
        first.wait_word(word.address(), 5).expect("queued");
        event.record(&first).expect("recorded");
        second.wait_event(&event).expect("queued");
        second.fill_zero(word.address_of(1), 4).expect("queued");
    }
    assert!(!event.is_done().expect("asked") && !second.is_idle().expect("asked"));
    let third = Stream::new(&context).expect("stream");
    // SAFETY: as above.
    unsafe { third.write_word(word.address(), 6).expect("queued") };
    second.synchronize().expect("released");
    assert_eq!(word.to_vec().expect("read"), [6, 0]);
}

#[test]
fn a_graph_repeats_what_was_captured() {
    let Some(store) = store("a_graph_repeats_what_was_captured") else { return };
    let context = store.context();
    let axpy = store.load(&PROBE).expect("loaded").kernel("probe_axpy").expect("entry");
    let stream = Stream::new(context).expect("stream");
    let x = DeviceSlice::of(context, &[1.0f32, 2.0, 3.0]).expect("x");
    let y = DeviceSlice::<f32>::zeroed(context, 3).expect("y");
    let h = DeviceSlice::<u16>::zeroed(context, 3).expect("h");
    let graph = Graph::capture(&stream, |stream| {
        for _ in 0..3 {
            let mut args =
                Args::new().f32(2.0).pointer(x.address()).pointer(y.address()).pointer(h.address()).u32(3);
            // SAFETY: the arguments are probe_axpy's, and the arrays outlive every run of the graph.
            unsafe { axpy.launch(stream, Grid::new(1, 32), &mut args)? };
        }
        Ok::<(), DriverError>(())
    })
    .expect("captured");
    assert_eq!(graph.n_nodes(), 3);
    assert_eq!(y.to_vec().expect("read"), [0.0; 3]);
    graph.upload(&stream).expect("uploaded");
    for _ in 0..4 {
        // SAFETY: as above.
        unsafe { graph.launch(&stream).expect("queued") };
    }
    stream.synchronize().expect("done");
    assert_eq!(y.to_vec().expect("read"), [24.0, 48.0, 72.0]);

    let failed = Graph::capture(&stream, |_| Err::<(), _>(DriverError::TooManyArguments));
    assert_eq!(failed.err(), Some(DriverError::TooManyArguments));
    stream.synchronize().expect("the stream records no more");
}

#[test]
fn an_entry_is_described() {
    let Some(store) = store("an_entry_is_described") else { return };
    let module = store.load(&PROBE).expect("loaded");
    let kernel = module.kernel("probe_axpy").expect("entry");
    assert!(kernel.n_registers().expect("known") > 0 && kernel.max_threads().expect("known") >= 256);
    assert_eq!(kernel.local_bytes(), Ok(0));
    assert!(kernel.max_active_blocks(256, 0).expect("known") >= 4);
    let most = store.context().device().smem_optin_bytes;
    kernel.set_max_dynamic_smem(most).expect("allowed");
    assert!(kernel.set_max_dynamic_smem(most + 1).is_err());
    let missing = DriverError::NoEntry { entry: "nothing".to_owned() };
    assert_eq!(module.kernel("nothing").err(), Some(missing.clone()));
    assert_eq!(module.global("nothing").err(), Some(missing));
    store.context().health().expect("refusals are survived");
}
