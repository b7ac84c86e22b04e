//! Replaying what a claimer decided.

use super::slots::{Host, Near};
use super::{Directory, Key, NONE, Scratch};
use crate::error::RouteError;
use crate::id::{DeviceSlot, ExpertId, Pin, Slot};
use crate::plan::{Claim, Lane, Plan, Ready, Routed, Serve, Source, Target, Transfer};
use crate::policy::Policy;
use crate::view::View;

impl<P: Policy> Directory<P> {
    /// Replays one layer's route: the experts of `routed`, each once, with the lanes and claims that the claimer chose, in
    /// the order in which it chose them. Calls come in the order of the claimer's own, acknowledgements among them.
    ///
    /// Appends a [`Serve`] for each expert and the transfers to start to `out`. A pinned serve's pin is to be given back.
    ///
    /// # Errors
    /// A decision that the claimer's table could not have led to, which is a defect of the claimer; or no room to land,
    /// where the same call may be made again after a transfer has ended. Nothing is carried out then.
    pub fn route(&mut self, layer: u16, routed: &[Routed], out: &mut Plan) -> Result<(), RouteError> {
        self.check_route(layer, routed, false)?;
        self.layer_routes[usize::from(layer)] += 1;
        self.carry_out(layer, routed, out);
        Ok(())
    }

    /// As [`route`](Self::route) for the rest of the layer's last route: experts for which the claimer had no scratch
    /// blob left then. What that route used is still in use.
    ///
    /// # Errors
    /// As [`route`](Self::route).
    pub fn go_on(&mut self, layer: u16, routed: &[Routed], out: &mut Plan) -> Result<(), RouteError> {
        self.check_route(layer, routed, true)?;
        self.carry_out(layer, routed, out);
        Ok(())
    }

    fn carry_out(&mut self, layer: u16, routed: &[Routed], out: &mut Plan) {
        self.routes += 1;
        for it in routed {
            let id = ExpertId { layer, expert: it.expert };
            let key = self.key(id);
            self.touch(key);
            let serve = self.serve(key, id, it.lane, out);
            out.serves.push(serve);
        }
        self.touched.insert(layer);
    }

    /// As [`route`](Self::route) for experts that are only expected to be routed: claims of drive-only experts for the
    /// next miss, without counting a use. The claims stand until the transfer is abandoned; a scratch blob filled this way
    /// waits for a route that names it, or for the end of the token. Only where the drive reaches the near tier by itself.
    ///
    /// # Errors
    /// As [`route`](Self::route), and any lane but `Disk`.
    pub fn look_ahead(
        &mut self,
        layer: u16,
        routed: &[Routed],
        out: &mut Vec<Transfer>,
    ) -> Result<(), RouteError> {
        self.check_route(layer, routed, false)?;
        for it in routed {
            let id = ExpertId { layer, expert: it.expert };
            match it.lane {
                Lane::Disk(claim) if self.geometry.direct => {
                    // A blob that a guess is filling already is fine for a route and taken for another guess.
                    if let Claim::Scratch(scratch) = claim
                        && self.scratch[usize::from(scratch)] != Scratch::Free
                    {
                        return Err(RouteError::Scratch { id, scratch });
                    }
                }
                lane => {
                    let seen = self.experts[self.key(id) as usize].seen;
                    return Err(RouteError::Mismatch { id, lane, seen });
                }
            }
        }
        for it in routed {
            let key = self.key(ExpertId { layer, expert: it.expert });
            let Lane::Disk(claim) = it.lane else { continue };
            let transfer = self.fetch(key, claim);
            if let Some(it) = self.moves[transfer.ticket.index as usize].1.as_mut() {
                it.ahead = true;
            }
            out.push(transfer);
        }
        self.touched.insert(layer);
        Ok(())
    }

    /// Everything that can be wrong with a route, before anything changes.
    fn check_route(&self, layer: u16, routed: &[Routed], goes_on: bool) -> Result<(), RouteError> {
        let (layers, experts) = (self.geometry.layers(), self.geometry.experts);
        if layer >= layers {
            return Err(RouteError::Layer { layer, layers });
        }
        let mut landing = 0;
        for (at, it) in routed.iter().enumerate() {
            if it.expert >= experts {
                return Err(RouteError::Expert { layer, expert: it.expert, experts });
            }
            let id = ExpertId { layer, expert: it.expert };
            if routed[..at].iter().any(|other| other.expert == it.expert) {
                return Err(RouteError::Twice(id));
            }
            let key = self.key(id);
            let seen = self.experts[key as usize].seen;
            let claim = match (it.lane, seen) {
                (Lane::Hit, View::Device(_)) | (Lane::Cpu, View::Host(_)) => None,
                (Lane::Pull(claim), View::Host(_)) | (Lane::Disk(claim), View::Nothing) => Some(claim),
                (lane, seen) => return Err(RouteError::Mismatch { id, lane, seen }),
            };
            match claim {
                Some(Claim::Spare(slot)) => {
                    let claim = Claim::Spare(slot);
                    let taken = |other: &Routed| claim_of(other.lane) == Some(claim);
                    let free = |slot: u32| {
                        let fits = |it: &Routed| it.expert == self.owner(layer, slot);
                        self.is_claimable(layer, slot, goes_on) && !routed.iter().any(fits)
                    };
                    if !free(slot) || routed[..at].iter().any(taken) {
                        let places = &self.places[usize::from(layer)];
                        let next = places.iter().copied().find(|slot| *slot != NONE && free(*slot));
                        return Err(RouteError::Claim { id, claim, next });
                    }
                }
                Some(Claim::Scratch(scratch)) => {
                    let state = self.scratch.get(usize::from(scratch));
                    let disk = matches!(it.lane, Lane::Disk(_));
                    let own = disk
                        && match state {
                            Some(Scratch::Kept(held)) => *held == key,
                            Some(Scratch::Filling(held, ticket)) => *held == key && self.is_ahead(*ticket),
                            _ => false,
                        };
                    let claim = Some(Claim::Scratch(scratch));
                    let twice = routed[..at].iter().any(|other| claim_of(other.lane) == claim);
                    if twice || !(own || state == Some(&Scratch::Free)) {
                        return Err(RouteError::Scratch { id, scratch });
                    }
                    if own {
                        continue;
                    }
                }
                None => {}
            }
            if claim.is_some() && !self.geometry.direct && self.takes_vacancy(key) {
                landing += 1;
            }
        }
        if landing > 0 {
            let class = self.geometry.class[usize::from(layer)];
            let free = self.hosts.vacancies(class) + self.landings.iter().filter(|taken| !**taken).count();
            if free < landing {
                return Err(RouteError::NoLanding { needed: landing, free });
            }
        }
        Ok(())
    }

    /// Whether fetching an expert leaves one host slot or landing less to land in: it lands, or it reads a shadow.
    fn takes_vacancy(&self, key: Key) -> bool {
        let shadow = self.hosts.slots.get(self.experts[key as usize].host as usize);
        self.source(key).0 == Source::Disk || shadow.is_some_and(|slot| slot.state == Host::Shadow)
    }

    /// Whether a slot is offered, and not the place of an expert that the layer's last route uses, where this is a part of
    /// that route.
    fn is_claimable(&self, layer: u16, slot: u32, goes_on: bool) -> bool {
        let Some(it) = self.near[usize::from(layer)].get(slot as usize) else { return false };
        match it.state {
            Near::Offered(_) => true,
            Near::HeldOffered(_) => {
                !goes_on || self.experts[it.key as usize].route != self.layer_routes[usize::from(layer)]
            }
            _ => false,
        }
    }

    /// The expert of a slot that still holds one; a number that no expert has otherwise.
    fn owner(&self, layer: u16, slot: u32) -> u16 {
        let key = self.near[usize::from(layer)].get(slot as usize).map_or(NONE, |it| it.key);
        if key == NONE { u16::MAX } else { self.id(key).expert }
    }

    fn is_ahead(&self, ticket: crate::Ticket) -> bool {
        self.moves[ticket.index as usize].1.is_some_and(|it| it.ahead)
    }

    fn touch(&mut self, key: Key) {
        self.count(key, 1);
        let (id, at, token) = (self.id(key), self.routes, self.token);
        let route = self.layer_routes[usize::from(id.layer)];
        let expert = &mut self.experts[key as usize];
        expert.last = at;
        expert.token = token;
        expert.route = route;
        self.policy.touch(id, at);
    }

    /// Carries a checked decision out.
    fn serve(&mut self, key: Key, id: ExpertId, lane: Lane, out: &mut Plan) -> Serve {
        let seen = self.experts[key as usize].seen;
        match (lane, seen) {
            (Lane::Cpu, View::Host(slot)) => {
                self.hosts.slots[slot.0 as usize].readers += 1;
                let place = Slot::Host(slot);
                Serve { id, place: Target::Slot(place), ready: Ready::Pinned(Pin { place, id }) }
            }
            (Lane::Pull(claim) | Lane::Disk(claim), _) => self.serve_claim(key, id, claim, out),
            _ => {
                let index = self.experts[key as usize].near;
                let slot = Slot::Device(DeviceSlot { layer: id.layer, index });
                let place = Target::Slot(slot);
                let filler = match self.near[usize::from(id.layer)][index as usize].state {
                    Near::Filling => self.filler(slot),
                    Near::Lost => return Serve { id, place, ready: Ready::Lost },
                    _ => None,
                };
                if let Some(ticket) = filler
                    && let Some(it) = self.moves[ticket.index as usize].1.as_mut()
                {
                    it.ahead = false;
                }
                Serve { id, place, ready: filler.map_or(Ready::Now, Ready::When) }
            }
        }
    }

    fn serve_claim(&mut self, key: Key, id: ExpertId, claim: Claim, out: &mut Plan) -> Serve {
        if let Claim::Scratch(n) = claim {
            let place = Target::Scratch(n);
            match self.scratch[usize::from(n)] {
                Scratch::Kept(_) => {
                    self.scratch[usize::from(n)] = Scratch::Free;
                    return Serve { id, place, ready: Ready::Now };
                }
                Scratch::Filling(_, ticket) => {
                    if let Some(it) = self.moves[ticket.index as usize].1.as_mut() {
                        it.ahead = false;
                    }
                    return Serve { id, place, ready: Ready::When(ticket) };
                }
                Scratch::Free => {}
            }
        }
        let transfer = self.fetch(key, claim);
        out.transfers.push(transfer);
        Serve { id, place: transfer.to, ready: Ready::When(transfer.ticket) }
    }

    /// A lane or transfer is done with a near slot.
    pub(super) fn near_read(&mut self, layer: u16, index: u32) {
        let slot = &mut self.near[usize::from(layer)][index as usize];
        slot.readers = slot.readers.saturating_sub(1);
        if slot.readers == 0 && slot.state == Near::Draining {
            self.release_near(layer, index);
        }
    }

    /// A lane or transfer is done with a host slot.
    pub(super) fn host_read(&mut self, index: u32) {
        let slot = &mut self.hosts.slots[index as usize];
        slot.readers = slot.readers.saturating_sub(1);
        if slot.readers == 0 && slot.state == Host::Releasing {
            self.release_host(index);
        }
    }

    /// Frees a near slot that the claimer does not know, as soon as nothing reads it.
    pub(super) fn drain(&mut self, layer: u16, index: u32) {
        let slot = &mut self.near[usize::from(layer)][index as usize];
        slot.state = Near::Draining;
        if slot.readers == 0 {
            self.release_near(layer, index);
        }
    }

    /// The slot is empty.
    pub(super) fn release_near(&mut self, layer: u16, index: u32) {
        let limit = self.limits.near[usize::from(layer)];
        let slot = &mut self.near[usize::from(layer)][index as usize];
        slot.key = NONE;
        slot.state = if index < limit { Near::Free } else { Near::Closed };
        self.touched.insert(layer);
    }

    /// The slot holds nothing that anyone may ask for; it is empty once nothing reads it.
    pub(super) fn release_host(&mut self, index: u32) {
        let it = self.hosts.slots[index as usize];
        if it.key != NONE && self.experts[it.key as usize].host == index {
            self.experts[it.key as usize].host = NONE;
        }
        let state = match (it.readers, self.hosts.beyond(index, &self.limits.host)) {
            (0, false) => Host::Free,
            (0, true) => Host::Closed,
            _ => Host::Releasing,
        };
        self.hosts.set(index, state);
    }
}

fn claim_of(lane: Lane) -> Option<Claim> {
    match lane {
        Lane::Pull(claim) | Lane::Disk(claim) => Some(claim),
        Lane::Hit | Lane::Cpu => None,
    }
}
