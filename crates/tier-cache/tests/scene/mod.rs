//! A driver that takes one deliberate step at a time, on bytes that are only names. `model/` takes random ones.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;

use tier_cache::*;

/// An expert of the first layer.
pub fn expert(expert: u16) -> ExpertId {
    ExpertId { layer: 0, expert }
}

/// One layer of eight experts on three tiers, nothing decayed, nothing protected.
pub fn three_tiers(near: u32, host: u32) -> Geometry {
    Geometry {
        experts: 8,
        near: vec![near],
        class: vec![0],
        host: vec![host],
        spares: 1,
        yielding: false,
        offers: 2,
        host_spares: 0,
        scratch: 8,
        landings: 8,
        direct: false,
        window: 0,
        half_life: 0,
    }
}

/// One layer of eight experts on two tiers, with empty spares.
pub fn two_tiers(near: u32) -> Geometry {
    let sizes = Geometry::two_tiers(8, vec![near], 4);
    Geometry { spares: 1, offers: 2, yielding: false, half_life: 0, ..sizes }
}

/// Memory by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    Slot(Slot),
    Scratch(u16),
    Landing(u16),
}

impl From<Target> for Memory {
    fn from(target: Target) -> Self {
        match target {
            Target::Slot(slot) => Self::Slot(slot),
            Target::Scratch(n) => Self::Scratch(n),
        }
    }
}

impl From<Staging> for Memory {
    fn from(staging: Staging) -> Self {
        match staging {
            Staging::Host(slot) => Self::Slot(Slot::Host(slot)),
            Staging::Landing(n) => Self::Landing(n),
        }
    }
}

pub struct Scene {
    pub directory: Directory,
    pub claimer: Claimer,
    /// Begun and not over.
    pub flying: Vec<Transfer>,
    pub drive_reads: usize,
    bytes: BTreeMap<Memory, ExpertId>,
    batch: Option<(u64, Vec<Edit>)>,
}

impl Scene {
    pub fn new(geometry: Geometry) -> Self {
        let mut scene = Self {
            claimer: Claimer::new(&geometry, Admission::All),
            directory: Directory::new(geometry, Lfu).unwrap(),
            flying: Vec::new(),
            drive_reads: 0,
            bytes: BTreeMap::new(),
            batch: None,
        };
        scene.publish();
        scene.apply();
        scene
    }

    /// Decides and replays; transfers begin.
    pub fn route(&mut self, layer: u16, experts: &[u16]) -> Vec<Serve> {
        let mut routed = Vec::new();
        assert_eq!(self.claimer.decide(layer, experts, &mut routed), experts.len(), "scratch is short");
        let mut plan = Plan::default();
        self.directory.route(layer, &routed, &mut plan).unwrap();
        plan.transfers.into_iter().for_each(|it| self.start(it));
        self.look();
        plan.serves
    }

    /// Routes, lands everything, computes.
    pub fn compute(&mut self, layer: u16, experts: &[u16]) {
        let serves = self.route(layer, experts);
        self.land_all();
        serves.into_iter().for_each(|serve| self.computed(serve));
    }

    /// An expert is computed from its place, which must hold it.
    pub fn computed(&mut self, serve: Serve) {
        let Serve { id, place, ready } = serve;
        assert_eq!(self.bytes.get(&place.into()), Some(&id), "{id} is computed from {place:?}");
        if let Target::Scratch(n) = place {
            self.claimer.release(n);
        }
        if let Ready::Pinned(pin) = ready {
            self.directory.unpin(pin);
        }
    }

    /// From here on the driver may write to the transfer's memory.
    pub fn start(&mut self, transfer: Transfer) {
        self.drive_reads += usize::from(transfer.from == Source::Disk);
        for memory in [Some(transfer.to.into()), transfer.via.map(Memory::from)].into_iter().flatten() {
            self.bytes.remove(&memory);
        }
        self.flying.push(transfer);
    }

    /// The bytes of a transfer are there.
    pub fn land(&mut self, ticket: Ticket) {
        let transfer = self.take(ticket);
        if let Source::Slot(slot) = transfer.from {
            assert_eq!(self.bytes.get(&Memory::Slot(slot)), Some(&transfer.id), "{transfer:?} copies these");
        }
        self.directory.complete(ticket).unwrap();
        for memory in [Some(transfer.to.into()), transfer.via.map(Memory::from)].into_iter().flatten() {
            self.bytes.insert(memory, transfer.id);
        }
        self.look();
    }

    /// A transfer failed.
    pub fn fail(&mut self, ticket: Ticket) {
        self.take(ticket);
        self.directory.abandon(ticket).unwrap();
        self.look();
    }

    pub fn land_all(&mut self) {
        while !self.flying.is_empty() {
            let waits = |it: &Transfer| self.flying.iter().any(|other| it.after == Some(other.ticket));
            let ticket = self.flying.iter().find(|it| !waits(it)).unwrap().ticket;
            self.land(ticket);
        }
    }

    /// Ends a token. What is to be applied waits for [`apply`](Self::apply).
    pub fn boundary(&mut self) -> Vec<Edit> {
        let mut boundary = Boundary::default();
        self.directory.token_boundary(&mut boundary);
        self.keep(boundary)
    }

    /// Writes a batch within a token.
    pub fn publish(&mut self) -> Vec<Edit> {
        let mut boundary = Boundary::default();
        self.directory.publish(&mut boundary);
        self.keep(boundary)
    }

    fn keep(&mut self, boundary: Boundary) -> Vec<Edit> {
        boundary.transfers.into_iter().for_each(|it| self.start(it));
        assert_eq!(boundary.batch.is_some(), !boundary.edits.is_empty());
        if let Some(batch) = boundary.batch {
            assert!(self.batch.is_none(), "batch {batch} is written while another waits");
            self.batch = Some((batch, boundary.edits.clone()));
        }
        let mut names: Vec<_> = boundary.edits.iter().map(name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "twice in a batch: {:?}", boundary.edits);
        self.look();
        boundary.edits
    }

    /// The claimer applies the batch that waits, and the directory hears of it.
    pub fn apply(&mut self) {
        let Some((batch, edits)) = self.batch.take() else { return };
        self.claimer.apply(&edits);
        let mut transfers = Vec::new();
        self.directory.acknowledge(batch, &mut transfers).unwrap();
        transfers.into_iter().for_each(|it| self.start(it));
        self.look();
    }

    /// The rest of a token: everything lands, the boundary, its acknowledgement.
    pub fn token(&mut self) {
        self.land_all();
        self.boundary();
        self.apply();
        self.land_all();
    }

    /// Tokens without routes, until nothing changes.
    pub fn settle(&mut self) {
        (0..4).for_each(|_| self.token());
    }

    pub fn residence(&self, at: u16) -> Residence {
        self.directory.residence(expert(at))
    }

    /// Whether an expert of the first layer is in a slot of either tier.
    pub fn is_in_memory(&self, at: u16) -> bool {
        matches!(self.residence(at), Residence::Device(_) | Residence::Host(_))
    }

    /// Everything that the directory knows.
    pub fn state(&self) -> String {
        format!("{:?}", self.directory)
    }

    fn take(&mut self, ticket: Ticket) -> Transfer {
        let at = self.flying.iter().position(|it| it.ticket == ticket).expect("in flight");
        self.flying.remove(at)
    }

    /// The invariants, and every resident's bytes in a slot of its own.
    pub fn look(&self) {
        self.directory.check().unwrap();
        let geometry = self.directory.geometry();
        let mut homes = Vec::new();
        for layer in 0..geometry.layers() {
            for expert in 0..geometry.experts {
                let id = ExpertId { layer, expert };
                let slot = match self.directory.residence(id) {
                    Residence::Device(slot) => Slot::Device(slot),
                    Residence::Host(slot) => Slot::Host(slot),
                    Residence::Disk | Residence::InTransit => continue,
                };
                assert_eq!(self.bytes.get(&Memory::Slot(slot)), Some(&id), "{id} lives in {slot:?}");
                homes.push(slot);
            }
        }
        let n = homes.len();
        homes.sort_unstable();
        homes.dedup();
        assert_eq!(homes.len(), n, "a slot has two owners");
    }
}

/// What an edit is about: a batch may have it once.
fn name(edit: &Edit) -> (u8, u16, u16) {
    match *edit {
        Edit::Entry { id, .. } => (0, id.layer, id.expert),
        Edit::Withdraw { layer, place, .. } => (1, layer, place),
        Edit::Offer { layer, place, .. } => (2, layer, place),
    }
}
