//! Opening the drive, starting reads, taking what they bring.

use std::time::Instant;

use nvme_reader::{FileSet, Options, Outcome, Priority, Read, Reader};
use tier_cache::{DeviceSlot, HostSlot, Slot, Source, Target, Ticket, Transfer};

use super::{TierOptions, Tiers};
use crate::error::ExecError;
use crate::model::Model;

/// I/Os at a drive at once. Few, so that experts land one after the other and not all at the end (24 at once left no
/// time in which the drive and the processor both worked); enough for a drive's full rate in pieces of a megabyte.
const DEPTH: u32 = 8;

/// A reader over the model's files and their copies.
pub(super) fn open(model: &Model, options: &TierOptions) -> Result<Reader<&'static mut [u8]>, ExecError> {
    let shards = model.gguf().shards();
    let mut sets: Vec<FileSet> = shards.iter().map(|shard| FileSet::from(shard.path.clone())).collect();
    for mirror in &options.mirrors {
        if mirror.len() != sets.len() {
            let (found, wanted) = (mirror.len(), sets.len());
            return Err(ExecError::Tiers(format!(
                "a copy of the model has {found} files and the model has {wanted}"
            )));
        }
        sets.iter_mut().zip(mirror).for_each(|(set, path)| set.paths.push(path.clone()));
    }
    let with = Options {
        backend: options.backend,
        direct: options.direct,
        depth: DEPTH,
        drop_cache: true,
        faults: options.faults.clone(),
        ..Options::default()
    };
    Reader::open_with(&sets, &with).map_err(|error| ExecError::Tiers(error.to_string()))
}

impl Tiers {
    /// The arena slot behind a place.
    pub(super) fn slot(&self, place: Target) -> HostSlot {
        match place {
            Target::Slot(Slot::Device(DeviceSlot { layer, index })) => {
                HostSlot(self.arena.class_slots(usize::from(layer)).start + index)
            }
            Target::Scratch(n) => HostSlot(self.landing + u32::from(n)),
            // A directory without a host tier names no host slot.
            Target::Slot(Slot::Host(slot)) => slot,
        }
    }

    /// Starts a transfer. One that cannot be started is abandoned, with the reason.
    pub(super) fn start(&mut self, transfer: &Transfer, priority: Priority) -> Result<(), ExecError> {
        let Transfer { ticket, id, from, to, .. } = *transfer;
        let slot = self.slot(to);
        let layer = &self.layers[usize::from(id.layer)];
        let (parts, bytes) = (layer.parts_of(u32::from(id.expert)), layer.expert_bytes());
        let refused = match (from, self.arena.take(slot)) {
            (Source::Disk, Some(into)) => {
                let read = Read { set: 0, parts: parts.into(), into, priority, tag: ticket.to_bits() };
                match self.reader.start(read) {
                    Ok(()) => {
                        self.flights.insert(ticket.to_bits(), slot);
                        self.counters.bytes += bytes;
                        return Ok(());
                    }
                    Err(refused) => {
                        let why = refused.why.to_string();
                        self.put(slot, refused.read.into);
                        why
                    }
                }
            }
            (Source::Disk, None) => "its slot is in use".to_owned(),
            (Source::Slot(_), _) => "it was to be copied, and nothing copies on one tier".to_owned(),
        };
        self.give_up(ticket);
        Err(self.read_error(id.layer, u32::from(id.expert), &refused))
    }

    pub(super) fn read_error(&self, layer: u16, expert: u32, why: &dyn std::fmt::Display) -> ExecError {
        let block = self.layers[usize::from(layer)].block;
        ExecError::Read { expert, block, why: why.to_string() }
    }

    fn put(&mut self, slot: HostSlot, memory: &'static mut [u8]) {
        let home = self.arena.put(slot, memory);
        debug_assert!(home.is_ok(), "memory comes back to the slot it was taken from");
    }

    pub(super) fn give_up(&mut self, ticket: Ticket) {
        let known = self.directory.abandon(ticket);
        debug_assert!(known.is_ok(), "a ticket is used once");
    }

    /// Takes what has arrived.
    pub(super) fn receive(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.reader.poll(&mut done);
        done.drain(..).for_each(|it| self.arrived(it));
        self.done = done;
    }

    /// Waits for something to arrive.
    pub(super) fn wait(&mut self) {
        let started = Instant::now();
        let mut done = std::mem::take(&mut self.done);
        self.reader.wait(1, &mut done);
        done.drain(..).for_each(|it| self.arrived(it));
        self.done = done;
        self.counters.waits += 1;
        self.counters.wait_ns += started.elapsed().as_nanos() as u64;
    }

    fn arrived(&mut self, completion: nvme_reader::Completion<&'static mut [u8]>) {
        let ticket = Ticket::from_bits(completion.tag);
        let Some(slot) = self.flights.remove(&completion.tag) else { return };
        self.put(slot, completion.memory);
        let failure = match completion.outcome {
            Outcome::Read(places) => match self.arena.set_parts(slot, &places) {
                Ok(()) => None,
                Err(error) => Some(error.to_string()),
            },
            Outcome::Failed(failed) => {
                Some(failed.first().map_or_else(String::new, |(_, error)| error.to_string()))
            }
            Outcome::Cancelled => Some("the read was called back".to_owned()),
        };
        match &failure {
            None => {
                let known = self.directory.complete(ticket);
                debug_assert!(known.is_ok(), "a ticket is used once");
            }
            Some(_) => self.give_up(ticket),
        }
        self.guess_ended(ticket, failure.is_none());
        if let Some(served) = self.waiting.remove(&ticket) {
            match failure {
                None => self.ready.push(served),
                Some(why) => {
                    let error = self.read_error(self.layer, served.expert, &why);
                    self.lose(&served, error);
                }
            }
        }
    }
}
