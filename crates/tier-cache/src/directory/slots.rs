//! Slots of both tiers.

use std::collections::BTreeSet;

use super::{Key, NONE};

/// How a near slot empties once its removal is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// It is empty then.
    Drop,
    /// It is a spare then: the batch that removes the entry offers the slot in this place.
    Offer(u16),
    /// Its bytes are copied to the host; it is empty when they have been.
    Copy,
    /// They are copied to this host slot as soon as that one's own removal is acknowledged.
    Promise(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// Beyond the limit, empty.
    Closed,
    /// Empty, unknown to the claimer.
    Free,
    /// Empty; the batch that offers it is not acknowledged yet.
    Offering(u16),
    /// Empty, to be claimed from this place.
    Offered(u16),
    /// Bytes are on their way into it.
    Filling,
    /// Holds its expert.
    Held,
    /// Holds its expert and is to be offered by the batch that is written next, the first victim of this boundary (0)
    /// before the others: a claimer takes the first place, so that the victims leave in the policy's order.
    Yielding(u32),
    /// Holds its expert; the batch that offers it is not acknowledged yet.
    HeldOffering(u16),
    /// Holds its expert until another is claimed into it from this place.
    HeldOffered(u16),
    /// Holds its expert until the claimer no longer knows.
    Leaving(Exit),
    /// The claimer no longer knows it; transfers still read it.
    Draining,
    /// Claimed, but the bytes never came; the claimer still believes they did.
    Lost,
}

impl Near {
    /// Whether an expert lives here and is not leaving.
    pub(super) fn holds(self) -> bool {
        matches!(self, Self::Held | Self::Yielding(_) | Self::HeldOffering(_) | Self::HeldOffered(_))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NearSlot {
    pub(super) state: Near,
    pub(super) key: Key,
    /// Transfers and pins that read it.
    pub(super) readers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// Beyond the limit, empty.
    Closed,
    /// Empty.
    Free,
    /// Bytes are on their way into it.
    Filling,
    /// Holds its expert.
    Held,
    /// Free, and its bytes are those of an expert that lives in the near tier.
    Shadow,
    /// A shadow that the expert falls back to when its near slot is claimed: not free.
    Backing,
    /// Holds its expert until the claimer no longer knows; then it is free, or goes to the near slot it was promised to.
    Leaving(Option<(u16, u32)>),
    /// The claimer no longer knows it; transfers or lanes still read it.
    Releasing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HostState {
    pub(super) state: Host,
    pub(super) key: Key,
    /// Transfers and pins that read it.
    pub(super) readers: u32,
    pub(super) class: u8,
    /// When it became a shadow: the oldest is overwritten first.
    stamp: u64,
}

/// The host tier's slots with what is free of each class.
#[derive(Debug)]
pub(super) struct Hosts {
    pub(super) slots: Vec<HostState>,
    /// First slot of each class; one more entry for the end.
    starts: Vec<u32>,
    free: Vec<BTreeSet<u32>>,
    shadows: Vec<BTreeSet<(u64, u32)>>,
    stamps: u64,
}

impl Hosts {
    pub(super) fn new(counts: &[u32]) -> Self {
        let mut slots = Vec::new();
        let mut starts = vec![0];
        let mut free = Vec::new();
        for (class, count) in counts.iter().enumerate() {
            let first = slots.len() as u32;
            let blank = HostState { state: Host::Free, key: NONE, readers: 0, class: class as u8, stamp: 0 };
            slots.extend((0..*count).map(|_| blank));
            free.push((first..first + count).collect());
            starts.push(first + count);
        }
        Self { slots, starts, free, shadows: vec![BTreeSet::new(); counts.len()], stamps: 0 }
    }

    pub(super) fn classes(&self) -> usize {
        self.free.len()
    }

    pub(super) fn of_class(&self, class: u8) -> std::ops::Range<u32> {
        self.starts[usize::from(class)]..self.starts[usize::from(class) + 1]
    }

    /// Whether the slot lies beyond its class's limit.
    pub(super) fn beyond(&self, slot: u32, limits: &[u32]) -> bool {
        let class = usize::from(self.slots[slot as usize].class);
        slot - self.starts[class] >= limits[class]
    }

    /// Sets a slot's state, keeping the lists.
    pub(super) fn set(&mut self, slot: u32, state: Host) {
        let it = &mut self.slots[slot as usize];
        let class = usize::from(it.class);
        self.free[class].remove(&slot);
        self.shadows[class].remove(&(it.stamp, slot));
        it.state = state;
        match state {
            Host::Free => {
                it.key = NONE;
                self.free[class].insert(slot);
            }
            Host::Closed => it.key = NONE,
            Host::Shadow => {
                self.stamps += 1;
                it.stamp = self.stamps;
                self.shadows[class].insert((it.stamp, slot));
            }
            _ => {}
        }
    }

    /// A slot to write to: a free one, or the oldest shadow that nothing reads.
    pub(super) fn vacant(&self, class: u8) -> Option<u32> {
        let class = usize::from(class);
        let shadow = || {
            let quiet = |(_, slot): &&(u64, u32)| self.slots[*slot as usize].readers == 0;
            self.shadows[class].iter().find(quiet).map(|(_, slot)| *slot)
        };
        self.free.get(class)?.first().copied().or_else(shadow)
    }

    /// How many slots [`vacant`](Self::vacant) could give in turn.
    pub(super) fn vacancies(&self, class: u8) -> usize {
        let class = usize::from(class);
        let Some(free) = self.free.get(class) else { return 0 };
        let quiet = |(_, slot): &&(u64, u32)| self.slots[*slot as usize].readers == 0;
        free.len() + self.shadows[class].iter().filter(quiet).count()
    }

    pub(super) fn reopen(&mut self, limits: &[u32]) {
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].state == Host::Closed && !self.beyond(slot, limits) {
                self.set(slot, Host::Free);
            }
        }
    }

    pub(super) fn closing(&self, limits: &[u32]) -> usize {
        let slots = 0..self.slots.len() as u32;
        slots.filter(|s| self.beyond(*s, limits) && self.slots[*s as usize].state != Host::Closed).count()
    }

    /// For the invariants: the lists say what the slots say.
    pub(super) fn lists_agree(&self) -> bool {
        let free: usize = self.free.iter().map(BTreeSet::len).sum();
        let shadows: usize = self.shadows.iter().map(BTreeSet::len).sum();
        let count = |state: Host| self.slots.iter().filter(|slot| slot.state == state).count();
        free == count(Host::Free)
            && shadows == count(Host::Shadow)
            && self.free.iter().flatten().all(|slot| self.slots[*slot as usize].state == Host::Free)
            && self.shadows.iter().flatten().all(|(_, slot)| self.slots[*slot as usize].state == Host::Shadow)
    }
}
