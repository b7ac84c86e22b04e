//! The driver: what the directory says is carried out on an arena's memory by a reader.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;

use nvme_reader::{Chunk, Outcome, Priority, Read, Reader};
use tier_cache::{
    Admission, ArenaOptions, Boundary, Budget, Claimer, ClassSpec, Directory, ExpertId, Geometry, HostArena,
    HostSlot, LayerNeed, Lfu, Plan, Shares, Slot, SlotRules, Target, Transfer,
};

use crate::blobs::{BLOBS, GROUPS, PARTS, parts};

/// Blobs of one request.
pub const TOGETHER: u16 = 4;

pub struct Stream {
    pub directory: Directory,
    claimer: Claimer,
    pub arena: HostArena,
    reader: Reader<&'static mut [u8]>,
    pub hits: u64,
    pub reads: u64,
}

impl Stream {
    /// Divides `budget` bytes: transit blobs first, slots with the rest.
    pub fn open(path: &Path, budget: u64) -> Result<Self, Box<dyn Error>> {
        let mut reader = Reader::open(&[path.into()])?;
        let ids = (0..GROUPS).flat_map(|layer| (0..BLOBS).map(move |expert| ExpertId { layer, expert }));
        let rooms = ids.map(|id| reader.room(0, parts(id)));
        let align = reader.alignment().max(512);
        let slot_bytes = rooms.max().flatten().ok_or("no blobs")?.next_multiple_of(align);

        let scratch = 2 * TOGETHER;
        let left =
            budget.checked_sub(slot_bytes as u64 * u64::from(scratch)).ok_or("a budget below transit")?;
        let need =
            LayerNeed { slot_bytes: slot_bytes as u64, experts: BLOBS.into(), shares: Shares::unknown() };
        let rules = SlotRules { experts_per_token: TOGETHER.into(), spares: 3, yielding: true };
        let slots = Budget::for_layers(left, &vec![need; GROUPS.into()], rules)?.slots;

        let counts = slots.iter().copied().chain([u32::from(scratch)]);
        let specs: Vec<ClassSpec> = counts.map(|slots| ClassSpec { slot_bytes, slots }).collect();
        let arena = HostArena::new(&specs, &ArenaOptions { align, ..ArenaOptions::default() })?;
        let chunks = arena.chunks().iter().map(|&(address, len)| Chunk { address, len });
        reader.register(&chunks.collect::<Vec<_>>());

        let geometry = Geometry { scratch, ..Geometry::two_tiers(BLOBS, slots, TOGETHER) };
        let claimer = Claimer::new(&geometry, Admission::All);
        let directory = Directory::new(geometry, Lfu)?;
        Ok(Self { directory, claimer, arena, reader, hits: 0, reads: 0 })
    }

    /// Brings some blobs of a group, each once, and hands out their parts.
    pub fn request(
        &mut self,
        group: u16,
        blobs: &[u16],
        on: impl Fn(ExpertId, usize, &[u8]),
    ) -> Result<(), Box<dyn Error>> {
        let (mut routed, mut plan) = (Vec::new(), Plan::default());
        self.claimer.decide(group, blobs, &mut routed);
        self.directory.route(group, &routed, &mut plan)?;
        self.hits += (plan.serves.len() - plan.transfers.len()) as u64;
        self.reads += plan.transfers.len() as u64;
        self.bring(&plan.transfers)?;
        for serve in plan.serves {
            let slot = self.slot(serve.place)?;
            for part in 0..PARTS.len() {
                on(serve.id, part, self.arena.part(slot, part).ok_or("the part is not there")?);
            }
            if let Target::Scratch(blob) = serve.place {
                self.claimer.release(blob);
            }
        }
        // Evictions, and spares for the next request.
        let mut boundary = Boundary::default();
        self.directory.token_boundary(&mut boundary);
        self.claimer.apply(&boundary.edits);
        if let Some(batch) = boundary.batch {
            self.directory.acknowledge(batch, &mut boundary.transfers)?;
        }
        Ok(())
    }

    fn bring(&mut self, transfers: &[Transfer]) -> Result<(), Box<dyn Error>> {
        let mut landing = HashMap::new();
        for it in transfers {
            let (slot, tag) = (self.slot(it.to)?, it.ticket.to_bits());
            let into = self.arena.take(slot).ok_or("the slot is out")?;
            let read = Read { set: 0, parts: parts(it.id).into(), into, priority: Priority::Demand, tag };
            self.reader.start(read).map_err(|refused| refused.why.to_string())?;
            landing.insert(tag, (slot, it.ticket));
        }
        let mut done = Vec::new();
        self.reader.wait(transfers.len(), &mut done);
        for it in done {
            let (slot, ticket) = landing[&it.tag];
            self.arena.put(slot, it.memory)?;
            let Outcome::Read(places) = it.outcome else { return Err(format!("{:?}", it.outcome).into()) };
            self.arena.set_parts(slot, &places)?;
            self.directory.complete(ticket)?;
        }
        Ok(())
    }

    fn slot(&self, place: Target) -> Result<HostSlot, &'static str> {
        let (class, index) = match place {
            Target::Slot(Slot::Device(slot)) => (usize::from(slot.layer), slot.index),
            Target::Scratch(blob) => (usize::from(GROUPS), u32::from(blob)),
            Target::Slot(Slot::Host(_)) => return Err("two tiers have no host slots"),
        };
        Ok(HostSlot(self.arena.class_slots(class).start + index))
    }
}
