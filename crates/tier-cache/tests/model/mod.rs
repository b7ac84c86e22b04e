//! A driver, a device and memory, all pretended: what the directory says is carried out on bytes that are only names, so
//! that every wrong byte is seen the moment somebody could read it.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use tier_cache::*;

/// What a blob of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    Garbage,
    Of(ExpertId),
}

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Small numbers more often.
    pub fn skewed(&mut self, n: usize) -> usize {
        let n = self.below(n) + 1;
        self.below(n)
    }
}

/// What the device sent, in ring order.
enum Event {
    Route(u16, Vec<Routed>),
    GoOn(u16, Vec<Routed>),
    Applied(u64),
}

pub struct World {
    pub rng: Rng,
    pub directory: Directory,
    pub claimer: Claimer,
    near: Vec<Vec<Bytes>>,
    host: Vec<Bytes>,
    scratch: Vec<Bytes>,
    landing: Vec<Bytes>,
    flying: BTreeMap<Ticket, Transfer>,
    /// Serves that wait for their transfer.
    waiting: BTreeMap<Ticket, Vec<(ExpertId, Target)>>,
    pins: Vec<Pin>,
    ring: VecDeque<Event>,
    /// Written by the host, not applied by the device yet.
    batch: Option<(u64, Vec<Edit>)>,
    /// Look-ahead's scratch blobs: expert, ticket.
    guesses: Vec<(ExpertId, Ticket)>,
    k: usize,
    /// Places that a layer's last route computes from.
    in_use: Vec<Vec<Target>>,
    pub served: u64,
    pub lost: u64,
    pub moved: u64,
}

impl World {
    pub fn new(geometry: Geometry, admission: Admission, k: usize, seed: u64) -> Self {
        let host: u32 = geometry.host.iter().sum();
        let directory_layers = geometry.near.len();
        Self {
            rng: Rng(seed),
            claimer: Claimer::new(&geometry, admission),
            near: geometry.near.iter().map(|n| vec![Bytes::Garbage; *n as usize]).collect(),
            host: vec![Bytes::Garbage; host as usize],
            scratch: vec![Bytes::Garbage; usize::from(geometry.scratch)],
            landing: vec![Bytes::Garbage; usize::from(geometry.landings)],
            directory: Directory::new(geometry, Lfu).unwrap(),
            flying: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pins: Vec::new(),
            ring: VecDeque::new(),
            batch: None,
            guesses: Vec::new(),
            in_use: vec![Vec::new(); directory_layers],
            k,
            served: 0,
            lost: 0,
            moved: 0,
        }
    }

    /// One random thing happens; then everything is looked at.
    pub fn step(&mut self) {
        match self.rng.below(100) {
            0..=29 => self.device_routes(),
            30..=49 => self.host_replays(),
            50..=77 => self.transfer_ends(),
            78..=85 => self.token_ends(),
            86..=91 => self.device_applies(),
            92 => self.budget_changes(),
            93 => self.pin(),
            94 => self.unpin(),
            95 => self.fills(),
            96 => self.publishes(),
            _ => self.looks_ahead(),
        }
        self.look();
    }

    /// Brings everything to an end, then looks at what is left.
    pub fn settle(&mut self) {
        for _ in 0..6 {
            while !self.ring.is_empty() {
                self.host_replays();
            }
            while let Some(ticket) = self.startable() {
                self.ends(ticket, true);
            }
            while let Some(pin) = self.pins.pop() {
                self.directory.unpin(pin);
            }
            self.token_ends();
            self.device_applies();
            while !self.ring.is_empty() {
                self.host_replays();
            }
        }
        self.look();
        assert!(self.flying.is_empty() && self.waiting.is_empty());
        assert_eq!(self.directory.in_flight(), 0);
        assert_eq!(self.directory.closing(), (0, 0), "slots beyond the limits are not empty");
    }

    /// The device may run ahead of the host: decisions queue in the ring.
    fn device_routes(&mut self) {
        if self.ring.len() > 3 {
            return self.host_replays();
        }
        let geometry = self.directory.geometry();
        let (layers, experts) = (usize::from(geometry.layers()), usize::from(geometry.experts));
        let layer = self.rng.below(layers) as u16;
        let mut ids = Vec::new();
        for _ in 0..1 + self.rng.below(self.k) {
            let id = self.rng.skewed(experts) as u16;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let cpu = self.rng.chance(40);
        self.claimer.compute_host_on_cpu(cpu);
        // Part of a route may come later: rows of a batch, or experts for which there was no blob.
        let cut = if self.rng.chance(70) { ids.len() } else { self.rng.below(ids.len() + 1) };
        let mut routed = Vec::new();
        self.claimer.decide(layer, &ids[..cut], &mut routed);
        self.ring.push_back(Event::Route(layer, routed));
        if cut < ids.len() {
            let mut rest = Vec::new();
            self.claimer.go_on(layer, &ids[cut..], &mut rest);
            self.ring.push_back(Event::GoOn(layer, rest));
        }
    }

    fn host_replays(&mut self) {
        match self.ring.pop_front() {
            None => {}
            Some(Event::Applied(batch)) => {
                // Between two tokens nothing computes.
                self.in_use.iter_mut().for_each(Vec::clear);
                let mut transfers = Vec::new();
                self.directory.acknowledge(batch, &mut transfers).unwrap();
                transfers.into_iter().for_each(|it| self.starts(it));
            }
            Some(event @ (Event::Route(..) | Event::GoOn(..))) => {
                let (layer, routed, first) = match event {
                    Event::Route(layer, routed) => (layer, routed, true),
                    Event::GoOn(layer, routed) => (layer, routed, false),
                    Event::Applied(_) => unreachable!(),
                };
                if first {
                    self.in_use[usize::from(layer)].clear();
                }
                let mut plan = Plan::default();
                let replay = |directory: &mut Directory, plan: &mut Plan| match first {
                    true => directory.route(layer, &routed, plan),
                    false => directory.go_on(layer, &routed, plan),
                };
                while let Err(error) = replay(&mut self.directory, &mut plan) {
                    assert!(matches!(error, RouteError::NoLanding { .. }), "{error}");
                    assert!(
                        plan.serves.is_empty() && plan.transfers.is_empty(),
                        "a refusal changed something"
                    );
                    let ticket = self.startable().expect("with nothing in flight there is room to land");
                    self.ends(ticket, true);
                }
                let hits = plan.serves.iter().zip(&routed).filter(|(_, routed)| routed.lane == Lane::Hit);
                self.in_use[usize::from(layer)].extend(hits.map(|(serve, _)| serve.place));
                plan.transfers.into_iter().for_each(|it| self.starts(it));
                assert_eq!(plan.serves.len(), routed.len());
                plan.serves.into_iter().for_each(|serve| self.serve(serve));
                self.drop_wrong_guesses(layer, &routed);
            }
        }
    }

    fn serve(&mut self, serve: Serve) {
        let Serve { id, place, ready } = serve;
        self.served += 1;
        self.guesses.retain(|(guess, _)| *guess != id);
        match ready {
            Ready::Lost => self.lost += 1,
            Ready::When(ticket) => {
                assert!(
                    self.flying.contains_key(&ticket),
                    "{id} waits for {ticket:?}, which is not in flight"
                );
                self.waiting.entry(ticket).or_default().push((id, place));
            }
            Ready::Now | Ready::Pinned(_) => {
                assert_eq!(self.bytes(place), Bytes::Of(id), "{id} is computed from {place:?}");
                self.done(place);
                if let Ready::Pinned(pin) = ready {
                    self.pins.push(pin);
                }
            }
        }
    }

    /// A place has been computed from.
    fn done(&mut self, place: Target) {
        if let Target::Scratch(n) = place {
            self.claimer.release(n);
        }
    }

    /// A transfer is given to the driver: from now on its target may be written at any moment.
    fn starts(&mut self, transfer: Transfer) {
        self.moved += 1;
        if transfer.after.is_none() {
            self.writing(&transfer);
        }
        assert!(self.flying.insert(transfer.ticket, transfer).is_none());
    }

    fn writing(&mut self, transfer: &Transfer) {
        let targets = [Some(transfer.to), transfer.via.map(staging)];
        for target in targets.into_iter().flatten() {
            self.no_reader_of(target, transfer);
            match target {
                Target::Slot(Slot::Device(slot)) => {
                    self.near[usize::from(slot.layer)][slot.index as usize] = Bytes::Garbage;
                }
                Target::Slot(Slot::Host(slot)) => self.host[slot.0 as usize] = Bytes::Garbage,
                Target::Scratch(n) => {
                    if let Some(scratch) = self.scratch.get_mut(usize::from(n)) {
                        *scratch = Bytes::Garbage;
                    }
                }
            }
        }
        if let Some(Staging::Landing(n)) = transfer.via {
            self.landing[usize::from(n)] = Bytes::Garbage;
        }
    }

    /// Nobody can come to read what is being written: no entry, no pin, no other transfer.
    fn no_reader_of(&self, target: Target, by: &Transfer) {
        for (ticket, other) in self.flying.iter().filter(|(ticket, _)| **ticket != by.ticket) {
            let writes = other.to == target || other.via.map(staging) == Some(target);
            assert!(!writes, "{ticket:?} and {:?} both write {target:?}", by.ticket);
            if let (Source::Slot(slot), Target::Slot(written)) = (other.from, target) {
                let waits = other.after == Some(by.ticket);
                assert!(slot != written || waits, "{ticket:?} reads {slot:?}, which {:?} writes", by.ticket);
            }
        }
        let filled = |it: &&Target| self.waiting.contains_key(&by.ticket) && **it == target;
        let used = self.in_use.iter().flatten().filter(|it| **it == target && !filled(it));
        assert_eq!(used.count(), 0, "{target:?} is written while a route computes from it");
        for pin in &self.pins {
            assert_ne!(Target::Slot(pin.slot()), target, "a pinned slot is written");
        }
        for id in self.ids() {
            let read = match self.claimer.entry(id.layer, id.expert) {
                View::Nothing => continue,
                View::Device(index) => Slot::Device(DeviceSlot { layer: id.layer, index }),
                View::Host(slot) => Slot::Host(slot),
            };
            let own = by.to == target && by.id == id && matches!(read, Slot::Device(_));
            assert!(
                Target::Slot(read) != target || own,
                "{read:?} is written while the device finds {id} in it"
            );
        }
    }

    fn transfer_ends(&mut self) {
        if self.rng.chance(3) && !self.flying.is_empty() {
            // Given up before it could start.
            let at = self.rng.below(self.flying.len());
            let ticket = self.flying.keys().nth(at).copied().unwrap();
            return self.ends(ticket, false);
        }
        let Some(ticket) = self.startable() else { return };
        let well = self.rng.chance(93);
        self.ends(ticket, well);
    }

    /// A transfer that waits for no other, at random.
    fn startable(&mut self) -> Option<Ticket> {
        let free = |it: &&Transfer| it.after.is_none_or(|after| !self.flying.contains_key(&after));
        let tickets: Vec<Ticket> = self.flying.values().filter(free).map(|it| it.ticket).collect();
        if tickets.is_empty() { None } else { Some(tickets[self.rng.below(tickets.len())]) }
    }

    fn ends(&mut self, ticket: Ticket, well: bool) {
        let transfer = self.flying.remove(&ticket).unwrap();
        if transfer.after.is_some() && well {
            self.writing(&transfer);
        }
        let well = well && self.directory.complete(ticket) != Err(TicketError::SourceLost(ticket));
        if well {
            let from = match transfer.from {
                Source::Disk => Bytes::Of(transfer.id),
                Source::Slot(slot) => self.bytes(Target::Slot(slot)),
            };
            assert_eq!(from, Bytes::Of(transfer.id), "{transfer:?} copies other bytes");
            if let Some(Target::Slot(Slot::Host(slot))) = transfer.via.map(staging) {
                self.host[slot.0 as usize] = from;
            }
            match transfer.to {
                Target::Slot(Slot::Device(slot)) => {
                    self.near[usize::from(slot.layer)][slot.index as usize] = from
                }
                Target::Slot(Slot::Host(slot)) => self.host[slot.0 as usize] = from,
                Target::Scratch(n) => self.scratch[usize::from(n)] = from,
            }
        } else {
            self.directory.abandon(ticket).unwrap();
        }
        for again in [self.directory.complete(ticket), self.directory.abandon(ticket)] {
            assert_eq!(again, Err(TicketError::Unknown(ticket)), "a ticket is used once");
        }
        for (id, place) in self.waiting.remove(&ticket).unwrap_or_default() {
            if well {
                assert_eq!(self.bytes(place), Bytes::Of(id), "{id} is computed from {place:?}");
            } else {
                self.lost += 1;
            }
            self.done(place);
        }
        if !well {
            let dropped: Vec<_> = self.guesses.extract_if(.., |(_, t)| *t == ticket).collect();
            dropped.into_iter().for_each(|(id, _)| self.claimer.forget(id.layer, id.expert));
        }
    }

    fn token_ends(&mut self) {
        let mut boundary = Boundary::default();
        self.directory.token_boundary(&mut boundary);
        let done: Vec<_> = self.guesses.extract_if(.., |(_, t)| !self.flying.contains_key(t)).collect();
        done.into_iter().for_each(|(id, _)| self.claimer.forget(id.layer, id.expert));
        self.take(boundary);
    }

    fn publishes(&mut self) {
        let mut boundary = Boundary::default();
        self.directory.publish(&mut boundary);
        self.take(boundary);
    }

    fn take(&mut self, boundary: Boundary) {
        boundary.transfers.into_iter().for_each(|it| self.starts(it));
        if let Some(batch) = boundary.batch {
            assert!(self.batch.is_none(), "a batch is written while another waits");
            let mut seen = Vec::new();
            for edit in &boundary.edits {
                let name = match edit {
                    Edit::Entry { id, .. } => (0, id.layer, id.expert),
                    Edit::Withdraw { layer, place, .. } => (1, *layer, *place),
                    Edit::Offer { layer, place, .. } => (2, *layer, *place),
                };
                assert!(!seen.contains(&name), "{edit:?} stands twice in a batch");
                seen.push(name);
            }
            self.batch = Some((batch, boundary.edits));
        }
    }

    /// The device reaches the start of a token and applies what is there.
    fn device_applies(&mut self) {
        if let Some((batch, edits)) = self.batch.take() {
            self.claimer.apply(&edits);
            self.ring.push_back(Event::Applied(batch));
        }
    }

    fn budget_changes(&mut self) {
        let mut limits = Limits::all(self.directory.geometry());
        if self.rng.chance(70) {
            for limit in limits.near.iter_mut().chain(&mut limits.host) {
                *limit = self.rng.below(*limit as usize + 1) as u32;
            }
        }
        self.directory.set_budget(limits).unwrap();
    }

    fn pin(&mut self) {
        let ids = self.ids();
        let id = ids[self.rng.below(ids.len())];
        if let Some(pin) = self.directory.pin(id) {
            assert_eq!(self.bytes(Target::Slot(pin.slot())), Bytes::Of(id));
            self.pins.push(pin);
        }
    }

    fn unpin(&mut self) {
        if !self.pins.is_empty() {
            let pin = self.pins.swap_remove(self.rng.below(self.pins.len()));
            assert_eq!(self.bytes(Target::Slot(pin.slot())), Bytes::Of(pin.id()), "a pinned slot changed");
            self.directory.unpin(pin);
        }
    }

    fn fills(&mut self) {
        if let Some(transfer) = self.directory.fill() {
            self.starts(transfer);
        }
    }

    fn looks_ahead(&mut self) {
        let experts = usize::from(self.directory.geometry().experts);
        let layer = self.rng.below(usize::from(self.directory.geometry().layers())) as u16;
        let expert = self.rng.skewed(experts) as u16;
        if !self.directory.geometry().direct {
            let id = ExpertId { layer, expert };
            if let Some(transfer) = self.directory.read_ahead(id) {
                self.starts(transfer);
            }
        } else {
            // Where the drive reaches the near tier the claimer is in step with the directory.
            while !self.ring.is_empty() {
                self.host_replays();
            }
            let (mut routed, mut transfers) = (Vec::new(), Vec::new());
            let keep = self.k.min(self.scratch.len() - 1);
            let mut guesses = vec![expert];
            for _ in 0..self.rng.below(4) {
                let other = self.rng.skewed(experts) as u16;
                if !guesses.contains(&other) {
                    guesses.push(other);
                }
            }
            self.claimer.look_ahead(layer, &guesses, keep, &mut routed);
            self.directory.look_ahead(layer, &routed, &mut transfers).unwrap();
            for it in transfers {
                if let Target::Scratch(_) = it.to {
                    self.guesses.push((it.id, it.ticket));
                }
                self.starts(it);
            }
        }
    }

    /// The truth is known: reads for experts that were not routed are cancelled, where they still can be.
    fn drop_wrong_guesses(&mut self, layer: u16, routed: &[Routed]) {
        let wrong = |(id, ticket): &(ExpertId, Ticket)| {
            let right = id.layer != layer || routed.iter().any(|it| it.expert == id.expert);
            (!right && self.flying.contains_key(ticket)).then_some(*ticket)
        };
        for ticket in self.guesses.iter().filter_map(wrong).collect::<Vec<_>>() {
            if self.rng.chance(50) && !self.directory.is_awaited(ticket) {
                self.ends(ticket, false);
            }
        }
    }

    /// The naive model: what the directory says of every expert, against the bytes themselves.
    fn look(&self) {
        self.directory.check().unwrap();
        let mut owners = BTreeMap::new();
        for id in self.ids() {
            let slot = match self.directory.residence(id) {
                Residence::Disk => continue,
                Residence::InTransit => {
                    assert!(
                        self.directory.in_transit(id).is_some(),
                        "{id} is in transit and nothing moves it"
                    );
                    continue;
                }
                Residence::Device(slot) => Slot::Device(slot),
                Residence::Host(slot) => Slot::Host(slot),
            };
            assert_eq!(self.bytes(Target::Slot(slot)), Bytes::Of(id), "{id} lives in {slot:?}");
            assert_eq!(owners.insert(slot, id), None, "{slot:?} has two owners");
        }
        assert_eq!(self.directory.in_flight(), self.flying.len());
    }

    fn bytes(&self, place: Target) -> Bytes {
        match place {
            Target::Slot(Slot::Device(slot)) => self.near[usize::from(slot.layer)][slot.index as usize],
            Target::Slot(Slot::Host(slot)) => self.host[slot.0 as usize],
            Target::Scratch(n) => self.scratch[usize::from(n)],
        }
    }

    fn ids(&self) -> Vec<ExpertId> {
        let geometry = self.directory.geometry();
        let layers = 0..geometry.layers();
        layers.flat_map(|layer| (0..geometry.experts).map(move |expert| ExpertId { layer, expert })).collect()
    }
}

fn staging(via: Staging) -> Target {
    match via {
        Staging::Host(slot) => Target::Slot(Slot::Host(slot)),
        // Landings have their own memory; this name is taken by nothing else.
        Staging::Landing(n) => Target::Scratch(u16::MAX - n),
    }
}
