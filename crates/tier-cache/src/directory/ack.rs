//! The claimer has applied a batch.

use super::slots::{Exit, Host, Near};
use super::{Directory, NONE};
use crate::error::AckError;
use crate::plan::Transfer;
use crate::policy::Policy;
use crate::view::{Edit, View};

impl<P: Policy> Directory<P> {
    /// The claimer has applied a batch, after the routes replayed so far and before the next one. Slots whose removal this
    /// confirms become free; demotions that waited for one start.
    ///
    /// # Errors
    /// No batch, or another one, waits for this.
    pub fn acknowledge(&mut self, batch: u64, out: &mut Vec<Transfer>) -> Result<(), AckError> {
        if self.outstanding != Some(batch) {
            return Err(AckError { found: batch, waiting: self.outstanding });
        }
        self.outstanding = None;
        let edits = std::mem::take(&mut self.batch);
        for edit in &edits {
            if let Edit::Entry { id, from, to } = edit {
                let key = self.key(*id);
                let expert = &mut self.experts[key as usize];
                expert.pending = None;
                // A claim made before the batch was applied won, and voids the edit on both sides.
                if expert.seen == *from {
                    expert.seen = *to;
                }
            }
        }
        // Host slots first: near slots may wait for them.
        for edit in &edits {
            if let Edit::Entry { id, from: View::Host(slot), .. }
            | Edit::Entry { id, to: View::Host(slot), .. } = edit
            {
                let key = self.key(*id);
                if self.experts[key as usize].seen != View::Host(*slot) {
                    self.left_host(key, slot.0);
                }
            }
        }
        for edit in &edits {
            match *edit {
                Edit::Entry { id, from: View::Device(slot), .. } => self.left_near(self.key(id), slot, out),
                Edit::Withdraw { layer, place, slot } => {
                    let at = usize::from(layer);
                    let it = self.near[at][slot as usize];
                    if it.state == Near::Offered(place) {
                        self.places[at][usize::from(place)] = NONE;
                        self.release_near(layer, slot);
                    } else if it.state == Near::HeldOffered(place) {
                        self.places[at][usize::from(place)] = NONE;
                        self.keep(layer, slot);
                    }
                }
                Edit::Offer { layer, place, slot, .. } => {
                    let state = &mut self.near[usize::from(layer)][slot as usize].state;
                    if *state == Near::Offering(place) {
                        *state = Near::Offered(place);
                    } else if *state == Near::HeldOffering(place) {
                        *state = Near::HeldOffered(place);
                    }
                }
                Edit::Entry { .. } => {}
            }
        }
        for edit in &edits {
            if let Edit::Entry { id, .. } = edit {
                let key = self.key(*id);
                if self.wanted(key) != self.experts[key as usize].seen {
                    self.mark(key);
                }
            }
        }
        self.batch = edits;
        Ok(())
    }

    /// An expert whose slot is no longer offered stays.
    fn keep(&mut self, layer: u16, slot: u32) {
        let it = &mut self.near[usize::from(layer)][slot as usize];
        it.state = Near::Held;
        let host = self.experts[it.key as usize].host;
        if host != NONE && self.hosts.slots[host as usize].state == Host::Backing {
            self.hosts.set(host, Host::Shadow);
        }
        self.touched.insert(layer);
    }

    fn left_host(&mut self, key: super::Key, slot: u32) {
        let it = self.hosts.slots[slot as usize];
        if it.key != key || !matches!(it.state, Host::Leaving(_)) {
            return;
        }
        let near = self.experts[key as usize].near;
        let near = self.near[self.layer_of(key)].get(near as usize).map(|slot| slot.state);
        match near {
            _ if self.hosts.beyond(slot, &self.limits.host) => self.release_host(slot),
            // Promoted while it was leaving: the copy is a shadow like any other, or all there is.
            Some(Near::Held | Near::Filling) => self.hosts.set(slot, Host::Shadow),
            Some(Near::Lost) => self.hosts.set(slot, Host::Held),
            _ => self.release_host(slot),
        }
    }

    fn left_near(&mut self, key: super::Key, index: u32, out: &mut Vec<Transfer>) {
        if self.experts[key as usize].seen == View::Device(index) {
            return;
        }
        let layer = self.layer_of(key);
        let slot = self.near[layer][index as usize];
        let exit = match slot.state {
            Near::Leaving(exit) => exit,
            Near::Lost => Exit::Drop,
            _ => return,
        };
        self.experts[key as usize].near = NONE;
        self.touched.insert(layer as u16);
        match exit {
            Exit::Offer(place) => {
                let state = &mut self.near[layer][index as usize];
                state.state = Near::Offered(place);
                state.key = NONE;
            }
            Exit::Drop | Exit::Copy => self.drain(layer as u16, index),
            Exit::Promise(promised) => {
                self.near[layer][index as usize].state = Near::Draining;
                let free = self.hosts.slots[promised as usize].state == Host::Free;
                let class = self.geometry.class[layer];
                let vacant = if free { Some(promised) } else { self.hosts.vacant(class) };
                match vacant {
                    Some(host) => out.push(self.demote(key, layer, index, host)),
                    None => self.drain(layer as u16, index),
                }
            }
        }
    }
}
