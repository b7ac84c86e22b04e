//! Making room: who leaves, and where to.

use super::slots::{Exit, Host, Near};
use super::{Directory, Key, NONE};
use crate::id::{DeviceSlot, HostSlot, Slot};
use crate::plan::{Source, Target, Transfer};
use crate::policy::{Candidate, Policy, Pool};
use crate::view::View;

impl<P: Policy> Directory<P> {
    /// Evicts from a layer until its spares are there, and whatever lies beyond its limit.
    pub(super) fn make_room(&mut self, layer: usize, out: &mut Vec<Transfer>) {
        let limit = self.limits.near[layer] as usize;
        for index in limit..self.near[layer].len() {
            let slot = self.near[layer][index];
            let published =
                slot.key != NONE && self.experts[slot.key as usize].seen == View::Device(index as u32);
            match slot.state {
                Near::Free => self.near[layer][index].state = Near::Closed,
                Near::Held if slot.readers == 0 && published => {
                    self.evict(layer, index as u32, 0, out);
                }
                _ => {}
            }
        }
        self.recall_used(layer);
        let slots = &self.near[layer][..limit];
        let resident = slots.iter().filter(|s| s.state.holds() || s.state == Near::Filling).count();
        let others = usize::from(self.geometry.experts).saturating_sub(resident);
        let wanted = (self.geometry.spares_of(limit as u32) as usize).min(others);
        let offered = slots.iter().filter(|s| matches!(s.state, Near::HeldOffered(_))).count();
        let recalled = self.recalls.iter().filter(|(of, _, _)| usize::from(*of) == layer).count();
        let mut spare = limit - resident + offered - recalled;
        if spare >= wanted {
            return;
        }
        let mut candidates = self.near_candidates(layer);
        let mut nth = 0;
        while spare < wanted && !candidates.is_empty() {
            let at = self.policy.victim(Pool::Device(layer as u16), &candidates);
            let victim = candidates.remove(at.min(candidates.len() - 1));
            self.evict(layer, victim.slot, nth, out);
            (spare, nth) = (spare + 1, nth + 1);
        }
    }

    /// Residents of a layer that may leave: published, read by nothing, and not of the token that ends now. One that may
    /// stay until its slot is claimed can be of that token too: if the next one routes to it, it is not claimed.
    fn near_candidates(&self, layer: usize) -> Vec<Candidate> {
        let slots = self.near[layer].iter().take(self.limits.near[layer] as usize).enumerate();
        let leave = |(index, slot): (usize, &super::NearSlot)| {
            let expert = self.experts.get(slot.key as usize)?;
            let index = index as u32;
            let may = slot.state == Near::Held
                && slot.readers == 0
                && expert.seen == View::Device(index)
                && (expert.token != self.token || self.stays(slot.key));
            may.then(|| self.candidate(slot.key, index))
        };
        slots.filter_map(leave).collect()
    }

    /// Whether an expert can be evicted by a claim, because nothing has to be copied then.
    fn stays(&self, key: Key) -> bool {
        let host = self.hosts.slots.get(self.experts[key as usize].host as usize);
        self.geometry.yielding
            && (self.hosts.classes() == 0 || host.is_some_and(|slot| slot.state == Host::Shadow))
    }

    fn candidate(&self, key: Key, slot: u32) -> Candidate {
        let expert = &self.experts[key as usize];
        Candidate { id: self.id(key), slot, count: expert.count, last: expert.last }
    }

    /// Takes back the offers of slots whose expert was used after all.
    fn recall_used(&mut self, layer: usize) {
        // Slots beyond the limit, and no slots, are not among them: the former are withdrawn anyway.
        let limit = self.limits.near[layer];
        for (place, slot) in self.places[layer].iter().enumerate().filter(|(_, slot)| **slot < limit) {
            let it = self.near[layer][*slot as usize];
            if it.state == Near::HeldOffered(place as u16)
                && self.experts[it.key as usize].token == self.token
            {
                self.recalls.push((layer as u16, place as u16, *slot));
            }
        }
    }

    /// The expert in a near slot leaves it, for the host tier if that has room or holds something colder. Where nothing
    /// has to be copied for that, it stays until its slot is claimed. It is the `nth` victim of this boundary, from 0.
    fn evict(&mut self, layer: usize, index: u32, nth: u32, out: &mut Vec<Transfer>) {
        let key = self.near[layer][index as usize].key;
        let exit = self.park(key, layer, index, out);
        let stays = self.geometry.yielding && exit == Exit::Drop && index < self.limits.near[layer];
        if stays {
            let host = self.experts[key as usize].host;
            if host != NONE {
                self.hosts.set(host, Host::Backing);
            }
            self.near[layer][index as usize].state = Near::Yielding(nth);
        } else {
            self.near[layer][index as usize].state = Near::Leaving(exit);
        }
        self.mark(key);
    }

    fn park(&mut self, key: Key, layer: usize, index: u32, out: &mut Vec<Transfer>) -> Exit {
        let host = self.experts[key as usize].host;
        if host != NONE {
            if self.hosts.slots[host as usize].state == Host::Shadow
                && !self.hosts.beyond(host, &self.limits.host)
            {
                self.hosts.set(host, Host::Held);
            } else {
                self.release_host(host);
            }
            return Exit::Drop;
        }
        let class = self.geometry.class[layer];
        if let Some(slot) = self.hosts.vacant(class) {
            out.push(self.demote(key, layer, index, slot));
            return Exit::Copy;
        }
        match self.host_victim(class) {
            Some(victim) if self.experts[victim as usize].count < self.experts[key as usize].count => {
                let slot = self.experts[victim as usize].host;
                self.hosts.set(slot, Host::Leaving(Some((layer as u16, index))));
                self.mark(victim);
                Exit::Promise(slot)
            }
            _ => Exit::Drop,
        }
    }

    /// Starts the copy of a resident to a vacant host slot.
    pub(super) fn demote(&mut self, key: Key, layer: usize, index: u32, slot: u32) -> Transfer {
        self.occupy(slot, key);
        let from = Source::Slot(Slot::Device(DeviceSlot { layer: layer as u16, index }));
        self.begin(key, from, Target::Slot(Slot::Host(HostSlot(slot))), None)
    }

    /// The host expert of a class to evict: outside the protection window, or else the one used longest ago.
    fn host_victim(&mut self, class: u8) -> Option<Key> {
        if usize::from(class) >= self.hosts.classes() {
            return None;
        }
        let mut old = Vec::new();
        let mut young: Option<Candidate> = None;
        let range = self.hosts.of_class(class);
        let first = range.start;
        for slot in range {
            let state = self.hosts.slots[slot as usize];
            let Some(expert) = self.experts.get(state.key as usize) else { continue };
            let may = state.state == Host::Held
                && state.readers == 0
                && expert.near == NONE
                && expert.seen == View::Host(HostSlot(slot));
            if !may {
                continue;
            }
            let candidate = self.candidate(state.key, slot - first);
            if expert.token.saturating_add(self.geometry.window) <= self.token {
                old.push(candidate);
            } else if young.is_none_or(|it| candidate.last < it.last) {
                young = Some(candidate);
            }
        }
        let victim = if old.is_empty() {
            young?
        } else {
            let at = self.policy.victim(Pool::Host(class), &old);
            old[at.min(old.len() - 1)]
        };
        Some(self.key(victim.id))
    }

    /// Empties what lies beyond the host limits, and keeps a few slots of each class vacant.
    pub(super) fn keep_host_room(&mut self) {
        for class in 0..self.hosts.classes() as u8 {
            let range = self.hosts.of_class(class);
            let limit = self.limits.host[usize::from(class)];
            for slot in (range.start + limit).min(range.end)..range.end {
                let it = self.hosts.slots[slot as usize];
                let published =
                    it.key != NONE && self.experts[it.key as usize].seen == View::Host(HostSlot(slot));
                match it.state {
                    Host::Free | Host::Shadow => self.release_host(slot),
                    Host::Backing => self.recall_backed(it.key),
                    Host::Held if published && it.readers == 0 => self.expel(slot),
                    _ => {}
                }
            }
            let wanted = (self.geometry.host_spares as usize).min(limit as usize);
            let mut coming = 0;
            while self.hosts.vacancies(class) + coming < wanted {
                let Some(victim) = self.host_victim(class) else { break };
                self.expel(self.experts[victim as usize].host);
                coming += 1;
            }
        }
    }

    /// Takes back the offer of an expert's near slot.
    fn recall_backed(&mut self, key: Key) {
        let (layer, slot) = (self.layer_of(key), self.experts[key as usize].near);
        let Some(it) = self.near[layer].get_mut(slot as usize) else { return };
        match it.state {
            Near::HeldOffered(place) => {
                let recall = (layer as u16, place, slot);
                if slot < self.limits.near[layer] && !self.recalls.contains(&recall) {
                    self.recalls.push(recall);
                }
            }
            Near::Yielding(_) => it.state = Near::Held,
            _ => {}
        }
    }

    fn expel(&mut self, slot: u32) {
        let key = self.hosts.slots[slot as usize].key;
        self.hosts.set(slot, Host::Leaving(None));
        self.mark(key);
    }
}
