//! The state machine: where each expert is, and what must move.

mod ack;
mod boundary;
mod check;
mod evict;
mod fetch;
mod route;
mod settle;
mod slots;

use std::collections::BTreeSet;

use crate::error::ConfigError;
use crate::geometry::{Geometry, Limits};
use crate::id::{DeviceSlot, ExpertId, HostSlot, Pin, Slot, Ticket};
use crate::plan::{Residence, Source, Staging, Target};
use crate::policy::{Lfu, Policy};
use crate::view::{Edit, View};

use slots::{Hosts, Near, NearSlot};

/// No slot.
const NONE: u32 = u32::MAX;

/// An expert by number: `layer * experts + expert`.
type Key = u32;

/// What is known of one expert.
#[derive(Clone, Copy, Debug)]
struct Expert {
    /// The near slot that holds it or that it is on its way to.
    near: u32,
    /// The host slot that holds it, shadows it, or that it is on its way to.
    host: u32,
    /// The claimer's entry.
    seen: View,
    /// What the batch that waits for its acknowledgement makes of it.
    pending: Option<View>,
    /// Whether it is among `Directory::dirty`.
    dirty: bool,
    /// Decayed number of routes.
    count: u32,
    /// The route at which it was last used.
    last: u64,
    /// The token at which it was last used, counted from 1.
    token: u64,
    /// The route of its layer that it was last part of, counted from 1.
    route: u64,
}

/// A movement in flight.
#[derive(Clone, Copy, Debug)]
struct Move {
    key: Key,
    from: Source,
    via: Option<Staging>,
    to: Target,
    after: Option<Ticket>,
    /// Started by look-ahead, and not asked for yet.
    ahead: bool,
    /// Its source was abandoned.
    lost: bool,
}

/// What a transit blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scratch {
    Free,
    /// Being filled for this expert.
    Filling(Key, Ticket),
    /// Filled by look-ahead and not asked for yet.
    Kept(Key),
}

/// Where each expert is. A state machine without I/O and without a clock: calls say what happened, answers say what must be
/// moved. It never blocks, and it allocates only until its lists have grown to their working size.
///
/// The claimer (a router kernel, or [`Claimer`](crate::Claimer)) decides from its own table where a routed expert comes
/// from; [`route`](Self::route) replays the decision and refuses one that the table could not have led to.
#[derive(Debug)]
pub struct Directory<P: Policy = Lfu> {
    geometry: Geometry,
    limits: Limits,
    policy: P,
    experts: Vec<Expert>,
    near: Vec<Vec<NearSlot>>,
    /// By layer: the slot that stands in each place of the claimer's list of spares, or will once the batch is applied.
    places: Vec<Vec<u32>>,
    hosts: Hosts,
    scratch: Vec<Scratch>,
    landings: Vec<bool>,
    moves: Vec<(u32, Option<Move>)>,
    free_moves: Vec<u32>,
    dirty: Vec<Key>,
    /// Offers that the next batch takes back: layer, place, slot.
    recalls: Vec<(u16, u16, u32)>,
    /// Layers that a boundary has to look at.
    touched: BTreeSet<u16>,
    /// The batch that waits for its acknowledgement.
    outstanding: Option<u64>,
    batch: Vec<Edit>,
    batches: u64,
    /// Routes of each layer.
    layer_routes: Vec<u64>,
    /// Events of each layer since its counts were halved.
    events: Vec<u64>,
    routes: u64,
    token: u64,
    /// Where background filling goes on.
    fill_at: u16,
}

impl<P: Policy> Directory<P> {
    /// All experts on the drive, all slots empty and within the limits.
    ///
    /// # Errors
    /// A geometry that contradicts itself.
    pub fn new(geometry: Geometry, policy: P) -> Result<Self, ConfigError> {
        geometry.check()?;
        let layers = geometry.near.len();
        let blank = Expert {
            near: NONE,
            host: NONE,
            seen: View::Nothing,
            pending: None,
            dirty: false,
            count: 0,
            last: 0,
            token: 0,
            route: 0,
        };
        let slots = |n: &u32| vec![NearSlot { state: Near::Free, key: NONE, readers: 0 }; *n as usize];
        Ok(Self {
            limits: Limits::all(&geometry),
            policy,
            experts: vec![blank; layers * usize::from(geometry.experts)],
            near: geometry.near.iter().map(slots).collect(),
            places: vec![vec![NONE; usize::from(geometry.offers)]; layers],
            hosts: Hosts::new(&geometry.host),
            scratch: vec![Scratch::Free; usize::from(geometry.scratch)],
            landings: vec![false; usize::from(geometry.landings)],
            moves: Vec::new(),
            free_moves: Vec::new(),
            dirty: Vec::new(),
            recalls: Vec::new(),
            touched: (0..layers as u16).collect(),
            outstanding: None,
            batch: Vec::new(),
            batches: 0,
            layer_routes: vec![0; layers],
            events: vec![0; layers],
            routes: 0,
            token: 1,
            fill_at: 0,
            geometry,
        })
    }

    /// The sizes it was made for.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// How many of the slots may be used.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Where an expert is.
    ///
    /// # Panics
    /// If there is no such expert.
    #[must_use]
    pub fn residence(&self, id: ExpertId) -> Residence {
        let expert = &self.experts[self.key(id) as usize];
        let device = || Residence::Device(DeviceSlot { layer: id.layer, index: expert.near });
        if expert.near != NONE {
            match self.near[usize::from(id.layer)][expert.near as usize].state {
                state if state.holds() || matches!(state, Near::Leaving(_)) => return device(),
                Near::Filling => return Residence::InTransit,
                _ => {}
            }
        }
        if expert.host != NONE {
            return match self.hosts.slots[expert.host as usize].state {
                slots::Host::Filling => Residence::InTransit,
                slots::Host::Held | slots::Host::Leaving(_) => Residence::Host(HostSlot(expert.host)),
                _ => Residence::Disk,
            };
        }
        Residence::Disk
    }

    /// The transfer that brings an expert into a slot, where one is in flight.
    ///
    /// # Panics
    /// If there is no such expert.
    #[must_use]
    pub fn in_transit(&self, id: ExpertId) -> Option<Ticket> {
        let expert = &self.experts[self.key(id) as usize];
        let near = Slot::Device(DeviceSlot { layer: id.layer, index: expert.near });
        self.filler(near).or_else(|| self.filler(Slot::Host(HostSlot(expert.host))))
    }

    /// Changes how many slots may be used, while running. Slots beyond a limit empty themselves at the next boundaries;
    /// [`closing`](Self::closing) says when they are.
    ///
    /// # Errors
    /// Limits of another geometry, or more slots than there are.
    pub fn set_budget(&mut self, limits: Limits) -> Result<(), ConfigError> {
        limits.check(&self.geometry)?;
        for (layer, slots) in self.near.iter_mut().enumerate() {
            for slot in slots.iter_mut().take(limits.near[layer] as usize) {
                if slot.state == Near::Closed {
                    slot.state = Near::Free;
                }
            }
        }
        self.hosts.reopen(&limits.host);
        self.limits = limits;
        self.touched.extend(0..self.geometry.layers());
        Ok(())
    }

    /// Slots beyond the limits that are still in use: near ones, and host ones. The memory of a slot may be lent or given
    /// back once its count is 0.
    #[must_use]
    pub fn closing(&self) -> (usize, usize) {
        let beyond = |(layer, slots): (usize, &Vec<NearSlot>)| {
            let limit = self.limits.near[layer] as usize;
            slots.iter().skip(limit).filter(|slot| slot.state != Near::Closed).count()
        };
        (self.near.iter().enumerate().map(beyond).sum(), self.hosts.closing(&self.limits.host))
    }

    /// Holds the slot in which an expert lies, for a lane that reads it in place. `None` when it lies in none, or in one
    /// that is being emptied.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn pin(&mut self, id: ExpertId) -> Option<Pin> {
        let place = match self.residence(id) {
            Residence::Device(slot) => {
                let slot_state = &mut self.near[usize::from(id.layer)][slot.index as usize];
                if slot_state.state != Near::Held {
                    return None;
                }
                slot_state.readers += 1;
                Slot::Device(slot)
            }
            Residence::Host(slot) => {
                let slot_state = &mut self.hosts.slots[slot.0 as usize];
                if slot_state.state != slots::Host::Held {
                    return None;
                }
                slot_state.readers += 1;
                Slot::Host(slot)
            }
            Residence::Disk | Residence::InTransit => return None,
        };
        Some(Pin { place, id })
    }

    /// Gives a pin back.
    pub fn unpin(&mut self, pin: Pin) {
        let Pin { place, id } = pin;
        match place {
            Slot::Device(slot) => self.near_read(id.layer, slot.index),
            Slot::Host(slot) => self.host_read(slot.0),
        }
    }

    /// Decayed counts of routes, `[layer][expert]` in one row.
    pub fn counts(&self) -> impl Iterator<Item = u32> + '_ {
        self.experts.iter().map(|expert| expert.count)
    }

    /// Starts from counts of an earlier run, `[layer][expert]` in one row; those beyond the end are ignored.
    pub fn seed(&mut self, counts: &[u32]) {
        for (expert, count) in self.experts.iter_mut().zip(counts) {
            expert.count = (*count).min(COUNT_MAX);
        }
    }

    /// Counts further routes of an expert: the other rows of a batch that met at it.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn credit(&mut self, id: ExpertId, uses: u32) {
        let key = self.key(id);
        self.count(key, uses);
    }

    /// Experts of a layer that are in the near tier or on their way there.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn residents(&self, layer: u16) -> u32 {
        let held =
            |slot: &&NearSlot| slot.state.holds() || matches!(slot.state, Near::Filling | Near::Leaving(_));
        self.near[usize::from(layer)].iter().filter(held).count() as u32
    }

    /// Frees a scratch blob that look-ahead filled and no route named.
    pub fn forget_ahead(&mut self, scratch: u16) {
        if let Some(state @ Scratch::Kept(_)) = self.scratch.get_mut(usize::from(scratch)) {
            *state = Scratch::Free;
        }
    }

    /// Transfers in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.moves.len() - self.free_moves.len()
    }

    /// The token in progress, counted from 1.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.policy
    }

    fn key(&self, id: ExpertId) -> Key {
        assert!(id.layer < self.geometry.layers() && id.expert < self.geometry.experts, "there is no {id}");
        Key::from(id.layer) * Key::from(self.geometry.experts) + Key::from(id.expert)
    }

    fn id(&self, key: Key) -> ExpertId {
        let experts = Key::from(self.geometry.experts);
        ExpertId { layer: (key / experts) as u16, expert: (key % experts) as u16 }
    }

    fn layer_of(&self, key: Key) -> usize {
        (key / Key::from(self.geometry.experts)) as usize
    }

    fn count(&mut self, key: Key, uses: u32) {
        let layer = self.layer_of(key);
        let expert = &mut self.experts[key as usize];
        expert.count = expert.count.saturating_add(uses).min(COUNT_MAX);
        let half_life = self.geometry.half_life;
        if half_life == 0 {
            return;
        }
        let events = self.events[layer] + u64::from(uses);
        self.events[layer] = events % half_life;
        let halvings = (events / half_life).min(31);
        if halvings > 0 {
            let experts = usize::from(self.geometry.experts);
            self.experts[layer * experts..][..experts]
                .iter_mut()
                .for_each(|expert| expert.count >>= halvings);
        }
    }

    fn mark(&mut self, key: Key) {
        let expert = &mut self.experts[key as usize];
        if !expert.dirty {
            expert.dirty = true;
            self.dirty.push(key);
        }
    }
}

/// Counts stop here: far above what decay lets them reach, far below overflow.
const COUNT_MAX: u32 = 1 << 24;
