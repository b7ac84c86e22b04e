//! The invariants.

use super::slots::{Exit, Host, Near};
use super::{Directory, Key, NONE, Scratch};
use crate::error::Broken;
use crate::id::{HostSlot, Slot};
use crate::plan::{Source, Staging, Target};
use crate::policy::Policy;
use crate::view::View;

macro_rules! hold {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(Broken(format!($($message)*)));
        }
    };
}

impl<P: Policy> Directory<P> {
    /// Looks at everything: each expert in one place, each slot with one owner, no transfer into a slot that the claimer
    /// knows, nothing that no one owns. For tests and for a service that would rather stop than compute from wrong bytes;
    /// time in proportion to experts and slots.
    ///
    /// # Errors
    /// The first invariant that does not hold: a defect of this crate.
    pub fn check(&self) -> Result<(), Broken> {
        for key in 0..self.experts.len() as Key {
            self.check_expert(key)?;
        }
        for layer in 0..self.near.len() {
            self.check_layer(layer)?;
        }
        self.check_hosts()?;
        self.check_moves()
    }

    fn check_expert(&self, key: Key) -> Result<(), Broken> {
        let (expert, id, layer) = (&self.experts[key as usize], self.id(key), self.layer_of(key));
        let near = self.near[layer].get(expert.near as usize);
        let host = self.hosts.slots.get(expert.host as usize);
        if let Some(slot) = near {
            hold!(slot.key == key, "{id} says near slot {}, which belongs to another", expert.near);
            let holds =
                slot.state.holds() || matches!(slot.state, Near::Filling | Near::Leaving(_) | Near::Lost);
            hold!(holds, "{id} says near slot {}, which is {:?}", expert.near, slot.state);
        } else {
            hold!(expert.near == NONE, "{id} says near slot {}, which is not there", expert.near);
        }
        if let Some(slot) = host {
            hold!(slot.key == key, "{id} says host slot {}, which belongs to another", expert.host);
            let holds = matches!(
                slot.state,
                Host::Filling | Host::Held | Host::Shadow | Host::Backing | Host::Leaving(_)
            );
            hold!(holds, "{id} says host slot {}, which is {:?}", expert.host, slot.state);
            let near = near.map(|slot| slot.state);
            let twice = near.is_some_and(Near::holds) && matches!(slot.state, Host::Held | Host::Filling);
            hold!(!twice, "{id} lives in near slot {} and in host slot {}", expert.near, expert.host);
            let ends = expert.pending.is_some()
                || (expert.dirty && expert.seen == View::Host(HostSlot(expert.host)))
                || matches!(near, Some(Near::Filling));
            let stuck = matches!(slot.state, Host::Leaving(_)) && !ends;
            hold!(!stuck, "{id} leaves host slot {} and nothing will end that", expert.host);
            let shadow = matches!(slot.state, Host::Shadow | Host::Backing);
            let orphan = shadow && !near.is_some_and(|near| near.holds() || near == Near::Filling);
            let offered = matches!(near, Some(Near::HeldOffering(_) | Near::HeldOffered(_)));
            let backing = slot.state == Host::Backing;
            hold!(backing == offered, "host slot {} is {:?} and {id} is {near:?}", expert.host, slot.state);
            hold!(!orphan, "host slot {} shadows {id}, which is not in the near tier", expert.host);
        } else {
            hold!(expert.host == NONE, "{id} says host slot {}, which is not there", expert.host);
        }
        match expert.seen {
            View::Nothing => {}
            View::Device(slot) => {
                let state = self.near[layer].get(slot as usize).map(|slot| slot.state);
                let valid = state.is_some_and(|state| {
                    state.holds() || matches!(state, Near::Filling | Near::Leaving(_) | Near::Lost)
                });
                hold!(expert.near == slot && valid, "the claimer finds {id} in near slot {slot}: {state:?}");
            }
            View::Host(HostSlot(slot)) => {
                let state = self.hosts.slots.get(slot as usize).map(|slot| slot.state);
                let valid = matches!(state, Some(Host::Held | Host::Leaving(_) | Host::Shadow));
                hold!(expert.host == slot && valid, "the claimer finds {id} in host slot {slot}: {state:?}");
            }
        }
        let dirty = expert.dirty || self.outstanding.is_some() || self.wanted(key) == expert.seen;
        hold!(dirty, "the claimer's entry of {id} is {:?} and nobody will change it", expert.seen);
        Ok(())
    }

    fn check_layer(&self, layer: usize) -> Result<(), Broken> {
        let mut placed = 0;
        for (index, slot) in self.near[layer].iter().enumerate() {
            let name = || format!("near slot {index} of layer {layer}");
            let place = match slot.state {
                Near::Offering(p) | Near::Offered(p) | Near::Leaving(Exit::Offer(p)) => Some(p),
                Near::HeldOffering(p) | Near::HeldOffered(p) => Some(p),
                _ => None,
            };
            if let Some(place) = place {
                placed += 1;
                let stands = self.places[layer][usize::from(place)];
                hold!(stands == index as u32, "{} is offered in place {place}, which has {stands}", name());
            }
            match slot.state {
                Near::Closed | Near::Free | Near::Offering(_) | Near::Offered(_) => {
                    hold!(slot.key == NONE && slot.readers == 0, "{} is empty and in use", name());
                }
                _ => {
                    hold!(slot.key != NONE, "{} is {:?} and belongs to nobody", name(), slot.state);
                    let owner = self.experts[slot.key as usize].near == index as u32;
                    let loose = matches!(slot.state, Near::Draining | Near::Filling);
                    hold!(owner || loose, "{} is {:?} and its expert elsewhere", name(), slot.state);
                    let idle = slot.state == Near::Draining && slot.readers == 0;
                    hold!(!idle, "{} drains and nothing reads it", name());
                }
            }
        }
        let places = self.places[layer].iter().filter(|slot| **slot != NONE).count();
        hold!(places == placed, "layer {layer} has {places} places taken and {placed} slots offered");
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), Broken> {
        hold!(
            self.hosts.lists_agree(),
            "the lists of free host slots and shadows do not agree with the slots"
        );
        for (index, slot) in self.hosts.slots.iter().enumerate() {
            match slot.state {
                Host::Closed | Host::Free => {
                    hold!(slot.key == NONE && slot.readers == 0, "host slot {index} is empty and in use");
                }
                Host::Releasing => {
                    hold!(slot.readers > 0, "host slot {index} is released and nothing reads it");
                }
                _ => {
                    let owner = self.experts.get(slot.key as usize);
                    let owned = owner.is_some_and(|expert| expert.host == index as u32);
                    hold!(owned, "host slot {index} is {:?} and an orphan", slot.state);
                }
            }
        }
        Ok(())
    }

    fn check_moves(&self) -> Result<(), Broken> {
        let mut near: Vec<Vec<(u32, u32)>> =
            self.near.iter().map(|slots| vec![(0, 0); slots.len()]).collect();
        let mut host = vec![(0, 0); self.hosts.slots.len()];
        let mut scratch = vec![0; self.scratch.len()];
        let mut landings = vec![0; self.landings.len()];
        for it in self.moves.iter().filter_map(|(_, it)| it.as_ref()) {
            match it.to {
                Target::Scratch(n) => scratch[usize::from(n)] += 1,
                Target::Slot(Slot::Device(slot)) => {
                    near[usize::from(slot.layer)][slot.index as usize].0 += 1;
                }
                Target::Slot(Slot::Host(slot)) => host[slot.0 as usize].0 += 1,
            }
            match it.via {
                Some(Staging::Landing(n)) => landings[usize::from(n)] += 1,
                Some(Staging::Host(slot)) => host[slot.0 as usize].0 += 1,
                None => {}
            }
            match it.from {
                Source::Disk => {}
                Source::Slot(Slot::Device(slot)) => {
                    near[usize::from(slot.layer)][slot.index as usize].1 += 1;
                }
                Source::Slot(Slot::Host(slot)) => host[slot.0 as usize].1 += 1,
            }
        }
        for (layer, counts) in near.iter().enumerate() {
            for (index, (into, out)) in counts.iter().enumerate() {
                let slot = &self.near[layer][index];
                let filling = u32::from(slot.state == Near::Filling);
                hold!(
                    *into == filling,
                    "{into} transfers go into near slot {index} of layer {layer}: {:?}",
                    slot.state
                );
                hold!(
                    *out <= slot.readers,
                    "near slot {index} of layer {layer} has readers that it does not know"
                );
            }
        }
        for (index, (into, out)) in host.iter().enumerate() {
            let slot = &self.hosts.slots[index];
            let filling = u32::from(slot.state == Host::Filling);
            hold!(*into == filling, "{into} transfers go into host slot {index}: {:?}", slot.state);
            hold!(*out <= slot.readers, "host slot {index} has readers that it does not know");
        }
        for (index, state) in self.scratch.iter().enumerate() {
            let filling = u32::from(matches!(state, Scratch::Filling(..)));
            hold!(
                scratch[index] == filling,
                "{} transfers go into scratch {index}: {state:?}",
                scratch[index]
            );
        }
        for (index, taken) in self.landings.iter().enumerate() {
            hold!(
                landings[index] == u32::from(*taken),
                "landing {index} is used by {} transfers",
                landings[index]
            );
        }
        Ok(())
    }
}
