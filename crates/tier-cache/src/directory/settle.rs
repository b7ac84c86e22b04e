//! Transfers that came to an end.

use super::slots::{Host, Near};
use super::{Directory, Move, NONE, Scratch};
use crate::error::TicketError;
use crate::id::{DeviceSlot, HostSlot, Slot, Ticket};
use crate::plan::{Source, Staging, Target};
use crate::policy::Policy;
use crate::view::View;

impl<P: Policy> Directory<P> {
    /// The last byte of a transfer is in its place.
    ///
    /// # Errors
    /// The ticket is not in flight, waits for another one, or its source was lost; nothing changes then.
    pub fn complete(&mut self, ticket: Ticket) -> Result<(), TicketError> {
        let it = self.live(ticket)?;
        if it.lost {
            return Err(TicketError::SourceLost(ticket));
        }
        if let Some(after) = it.after.filter(|after| self.live(*after).is_ok()) {
            return Err(TicketError::TooEarly { ticket, after });
        }
        self.retire(ticket);
        let key = it.key as usize;
        match it.to {
            Target::Scratch(n) => {
                self.scratch[usize::from(n)] = if it.ahead { Scratch::Kept(it.key) } else { Scratch::Free };
            }
            Target::Slot(Slot::Device(slot)) => {
                let state = &mut self.near[usize::from(slot.layer)][slot.index as usize];
                if self.experts[key].near == slot.index {
                    state.state = Near::Held;
                    self.shade(it.key);
                } else {
                    // The claimer claimed another slot meanwhile, which is filled from this one.
                    self.drain(slot.layer, slot.index);
                }
                self.touched.insert(slot.layer);
            }
            Target::Slot(Slot::Host(slot)) => self.hosts.set(slot.0, Host::Held),
        }
        match it.via {
            Some(Staging::Landing(n)) => self.landings[usize::from(n)] = false,
            Some(Staging::Host(slot)) => {
                self.hosts.set(slot.0, Host::Held);
                if matches!(it.to, Target::Slot(_)) && self.is_near(it.key) {
                    self.hosts.set(slot.0, Host::Shadow);
                }
            }
            None => {}
        }
        self.leave_source(&it);
        self.mark(it.key);
        Ok(())
    }

    /// A transfer failed or was cancelled: what it was to fill holds nothing. What waited for it can only be abandoned too.
    ///
    /// # Errors
    /// The ticket is not in flight.
    pub fn abandon(&mut self, ticket: Ticket) -> Result<(), TicketError> {
        let it = self.live(ticket)?;
        self.retire(ticket);
        for (_, other) in &mut self.moves {
            if let Some(other) = other.as_mut().filter(|other| other.after == Some(ticket)) {
                other.lost = true;
            }
        }
        let key = it.key as usize;
        match it.via {
            Some(Staging::Landing(n)) => self.landings[usize::from(n)] = false,
            Some(Staging::Host(slot)) => self.release_host(slot.0),
            None => {}
        }
        match it.to {
            Target::Scratch(n) => self.scratch[usize::from(n)] = Scratch::Free,
            Target::Slot(Slot::Device(slot)) => self.spoil(&it, slot),
            Target::Slot(Slot::Host(slot)) => {
                self.release_host(slot.0);
                if let Source::Slot(Slot::Device(from)) = it.from {
                    let state = &mut self.near[usize::from(from.layer)][from.index as usize];
                    let near = self.experts[key].near;
                    // A demotion that failed: the expert stays where it was.
                    if near == from.index || (near == NONE && state.state == Near::Draining) {
                        state.state = Near::Held;
                        self.experts[key].near = from.index;
                        self.touched.insert(from.layer);
                    }
                }
            }
        }
        self.leave_source(&it);
        self.mark(it.key);
        Ok(())
    }

    /// Whether other transfers take their bytes from where this one brings them: then it should not be cancelled.
    #[must_use]
    pub fn is_awaited(&self, ticket: Ticket) -> bool {
        self.moves.iter().any(|(_, it)| it.as_ref().is_some_and(|it| it.after == Some(ticket)))
    }

    /// A near slot whose bytes did not come.
    fn spoil(&mut self, it: &Move, slot: DeviceSlot) {
        let expert = &mut self.experts[it.key as usize];
        let state = &mut self.near[usize::from(slot.layer)][slot.index as usize];
        if expert.near != slot.index {
            self.drain(slot.layer, slot.index);
        } else if expert.seen == View::Device(slot.index) {
            state.state = Near::Lost;
            let (host, settled) = (expert.host, expert.pending.is_none());
            match self.hosts.slots.get(host as usize).map(|slot| slot.state) {
                Some(Host::Shadow) => self.hosts.set(host, Host::Held),
                // With a batch under way its acknowledgement decides.
                Some(Host::Leaving(_)) if settled => self.hosts.set(host, Host::Held),
                _ => {}
            }
        } else {
            expert.near = NONE;
            self.drain(slot.layer, slot.index);
        }
        self.touched.insert(slot.layer);
    }

    /// An expert came to hold a near slot: its host copy is a shadow, once the claimer no longer reads it there.
    fn shade(&mut self, key: super::Key) {
        let expert = &self.experts[key as usize];
        let host = expert.host;
        if host == NONE {
            return;
        }
        let known = View::Host(HostSlot(host));
        let known = expert.seen == known || expert.pending == Some(known);
        match self.hosts.slots[host as usize].state {
            Host::Held if known => self.hosts.set(host, Host::Leaving(None)),
            Host::Held => self.hosts.set(host, Host::Shadow),
            Host::Leaving(_) if !known => self.hosts.set(host, Host::Shadow),
            _ => {}
        }
    }

    /// Whether an expert is in the near tier or on its way there.
    pub(super) fn is_near(&self, key: super::Key) -> bool {
        let slot = self.near[self.layer_of(key)].get(self.experts[key as usize].near as usize);
        slot.is_some_and(|slot| slot.state.holds() || slot.state == Near::Filling)
    }

    fn leave_source(&mut self, it: &Move) {
        match it.from {
            Source::Disk => {}
            Source::Slot(Slot::Device(slot)) => self.near_read(slot.layer, slot.index),
            Source::Slot(Slot::Host(HostSlot(slot))) => self.host_read(slot),
        }
    }

    fn live(&self, ticket: Ticket) -> Result<Move, TicketError> {
        let found = self.moves.get(ticket.index as usize).filter(|(it, _)| *it == ticket.generation);
        found.and_then(|(_, it)| *it).ok_or(TicketError::Unknown(ticket))
    }

    fn retire(&mut self, ticket: Ticket) {
        let (generation, it) = &mut self.moves[ticket.index as usize];
        *generation = generation.wrapping_add(1);
        *it = None;
        self.free_moves.push(ticket.index);
    }
}
