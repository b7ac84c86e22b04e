//! The clairvoyant bound (Belady's MIN with bypass): of the residents and the expert that missed, the one whose next use is
//! farthest away is not kept. No policy over as many slots hits more often from the same start. All of a token's look-ups in a
//! layer happen at once: they see what was there before any of them.
//!
//! Next uses are found once, backwards. A layer then keeps its residents in a heap by next use; an entry whose expert was
//! used since is stale and dropped when it comes up, so a look-up costs the logarithm of the heap.

use std::collections::BinaryHeap;

use anyhow::Result;

use super::walk::{Simulated, Step};
use crate::routes::Trace;

/// Never used again.
const NEVER: u32 = u32::MAX;

/// All layers' caches and futures.
pub struct Belady {
    layers: Vec<Layer>,
    /// Token of the next use of each look-up, as the trace's ids: `[tokens][layers][k]`.
    next: Vec<u32>,
    at: usize,
    missed: Vec<(u32, u16)>,
}

struct Layer {
    /// Next use of each expert that is in a slot.
    resident: Vec<Option<u32>>,
    heap: BinaryHeap<(u32, u16)>,
}

impl Belady {
    /// Slots of each layer begin with its first experts, like any other policy's.
    pub fn new(trace: &Trace, slots: usize) -> Self {
        let slots = slots.min(trace.experts);
        let mut upcoming = vec![vec![NEVER; trace.experts]; trace.layers];
        let row = trace.layers * trace.k;
        let mut next = vec![NEVER; trace.tokens * row];
        for token in (0..trace.tokens).rev() {
            for (layer, upcoming) in upcoming.iter_mut().enumerate() {
                let at = token * row + layer * trace.k;
                for (next, &id) in next[at..].iter_mut().zip(trace.route(token, layer)) {
                    *next = std::mem::replace(&mut upcoming[usize::from(id)], token as u32);
                }
            }
        }
        let layers = upcoming
            .into_iter()
            .map(|first| {
                let resident = (0..trace.experts).map(|e| (e < slots).then_some(first[e])).collect();
                let heap = (0..slots).map(|e| (first[e], e as u16)).collect();
                Layer { resident, heap }
            })
            .collect();
        Self { layers, next, at: 0, missed: Vec::new() }
    }
}

impl Simulated for Belady {
    fn route(&mut self, layer: usize, ids: &[u16]) -> Result<Step> {
        let next = &self.next[self.at..self.at + ids.len()];
        self.at += ids.len();
        let layer = &mut self.layers[layer];
        self.missed.clear();
        for (&id, &next) in ids.iter().zip(next) {
            if !layer.hit(id, next) {
                self.missed.push((next, id));
            }
        }
        let hits = ids.len() - self.missed.len();
        // Soonest first, so that none comes in only to make room for another; after the hits, whose slots may be the ones.
        self.missed.sort_unstable();
        let kept = self.missed.iter().take_while(|&&(next, id)| layer.admit(id, next)).count();
        Ok(Step { hits: hits as u64, moves: self.missed.len() as u64, kept: kept as u64 })
    }
}

impl Layer {
    /// Whether the expert is there; then its next use is another one.
    fn hit(&mut self, id: u16, next: u32) -> bool {
        let Some(known) = &mut self.resident[usize::from(id)] else { return false };
        *known = next;
        self.heap.push((next, id));
        true
    }

    /// Whether an expert that is not there comes in for one that is used later than it.
    fn admit(&mut self, id: u16, next: u32) -> bool {
        while let Some(&(farthest, victim)) = self.heap.peek() {
            if self.resident[usize::from(victim)] != Some(farthest) {
                self.heap.pop();
                continue;
            }
            if farthest <= next {
                break;
            }
            self.heap.pop();
            self.resident[usize::from(victim)] = None;
            self.resident[usize::from(id)] = Some(next);
            self.heap.push((next, id));
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::random::Pcg64;
    use crate::replay::walk;

    /// Most hits that any choice of what to keep reaches, by trying all of them.
    fn best(future: &[Vec<u16>], cache: u32, slots: u32, known: &mut HashMap<(usize, u32), u64>) -> u64 {
        let Some((now, rest)) = future.split_first() else { return 0 };
        if let Some(&hits) = known.get(&(future.len(), cache)) {
            return hits;
        }
        let wanted = now.iter().fold(0u32, |set, id| set | 1 << id);
        let hits = u64::from((cache & wanted).count_ones());
        let all = cache | wanted;
        let after = (0..=all).filter(|kept| kept & !all == 0 && kept.count_ones() <= slots);
        let most = after.map(|kept| best(rest, kept, slots, known)).max().unwrap_or(0);
        known.insert((future.len(), cache), hits + most);
        hits + most
    }

    #[test]
    fn no_choice_is_better() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        let mut bits = Pcg64::new(5);
        for slots in [1, 2, 3, 5] {
            let tokens: Vec<Vec<u16>> = (0..14)
                .map(|_| {
                    let first = (bits.next() % 6) as u16;
                    vec![first, (first + 1 + (bits.next() % 5) as u16) % 6]
                })
                .collect();
            let metadata = [("experts", "6".to_owned())];
            let mut writer = crate::routes::TraceWriter::create(&path, None, 1, 2, &metadata).unwrap();
            for token in &tokens {
                writer.token(token).unwrap();
            }
            writer.commit().unwrap();
            let trace = Trace::read(&path).unwrap();
            let outcome = walk(&trace, &mut Belady::new(&trace, slots), &mut |_| true).unwrap().unwrap();
            let wanted = best(&tokens, (1 << slots) - 1, slots as u32, &mut HashMap::new());
            assert_eq!(outcome.sum().hits, wanted, "{slots} slots: {tokens:?}");
        }
    }

    #[test]
    fn all_slots_hit_always_and_move_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        let mut writer = crate::routes::TraceWriter::create(&path, Some(2), 2, 1, &[]).unwrap();
        writer.token(&[3, 0]).unwrap();
        writer.token(&[1, 2]).unwrap();
        writer.commit().unwrap();
        let trace = Trace::read(&path).unwrap();
        let outcome = walk(&trace, &mut Belady::new(&trace, 100), &mut |_| true).unwrap().unwrap();
        assert_eq!(outcome.layers, [Step { hits: 2, moves: 0, kept: 0 }; 2]);
        assert_eq!((outcome.hit_rate(), outcome.moves_per_token()), (1.0, 0.0));
    }
}
