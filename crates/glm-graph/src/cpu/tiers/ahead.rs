//! Reading what the next layer is expected to miss, while this one is computed.

use std::ops::Range;

use nvme_reader::{Cancel, Priority};
use tier_cache::{Target, Ticket};

use super::Tiers;

/// A read that nobody asked for yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    layer: u16,
    expert: u32,
    ticket: Ticket,
    /// The transit blob it lands in, if it has no slot.
    scratch: Option<u16>,
    landed: bool,
    /// Its layer came and did not take it.
    wrong: bool,
}

impl Tiers {
    /// Whether a guess at the block's route could save a read: some of its experts are on the drive only.
    pub(crate) fn wants_guess(&self, block: usize) -> bool {
        let Some(layer) = self.of_block.get(block).copied().flatten().filter(|_| self.look_ahead) else {
            return false;
        };
        let experts = u32::from(self.directory.geometry().experts);
        self.directory.residents(layer) < experts
    }

    /// Begins to read experts that a block is expected to take, behind everything that is waited for.
    pub(crate) fn look_ahead(&mut self, block: usize, experts: &[u32]) {
        let Some(layer) = self.of_block[block] else { return };
        self.ids.clear();
        self.ids.extend(experts.iter().map(|expert| *expert as u16));
        self.routed.clear();
        // Blobs of this layer's misses are free again before the next layer's are claimed. Misses that have none yet must
        // find some.
        let keep = if self.todo.is_empty() { 0 } else { self.k };
        self.claimer.look_ahead(layer, &self.ids, keep, &mut self.routed);
        let mut transfers = Vec::with_capacity(self.routed.len());
        if let Err(error) = self.directory.look_ahead(layer, &self.routed, &mut transfers) {
            debug_assert!(false, "{error}");
            self.defect.get_or_insert(error.to_string());
            return;
        }
        for transfer in transfers {
            let expert = u32::from(transfer.id.expert);
            let scratch = match transfer.to {
                Target::Scratch(n) => Some(n),
                Target::Slot(_) => None,
            };
            if self.start(&transfer, Priority::LookAhead).is_ok() {
                let ticket = transfer.ticket;
                self.guesses.push(Guess { layer, expert, ticket, scratch, landed: false, wrong: false });
            } else {
                self.claimer.forget(layer, transfer.id.expert);
            }
        }
    }

    /// The truth about the layer in progress is known: what was guessed and not taken is called back. Without a truth the
    /// pass is over and every guess is wrong.
    pub(super) fn drop_guesses(&mut self, active: Option<&[(u32, Range<usize>)]>) {
        let taken = |expert: u32| active.is_some_and(|list| list.iter().any(|(id, _)| *id == expert));
        let mut at = 0;
        while at < self.guesses.len() {
            let guess = self.guesses[at];
            if guess.wrong || (active.is_some() && guess.layer != self.layer) {
                at += 1;
            } else if active.is_some() && taken(guess.expert) {
                self.counters.ahead_useful += 1;
                // It is waited for now.
                self.reader.urge(guess.ticket.to_bits());
                self.guesses.swap_remove(at);
            } else if guess.landed {
                self.counters.ahead_wasted += 1;
                self.guesses.swap_remove(at);
                self.forget(guess);
            } else {
                let called_back = self.reader.cancel(guess.ticket.to_bits()) == Cancel::Cancelled;
                let counter = if called_back {
                    &mut self.counters.ahead_cancelled
                } else {
                    &mut self.counters.ahead_wasted
                };
                *counter += 1;
                self.guesses[at].wrong = true;
                at += 1;
            }
        }
    }

    /// A read that was begun as a guess is over.
    pub(super) fn guess_ended(&mut self, ticket: Ticket, well: bool) {
        let Some(at) = self.guesses.iter().position(|guess| guess.ticket == ticket) else { return };
        let guess = self.guesses[at];
        if well && !guess.wrong {
            self.guesses[at].landed = true;
            return;
        }
        self.guesses.swap_remove(at);
        self.forget(guess);
    }

    /// Frees the blob of a guess. One that landed in a slot of its layer stays there.
    fn forget(&mut self, guess: Guess) {
        if let Some(scratch) = guess.scratch {
            self.directory.forget_ahead(scratch);
            self.claimer.forget(guess.layer, guess.expert as u16);
        }
    }
}
