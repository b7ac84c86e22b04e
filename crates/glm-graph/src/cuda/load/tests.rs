//! Loading onto a pretended device, and onto a real one where there is one.

use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nvme_reader::faults::{Faults, Injected};
use nvme_reader::{Aligned, WhyBuffered};

use super::*;
use crate::cuda::memory::DevicePlan;

/// Memory that bytes reach late, and only as they are then.
struct Pretended {
    image: Vec<u8>,
    /// Sends that succeed before one fails.
    sends: u32,
    /// Buffers that were handed out and are not dropped.
    alive: Rc<Cell<usize>>,
    /// The most at once.
    most: Rc<Cell<usize>>,
}

struct Late {
    from: Aligned,
    copies: Vec<(Range<usize>, Place)>,
    /// Looks at it until it is done.
    looks: Cell<u32>,
}

impl Pretended {
    fn new(bytes: u64) -> Self {
        let count = || Rc::new(Cell::new(0));
        Self { image: vec![0xEE; bytes as usize], sends: u32::MAX, alive: count(), most: count() }
    }
}

impl Device for Pretended {
    type Memory = Aligned;
    type Upload = Late;

    fn buffer(&self, bytes: usize, alignment: usize) -> Result<Aligned, ExecError> {
        self.alive.set(self.alive.get() + 1);
        self.most.set(self.most.get().max(self.alive.get()));
        Ok(Aligned::new(bytes, alignment).expect("some kilobytes"))
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), ExecError> {
        let old = &mut self.image[to.0 as usize..][..bytes.len()];
        assert!(old.iter().all(|byte| *byte == 0xEE) || old == bytes, "written twice");
        old.copy_from_slice(bytes);
        Ok(())
    }

    fn send(&mut self, from: Aligned, copies: &[(Range<usize>, Place)]) -> Result<Late, ExecError> {
        self.sends = self.sends.checked_sub(1).ok_or_else(|| ExecError::Load("no more".to_owned()))?;
        Ok(Late { from, copies: copies.to_vec(), looks: Cell::new(self.sends % 5) })
    }

    fn is_done(&self, upload: &Late) -> Result<bool, ExecError> {
        upload.looks.set(upload.looks.get().saturating_sub(1));
        Ok(upload.looks.get() == 0)
    }

    fn wait(&mut self, upload: Late) -> Result<Aligned, ExecError> {
        for (range, to) in &upload.copies {
            self.write(*to, &upload.from[range.clone()])?;
        }
        Ok(upload.from)
    }
}

fn open_model(path: &Path) -> Model {
    Model::load(gguf::Model::open(path).expect("the fixture opens")).expect("the fixture loads")
}

fn places(model: &Model) -> (Weights, DevicePlan) {
    let mut plan = DevicePlan::default();
    (Weights::plan(model, &mut plan), plan)
}

/// Small buffers and small reads, so that a small model needs many.
fn small(backend: Choice, direct: Direct) -> LoadOptions {
    let (buffer, buffers, piece) = (64 << 10, 3, 5000);
    LoadOptions { backend, direct, buffer, buffers, piece, depth: 8, threads: 3, faults: None }
}

/// The address of the pretended memory.
const ADDRESS: u64 = 1 << 40;

/// What the device has after loading, and how it came there.
fn image(model: &Model, options: &LoadOptions) -> (Vec<u8>, LoadReport) {
    let (weights, plan) = places(model);
    let wanted = Wanted::of(&weights, model, ADDRESS);
    let mut device = Pretended::new(plan.total());
    let mut come = 0;
    let report = bring(&wanted, model, options, &mut device, &mut |more| come += more);
    let report = report.expect("everything can be read");
    assert_eq!((come, report.bytes), (wanted.bytes(), wanted.bytes()));
    assert!(device.most.get() <= options.buffers);
    (device.image, report)
}

/// A copy of a fixture in a folder, shard by shard; the path of the first.
fn copy(name: &str, folder: &Path) -> Option<PathBuf> {
    let path = golden::gguf(name)?;
    let model = gguf::Model::open(&path).expect("the fixture opens");
    let to = |path: &Path| folder.join(path.file_name().expect("a file"));
    for shard in model.shards() {
        std::fs::copy(&shard.path, to(&shard.path)).expect("there is room");
    }
    Some(to(&path))
}

/// A model that is no file: its bytes lie in memory.
fn in_memory(name: &str) -> Option<Model> {
    let bytes = std::fs::read(golden::gguf(name)?).expect("the fixture is readable");
    let file = gguf::Model::from_static("in the program", bytes.leak()).expect("the fixture opens");
    Some(Model::load(file).expect("the fixture loads"))
}

const ONE_FILE: &str = "tiny-a.maya.gguf";
const THREE_FILES: &str = "tiny-b.maya-00001-of-00003.gguf";

/// Whatever reads, the device gets what the map has.
#[test]
fn every_way_brings_the_same_bytes() {
    for (name, in_program) in [(ONE_FILE, in_memory(ONE_FILE)), (THREE_FILES, None)] {
        let Some(path) = golden::gguf(name) else { return };
        let model = open_model(&path);
        let (weights, plan) = places(&model);
        // The map's bytes, one transfer after the other.
        let mut oracle = Pretended::new(plan.total());
        let wanted = Wanted::of(&weights, &model, ADDRESS);
        from_memory(&wanted, &model, &mut oracle, &mut |_| {}).expect("a map");
        from_host(&wanted, &model, &mut oracle, &mut |_| {}).expect("values");
        let output = model.gguf().bytes(model.weights().output.extent()).expect("a map");
        assert_eq!(&oracle.image[weights.output.at.0 as usize..][..output.len()], output);

        for backend in [Choice::Auto, Choice::Threads] {
            for direct in [Direct::Auto, Direct::IfCold, Direct::Never] {
                let (image, report) = image(&model, &small(backend, direct));
                assert!(image == oracle.image, "{name}: {backend:?} {direct:?}");
                assert!(report.reader.is_some());
            }
        }
        let (image_by_default, report) = image(&model, &LoadOptions::default());
        assert!(image_by_default == oracle.image, "{name}: by default");
        assert_eq!(report.reader.expect("files").files.len(), model.gguf().shards().len());
        if let Some(model) = in_program {
            let (image, report) = image(&model, &LoadOptions::default());
            assert!(image == oracle.image, "{name}: from memory");
            assert!(report.reader.is_none() && report.threads.is_none());
        }
    }
}

/// Copying from memory is what threads are for, and the report says so.
#[test]
fn threads_copy_what_is_in_memory() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let Some(path) = copy(ONE_FILE, folder.path()) else { return };
    let (_, report) = image(&open_model(&path), &LoadOptions { threads: 5, ..LoadOptions::default() });
    assert_eq!(report.threads, Some(5));
    let reader = report.reader.expect("a file");
    assert_eq!(reader.backend, BackendName::Threads);
    assert_eq!(reader.files[0].why_buffered, Some(WhyBuffered::InMemory));
}

fn failure(model: &Model, options: &LoadOptions, sends: u32) -> String {
    let (weights, plan) = places(model);
    let wanted = Wanted::of(&weights, model, ADDRESS);
    let mut device = Pretended { sends, ..Pretended::new(plan.total()) };
    bring(&wanted, model, options, &mut device, &mut |_| {}).expect_err("it fails").to_string()
}

#[test]
fn failures_are_sentences_with_file_offset_and_tensor() {
    const EIO: i32 = 5;
    const EINTR: i32 = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let Some(path) = copy(ONE_FILE, folder.path()) else { return };
    let model = open_model(&path);
    let (name, tensor) = (path.display(), &model.weights().output);
    let middle = tensor.extent().offset + tensor.extent().len / 2;
    let broken = Faults::new(move |attempt| {
        let end = attempt.offset + attempt.len as u64;
        if (attempt.offset..end).contains(&middle) { Injected::Error(EIO) } else { Injected::Real }
    });
    for direct in [Direct::Auto, Direct::Never] {
        let options = LoadOptions { faults: Some(broken.clone()), ..small(Choice::Auto, direct) };
        let text = failure(&model, &options, u32::MAX);
        let begin = format!("the weights cannot be brought to the device: tensor {}: {name}: ", tensor.name);
        assert!(text.starts_with(&begin) && text.contains("at offset"), "{text}");
        assert!(text.contains(&std::io::Error::from_raw_os_error(EIO).to_string()), "{text}");
    }
    // What is only interrupted or short is continued.
    let hiccups = Faults::new(|attempt| match attempt.nth % 3 {
        0 => Injected::Error(EINTR),
        1 => Injected::Short(attempt.len / 2),
        _ => Injected::Real,
    });
    let options = LoadOptions { faults: Some(hiccups), ..small(Choice::Auto, Direct::Never) };
    assert!(image(&model, &options).0 == image(&model, &LoadOptions::default()).0);
    // A device that takes no more ends it, too, whatever is being read.
    for sends in [0, 1, 5] {
        let text = failure(&model, &small(Choice::Auto, Direct::Auto), sends);
        assert_eq!(text, "the weights cannot be brought to the device: no more");
    }
    // A file that became shorter after it was mapped.
    let file = std::fs::File::options().write(true).open(&path).expect("writable");
    file.set_len(middle).expect("shortened");
    let text = failure(&model, &small(Choice::Auto, Direct::Auto), u32::MAX);
    assert!(
        text.contains(": tensor blk.") && text.contains(&format!("the file ends at byte {middle}")),
        "{text}"
    );
    // A file that is gone is still mapped, and one that cannot be read is told.
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("a folder in its place");
    assert!(
        open::<Aligned>(&model, &LoadOptions::default()).is_err_and(|e| e.to_string().contains("not a file"))
    );
}

/// The first device, or a line that says which test did not run, and why.
fn device(test: &str) -> Option<Context> {
    Context::new(0).inspect_err(|error| println!("skipped {test}: {error}")).ok()
}

#[test]
fn a_device_gets_every_byte() {
    let Some(context) = device("a_device_gets_every_byte") else { return };
    for name in [ONE_FILE, THREE_FILES] {
        let Some(path) = golden::gguf(name) else { return };
        let model = open_model(&path);
        let (weights, plan) = places(&model);
        for options in [LoadOptions::default(), small(Choice::Auto, Direct::Auto)] {
            let mut memory = Memory::take(&context, &plan, None).expect("room for a small model");
            let wanted = Wanted::of(&weights, &model, memory.buffer.address());
            let mut uploader = Uploader::new(&context, &mut memory).expect("a stream");
            bring(&wanted, &model, &options, &mut uploader, &mut |_| {}).expect("it is read");
            drop(uploader);
            check(&wanted, &model, &memory);
        }
    }
}

/// The device has the bytes of the map.
fn check(wanted: &Wanted<'_>, model: &Model, memory: &Memory) {
    let mut found = Vec::new();
    for transfer in wanted.transfers.iter().flatten() {
        let bytes = model.gguf().bytes(transfer.from).expect("a map");
        found.resize(bytes.len(), 0);
        memory.buffer.read(transfer.to.0 as usize, &mut found).expect("read");
        assert!(found == bytes, "{transfer:?}");
    }
}

/// A device to which everything comes at once, to see what reading alone takes.
struct Nowhere;

impl Device for Nowhere {
    type Memory = Aligned;
    type Upload = Aligned;

    fn buffer(&self, bytes: usize, alignment: usize) -> Result<Aligned, ExecError> {
        let mut memory = Aligned::new(bytes, alignment.max(4096)).expect("some megabytes");
        memory.fill(1);
        Ok(memory)
    }

    fn write(&mut self, _: Place, _: &[u8]) -> Result<(), ExecError> {
        Ok(())
    }

    fn send(&mut self, from: Aligned, _: &[(Range<usize>, Place)]) -> Result<Aligned, ExecError> {
        Ok(from)
    }

    fn is_done(&self, _: &Aligned) -> Result<bool, ExecError> {
        Ok(true)
    }

    fn wait(&mut self, upload: Aligned) -> Result<Aligned, ExecError> {
        Ok(upload)
    }
}

/// With a file's name in `MAYA_TEST_LOAD_FILE`: how fast it comes by other options, beside reading and copying alone.
#[test]
fn rates() {
    let Some(path) = std::env::var_os("MAYA_TEST_LOAD_FILE") else {
        return println!("skipped rates: MAYA_TEST_LOAD_FILE names no model");
    };
    let model = open_model(Path::new(&path));
    let (weights, plan) = places(&model);
    let base = LoadOptions::default();
    let mut variants = vec![base.clone()];
    for threads in [4, 8, 12, 16, 24] {
        variants.push(LoadOptions { threads, ..base.clone() });
    }
    for piece in [512 << 10, 2 << 20, 4 << 20] {
        variants.push(LoadOptions { piece, ..base.clone() });
    }
    for (buffers, buffer) in [(16, 2 << 20), (8, 4 << 20), (16, 4 << 20), (16, 8 << 20), (8, 16 << 20)] {
        variants.push(LoadOptions { buffers, buffer, ..base.clone() });
    }
    variants.push(LoadOptions { backend: Choice::Uring, ..base.clone() });
    variants.push(LoadOptions { direct: Direct::Never, ..base.clone() });
    variants.push(LoadOptions { direct: Direct::Auto, ..base.clone() });
    variants.push(base.clone());
    let tell = |what: &str, options: &LoadOptions, result: Result<LoadReport, ExecError>| match result {
        Ok(report) => {
            let reader = report.reader.as_ref().expect("a file");
            let LoadOptions { threads, piece, buffers, buffer, direct, .. } = options;
            let (rate, seconds, backend) = (report.rate() / 1e9, report.took.as_secs_f64(), reader.backend);
            println!(
                "{what}: {rate:6.2} GB/s, {seconds:.2} s, {backend}, {threads} threads, {piece} a read, {buffers} x \
                 {buffer}, {direct:?}, direct {}",
                reader.files[0].is_direct(),
            );
        }
        Err(error) => println!("{what}: {options:?}: {error}"),
    };
    let wanted = Wanted::of(&weights, &model, ADDRESS);
    for options in &variants {
        tell("read alone", options, bring(&wanted, &model, options, &mut Nowhere, &mut |_| {}));
    }
    let Some(context) = device("rates on a device") else { return };
    let mut memory = Memory::take(&context, &plan, None).expect("room for the model");
    let wanted = Wanted::of(&weights, &model, memory.buffer.address());
    for bytes in [1 << 20, 4 << 20, 8 << 20, 16 << 20] {
        let mut uploader = Uploader::new(&context, &mut memory).expect("a stream");
        let begun = Instant::now();
        let (mut free, mut sent, rounds) = (Vec::new(), std::collections::VecDeque::new(), (8 << 30) / bytes);
        free.extend((0..4).map(|_| uploader.buffer(bytes, 1).expect("pinned")));
        let allocated = begun.elapsed();
        let begun = Instant::now();
        for _ in 0..rounds {
            if free.is_empty() {
                free.extend(sent.pop_front().map(|it| uploader.wait(it).expect("copied")));
            }
            let from = free.pop().expect("one came back");
            sent.push_back(uploader.send(from, &[(0..bytes, Place(0))]).expect("queued"));
        }
        drop(sent);
        let rate = (rounds * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e9;
        println!("copy alone: {rate:6.2} GB/s by {bytes}; four buffers took {allocated:?}");
    }
    for options in &variants {
        let mut uploader = Uploader::new(&context, &mut memory).expect("a stream");
        tell("to the device", options, bring(&wanted, &model, options, &mut uploader, &mut |_| {}));
    }
    check(&wanted, &model, &memory);
    println!("every byte is there");
}
