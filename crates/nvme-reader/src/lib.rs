//! Byte ranges of files into caller-given memory, as fast as the drive allows.
//!
//! A [`Reader`] reads through `io_uring` where it works and through threads elsewhere, around the page cache where the
//! file allows it, and [reports](Report) which of these and why. A request's memory is given to the reader and comes back
//! in the request's one [`Completion`]; each part lands at an aligned base plus its offset modulo the alignment, so that
//! nothing is copied on the way. The README of this crate has the rules.
//!
//! ```no_run
//! use nvme_reader::{Aligned, FileSet, Outcome, Part, Priority, Read, Reader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reader = Reader::open(&[FileSet::from("experts.bin")])?;
//! let parts = [Part { offset: 1_000_000, len: 7_110_656 }];
//! let room = reader.room(0, &parts).ok_or("beyond any file")?;
//! let into = Aligned::new(room, reader.alignment()).ok_or("out of memory")?;
//! reader.start(Read { set: 0, parts: parts.into(), into, priority: Priority::Demand, tag: 7 })?;
//! let mut done = Vec::new();
//! reader.wait(1, &mut done);
//! for completion in done {
//!     match completion.outcome {
//!         Outcome::Read(places) => println!("{:?}", &completion.memory[places[0].clone()][..8]),
//!         Outcome::Failed(failed) => println!("{:?}", failed.first()),
//!         Outcome::Cancelled => println!("cancelled"),
//!     }
//! }
//! println!("{}", reader.report());
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

mod align;
mod backend;
mod compare;
mod engine;
mod error;
#[doc(hidden)]
pub mod faults;
mod files;
mod memory;
mod mirrors;
mod options;
mod probe;
mod queue;
mod read;
mod reader;
mod report;
mod threads;
#[cfg(target_os = "linux")]
mod uring;
mod why;

pub use error::{
    OpenError, ReadError, ReadFault, Refusal, Refused, UringFault, WhyBuffered, WhyUnregistered,
};
pub use memory::{Aligned, Memory};
pub use options::{Choice, Direct, FileSet, Options};
pub use read::{Cancel, Completion, Failed, MAX_PARTS, Outcome, Part, Parts, Places, Priority, Read};
pub use reader::{Chunk, Reader};
pub use report::{BackendName, Counters, FileReport, Reason, Registered, Report};
