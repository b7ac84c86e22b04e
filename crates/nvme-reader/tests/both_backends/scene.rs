//! Files with known bytes, a reader on them, and what is common to all tests.

use std::cell::Cell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nvme_reader::{
    Aligned, Choice, Completion, Direct, FileSet, Options, Outcome, Part, Priority, Read, Reader,
};

/// A folder and a back-end.
pub struct Scene {
    pub backend: Choice,
    pub folder: tempfile::TempDir,
    files: Cell<u32>,
}

/// Runs `test`, or says that it cannot be run.
pub fn run(backend: Choice, test: fn(&Scene)) {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene { backend, folder, files: Cell::new(0) };
    let file = scene.file(1);
    match Reader::<Aligned>::open_with(&[file.into()], &scene.options()) {
        Ok(_) => test(&scene),
        Err(why) => skipped(&why.to_string()),
    }
}

/// Says on stderr what cannot be tested here; not by `eprintln!`, which the test harness keeps to itself.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {}: {why}", thread.name().unwrap_or("a test"));
}

/// Memory for the rest of the process. Its address is kept, so that a leak checker sees that it is not forgotten.
pub fn lease(len: usize, alignment: usize) -> &'static mut [u8] {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let memory = Aligned::new(len, alignment).unwrap().leak();
    KEPT.lock().unwrap().push(memory.as_ptr().expose_provenance());
    memory
}

/// What every file has at `offset`.
pub fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 51) as u8
}

pub fn part(offset: u64, len: u32) -> Part {
    Part { offset, len }
}

impl Scene {
    /// A new file of `len` bytes.
    pub fn file(&self, len: u64) -> PathBuf {
        self.files.set(self.files.get() + 1);
        let path = self.folder.path().join(format!("file{}", self.files.get()));
        write(&path, len);
        path
    }

    /// The defaults, for this back-end.
    pub fn options(&self) -> Options {
        Options { backend: self.backend, threads: 3, capacity: 64, ..Options::default() }
    }

    pub fn open(&self, path: &Path, options: &Options) -> Reader<Aligned> {
        Reader::open_with(&[path.into()], options).unwrap()
    }

    pub fn mirrored(&self, paths: &[PathBuf], options: &Options) -> Reader<Aligned> {
        Reader::open_with(&[FileSet { paths: paths.to_vec() }], options).unwrap()
    }

    /// This scene's options with and without direct reads. Says so if there are none here.
    pub fn direct_and_not(&self) -> [Options; 2] {
        if !is_direct(&self.open(&self.file(1), &self.options())) {
            skipped("direct reads: the folder for temporary files has none");
        }
        [self.options(), Options { direct: Direct::Never, ..self.options() }]
    }
}

pub fn is_direct(reader: &Reader<Aligned>) -> bool {
    reader.report().files[0].is_direct()
}

/// Writes a file of `len` bytes.
pub fn write(path: &Path, len: u64) {
    let bytes: Vec<u8> = (0..len).map(byte).collect();
    std::fs::write(path, bytes).unwrap();
    // Direct reads of some file systems do not see what is not written out.
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

/// A request with memory of its own, full of 0xEE.
pub fn request(reader: &Reader<Aligned>, parts: &[Part], priority: Priority, tag: u64) -> Read<Aligned> {
    let room = reader.room(0, parts).unwrap();
    let mut into = Aligned::new(room, reader.alignment()).unwrap();
    into.fill(0xEE);
    Read { set: 0, parts: parts.into(), into, priority, tag }
}

pub fn start(reader: &mut Reader<Aligned>, parts: &[Part], priority: Priority, tag: u64) {
    let read = request(reader, parts, priority, tag);
    reader.start(read).unwrap();
}

/// Reads `parts` and waits.
pub fn read(reader: &mut Reader<Aligned>, parts: &[Part]) -> Completion<Aligned> {
    start(reader, parts, Priority::Demand, 1);
    let mut done = Vec::new();
    reader.wait(1, &mut done);
    assert_eq!((done.len(), reader.in_flight()), (1, 0));
    done.pop().unwrap()
}

/// The completion's bytes are those of the file, part by part.
pub fn check(completion: &Completion<Aligned>, parts: &[Part]) {
    let Outcome::Read(places) = &completion.outcome else { panic!("{:?}", completion.outcome) };
    assert_eq!(places.len(), parts.len());
    for (place, part) in places.iter().zip(parts) {
        check_part(&completion.memory[place.clone()], part);
    }
}

pub fn check_part(bytes: &[u8], part: &Part) {
    assert_eq!(bytes.len(), part.len as usize);
    let wrong = (part.offset..).zip(bytes).find(|(offset, b)| byte(*offset) != **b);
    assert_eq!(wrong, None, "of {part:?}");
}
