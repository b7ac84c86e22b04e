//! Where the routed experts' weights are read from: the file's map, or the slots of a memory that cannot hold them all.

use std::ops::Range;
use std::time::Duration;

use quant_kernels::Matrix;
use tier_cache::HostSlot;

use super::read_ahead::ReadAhead;
use super::tiers::Tiers;
use crate::error::ExecError;
use crate::weights::Moe;

/// An expert whose weights are in memory now.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The expert within its layer.
    pub(crate) expert: u32,
    /// Its pairs in the batch's list.
    pub(crate) pairs: Range<usize>,
    /// Its slot, where it is not read from the map.
    pub(crate) slot: Option<HostSlot>,
    /// The transit blob that is free again when it has been computed.
    pub(crate) scratch: Option<u16>,
}

impl Served {
    pub(crate) fn new(expert: u32, pairs: Range<usize>) -> Self {
        Self { expert, pairs, slot: None, scratch: None }
    }
}

/// The source of routed experts. A layer's calls come in the order `route`, `look_ahead`, then `wave` and `done` until
/// there is no wave left, then `take_failures`.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) tiers: Option<Box<Tiers>>,
    /// Experts of the map that were not handed out yet.
    mapped: Vec<Served>,
    /// By block: which experts of the map were asked for before.
    asked: Vec<Vec<bool>>,
    /// Takes what is to be asked for; `None` where everything is in memory as it is.
    ahead: Option<ReadAhead>,
    /// Whether the layer in progress is read from the map.
    in_map: bool,
}

impl Store {
    pub(crate) fn new(tiers: Option<Tiers>, ahead: Option<ReadAhead>) -> Self {
        Self { tiers: tiers.map(Box::new), mapped: Vec::new(), asked: Vec::new(), ahead, in_map: true }
    }

    /// The experts of a block that the batch takes, each once, with their pairs.
    pub(crate) fn route(&mut self, block: usize, active: &[(u32, Range<usize>)], moe: &Moe) {
        match self.tiers.as_mut().filter(|tiers| tiers.has(block)) {
            Some(tiers) => {
                self.in_map = false;
                tiers.route(block, active);
            }
            None => {
                self.in_map = true;
                self.ask(block, active.iter().map(|(expert, _)| *expert), moe);
                self.mapped.clear();
                self.mapped.extend(active.iter().map(|(expert, pairs)| Served::new(*expert, pairs.clone())));
            }
        }
    }

    /// The first time that experts are taken they may still be on the drive: asked for at once they come together, and not
    /// page by page as the products reach them.
    fn ask(&mut self, block: usize, experts: impl Iterator<Item = u32>, moe: &Moe) {
        let Some(ahead) = &self.ahead else { return };
        if self.asked.len() <= block {
            self.asked.resize(block + 1, Vec::new());
        }
        let asked = &mut self.asked[block];
        asked.resize(moe.gate.n, false);
        let mut extents = Vec::new();
        for expert in experts.map(|expert| expert as usize) {
            if !std::mem::replace(&mut asked[expert], true) {
                extents.extend([&moe.gate, &moe.up, &moe.down].map(|stack| stack.extent(expert)));
            }
        }
        if !extents.is_empty() {
            ahead.ask(extents);
        }
    }

    fn slots(&mut self) -> Option<&mut Tiers> {
        self.tiers.as_deref_mut().filter(|_| !self.in_map)
    }

    /// The next experts that can be computed, `together` or more unless they are the last; waits for them if need be. False
    /// when none is left.
    pub(crate) fn wave(&mut self, wave: &mut Vec<Served>, together: usize) -> bool {
        if let Some(tiers) = self.slots() {
            return tiers.wave(wave, together);
        }
        wave.clear();
        wave.append(&mut self.mapped);
        !wave.is_empty()
    }

    /// The wave has been computed, in this time.
    pub(crate) fn done(&mut self, wave: &[Served], time: Duration) {
        if let Some(tiers) = self.slots() {
            tiers.computed(time);
            tiers.done(wave);
        }
    }

    /// The weights of the layer's pairs, and whether each was computed.
    pub(crate) fn weigh(&mut self, pairs: impl Iterator<Item = (bool, f32)>) {
        if let Some(tiers) = self.slots() {
            tiers.weigh(pairs);
        }
    }

    /// Gate, up and down of an expert of the current wave.
    pub(crate) fn matrices<'a>(&'a self, file: &'a gguf::Model, moe: &Moe, it: &Served) -> [Matrix<'a>; 3] {
        match &self.tiers {
            Some(tiers) if !self.in_map => tiers.matrices(moe, it),
            _ => {
                let expert = it.expert as usize;
                [moe.gate.matrix(file, expert), moe.up.matrix(file, expert), moe.down.matrix(file, expert)]
            }
        }
    }

    /// Whether a guess at a block's route would be of use.
    pub(crate) fn wants_guess(&self, block: usize) -> bool {
        match &self.tiers {
            Some(tiers) => tiers.wants_guess(block),
            None => self.ahead.is_some() && self.asked.get(block).is_none_or(|asked| asked.contains(&false)),
        }
    }

    /// The experts that a block is expected to take.
    pub(crate) fn look_ahead(&mut self, block: usize, experts: &[u32], moe: &Moe) {
        match &mut self.tiers {
            Some(tiers) => tiers.look_ahead(block, experts),
            None => self.ask(block, experts.iter().copied(), moe),
        }
    }

    /// Experts of the layer whose weights could not be read.
    pub(crate) fn take_failures(&mut self) -> Vec<(u32, ExecError)> {
        self.slots().map_or_else(Vec::new, Tiers::take_failures)
    }

    /// The pass is over.
    pub(crate) fn end_pass(&mut self) {
        if let Some(tiers) = &mut self.tiers {
            tiers.end_pass();
        }
    }
}
