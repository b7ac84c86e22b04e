//! What each kind of launch of a pass takes, by events between the launches.

use std::cell::RefCell;

use quant_kernels::cuda::{Context, DriverError, Event, Stream, Timing};

/// Time of the launches of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchTime {
    /// What they do.
    pub what: &'static str,
    /// How many there were.
    pub launches: u32,
    /// Milliseconds of all of them, each with the gap before it.
    pub ms: f32,
    /// Bytes of weights that they read.
    pub bytes: u64,
}

/// Events of a pass that is run launch by launch.
pub(super) struct Timeline {
    context: Context,
    begin: Event,
    marks: RefCell<Vec<(&'static str, u64, Event)>>,
}

impl Timeline {
    /// Begins now.
    pub(super) fn begin(context: &Context, stream: &Stream) -> Result<Self, DriverError> {
        let begin = Event::new(context, Timing::On)?;
        begin.record(stream)?;
        Ok(Self { context: context.clone(), begin, marks: RefCell::default() })
    }

    /// A launch was put on the stream.
    pub(super) fn mark(&self, stream: &Stream, what: &'static str, bytes: u64) -> Result<(), DriverError> {
        let event = Event::new(&self.context, Timing::On)?;
        event.record(stream)?;
        self.marks.borrow_mut().push((what, bytes, event));
        Ok(())
    }

    /// Sums by kind, in the order in which they first came. The stream has passed everything.
    pub(super) fn end(self) -> Result<Vec<LaunchTime>, DriverError> {
        let mut sums: Vec<LaunchTime> = Vec::new();
        let marks = self.marks.into_inner();
        let before = std::iter::once(&self.begin).chain(marks.iter().map(|(_, _, event)| event));
        for ((what, bytes, event), before) in marks.iter().zip(before) {
            let ms = event.elapsed_ms(before)?;
            match sums.iter_mut().find(|sum| sum.what == *what) {
                Some(sum) => {
                    sum.launches += 1;
                    sum.ms += ms;
                    sum.bytes += bytes;
                }
                None => sums.push(LaunchTime { what, launches: 1, ms, bytes: *bytes }),
            }
        }
        Ok(sums)
    }
}
