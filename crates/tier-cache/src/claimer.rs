//! The claimer in software: what a router kernel does on the device, for engines that route on the processor, for replay
//! and for tests.

use crate::geometry::Geometry;
use crate::plan::{Claim, Lane, Routed};
use crate::view::{Edit, View};

/// Which misses are promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Every miss for which there is a spare.
    #[default]
    All,
    /// One whose expert also missed within the last so many routes of its layer.
    SecondTouch(u64),
}

/// A table of entries and spares, and the decisions made from it. It changes by its own claims and by the directory's
/// edits, and by nothing else.
#[derive(Clone, Debug)]
pub struct Claimer {
    experts: usize,
    entries: Vec<View>,
    /// `[layer][place]`: a slot, and the expert that it still holds with what its entry becomes.
    spares: Vec<Option<Spare>>,
    offers: usize,
    /// Whether a blob is in use.
    scratch: Vec<bool>,
    /// Blobs that look-ahead fills: layer, expert, blob.
    ahead: Vec<(u16, u16, u16)>,
    admission: Admission,
    cpu: bool,
    /// By expert: the route of its layer at which it last missed, counted from 1.
    missed: Vec<u64>,
    routes: Vec<u64>,
    /// By expert: the route of its layer that it was last part of, counted from 1.
    used: Vec<u64>,
}

type Spare = (u32, Option<(u16, View)>);

impl Claimer {
    /// An empty table for a directory of this geometry.
    #[must_use]
    pub fn new(geometry: &Geometry, admission: Admission) -> Self {
        let (layers, experts) = (geometry.near.len(), usize::from(geometry.experts));
        let offers = usize::from(geometry.offers);
        Self {
            experts,
            entries: vec![View::Nothing; layers * experts],
            spares: vec![None; layers * offers],
            offers,
            scratch: vec![false; usize::from(geometry.scratch)],
            ahead: Vec::new(),
            admission,
            cpu: false,
            missed: vec![0; layers * experts],
            routes: vec![0; layers],
            used: vec![0; layers * experts],
        }
    }

    /// Whether experts in host memory are computed there (true) or pulled (false, as it starts).
    pub fn compute_host_on_cpu(&mut self, cpu: bool) {
        self.cpu = cpu;
    }

    /// The entry of an expert.
    ///
    /// # Panics
    /// If there is no such expert.
    #[must_use]
    pub fn entry(&self, layer: u16, expert: u16) -> View {
        self.entries[self.index(layer, expert)]
    }

    /// Decides where each of `experts` comes from, in order, and appends the decisions. Stops before the first miss for
    /// which no scratch blob is left; the answer is how many experts were decided on. Each expert is to be named once.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn decide(&mut self, layer: u16, experts: &[u16], out: &mut Vec<Routed>) -> usize {
        self.routes[usize::from(layer)] += 1;
        self.go_on(layer, experts, out)
    }

    /// As [`decide`](Self::decide) for the rest of a route that it stopped in.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn go_on(&mut self, layer: u16, experts: &[u16], out: &mut Vec<Routed>) -> usize {
        for expert in experts {
            let index = self.index(layer, *expert);
            self.used[index] = self.routes[usize::from(layer)];
        }
        for (at, expert) in experts.iter().enumerate() {
            let index = self.index(layer, *expert);
            let lane = match self.entries[index] {
                View::Device(_) => Some(Lane::Hit),
                View::Host(_) if self.cpu => Some(Lane::Cpu),
                View::Host(_) => self.claim(layer, *expert).map(Lane::Pull),
                View::Nothing => self.claim(layer, *expert).map(Lane::Disk),
            };
            let Some(lane) = lane else { return at };
            out.push(Routed { expert: *expert, lane });
        }
        experts.len()
    }

    /// Claims for experts that are expected to be routed and of which nothing is known: spares first, then scratch, as
    /// long as `keep` scratch blobs stay free for the misses of a token.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn look_ahead(&mut self, layer: u16, experts: &[u16], keep: usize, out: &mut Vec<Routed>) {
        for expert in experts {
            let index = self.index(layer, *expert);
            let guessed = self.guess(layer, *expert).is_some();
            if self.entries[index] != View::Nothing || guessed {
                continue;
            }
            // One guess must not take the slot of another.
            let claim = match self.take_spare(layer, index, experts) {
                Some(slot) => Claim::Spare(slot),
                None => {
                    if self.scratch.iter().filter(|used| !**used).count() <= keep {
                        return;
                    }
                    let Some(n) = self.take_scratch() else { return };
                    self.ahead.push((layer, *expert, n));
                    Claim::Scratch(n)
                }
            };
            out.push(Routed { expert: *expert, lane: Lane::Disk(claim) });
        }
    }

    /// The look-ahead's scratch blob of an expert is free again: its read was cancelled, or the route did not name it.
    pub fn forget(&mut self, layer: u16, expert: u16) {
        if let Some(at) = self.guess(layer, expert) {
            let (_, _, scratch) = self.ahead.swap_remove(at);
            self.release(scratch);
        }
    }

    /// A scratch blob has been computed from.
    pub fn release(&mut self, scratch: u16) {
        if let Some(used) = self.scratch.get_mut(usize::from(scratch)) {
            *used = false;
        }
    }

    /// Applies a batch, whole, between two routes.
    ///
    /// # Panics
    /// If an edit names a layer, expert or place that is not there.
    pub fn apply(&mut self, edits: &[Edit]) {
        for edit in edits {
            if let Edit::Entry { id, from, to } = *edit {
                let index = self.index(id.layer, id.expert);
                let entry = &mut self.entries[index];
                if *entry == from {
                    *entry = to;
                }
            }
        }
        for edit in edits {
            if let Edit::Withdraw { layer, place, slot } = *edit {
                let stands = &mut self.spares[usize::from(layer) * self.offers + usize::from(place)];
                if stands.is_some_and(|(stands, _)| stands == slot) {
                    *stands = None;
                }
            }
        }
        for edit in edits {
            if let Edit::Offer { layer, place, slot, owner } = *edit {
                self.spares[usize::from(layer) * self.offers + usize::from(place)] = Some((slot, owner));
            }
        }
    }

    fn claim(&mut self, layer: u16, expert: u16) -> Option<Claim> {
        let index = self.index(layer, expert);
        if let Some(at) = self.guess(layer, expert) {
            let (_, _, scratch) = self.ahead.swap_remove(at);
            return Some(Claim::Scratch(scratch));
        }
        let now = self.routes[usize::from(layer)];
        let before = self.missed[index];
        let admitted = match self.admission {
            Admission::All => true,
            Admission::SecondTouch(window) => before > 0 && now - before <= window,
        };
        let spare = if admitted { self.take_spare(layer, index, &[]) } else { None };
        let claim = match spare {
            Some(slot) => Claim::Spare(slot),
            None => Claim::Scratch(self.take_scratch()?),
        };
        self.missed[index] = now;
        Some(claim)
    }

    fn take_spare(&mut self, layer: u16, index: usize, keep: &[u16]) -> Option<u32> {
        let (first, route) = (usize::from(layer) * self.experts, self.routes[usize::from(layer)]);
        let places = &mut self.spares[usize::from(layer) * self.offers..][..self.offers];
        // What the layer's last route used stays: it may be in use still.
        let used = &self.used;
        let free = |(_, owner): &Spare| {
            owner.is_none_or(|(owner, _)| used[first + usize::from(owner)] != route && !keep.contains(&owner))
        };
        let (slot, owner) = places.iter_mut().find_map(|place| place.take_if(|spare| free(spare)))?;
        if let Some((owner, becomes)) = owner {
            self.entries[first + usize::from(owner)] = becomes;
        }
        self.entries[index] = View::Device(slot);
        Some(slot)
    }

    fn take_scratch(&mut self) -> Option<u16> {
        let at = self.scratch.iter().position(|used| !used)?;
        self.scratch[at] = true;
        Some(at as u16)
    }

    fn guess(&self, layer: u16, expert: u16) -> Option<usize> {
        self.ahead.iter().position(|(l, e, _)| (*l, *e) == (layer, expert))
    }

    fn index(&self, layer: u16, expert: u16) -> usize {
        assert!(
            usize::from(expert) < self.experts,
            "layer {layer} has {} experts, not {expert}",
            self.experts
        );
        usize::from(layer) * self.experts + usize::from(expert)
    }
}
