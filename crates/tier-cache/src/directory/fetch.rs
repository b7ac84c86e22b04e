//! Starting transfers.

use super::slots::{Host, Near};
use super::{Directory, Key, Move, NONE, Scratch};
use crate::id::{DeviceSlot, HostSlot, Slot, Ticket};
use crate::plan::{Claim, Source, Staging, Target, Transfer};
use crate::policy::Policy;
use crate::view::View;

impl<P: Policy> Directory<P> {
    /// Where an expert's bytes can be had, and the transfer that has to bring them there first.
    pub(super) fn source(&self, key: Key) -> (Source, Option<Ticket>) {
        let expert = &self.experts[key as usize];
        if expert.host != NONE {
            let slot = Slot::Host(HostSlot(expert.host));
            match self.hosts.slots[expert.host as usize].state {
                Host::Held | Host::Shadow | Host::Backing | Host::Leaving(_) => {
                    return (Source::Slot(slot), None);
                }
                Host::Filling => return (Source::Slot(slot), self.filler(slot)),
                _ => {}
            }
        }
        if expert.near != NONE {
            let layer = self.layer_of(key);
            let slot = Slot::Device(DeviceSlot { layer: layer as u16, index: expert.near });
            match self.near[layer][expert.near as usize].state {
                Near::Held => return (Source::Slot(slot), None),
                Near::Filling => return (Source::Slot(slot), self.filler(slot)),
                _ => {}
            }
        }
        (Source::Disk, None)
    }

    /// The transfer that fills a slot.
    pub(super) fn filler(&self, slot: Slot) -> Option<Ticket> {
        let fills = |it: &Move| match slot {
            Slot::Host(host) => it.to == Target::Slot(slot) || it.via == Some(Staging::Host(host)),
            Slot::Device(_) => it.to == Target::Slot(slot),
        };
        let at = self.moves.iter().position(|(_, it)| it.as_ref().is_some_and(fills))?;
        Some(Ticket { index: at as u32, generation: self.moves[at].0 })
    }

    /// Brings an expert to what was claimed for it, from wherever its bytes can be had. The claim has been checked, and
    /// so has room to land.
    pub(super) fn fetch(&mut self, key: Key, claim: Claim) -> Transfer {
        let (from, after) = self.source(key);
        let layer = self.layer_of(key);
        let to = match claim {
            Claim::Scratch(n) => Target::Scratch(n),
            Claim::Spare(index) => Target::Slot(Slot::Device(DeviceSlot { layer: layer as u16, index })),
        };
        let old = self.experts[key as usize].near;
        if let Claim::Spare(index) = claim {
            self.take_spare(key, index);
        }
        let transfer = self.begin(key, from, to, after);
        match claim {
            Claim::Scratch(n) => self.scratch[usize::from(n)] = Scratch::Filling(key, transfer.ticket),
            // A copy that the claimer was not told of yet is superseded by the one that it claimed.
            Claim::Spare(_) if old != NONE && self.near[layer][old as usize].state == Near::Held => {
                self.drain(layer as u16, old);
            }
            Claim::Spare(_) => {}
        }
        transfer
    }

    /// Makes an offered slot the one that an expert is on its way to.
    fn take_spare(&mut self, key: Key, index: u32) {
        let layer = self.layer_of(key);
        let slot = self.near[layer][index as usize];
        if let Near::Offered(place) | Near::HeldOffered(place) = slot.state {
            self.places[layer][usize::from(place)] = NONE;
        }
        if slot.key != NONE {
            self.displace(slot.key);
        }
        let slot = &mut self.near[layer][index as usize];
        slot.state = Near::Filling;
        slot.key = key;
        let expert = &mut self.experts[key as usize];
        expert.near = index;
        expert.seen = View::Device(index);
    }

    /// The claim of its slot evicts an expert: the claimer has set its entry to what the offer said.
    fn displace(&mut self, key: Key) {
        let expert = &mut self.experts[key as usize];
        expert.near = NONE;
        let host = expert.host;
        expert.seen = View::Nothing;
        if host != NONE && self.hosts.slots[host as usize].state == Host::Backing {
            expert.seen = View::Host(HostSlot(host));
            self.hosts.set(host, Host::Held);
        }
        self.mark(key);
    }

    /// A transfer, with a place to land where the drive does not reach the target.
    pub(super) fn begin(&mut self, key: Key, from: Source, to: Target, after: Option<Ticket>) -> Transfer {
        let near = !matches!(to, Target::Slot(Slot::Host(_)));
        let via = (from == Source::Disk && near && !self.geometry.direct).then(|| self.stage(key));
        match from {
            Source::Disk => {}
            Source::Slot(Slot::Host(slot)) => self.hosts.slots[slot.0 as usize].readers += 1,
            Source::Slot(Slot::Device(slot)) => {
                self.near[usize::from(slot.layer)][slot.index as usize].readers += 1;
            }
        }
        let it = Move { key, from, via, to, after, lost: false, ahead: false };
        let index = self.free_moves.pop().unwrap_or_else(|| {
            self.moves.push((0, None));
            self.moves.len() as u32 - 1
        });
        let (generation, place) = &mut self.moves[index as usize];
        *place = Some(it);
        let ticket = Ticket { index, generation: *generation };
        Transfer { ticket, id: self.id(key), from, via, to, after }
    }

    /// Host memory for bytes of an expert that is in no host slot.
    fn stage(&mut self, key: Key) -> Staging {
        let class = self.geometry.class[self.layer_of(key)];
        match self.hosts.vacant(class) {
            Some(slot) => {
                self.occupy(slot, key);
                Staging::Host(HostSlot(slot))
            }
            None => {
                let free = self.landings.iter().position(|taken| !taken);
                let free = free.expect("the route was checked for landings");
                self.landings[free] = true;
                Staging::Landing(free as u16)
            }
        }
    }

    /// Gives a vacant host slot to an expert whose bytes come to it now. A shadow in it is forgotten.
    pub(super) fn occupy(&mut self, slot: u32, key: Key) {
        let old = self.hosts.slots[slot as usize].key;
        if old != NONE {
            self.experts[old as usize].host = NONE;
        }
        self.hosts.set(slot, Host::Filling);
        self.hosts.slots[slot as usize].key = key;
        self.experts[key as usize].host = slot;
    }

    /// Reads a drive-only expert into host memory ahead of need. `None` where it is not on the drive, there is no free
    /// host slot, or the drive reaches the near tier by itself (see [`look_ahead`](Self::look_ahead) for that).
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn read_ahead(&mut self, id: crate::ExpertId) -> Option<Transfer> {
        let key = self.key(id);
        if self.geometry.direct || self.source(key) != (Source::Disk, None) {
            return None;
        }
        let slot = self.hosts.vacant(self.geometry.class[usize::from(id.layer)])?;
        if self.experts[key as usize].near != NONE {
            return None;
        }
        self.occupy(slot, key);
        Some(self.begin(key, Source::Disk, Target::Slot(Slot::Host(HostSlot(slot))), None))
    }

    /// Fills an empty near slot with the most used expert of its layer that is not in the near tier: one transfer a call,
    /// layer after layer. `None` when nothing can be filled. Spares are left alone, empty slots that the claimer was offered
    /// too, and so are experts that were never used.
    pub fn fill(&mut self) -> Option<Transfer> {
        let layers = self.geometry.layers();
        for _ in 0..layers {
            let layer = self.fill_at;
            self.fill_at = (self.fill_at + 1) % layers;
            if let Some(transfer) = self.fill_layer(usize::from(layer)) {
                return Some(transfer);
            }
        }
        None
    }

    fn fill_layer(&mut self, layer: usize) -> Option<Transfer> {
        let limit = self.limits.near[layer];
        let slots = &self.near[layer][..limit as usize];
        let empty = |s: &Near| matches!(s, Near::Free | Near::Offering(_) | Near::Offered(_));
        let spare = slots.iter().filter(|slot| empty(&slot.state)).count();
        if !self.geometry.yielding && spare <= self.geometry.spares_of(limit) as usize {
            return None;
        }
        let index = slots.iter().position(|slot| slot.state == Near::Free)? as u32;
        let experts = Key::from(self.geometry.experts);
        let first = layer as Key * experts;
        let idle = |key: &Key| {
            let expert = &self.experts[*key as usize];
            let host = expert.host != NONE && self.hosts.slots[expert.host as usize].state != Host::Held;
            expert.near == NONE && !host && expert.count > 0
        };
        let keys = (first..first + experts).filter(idle);
        let key = keys.max_by_key(|key| (self.experts[*key as usize].count, std::cmp::Reverse(*key)))?;
        let (from, after) = self.source(key);
        if from == Source::Disk && !self.geometry.direct {
            let class = self.geometry.class[layer];
            if self.hosts.vacant(class).is_none() && !self.landings.contains(&false) {
                return None;
            }
        }
        let slot = &mut self.near[layer][index as usize];
        slot.state = Near::Filling;
        slot.key = key;
        self.experts[key as usize].near = index;
        let to = Target::Slot(Slot::Device(DeviceSlot { layer: layer as u16, index }));
        Some(self.begin(key, from, to, after))
    }
}
