//! Requests and what becomes of them.

use std::ops::{Deref, Range};

use crate::error::ReadError;

/// Most parts of one request.
pub const MAX_PARTS: usize = 4;

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// First byte, from the beginning of the file.
    pub offset: u64,
    /// Bytes; zero is allowed and reads nothing.
    pub len: u32,
}

/// The parts of one request: 1 to [`MAX_PARTS`], without an allocation.
///
/// Any number can be put in; [`Reader::start`](crate::Reader::start) refuses a wrong one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    given: usize,
    parts: [Part; MAX_PARTS],
    /// The file set of each part, where it is not the request's.
    sets: [Option<u32>; MAX_PARTS],
}

impl Parts {
    /// How many were put in, also beyond [`MAX_PARTS`].
    pub fn given(&self) -> usize {
        self.given
    }

    /// The file set of each part; `set` is that of parts that name none.
    pub(crate) fn sets(&self, set: u32) -> [u32; MAX_PARTS] {
        self.sets.map(|own| own.unwrap_or(set))
    }
}

impl Deref for Parts {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        &self.parts[..self.given.min(MAX_PARTS)]
    }
}

impl From<&[Part]> for Parts {
    fn from(list: &[Part]) -> Self {
        let mut parts = [Part::default(); MAX_PARTS];
        parts.iter_mut().zip(list).for_each(|(to, from)| *to = *from);
        Self { given: list.len(), parts, sets: [None; MAX_PARTS] }
    }
}

impl<const N: usize> From<[Part; N]> for Parts {
    fn from(list: [Part; N]) -> Self {
        Self::from(&list[..])
    }
}

impl<const N: usize> From<&[Part; N]> for Parts {
    fn from(parts: &[Part; N]) -> Self {
        Self::from(&parts[..])
    }
}

/// Parts in different files: a blob whose parts were split over several.
impl From<&[(u32, Part)]> for Parts {
    fn from(list: &[(u32, Part)]) -> Self {
        let mut parts = Self { given: list.len(), ..Self::default() };
        for (i, (set, part)) in list.iter().take(MAX_PARTS).enumerate() {
            (parts.parts[i], parts.sets[i]) = (*part, Some(*set));
        }
        parts
    }
}

impl<const N: usize> From<[(u32, Part); N]> for Parts {
    fn from(list: [(u32, Part); N]) -> Self {
        Self::from(&list[..])
    }
}

impl From<Part> for Parts {
    fn from(part: Part) -> Self {
        Self::from([part])
    }
}

/// How urgent a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Somebody waits for it.
    #[default]
    Demand,
    /// It may be needed later: handed to a drive only while no demand read waits for that drive.
    LookAhead,
}

/// A request: some ranges of one set of files, into one memory.
#[derive(Clone, Debug)]
pub struct Read<M> {
    /// Which set of files, by its position in the list that the reader was opened with. Parts can name one of their own.
    pub set: u32,
    /// What to read.
    pub parts: Parts,
    /// Where to: [`Reader::room`](crate::Reader::room) bytes at least, beginning at a multiple of
    /// [`Reader::alignment`](crate::Reader::alignment).
    pub into: M,
    /// How urgent it is.
    pub priority: Priority,
    /// The caller's name for it; no two requests in flight may have the same.
    pub tag: u64,
}

/// The end of a request. Every request that was accepted has exactly one.
#[derive(Debug)]
#[must_use]
pub struct Completion<M> {
    /// The request's name.
    pub tag: u64,
    /// The request's memory.
    pub memory: M,
    /// What happened.
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Every part was read.
    Read(Places),
    /// At least one part was not.
    Failed(Failed),
    /// [`Reader::cancel`](crate::Reader::cancel) stopped it. The memory's content is not specified.
    Cancelled,
}

/// Where the bytes of each part are in the memory, in the order of the request's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    n: usize,
    places: [Range<usize>; MAX_PARTS],
}

impl Places {
    /// `n` is at most [`MAX_PARTS`].
    pub(crate) fn new(n: usize, places: [Range<usize>; MAX_PARTS]) -> Self {
        Self { n: n.min(MAX_PARTS), places }
    }
}

impl Deref for Places {
    type Target = [Range<usize>];

    fn deref(&self) -> &[Range<usize>] {
        &self.places[..self.n]
    }
}

/// The parts of a request of which at least one failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Each part's place in the memory, or why it was not read, in the order of the request's parts. At least one is an
    /// error.
    pub parts: Vec<Result<Range<usize>, ReadError>>,
}

impl Failed {
    /// The first error, with the number of its part.
    pub fn first(&self) -> Option<(usize, &ReadError)> {
        self.parts.iter().enumerate().find_map(|(i, part)| Some((i, part.as_ref().err()?)))
    }
}

/// What [`Reader::cancel`](crate::Reader::cancel) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The request completes as [`Outcome::Cancelled`], as soon as those of its I/Os that are at the drive have come
    /// back.
    Cancelled,
    /// Nothing was left to stop: the tag is unknown, or every I/O of the request is at the drive or done. A known
    /// request completes as if nobody had asked.
    TooLate,
}
