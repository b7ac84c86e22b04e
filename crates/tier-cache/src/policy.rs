//! Who goes when a pool is full.

use crate::id::ExpertId;

/// Whose slots are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pool {
    /// The near slots of a layer.
    Device(u16),
    /// The host slots of a size class.
    Host(u8),
}

/// An expert that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The expert.
    pub id: ExpertId,
    /// Its slot's index in the pool.
    pub slot: u32,
    /// How often it was routed, decayed by its layer's half-life.
    pub count: u32,
    /// The route at which it was last used; 0 for never.
    pub last: u64,
}

/// Chooses victims. What the directory itself rules out (experts of the current token, slots that a transfer or a lane
/// reads, the host tier's protection window) is not among the candidates.
pub trait Policy {
    /// `id` was routed; `at` counts routes.
    fn touch(&mut self, id: ExpertId, at: u64) {
        let _ = (id, at);
    }

    /// The candidate to evict, as an index. Candidates come in slot order and are never none.
    fn victim(&mut self, pool: Pool, candidates: &[Candidate]) -> usize;
}

/// The one used least often goes; of equals, the one used longest ago. With the directory's half-life this is the default:
/// counts of a layer are halved by that layer's own events, so that a long prompt does not erase the early layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lfu;

impl Policy for Lfu {
    fn victim(&mut self, _pool: Pool, candidates: &[Candidate]) -> usize {
        lowest(candidates, |c| (u64::from(c.count), c.last))
    }
}

/// The one used longest ago goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lru;

impl Policy for Lru {
    fn victim(&mut self, _pool: Pool, candidates: &[Candidate]) -> usize {
        lowest(candidates, |c| (c.last, 0))
    }
}

/// A hand goes round each pool's slots and takes the first whose expert was not used since it last passed.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    hands: std::collections::BTreeMap<Pool, Hand>,
}

#[derive(Clone, Debug, Default)]
struct Hand {
    /// The slot it points at.
    slot: u32,
    /// By slot: the last use that the hand has seen.
    seen: Vec<u64>,
}

impl Policy for Clock {
    fn victim(&mut self, pool: Pool, candidates: &[Candidate]) -> usize {
        let hand = self.hands.entry(pool).or_default();
        let start = candidates.iter().position(|c| c.slot >= hand.slot).unwrap_or(0);
        // The first lap clears every mark, so the second finds one.
        for lap in 0..2 * candidates.len() {
            let at = (start + lap) % candidates.len();
            let Candidate { slot, last, .. } = candidates[at];
            let place = slot as usize;
            if hand.seen.len() <= place {
                hand.seen.resize(place + 1, 0);
            }
            if hand.seen[place] == last {
                hand.slot = slot + 1;
                return at;
            }
            hand.seen[place] = last;
        }
        start
    }
}

fn lowest<K: Ord>(candidates: &[Candidate], key: impl Fn(&Candidate) -> K) -> usize {
    let best = candidates.iter().enumerate().min_by_key(|(_, c)| key(c));
    best.map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(of: &[(u32, u64)]) -> Vec<Candidate> {
        let one = |(slot, (count, last)): (usize, &(u32, u64))| Candidate {
            id: ExpertId { layer: 0, expert: slot as u16 },
            slot: slot as u32,
            count: *count,
            last: *last,
        };
        of.iter().enumerate().map(one).collect()
    }

    #[test]
    fn least_used_then_longest_unused() {
        let list = candidates(&[(3, 1), (1, 9), (1, 7), (2, 2)]);
        assert_eq!(Lfu.victim(Pool::Device(0), &list), 2);
        assert_eq!(Lru.victim(Pool::Device(0), &list), 0);
    }

    #[test]
    fn the_hand_spares_what_was_used_since_it_passed() {
        let mut clock = Clock::default();
        let pool = Pool::Device(3);
        let mut list = candidates(&[(1, 5), (1, 6), (1, 7)]);
        assert_eq!(
            clock.victim(pool, &list),
            0,
            "all were used: the first lap clears, the second takes the first"
        );
        list[1].last = 9;
        assert_eq!(clock.victim(pool, &list), 2, "the second was used since");
        assert_eq!(clock.victim(Pool::Device(4), &list), 0, "every pool has a hand of its own");
    }
}
