//! Where the routed experts' weights are read from: the file's map, or the slots of a memory that cannot hold them all.

use std::ops::Range;

use quant_kernels::Matrix;

use crate::error::ExecError;
use crate::weights::Moe;

/// An expert whose weights are in memory now.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The expert within its layer.
    pub(crate) expert: u32,
    /// Its pairs in the batch's list.
    pub(crate) pairs: Range<usize>,
}

/// The source of routed experts. A layer's calls come in the order `route`, `look_ahead`, then `wave` and `done` until
/// there is no wave left.
#[derive(Default)]
pub(crate) struct Store {
    waiting: Vec<Served>,
}

impl Store {
    /// The experts of a block that the batch takes, each once, with their pairs.
    pub(crate) fn route(&mut self, _block: usize, active: &[(u32, Range<usize>)]) {
        self.waiting.clear();
        self.waiting
            .extend(active.iter().map(|(expert, pairs)| Served { expert: *expert, pairs: pairs.clone() }));
    }

    /// The next experts that can be computed; waits for one if need be. False when none is left.
    pub(crate) fn wave(&mut self, wave: &mut Vec<Served>) -> bool {
        wave.clear();
        wave.append(&mut self.waiting);
        !wave.is_empty()
    }

    /// The wave has been computed.
    pub(crate) fn done(&mut self, _wave: &[Served]) {}

    /// Gate, up and down of an expert of the current wave.
    pub(crate) fn matrices<'a>(&'a self, file: &'a gguf::Model, moe: &Moe, it: &Served) -> [Matrix<'a>; 3] {
        let expert = it.expert as usize;
        [moe.gate.matrix(file, expert), moe.up.matrix(file, expert), moe.down.matrix(file, expert)]
    }

    /// Whether a guess at a block's route would be of use.
    pub(crate) fn wants_guess(&self, _block: usize) -> bool {
        false
    }

    /// The experts that a block is expected to take.
    pub(crate) fn look_ahead(&mut self, _block: usize, _experts: &[u32]) {}

    /// Experts of the layer whose weights could not be read.
    pub(crate) fn take_failures(&mut self) -> Vec<(u32, ExecError)> {
        Vec::new()
    }
}
