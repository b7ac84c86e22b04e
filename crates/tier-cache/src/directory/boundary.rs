//! Between two tokens: evictions, and the batch of edits that tells the claimer.

use super::slots::{Exit, Host, Near, NearSlot};
use super::{Directory, Key, NONE, Scratch};
use crate::id::HostSlot;
use crate::plan::Boundary;
use crate::policy::Policy;
use crate::view::{Edit, View};

impl<P: Policy> Directory<P> {
    /// Ends a token: evicts until each layer has its spares again, and writes the edits that make the claimer's table true.
    ///
    /// While a batch waits for its acknowledgement no other is written and nothing is evicted. `out` is emptied first.
    pub fn token_boundary(&mut self, out: &mut Boundary) {
        out.clear();
        for scratch in &mut self.scratch {
            if matches!(scratch, Scratch::Kept(_)) {
                *scratch = Scratch::Free;
            }
        }
        if self.outstanding.is_none() {
            let touched: Vec<u16> = self.touched.iter().copied().collect();
            for layer in &touched {
                self.make_room(usize::from(*layer), &mut out.transfers);
            }
            self.keep_host_room();
            self.write_batch(out);
            self.touched.retain(|layer| {
                let limit = self.limits.near[usize::from(*layer)] as usize;
                self.near[usize::from(*layer)].iter().skip(limit).any(|slot| slot.state != Near::Closed)
            });
        }
        self.token += 1;
    }

    /// As [`token_boundary`](Self::token_boundary) without evictions and within a token: for a claimer that can take edits
    /// between two layers.
    pub fn publish(&mut self, out: &mut Boundary) {
        out.clear();
        if self.outstanding.is_none() {
            self.write_batch(out);
        }
    }

    fn write_batch(&mut self, out: &mut Boundary) {
        let mut edits = std::mem::take(&mut self.batch);
        edits.clear();
        for key in std::mem::take(&mut self.dirty) {
            self.experts[key as usize].dirty = false;
            let (from, to) = (self.experts[key as usize].seen, self.wanted(key));
            if from != to {
                self.experts[key as usize].pending = Some(to);
                edits.push(Edit::Entry { id: self.id(key), from, to });
            }
        }
        let touched = std::mem::take(&mut self.touched);
        touched.iter().for_each(|layer| self.withdraw(*layer, &mut edits));
        touched.iter().for_each(|layer| self.offer(*layer, &mut edits));
        self.touched = touched;
        self.recalls.clear();
        if !edits.is_empty() {
            self.batches += 1;
            self.outstanding = Some(self.batches);
            out.batch = self.outstanding;
            out.edits.extend_from_slice(&edits);
        }
        self.batch = edits;
    }

    /// What the claimer's entry should say.
    pub(super) fn wanted(&self, key: Key) -> View {
        let expert = &self.experts[key as usize];
        if expert.near != NONE {
            let state = self.near[self.layer_of(key)][expert.near as usize].state;
            let claimed = expert.seen == View::Device(expert.near);
            match state {
                state if state.holds() => return View::Device(expert.near),
                Near::Filling if claimed => return expert.seen,
                _ => {}
            }
        }
        if expert.host != NONE && self.hosts.slots[expert.host as usize].state == Host::Held {
            return View::Host(HostSlot(expert.host));
        }
        View::Nothing
    }

    fn withdraw(&mut self, layer: u16, edits: &mut Vec<Edit>) {
        let limit = self.limits.near[usize::from(layer)];
        for (place, slot) in self.places[usize::from(layer)].iter().enumerate() {
            if *slot != NONE && *slot >= limit {
                edits.push(Edit::Withdraw { layer, place: place as u16, slot: *slot });
            }
        }
        for (of, place, slot) in &self.recalls {
            if *of == layer && *slot < limit {
                edits.push(Edit::Withdraw { layer, place: *place, slot: *slot });
            }
        }
    }

    /// Offers empty slots, and slots that the same batch empties, in the places that are empty: first what holds nothing, then
    /// victims in the order in which they were chosen.
    fn offer(&mut self, layer: u16, edits: &mut Vec<Edit>) {
        let at = usize::from(layer);
        let limit = self.limits.near[at] as usize;
        let slots = &mut self.near[at][..limit];
        let places = &mut self.places[at];
        let mut empty =
            (0..places.len()).filter(|place| places[*place] == NONE).collect::<Vec<_>>().into_iter();
        let order = |(index, slot): (usize, &NearSlot)| match slot.state {
            Near::Free | Near::Leaving(Exit::Drop) => Some((0, index)),
            Near::Yielding(nth) => Some((1 + nth, index)),
            _ => None,
        };
        let mut order: Vec<(u32, usize)> = slots.iter().enumerate().filter_map(order).collect();
        order.sort_unstable();
        for (_, index) in order {
            let slot = &mut slots[index];
            let state = match slot.state {
                Near::Free => Near::Offering as fn(u16) -> Near,
                Near::Leaving(_) => |place| Near::Leaving(Exit::Offer(place)),
                _ => Near::HeldOffering,
            };
            let holds = matches!(slot.state, Near::Yielding(_));
            let host = if holds { self.experts[slot.key as usize].host } else { NONE };
            let Some(place) = empty.next() else {
                if holds {
                    slot.state = Near::Held;
                    if host != NONE {
                        self.hosts.set(host, Host::Shadow);
                    }
                }
                continue;
            };
            slot.state = state(place as u16);
            places[place] = index as u32;
            let owner = holds.then(|| {
                let expert = (slot.key % Key::from(self.geometry.experts)) as u16;
                (expert, if host == NONE { View::Nothing } else { View::Host(HostSlot(host)) })
            });
            edits.push(Edit::Offer { layer, place: place as u16, slot: index as u32, owner });
        }
    }
}
