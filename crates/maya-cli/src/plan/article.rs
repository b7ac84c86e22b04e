//! The launch article's arithmetic: what its lanes take adds up, and a draft pipeline hides a fixed part of it.
//!
//! Popularity is read as plain shares: each layer's experts follow the law, a token makes layers x k look-ups, and an expert
//! gets its share of its layer's, with no regard to the k of a token being different ones. With Zipf 0.88 over 288 experts and
//! 54 and 22 GB of 7.11 MB slots, spread evenly over 42 layers, that gives 25.1 look-ups in RAM and 9.4 on the drive, the
//! article's 25 and 9.4. Drawing k different experts instead gives 27.3 and 10.1; one law over all 12,096 gives 19.0 and 7.1.

use super::bound::Busy;
use super::place::{Placement, Tiers};

/// Time of a token with the draft pipeline over the time without it, as measured for the article.
pub const DRAFTS: f64 = 25.0 / 38.1;

/// Expected look-ups a token in VRAM, RAM and on the drive.
pub fn lookups(placement: &Placement, tiers: Tiers, shares: &[Vec<f64>]) -> [f64; 3] {
    let mut lookups = [0.0; 3];
    for (layer, shares) in shares.iter().enumerate() {
        for (expert, share) in shares.iter().enumerate() {
            lookups[placement.tier(tiers, layer, expert)] += share;
        }
    }
    lookups
}

/// Milliseconds of a token from what its lanes take.
pub fn token_ms(busy: Busy) -> f64 {
    (busy.dense + busy.hit + busy.pull + busy.drive) * DRAFTS
}
