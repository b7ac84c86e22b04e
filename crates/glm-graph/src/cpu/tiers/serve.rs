//! One layer's experts: residents at once, the others as they land.

use std::ops::Range;

use nvme_reader::Priority;
use quant_kernels::Matrix;
use tier_cache::{Claim, ExpertId, Lane, Ready, Target, View};

use super::Tiers;
use crate::cpu::store::Served;
use crate::error::ExecError;
use crate::weights::Moe;

/// Bytes of experts that are computed before arrivals are looked at again, while reads are under way: about two
/// milliseconds of work, less than the drive has in its hands.
const AT_ONCE: u64 = 4 << 20;

impl Tiers {
    /// Whether this block's experts are kept here.
    pub(crate) fn has(&self, block: usize) -> bool {
        self.of_block.get(block).is_some_and(Option::is_some)
    }

    /// Replays the route of a block: residents are ready, reads for the others begin, all at once as far as there is
    /// memory for them to land in.
    pub(crate) fn route(&mut self, block: usize, active: &[(u32, Range<usize>)]) {
        let Some(layer) = self.of_block[block] else { return };
        self.layer = layer;
        self.drop_guesses(Some(active));
        self.receive();
        self.sync();
        self.ready.clear();
        self.todo.clear();
        let resident = |expert: u32| matches!(self.claimer.entry(layer, expert as u16), View::Device(_));
        let mut served = active.iter().map(|(expert, pairs)| Served::new(*expert, pairs.clone()));
        let (hits, misses): (Vec<_>, Vec<_>) = served.by_ref().partition(|it| resident(it.expert));
        let guessed = hits.iter().filter(|it| self.is_coming(it.expert)).count() as u32;
        let pass = &mut self.pass[usize::from(layer)];
        (pass.experts, pass.misses, pass.guessed) = (active.len() as u32, misses.len() as u32, guessed);
        self.todo.extend(hits);
        self.todo.extend(misses);
        self.decide(true);
    }

    /// Whether a resident's bytes are still on their way: a guess that came true.
    fn is_coming(&self, expert: u32) -> bool {
        let id = ExpertId { layer: self.layer, expert: expert as u16 };
        self.directory.in_transit(id).is_some()
    }

    /// Decides on as many experts as there is memory for.
    fn decide(&mut self, first: bool) {
        if self.todo.is_empty() && !first {
            return;
        }
        self.ids.clear();
        self.ids.extend(self.todo.iter().map(|it| it.expert as u16));
        self.routed.clear();
        let n = if first {
            self.claimer.decide(self.layer, &self.ids, &mut self.routed)
        } else {
            self.claimer.go_on(self.layer, &self.ids, &mut self.routed)
        };
        self.plan.clear();
        if let Some(why) = self.defect.clone() {
            return self.lose_all(&why);
        }
        let replayed = if first {
            self.directory.route(self.layer, &self.routed, &mut self.plan)
        } else if n > 0 {
            self.directory.go_on(self.layer, &self.routed, &mut self.plan)
        } else {
            return;
        };
        if let Err(error) = replayed {
            // A defect of this crate or of the directory: the layer fails, and says so.
            debug_assert!(false, "{error}");
            let why = error.to_string();
            self.lose_all(&why);
            self.defect = Some(why);
            return;
        }
        let serves = std::mem::take(&mut self.plan.serves);
        for (serve, routed) in serves.into_iter().zip(std::mem::take(&mut self.routed)) {
            let Some(mut served) = self.todo.pop_front() else { break };
            self.account(&served, routed.lane);
            served.slot = Some(self.slot(serve.place));
            if let Target::Scratch(n) = serve.place {
                served.scratch = Some(n);
            }
            match serve.ready {
                Ready::Now => self.ready.push(served),
                Ready::Pinned(pin) => {
                    self.directory.unpin(pin);
                    self.ready.push(served);
                }
                Ready::When(ticket) => {
                    self.waiting.insert(ticket, served);
                }
                Ready::Lost => {
                    let error = self.read_error(self.layer, served.expert, &"its weights never arrived");
                    self.lose(&served, error);
                }
            }
        }
        for transfer in std::mem::take(&mut self.plan.transfers) {
            self.counters.reads += 1;
            if let Err(error) = self.start(&transfer, Priority::Demand)
                && let Some(served) = self.waiting.remove(&transfer.ticket)
            {
                self.lose(&served, error);
            }
        }
    }

    fn account(&mut self, served: &Served, lane: Lane) {
        match lane {
            Lane::Hit => self.counters.hits += 1,
            Lane::Pull(claim) | Lane::Disk(claim) => {
                self.counters.misses += 1;
                self.counters.promoted += u64::from(matches!(claim, Claim::Spare(_)));
            }
            Lane::Cpu => {}
        }
        let uses = served.pairs.len() as u32 - 1;
        self.directory.credit(ExpertId { layer: self.layer, expert: served.expert as u16 }, uses);
    }

    /// The next experts to compute. With nothing ready it waits for the drive, and with fewer than `together` it waits for
    /// more of those that are on their way: a batch's experts are computed one on each thread.
    pub(crate) fn wave(&mut self, wave: &mut Vec<Served>, together: usize) -> bool {
        wave.clear();
        loop {
            self.receive();
            self.decide(false);
            if self.ready.len() >= together || (!self.ready.is_empty() && self.waiting.is_empty()) {
                let expert = self.pass[usize::from(self.layer)].bytes;
                let busy = !self.waiting.is_empty() || !self.todo.is_empty();
                let most = (AT_ONCE / expert.max(1)).max(together as u64) as usize;
                let most = if busy { most } else { usize::MAX };
                let n = self.ready.len().min(most);
                wave.extend(self.ready.drain(..n));
                return true;
            }
            if self.waiting.is_empty() && self.todo.is_empty() {
                return false;
            }
            // Blobs that wrong guesses still fill come back with their reads.
            if self.reader.in_flight() == 0 {
                self.lose_all("every transit blob is taken, and nothing that would free one is under way");
                return false;
            }
            self.wait();
        }
    }

    pub(crate) fn done(&mut self, wave: &[Served]) {
        wave.iter().filter_map(|it| it.scratch).for_each(|scratch| self.claimer.release(scratch));
    }

    pub(crate) fn matrices<'a>(&'a self, moe: &Moe, it: &Served) -> [Matrix<'a>; 3] {
        let slot = it.slot.expect("a served expert has a slot");
        let part = |i: usize, stack: &crate::weights::Stack| {
            let bytes = self.arena.part(slot, i).expect("what was read is home, with its parts");
            Matrix::new(stack.quant(), stack.rows(), stack.cols(), bytes).expect("a part is a whole matrix")
        };
        [part(0, &moe.gate), part(1, &moe.up), part(2, &moe.down)]
    }

    pub(crate) fn take_failures(&mut self) -> Vec<(u32, ExecError)> {
        std::mem::take(&mut self.failures)
    }

    fn lose_all(&mut self, why: &str) {
        for served in std::mem::take(&mut self.todo) {
            let error = ExecError::Tiers(why.to_owned());
            self.lose(&served, error);
        }
    }

    /// An expert that will not come.
    pub(super) fn lose(&mut self, served: &Served, error: ExecError) {
        if let Some(scratch) = served.scratch {
            self.claimer.release(scratch);
        }
        self.failures.push((served.expert, error));
    }
}
